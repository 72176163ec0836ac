"""What the tests of stores on servers share."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from store_kit import SOURCE

from holdfast import sync
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.storage.contract import Batch

CREATE = """
import sys
from holdfast import sync
url, number = sys.argv[1:]
sys.stdin.readline()
with sync.open(url) as store:
    store.agent("a").set("k" + number, number)
    print(store.identity())
"""
APPEND = """
import sys
from holdfast import sync
url, number = sys.argv[1:]
sys.stdin.readline()
with sync.open(url) as store:
    for step in range(12):
        store.agent("a").append("log", [number, step])
"""


def batch_of(number: int) -> Batch:
    key = number.to_bytes(4, "big")
    return Batch(puts=[(key, b"v"), (key + b"2", b"w")], absent=[key])


def is_there(storage: Any, number: int) -> bool:
    """Whether a batch is applied; half of one is never."""
    key = number.to_bytes(4, "big")
    found = {value is not None for value in storage.get([key, key + b"2"])}
    assert len(found) == 1
    return found.pop()


def outcome(commit: Callable[[], None]) -> type[HoldfastError] | None:
    try:
        commit()
    except HoldfastError as error:
        return type(error)
    return None


def together(program: str, url: str, count: int) -> list[str]:
    """Run a program in several processes that begin at one moment; what each said."""
    command = [sys.executable, "-c", program, url]
    paths = [SOURCE, *(p for p in sys.path if p.endswith("site-packages"))]
    running = [
        subprocess.Popen(
            [*command, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(paths)},
        )
        for number in range(count)
    ]
    time.sleep(1)
    said = []
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in running:
        out, _ = one.communicate(timeout=100)
        assert one.returncode == 0
        said.append(out)
    return said


def write_while(url: str, kill: Callable[[], None], pauses: Sequence[float]) -> None:
    """Append to a list, and kill something after each pause; then compare what was said of each
    append with what is there."""
    sure: list[int] = []
    perhaps: list[int] = []
    over = threading.Event()

    def write() -> None:
        with sync.open(url) as store:
            state = store.agent("a")
            state.set("log", [])
            for number in itertools.count():
                if over.is_set():
                    return
                try:
                    state.append("log", number)
                    sure.append(number)
                except OutcomeUnknown:
                    perhaps.append(number)
                except Unavailable:
                    time.sleep(0.01)

    def some_more() -> None:
        wanted = len(sure) + 5
        while len(sure) < wanted:
            assert writer.is_alive()  # an error of another kind has ended it
            time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    for pause in pauses:
        some_more()
        time.sleep(pause)
        kill()
    some_more()
    over.set()
    writer.join(60)
    assert not writer.is_alive()
    with sync.open(url) as store:
        found = store.agent("a").get("log")
        assert found == sorted(set(found))
        assert set(sure) <= set(found) <= {*sure, *perhaps}
        assert store.verify().ok
