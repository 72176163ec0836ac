"""Who did it and why: the cause of every entry, correlations across scopes, and gates."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from store_kit import Place

from holdfast import Cause, Gate, GateRequest, Operation, Scope, sync
from holdfast.errors import Conflict, GateRefusedError, InvalidInputError
from holdfast.store.commit.change import Change, Written


@pytest.mark.spec("L190", "L191")
def test_every_kind_of_entry_carries_it(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    with store.acting(
        "planner",
        reason="why",
        correlation="run-42",
        parent="run-1",
        component="search",
        operation="index",
    ) as cause:
        state.set("k", 1)
        state.append("l", 1)
        state.delete("k")
        point = state.checkpoint("c")
        state.restore(point)
        state.fork("trial")
    assert cause == Cause("planner", "why", "run-42", "run-1", "search", "index")
    for again in (place.open, place.reopen):
        seen = again().agent("1")
        assert {entry.cause for entry in seen.log()} == {cause}
        assert len(seen.log()) == 6, "set, append, delete, checkpoint, backup, restore"
        assert [entry.cause for entry in seen.on("trial").log()] == [cause]
        assert seen.checkpoints()[0].cause == cause


@pytest.mark.spec("L191")
def test_blocks_nest(store: sync.Store) -> None:
    state = store.agent("1")
    with store.acting("a", correlation="outer", reason="r"):
        with store.acting(correlation="inner", component="c"):
            state.set("k", 1)
        with store.acting("b", parent="given"):
            state.set("k", 2)
        with state.change(actor="c", correlation="own") as change:
            change.set("k", 3)
    state.set("k", 4)
    causes = [entry.cause for entry in state.log(newest_first=False)]
    assert causes == [
        Cause("a", "r", "inner", "outer", "c"),
        Cause("b", "r", "outer", "given"),
        Cause("c", "r", "own", "outer"),
        Cause(),
    ]


def test_a_cause_ends_with_its_block_and_its_thread(store: sync.Store) -> None:
    state = store.agent("1")
    with pytest.raises(KeyError), store.acting("a"):
        raise KeyError
    state.set("k", 1)
    with store.acting("a"):
        other = threading.Thread(target=state.set, args=("k", 2))
        other.start()
        other.join()
    assert [entry.cause.actor for entry in state.log()] == [None, None]


@pytest.mark.parametrize("bad", [7, b"x", ["x"], "x" * 4097, "\ud800"], ids=repr)
def test_causes_are_texts(place: Place, bad: Any) -> None:
    """A cause that could not be read again would take the whole scope with it."""
    store = place.open()
    store.agent("1").set("k", 1)
    for name in ("actor", "reason", "correlation", "parent"):
        with pytest.raises(InvalidInputError, match=name), store.agent("1").change(**{name: bad}):
            pass
        with pytest.raises(InvalidInputError, match=name), store.acting(**{name: bad}):
            pass
    for name in ("component", "operation"):
        with pytest.raises(InvalidInputError, match=name), store.acting(**{name: bad}):
            pass
    assert place.reopen().agent("1").items() == [("k", 1)]


@pytest.mark.spec("L192")
def test_timeline_of_a_correlation(place: Place) -> None:
    store, other = place.open(), place.open()
    for number in range(40):
        with store.acting(correlation=f"run-{number % 4}"):
            store.agent(str(number % 3)).set("k", number)
        other.session("s").set("noise", number)
    with other.change(correlation="run-1") as change:
        change[other.agent("0")].set("a", 1)
        change[other.session("s")].set("a", 1)
    store.agent("0").fork("trial")
    with other.acting(correlation="run-1"):
        other.agent("0").on("trial").set("t", 1)
    for again in (lambda: store, place.reopen):
        seen = again()
        found = seen.correlated("run-1")
        assert len(found) == 13
        assert {entry.cause.correlation for entry in found} == {"run-1"}
        assert [entry.time for entry in found] == sorted(entry.time for entry in found)
        assert {str(entry.scope) for entry in found} == {
            "agent:0",
            "agent:1",
            "agent:2",
            "session:s",
        }
        assert found[-1].timeline == "trial"
        assert len(seen.correlated("run-1", limit=3)) == 3
        assert seen.correlated("nobody") == []


def test_a_long_run_is_found_whole(plain: Place) -> None:
    store = plain.open()
    state = store.agent("1")
    with store.acting(correlation="long"):
        for number in range(700):
            state.set("k", number)
    with store.acting(correlation="short"):
        state.set("k", -1)
    for again in (lambda: store, plain.reopen):
        seen = again()
        assert [entry.sequence for entry in seen.correlated("long")] == list(range(1, 701))
        assert [entry.sequence for entry in seen.correlated("short")] == [701]


def test_log_filters(store: sync.Store) -> None:
    state = store.agent("1")
    start = datetime.now(UTC)
    with store.acting("a", correlation="x"):
        state.set("k", 1)
        state.append("l", 1)
    middle = datetime.now(UTC)
    with store.acting("b", correlation="y"):
        state.delete("k")
        state.checkpoint("c")
    with state.change(actor="a") as change:
        change.set("k", 2)
        change.append("l", 2)

    def numbers(**wanted: Any) -> list[int]:
        return [entry.sequence for entry in state.log(newest_first=False, **wanted)]

    assert numbers() == [1, 2, 3, 4, 5]
    assert [entry.sequence for entry in state.log()] == [5, 4, 3, 2, 1]
    assert numbers(key="k") == [1, 3, 5]
    assert numbers(kind="append") == [2, 5]
    assert numbers(kind="checkpoint") == [4]
    assert numbers(actor="a") == [1, 2, 5]
    assert numbers(actor="a", key="k", kind="set") == [1, 5]
    assert numbers(correlation="y") == [3, 4]
    assert numbers(since=2, until=3) == [2, 3]
    assert numbers(since=middle) == [3, 4, 5]
    assert numbers(since=start, until=middle) == [1, 2]
    assert numbers(limit=2) == [1, 2]
    assert numbers(key="nothing") == []
    assert store.agent("nobody").log() == []
    with pytest.raises(InvalidInputError, match="zone"):
        state.log(since=datetime(2024, 1, 1))  # noqa: DTZ001


# ---- gates ---------------------------------------------------------------------------------


class NoSecrets(Gate):
    """Refuses."""

    def before(self, request: GateRequest) -> None:
        for operation in request.operations:
            if "secret" in operation.key:
                raise GateRefusedError(f"{request.scope}: keys with 'secret' are not allowed")


class Redact(Gate):
    """Replaces."""

    def before(self, request: GateRequest) -> GateRequest:
        operations = [Operation(op.kind, op.key, _redacted(op.value)) for op in request.operations]
        return GateRequest(
            request.scope, request.timeline, operations, request.cause, request.attempt
        )


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "***" if key == "password" else item for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value


def test_a_gate_that_refuses(store: sync.Store) -> None:
    gate = NoSecrets()
    store.add_gate(gate)
    state = store.agent("1")
    state.set("open", 1)
    for call in (
        lambda: state.set("secret", 1),
        lambda: state.append("secrets", 1),
        lambda: state.delete("secret"),
        lambda: state.update("secret", lambda _: 1),
    ):
        with pytest.raises(GateRefusedError, match="agent:1"):
            call()
    with pytest.raises(GateRefusedError), store.change() as change:
        change[store.agent("2")].set("fine", 1)
        change[state].set("a secret", 1)
    assert [str(info.scope) for info in store.scopes().items] == ["agent:1"]
    assert state.items() == [("open", 1)]
    store.remove_gate(gate)
    state.set("secret", 1)
    assert state.get("secret") == 1


def test_a_gate_that_replaces(store: sync.Store) -> None:
    store.add_gate(Redact())
    state = store.agent("1")
    state.set("k", {"user": "u", "password": "p"})
    state.append("l", {"password": "p"})
    with state.change() as change:
        change.set("j", {"password": "p"})
    assert state.items() == [
        ("j", {"password": "***"}),
        ("k", {"user": "u", "password": "***"}),
        ("l", [{"password": "***"}]),
    ]


def test_a_gate_may_take_everything_away(store: sync.Store) -> None:
    class Nothing(Gate):
        def before(self, request: GateRequest) -> None:
            request.operations.clear()

    state = store.agent("1")
    state.set("k", 1)
    store.add_gate(Nothing())
    assert state.set("k", 2) == 1
    assert state.append("l", 2) == 1
    assert state.delete("k") is False
    assert state.items() == [("k", 1)]


def test_a_gate_that_breaks_refuses(store: sync.Store) -> None:
    class Broken(Gate):
        def before(self, request: GateRequest) -> None:
            raise ZeroDivisionError("the value was 42")

    state = store.agent("1")
    state.set("k", 1)
    store.add_gate(Broken())
    with pytest.raises(GateRefusedError, match="Broken failed with ZeroDivisionError") as caught:
        state.set("k", 2)
    assert "42" not in str(caught.value)
    assert state.get("k") == 1


def test_gates_see_more_than_keys(store: sync.Store) -> None:
    seen: list[tuple[str, str]] = []

    class Watch(Gate):
        def before(self, request: GateRequest) -> None:
            seen.extend((op.kind, str(op.value)) for op in request.operations)
            if request.operations[0].kind in ("restore", "fork", "delete scope"):
                raise GateRefusedError("not now")

    state = store.agent("1")
    state.set("k", 1)
    store.add_gate(Watch())
    point = state.checkpoint("c")
    for call in (
        lambda: state.restore(point),
        lambda: state.fork("f"),
        lambda: store.delete("agent:1"),
    ):
        with pytest.raises(GateRefusedError):
            call()
    assert seen == [
        ("checkpoint", "c"),
        ("restore", "main@2"),
        ("fork", "f"),
        ("delete scope", "agent:1"),
    ]
    assert state._handle.place()[2] == 2


def test_gates_behind_see_what_is_durable_and_cannot_fail_it(place: Place) -> None:
    store = place.open()
    seen: list[tuple[str, int]] = []

    class Audit(Gate):
        def after(self, change: Change, written: Sequence[Written]) -> None:
            other = place.open()
            seen.extend((str(w.scope), w.sequence) for w in written)
            for w in written:
                assert other.scope(w.scope)._handle.place()[2] >= w.sequence
            raise ZeroDivisionError

    store.add_gate(Audit())
    a = store.agent("a")
    assert a.set("k", 1) == 1
    with store.change() as change:
        change[a].set("k", 2)
        change[store.agent("b")].set("k", 2)
    with pytest.raises(Conflict):
        a.set("k", 3, if_version=1)
    assert seen == [("agent:a", 1), ("agent:a", 2), ("agent:b", 1)]
    assert (a.get("k"), store.agent("b").get("k")) == (2, 2)


def test_a_gate_is_told_the_attempt(place: Place) -> None:
    store, other = place.open(), place.open()
    attempts: list[int] = []

    class Attempts(Gate):
        def before(self, request: GateRequest) -> None:
            attempts.append(request.attempt)

    store.add_gate(Attempts())
    store.agent("1").set("n", 0)

    def slow(value: int) -> int:
        if value == 0:
            other.agent("1").set("n", 10)
        return value + 1

    assert store.agent("1").update("n", slow) == 11
    assert attempts == [1, 1, 2]
    assert Scope.parse("agent:1") in [info.scope for info in store.scopes().items]


def test_a_gate_behind_may_write_too(place: Place) -> None:
    """It would be odd, but it must not wait for itself for ever."""
    store = place.open()

    class Audit(Gate):
        def after(self, change: Change, written: Sequence[Written]) -> None:
            for w in written:
                if w.scope.kind != "custom":
                    store.custom("audit").append("log", f"{w.scope}@{w.sequence}")

    store.add_gate(Audit())
    writer = threading.Thread(target=lambda: [store.agent("a").set("k", n) for n in range(3)])
    writer.daemon = True
    writer.start()
    writer.join(60)
    assert not writer.is_alive()
    assert store.custom("audit").get("log") == ["agent:a@1", "agent:a@2", "agent:a@3"]
    assert store.verify().findings == []
