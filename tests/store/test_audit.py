"""The audit: each read of a sensitive value is noted, durably, and none is lost silently."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.access import audit as auditing
from holdfast.errors import GateRefusedError, InvalidInputError, ReadOnlyError, Unavailable
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


def seen(audit: sync.access.Audit, scope: Any = None) -> list[tuple[Any, ...]]:
    """Who read what, oldest first."""
    found = reversed(audit.reads(scope, limit=None))
    return [(read.cause.actor, read.scope and str(read.scope), read.keys) for read in found]


@pytest.mark.spec("L123")
def test_each_read_of_a_sensitive_value_is_noted(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    with state.change() as change:
        for key in ("api_token", "password", "note"):
            change.set(key, "hunter2")
    state.set("secrets/list", ["a", "b"])
    state.get("password")  # before the audit began
    with sync.access.Audit(store) as audit, store.acting("ann", correlation="run-7"):
        before = datetime.now(UTC)
        state.get("api_token")
        state.get_many(["note", "password", "api_token"])
        state.item("password")
        state.items()
        state.tail("secrets/list", 1)
        state.at(1).get("password")
        state.update("password", str.upper)
        with state.change() as change:
            change.get("api_token")
        state.get("note")
        state.keys()
        state.exists("password")
        found = audit.reads()
    expected: list[tuple[str, ...]] = [
        ("api_token",),
        ("password", "api_token"),
        ("password",),
        ("api_token", "password", "secrets/list"),
        ("secrets/list",),
        ("password",),
        ("password",),
        ("api_token",),
    ]
    assert [read.keys for read in reversed(found)] == expected
    assert {(str(read.scope), read.timeline) for read in found} == {("agent:a", "main")}
    assert {(r.cause.actor, r.cause.correlation) for r in found} == {("ann", "run-7")}
    assert [read.entry for read in reversed(found)] == [2, 2, 2, 2, 2, 1, 2, 3]
    assert before <= found[-1].time <= found[0].time <= datetime.now(UTC)
    state.get("password")  # after it has ended
    assert len(audit.reads()) == len(found)
    assert "hunter2" not in repr(found)
    assert store.verify().ok


@pytest.mark.spec("K4")
def test_notes_are_kept_and_a_change_of_them_is_found(place: Place) -> None:
    store = place.open()
    store.agent("a").set("password", 1)
    audit = sync.access.Audit(store)
    audit.start()
    for actor in ("ann", "bob"):
        with store.acting(actor):
            store.agent("a").get("password")
    store.close()  # commits what waits
    again = place.open(read_only=True)
    expected = [("ann", "agent:a", ("password",)), ("bob", "agent:a", ("password",))]
    assert seen(sync.access.Audit(again)) == expected
    storage = place.storage()
    number = again._core.ledger(auditing.SCOPE).number.to_bytes(6, "big")
    key, row = next(one for one in rows_of(storage, b"E") if one[0][1:7] == number)
    put_row(storage, key, None)
    assert not place.reopen().verify().ok
    put_row(storage, key, row)
    assert place.reopen().verify().ok
    storage.close()


def test_erasing_a_scope_leaves_the_notes_without_its_names(place: Place) -> None:
    store = place.open()
    for name in ("a", "b"):
        store.agent(name).set("password", 1)
    with sync.access.Audit(store) as audit, store.acting("ann"):
        for name in ("a", "b"):
            store.agent(name).get("password")
        store.agent("b").delete("password")
        assert seen(audit)[1] == ("ann", "agent:b", ("password",))
        if place.sealed:
            store.rotate()
            store.reseal()
        store.erase("agent:b")
        assert seen(audit) == [("ann", "agent:a", ("password",)), ("ann", None, (None,))]
        assert seen(audit, "agent:b") == []
        store.delete("agent:a")
        assert seen(audit)[0] == ("ann", "agent:a", ("password",))
    notes = store.scope("custom:$audit")._handle.reader.items(auditing.PREFIX)
    assert notes
    assert "password" not in repr(notes)
    assert "agent:" not in repr(notes)


def test_a_name_is_told_while_one_state_with_it_is_kept(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("password", 1)
    with sync.access.Audit(store) as audit:
        state.get("password")
        state.delete("password")
        for number in range(5):
            state.set("n", number)
        assert audit.reads()[0].keys == ("password",)
        state.prune(6)
        assert audit.reads()[0].keys == (None,)
        state.set("password", 2)
        state.get("password")
        assert [read.keys for read in audit.reads()] == [("password",)] * 2


def test_what_to_look_for(store: sync.Store) -> None:
    for name in ("a", "b"):
        store.agent(name).set("password", 1)
    with sync.access.Audit(store) as audit:
        for actor, name in (("ann", "a"), ("bob", "a"), ("ann", "b")):
            with store.acting(actor):
                store.agent(name).get("password")
            audit.flush()
        times = [read.time for read in audit.reads()]
        assert [r.cause.actor for r in audit.reads("agent:a")] == ["bob", "ann"]
        assert [r.cause.actor for r in audit.reads(store.agent("b"))] == ["ann"]
        assert [str(r.scope) for r in audit.reads(actor="ann")] == ["agent:b", "agent:a"]
        assert [r.time for r in audit.reads(since=times[1])] == times[:2]
        assert [r.time for r in audit.reads(until=times[1])] == times[1:]
        assert [r.time for r in audit.reads(limit=1)] == times[:1]
        assert audit.trim(times[1]) == 1
        assert [r.time for r in audit.reads()] == times[:2]
        assert audit.trim(datetime.now(UTC) + timedelta(days=1)) == 2
        assert audit.reads() == []


def test_what_is_refused(place: Place) -> None:
    store = place.open()
    for wrong in ({"wait": 1}, {"every": -1}, {"every": "x"}):
        with pytest.raises(InvalidInputError):
            sync.access.Audit(store, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        sync.access.Audit(store.agent("a"))  # type: ignore[arg-type]
    audit = sync.access.Audit(store)
    for asked in ({"actor": 1}, {"limit": -1}, {"since": 1}, {"until": "today"}):
        with pytest.raises(InvalidInputError):
            audit.reads(**asked)  # type: ignore[arg-type]
    store.agent("a").set("k", 1)
    with pytest.raises(ReadOnlyError):
        sync.access.Audit(place.open(read_only=True)).start()


def test_a_gate_in_front_does_not_see_the_notes(store: sync.Store) -> None:
    class Strict(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            raise GateRefusedError("nothing may be written")

    store.agent("a").set("password", 1)
    store.add_gate(Strict())
    with sync.access.Audit(store, wait=True) as audit:
        store.agent("a").get("password")
        assert len(audit.reads()) == 1


def test_while_notes_cannot_be_committed_they_wait_and_then_reads_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MOST_WAITING", 3)
    place.open().agent("a").set("password", 1)
    faulty = Faulty(place.storage())
    store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
    state = store.agent("a")
    audit = sync.access.Audit(store, every=0.01)
    audit.start()
    assert state.get("password") == 1
    audit.flush()
    faulty.plan = (Fault("commit", faulty.calls["commit"] + 1, onward=True),)
    for _ in range(3):
        assert state.get("password") == 1
    with pytest.raises(GateRefusedError, match="injected"):
        state.get("password")
    assert state._handle.reader.class_of("password") == "sensitive"
    faulty.plan = ()
    assert state.get("password") == 1
    store.close()
    assert len(sync.access.Audit(place.open()).reads()) == 5


def test_closing_says_that_notes_were_lost(place: Place) -> None:
    place.open().agent("a").set("password", 1)
    faulty = Faulty(place.storage())
    store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
    sync.access.Audit(store, every=60).start()
    store.agent("a").get("password")
    faulty.plan = tuple(Fault("commit", faulty.calls["commit"] + nth) for nth in range(1, 100))
    with pytest.raises(Unavailable, match="injected"):
        store.close()
    store.close()  # is closed all the same
    with pytest.raises(holdfast.HoldfastError):
        store.agent("a").get("password")


WORK = """
import os, sys
from holdfast import sync
url, key, signer, mode = sys.argv[1:]
store = sync.open(url, key=key or None, signer=signer, durability="normal")
audit = sync.access.Audit(store, wait=mode == "wait")
audit.start()
for number in range(50):
    with store.acting(f"{os.getpid()}"):
        store.agent("a").get("password")
if mode == "wait":
    os._exit(9)  # what was read is noted, whatever comes
store.close()
"""


@pytest.mark.parametrize("mode", ["wait", "together"])
def test_several_processes_note_together(place: Place, mode: str) -> None:
    if place.engine == "memory":
        pytest.skip("lives in one process")
    place.open().agent("a").set("password", 1)
    command = [sys.executable, "-c", WORK, place.url, place.key or "", place.signer, mode]
    started = [subprocess.Popen(command, env=place.environment()) for _ in range(3)]
    assert {process.wait(60) for process in started} == {9 if mode == "wait" else 0}
    audit = sync.access.Audit(place.open())
    found = audit.reads(limit=None)
    for process in started:
        assert sum(read.cause.actor == f"{process.pid}" for read in found) == 50
    assert {read.keys for read in found} == {("password",)}
    assert place.open().verify().ok


def test_notes_are_committed_without_being_asked_for(store: sync.Store) -> None:
    store.agent("a").set("password", 1)
    with sync.access.Audit(store, every=0.01):
        store.agent("a").get("password")
        end = time.monotonic() + 60
        while not store.scope("custom:$audit")._handle.reader.keys(auditing.PREFIX):
            assert time.monotonic() < end
            time.sleep(0.01)


def test_the_async_face(place: Place) -> None:
    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("a")
            await state.set("password", 1)
            async with holdfast.access.Audit(store) as audit:
                with store.acting("ann"):
                    await asyncio.gather(*(state.get("password") for _ in range(1000)))
                await audit.flush()
                found = await audit.reads("agent:a", limit=None)
                assert len(found) == 1000
                assert isinstance(found[0], holdfast.access.AuditedRead)
                assert await audit.trim(datetime.now(UTC)) >= 1
            waiting = holdfast.access.Audit(store, wait=True)
            await waiting.start()
            await state.get("password")
        async with holdfast.open(place.url, **place.options()) as store:
            assert len(await holdfast.access.Audit(store).reads()) == 1

    asyncio.run(work())


def test_a_tag_cannot_be_guessed_from_the_name_of_a_key(store: sync.Store) -> None:
    """It is made with what the scope alone has, also in a plain store; notes that were made without
    that still give their keys."""
    ledgers = []
    for name in ("a", "b"):
        store.agent(name).set("password", "x")
        ledgers.append(store._core.ledger(store.agent(name).scope))
    tags = {auditing.key_tag(ledger, "password") for ledger in ledgers}
    tags.add(ledgers[0].tag(b"audit", b"password"))
    assert len(tags) == 3
    names = auditing.Names(store._core)
    assert names.keys(ledgers[0], 0, 1, [ledgers[0].tag(b"audit", b"password")]) == ["password"]
