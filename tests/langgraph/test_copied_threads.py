"""Copying threads: whole or refused, whoever else copies, and whatever the source has been."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from graph_kit import compiled, said, thread

from holdfast import sync
from holdfast.errors import Conflict, DamagedRecordError
from holdfast.integrations.langgraph import HoldfastSaver

KILLED = """
import os, sys
from holdfast.integrations.langgraph import HoldfastSaver, copy as copying

real, calls = copying.put_row, 0

def put_row(*given):
    global calls
    calls += 1
    if calls == 40:
        os.kill(os.getpid(), 9)
    return real(*given)

copying.put_row = put_row
with HoldfastSaver.open(sys.argv[1]) as saver:
    saver.copy_thread("two", "three")
"""


def contents(saver: HoldfastSaver, id: str) -> list[Any]:
    return [
        (found.checkpoint, found.metadata, found.pending_writes) for found in saver.list(thread(id))
    ]


def grown(saver: HoldfastSaver, id: str, turns: int, text: str = "turn") -> None:
    graph = compiled(saver)
    for turn in range(turns):
        graph.invoke(said(f"{text} {turn}"), thread(id), durability="exit")


def test_a_copy_of_a_copy_that_is_killed_is_not_taken_for_whole(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url, durability="normal") as saver:
        grown(saver, "one", 2)
        saver.copy_thread("one", "two")
        grown(saver, "two", 60)
    killed = subprocess.run([sys.executable, "-c", KILLED, url], timeout=120, check=False)
    assert killed.returncode == -9
    with HoldfastSaver.open(url, durability="normal") as saver:
        with pytest.raises(DamagedRecordError, match="cut short"):
            saver.get_tuple(thread("three"))
        with pytest.raises(DamagedRecordError, match="cut short"):
            list(saver.list(thread("three")))
        with pytest.raises(DamagedRecordError, match="cut short"):
            saver.copy_thread("three", "four")
        saver.delete_thread("three")
        saver.copy_thread("two", "three")
        assert contents(saver, "three") == contents(saver, "two")


def test_of_two_copies_to_one_thread_at_once_one_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with (
        sync.open(url, durability="normal") as first,
        sync.open(url, durability="normal") as second,
    ):
        grown(HoldfastSaver(first), "one", 60)
        start = threading.Barrier(2)
        outcomes: list[str] = []

        def copy(store: Any) -> None:
            start.wait()
            try:
                HoldfastSaver(store).copy_thread("one", "two")
                outcomes.append("copied")
            except Conflict:
                outcomes.append("refused")

        copiers = [threading.Thread(target=copy, args=(store,)) for store in (first, second)]
        for copier in copiers:
            copier.start()
        for copier in copiers:
            copier.join()
        assert sorted(outcomes) == ["copied", "refused"]
        saver = HoldfastSaver(first)
        assert contents(saver, "two") == contents(saver, "one")


def test_a_thread_that_was_deleted_can_be_copied_to() -> None:
    with HoldfastSaver.open("memory:") as saver:
        grown(saver, "one", 20)
        saver.copy_thread("one", "two")
        saver.delete_thread("two")
        saver.copy_thread("one", "two")
        assert contents(saver, "two") == contents(saver, "one")
