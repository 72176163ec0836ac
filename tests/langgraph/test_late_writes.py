"""What was written on top of a checkpoint stays, whatever is deleted meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from graph_kit import SECONDS, checkpoint

from holdfast import sync
from holdfast.errors import Conflict
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.put import Draft
from holdfast.integrations.langgraph.write_queue import Job

WHERE: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
Act = Callable[[], Any]


def by(run: str) -> Any:
    return {"source": "loop", "run_id": run}


def write(saver: HoldfastSaver, config: Any, run: str) -> None:
    """A task named after its run writes on a checkpoint."""
    saver.put_writes({**config, "metadata": {"run_id": run}}, [("x", run)], run)


def tasks(saver: HoldfastSaver, config: Any) -> list[str]:
    """Whose writes a checkpoint has, whether it is listed or asked for."""
    found = saver.get_tuple(config)
    assert found is not None
    (one,) = (one for one in saver.list(WHERE) if one.checkpoint["id"] == found.checkpoint["id"])
    assert one.pending_writes == found.pending_writes
    return [task for task, _, _ in found.pending_writes or []]


@pytest.fixture(params=["process", "saver"])
def others(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[HoldfastSaver]]:
    """Two savers that know nothing of each other: as in two processes, or over one store."""
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with sync.open(url) as one, sync.open(url) as two:
        yield [HoldfastSaver(one), HoldfastSaver(two if request.param == "process" else one)]


@contextmanager
def before_commit(
    monkeypatch: pytest.MonkeyPatch, saver: HoldfastSaver, act: Act
) -> Iterator[None]:
    """Let something happen when a saver has put its next change together."""
    thread, real = saver._thread("one"), Draft.commit
    done: list[bool] = []

    def commit(self: Draft, cause: Any, **how: Any) -> Any:
        if self.thread is thread and not done:
            done.append(True)
            act()
        return real(self, cause, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "commit", commit)
        yield
    assert done


@contextmanager
def together(saver: HoldfastSaver) -> Iterator[list[Act]]:
    """What is added is done by threads whose changes wait for the same turn, in this order."""
    turns = saver._thread("one").turns
    go = threading.Event()
    acts: list[Act] = []
    yield acts
    first = Job(lambda _: _wait(go))
    threads = [threading.Thread(target=act) for act in [lambda: turns.run(first), *acts]]
    for waiting, one in enumerate(threads):
        one.start()
        until(lambda waiting=waiting: turns._busy and len(turns._waiting) == waiting)
    go.set()
    for one in threads:
        one.join(SECONDS)


def _wait(go: threading.Event) -> None:
    assert go.wait(SECONDS)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def two_checkpoints(saver: HoldfastSaver) -> tuple[Any, Any, Any]:
    """The first one, its config and that of the second: of the first, run B wrote something."""
    first = checkpoint(x=1)
    one = saver.put(WHERE, first, by("A"), {})
    write(saver, one, "B")
    return first, one, saver.put(one, checkpoint(x=2), by("C"), {})


@pytest.mark.parametrize("runs", ["B", "BC"])
def test_a_write_beside_the_deletion_of_runs_stays(
    monkeypatch: pytest.MonkeyPatch, others: list[HoldfastSaver], runs: str
) -> None:
    """Also if the checkpoint becomes the newest again."""
    ours, theirs = others
    _, one, _ = two_checkpoints(theirs)
    write(theirs, one, "D")
    ours.get_tuple(WHERE)
    with before_commit(monkeypatch, ours, lambda: write(theirs, one, "E")):
        ours.delete_for_runs([*runs])
    assert tasks(ours, one) == tasks(theirs, one) == ["D", "E"]


@pytest.mark.parametrize(("runs", "newest"), [("B", False), ("B", True), ("BC", False)])
def test_a_write_of_the_same_turn_as_the_deletion_of_runs_stays(runs: str, newest: bool) -> None:
    with HoldfastSaver.open("memory:") as saver:
        _, one, two = two_checkpoints(saver)
        config = two if newest else one
        with together(saver) as acts:
            acts += [lambda: write(saver, config, "D"), lambda: saver.delete_for_runs([*runs])]
        assert tasks(saver, config) == ["D"]
        assert "B" not in tasks(saver, one)


def test_a_write_on_a_checkpoint_with_a_newer_id_than_the_newest_is_there_at_once() -> None:
    """Ids are not in the order of putting if a clock went back."""
    with HoldfastSaver.open("memory:") as saver:
        first, second = checkpoint(x=1), checkpoint(x=2)
        two = saver.put(WHERE, second, by("A"), {})
        one = saver.put(two, first, by("A"), {})
        write(saver, two, "B")
        assert tasks(saver, two) == ["B"]
        assert tasks(saver, one) == []
        saver.put(one, checkpoint(x=3), by("A"), {})
        assert tasks(saver, two) == ["B"]


@pytest.mark.parametrize("back", [False, True], ids=["in order", "a clock went back"])
def test_only_the_newest_checkpoint_may_be_put_again(back: bool) -> None:
    with HoldfastSaver.open("memory:") as saver:
        older, newer = checkpoint(x=1), checkpoint(x=2)
        first, second = (newer, older) if back else (older, newer)
        one = saver.put(WHERE, first, by("A"), {})
        saver.put(one, second, by("A"), {})
        saver.put(one, {**second, "channel_values": {"x": 3}}, by("A"), {})
        with pytest.raises(Conflict, match="was put before, and others since"):
            saver.put(WHERE, first, by("A"), {})
        found = [
            (one.checkpoint["id"], one.checkpoint["channel_values"]) for one in saver.list(WHERE)
        ]
        wanted = [(second["id"], {"x": 3}), (first["id"], first["channel_values"])]
        assert found == (wanted[::-1] if back else wanted)
