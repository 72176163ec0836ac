"""A second process that carries out operations on the same store, told by lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast import sync
from holdfast.errors import HoldfastError
from holdfast.store.journal import timeline
from prove.common import child_env, python
from prove.ops import carry_out, dump_store


class Peer:
    """This side of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            python(str(Path(__file__))),
            env=child_env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *message: Any) -> Any:
        """Send a message, wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise AssertionError(f"the second process: {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)


def serve() -> None:
    """The other side: open, op, dump, close."""
    store: Any = None
    timeline.DELTA_EVERY = 7
    for line in sys.stdin:
        kind, *rest = json.loads(line)
        value = None
        try:
            if kind == "open":
                store = sync.open(rest[0], create=False)
            elif kind == "close":
                store.close()
            elif kind == "op":
                carry_out(store, tuple(rest[0]))
            else:
                value = dump_store(store)
            answer: dict[str, Any] = {"value": value}
        except HoldfastError as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
