"""The machine's own figures: what the disk, SQLite and the libraries give without Holdfast."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import time
from pathlib import Path

import apsw
import common
import msgspec
from common import Row, median, message, timed, told

from holdfast.storage.sqlite import files


def run(quick: bool) -> list[Row]:
    """Figures that say how fast anything can be here."""
    rounds = 100 if quick else 300
    data = msgspec.msgpack.encode([message(n, 500) for n in range(2000)])
    small = os.urandom(500)
    hashing = median([timed(lambda: hashlib.sha256(data).digest()) for _ in range(20)])
    each = timed(lambda: [hashlib.sha256(small).digest() for _ in range(20_000)]) / 20_000
    decode = median([timed(lambda: msgspec.msgpack.decode(data)) for _ in range(20)])
    size = len(data) / 1e6
    return [
        Row("machine", "", _machine(), None),
        told("append of 4 KB and fsync", fsync(rounds) * 1e6, "µs"),
        *(
            told(f"bare apsw, rows of 500 B, {batch} a commit, {level}", rate, "rows/s")
            for level in ("full", "normal")
            for batch in (1, 64, 1000)
            for rate, _ in [bare(batch, 500, level, 0.3 if quick else 1.0)]
        ),
        told("SHA-256 of 1 MB", size / hashing, "MB/s"),
        told("SHA-256 of 500 B", each * 1e6, "µs"),
        told("msgspec decode of 2,000 messages, 1 MB", decode * 1e3, "ms"),
    ]


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f} at the start), "
        f"{platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}"
    )


def fsync(rounds: int) -> float:
    """Seconds for appending 4 KB to a file and making them durable, in the median."""
    block = os.urandom(4096)
    with tempfile.TemporaryFile(dir=common.FOLDER, buffering=0) as file:

        def once() -> None:
            file.write(block)
            os.fsync(file.fileno())

        return median([timed(once) for _ in range(rounds)])


def bare(batch: int, size: int, durability: str, seconds: float) -> tuple[float, float]:
    """Rows that bare apsw inserts in a second, and in one of CPU, in commits of `batch` rows of
    `size` bytes.

    The same table, page size and log bound as Holdfast's engine, and nothing else.
    """
    row = os.urandom(max(1, size))
    with tempfile.TemporaryDirectory(dir=common.FOLDER) as folder:
        connection = apsw.Connection(str(Path(folder, "bare.db")))
        for pragma in ("page_size=8192", "journal_mode=WAL", f"synchronous={durability}"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute(f"PRAGMA wal_autocheckpoint={files.WAL_PAGES}").fetchall()
        connection.execute("CREATE TABLE records(k BLOB NOT NULL UNIQUE, v BLOB NOT NULL)")
        cursor = connection.cursor()
        done = 0
        start, busy = time.perf_counter(), time.process_time()
        while time.perf_counter() - start < seconds:
            rows = [(number.to_bytes(14, "big"), row) for number in range(done, done + batch)]
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany("INSERT INTO records VALUES(?,?)", rows)
            cursor.execute("COMMIT")
            done += batch
        rates = done / (time.perf_counter() - start), done / (time.process_time() - busy)
        connection.close()
    return rates
