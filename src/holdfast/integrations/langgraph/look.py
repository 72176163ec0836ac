"""Threads for people and for programs that have none of a graph's classes: all in plain form."""

from __future__ import annotations

from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import TASKS

from holdfast.errors import CheckpointNotFoundError, InvalidInputError, ScopeNotFoundError
from holdfast.integrations.langgraph.messages import long_list, number_of, numbers, whole
from holdfast.integrations.langgraph.runs import answered, node_of, nodes_left
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.thread import Loaded, Past, Thread
from holdfast.integrations.langgraph.thread_records import Record, Space, merged
from holdfast.integrations.langgraph.types import MESSAGE, Types
from holdfast.seal.codec import Typed
from holdfast.store.inner import core_of


class Seen(NamedTuple):
    """A checkpoint in plain form: objects are `Typed`, messages whole."""

    record: Record
    channels: dict[str, Any]
    pending: list[tuple[str, str, str, Any]]
    """(task, node, channel, value)"""
    next: list[str]
    """Nodes that run next."""
    may_have_run: list[str]
    """Those of them, of the newest one, that stored nothing: they ran, or not."""

    @property
    def messages(self) -> dict[str, list[Typed]]:
        """Channels that hold messages and nothing else."""
        return {
            name: value
            for name, value in self.channels.items()
            if type(value) is list and value and all(map(is_message, value))
        }


class Looking:
    """Looks at the threads of a store."""

    def __init__(self, store: Any) -> None:
        self._core = core_of(store)
        self._saver = HoldfastSaver(store)

    def threads(self, prefix: str = "") -> list[str]:
        """Ids of threads, in order."""
        return [name for name in self._saver.thread_ids() if name.startswith(prefix)]

    def thread(self, id: str) -> Thread:
        """A thread that is there."""
        found = Thread(self._core, id, Types())
        if not found.namespaces():
            raise ScopeNotFoundError(
                f"there is no thread {id!r} in this store; `holdfast langgraph threads` shows them"
            )
        return found

    def summary(self, id: str) -> tuple[list[str], int, Record | None]:
        """What there is of a thread: namespaces, how many checkpoints, and the newest."""
        thread = Thread(self._core, id, Types())
        spaces = thread.namespaces()
        heads = [loaded.record for space in spaces if (loaded := thread.newest(space))]
        newest = max(heads, key=lambda record: record.id, default=None)
        return [space.ns for space in spaces], sum(len(thread.log(s)[0]) for s in spaces), newest

    def past(self, thread: Thread, ns: str) -> Past:
        """The checkpoints of a namespace."""
        found = Past(thread, Space(ns))
        if not found:
            known = ", ".join(repr(space.ns) for space in thread.namespaces())
            raise CheckpointNotFoundError(
                f"thread {thread.id!r} has no namespace {ns!r}; it has {known}"
            )
        return found

    def find(self, past: Past, id: str | None) -> Loaded:
        """The newest checkpoint, or the one whose id is or begins so."""
        if id is None:
            return past.at(-1)
        exact = past.get(id)
        if exact is not None:
            return exact
        close = [loaded for loaded in past if loaded.record.id.startswith(id)]
        if len(close) > 1:
            raise InvalidInputError(
                f"{len(close)} checkpoints of thread {past.thread.id!r} begin with {id!r}; give "
                "more of the id"
            )
        if not close:
            raise CheckpointNotFoundError(
                f"thread {past.thread.id!r} has no checkpoint {id!r}; `holdfast langgraph show "
                "--history` lists them"
            )
        return close[0]

    def see(self, past: Past, loaded: Loaded) -> Seen:
        """A checkpoint with all that it holds."""
        thread, space, record = past.thread, past.space, loaded.record
        paths = {call.task: call.path for call in loaded.calls}
        writes = merged(loaded.calls, record.id)
        held = record.values | thread.long_values(space, record, thread.at(loaded.entry))
        plain = {name: long_list(value) for name, value in held.items()}
        channels, values = _whole(thread, loaded, [plain, [value for _, _, value in writes]])
        pending = [
            (task, node_of(paths[task]), channel, value)
            for (task, channel, _), value in zip(writes, values, strict=True)
        ]
        tasks = channels.get(TASKS)
        sent = [
            str(one.value["node"])
            for one in (tasks if type(tasks) is list else [])
            if type(one) is Typed and one.name == "Send"
        ]
        if not loaded.newest:  # what ran after an older one is known: nothing is open
            return Seen(record, channels, pending, nodes_left(record, sent, set()), [])
        calls = [call for call in loaded.calls if call.checkpoint == record.id]
        stored = {
            call.path
            for call in calls
            if any(channel not in WRITES_IDX_MAP for _, channel, _ in call.items)
        }
        coming, unknown = (nodes_left(record, sent, done) for done in (stored, answered(calls)))
        return Seen(record, channels, pending, coming, unknown)


def is_message(plain: Any) -> bool:
    """Whether a plain value is a message."""
    if type(plain) is not Typed or type(plain.value) is not dict:
        return False
    return "content" in plain.value and plain.name.removesuffix("Chunk").endswith("Message")


def role_of(message: Typed) -> str:
    """human, ai, tool, system … or what a chat message says it is."""
    name = message.name.rpartition(":")[2].rpartition(".")[2]
    said = message.value.get("role")
    return str(said) if said else name.removesuffix("Chunk").removesuffix("Message").lower()


def _whole(thread: Thread, loaded: Loaded, plain: Any) -> Any:
    """The same value with messages in the place of what stands for them."""
    wanted: set[int] = set()
    numbers(plain, wanted)
    parts = thread.read_parts(wanted, thread.holding(loaded.entry))

    def fill(part: Any) -> Any:
        kind = type(part)
        if kind is list:
            return [fill(item) for item in part]
        if kind is dict:
            return {key: fill(item) for key, item in part.items()}
        if kind is not Typed:
            return part
        if part.name == MESSAGE:
            return whole(part.value, parts[number_of(part.value)])
        return Typed(part.name, part.version, fill(part.value))

    return fill(plain)
