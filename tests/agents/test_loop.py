"""The loop: what it saves and when, what it does when something goes wrong, how it ends."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from store_kit import Between, Hands, Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.agents import DriftSignal, LoopSettings, StepResult
from holdfast.agents.agent_keys import CONVERSATION, MEMORY, task_key
from holdfast.agents.loop.decide import agent_by
from holdfast.checkpoints import RetentionRule
from holdfast.errors import (
    AgentValidationError,
    InvalidInputError,
    LeaseHeldError,
    PointNotFoundError,
    PrunedError,
)
from holdfast.store.inner import own_change
from holdfast.store.upkeep import prune
from holdfast.store.upkeep.prune import prune_state

QUICK: dict[str, Any] = {"backoff": 0.001, "idle": 0.001, "drift": False}


class Worker:
    """Counts its steps, and keeps the count; `act` may do more in each of them."""

    def __init__(self, steps: int, act: Callable[[int], Any] = lambda number: None) -> None:
        self.count = 0
        self.notes: list[Any] = []
        self._steps = steps
        self._act = act

    def get_persistent_state(self) -> dict[str, Any]:
        return {"count": self.count, "notes": self.notes}

    def apply_persistent_state(self, values: dict[str, Any]) -> None:
        vars(self).update(values)

    def step(self) -> StepResult:
        self.count += 1
        answer = self._act(self.count)
        if isinstance(answer, StepResult):
            return answer
        return StepResult(
            f"count {self.count}", progress=self.count, done=self.count >= self._steps
        )


def made(state: Any) -> list[tuple[str, str]]:
    """Types and triggers of the checkpoints, oldest first."""
    found = [(one.type, one.metadata.get("trigger", "")) for one in state.checkpoints()]
    return found[::-1]


START, SHUTDOWN = ("session_start", "start"), ("automatic", "shutdown")
ROUTINE = ("routine", "interval")


def kept(state: sync.State) -> int:
    """The count that is stored."""
    again = Worker(0)
    sync.agents.attach(again, state).restore()
    return again.count


def test_it_runs_steps_and_saves_each(place: Place) -> None:
    state = place.open().agent("7")
    seen = []
    result = sync.agents.run(Worker(4, lambda number: seen.append(kept(state))), state, **QUICK)
    assert (result.outcome, result.cycles, result.errors) == ("done", 4, 0)
    assert seen == [0, 1, 2, 3], "each step begins when the one before is saved"
    assert kept(state) == 4
    assert made(state) == [START, SHUTDOWN]
    assert result.checkpoint == state.checkpoints()[0].id
    again = place.open().agent("7") if place.engine == "sqlite" else state
    assert sync.agents.run(Worker(6), again, **QUICK).cycles == 2, (
        "another process goes on where it was"
    )


@pytest.mark.spec("D24", "D35")
class Reader:
    """Says of nothing that it is kept."""

    def __init__(self, state: Any) -> None:
        self.page = 0

    def step(self) -> StepResult:
        self.page += 1
        return StepResult("read", done=self.page >= 2)


class Writer(Reader):
    """Has its state, and may keep its page itself."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.state = state


def test_an_agent_of_which_nothing_is_kept_is_warned_of(
    store: sync.Store, caplog: pytest.LogCaptureFixture
) -> None:
    sync.agents.run(Reader, store.agent("lost"), **QUICK)
    assert "nothing of Reader is kept: page will be gone when it ends" in caplog.text
    caplog.clear()
    sync.agents.run(Reader, store.agent("kept"), fields=["page"], **QUICK)
    sync.agents.run(Writer, store.agent("own"), **QUICK)
    assert "is kept" not in caplog.text


def test_a_routine_checkpoint_every_thirty_minutes(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    sync.agents.run(Worker(13, lambda number: hands.move(600)), state, refresh=None, **QUICK)
    assert made(state) == [START, *[ROUTINE] * 4, SHUTDOWN]
    times = [one.time for one in state.checkpoints(type="routine")]
    assert {(a - b).total_seconds() for a, b in pairwise(times)} == {1800}


def test_intervals_are_measured_not_read_from_the_wall(timed: sync.Store, hands: Hands) -> None:
    def jump(number: int) -> None:
        hands.wall += 86_400

    state = timed.agent("7")
    sync.agents.run(Worker(5, jump), state, **QUICK)
    assert made(state) == [START, SHUTDOWN]


@pytest.mark.spec("D36", "D37", "X57")
def test_after_two_hours_it_is_made_anew_and_the_clock_starts_again(
    timed: sync.Store, hands: Hands
) -> None:
    agents: list[Worker] = []

    def make(state: sync.State) -> Worker:
        agents.append(Worker(40, lambda number: hands.move(600)))
        return agents[-1]

    state = timed.agent("7")
    result = sync.agents.run(make, state, routine=None, **QUICK)
    assert (result.cycles, result.restarts, len(agents)) == (40, 3, 4)
    assert agents[-1].count == 40, "the new object goes on from what was saved"
    anew = [("recovery", "refresh"), ("session_start", "restart")]
    assert made(state) == [START, *anew * 3, SHUTDOWN]
    times = [one.time for one in state.checkpoints(type="recovery")]
    assert {(a - b).total_seconds() for a, b in pairwise(times)} == {7200}


@pytest.mark.spec("D31", "D38", "X57")
def test_after_an_error_it_goes_on_from_what_was_saved(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    failed = []

    def act(number: int) -> None:
        if number == 3 and len(failed) < 2:
            failed.append(number)
            raise ZeroDivisionError("secret")

    state = place.open().agent("7")
    worker = Worker(5, act)
    result = sync.agents.run(worker, state, **QUICK)
    assert (result.outcome, result.cycles, result.errors) == ("done", 5, 2)
    assert worker.count == 5, "what a failed step changed in the agent was put back"
    assert made(state) == [START, *[("recovery", "error")] * 2, SHUTDOWN]
    assert state.checkpoints(type="recovery")[0].metadata["error"] == "ZeroDivisionError"
    told = [record.getMessage() for record in caplog.records]
    assert any("Error during operation: ZeroDivisionError" in text for text in told)
    recovery = state.checkpoints(type="recovery")[0].id
    assert any(f"Recovery point created: {recovery}" in text for text in told)


@pytest.mark.spec("D38", "X57")
def test_errors_back_off_and_have_a_limit(store: sync.Store) -> None:
    waits: list[float] = []

    class Watched(sync.agents.Loop):
        def _wait(self, seconds: float) -> Any:
            waits.append(seconds)
            return iter(())  # no steps

    def fail(number: int) -> None:
        raise ZeroDivisionError

    state = store.agent("7")
    loop = Watched(state, Worker(5, fail), max_errors=6, longest_backoff=5, drift=False)
    with pytest.raises(ZeroDivisionError) as caught:
        loop.run()
    assert waits == [1, 2, 4, 5, 5]
    assert "6 errors in a row" in caught.value.__notes__[-1]
    assert made(state).count(("recovery", "error")) == 6
    assert sync.agents.attach(Worker(0), state).life().status == "failed"
    assert kept(state) == 0


def test_errors_that_are_not_in_a_row_never_end_it(store: sync.Store) -> None:
    failed: set[int] = set()

    def act(number: int) -> None:
        if number not in failed:
            failed.add(number)
            raise ZeroDivisionError

    result = sync.agents.run(Worker(6, act), store.agent("7"), max_errors=2, **QUICK)
    assert (result.outcome, result.errors) == ("done", 6)


class Fragile(Worker):
    """Cannot be put back the first times."""

    left = 0

    def apply_persistent_state(self, values: dict[str, Any]) -> None:
        if self.left:
            self.left -= 1
            raise OSError("the disk")
        super().apply_persistent_state(values)


def failing(number: int) -> None:
    if number == 2 and not FAILED:
        FAILED.append(number)
        raise KeyError("step")


FAILED: list[int] = []


def test_an_agent_that_cannot_be_put_back_is_tried_again(store: sync.Store) -> None:
    FAILED.clear()
    agent = Fragile(3, failing)
    agent.left = 2
    result = sync.agents.run(agent, store.agent("7"), **QUICK)
    assert (result.outcome, result.errors, agent.count) == ("done", 3, 3)


def test_an_agent_that_can_never_be_put_back_ends_the_loop(store: sync.Store) -> None:
    FAILED.clear()
    agent = Fragile(3, failing)
    agent.left = 100
    with pytest.raises(OSError, match="the disk") as caught:
        sync.agents.run(agent, store.agent("7"), max_errors=3, **QUICK)
    notes = caught.value.__notes__
    assert any("while it was put back after" in note for note in notes)
    assert any("3 errors in a row; gave up" in note for note in notes)
    shown: Any = caught.value
    while shown is not None and not isinstance(shown, KeyError):
        shown = shown.__context__
    assert isinstance(shown, KeyError), "the first error is not hidden"


def test_a_stop_before_it_runs_is_not_lost(store: sync.Store) -> None:
    agent = Worker(5)
    loop = sync.agents.Loop(store.agent("7"), agent, **QUICK)
    loop.stop()
    assert (loop.run().outcome, agent.count) == ("stopped", 0)
    assert (loop.run().outcome, agent.count) == ("done", 5), "it was for the first one"


def test_a_stop_before_it_runs_is_not_lost_on_the_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url) as opened:
            agent = Worker(5)
            loop = holdfast.agents.Loop(opened.agent("7"), agent, **QUICK)
            loop.stop()
            assert ((await loop.run()).outcome, agent.count) == ("stopped", 0)
            assert ((await loop.run()).outcome, agent.count) == ("done", 5)

    asyncio.run(main())


@pytest.mark.spec("D34")
def test_while_it_is_active_it_reads_its_mail_checks_its_tasks_and_works(place: Place) -> None:
    """Catches: a loop that does not call `check_tasks`, or calls the three in another order, or
    reads no letter that comes between two steps, or does not end when it is stopped."""
    state = place.open().agent("7")
    mailbox = sync.agents.Mailbox(state)
    seen: list[str] = []

    class Clerk(Worker):
        tasks: list[str]

        def on_letter(self, mail: sync.agents.Mail) -> None:
            seen.append(f"mail {mail.content}")
            self.notes.append(mail.content)

        def check_tasks(self) -> None:
            seen.append(f"tasks {len(self.notes)}")

        def step(self) -> StepResult:
            task = self.notes.pop(0) if self.notes else None
            seen.append(f"work on {task}")
            if task == "first":
                mailbox.send("third")
            if task == "third":
                loop.stop()
            return StepResult(f"{task}", idle=task is None)

    mailbox.send("first")
    mailbox.send("second")
    loop = sync.agents.Loop(state, Clerk(100), **QUICK)
    result = loop.run()
    assert (result.outcome, result.letters) == ("stopped", 3)
    assert seen == [
        *("mail first", "mail second", "tasks 2", "work on first"),
        *("mail third", "tasks 2", "work on second"),
        *("tasks 1", "work on third"),
    ]


def test_letters_come_first_and_are_done_once(place: Place) -> None:
    state = place.open().agent("7")
    mailbox = sync.agents.Mailbox(state)
    for number in range(3):
        mailbox.send(number)

    class Pages(Worker):
        tries = 0

        def on_letter(self, mail: sync.agents.Mail) -> None:
            self.notes.append(mail.content)
            mail.change.append("answers", mail.content)
            self.tries += 1
            if self.tries == 2:
                raise ZeroDivisionError

    reader = Pages(1)
    result = sync.agents.run(reader, state, **QUICK)
    assert (result.letters, result.errors, result.cycles) == (3, 1, 1)
    assert state.get("answers") == [0, 1, 2]
    assert reader.notes == [0, 1, 2], "what the agent keeps was put back, too"
    entry = state.log(key="answers", limit=1)[0]
    assert "$agent/attached/notes" in entry.keys, "the letter, its effect and the agent: one entry"
    assert "$mailbox/done" in entry.keys


def test_an_agent_of_ours_uses_one_way_of_keeping(place: Place) -> None:
    class Greeter(sync.agents.Agent):
        persistent = ("greeted",)

        def __init__(self) -> None:
            self.greeted: list[int] = []

        def step(self) -> StepResult:
            self.greeted.append(len(self.greeted))
            self.persist_state()
            return StepResult("greet", done=len(self.greeted) == 3)

    greeter = Greeter()
    greeter.set_state(place.open().agent("7"))
    assert sync.agents.run(greeter, **QUICK).outcome == "done"
    again = Greeter()
    again.set_state(place.open().agent("7"))
    assert again.restore_state()
    assert again.greeted == [0, 1, 2]


class Pages(Worker):
    """Cannot read every letter."""

    def on_letter(self, mail: sync.agents.Mail) -> None:
        if mail.content == "bad":
            raise ValueError("what is this?")
        self.notes.append(mail.content)

    def step(self) -> StepResult:
        self.count += 1
        return StepResult(done=len(self.notes) >= self._steps)


@pytest.mark.parametrize("letters", [["bad", "a"], ["a", "bad", "b", "bad", "bad", "c"]])
def test_letters_that_cannot_be_read_do_not_end_it(store: sync.Store, letters: list[str]) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state)
    for content in letters:
        mailbox.send(content)
    good = [content for content in letters if content != "bad"]
    bad = len(letters) - len(good)
    result = sync.agents.run(Pages(len(good)), state, **QUICK)
    assert (result.outcome, result.errors) == ("done", 5 * bad)
    assert [letter.tries for letter in mailbox.set_aside()] == [5] * bad
    again = Pages(0)
    sync.agents.attach(again, state).restore()
    assert again.notes == good


def test_if_no_letter_can_be_read_it_is_not_the_letters(store: sync.Store) -> None:
    mailbox = sync.agents.Mailbox(store.agent("7"))
    for _ in range(9):
        mailbox.send("bad")
    with pytest.raises(ValueError, match="what is this"):
        sync.agents.run(Pages(1), store.agent("7"), max_errors=3, **QUICK)
    assert (mailbox.status().set_aside, mailbox.status().waiting) == (3, 6)


def test_what_is_not_valid_is_not_saved(store: sync.Store) -> None:
    class Careful(Worker):
        def validate_state(self) -> list[str]:
            return ["three is too many"] if self.count == 3 else []

    state = store.agent("7")
    with pytest.raises(AgentValidationError):
        sync.agents.run(Careful(9), state, max_errors=2, **QUICK)
    assert kept(state) == 2


def test_an_agent_that_is_made_without_its_state(store: sync.Store) -> None:
    class Bare(sync.agents.Agent):
        persistent = ("count",)
        count = 0

        def step(self) -> StepResult:
            self.count += 1
            return StepResult(done=self.count == 2)

    assert sync.agents.run(Bare, store.agent("7"), **QUICK).outcome == "done"
    assert kept(store.agent("7")) == 2


def test_a_class_of_an_extension_that_does_not_say_what_it_takes_is_given_the_state() -> None:
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(type)
    assert agent_by(type, 7) is int


def test_what_has_no_step_is_refused_at_once(store: sync.Store) -> None:
    with pytest.raises(InvalidInputError, match=r"step\(\); object has none"):
        sync.agents.run(lambda state: object(), store.agent("7"), **QUICK)
    assert made(store.agent("7")) == []


def test_after_a_run_that_did_not_end_in_order_the_agent_is_told(place: Place) -> None:
    told = []

    class Told(Worker):
        def handle_recovery(self) -> None:
            told.append(self.count)

    def crash(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    state = place.open().agent("7")
    sync.agents.attach(Told(9), state).start()
    sync.agents.run(Told(2), state, **QUICK)
    assert told == [0]
    with pytest.raises(KeyboardInterrupt):
        sync.agents.run(Told(9, crash), state, **QUICK)
    assert made(state)[-1] == SHUTDOWN, "also when it is interrupted"
    sync.agents.run(Told(4), state, **QUICK)
    assert told == [0, 2], "what it was at may be half done"
    sync.agents.run(Told(5), state, **QUICK)
    assert told == [0, 2], "that run ended in order"


@pytest.mark.parametrize("base", [object, sync.agents.Agent])
@pytest.mark.parametrize("restored", [False, True])
def test_an_agent_that_works_on_its_state_itself_is_told_too(
    place: Place, base: type, restored: bool
) -> None:
    """Also if it goes back to before its first run: the run had no end all the same."""
    told: list[str] = []

    class Clerk(base):  # type: ignore[misc]
        def __init__(self, state: sync.State) -> None:
            self.state = state

        def handle_recovery(self) -> None:
            told.append("recovery")

        def validate_state(self) -> Any:
            told.append("validation")
            return ["spoilt"] if self.state.get("spoilt") else None

        def step(self) -> StepResult:
            if "recovery" not in told:
                raise KeyboardInterrupt
            return StepResult(done=True)

    state = place.open().agent("clerk")
    state.set("x", 1)
    early = state.checkpoint("early")
    with pytest.raises(KeyboardInterrupt):
        sync.agents.run(Clerk, state, **QUICK)
    assert "recovery" not in told
    if restored:
        state.restore(early)
    told.clear()
    assert sync.agents.run(Clerk, state, **QUICK).outcome == "done"
    assert told[:2] == ["recovery", "validation"]
    assert told.count("recovery") == 1
    state.set("spoilt", True)
    with pytest.raises(AgentValidationError, match="spoilt"):
        sync.agents.run(Clerk, state, **QUICK)


def test_tasks_are_checked_before_each_step(store: sync.Store) -> None:
    order = []

    class Tasked(Worker):
        def check_tasks(self) -> None:
            order.append("check")

    sync.agents.run(Tasked(2, lambda number: order.append("step")), store.agent("7"), **QUICK)
    assert order == ["check", "step"] * 2


def test_nothing_to_do_is_no_cycle_and_makes_no_checkpoints(
    timed: sync.Store, hands: Hands
) -> None:
    state = timed.agent("7")
    turns = []

    class Idle:
        def step(self) -> StepResult:
            turns.append(1)
            hands.move(900)
            return StepResult(idle=True, done=len(turns) == 8)

    result = sync.agents.run(Idle(), state, refresh=None, idle=0.001)
    assert (result.cycles, result.outcome) == (0, "done")
    assert made(state) == [START, SHUTDOWN]
    assert state.keys() == [], "an agent that keeps nothing itself writes only that it runs"


def test_an_agent_that_keeps_nothing_is_known_to_run(store: sync.Store) -> None:
    seen = []

    class Bare:
        def step(self) -> StepResult:
            seen.append(sync.agents.AgentState(store.agent("7")).get("execution_state"))
            return StepResult(done=True)

    sync.agents.run(Bare(), store.agent("7"), **QUICK)
    assert [(life.status, life.starts) for life in seen] == [("running", 1)]
    ended = sync.agents.AgentState(store.agent("7")).get("execution_state")
    assert (ended.status, ended.starts) == ("stopped", 1)
    broken = Worker(1)
    broken.step = lambda: 1 / 0  # type: ignore[assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        sync.agents.run(broken, store.agent("8"), **QUICK, max_errors=1)
    failed = sync.agents.AgentState(store.agent("8")).get("execution_state")
    assert (failed.status, failed.error) == ("failed", "ZeroDivisionError")


def test_fields_of_a_class_that_cannot_be_changed(store: sync.Store) -> None:
    class Foreign:
        def __init__(self) -> None:
            self.total = 0

        def step(self) -> StepResult:
            self.total += 2
            return StepResult(done=self.total >= 6)

    state = store.agent("7")
    sync.agents.run(Foreign(), state, fields=["total"], **QUICK)
    again = Foreign()
    sync.agents.attach(again, state, fields=["total"]).restore()
    assert again.total == 6


class Stuck:
    """Does the same again and again until it has a fresh conversation."""

    def __init__(self, state: Any, gives_up: int = 3) -> None:
        self.state = state

    def step(self) -> StepResult:
        if not self.state.exists(CONVERSATION):
            return StepResult("finish", "t", 1.0, done=True)
        return StepResult("search", "t", 0.2)


def prepare(state: sync.State) -> None:
    parts = own_change(state)
    part = parts.part(state._handle)
    part.append(CONVERSATION, {"role": "user", "content": "hello"})
    part.set(task_key("t"), {"id": "t"})
    part.set(MEMORY + "short_term/x", 1)
    part.set(MEMORY + "session/y", 2)
    plan = parts.plan()
    assert plan is not None
    state._run(plan)
    state.set("mine", 1)


@pytest.mark.spec("D31", "D48")
def test_on_drift_it_goes_on_with_clean_context(place: Place) -> None:
    store = place.open()
    state = store.agent("7")
    prepare(state)
    result = sync.agents.run(Stuck, state)
    assert (result.outcome, result.restarts) == ("done", 1)
    assert [alarm.kind for alarm in result.alarms] == ["repetition"]
    assert not state.exists(CONVERSATION)
    assert not state.exists(MEMORY + "short_term/x")
    assert state.get(MEMORY + "session/y") == 2
    assert state.exists(task_key("t"))
    assert state.get("mine") == 1
    [recovery] = state.checkpoints(type="recovery")
    assert recovery.metadata["kinds"] == ["repetition"]
    assert state.at(recovery).exists(CONVERSATION), "nothing is lost: it is all in there"
    assert "search" in recovery.metadata["why"][0]
    status = sync.agents.Drift(state).status()
    assert (status.since_refresh, status.cycles > 5) == (1, True)


class Book(Worker):
    """Does the same action in each step, and gets on."""

    def step(self) -> StepResult:
        self.count += 1
        return StepResult("read", task="book", progress=self.count, done=self.count % 40 == 0)


@pytest.mark.parametrize("how", ["state", "checkpoints", "recovery", "loop", "beside"])
def test_an_agent_that_was_put_back_does_not_drift(store: sync.Store, how: str) -> None:
    """However that was done: the work it does again is work, and its conversation stays."""
    state = store.agent("7")
    prepare(state)
    sync.agents.run(Book(0), state)
    [early] = state.checkpoints(type="session_start")
    loop = sync.agents.Loop(state, Book(0), backoff=0.001)
    if how == "state":
        state.restore(early)
    elif how == "checkpoints":
        sync.checkpoints.Checkpoints(state).restore(early)
    elif how == "recovery":
        sync.recovery.Recovery(store).recover(state, "agent_crash", point=early)
    elif how == "loop":
        loop.restart(early, reason="again")
    else:

        class Beside(Book):
            def step(self) -> StepResult:
                if self.count == 70:
                    state.restore(early)
                return super().step()

        loop = sync.agents.Loop(state, Beside(0), backoff=0.001)
    result = loop.run()
    assert (result.outcome, result.alarms) == ("done", [])
    assert kept(state) == 40
    assert state.exists(CONVERSATION)


@pytest.mark.parametrize("fresh", [False, True])
def test_errors_are_a_drift_also_where_each_is_undone(store: sync.Store, fresh: bool) -> None:
    """In each of these processes, too, of which the next goes on from the checkpoint."""
    cycles: list[Any] = []
    state = store.agent("7")
    prepare(state)

    class Failing(Worker):
        def step(self) -> StepResult:
            cycles.append(state.exists(CONVERSATION))
            if len(cycles) > 60 and len(cycles) % 5:
                raise ValueError("no")
            return StepResult(f"act {len(cycles) % 4}", progress=len(cycles))

    options: dict[str, Any] = {"backoff": 0, "longest_backoff": 0}
    options["restart"] = "process" if fresh else "here"
    for _ in range(100):
        result = sync.agents.run(lambda: Failing(0), state, max_drifts=1, **options)
        if result.outcome != "restart" or False in cycles:
            break
    assert False in cycles, "it went on with clean context"
    assert sync.agents.Drift(state).alarms()[-1].kind == "errors"
    assert len(cycles) < 90


def test_drift_that_refreshing_does_not_help_ends_it(store: sync.Store) -> None:
    class Hopeless:
        def step(self) -> StepResult:
            return StepResult("search", "t", 0.2)

    result = sync.agents.run(Hopeless(), store.agent("7"), max_drifts=2)
    assert (result.outcome, result.restarts) == ("drifted", 2)
    assert len(store.agent("7").checkpoints(type="recovery")) == 3


def test_a_drift_may_leave_a_checkpoint_and_no_more(store: sync.Store) -> None:
    class Spending:
        count = 0

        def step(self) -> StepResult:
            self.count += 1
            tokens = 100.0 + self.count % 7 + (500 if self.count > 80 else 0)
            return StepResult(f"s{self.count}", signals={"tokens": tokens}, done=self.count == 95)

    state = store.agent("7")
    drift = sync.agents.Drift(state, signals=[DriftSignal("tokens")], without=["time"])
    result = sync.agents.run(Spending(), state, drift=drift, on_drift="checkpoint")
    assert (result.outcome, result.restarts) == ("done", 0)
    assert [alarm.kind for alarm in result.alarms] == ["signal:tokens"]
    assert ("recovery", "drift") in made(state)


@pytest.mark.spec("D37")
def test_a_restart_from_any_checkpoint(store: sync.Store) -> None:
    state = store.agent("7")
    safe: list[Any] = []

    def act(number: int) -> None:
        state.append("log", number)
        if number == 2 and not safe:
            safe.append(number)
        if number == 3 and len(safe) == 1:
            safe.append(state.checkpoints(name="mine")[0])
            sync.agents.Loop(state, Worker(0)).restart(safe[1], reason="by hand")

    class Marking(Worker):
        def check_tasks(self) -> None:
            if self.count == 2 and len(safe) == 1:
                state.checkpoint("mine")

    result = sync.agents.run(lambda state: Marking(4, act), state, **QUICK)
    assert (result.outcome, result.restarts) == ("done", 1)
    assert state.get("log") == [1, 2, 3, 4]
    assert any(entry.kinds == ("restore",) for entry in state.log(limit=None))


@pytest.mark.parametrize("timeline", ["main", "trial", "v1..cafe\u0301"])
def test_a_checkpoint_to_start_from_again_is_held(store: sync.Store, timeline: str) -> None:
    state = store.agent("7")
    state.set("log", 0)
    if timeline != "main":
        state = state.fork(timeline)
    safe = [state.checkpoint("mine"), state.checkpoint("mine too")]
    state.set("log", 1)
    state.checkpoint("later")
    loop = sync.agents.Loop(state, lambda: Worker(1), **QUICK)
    loop.restart(safe[1], reason="by hand")
    loop.restart(safe[0], reason="by hand")
    retention = sync.checkpoints.Retention(store, rules={"manual": RetentionRule(max_count=1)})
    assert retention.marked("agent:7") == {safe[0].id: "a restart: by hand"}
    retention.run("agent:7", confirm=True)
    assert safe[0] in state.checkpoints()
    assert safe[1] not in state.checkpoints()
    assert loop.run().restarts == 1
    assert state.get("log") == 0
    assert retention.marked("agent:7") == {}


def test_an_object_at_hand_does_not_run_with_what_a_restart_undoes(store: sync.Store) -> None:
    """Where nothing was kept of it yet: nobody knows any more what it held."""
    state = store.agent("7")
    state.set("x", 1)
    before = state.checkpoint("before")
    later = sync.agents.Loop(state, Worker(2), max_errors=1, **QUICK)
    assert later.run().cycles == 2
    later.restart(before)
    with pytest.raises(InvalidInputError, match="give the loop what makes the agent"):
        later.run()
    assert sync.agents.run(lambda: Worker(1), state, **QUICK).outcome == "done"
    assert kept(state) == 1


def test_a_fork_does_not_obey_what_was_asked_of_where_it_comes_from(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("x", 1)
    loop = sync.agents.Loop(state, Worker(1), **QUICK)
    early = state.checkpoint("early")
    state.set("x", 2)
    loop.restart(early)
    fork = state.fork("copy")
    other = sync.agents.Loop(fork, lambda: Worker(1), **QUICK)
    assert (other.run().restarts, fork.get("x")) == (0, 2)
    assert sync.checkpoints.Retention(store).marked("agent:7"), (
        "and the checkpoint is still held for it"
    )
    other.restart(early)
    assert other.run().restarts == 1
    assert (loop.run().restarts, state.get("x")) == (1, 1)


def test_a_restart_that_is_not_possible_is_named_and_another_takes_its_place(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = store.agent("7")
    sync.agents.run(Worker(2), state, **QUICK)
    loop = sync.agents.Loop(state, Worker(4), **QUICK)
    loop.restart(state.checkpoint("mine"), reason="by hand")
    state.set("x", 1)
    # By one who looks at no marks: `state.prune` refuses.
    monkeypatch.setattr(prune, "marked_entries", lambda _: set())
    prune_state(
        state._handle, state._handle.place()[2], keep=[], dry_run=False, reason=None, deed="end"
    )
    for _ in range(2):
        with pytest.raises(PointNotFoundError, match=r"by hand.*pruned.*another checkpoint"):
            loop.run()
    loop.restart(state.checkpoint("now"))
    assert loop.run().outcome == "done"
    assert kept(state) == 4


@pytest.mark.parametrize("commit", range(3))
def test_retention_between_any_two_commits_of_a_restart_refuses_it(
    place: Place, commit: int
) -> None:
    """What was asked for can be done: its checkpoint is there, or the request is refused."""
    between = Between(place.storage())
    here, there = place.open(storage=between), place.open()
    state = there.agent("7")
    safe, *_ = [state.checkpoint(str(n), type="routine") for n in range(5)]
    state.set("x", 1)
    ran: list[Any] = []
    between.before = lambda: ran.append(sync.checkpoints.Retention(there).run(state))
    between.passing = commit
    try:
        sync.agents.Loop(here.agent("7"), Worker(1), **QUICK).restart(safe, reason="by hand")
        asked = True
    except PrunedError:
        asked = False
    assert asked is not bool(ran)
    assert (safe in state.checkpoints()) is asked
    assert sync.checkpoints.Retention(there).marked(state) == (
        {safe.id: "a restart: by hand"} if asked else {}
    )


@pytest.mark.spec("D43")
def test_a_restart_in_another_process(place: Place) -> None:
    state = place.open().agent("7")
    prepare(state)
    result = sync.agents.run(Stuck, state, restart="process")
    assert (result.outcome, result.restarts) == ("restart", 0)
    assert state.exists(CONVERSATION), "this one only asks for it"
    assert result.checkpoint == state.checkpoints(type="recovery")[0].id
    again = place.open().agent("7")
    result = sync.agents.run(Stuck, again, restart="process")
    assert (result.outcome, result.restarts) == ("done", 1)
    assert not again.exists(CONVERSATION)
    life = sync.agents.AgentState(again).get("execution_state")
    assert (life.starts, life.recoveries) == (2, 0), "the first one ended in order"


@pytest.mark.spec("X55")
def test_all_that_checkpoints_an_agent_in_one_life(place: Place, hands: Hands) -> None:
    """A first checkpoint, routine ones, operations around work, a check, a restart, a restore.

    Catches: a restart that only the loop that was asked knows of; a check that finds all well
    though checkpoints are late or damaged; a recovery that takes a damaged checkpoint.
    """
    state = place.open(clock=hands.clock).agent("7")
    checkpoints = sync.checkpoints.Checkpoints(state)

    @checkpoints.operation("deploy")
    def deploy(number: int) -> None:
        state.set("deployed", number)
        if number == 2 and not failed:
            failed.append(state.get("deployed"))
            raise ConnectionError

    failed: list[Any] = []

    def act(number: int) -> None:
        hands.move(1000)
        deploy(number)

    result = sync.agents.run(Worker(5, act), state, **QUICK)
    assert (result.outcome, result.errors, failed) == ("done", 1, [2])
    types = [one.type for one in state.checkpoints()][::-1]
    assert types[:3] == ["session_start", "pre_operation", "post_operation"]
    assert types.count("pre_operation") == types.count("post_operation") == 6
    assert {"routine", "recovery"} <= set(types)
    ends = [one.metadata["outcome"] for one in state.checkpoints(type="post_operation")][::-1]
    assert ends == ["completed", "reverted", *["completed"] * 4]
    [recovery] = state.checkpoints(type="recovery")
    assert state.at(recovery).get("deployed") == 1, "what failed was undone before"
    report = sync.agents.check_loop(state)
    assert not report.findings
    assert report.restorable == state.checkpoints()[0].id
    state.set("deployed", 99)
    latest = checkpoints.locate(valid=True)
    sync.agents.Loop(state, Worker(5), **QUICK).restart(latest, reason="controlled")
    state = place.reopen(clock=hands.clock).agent("7")  # another process, which was told nothing
    assert (sync.agents.run(Worker(5), state, **QUICK).restarts, state.get("deployed")) == (1, 5)
    state.set("deployed", 99)
    last = state.checkpoints()[0]
    state.set("deployed", 100)
    state.checkpoint("damaged")
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[-1]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    state = place.open(clock=hands.clock).agent("7")
    report = sync.agents.check_loop(state)
    assert (bool(report.findings), report.restorable) == (True, last.id)
    restored = sync.checkpoints.Checkpoints(state).recover()
    assert (restored.restored_from, state.get("deployed")) == (last.id, 5)


def test_stop_ends_it_after_the_step(store: sync.Store) -> None:
    def act(number: int) -> None:
        if number == 2:
            thread = threading.Thread(target=loop.stop)
            thread.start()
            thread.join(60)

    state = store.agent("7")
    loop = sync.agents.Loop(state, Worker(100, act), **QUICK)
    result = loop.run()
    assert (result.outcome, result.cycles) == ("stopped", 2)
    assert kept(state) == 2
    assert made(state)[-1] == SHUTDOWN


def test_one_process_at_a_time(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    state, other = (place.open().agent("7") for _ in range(2))

    def act(number: int) -> None:
        with pytest.raises(LeaseHeldError):
            sync.agents.run(Worker(1), other, lease=0.1, **QUICK)

    assert sync.agents.run(Worker(1, act), state, lease=30, **QUICK).outcome == "done"
    waited = [one.message for one in caplog.records if "waiting until its lease" in one.message]
    assert len(waited) == 1, "who waits says so, once"


@pytest.mark.parametrize("id", ["x" * 256, "/a", "a/b", "%2F"])
def test_every_legal_id_can_run(store: sync.Store, id: str) -> None:
    assert sync.agents.run(Worker(1), store.agent(id), **QUICK).outcome == "done"
    with sync.agents.Agents(store, {"": lambda identity: Worker(2)}) as agents:
        agents.register(id)
        assert agents.run(id, **QUICK).outcome == "done"


def test_a_timeline_and_an_agent_whose_id_looks_like_it_run_side_by_side(store: sync.Store) -> None:
    store.agent("a").set("x", 1)
    inner: list[str] = []

    def act(number: int) -> None:
        inner.append(sync.agents.run(Worker(1), store.agent("a/side"), lease=0.1, **QUICK).outcome)

    sync.agents.run(Worker(1, act), store.agent("a").fork("side"), **QUICK)
    assert inner == ["done"]


def test_the_async_face_with_sync_and_async_agents(place: Place) -> None:
    class Coroutines(Worker):
        async def get_persistent_state(self) -> dict[str, Any]:  # type: ignore[override]
            return super().get_persistent_state()

        async def on_letter(self, mail: holdfast.agents.Mail) -> None:
            self.notes.append(await mail.change.get("plan", 0))
            mail.change.set("plan", mail.content)

        async def step(self) -> StepResult:  # type: ignore[override]
            await asyncio.sleep(0)
            if self.count == 2 and not self.notes[1:]:
                self.notes.append("failed")
                raise ZeroDivisionError
            return super().step()

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("7")
            await holdfast.agents.Mailbox(state).send(5)
            result = await holdfast.agents.run(
                Coroutines(4), state, max_errors=2, **QUICK | {"drift": True}
            )
            assert result.outcome == "done"

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())

    async def other() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("8")
            assert (await holdfast.agents.run(Worker(3), state, **QUICK)).cycles == 3
            loop = holdfast.agents.Loop(state, Worker(10**9), **QUICK)
            task = asyncio.create_task(loop.run())
            await asyncio.sleep(0.05)
            await loop.restart((await state.checkpoints())[0])
            while await state.exists("$loop/restart"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            loop.stop()
            assert (await task).restarts == 1
            task = asyncio.create_task(loop.run())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            [newest] = await state.checkpoints(limit=1)
            assert newest.metadata["trigger"] == "shutdown"

    asyncio.run(other())


@pytest.mark.spec("D25", "D53")
def test_days_of_work_with_all_that_goes_wrong(plain: Place, hands: Hands) -> None:
    """Errors, drift and interrupted processes: the work gets done, and each page once."""

    class Reading(Worker):
        def __init__(self, state: sync.State) -> None:
            super().__init__(0)

        def step(self) -> StepResult:
            hands.move(600)
            happens = trouble.pop(self.count, "")
            if happens.startswith("stuck"):
                trouble[self.count] = happens[:-1] if happens[-1] == "." else ""
                return StepResult("search", "book", self.count)
            self.count += 1
            self.notes.append(self.count)
            if happens:
                raise {"error": OSError, "end": KeyboardInterrupt}[happens]
            return StepResult(f"page {self.count}", "book", self.count, done=self.count == 300)

    trouble = dict.fromkeys(range(50, 300, 60), "error")
    trouble |= dict.fromkeys((75, 200), "end") | {120: "stuck" + 12 * "."}
    state = plain.open(clock=hands.clock).agent("7")
    options: dict[str, Any] = {"backoff": 0, "signals": ()}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            sync.agents.run(Reading, state, **options)
    assert sync.agents.run(Reading, state, **options).outcome == "done"
    assert stored_notes(state) == list(range(1, 301))
    found = made(state)
    assert found.count(("recovery", "error")) == 5
    assert found.count(("recovery", "drift")) >= 1
    assert found.count(ROUTINE) > 60
    report = sync.agents.check_loop(state)
    assert (report.findings, report.restorable) == ((), state.checkpoints(limit=1)[0].id)


def stored_notes(state: sync.State) -> Any:
    return state.get("$agent/attached/notes")


def test_an_async_agent_needs_the_async_face(store: sync.Store) -> None:
    class Coroutines:
        async def step(self) -> None:
            return None

    with pytest.raises(InvalidInputError, match="same name in holdfast"):
        sync.agents.run(Coroutines(), store.agent("7"), max_errors=1, **QUICK)


def test_what_cannot_be_meant_is_refused(store: sync.Store) -> None:
    state = store.agent("7")
    wrong: list[dict[str, Any]] = [
        {"routine": 0},
        {"refresh": -1},
        {"idle": None},
        {"max_errors": 1.5},
        {"on_drift": "panic"},
        {"restart": "elsewhere"},
        {"interval": 5},
        {"drift": "yes"},
        {"settings": LoopSettings(), "routine": 5},
    ]
    for options in wrong:
        with pytest.raises(InvalidInputError):
            sync.agents.Loop(state, Worker(1), **options)
    with pytest.raises(InvalidInputError, match=r"agent with step\(\).*; object has no step"):
        sync.agents.Loop(state, object())
    with pytest.raises(InvalidInputError, match=r"there are fields, drift, .*signals, .*routine"):
        sync.agents.Loop(state, Worker(1), signal=())
    with pytest.raises(InvalidInputError, match="where"):
        sync.agents.run(Worker(1))
    with pytest.raises(InvalidInputError):
        sync.agents.Loop("agent:7", Worker(1))  # type: ignore[arg-type]
    assert state._handle.place()[2] == 0


def test_a_step_says_what_it_did(store: sync.Store) -> None:
    answers: list[Any] = ["search", None, 7]
    worker = Worker(9)
    worker.step = lambda: answers.pop(0)  # type: ignore[method-assign]
    with pytest.raises(InvalidInputError, match="StepResult"):
        sync.agents.run(worker, store.agent("7"), max_errors=1, backoff=0)
    assert sync.agents.Drift(store.agent("7")).status().cycles == 3
