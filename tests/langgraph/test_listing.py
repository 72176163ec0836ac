"""Checkpoints that were listed: each has its own values, however they are read."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from graph_kit import checkpoint, thread
from langchain_core.messages import HumanMessage, ToolMessage

from holdfast.errors import UnknownTypeError
from holdfast.integrations.langgraph import HoldfastSaver


def test_each_listed_checkpoint_has_its_own_values_however_the_channels_changed() -> None:
    """Values of several are derived from one reading; a change that is no append breaks that."""
    said = [HumanMessage(f"message {n}", id=f"m{n}") for n in range(60)]
    odd = [ToolMessage("t", tool_call_id="c", artifact=(n, {n}), id=f"o{n}") for n in range(30)]
    long = ["a note of some length" * 30]
    steps: list[dict[str, Any]] = [
        {"messages": said[:20], "odd": odd[:18], "notes": long},
        {"messages": said[:21], "odd": odd[:20], "notes": long},
        {"messages": said[:40], "odd": odd[:21], "notes": [*long, "more"]},
        {"messages": said[5:40], "odd": odd[:22], "notes": long},
        {"messages": said[5:41], "odd": odd[:23]},
        {"messages": said[5:50], "notes": long},
        {"messages": said[5:10], "odd": odd},
        {"messages": said[5:60], "odd": odd},
        {"messages": said, "odd": odd[1:]},
    ]
    for opened in ("the one that wrote", "another"):
        with HoldfastSaver.open("memory:") as saver:
            config: Any = thread()
            for values in steps:
                config = saver.put(config, checkpoint(**values), {}, {})
            if opened == "another":
                saver = HoldfastSaver(SimpleNamespace(_core=saver._core))
            for before in (None, *(one.config for one in saver.list(thread()))):
                found = [one.checkpoint for one in saver.list(thread(), before=before)]
                wanted = steps[: len(found)][::-1]
                assert [one["channel_values"] for one in found] == wanted
            for one in saver.list(thread()):
                one.checkpoint["channel_values"].clear()
            newest = saver.get_tuple(thread())
            assert newest is not None
            assert newest.checkpoint["channel_values"] == steps[-1]


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was_also_after_a_value_that_cannot_be_read(on: bool) -> None:
    with HoldfastSaver.open("memory:") as saver:
        saver.put(thread(), checkpoint(a=[1], b=Gone(1)), {}, {})
        saver._threads.clear()
        was = gc.isenabled()
        (gc.enable if on else gc.disable)()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.delitem(globals(), "Gone")
                with pytest.raises(UnknownTypeError):
                    HoldfastSaver(SimpleNamespace(_core=saver._core)).get_tuple(thread())
            assert gc.isenabled() is on
        finally:
            (gc.enable if was else gc.disable)()


@dataclass
class Gone:
    x: int
