"""What tasks write before their checkpoint: how safe it is, and for what it waits."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from graph_kit import checkpoint, thread
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import START, MessagesState, StateGraph

from holdfast.errors import InvalidInputError
from holdfast.integrations.langgraph import HoldfastSaver, write_queue
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite.engine import SqliteStorage

NORMAL, FULL = 1, 2


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The level at which each commit is synced."""
    found: list[int] = []
    commit = SqliteStorage.commit

    def noted(self: SqliteStorage, batch: Batch) -> None:
        found.append(self._writer.pragma("synchronous"))
        commit(self, batch)

    monkeypatch.setattr(SqliteStorage, "commit", noted)
    return found


@pytest.mark.parametrize(("pending", "level"), [("full", FULL), ("normal", NORMAL)])
def test_pending_writes_are_synced_at_their_level_and_all_else_at_that_of_the_store(
    tmp_path: Path, levels: list[int], pending: str, level: int
) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url, pending=pending) as saver:
        config = saver.put(thread(), checkpoint(x=1), {}, {})
        levels.clear()
        saver.put_writes(config, [("x", 2)], "task")
        saver.put_writes(config, [(INTERRUPT, "?")], "other")
        config = saver.put(config, checkpoint(x=2), {}, {})
        saver.put_writes(config, [("x", 3)], "task")
        assert levels == [level, FULL, FULL, level]
        (tmp_path / "killed").mkdir()  # all that a process leaves behind that is killed now
        for file in tmp_path.glob("threads.db*"):
            shutil.copy(file, tmp_path / "killed")
    with HoldfastSaver.open(f"sqlite:{tmp_path / 'killed' / 'threads.db'}") as saver:
        found = saver.get_tuple(thread())
        assert found is not None
        assert found.pending_writes == [("task", "x", 3)]


def test_a_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="pending is 'full' or 'normal'"):
        HoldfastSaver.open("memory:", pending="none").__enter__()


@pytest.mark.parametrize("pending", ["full", "normal"])
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_writes_wait_only_for_a_checkpoint_that_follows(
    monkeypatch: pytest.MonkeyPatch, pending: str, durability: Any
) -> None:
    """They would wait for an hour if nothing followed, or if what follows did not wake them."""
    monkeypatch.setattr(write_queue, "GATHER", 3600)
    done = threading.Event()

    def work() -> None:
        with HoldfastSaver.open("memory:", pending=pending) as saver:
            config = saver.put(thread("alone"), checkpoint(x=1), {}, {})
            saver.put_writes(config, [("x", 2)], "task")
            builder = StateGraph(MessagesState)
            builder.add_node("answer", lambda _: {"messages": [("ai", "yes")]})
            builder.add_edge(START, "answer")
            graph = builder.compile(checkpointer=saver)
            graph.invoke({"messages": [("human", "?")]}, thread(), durability=durability)
            graph.update_state(thread(), {"messages": [("human", "!")]})
            done.set()

    threading.Thread(target=work, daemon=True).start()
    assert done.wait(60)
