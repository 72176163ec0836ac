"""Checkpoints that were listed: each has its own values, however they are read."""

from __future__ import annotations

import copy
import gc
import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from graph_kit import checkpoint, thread
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple

from holdfast.errors import UnknownTypeError
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.thread import Thread


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


def test_a_listed_tuple_is_one_by_all_its_ways_and_reads_its_values_when_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HoldfastSaver.open("memory:") as saver:
        saver.put(thread(), checkpoint(v=2), {"step": 1}, {})
        found = saver.get_tuple(thread())
        assert found is not None
        whole = CheckpointTuple(*found)

        def listed() -> Any:
            return next(saver.list(thread()))

        assert type(listed().checkpoint["channel_values"]) is dict
        assert listed().checkpoint["channel_values"] == {"v": 2}
        assert listed() == whole == listed() == CheckpointTuple(*listed())
        assert not listed() != listed()  # noqa: SIM202
        assert listed()[1] == listed()[-4] == listed()[1:2][0] == whole.checkpoint
        _, second, *_ = listed()
        assert second == whole.checkpoint
        assert listed()._asdict() == whole._asdict()
        assert listed()._replace(metadata={}) == whole._replace(metadata={})
        for same in (copy.copy(listed()), pickle.loads(pickle.dumps(listed()))):  # noqa: S301
            assert (type(same), same) == (CheckpointTuple, whole)
        assert repr(listed()) == repr(whole)
        with pytest.raises(TypeError):  # nothing that stands for values is taken for them
            msgspec.json.encode(listed())
        monkeypatch.setattr(Thread, "values", None)
        assert [one.metadata["step"] for one in saver.list(thread())] == [1]


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was_also_after_a_value_that_cannot_be_read(on: bool) -> None:
    with HoldfastSaver.open("memory:") as saver:
        saver.put(thread(), checkpoint(a=[1], b=Gone(1)), {}, {})
        saver._known.cache_clear()
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
