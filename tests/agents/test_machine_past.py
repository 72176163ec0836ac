"""The past of machines: the log over restores, versions, rolling back, replay, cleaning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands

from holdfast import sync
from holdfast.agents import (
    MachineArrow,
    MachineDefinition,
    MachineLimits,
    MachineState,
    MachineStep,
)
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    LimitExceededError,
    MachineDataError,
    MergeConflictError,
    PointNotFoundError,
    ReplayError,
    TransitionRefusedError,
)

RING = MachineDefinition(
    "a",
    {
        "a": MachineState(on={"go": "b"}),
        "b": MachineState(on={"go": "c"}),
        "c": MachineState(on={"go": "a", "back": "b"}),
    },
)


def interrupt(step: MachineStep) -> None:
    """Work that does not come to its end."""
    raise KeyboardInterrupt


CUT_SHORT = MachineDefinition(
    "b",
    {
        "b": MachineState(on={"go": MachineArrow("c", work=interrupt)}),
        "c": MachineState(),
    },
)


def went(store: sync.Store, steps: int = 0, **more: Any) -> sync.agents.Machine:
    """A machine that went so many steps around, and saved data after each."""
    machine = sync.agents.Machine(store.agent("1"), RING, **more)
    machine.start(n=0)
    for number in range(steps):
        machine.fire("go")
        machine.save({"n": number + 1})
    return machine


def state_of(machine: sync.agents.Machine) -> tuple[str, Any, int]:
    now = machine.now()
    assert now is not None
    return now.state, now.data.get("n"), now.version


def part(*prefixes: str) -> Callable[[sync.State], Any]:
    return lambda state: sync.checkpoints.Checkpoints(state).restore("in b", prefixes=prefixes)


ELSEWHERE: dict[str, tuple[Callable[[sync.State], Any], str]] = {
    "all": (lambda state: state.restore("in b"), "b"),
    "some keys": (part("$machine/main/now"), "b"),
    "a machine": (part("$machine/"), "b"),
    "merge": (lambda state: state.merge("trial", strategy="theirs"), "a"),
    "adopt": (lambda state: state.adopt("trial"), "a"),
}
"""How a machine in c is put elsewhere without a transition, and where it is then."""


@pytest.mark.parametrize("how", ELSEWHERE)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_transition_expects_its_origin(store: sync.Store, how: str, when: str) -> None:
    """Whatever put the machine elsewhere: no arrow of where it was is followed from there."""
    state = store.agent("1")
    put, origin = ELSEWHERE[how]

    def away(step: MachineStep) -> None:
        if when == "meanwhile":
            put(state)

    slow = MachineState(on={"go": "a", "slow": MachineArrow("a", action=away)})
    machine = sync.agents.Machine(state, MachineDefinition("a", RING.states | {"c": slow}))
    machine.fire("go")
    state.checkpoint("in b")
    trial = sync.agents.Machine(state.fork("trial"), RING)
    trial.fire("go")
    trial.fire("go")
    machine.fire("go")
    assert state_of(machine)[0] == "c"
    if when == "before":
        put(state)
        assert machine.fire("go").from_state == origin
    else:
        with pytest.raises(Conflict, match="rests on"):
            machine.fire("slow")
        assert state_of(machine)[0] == origin
    assert machine.validate() == ()


BRANCHES = MachineDefinition(
    "draft",
    {
        "draft": MachineState(
            on={
                "submit": MachineArrow("review", keep=("by",)),
                "note": MachineArrow("draft", keep=("note",), again=True),
            }
        ),
        "review": MachineState(on={"ok": "published"}),
        "published": MachineState(only_from=("review",)),
    },
)


@pytest.mark.parametrize(
    "strategy", ["ours", "theirs", lambda one: one.ours, lambda one: one.theirs]
)
@pytest.mark.parametrize("noted", [False, True])
def test_a_merge_takes_a_machine_from_one_side_whole(
    store: sync.Store, strategy: Any, noted: bool
) -> None:
    """Where it is, its number and its data: no mixture that no arrow led to."""
    state = store.agent("1")
    machine = sync.agents.Machine(state, BRANCHES)
    machine.start()
    trial = sync.agents.Machine(state.fork("trial"), BRANCHES)
    trial.fire("submit", by="ann")
    if noted:
        machine.fire("note", note="mine")
    else:
        machine.save({}, metadata={"looked": True})
    trial.fire("ok")
    ours, theirs = machine.now(), trial.now()
    merged = state.merge("trial", strategy=strategy)
    assert [one.path for one in merged.conflicts] == ["$machine/main/now"]
    now = machine.now()
    assert now is not None
    assert ours is not None
    assert theirs is not None
    if "$machine/main/now" not in merged.keys:
        assert strategy != "theirs"
        assert now == ours == machine.version(2)
    else:
        assert strategy != "ours"
        assert (now.state, now.data, now.metadata) == (theirs.state, theirs.data, theirs.metadata)
        assert now.unnumbered
    assert machine.validate() == ()


def test_a_function_that_merges_makes_up_no_state_of_a_machine(store: sync.Store) -> None:
    state = store.agent("1")
    machine = sync.agents.Machine(state, BRANCHES)
    machine.start()
    sync.agents.Machine(state.fork("trial"), BRANCHES).fire("submit", by="ann")
    machine.fire("note", note="mine")
    before = machine.now()
    with pytest.raises(InvalidInputError, match=r"Return conflict\.ours or conflict\.theirs"):
        state.merge("trial", strategy=lambda one: {**one.ours, "state": "published"})
    assert machine.now() == before


def test_a_revert_leaves_the_log_of_a_machine_alone(store: sync.Store) -> None:
    """A number means one version, also if the transition that it was given to is undone."""
    state, machine = store.agent("1"), went(store, 1)
    first = machine.now()
    machine.fire("go")
    wrong = state.log(limit=1)[0]
    undone = state.revert(entries=[wrong])
    assert undone.done == ["$machine/main/now"]
    assert [one.key for one in undone.left] == ["$machine/main/log/transitions"]
    assert machine.now() == first
    assert machine.transitions()[-1].to_state == "c"
    machine.roll_back(1)
    assert state_of(machine) == ("a", 0, 5)
    assert machine.version(4).state == "c"
    assert machine.validate() == ()


def test_a_revert_leaves_the_data_of_a_machine_that_went_on_since(store: sync.Store) -> None:
    state, machine = store.agent("1"), went(store)
    machine.save({"n": 1})
    saved = state.log(limit=1)[0]
    machine.fire("go")
    before = machine.now()
    assert state.revert(entries=[saved]).done == []
    assert machine.now() == before


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_a_merge_does_not_put_a_machine_together_from_two(store: sync.Store, strategy: str) -> None:
    """On main it went around and is where the fork began, which differs in one field then."""
    state, machine = store.agent("1"), went(store)
    trial = sync.agents.Machine(state.fork("trial"), RING)
    trial.fire("go")
    for _ in range(3):
        machine.fire("go")
    with pytest.raises(MergeConflictError):
        state.merge("trial")
    state.merge("trial", strategy=strategy)
    theirs = strategy == "theirs"
    assert state_of(machine)[0] == ("b" if theirs else "a")
    assert (state_of(machine)[2] < 0) is theirs
    assert machine.validate() == ()
    assert len(state.keys("$machine/")) == 4, "nothing was put beside it"
    assert machine.fire("go").to_state == ("c" if theirs else "b")


def test_a_failed_attempt_does_not_hide_where_the_machine_was_put_meanwhile(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at it and the commit that only adds to its log; another has seen it."""
    state, machine = store.agent("1"), went(store, 1)
    state.checkpoint("in b")
    machine.fire("go")
    plan = machine._plan

    def meanwhile(*given: Any, **kept: Any) -> Any:
        monkeypatch.undo()
        part("$machine/main/now")(state)
        assert state_of(machine)[0] == "b"
        return plan(*given, **kept)

    monkeypatch.setattr(machine, "_plan", meanwhile)
    with pytest.raises(TransitionRefusedError):
        machine.fire("nowhere")
    assert state_of(machine)[0] == "b"
    assert machine.fire("go").from_state == "b"


def test_what_a_failed_operation_fired_is_undone(store: sync.Store) -> None:
    """The machine that fired is the one that goes on: it has seen where that led, and must not
    begin there."""
    state, machine = store.agent("1"), went(store, 1)
    with pytest.raises(ZeroDivisionError), sync.checkpoints.Checkpoints(state).operation("deploy"):
        machine.fire("go")
        raise ZeroDivisionError
    made = machine.fire("go")
    assert (made.from_state, made.to_state) == ("b", "c")
    versions = [one.version for one in machine.transitions()]
    assert versions == sorted(set(versions)), "and no number is given away twice"


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("refused", [False, True])
def test_what_another_timeline_made_is_a_version_of_its_own(
    store: sync.Store, steps: int, refused: bool
) -> None:
    """However many versions both gave away since: each number means one thing here."""
    state, machine = store.agent("1"), went(store, 1)  # versions 1 to 3
    trial = sync.agents.Machine(state.fork("trial"), RING)
    trial.fire("go")
    trial.save({"n": 7})
    for _ in range(steps):
        machine.fire("go")
    newest = 3 + steps
    state.adopt("trial")
    unnumbered = state_of(machine)[2]
    assert state_of(machine) == ("c", 7, unnumbered)
    assert unnumbered < 0
    if refused:
        with pytest.raises(TransitionRefusedError):
            machine.fire("nowhere")
        assert state_of(machine) == ("c", 7, unnumbered)
    with pytest.raises(Conflict):
        machine.save({}, if_version=newest)
    for unknown in (unnumbered, newest + 1):
        with pytest.raises(PointNotFoundError):
            machine.version(unknown)
    assert machine.validate() == ()
    made = machine.fire("back")
    assert (made.from_state, made.to_state, made.version) == ("c", "b", newest + 1)
    assert [machine.version(n).state for n in (1, 2)] == ["a", "b"]
    assert machine.validate() == ()
    state.restore(machine.entry(newest + 1))
    assert state_of(machine) == ("b", 7, newest + 1), "one that the log knows is what it was"


def test_two_states_of_other_timelines_are_two_versions(store: sync.Store) -> None:
    """Nobody saves over the one with what was made for the other."""
    state, machine = store.agent("1"), went(store, 1)
    safe = state.checkpoint("safe")
    for name, n in (("one", 7), ("two", 8)):
        sync.agents.Machine(state.fork(name), RING).save({"n": n})
    machine.fire("go")
    seen = []
    for name in ("one", "two", "one"):
        state.adopt(name)
        seen.append(state_of(machine)[2])
    assert len(set(seen)) == 3
    for stale in seen[:2]:
        with pytest.raises(Conflict):
            machine.save({"n": 9}, if_version=stale)
    state.restore(safe)
    machine.save({"n": 5})
    assert machine.version(state_of(machine)[2]).data == {"n": 5}
    with pytest.raises(Conflict):
        machine.save({"n": 9}, if_version=seen[2])
    state.adopt("two")
    saved = machine.save({"n": 9}, if_version=state_of(machine)[2])
    assert (saved.version, saved.unnumbered, saved.data) == (6, False, {"n": 9})
    assert machine.validate() == ()


def test_the_log_survives_a_restore(store: sync.Store) -> None:
    machine = went(store, 1)
    state = store.agent("1")
    safe = state.checkpoint("safe")
    machine.fire("go")
    with pytest.raises(TransitionRefusedError):
        machine.fire("nowhere")
    restored = state.restore(safe)
    assert any(key.endswith("log/transitions") for key in restored.left)
    assert state_of(machine) == ("b", 1, 3)
    assert [one.number for one in machine.transitions()] == [1, 2, 3, 4, 5]
    made = machine.fire("go")  # versions go on where they were: none is given twice
    assert (made.number, made.version, made.from_state) == (6, 5, "b")
    assert machine.validate() == ()


@pytest.mark.parametrize("how", ["import", "restore"])
@pytest.mark.parametrize("first", ["fire", "refused", "work"])
def test_the_log_survives_a_restore_wherever_the_machine_came_from(
    store: sync.Store, tmp_path: Path, how: str, first: str
) -> None:
    """Also in a scope that has declared something of its own, and so takes no declarations."""
    went(store, 1)
    store.agent("1").checkpoint("safe")
    state = store.agent("2")
    sync.agents.Agents(store, {}).register("2", kind="bot")
    if how == "import":
        sync.checkpoints.export_checkpoint(store.agent("1"), tmp_path / "one.hfx", plain=True)
        sync.checkpoints.import_checkpoint(state, tmp_path / "one.hfx")
    else:
        sync.checkpoints.Checkpoints(state).restore("safe", source="agent:1")
    here = state.checkpoint("here")
    machine = sync.agents.Machine(state, RING)
    before = len(machine.transitions())
    if first == "fire":
        assert machine.fire("go").version == 4
    elif first == "refused":
        with pytest.raises(TransitionRefusedError):
            machine.fire("back")
    else:
        with pytest.raises(KeyboardInterrupt):
            sync.agents.Machine(state, CUT_SHORT).fire("go")
    state.restore(here)
    now = machine.now()
    assert now is not None
    if first == "work":
        assert now.pending is not None
        machine.settle("roll_back")
    assert len(machine.transitions()) == before + 1
    assert machine.fire("go").version == (5 if first == "fire" else 4)


def test_a_restore_to_before_the_machine_began(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("k", 1)
    before = state.checkpoint("before")
    machine = went(store, 1)
    state.restore(before)
    assert machine.now() is None
    made = machine.fire("go")
    assert (made.from_state, made.number, made.version) == ("a", 5, 5)
    assert state_of(machine) == ("b", None, 5)  # the data of the earlier life are gone
    assert machine.validate() == ()


@pytest.mark.spec("M26", "M46", "X22", "X23")
def test_every_version_can_be_had(store: sync.Store) -> None:
    machine = went(store, 3)
    assert [machine.version(n).version for n in range(1, 8)] == list(range(1, 8))
    assert [(machine.version(n).state, machine.version(n).data["n"]) for n in range(1, 8)] == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
        ("c", 1),
        ("c", 2),
        ("a", 2),
        ("a", 3),
    ]
    assert {machine.version(n).created_at for n in range(1, 8)} == {machine.version(1).created_at}
    for wrong in (0, 8, 1000, -1):
        with pytest.raises(PointNotFoundError):
            machine.version(wrong)
    state = store.agent("1")
    assert state.at(machine.entry(3)).root() != state.root()
    for wrong in ("x", None, True, 1.0, []):
        with pytest.raises(InvalidInputError, match="a version is a number of 0 or more"):
            machine.entry(wrong)
    state.prune(machine.entry(5))
    assert machine.version(6).state == "a"
    with pytest.raises(PointNotFoundError):
        machine.version(2)


def test_versions_are_found_though_the_clock_was_set_back(timed: sync.Store, hands: Hands) -> None:
    machine = went(timed, 2)
    hands.wall -= 7200
    machine.fire("go")
    hands.wall += 9000
    machine.fire("go")
    assert [machine.version(n).state for n in range(1, 8)] == ["a", "b", "b", "c", "c", "a", "b"]


def test_a_save_can_expect_a_version(store: sync.Store) -> None:
    machine = went(store, 1)
    assert machine.save({"n": 7}, if_version=3).version == 4
    with pytest.raises(Conflict, match="has version 4, not 3"):
        machine.save({"n": 8}, if_version=3)
    assert state_of(machine) == ("b", 7, 4)


@pytest.mark.spec("M7", "M52", "X28")
def test_a_rollback_is_what_the_next_load_sees(store: sync.Store) -> None:
    machine = went(store, 3)
    back = machine.roll_back(3)
    assert (back.state, back.data, back.version) == ("b", {"n": 1}, 8)
    assert sync.agents.Machine(store.agent("1"), RING).now() == back
    assert back.created_at == machine.version(1).created_at
    last = machine.transitions()[-1]
    assert (last.kind, last.from_state, last.to_state) == ("roll_back", "a", "b")
    assert machine.version(7).data == {"n": 3}  # nothing is lost
    assert machine.fire("go").version == 9
    assert machine.validate() == ()


@pytest.mark.spec("M53", "M47", "X24")
def test_back_to_a_checkpoint_that_is_not_too_old(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("1")
    machine = went(timed, 1)
    state.set("other", 1)
    safe = state.checkpoint("safe")
    state.set("other", 2)
    machine.fire("go")
    assert machine.roll_back("safe").state == "b"
    assert state.get("other") == 2  # the machine alone
    assert machine.roll_back(safe).data == {"n": 1}
    hands.move(25 * 3600)
    with pytest.raises(InvalidInputError, match="checkpoint_age is 1 day"):
        machine.roll_back(safe)
    patient = sync.agents.Machine(state, RING, limits=MachineLimits(checkpoint_age=None))
    assert patient.roll_back(safe).state == "b"
    with pytest.raises(PointNotFoundError):
        sync.agents.Machine(state, RING, "o", limits=MachineLimits(checkpoint_age=None)).roll_back(
            "safe"
        )


def test_no_rollback_to_what_the_definition_does_not_know(store: sync.Store) -> None:
    went(store, 2)
    smaller = MachineDefinition(
        "a", {"a": MachineState(on={"go": "c"}), "c": MachineState(check=lambda data: False)}
    )
    machine = sync.agents.Machine(store.agent("1"), smaller)
    with pytest.raises(TransitionRefusedError, match="'b' is not in the definition any more"):
        machine.roll_back(2)
    with pytest.raises(MachineDataError):
        machine.roll_back(4)
    assert machine.validate() == ("data: its check says no",)


@pytest.mark.spec("M54", "X26")
def test_replay_after_a_restore_catches_up(store: sync.Store) -> None:
    machine = went(store, 1)
    state = store.agent("1")
    safe = state.checkpoint("safe")
    machine.fire("go")
    with pytest.raises(TransitionRefusedError):
        machine.fire("nowhere")
    machine.save({"n": 2}, metadata={"owner": "Ann"})
    machine.fire("go")
    state.restore(safe)
    last = machine.transitions()[-1]
    metadata = machine.replay(3).metadata
    assert state_of(machine) == ("a", 2, 7)
    assert metadata["owner"] == "Ann"
    assert metadata["last_transition"] == last.id
    told = metadata["replay_info"]
    assert (told["from_version"], told["transitions"]) == (3, 3), "4, 6 and 7: 5 had failed"
    assert told["until"] == last.number == 7
    assert machine.transitions()[-1].kind == "replay"
    assert machine.validate() == ()


@pytest.mark.spec("X24", "X26", "X28")
def test_replay_checks_every_origin_and_never_cuts_off(store: sync.Store) -> None:
    machine = went(store, 1)
    state = store.agent("1")
    safe = state.checkpoint("safe")
    machine.fire("go")
    state.restore(safe)
    machine.fire("go")  # from b again, though the log ended in c
    before = machine.now()
    with pytest.raises(
        ReplayError, match=r"transition 5 .* begins in 'b', .* ended in 'c'"
    ) as wrong:
        machine.replay(3)
    assert wrong.value.transition.number == 5
    assert machine.now() == before
    assert machine.replay(3, until=4).state == "c"

    other = went(store, 3, name="other", limits=MachineLimits(replayed=4))
    with pytest.raises(LimitExceededError, match="more than 4 transitions follow version 1"):
        other.replay(1)
    assert other.replay(1, until=5).metadata["replay_info"]["transitions"] == 4


@pytest.mark.spec("M42", "X23", "X24")
def test_the_log_by_time_and_cleaning_it(timed: sync.Store, hands: Hands) -> None:
    machine = went(timed)
    for _ in range(4):
        hands.move(86_400)
        machine.fire("go")
    log = machine.transitions()
    assert machine.transitions(since=hands.time(2 * 86_400)) == log[2:]
    assert machine.transitions(until=hands.time(86_400)) == log[:2]
    assert machine.transitions(since=2, until=3) == log[1:3]
    assert machine.transitions(limit=2) == log[-2:]
    assert machine.clean() == 0
    hands.move(5 * 86_400)
    assert machine.clean() == 2  # from before seven days
    assert machine.transitions() == log[2:]
    assert machine.version(3).state == "c"
    with pytest.raises(PointNotFoundError):
        machine.version(1)
    assert machine.clean(before=hands.time(30 * 86_400)) == 2
    assert machine.transitions() == log[4:]
    assert machine.fire("go").number == 6
    assert machine.validate() == ()


def test_long_logs_are_read_by_pages(store: sync.Store) -> None:
    machine = went(store)
    for _ in range(600):
        machine.fire("go")
    assert [one.number for one in machine.transitions(limit=None)] == list(range(1, 602))
    assert machine.transitions(since=599)[0].number == 599
    assert machine.version(300).version == 300
    with pytest.raises(LimitExceededError, match="more than 100 transitions follow version 1"):
        machine.replay(1)
    assert machine.replay(501).metadata["replay_info"]["transitions"] == 100
    assert machine.validate() == ()
