"""What a delta channel is rebuilt from: the writes on the way to a checkpoint, and their seed.

LangGraph stores such a channel as writes only, with a full value now and then. Whoever loses or
reorders a write here changes the state that a graph resumes with, without any error.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    DeltaChannelHistory,
)
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.integrations.langgraph import HoldfastSaver

SaverTest = Callable[[HoldfastSaver], Coroutine[Any, Any, None]]
WithSaver = Callable[[SaverTest], None]
Writes = Sequence[tuple[str, Any]]

NO_VALUES: Mapping[str, Any] = {}


class Line:
    """A thread that grows by one checkpoint at a time, as a graph with delta channels puts them.

    What a step wrote has a new version in the next checkpoint, and no value unless one is stored.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], namespace: str = "") -> None:
        self.saver = saver
        self.thread = str(uuid4())
        self.namespace = namespace
        self.configs: list[RunnableConfig] = []
        self.next_versions: list[dict[str, int]] = []

    def address(self, at: RunnableConfig | None = None) -> RunnableConfig:
        found = {"thread_id": self.thread, "checkpoint_ns": self.namespace}
        if at is not None:
            found["checkpoint_id"] = at["configurable"]["checkpoint_id"]
        return {"configurable": found}

    async def step(
        self,
        values: Mapping[str, Any] = NO_VALUES,
        writes: Writes = (),
        *,
        after: RunnableConfig | None = None,
    ) -> RunnableConfig:
        """A checkpoint that stores `values`; `writes` are what its only task makes of them."""
        number = len(self.configs)
        parent = self.configs.index(after) if after else number - 1
        inherited = self.next_versions[parent] if number else {}
        versions = inherited | dict.fromkeys(values, number + 1)
        counters = {channel: (1, 1) for channel in versions if channel not in values}
        checkpoint: Checkpoint = {
            "v": 4,
            "id": str(uuid6(clock_seq=number)),
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": dict(values),
            "channel_versions": dict(versions),
            "versions_seen": {},
            "updated_channels": None,
        }
        metadata: CheckpointMetadata = {
            "source": "loop",
            "step": number,
            "parents": {},
            "counters_since_delta_snapshot": counters,
        }
        config = await self.saver.aput(
            self.address(self.configs[parent] if number else None),
            checkpoint,
            metadata,
            {channel: at for channel, at in versions.items() if at == number + 1},
        )
        if writes:
            await self.saver.aput_writes(config, writes, str(uuid4()))
        self.configs.append(config)
        written = {channel for channel, _ in writes}
        self.next_versions.append(versions | dict.fromkeys(written, number + 2))
        return config

    async def history(
        self, *channels: str, at: RunnableConfig | None = None
    ) -> Mapping[str, DeltaChannelHistory]:
        """The same answer, whichever way it is asked for."""
        config = at or self.configs[-1]
        answer = await self.saver.aget_delta_channel_history(config=config, channels=channels)
        assert self.saver.get_delta_channel_history(config=config, channels=channels) == answer
        return answer


def values(history: DeltaChannelHistory) -> list[Any]:
    return [value for _, _, value in history["writes"]]


def rebuilt(history: DeltaChannelHistory) -> list[Any]:
    """What a channel that appends would hold."""
    seed = history.get("seed", [])
    whole = list(seed.value if isinstance(seed, _DeltaSnapshot) else seed)
    for value in values(history):
        whole += value
    return whole


def test_writes_come_oldest_first_from_the_nearest_stored_value(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": _DeltaSnapshot(["old"])}, [("log", ["lost in the next seed"])])
        await line.step({"log": _DeltaSnapshot(["seed"])})
        for word in ("one", "two", "three"):
            await line.step(writes=[("log", [word])])
        await line.step()

        history = (await line.history("log"))["log"]

        assert history["seed"] == _DeltaSnapshot(["seed"])
        assert isinstance(history["seed"], _DeltaSnapshot)
        assert [(channel, value) for _, channel, value in history["writes"]] == [
            ("log", ["one"]),
            ("log", ["two"]),
            ("log", ["three"]),
        ]
        assert rebuilt(history) == ["seed", "one", "two", "three"]

    with_saver(test)


def test_writes_of_the_asked_checkpoint_are_still_to_come(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": _DeltaSnapshot([])}, [("log", [1])])
        middle = await line.step(writes=[("log", [2])])
        await line.step(writes=[("log", [3])])

        assert rebuilt((await line.history("log", at=middle))["log"]) == [1]
        assert rebuilt((await line.history("log"))["log"]) == [1, 2]

    with_saver(test)


def test_writes_beside_the_seed_are_replayed(with_saver: WithSaver) -> None:
    """A stored value is what its checkpoint began with; its own writes came after it."""

    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": ["before"]}, [("log", ["part of the seed"])])
        await line.step({"log": ["seed"]}, [("log", ["beside"])])
        await line.step(writes=[("log", ["after"])])
        await line.step(writes=[("log", ["to come"])])

        assert rebuilt((await line.history("log"))["log"]) == ["seed", "beside", "after"]

    with_saver(test)


@pytest.mark.parametrize("plain", [["a", "b"], [], None, 0, ""], ids=repr)
def test_a_plain_value_is_a_seed_too(with_saver: WithSaver, plain: Any) -> None:
    """Such as a thread has from the time before its channel became a delta channel."""

    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": ["older"]})
        await line.step({"log": plain})
        await line.step(writes=[("log", ["new"])])
        await line.step()

        history = (await line.history("log"))["log"]

        assert "seed" in history
        assert history["seed"] == plain
        assert values(history) == [["new"]]

    with_saver(test)


def test_without_a_stored_value_all_writes_count_and_there_is_no_seed(
    with_saver: WithSaver,
) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        for number in range(4):
            await line.step(writes=[("log", [number])])

        assert (await line.history("log"))["log"].keys() == {"writes"}
        assert rebuilt((await line.history("log"))["log"]) == [0, 1, 2]
        assert await line.history("never written") == {"never written": {"writes": []}}

    with_saver(test)


def test_every_channel_has_its_own_seed(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        stored = {1: {"a": _DeltaSnapshot([])}, 3: {"b": _DeltaSnapshot([])}}
        for number in range(5):
            await line.step(stored.get(number, {}), [("a", [number]), ("b", [number])])

        both = await line.history("a", "b")

        assert rebuilt(both["a"]) == [1, 2, 3]
        assert rebuilt(both["b"]) == [3]
        assert await line.history("b") == {"b": both["b"]}

    with_saver(test)


def test_no_channels_no_answer(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": [1]}, [("log", [2])])
        await line.step()
        assert await line.history() == {}

    with_saver(test)


def test_of_a_checkpoint_that_is_not_there_nothing_is_known(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        missing: RunnableConfig = {
            "configurable": {**line.address()["configurable"], "checkpoint_id": str(uuid6())}
        }
        assert await line.history("log", at=line.address()) == {"log": {"writes": []}}
        await line.step({"log": [1]})
        assert await line.history("log", at=missing) == {"log": {"writes": []}}

    with_saver(test)


def test_without_an_id_the_newest_is_meant(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": [0]}, [("log", [1])])
        await line.step(writes=[("log", [2])])
        assert rebuilt((await line.history("log", at=line.address()))["log"]) == [0, 1]

    with_saver(test)


def test_a_fork_sees_its_own_past_only(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": _DeltaSnapshot([])}, [("log", ["root"])])
        fork_point = await line.step(writes=[("log", ["shared"])])
        await line.step(writes=[("log", ["left"])])
        left = await line.step()
        await saver.aget_tuple(fork_point)  # as one does who goes back in time
        await line.step(writes=[("log", ["right"])], after=fork_point)
        right = await line.step()

        assert rebuilt((await line.history("log", at=left))["log"]) == ["root", "shared", "left"]
        assert rebuilt((await line.history("log", at=right))["log"]) == ["root", "shared", "right"]

    with_saver(test)


def test_tasks_of_one_step_are_replayed_in_the_order_of_their_paths(with_saver: WithSaver) -> None:
    """That is how the running graph applied them; the task's id is a hash and says nothing."""

    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        config = await line.step({"log": _DeltaSnapshot([])})
        first, second, third = sorted(str(uuid4()) for _ in range(3))
        await saver.aput_writes(config, [("log", ["y1"]), ("log", ["y2"])], first, "~b, 2")
        await saver.aput_writes(config, [("log", ["x"])], third, "~a, 1")
        await saver.aput_writes(config, [("other", 0), ("log", ["input"])], second, "")
        await line.step()

        history = (await line.history("log"))["log"]

        assert rebuilt(history) == ["input", "x", "y1", "y2"]
        assert [task for task, _, _ in history["writes"]] == [second, third, first, first]

    with_saver(test)


def test_namespaces_have_their_own_history(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        parent, child = Line(saver), Line(saver, "child:1")
        child.thread = parent.thread
        for line, word in ((parent, "parent"), (child, "child")):
            await line.step({"log": _DeltaSnapshot([])}, [("log", [word])])
            await line.step()
        assert rebuilt((await parent.history("log"))["log"]) == ["parent"]
        assert rebuilt((await child.history("log"))["log"]) == ["child"]

    with_saver(test)


def test_a_copied_thread_can_be_rebuilt(with_saver: WithSaver) -> None:
    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": _DeltaSnapshot(["seed"])}, [("log", [1])])
        await line.step(writes=[("log", [2])])
        await line.step()

        await saver.acopy_thread(line.thread, "copy")
        await saver.adelete_thread(line.thread)
        line.thread = "copy"

        assert rebuilt((await line.history("log", at=line.address()))["log"]) == ["seed", 1, 2]

    with_saver(test)


def test_pruning_keeps_what_the_newest_is_rebuilt_from(with_saver: WithSaver) -> None:
    """Dropping all but the newest would leave its delta channels empty, and nobody would know."""

    async def test(saver: HoldfastSaver) -> None:
        line = Line(saver)
        await line.step({"log": _DeltaSnapshot(["old"])}, [("log", ["old too"])])
        await line.step({"log": _DeltaSnapshot(["seed"])}, [("log", [1])])
        await line.step(writes=[("log", [2])])
        await line.step(writes=[("log", ["to come"])])

        await saver.aprune([line.thread], strategy="keep_latest")

        assert rebuilt((await line.history("log"))["log"]) == ["seed", 1, 2]
        newest = await saver.aget_tuple(line.address())
        assert newest is not None
        assert newest.pending_writes is not None
        assert [value for _, _, value in newest.pending_writes] == [["to come"]]

    with_saver(test)
