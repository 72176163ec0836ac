"""Every engine and wrapper passes the conformance suite, and broken engines do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import Conflict, DamagedRecordError
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.memory import MemoryStorage, _Space
from holdfast.storage.wrappers import Counting, Faulty
from holdfast.testing import CHECKS, check_storage

Place = Callable[[], Storage]


@pytest.fixture(params=["memory", "sqlite-full", "sqlite-normal", "counting", "faulty"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind = request.param
    space = _Space()
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


@pytest.mark.spec("M123")
def test_report(tmp_path: Path) -> None:
    report = check_storage(lambda: open_storage(f"sqlite:{tmp_path / 'store.db'}"))
    assert report.ok, str(report)
    assert report.passed == list(CHECKS)
    assert str(report).endswith(f"{len(CHECKS)} passed, 0 failed")


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


class HighIncluded(MemoryStorage):
    """Includes the upper bound of a scan."""

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return super().scan(low, high + b"\x00", limit=limit, reverse=reverse)


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
        (HighIncluded, "scan_order_and_bounds"),
    ],
)
def test_broken_engine_is_found(broken: type[MemoryStorage], found_by: str) -> None:
    space = _Space()
    with pytest.raises(AssertionError):
        CHECKS[found_by](lambda: broken(space))
