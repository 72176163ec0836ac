"""Records are given to a cache behind whoever had them: in order, bounded, and none that went."""

from __future__ import annotations

import os
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import InvalidInputError
from holdfast.storage import redis as cache
from holdfast.storage.redis import Filler, Rows


class Slow:
    """Writes when it is let."""

    def __init__(self) -> None:
        self.written: list[Rows] = []
        self.begun, self.let = threading.Event(), threading.Event()

    def __call__(self, rows: Rows) -> None:
        self.begun.set()
        assert self.let.wait(60)
        self.written.append(rows)


def test_what_waits_goes_together_and_is_there_when_it_is_closed() -> None:
    slow = Slow()
    filler = Filler(slow)
    filler.add([(b"a", b"1")])
    assert slow.begun.wait(60)
    filler.add([(b"b", b"1"), (b"c", b"1")])
    filler.add([(b"b", b"2")])
    slow.let.set()
    filler.close()
    assert slow.written == [[(b"a", b"1")], [(b"b", b"2"), (b"c", b"1")]]
    assert filler.add([(b"d", b"1")]) == 1
    filler.close()


def test_what_is_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST", 10)
    slow = Slow()
    filler = Filler(slow)
    filler.add([(b"a", b"1")])
    assert slow.begun.wait(60)
    assert filler.add([(b"b", b"12345678"), (b"c", b"123"), (b"d", b"12")]) == 1
    slow.let.set()
    for _ in range(60_000):
        if filler.add([(b"e", b"1234567890")]) == 0:  # there is room again
            break
        time.sleep(0.001)
    filler.close()
    assert [row for rows in slow.written for row in rows] == [
        (b"a", b"1"),
        (b"b", b"12345678"),
        (b"d", b"12"),
        (b"e", b"1234567890"),
    ]


def test_what_went_is_not_written_afterwards() -> None:
    slow = Slow()
    filler = Filler(slow)
    filler.add([(b"a", b"1")])
    assert slow.begun.wait(60)
    filler.add([(b"b", b"1"), (b"c", b"1")])
    done = threading.Event()

    def forget() -> None:
        filler.forget([b"a", b"b"])
        assert slow.written  # what was on its way has arrived: it can be removed now
        done.set()

    thread = threading.Thread(target=forget)
    thread.start()
    assert not done.wait(0.05)
    slow.let.set()
    thread.join(60)
    assert done.is_set()
    filler.close()
    assert slow.written == [[(b"a", b"1")], [(b"c", b"1")]]


@pytest.mark.usefixtures("cached_files")
def test_a_forked_child_neither_waits_nor_fails(tmp_path: Path, redis: Any) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", cache=redis.url()) as store:
        store.agent("a").set("plan", {"text": "a sentence that repeats, " * 30})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the cache has a thread
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
