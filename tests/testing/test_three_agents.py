"""The three agents of `examples/agents`: they work together, and are killed while they do."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents.colleague import work, work_together
from agents.git_assistant import GitAssistant, Repository
from agents.greeter import GreeterAgent
from agents.haiku import HaikuAgent
from store_kit import Place

from holdfast import sync
from holdfast.agents import StepResult, Task
from holdfast.errors import AgentValidationError, InvalidInputError, MachineDataError
from holdfast.testing import crash

VISIT = "visit-1"
QUICK: dict[str, Any] = {"lease": 0.1, "idle": 0.01, "backoff": 0.01}
"""After a kill, the lease of the dead has to run out."""
NAMES = ("greeter", "poet", "git")


def prepare(store: sync.Store, world: Path) -> None:
    """A repository, and a visitor's letter."""
    repository = Repository(world / "repository")
    repository.path.mkdir()
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.git("commit", "--quiet", "--allow-empty", "--message=Begin")
    sync.agents.Mailbox(store.agent("greeter")).send({"name": "Ann", "topic": "rain"}, id=VISIT)


def makers(world: Path) -> dict[str, Callable[[sync.Store], Any]]:
    git = partial(GitAssistant, path=world / "repository")
    return {"greeter": GreeterAgent, "poet": HaikuAgent, "git": git}


def one(store: sync.Store, world: Path, name: str) -> None:
    """Let one of them do what it can."""
    work(store, makers(world)[name], **QUICK)


def team(store: sync.Store, world: Path) -> None:
    work_together(store, *makers(world).values(), **QUICK)


def see(store: sync.Store, world: Path) -> dict[str, Any]:
    """What they know and have done, without times, hashes and numbers of attempts."""
    repository = Repository(world / "repository")
    refs = "--format=%(refname:short) %(subject)"
    found: dict[str, Any] = {
        "branches": repository.git("for-each-ref", refs),
        "commits": repository.git("rev-list", "--all", "--count"),
    }
    for name in NAMES:
        state = store.agent(name)
        typed = sync.agents.AgentState(state)
        tasks = typed.get("tasks").tasks()
        said = [(one.role, one.name, one.content) for one in typed.get("conversation")]
        found[f"{name} conversation"] = said
        found[f"{name} tasks"] = [(one.id, one.status, one.progress, one.data) for one in tasks]
        found[f"{name} unfinished"] = [str(one) for one in sync.agents.Effects(state).unfinished()]
        found[f"{name} wrong"] = typed.problems()
        handed = sync.agents.Handovers(store).history(state)
        found[f"{name} handovers"] = [(str(one.taker), one.status, one.messages) for one in handed]
    now = HaikuAgent(store).machine.now()
    found["machine"] = now and (now.state, now.data, now.pending)
    return found


@pytest.fixture
def world(tmp_path: Path) -> Path:
    made = tmp_path / "world"
    made.mkdir()
    return made


@pytest.fixture
def ready(plain: Place, world: Path) -> sync.Store:
    store = plain.open()
    prepare(store, world)
    return store


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Errors are what some of these tests are about."""
    caplog.set_level(logging.CRITICAL, "holdfast.loop")


def visits(store: sync.Store) -> dict[str, Any]:
    greeter = GreeterAgent(store)
    greeter.restore_state()
    return greeter.visits


@pytest.mark.spec("M89", "D6")
def test_they_work_together(place: Place, world: Path) -> None:
    """The example of agents in a loop that checkpoints them: examples/agents."""
    ready = place.open()
    prepare(ready, world)
    team(ready, world)
    answer = "It is on the branch poem/visit-1."
    assert visits(ready)[VISIT].answer == answer
    repository = Repository(world / "repository")
    poem = repository.git("show", f"poem/{VISIT}:{VISIT}.txt")
    assert poem.splitlines()[0] == "rain in the morning"
    assert repository.look() == {"branch": "main", "changed": [], "log": ["Begin"]}
    greeter = sync.agents.AgentState(ready.agent("greeter"))
    assert [one.name for one in greeter.get("conversation")] == [
        *("Ann", "greeter", "poet", "git", "greeter")
    ], "the whole conversation came back"
    assert greeter.item("tasks", VISIT).status == "completed"
    assert HaikuAgent(ready).machine.now().state == "awaiting_topic"
    for name in NAMES:  # what the loop did for each of them by itself
        *_, last, first = [one.type for one in ready.agent(name).checkpoints()]
        assert (first, last) == ("session_start", "automatic")
        assert not sync.agents.check_loop(ready.agent(name)).findings
    assert ready.verify().findings == []
    assert work(ready, GreeterAgent, **QUICK) == 0, "nothing is left to do"


# M90, M91, M92: each persists, validates, recovers, and goes on after a kill at any commit


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("greeter", marks=pytest.mark.spec("M92")),
        pytest.param("poet", marks=pytest.mark.spec("M91")),
        pytest.param("git", marks=pytest.mark.spec("M90")),
    ],
)
def test_each_is_killed_around_its_commits_and_goes_on(name: str) -> None:
    def before(store: sync.Store, world: Path) -> None:
        prepare(store, world)
        for other in NAMES[: NAMES.index(name)]:
            one(store, world, other)

    def run(store: sync.Store, world: Path) -> None:
        one(store, world, name)

    report = crash(run, prepare=before, see=see, moments=("after",))
    assert report.ok, str(report)
    assert report.kills >= 10
    report = crash(run, prepare=before, see=see, moments=("before",), every=3)
    assert report.ok, str(report)


def test_all_of_them_are_killed_in_the_middle(tmp_path: Path) -> None:
    key = f"file:{tmp_path / 'key'}"
    report = crash(team, prepare=prepare, see=see, every=19, key=key)
    assert report.ok, str(report)


@pytest.mark.slow
def test_all_of_them_are_killed_around_every_commit() -> None:
    report = crash(team, prepare=prepare, see=see)
    assert report.ok, str(report)


# what each of them minds


def test_several_visitors_are_served_one_after_the_other(ready: sync.Store, world: Path) -> None:
    for number, topic in enumerate(("snow", "?!", "wind"), 2):
        letter = {"name": "Bob", "topic": topic}
        sync.agents.Mailbox(ready.agent("greeter")).send(letter, id=f"visit-{number}")
    team(ready, world)
    assert [visit.answer[:5] for visit in visits(ready).values()] == [
        *("It is", "It is", "Alas:", "It is")
    ]


@pytest.mark.parametrize("topic", ["", "?!", "x" * 99], ids=["empty", "signs", "long"])
def test_a_wish_that_cannot_be_granted_is_refused_with_its_reason(
    ready: sync.Store, world: Path, topic: str
) -> None:
    team(ready, world)
    sync.agents.Mailbox(ready.agent("greeter")).send({"name": "Bob", "topic": topic}, id="visit-2")
    team(ready, world)
    assert visits(ready)["visit-2"].answer == "Alas: that is no topic for a haiku."
    task = sync.agents.AgentState(ready.agent("greeter")).item("tasks", "visit-2")
    assert task.status == "failed"


def test_what_the_git_assistant_refuses_goes_back_to_who_wanted_it(
    ready: sync.Store, world: Path
) -> None:
    id = "visit 2, with blanks"
    sync.agents.Mailbox(ready.agent("greeter")).send({"name": "Bob", "topic": "snow"}, id=id)
    team(ready, world)
    assert visits(ready)[id].answer == "Alas: its id is no name for a branch."
    assert visits(ready)[VISIT].answer.startswith("It is on the branch")


@pytest.mark.spec("M11", "M88")
def test_a_poem_that_is_none_is_refused_and_the_next_attempt_is_not(
    ready: sync.Store, world: Path
) -> None:
    """A model answers what it likes; what does not fit never becomes state."""
    one(ready, world, "greeter")
    with pytest.raises(MachineDataError, match="three lines, not 1"):
        work(ready, partial(HaikuAgent, model=lambda topic: topic), max_errors=2, **QUICK)
    machine = HaikuAgent(ready).machine
    now = machine.now()
    assert (now.state, now.pending) == ("generating", None), "it is where it was"
    failed = machine.transitions(success=False)
    assert [(step.trigger, step.from_state) for step in failed] == [("done", "generating")] * 2
    safe = ready.agent("poet").checkpoint("before the poem")
    one(ready, world, "poet")
    assert machine.now().state == "complete"
    back = machine.roll_back(safe)
    assert (back.state, machine.now().state) == ("generating", "generating")
    machine.fire("done")
    team(ready, world)
    assert visits(ready)[VISIT].answer


def test_an_interrupted_poem_is_written_by_the_next_run(ready: sync.Store, world: Path) -> None:
    """Ctrl-C in the middle of a transition: that run ended with an error, and left it open."""

    def interrupted(topic: str) -> str:
        raise KeyboardInterrupt

    one(ready, world, "greeter")
    with pytest.raises(KeyboardInterrupt):
        work(ready, partial(HaikuAgent, model=interrupted), **QUICK)
    assert HaikuAgent(ready).machine.now().pending is not None
    team(ready, world)
    assert visits(ready)[VISIT].answer


def test_a_commit_that_was_made_and_not_noted_is_found_in_the_repository(
    ready: sync.Store, world: Path
) -> None:
    class Interrupted(GitAssistant):
        def step(self) -> StepResult:
            commit = self.repository.commit

            def made(*arguments: Any) -> str:
                commit(*arguments)
                raise KeyboardInterrupt

            self.repository.commit = made  # type: ignore[method-assign]
            return super().step()

    one(ready, world, "greeter")
    one(ready, world, "poet")
    with pytest.raises(KeyboardInterrupt):
        work(ready, partial(Interrupted, path=world / "repository"), **QUICK)
    [effect] = sync.agents.Effects(ready.agent("git")).unfinished()
    assert (effect.name, effect.status) == ("commit", "unknown")
    made = Repository(world / "repository").made(VISIT)
    team(ready, world)
    git = GitAssistant(ready, world / "repository")
    git.restore_state()
    assert git.commits == {VISIT: made}
    assert git.repository.git("rev-list", "--all", "--count") == "2"


def test_a_commit_is_found_by_its_whole_key(ready: sync.Store, world: Path) -> None:
    """A task whose id is the beginning of another one's is published, too."""
    repository = Repository(world / "repository")
    handovers, ann = sync.agents.Handovers(ready), ready.agent("ann")
    for id in ("t10", "t1"):
        task = Task(id=id, data={"poem": f"a poem of {id}"})
        sync.agents.AgentState(ann).put("tasks", id, task)
        handovers.offer(ann, "agent:git", id, reason="publish it")
        one(ready, world, "git")
        for back in handovers.offers(ann):
            handovers.accept(ann, back.id)
        assert repository.git("show", f"poem/{id}:{id}.txt") == f"a poem of {id}"
        assert repository.made(id) == repository.git("rev-parse", f"poem/{id}")
    assert [repository.made(key) for key in ("", "t", "10")] == ["", "", ""]


def test_an_agent_that_lost_its_repository_does_not_go_on(ready: sync.Store, world: Path) -> None:
    team(ready, world)
    shutil.rmtree(world / "repository" / ".git")
    Repository(world / "repository").git("init", "--quiet")
    with pytest.raises(AgentValidationError, match="not in the repository"):
        GitAssistant(ready, world / "repository").start()


def test_a_spoiled_agent_is_put_back_and_its_handovers_stay(ready: sync.Store, world: Path) -> None:
    """Somebody wrote nonsense: the last checkpoint in which the agent is valid is taken."""
    store = ready
    team(store, world)
    greeter = GreeterAgent(store)
    greeter.restore_state()
    greeter.visits[VISIT].name = ""
    with pytest.raises(AgentValidationError, match=r"visits.visit-1: has no name"):
        greeter.persist_state()

    class Careless(GreeterAgent):
        def validate_state(self) -> list[str]:
            return []

    careless = Careless(store)
    careless.restore_state()
    careless.visits[VISIT].name = ""
    careless.persist_state()
    store.agent("greeter").checkpoint("spoiled, and nobody knows")
    one(store, world, "greeter")
    assert visits(store)[VISIT].name == "Ann"
    [report] = sync.recovery.Recovery(store).reports("agent:greeter")
    assert report.success
    assert sync.agents.AgentState(store.agent("greeter")).item("tasks", VISIT).status == "completed"
    assert str(sync.agents.Handovers(store).owner("agent:greeter", VISIT)) == "agent:greeter"


def test_a_letter_that_makes_no_sense_is_set_aside(ready: sync.Store, world: Path) -> None:
    mailbox = sync.agents.Mailbox(ready.agent("greeter"))
    mailbox.send({"name": "", "topic": "fog"}, id="nobody")
    with pytest.raises((ValueError, InvalidInputError)):
        work(ready, GreeterAgent, max_errors=1, **QUICK)
    team(ready, world)
    assert [letter.id for letter in mailbox.set_aside()] == ["nobody"]
    assert list(visits(ready)) == [VISIT]


@pytest.mark.parametrize("point", range(5))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("others", [False, True])
def test_each_is_started_again_from_a_checkpoint_and_goes_on(
    ready: sync.Store, world: Path, name: str, point: int, others: bool
) -> None:
    """What it does again ends as it would have, also if the others went on meanwhile: neither what
    it said nor what it offered then is taken for done, and nothing is said twice."""
    for other in NAMES[: NAMES.index(name)]:
        one(ready, world, other)
    state = ready.agent(name)
    state.set("here", True)
    safe = [state.checkpoint("0")]
    agent = makers(world)[name](ready)
    agent.start()
    for letter in sync.agents.Mailbox(state).waiting():
        sync.agents.Mailbox(state).process(agent.on_letter)
        agent.persist_state()
        safe.append(state.checkpoint(letter.id))
    while not agent.step().done:
        agent.persist_state()
        safe.append(state.checkpoint(str(len(safe))))
    agent.stop()
    if others:
        for other in NAMES[NAMES.index(name) + 1 :]:
            one(ready, world, other)
    again = sync.agents.Loop(state, lambda _: makers(world)[name](ready), signals=(), **QUICK)
    again.restart(safe[min(point, len(safe) - 1)], reason="a wrong turn")
    one(ready, world, name)
    team(ready, world)
    greeter = sync.agents.AgentState(ready.agent("greeter"))
    task = greeter.item("tasks", VISIT)
    assert (task.status, task.result) == ("completed", f"It is on the branch poem/{VISIT}.")
    assert visits(ready)[VISIT].answer == task.result
    said = [message.name for message in greeter.get("conversation")]
    assert said == ["Ann", "greeter", "poet", "git", "greeter"]
    assert Repository(world / "repository").git("rev-list", "--all", "--count") == "2"
