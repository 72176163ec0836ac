"""Deleting a thread removes its content, not only its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from graph_kit import compiled, said, thread

from holdfast import sync
from holdfast.integrations.langgraph import HoldfastSaver

SECRET = "unique words of a thread"
WAYS: dict[str, Callable[[HoldfastSaver], None]] = {
    "delete_thread": lambda saver: saver.delete_thread("gone"),
    "adelete_thread": lambda saver: asyncio.run(saver.adelete_thread("gone")),
    "prune": lambda saver: saver.prune(["gone"], strategy="delete"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_deleted_thread_is_erased(tmp_path: Path, sealed: bool, way: str) -> None:
    (tmp_path / "data").mkdir()
    url = f"sqlite:{tmp_path / 'data' / 'threads.db'}"
    key = f"file:{tmp_path / 'key'}" if sealed else None
    with HoldfastSaver.open(url, key=key) as saver:
        graph = compiled(saver)
        for name in ("gone", "stays"):
            for turn in range(3):
                graph.invoke(said(f"{SECRET} {name} {turn}"), thread(name))
        kept = repr(saver.get_tuple(thread("stays")))
        WAYS[way](saver)
        assert saver.get_tuple(thread("gone")) is None
        assert list(saver.list(thread("gone"))) == []
        assert repr(saver.get_tuple(thread("stays"))) == kept
    content = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())
    assert f"{SECRET} gone".encode() not in content
    assert (f"{SECRET} stays".encode() in content) != sealed
    with sync.open(url, key=key) as store:
        report = store.verify()
        assert report.findings == []
        assert report.erased == 1
    with HoldfastSaver.open(url, key=key) as saver:
        assert repr(saver.get_tuple(thread("stays"))) == kept
        compiled(saver).invoke(said("anew"), thread("gone"))
        found = saver.get_tuple(thread("gone"))
        assert found is not None
        assert SECRET not in repr(found)
        saver.delete_thread("never")
