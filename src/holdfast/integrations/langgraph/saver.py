"""`HoldfastSaver`: LangGraph's checkpoints in a Holdfast store."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import lru_cache, partial, wraps
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR

from holdfast.errors import InvalidInputError, ScopeNotFoundError
from holdfast.integrations.langgraph import put as putting
from holdfast.integrations.langgraph.copy import copy
from holdfast.integrations.langgraph.history import (
    config_of,
    delta_history,
    listed,
    open_nodes,
    tuple_listed,
    tuple_of,
)
from holdfast.integrations.langgraph.runs import Sight, remember, run_of
from holdfast.integrations.langgraph.thread import Loaded, Past, Thread
from holdfast.integrations.langgraph.thread_records import (
    COUNTERS,
    SCOPES,
    Space,
    is_thread,
    run_in,
    thread_of,
)
from holdfast.integrations.langgraph.types import Serialised, Types
from holdfast.store.inner import Follower, StoreHandle, erase_scope
from holdfast.store.names.arguments import listed as several
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import surely, to_the_end
from holdfast.store.open import open_core
from holdfast.store.store import Store

MOST_THREADS = 128
"""Of which what was put last is kept in memory, to tell what is new in the next checkpoint."""

_OWN = frozenset(("types", "strict", "serde", "pending"))

T = TypeVar("T")
P = ParamSpec("P")

PAGE = 20

Places = list[tuple[Thread, Space]]
Listed = tuple[Thread, Space, Loaded | None]

logger = logging.getLogger(__name__)


def _away(
    method: Callable[Concatenate[HoldfastSaver, P], T],
) -> Callable[Concatenate[HoldfastSaver, P], Coroutine[Any, Any, T]]:
    """The awaited form of a method, which does not hold the loop."""

    @wraps(method)
    async def away(self: HoldfastSaver, /, *given: P.args, **named: P.kwargs) -> T:
        return await self._off(partial(getattr(self, method.__name__), *given, **named))

    away.__name__ = f"a{method.__name__}"
    return away


class HoldfastSaver(BaseCheckpointSaver[Any]):
    """Keeps the checkpoints of LangGraph's threads in a Holdfast store.

    store: an open store of either kind. Blocking and async methods may be mixed; blocking ones
        work inside a running event loop, which they hold for the time of a commit.
    types: which classes may be stored (see `Types`); `strict=True` takes registered ones only.
    serde: a serializer of your own instead of `types`; values are then stored whole, unseen.
    pending: how safe what a task wrote is until the next checkpoint is put. `full`: as safe as the
        store, and in a run stored together with the checkpoint that follows within 5 ms. `normal`:
        stored at once without waiting for the disk, so that a power loss before the next
        checkpoint may take it, and the task runs again; the end of the process does not. Errors
        and interrupts, which no checkpoint follows, are always `full`. SQLite only; other engines
        store as always.

    A thread is the scope `custom:langgraph/THREAD`: `checkpoint`, `verify`, `log` and `erase` of
    the store work on it. What the newest checkpoints of 128 threads hold is kept in memory.
    """

    def __init__(
        self,
        store: Any,
        *,
        types: Types | None = None,
        strict: bool = False,
        serde: SerializerProtocol | None = None,
        pending: str = "full",
    ) -> None:
        super().__init__(serde=serde)
        core = getattr(store, "_core", None)
        if core is None:
            raise InvalidInputError(
                "HoldfastSaver takes an open store: HoldfastSaver(holdfast.sync.open(url)), or use "
                "`with HoldfastSaver.open(url) as saver`"
            )
        if pending not in ("full", "normal"):
            raise InvalidInputError("pending is 'full' or 'normal'")
        if (types is not None) + strict + (serde is not None) > 1:
            raise InvalidInputError(
                "give one of types, strict and serde; Types(strict=True) is both"
            )
        self._core = core
        self._relaxed = pending == "normal"
        self.types = types or (Serialised(serde) if serde else Types(strict=strict))
        self._sight = Sight()
        self._known = lru_cache(MOST_THREADS)(lambda name: Thread(core, name, self.types))
        self._lock = threading.Lock()  # a thread of LangGraph is one object, whoever asks first
        self._warned: dict[str, None] = {}
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="holdfast-langgraph")

    @classmethod
    def open(cls, url: str | Path | None = None, **options: Any) -> Opening[HoldfastSaver]:
        """A store, opened and closed with the saver: `with HoldfastSaver.open(url) as saver`.

        Also `async with`. Without a url, `HOLDFAST_STORE` or else `holdfast.db`. Options are those
        of `HoldfastSaver` and of `holdfast.open`. As `checkpointer.path` in `langgraph.json`, give
        `holdfast.integrations.langgraph:open_saver`.
        """
        own = {name: options.pop(name) for name in _OWN & options.keys()}
        return Opening(url, options, lambda store: cls(store, **own))

    # reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The newest checkpoint of a thread, or the one with the given id."""
        thread, space, id = self._place(config)
        found = self._get(thread, space, id, config)
        self._sight.saw(thread.id, space.ns, config, found, asked=id is not None)
        return found

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The same, without holding the loop."""
        thread, space, id = self._place(config)
        found = await self._off(self._get, thread, space, id, config)
        self._sight.saw(thread.id, space.ns, config, found, asked=id is not None)
        return found

    def _get(
        self, thread: Thread, space: Space, id: str | None, config: RunnableConfig
    ) -> CheckpointTuple | None:
        if by := _address(config):
            remember(thread.lives, by, thread.life_now())
        loaded = thread.newest(space, writes=True) if id is None else thread.find(space, id)
        if loaded is None:
            return None
        if id is None:
            self._warn(thread, space, loaded, config)
        values = thread.values(space, loaded)
        return tuple_of(thread, space, loaded, values, config if id else None)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first; those of all threads without a config."""
        for place in self._listed(config, filter, before, limit):
            self._note_listed(place, config)
            if place[2] is not None:
                yield tuple_listed(place[0], place[1], place[2])

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The same, without holding the loop."""
        places = self._listed(config, filter, before, limit)
        found = ((place, place[2] and tuple_listed(*place).whole()) for place in places)  # type: ignore[arg-type]
        while page := await self._off(lambda: [*islice(found, PAGE)]):
            # What was listed is noted in the context of the caller, not of the thread that read.
            for place, _ in page:
                self._note_listed(place, config)
            for _, one in page:
                if one is not None:
                    yield one

    def _listed(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[Listed]:
        """Checkpoints; if there are none before a given one, the places that were looked at."""
        places: Places = []
        id: str | None = None
        if config is None:
            for name in self.thread_ids():
                thread = self._thread(name)
                places += [(thread, space) for space in thread.namespaces()]
        else:
            thread, space, id = self._place(config)
            whole = "checkpoint_ns" not in config["configurable"]
            places = [(thread, s) for s in (thread.namespaces() if whole else [space])]
        bound = before["configurable"].get("checkpoint_id") if before else None
        empty = True
        for item in listed(places, id, bound, filter, limit):
            empty = False
            yield item
        if empty and before is not None:
            yield from ((*place, None) for place in places)

    def _note_listed(self, place: Listed, config: RunnableConfig | None) -> None:
        """Note that a checkpoint was listed, so that a run may go on from it."""
        thread, space, loaded = place
        ids = (loaded.record.id, loaded.record.parent) if loaded else (None,)
        self._sight.listed(thread.id, space.ns, config, ids)

    def thread_ids(self) -> Iterator[str]:
        """Ids of all threads, in the order of their names."""
        for info in StoreHandle(self._core).scopes("custom", SCOPES, None, None).items:
            yield thread_of(info.scope)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What each channel got on the way to a checkpoint, from the nearest stored value on."""
        thread, space, id = self._place(config)
        return delta_history(thread, space, id, channels)

    aget_delta_channel_history = _away(get_delta_channel_history)

    def may_have_run(self, config: RunnableConfig) -> Sequence[str]:
        """Nodes that the newest checkpoint makes run and that stored nothing yet.

        If the run that put it is gone, they may have run, with whatever effects they have, or not:
        resuming runs them (again). What a task stored by `put_writes` is never run again.
        """
        thread, space, id = self._place(config)
        loaded = thread.newest(space, writes=True) if id is None else thread.find(space, id)
        return open_nodes(thread, space, loaded) if loaded is not None else []

    def _warn(self, thread: Thread, space: Space, loaded: Loaded, config: RunnableConfig) -> None:
        """Say, once, which nodes of a run that ended early may have run."""
        id = loaded.record.id
        if id in self._warned or "__pregel_runtime" not in config["configurable"]:
            return
        remember(self._warned, id, None)
        nodes = open_nodes(thread, space, loaded)
        if nodes:
            logger.warning(
                "thread %s%s: since checkpoint %s was put, these nodes have stored nothing: %s. "
                "Unless its run is still at work, they may have run; resuming runs them again",
                thread.id,
                f" ({space.ns})" if space.ns else "",
                id,
                ", ".join(nodes),
            )

    # writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: what differs from the newest one.

        Raises `Conflict` if its parent is no longer the newest one and was not asked for by its
        id; nothing is stored then.
        """
        thread, space, parent = self._place(config)
        stored = cast(dict[str, Any], get_checkpoint_metadata(config, metadata))
        counters = stored.get(COUNTERS)
        if isinstance(counters, dict):  # pairs, which LangGraph takes for lists once stored
            stored[COUNTERS] = {k: list(v) for k, v in counters.items()}
        id = checkpoint["id"]
        remember(self._warned, id, None)
        check = self._sight.check(thread.id, space.ns, config, parent, id, stored.get("source"))
        by = _address(config)
        putting.put(thread, space, cast(dict[str, Any], checkpoint), stored, parent, check, by)
        return config_of(config["configurable"]["thread_id"], space.ns, id)

    aput = _away(put)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote on top of a checkpoint, so that it need not run again."""
        thread, space, id = self._place(config)
        if id is None:
            raise InvalidInputError("put_writes needs config['configurable']['checkpoint_id']")
        run = run_in(get_checkpoint_metadata(config, {}))
        by = _address(config)
        given = []
        for n, (name, one) in enumerate(writes):
            # An error is kept as the text that LangGraph's own savers give back.
            error = name == ERROR and isinstance(one, BaseException)
            given.append((WRITES_IDX_MAP.get(name, n), name, repr(one) if error else one))
        if given:
            how = {"patient": by > 0 and not self._relaxed, "relaxed": self._relaxed}
            putting.put_writes(thread, space, id, given, task_id, task_path, run, by, **how)

    aput_writes = _away(put_writes)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version of a channel: a number, or a text where a thread was imported so."""
        if isinstance(current, str):
            number = int(current.partition(".")[0]) + 1
            return f"{number:032}.{current.partition('.')[2] or '0'}"
        return 1 if current is None else current + 1

    # removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread with all its checkpoints. One made again under its id starts empty.

        Its content is removed from the store, and its key from the ring: see `Store.erase`.
        """
        thread = self._thread(thread_id)
        with suppress(ScopeNotFoundError):
            erase_scope(StoreHandle(self._core), thread.scope)

    adelete_thread = _away(delete_thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Take out the checkpoints that these runs put, with what was written on top of them, and
        what they wrote on top of others, such as an answer to a question.

        Delta channels of checkpoints that stay may need them: prune such threads instead.
        """
        # LangGraph takes such a character out of what it stores.
        wanted = {str(run).replace("\0", "") for run in several(run_ids, "run_ids")}
        names: set[str] = set()

        def put_by(past: Past) -> set[str]:
            records = (loaded.record for loaded in past)
            return {record.id for record in records if run_in(record.metadata) in wanted}

        for run in wanted:
            entries = Follower(self._core).correlated(run, None, None, None)
            scopes = {Scope.parse(str(entry.scope)) for entry in entries}
            names |= {thread_of(scope) for scope in scopes if is_thread(scope)}
        for name in names:
            thread = self._thread(name)
            for space in thread.namespaces():
                putting.remove(thread, space, put_by, wanted)

    adelete_for_runs = _away(delete_for_runs)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one, which must be empty."""
        target = Thread(self._core, target_thread_id, self.types)
        copy(self._thread(source_thread_id), target)

    acopy_thread = _away(copy_thread)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Take out all but the newest checkpoint of each namespace, or (`delete`) erase all.

        What a delta channel of the newest one needs is kept.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError("strategy is 'keep_latest' or 'delete'")
        for name in several(thread_ids, "thread_ids"):
            if strategy == "delete":
                self.delete_thread(name)
                continue
            thread = self._thread(name)
            for space in thread.namespaces():
                putting.remove(thread, space, putting.superseded)

    aprune = _away(prune)

    # inside

    async def _off(self, work: Callable[..., T], *given: Any) -> T:
        """Run it off the loop, in threads of the saver's own: the loop's may all be taken."""
        self._core.storage.get([])  # threads do not live on in a forked process: it says so
        return await to_the_end(work, *given, pool=self._pool)

    def _place(self, config: RunnableConfig) -> tuple[Thread, Space, str | None]:
        where = config.get("configurable") or {}
        if where.get("thread_id") is None:
            raise InvalidInputError(
                "a checkpointer needs a thread: config={'configurable': {'thread_id': ...}}"
            )
        id = where.get("checkpoint_id")
        thread = self._thread(where["thread_id"])
        space = thread.space(str(where.get("checkpoint_ns") or ""))
        return thread, space, str(id) if id else None

    def _thread(self, thread_id: Any) -> Thread:
        with self._lock:
            return self._known(str(thread_id))


def _address(config: RunnableConfig) -> int:
    """Tells the run that a config belongs to from others; 0 outside of a run."""
    run = run_of(config)
    return 0 if run is None else id(run)


def open_saver() -> Opening[HoldfastSaver]:
    """`HoldfastSaver.open()` for `checkpointer.path` in `langgraph.json`."""
    return HoldfastSaver.open()


# ---- saver store --------------------------------------------------------------------------------
# A store that is opened and closed together with what stands on it.


class Opening(Generic[T]):
    """Use it with `with` or `async with`: the store is closed when the block ends."""

    def __init__(
        self,
        url: str | Path | None,
        options: dict[str, Any],
        make: Callable[[Store], T],
        end: Callable[[T], object] = lambda _: None,
    ) -> None:
        self._url = url or os.environ.get("HOLDFAST_STORE") or "sqlite:"
        self._options = options
        self._make = make
        self._end = end
        self._opened: ExitStack | None = None

    def __enter__(self) -> T:
        if self._opened is not None:
            raise InvalidInputError("this store is open already; call open() again for another")
        with ExitStack() as stack:  # which closes the store if what stands on it cannot be made
            store = stack.enter_context(Store(StoreHandle(open_core(self._url, **self._options))))
            made = self._make(store)
            stack.callback(self._end, made)
            self._opened = stack.pop_all()
        return made

    def __exit__(self, *_: object) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    async def __aenter__(self) -> T:
        return await to_the_end(self.__enter__, undo=lambda _: self.__exit__())

    async def __aexit__(self, *_: object) -> None:
        await surely(self.__exit__)
