"""Every engine and wrapper passes the conformance suite, and broken engines do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.errors import Conflict, DamagedRecordError
from holdfast.storage import open_storage
from holdfast.storage.batch import check_range
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.memory import MemoryStorage, _Space
from holdfast.storage.redis import Address, Cached, RedisCache
from holdfast.storage.wrappers import Counting, Faulty
from holdfast.testing import CHECKS, check_storage

Place = Callable[[], Storage]


SERVERS = ["postgres-full", "postgres-normal", "mongodb-full", "mongodb-normal"]
KINDS = ["memory", "sqlite-full", "sqlite-normal", *SERVERS]


@pytest.fixture(params=[*KINDS, "counting", "faulty", "cached"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind = request.param
    if kind in SERVERS:
        engine, _, durability = kind.partition("-")
        server = request.getfixturevalue(engine).place(f"conformance_{durability}")
        return lambda: open_storage(server, durability=durability)
    space = _Space()
    if kind == "cached":
        address = Address.of(request.getfixturevalue("redis").url())
        return lambda: Cached(MemoryStorage(space), RedisCache(address, "conformance:", 60))
    url = f"sqlite:{tmp_path / 'store.db'}"
    places: dict[str, Place] = {
        "memory": lambda: MemoryStorage(space),
        "sqlite-full": lambda: open_storage(url),
        "sqlite-normal": lambda: open_storage(url, durability="normal"),
        "counting": lambda: Counting(open_storage(url)),
        "faulty": lambda: Faulty(MemoryStorage(space)),
    }
    return places[kind]


@pytest.mark.parametrize("name", CHECKS)
def test_engine(make: Place, name: str) -> None:
    CHECKS[name](make)


def test_report(tmp_path: Path) -> None:
    report = check_storage(lambda: open_storage(f"sqlite:{tmp_path / 'store.db'}"))
    assert report.ok, str(report)
    assert report.passed == list(CHECKS)
    assert str(report).endswith(f"{len(CHECKS)} passed, 0 failed")


@pytest.mark.spec("M123")
def test_report_of_a_broken_engine() -> None:
    """Each check that fails is told with its reason, and the others go on."""
    space = _Space()
    report = check_storage(lambda: HighIncluded(space))
    assert not report.ok
    assert [name for name, _ in report.failed] == ["scan_order_and_bounds"]
    assert report.passed == [name for name in CHECKS if name != "scan_order_and_bounds"]
    lines = str(report).splitlines()
    told = next(line for line in lines if line.startswith("scan_order_and_bounds"))
    assert "FAILED" in told
    assert "low is included, high is not" in told
    assert lines[-1] == f"{len(CHECKS) - 1} passed, 1 failed"


class NoAbsent(MemoryStorage):
    """Forgets to check that records are absent."""

    def commit(self, batch: Batch) -> None:
        super().commit(Batch(batch.puts, batch.drops, [], batch.present, batch.cells))


class AbsentWhenPut(MemoryStorage):
    """Checks only the absent keys that it puts."""

    def commit(self, batch: Batch) -> None:
        keys = {key for key, _ in batch.puts}
        absent = [key for key in batch.absent if key in keys]
        super().commit(Batch(batch.puts, batch.drops, absent, batch.present, batch.cells))


class HalfBatch(MemoryStorage):
    """Applies the puts of a batch whose cells conflict."""

    def commit(self, batch: Batch) -> None:
        super().commit(Batch(batch.puts, batch.drops, batch.absent, batch.present, []))
        super().commit(Batch(cells=batch.cells))


class NamesOne(MemoryStorage):
    """Names only the first failed expectation."""

    def commit(self, batch: Batch) -> None:
        try:
            super().commit(batch)
        except Conflict as error:
            raise Conflict(str(error), error.keys[:1]) from None


class Overwrites(MemoryStorage):
    """Takes other bytes for a record that exists."""

    def commit(self, batch: Batch) -> None:
        try:
            super().commit(batch)
        except DamagedRecordError:
            return


class ReadThenWrite(MemoryStorage):
    """Looks at what is expected first and writes later, without holding anything."""

    def commit(self, batch: Batch) -> None:
        with self._space.rows:
            failed = self._failed(batch)
        if failed:
            raise Conflict("", failed)
        self.version(), self.size(), self.get([b"x"]), __import__("time").sleep(0.0005)
        with self._space.turn:
            super().commit(Batch(batch.puts, batch.drops))
            for key, _, new in batch.cells:
                self._set(self._space.cells, key, new)


class StuckVersion(MemoryStorage):
    """Does not tell that something was committed."""

    def version(self) -> object:
        return 1


class PutsMoveVersion(MemoryStorage):
    """Tells of commits that put records alone."""

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        if not batch.puts:
            self._space.version -= 1
            self._own -= 1


class AnyRange(MemoryStorage):
    """Takes any bounds and limits for a scan."""

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        wrong = type(low) is not bytes or type(high) is not bytes or limit < 0
        return [] if wrong else super().scan(low, high, limit=limit, reverse=reverse)


class HighIncluded(MemoryStorage):
    """Includes the upper bound of a scan."""

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        check_range(low, high, limit)
        return super().scan(low, high + b"\x00", limit=limit, reverse=reverse)


class GivesArrays(MemoryStorage):
    """Gives something that can be changed in place of bytes."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None if row is None else bytearray(row) for row in super().get(keys)]


class ScansArrays(MemoryStorage):
    """The same, where it scans."""

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        found = super().scan(low, high, limit=limit, reverse=reverse)
        return [(key, bytearray(row)) for key, row in found]


@pytest.mark.parametrize(
    ("broken", "found_by"),
    [
        (NoAbsent, "absent_and_present"),
        (AbsentWhenPut, "write_skew"),
        (HalfBatch, "conflict_leaves_nothing"),
        (NamesOne, "conflict_names_every_key"),
        (Overwrites, "put_other_is_damage"),
        (ReadThenWrite, "write_skew"),
        (ReadThenWrite, "counter_loses_nothing"),
        (StuckVersion, "version_tells_commits"),
        (PutsMoveVersion, "version_tells_commits"),
        (AnyRange, "ranges_are_checked"),
        (HighIncluded, "scan_order_and_bounds"),
        (GivesArrays, "put_and_get"),
        (ScansArrays, "put_and_get"),
    ],
)
def test_broken_engine_is_found(broken: type[MemoryStorage], found_by: str) -> None:
    space = _Space()
    with pytest.raises(AssertionError):
        CHECKS[found_by](lambda: broken(space))
