"""A failed transition is settled as its arrow declares, by the procedure that answers it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_kit import Place
from test_recovery_killed import break_leases, faulty

import holdfast
from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState
from holdfast.errors import HoldfastError, InvalidInputError, RecoveryFailedError
from holdfast.storage.wrappers import Fault

KIND = "failed_transition"


class Killed(BaseException):
    """The process is gone."""


def mail(work: Any, recover: str = "complete", **more: Any) -> MachineDefinition:
    """Letters that are written and then sent, which is work."""
    arrow = MachineArrow("sent", work=work, recover=recover, **more)
    states = {
        "empty": MachineState(on={"write": "written"}),
        "written": MachineState(on={"send": arrow}),
        "sent": MachineState(),
    }
    return MachineDefinition("empty", states)


def kill(step: Any) -> None:
    """Work in whose middle the process ends."""
    raise Killed


def interrupted(store: sync.Store, agent: str = "7", *machines: str) -> sync.State:
    """An agent that went on since its checkpoint, and was killed in the work of its machines."""
    state = store.agent(agent)
    for name in machines or ("post",):
        sync.agents.Machine(state, mail(kill), name).start()
    state.checkpoint("good")
    for name in machines or ("post",):
        machine = sync.agents.Machine(state, mail(kill), name)
        machine.fire("write")
        with pytest.raises(Killed):
            machine.fire("send", to="Ann")
    return state


def where(state: sync.State, name: str = "post") -> tuple[str, bool]:
    """Where a machine is, and whether a transition of it is open."""
    now = sync.agents.Machine(state, mail(kill), name).now()
    assert now is not None
    return now.state, now.pending is not None


def test_an_agent_that_was_set_up_with_its_machines_settles_them(place: Place) -> None:
    config, sent = holdfast.recovery.Configuration("7"), list[str]()

    async def awaited() -> None:
        async def work(step: Any) -> None:
            sent.append(step.input["to"])

        store = await holdfast.open(place.url, **place.options())
        machines = {"post": mail(work)}
        async with (
            store,
            await holdfast.recovery.set_up(config, store=store, machines=machines) as managed,
        ):
            report = await managed.recovery.recover(managed.state, KIND)
            assert report.transitions == {"post": "complete"}

    store = place.open()
    state = interrupted(store)
    machines = {"post": mail(lambda step: sent.append(step.input["to"]))}
    with sync.recovery.set_up(config, store=store, machines=machines) as managed:
        assert managed.recovery.recover(state, KIND).transitions == {"post": "complete"}
    assert where(state) == ("sent", False)
    with pytest.raises(InvalidInputError, match="machines are definitions"):
        sync.recovery.set_up(config, store=store, machines={"post": 3})  # type: ignore[dict-item]
    store.erase(state.scope)
    interrupted(store)
    asyncio.run(awaited())
    assert sent == ["Ann", "Ann"]


@pytest.mark.spec("M55", "M74", "M100")
@pytest.mark.parametrize(
    ("choice", "said", "end"),
    [
        ("complete", "complete", ("sent", False)),
        ("roll_back", "roll_back", ("written", False)),
        ("ask", "left: its arrow declares ask", ("written", True)),
    ],
)
def test_an_open_transition_is_settled_by_its_declared_choice(
    store: sync.Store, choice: str, said: str, end: tuple[str, bool]
) -> None:
    state, sent = interrupted(store), list[str]()
    given = {"post": mail(lambda step: sent.append(step.input["to"]), choice)}
    recovery = sync.recovery.Recovery(store, machines=given)
    assert recovery.plan(state, KIND).strategy == "as_it_is"
    report = recovery.recover(state, KIND)
    assert report.success
    assert (report.strategy, report.lost) == ("as_it_is", "nothing")
    assert report.transitions["post"].startswith(said)
    assert where(state) == end
    assert sent == (["Ann"] if choice == "complete" else [])
    assert "transition of post" in str(report)
    assert recovery.reports(state)[0] == report


def test_what_no_definition_says_is_left_to_the_caller(store: sync.Store) -> None:
    state = interrupted(store)
    report = sync.recovery.Recovery(store, machines={"other": mail(kill)}).recover(state, KIND)
    assert report.success
    assert report.strategy == "newest_valid"
    assert "its definition was not given" in report.transitions["post"]
    assert where(state) == ("empty", True)


def test_a_machine_that_is_put_back_to_before_the_work_is_asked_about(store: sync.Store) -> None:
    state, sent = interrupted(store), list[str]()
    recovery = sync.recovery.Recovery(
        store,
        machines={"post": mail(lambda step: sent.append(step.id))},
        validate=[
            lambda state: sync.agents.Machine(state, mail(kill), "post").now().state == "empty"
        ],
    )
    report = recovery.recover(state, KIND)
    assert report.strategy == "newest_valid"
    assert "not where the work began" in report.transitions["post"]
    assert (where(state), sent) == (("empty", True), [])


def test_an_order_that_is_pinned_stands(store: sync.Store) -> None:
    state = interrupted(store)
    recovery = sync.recovery.Recovery(store, machines={"post": mail(kill)}, order=["newest_valid"])
    assert recovery.plan(state, KIND).strategy == "newest_valid"


def test_work_that_fails_again_is_no_success(store: sync.Store) -> None:
    state, tried = interrupted(store), list[int]()

    def work(step: Any) -> None:
        tried.append(step.attempt)
        raise ValueError("the post office is shut")

    recovery = sync.recovery.Recovery(store, machines={"post": mail(work)})
    answers = next(one for one in recovery.procedures() if one.id == KIND)
    recovery.set({**answers.data(), "backoff": 1})
    with pytest.raises(RecoveryFailedError, match="the post office is shut"):
        recovery.recover(state, KIND)
    assert tried == [2, 3, 4, 5]
    assert where(state) == ("written", True)
    assert recovery.reports(state)[0].status == "rolled_back"


def test_work_that_is_undone_is_settled(store: sync.Store) -> None:
    state, undone = interrupted(store), list[str]()

    def work(step: Any) -> None:
        raise ValueError("the post office is shut")

    recovery = sync.recovery.Recovery(
        store, machines={"post": mail(work, undo=lambda step: undone.append(step.id))}
    )
    answers = next(one for one in recovery.procedures() if one.id == KIND)
    recovery.set({**answers.data(), "backoff": 1})
    report = recovery.recover(state, KIND)
    assert (report.success, report.attempts, len(undone)) == (True, 2, 1)
    assert where(state) == ("written", False)


def test_what_was_completed_is_not_undone_because_another_fails(store: sync.Store) -> None:
    state, sent = interrupted(store, "7", "a", "b"), list[str]()

    def work(step: Any) -> None:
        raise ValueError("the post office is shut")

    machines = {"a": mail(lambda step: sent.append(step.id)), "b": mail(work)}
    report = sync.recovery.Recovery(store, machines=machines).recover(state, KIND)
    assert report.success
    assert report.transitions == {
        "a": "complete",
        "b": "left: ValueError: the post office is shut",
    }
    assert (where(state, "a"), where(state, "b")) == (("sent", False), ("written", True))
    assert len(sent) == 1


def test_a_process_that_ends_anywhere_leaves_the_transition_to_be_settled(place: Place) -> None:
    for nth in range(1, 100):
        with place.open() as store:
            interrupted(store, str(nth))
        dying, storage = faulty(place)
        sent: list[str] = []
        machines = {"post": mail(lambda step, sent=sent: sent.append(step.id))}
        storage.plan = (Fault("commit", storage.calls["commit"] + nth, onward=True),)
        try:
            sync.recovery.Recovery(dying, machines=machines).recover(f"agent:{nth}", KIND)
        except HoldfastError:
            pass
        else:
            return
        finally:
            storage.plan = ()
            storage.close()
        with place.open() as store:
            break_leases(store)
            state = store.agent(str(nth))
            recovery = sync.recovery.Recovery(store, machines=machines)
            if not [one for one in recovery.resume(state) if one.success]:
                assert recovery.recover(state, KIND).success
            assert where(state) == ("sent", False)
            assert len(set(sent)) == 1
    pytest.fail("a recovery that never ends")


def test_boot_takes_the_machines_of_its_recovery(store: sync.Store) -> None:
    state, sent = interrupted(store), list[str]()
    recovery = sync.recovery.Recovery(
        store, machines={"post": mail(lambda step: sent.append(step.id))}
    )
    report = sync.recovery.boot(store, recovery=recovery)
    assert {one.kind: one.outcome for one in report.items} == {"transition": "completed"}
    assert where(state) == ("sent", False)


def test_functions_of_machines_run_on_the_loop_of_the_async_face(place: Place) -> None:
    with place.open() as store:
        for agent in ("7", "8", "9"):
            interrupted(store, agent)

    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), list[Any]()

        async def work(step: Any) -> None:
            await asyncio.sleep(0)
            seen.append(asyncio.get_running_loop() is loop)

        async with holdfast.open(place.url, **place.options()) as store:
            recovery = holdfast.recovery.Recovery(store, machines={"post": mail(work)})
            report = await recovery.recover("agent:7", KIND)
            assert report.transitions == {"post": "complete"}
            found = await recovery.recover_each(["agent:8"], KIND)
            assert [one.transitions for one in found.values()] == [{"post": "complete"}]  # type: ignore[union-attr]
            report = await holdfast.recovery.boot(store, recovery=recovery)
            assert [one.outcome for one in report.items] == ["completed"]
        assert seen == [True, True, True]

    asyncio.run(main())


def test_a_group_whose_member_has_an_unfinished_recovery_goes_on_with_it(place: Place) -> None:
    def end(step: str, said: str) -> None:
        if step == "update_tracking":
            raise Killed

    with place.open() as store:
        interrupted(store)
        store.agent("8").set("k", 1)
        with pytest.raises(Killed):
            sync.recovery.Recovery(store, machines={"post": mail(kill)}).recover(
                "agent:7", KIND, progress=end
            )

    async def main() -> None:
        sent: list[str] = []

        async def work(step: Any) -> None:
            sent.append(step.id)

        async with holdfast.open(place.url, **place.options()) as store:
            recovery = holdfast.recovery.Recovery(store, machines={"post": mail(work)})
            groups = holdfast.checkpoints.CheckpointGroups(store)
            await groups.create(["agent:7", "agent:8"], "both")
            await recovery.recover_group(["agent:7", "agent:8"], "agent_crash")
            [_, report] = await recovery.reports("agent:7")
            assert (report.success, report.transitions) == (True, {"post": "complete"})
        assert len(sent) == 1

    asyncio.run(main())


def test_machines_that_cannot_be_used_are_refused(store: sync.Store) -> None:
    async def work(step: Any) -> None:
        pass

    for wrong in (5, {"post": 5}, {"post": mail(work)}):
        with pytest.raises(InvalidInputError):
            sync.recovery.Recovery(store, machines=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", ["notify_systems", "cleanup"])
def test_a_step_that_is_not_critical_keeps_no_transition_from_being_settled(
    store: sync.Store, step: str
) -> None:
    state, sent = interrupted(store), list[str]()
    recovery = sync.recovery.Recovery(
        store,
        steps={step: lambda *_: 1 // 0},
        machines={"post": mail(lambda step: sent.append(step.id))},
    )
    report = recovery.recover(state, KIND)
    assert (report.success, report.attempts) == (True, 1)
    assert (where(state), len(sent)) == (("sent", False), 1)
