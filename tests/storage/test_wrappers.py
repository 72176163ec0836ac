"""Counting counts, and Faulty fails exactly what its plan says."""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict, InvalidInputError, OutcomeUnknown, StoreNotFoundError
from holdfast.errors import Unavailable as UnavailableError
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.wrappers import Counting, Fault, Faulty


def put(key: bytes) -> Batch:
    return Batch(puts=[(key, b"123")], absent=[key])


def test_counting() -> None:
    storage = Counting(MemoryStorage())
    storage.commit(Batch(puts=[(b"a", b"123")], cells=[(b"c", None, b"12"), (b"x", None, None)]))
    with pytest.raises(Conflict):
        storage.commit(put(b"a"))
    storage.get([b"a"]), storage.get([b"a"]), storage.scan(b"a", b"b")
    assert storage.calls == {"commit": 2, "get": 2, "scan": 1}
    assert (storage.applied, storage.bytes_written) == (1, 7)
    storage.reset()
    assert (storage.calls.total(), storage.bytes_written) == (0, 0)


@pytest.mark.parametrize(
    ("mode", "error", "applied"),
    [
        ("before", UnavailableError, False),
        ("ambiguous-applied", OutcomeUnknown, True),
        ("ambiguous-lost", OutcomeUnknown, False),
    ],
)
def test_nth_commit_fails(mode: str, error: type[Exception], applied: bool) -> None:
    storage = Faulty(MemoryStorage(), Fault(nth=2, mode=mode))
    storage.commit(put(b"a"))
    with pytest.raises(error):
        storage.commit(put(b"b"))
    storage.commit(put(b"c"))
    assert storage.get([b"b"]) == [b"123" if applied else None]
    assert storage.failed == [("commit", 2, mode)]


def test_every_call_from_there_on_fails() -> None:
    storage = Faulty(MemoryStorage(), [Fault(call="*", nth=2, onward=True)])
    storage.get([b"a"])
    for _ in range(2):
        with pytest.raises(UnavailableError):
            storage.get([b"a"])
        with pytest.raises(UnavailableError):
            storage.commit(put(b"a"))
    with pytest.raises(UnavailableError), storage.turn():
        pass
    storage.close()


@pytest.mark.parametrize("mode", ["before", "ambiguous-applied", "ambiguous-lost"])
def test_reads_fail_as_unavailable(mode: str) -> None:
    storage = Faulty(MemoryStorage(), Fault(call="scan", mode=mode))
    storage.get([b"a"])
    with pytest.raises(UnavailableError):
        storage.scan(b"a", b"b")
    assert storage.scan(b"a", b"b") == []


def test_wrong_plan_is_refused() -> None:
    for wrong in ({"mode": "x"}, {"call": "x"}, {"nth": 0}):
        with pytest.raises(InvalidInputError):
            Fault(**wrong)


def test_wrappers_keep_the_contract() -> None:
    stacked: Storage = Counting(Faulty(MemoryStorage()))
    assert stacked.limits.name == "memory"


def test_named_memory_is_shared() -> None:
    one, two = open_storage("memory:shared-name"), open_storage("memory:shared-name")
    one.commit(put(b"a"))
    one.close()
    assert two.get([b"a"]) == [b"123"]
    assert open_storage("memory:").get([b"a"]) == [None]
    with pytest.raises(StoreNotFoundError):
        open_storage("memory:no-such-name", create=False)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("store.db", "sqlite:store.db"),
        ("/a/b:c.db", "sqlite:/a/b:c.db"),
        ("oracle:x", "memory:, memory:NAME, sqlite:PATH"),
    ],
)
def test_url_that_names_no_engine(url: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=hint):
        open_storage(url)


def test_unknown_durability() -> None:
    with pytest.raises(InvalidInputError, match="full, normal"):
        open_storage("memory:", durability="maybe")
