"""A cache in Redis: where it may stand, and what a forked process does with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import InvalidInputError


@pytest.mark.usefixtures("cached_files")
def test_a_forked_child_neither_waits_nor_fails(tmp_path: Path, redis: Any) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", cache=redis.url()) as store:
        store.agent("a").set("plan", {"text": "a sentence that repeats, " * 30})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.agent("a").get("plan")


@pytest.mark.parametrize("url", ["sqlite:a.db", "memory:"])
def test_in_front_of_an_embedded_engine_it_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="makes reads slower; leave cache= out"):
        sync.open(url, cache="redis://localhost")
    assert [*tmp_path.iterdir()] == []
