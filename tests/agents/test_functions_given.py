"""Functions that users give: what has not run is not done, and what is no yes is no yes."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents import (
    Component,
    DriftSignal,
    MachineArrow,
    MachineDefinition,
    MachineState,
    StepResult,
    Task,
)
from holdfast.errors import (
    AgentValidationError,
    Conflict,
    HandoverValidationError,
    InvalidInputError,
    MachineDataError,
    MachineDefinitionError,
)

did: list[Any] = []


async def later(given: Any = None) -> None:
    did.append(given)


def yields(given: Any = None) -> Any:
    did.append(given)
    yield


def gives_later(given: Any = None) -> Any:
    return later(given)


NOT_RUN = [later, yields, gives_later]


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    did.clear()


# ---- what nobody awaits or reads ------------------------------------------------------------


@pytest.mark.parametrize("function", NOT_RUN)
def test_a_letter_that_nobody_has_processed_is_not_done(place: Place, function: Any) -> None:
    mailbox = sync.agents.Mailbox(place.open().agent("7"))
    mailbox.send("pay")
    with pytest.raises(InvalidInputError, match=r"plain function|without `yield`"):
        mailbox.process(function)
    assert (mailbox.status().waiting, did) == (1, [])
    if function is not gives_later:
        assert mailbox.waiting()[0].tries == 0, "refused before anything is begun"


@pytest.mark.parametrize("function", NOT_RUN)
def test_an_effect_that_did_not_run_is_not_done(place: Place, function: Any) -> None:
    effects = sync.agents.Effects(place.open().agent("7"))
    with pytest.raises(InvalidInputError):
        effects.call("mail", function, id="1")
    found = effects.get("mail", id="1")
    assert did == []
    if function is gives_later:
        assert found is not None
        assert found.status == "unknown"
    else:
        assert found is None, "refused before anything is begun"


class Kept:
    """An agent with one field and one method of its own."""

    def __init__(self, **methods: Any) -> None:
        self.count = 1
        vars(self).update(methods)


@pytest.mark.parametrize("name", ["validate_state", "handle_recovery", "upgrade_state"])
def test_async_methods_are_refused_before_anything_is_saved(place: Place, name: str) -> None:
    state = place.open().agent("7")
    with pytest.raises(InvalidInputError, match=f"{name} of Kept is an `async def`"):
        sync.agents.attach(Kept(**{name: later}), state, fields=["count"])
    assert state._handle.place()[2] == 0


def test_methods_that_give_something_to_be_awaited_are_refused(place: Place) -> None:
    state = place.open().agent("7")
    with pytest.raises(InvalidInputError, match="validate_state gave something to be awaited"):
        sync.agents.attach(Kept(validate_state=lambda: later()), state, fields=["count"]).start()
    assert state._handle.place()[2] == 0
    sync.agents.attach(Kept(), state, fields=["count"]).start()  # and never stopped
    for method in (yields, gives_later):
        kept = sync.agents.attach(Kept(handle_recovery=method), state, fields=["count"])
        with pytest.raises(InvalidInputError, match="handle_recovery"):
            kept.start()
        assert kept.life().recoveries == 0
    assert did == []


def test_an_async_agent_is_not_spawned_by_a_blocking_registry(place: Place) -> None:
    class Greeter(sync.agents.Agent):
        persistent = ("name",)
        name = "ann"

        async def validate_state(self) -> Any:
            return ["never"]

    store = place.open()
    with sync.agents.Agents(store, {"g": lambda identity: Greeter()}) as agents:
        agents.register("1", kind="g")
        with pytest.raises(InvalidInputError, match="async def"):
            agents.get("1")
    assert store.agent("1").get("$agent/execution_state") is None


def test_what_makes_agents_runs_too(place: Place) -> None:
    store = place.open()
    for function in (later, yields):
        with pytest.raises(InvalidInputError, match="what makes the kind 'k'"):
            sync.agents.Agents(store, {"k": function})
    with sync.agents.Agents(store, {"k": gives_later}) as agents:
        agents.register("1", kind="k")
        with pytest.raises(InvalidInputError, match="to be awaited"):
            agents.get("1")

    async def make(identity: Any) -> Kept:
        return Kept(step=lambda: StepResult(done=True))

    async def main() -> None:
        async with holdfast.open("memory:") as other:
            agents = holdfast.agents.Agents(other, {"k": make}, fields={"k": ["count"]})
            async with agents:
                await agents.register("1", kind="k")
                assert isinstance(await agents.get("1"), Kept)
                await agents.stop("1")
                assert (await agents.run("1")).outcome == "done"

    asyncio.run(main())


def test_an_agent_that_a_loop_runs_here_is_not_spawned_beside_it(place: Place) -> None:
    store = place.open()
    told: list[str] = []

    def step() -> StepResult:
        with pytest.raises(InvalidInputError, match="runs here in a loop"):
            agents.get("1")
        told.append("refused")
        return StepResult(done=True)

    kinds = {"k": lambda identity: Kept(step=step)}
    with sync.agents.Agents(store, kinds, fields={"k": ["count"]}) as agents:
        agents.register("1", kind="k")
        agents.run("1")
        assert told == ["refused"]
        assert isinstance(agents.get("1"), Kept)


@pytest.mark.parametrize("face", ["blocking", "async", "loop"])
def test_an_upgrade_that_raises_is_told(place: Place, face: str) -> None:
    """By the kind of its error: what it says may hold values."""
    store = place.open()
    sync.agents.attach(Kept(), store.agent("7"), fields=["count"]).start()

    def upgrade_state(version: int, values: Any) -> Any:
        raise KeyError("secret")

    newer = Kept(state_version=2, upgrade_state=upgrade_state, step=lambda: StepResult(done=True))

    async def awaited() -> None:
        async with holdfast.open("memory:") as other:
            state = other.agent("7")
            await holdfast.agents.attach(Kept(), state, fields=["count"]).start()
            await holdfast.agents.attach(newer, state, fields=["count"]).start()

    with pytest.raises(AgentValidationError, match="upgrade_state raised KeyError") as caught:
        if face == "async":
            asyncio.run(awaited())
        elif face == "loop":
            sync.agents.run(newer, store.agent("7"), fields=["count"])
        else:
            sync.agents.attach(newer, store.agent("7"), fields=["count"]).start()
    assert "secret" not in str(caught.value)


def test_a_signal_is_given_once(place: Place) -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        sync.agents.Drift(place.open().agent("7"), signals=[DriftSignal("a"), DriftSignal("a")])


@pytest.mark.parametrize("name", ["work", "undo", "action", "guard"])
def test_a_blocking_machine_takes_no_async_functions(place: Place, name: str) -> None:
    arrow = MachineArrow("b", **{name: later})
    definition = MachineDefinition("a", {"a": MachineState(on={"go": arrow}), "b": MachineState()})
    with pytest.raises(InvalidInputError, match=f"{name} of a machine is an `async def`"):
        sync.agents.Machine(place.open().agent("7"), definition)


def test_an_undo_that_has_not_run_closes_nothing(place: Place) -> None:
    arrow = MachineArrow("b", work=lambda step: {}["x"], undo=gives_later)
    definition = MachineDefinition("a", {"a": MachineState(on={"go": arrow}), "b": MachineState()})
    machine = sync.agents.Machine(place.open().agent("7"), definition)
    with pytest.raises(KeyError):
        machine.fire("go")
    now = machine.now()
    assert now is not None
    assert now.pending is not None
    assert did == []


@pytest.mark.parametrize("function", [later, yields, functools.partial(later, "x")])
@pytest.mark.parametrize("name", ["on_letter", "check_tasks", "step"])
def test_a_loop_refuses_methods_that_would_not_run(place: Place, name: str, function: Any) -> None:
    state = place.open().agent("7")
    sync.agents.Mailbox(state).send("x")
    before = state.log()
    made = {"step": lambda: StepResult(done=True)} | {name: function}
    for agent in (Kept(**made), lambda: Kept(**made)):
        with pytest.raises(InvalidInputError, match=f"{name} of Kept is"):
            sync.agents.run(agent, state, backoff=0.001, longest_backoff=0.001)
    assert (did, state.log()) == ([], before), "nothing was recorded"
    [letter] = sync.agents.Mailbox(state).waiting()
    assert letter.tries == 0


@pytest.mark.parametrize("name", ["on_letter", "check_tasks", "step"])
@pytest.mark.parametrize("answer", [later, yields])
def test_what_is_seen_only_when_it_is_called_ends_the_loop(
    place: Place, name: str, answer: Any
) -> None:
    state = place.open().agent("7")
    sync.agents.Mailbox(state).send("x")
    made = {"step": lambda: StepResult(done=True)} | {name: lambda *given: answer(*given)}
    with pytest.raises(InvalidInputError):
        sync.agents.run(Kept(**made), state, backoff=0.001, longest_backoff=0.001)
    assert did == []
    [letter] = sync.agents.Mailbox(state).waiting()
    assert letter.tries == 0, "that is not the letter's fault"
    life = sync.agents.AgentState(state).get("execution_state")
    assert life.status == "failed"


def test_generators_are_refused_on_the_async_face_too(place: Place) -> None:
    async def reads(given: Any) -> Any:
        yield given

    async def main() -> None:
        async with holdfast.open(place.url) as store:
            state = store.agent("7")
            await holdfast.agents.Mailbox(state).send("pay")
            for function in (yields, reads):
                with pytest.raises(InvalidInputError, match="generator"):
                    await holdfast.agents.Mailbox(state).process(function)
                with pytest.raises(InvalidInputError, match="generator"):
                    await holdfast.agents.Effects(state).call("mail", function, id="1")
            assert (await holdfast.agents.Mailbox(state).status()).waiting == 1
            assert await holdfast.agents.Effects(state).all() == []

    asyncio.run(main())


# ---- what is wrong --------------------------------------------------------------------------


async def _async_problems() -> Any:
    yield "wrong"


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: ["wrong"], "wrong"),
    (lambda: {"wrong"}, "wrong"),
    (lambda: {"name": "wrong"}, "name: wrong"),
    (lambda: (text for text in ["wrong"]), "wrong"),
    (lambda: "wrong", "wrong"),
    (lambda: "", "says no"),
    (lambda: [""], "says no"),
    (lambda: False, "says no"),
    (lambda: ValueError("secret"), "gave back ValueError"),
    (lambda: 5, "gave back int"),
    (lambda: b"no", "gave back bytes"),
    (_async_problems, "gave back async_generator"),
]
RIGHT: list[Callable[[], Any]] = [lambda: None, lambda: True, list, dict, set, lambda: iter(())]


@pytest.mark.parametrize(("says", "told"), WRONG)
def test_whatever_says_that_something_is_wrong_counts(
    place: Place, says: Callable[[], Any], told: str
) -> None:
    state = place.open().agent("7")
    with pytest.raises(AgentValidationError) as caught:
        sync.agents.attach(Kept(validate_state=says), state, fields=["count"]).save()
    [problem] = caught.value.problems
    assert told in problem
    assert "secret" not in problem
    assert state._handle.place()[2] == 0
    definition = MachineDefinition("a", {"a": MachineState(check=lambda data: says())})
    with pytest.raises(MachineDataError) as refused:
        sync.agents.Machine(state, definition).start()
    assert told in refused.value.problems[0]


@pytest.mark.parametrize("says", RIGHT)
def test_whatever_says_that_nothing_is_wrong_counts(place: Place, says: Callable[[], Any]) -> None:
    state = place.open().agent("7")
    sync.agents.attach(Kept(validate_state=says), state, fields=["count"]).save()
    definition = MachineDefinition("a", {"a": MachineState(check=lambda data: says())})
    assert sync.agents.Machine(state, definition).start().state == "a"


def test_what_a_generator_raises_is_an_error_of_the_validation(place: Place) -> None:
    def validate() -> Any:
        yield from {}["x"]

    with pytest.raises(AgentValidationError, match="validate_state raised KeyError"):
        sync.agents.attach(
            Kept(validate_state=validate), place.open().agent("7"), fields=["count"]
        ).save()


def test_the_async_face_judges_alike(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url) as store:
            for number, (says, told) in enumerate(WRONG):
                kept = holdfast.agents.attach(
                    Kept(validate_state=says), store.agent(str(number)), fields=["count"]
                )
                with pytest.raises(AgentValidationError) as caught:
                    await kept.save()
                assert told in caught.value.problems[0]

    asyncio.run(main())


def test_a_check_of_data_is_no_async_function() -> None:
    with pytest.raises(MachineDefinitionError, match="check is a plain function"):
        MachineDefinition("a", {"a": MachineState(check=later)})


# ---- upgrades -------------------------------------------------------------------------------


class Upgraded(Kept):
    state_version = 2


def test_an_upgrade_may_be_async(place: Place) -> None:
    async def upgrade(version: int, values: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"count": values["count"] + 100 * version}

    async def main() -> None:
        async with holdfast.open(place.url) as store:
            state = store.agent("7")
            async with holdfast.agents.attach(Kept(), state, fields=["count"]):
                pass
            agent = Upgraded(upgrade_state=upgrade)
            await holdfast.agents.attach(agent, state, fields=["count"]).restore()
            assert agent.count == 101
            run = Upgraded(upgrade_state=upgrade, step=lambda: StepResult(done=True))
            await holdfast.agents.run(run, state, fields=["count"])
            assert run.count == 101

    asyncio.run(main())


@pytest.mark.parametrize("answer", [None, 5, ["count"]])
def test_an_upgrade_gives_a_mapping(place: Place, answer: Any) -> None:
    state = place.open().agent("7")
    with sync.agents.attach(Kept(), state, fields=["count"]):
        pass
    agent = Upgraded(upgrade_state=lambda version, values: answer)
    with pytest.raises(AgentValidationError, match="upgrade_state returns a mapping"):
        sync.agents.attach(agent, state, fields=["count"]).start()


# ---- letters that conflict with themselves --------------------------------------------------


def test_a_letter_that_always_conflicts_is_set_aside(place: Place) -> None:
    state = place.open().agent("7")
    mailbox = sync.agents.Mailbox(state)
    mailbox.send(1)
    mailbox.send(2)

    class Shop:
        def on_letter(self, mail: sync.agents.Mail) -> None:
            count = mail.change.get("orders", 0)
            if mail.content == 1:
                state.set("orders", count + 1)  # beside the change: a slip
            did.append(mail.content)

        def step(self) -> StepResult:
            return StepResult(done=True)

    result = sync.agents.run(Shop(), state, backoff=0.001, longest_backoff=0.001)
    assert (result.outcome, result.letters) == ("done", 1)
    assert [one.content for one in mailbox.set_aside()] == [1]
    assert mailbox.set_aside()[0].error == "Conflict"
    assert did.count(1) == 30, "5 times, each with 5 more because somebody may have been faster"


def test_processing_tells_of_a_conflict_that_stays(place: Place) -> None:
    state = place.open().agent("7")
    mailbox = sync.agents.Mailbox(state, retry=holdfast.agents.RetryPolicy.every(2))
    mailbox.send(1)

    def slip(mail: sync.agents.Mail) -> None:
        state.set("orders", mail.change.get("orders", 0) + 1)

    with pytest.raises(Conflict):
        mailbox.process(slip)
    assert [one.tries for one in mailbox.waiting()] == [1]
    with pytest.raises(Conflict):
        mailbox.process(slip)
    assert mailbox.status().set_aside == 1


def test_a_conflict_that_passes_counts_for_nothing(place: Place) -> None:
    state = place.open().agent("7")
    mailbox = sync.agents.Mailbox(state)
    mailbox.send(1)

    def disturbed(mail: sync.agents.Mail) -> None:
        count = mail.change.get("orders", 0)
        did.append(count)
        if len(did) < 4:
            state.set("orders", count + 10)  # as another would
        mail.change.set("done", count)

    assert mailbox.process(disturbed) == 1
    assert (state.get("done"), mailbox.status().set_aside) == (30, 0)


def test_the_async_face_sets_it_aside_too(place: Place) -> None:
    async def conflicts(mail: Any) -> None:
        raise Conflict("always")

    async def main() -> None:
        async with holdfast.open(place.url) as store:
            mailbox = holdfast.agents.Mailbox(
                store.agent("7"), retry=holdfast.agents.RetryPolicy.every(1)
            )
            await mailbox.send(1)
            with pytest.raises(Conflict):
                await mailbox.process(conflicts)
            assert (await mailbox.status()).set_aside == 1

    asyncio.run(main())


def test_a_letter_is_answered_while_it_is_processed(place: Place) -> None:
    store = place.open()
    state, other = store.agent("7"), store.agent("8")
    mailbox = sync.agents.Mailbox(state)
    mailbox.send(1)
    with mailbox.next() as mail:
        assert mail is not None
    with pytest.raises(InvalidInputError, match="this change is over"):
        mail.send(other, "too late")
    mailbox.send(2)
    with pytest.raises(ValueError), mailbox.next() as mail:  # noqa: PT011 the block's own
        raise ValueError
    assert mail is not None
    for late in (lambda: mail.send(other, "too late"), lambda: mail.change.set("a", 1)):
        with pytest.raises(InvalidInputError, match="this change is over"):
            late()
    assert sync.agents.Mailbox(other).status().received == 0


def test_what_is_planned_into_a_change_stands_in_its_block(place: Place) -> None:
    state = place.open().agent("7")
    with state.change() as change:
        change.set("a", 1)
    with pytest.raises(InvalidInputError, match="this change is over"):
        sync.agents.Effects(state).plan("mail", id="1", into=change)


# ---- slips ----------------------------------------------------------------------------------


def test_an_upgrade_of_a_component_that_raises_is_told(place: Place) -> None:
    state = place.open().agent("7")
    sync.agents.AgentState(state, components=[Component("notes", dict)]).set("notes", {"a": 1})

    def upgrade(version: int, data: Any) -> Any:
        return data["missing"]

    newer = Component("notes", dict, version=2, upgrade=upgrade)
    with pytest.raises(AgentValidationError, match="'notes' of version 1") as caught:
        sync.agents.AgentState(state, components=[newer]).get("notes")
    assert caught.value.problems == ("its upgrade raised KeyError",)
    with pytest.raises(InvalidInputError, match="upgrade of the component 'notes' is an `async"):
        Component("notes", dict, version=2, upgrade=later)
    for wrong in (5, "Notes", None, [dict]):
        with pytest.raises(InvalidInputError, match="the type of the component 'notes'"):
            Component("notes", wrong)
    for right in (dict, int | None, list[str], Any):
        Component("notes", right)


@pytest.mark.parametrize("odd", [99, "TERM", signal.SIGKILL, signal.SIGSTOP, 0, None])
def test_signals_that_cannot_be_taken_are_refused(place: Place, odd: Any) -> None:
    with pytest.raises(InvalidInputError, match="signal"):
        sync.agents.Loop(place.open().agent("7"), Kept(step=lambda: None), signals=[odd])


def test_what_a_step_says_is_refused_where_it_says_it() -> None:
    wrong: list[dict[str, Any]] = [
        {"done": "no"},
        {"idle": 1},
        {"progress": 10**400},
        {"progress": "half"},
        {"signals": 5},
        {"action": 7},
    ]
    for fields in wrong:
        with pytest.raises(InvalidInputError):
            StepResult(**fields)


def test_a_wrong_thing_is_told_once(place: Place) -> None:
    typed = sync.agents.AgentState(place.open().agent("7"))
    typed.put("tasks", "t", Task(id="t"))
    with pytest.raises(AgentValidationError) as caught, typed.change() as change:
        change.remove("tasks", "t")
        change.append("execution_trace/commands", {"id": "c", "task_id": "t", "name": "n"})
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("check", [lambda *_: 5, lambda *_: ValueError(), lambda *_: later()])
def test_a_check_that_says_nothing_is_no_yes(place: Place, check: Any) -> None:
    store = place.open()
    sync.agents.AgentState(store.agent("a")).put("tasks", "t", Task(id="t"))
    with pytest.raises(HandoverValidationError) as caught:
        sync.agents.Handovers(store).offer("agent:a", "agent:b", "t", reason="x", check=check)
    assert "the check gave" in caught.value.problems[0]
    with pytest.raises(InvalidInputError, match="`async def`"):
        sync.agents.Handovers(store).offer("agent:a", "agent:b", "t", reason="x", check=later)


def test_agents_that_are_closed_run_nothing_more(place: Place) -> None:
    store = place.open()
    with sync.agents.Agents(
        store, {"k": lambda identity: Kept()}, fields={"k": ["count"]}
    ) as agents:
        agents.register("1", kind="k")
        agents.get("1")
    for call in (agents.get, agents.spawn, agents.run):
        with pytest.raises(InvalidInputError, match="these Agents are closed"):
            call("1")
    assert [one.owner for one in agents.list()] == [None], "looking is allowed"
