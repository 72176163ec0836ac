"""A PostgreSQL server of the tests' own, which can be killed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from store_kit import free_port


def programs() -> Path:
    """Where the programs of the server are."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    known = shutil.which("initdb")
    if not found and known is None:
        pytest.fail("PostgreSQL's server is missing; run scripts/setup --tests")
    return (found or [Path(str(known))])[-1].parent


class Server:
    """A server in a temporary folder, on a free port of this machine and on a socket there."""

    def __init__(self, *settings: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="holdfast-postgres-")
        self._bin = programs()
        self._settings = [part for one in settings for part in ("-c", one)]
        # The server refuses to run as root.
        self._other: Any = {"user": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        if self._other:
            owner = pwd.getpwnam("postgres")
            self._other["group"] = owner.pw_gid
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self.data = f"{self.folder}/data"
        make = [self._bin / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run(
            make, check=True, capture_output=True, timeout=60, cwd=self.folder, **self._other
        )
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        """Of its first database, over the socket in its folder."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"

    def place(self, name: str) -> str:
        """The URL of a store of that name."""
        return f"{self.url}&schema={name}"

    @property
    def address(self) -> str:
        """The same over the network."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["-k", self.folder, "-D", self.data, "-p", str(self.port)]
        options += ["-c", "listen_addresses=127.0.0.1", *self._settings]
        self.process = subprocess.Popen(
            [self._bin / "postgres", *options],
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            **self._other,
        )
        for _ in range(1200):
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)
        pytest.fail("the PostgreSQL server did not start")

    def kill(self) -> None:
        """End it and every process that belongs to it at one moment."""
        children = self._children()
        for pid in [self.process.pid, *children]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)
        for pid in children:  # they are not ours to wait for, and may be slow to go
            while _runs(pid):
                time.sleep(0.005)
        Path(self.data, "postmaster.pid").unlink()  # a new server would look for the old one

    def _children(self) -> list[int]:
        asked = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True)
        pairs = [line.split() for line in asked.stdout.splitlines()]
        return [int(pid) for pid, parent in pairs if int(parent) == self.process.pid]

    def stop(self) -> None:
        """End it as its owner would."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def remove(self) -> None:
        """End it, and take its folder away."""
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *statements: str) -> list[Any]:
        """Run statements as its owner; what the last one gives."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows: list[Any] = []
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
                rows = cursor.fetchall() if cursor.description else []
            return rows


def _runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
