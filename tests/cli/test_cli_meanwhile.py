"""What a command shows is of one moment, whoever writes while it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cli_kit import Cli

from holdfast import Lookup, sync
from holdfast.store.read.reader import Reader


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Do something whenever a reader has looked what the newest state is, after the first looks."""

    @contextmanager
    def doing(change: Callable[[], Any], first: int = 0) -> Iterator[list[int]]:
        looks: list[int] = []
        now, busy = Reader.now, False

        def look(self: Reader) -> Any:
            nonlocal busy
            found = now(self)
            if not busy and self.scope.kind == "agent":  # what is redacted is looked up, too
                busy = True
                looks.append(1)
                if len(looks) > first:
                    change()
                busy = False
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Reader, "now", look)
            yield looks

    return doing


def test_show_prints_a_state_that_was(cli: Cli, meanwhile: Any) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        state.set("x", 0)

        def swap() -> None:
            old = state.keys()[0]
            with state.change() as change:
                change.delete(old)
                change.set("y" if old == "x" else "x", state._handle.place()[2])

        with meanwhile(swap) as looks:
            shown = cli("show agent:7 --json").json
        assert len(looks) > 1
        assert shown["state"] == state.at(shown["entry"]).get_many(["x", "y"])
        assert len(shown["state"]) == 1


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize(
    "command", ["show agent:7", "query agent:7 notes is=here", "key fetch agent:7 note"]
)
def test_what_becomes_sensitive_meanwhile_is_not_shown(
    cli: Cli, meanwhile: Any, command: str, first: int
) -> None:
    before, after = {"is": "here", "text": "harmless"}, {"is": "here", "text": "hush"}
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        state.declare(Lookup("notes", prefix="note", terms={"is": "is"}))
        state.set("note", b"harmless" if "fetch" in command else before)
        with meanwhile(
            lambda: state.set("note", b"hush" if "fetch" in command else after, class_="sensitive"),
            first,
        ) as looks:
            shown = cli(command)
        assert looks
        assert "hush" not in shown.out
        assert ("harmless" in shown.out) is (shown.code == 0)
