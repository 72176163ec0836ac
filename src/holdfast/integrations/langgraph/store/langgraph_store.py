"""LangGraph's long-term memory in a Holdfast store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from holdfast.errors import Conflict, HoldfastError, InvalidInputError, InvalidValueError
from holdfast.integrations.langgraph.saver import Opening
from holdfast.integrations.langgraph.store.filters import check_filter, common_prefix, matches
from holdfast.integrations.langgraph.store.item_keys import Name, check_labels, encode, vectors_of
from holdfast.integrations.langgraph.store.mirror import Mirror
from holdfast.integrations.langgraph.store.vectors import Embedder, Found
from holdfast.storage.rows import again
from holdfast.store.inner import Change, Operation, build_change, copied, handle_of, moment
from holdfast.store.names.arguments import check_count, check_filters, listed
from holdfast.store.names.background import Background
from holdfast.store.names.cause import cause_now
from holdfast.store.names.threads import here_or_away, read_away, to_the_end
from holdfast.store.store import Store
from holdfast.store.store_async import Store as AsyncStore

_log = logging.getLogger(__name__)
SCOPE = "custom:langgraph-store"
MINUTE = 60_000_000
SLACK = 0.1
"""The part of its time to live that must have passed before a read renews it."""
MOST_MINUTES = 60 * 24 * 365 * 1000
"""Of a time to live: a thousand years. What never expires has none."""
TRIES = 5
SWEEP = 1000
"""Expired items that are removed with one change."""


class _Job:
    """One batch: what it asks for, and what is found out on the way to the answers."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self.ops: list[Op] = listed(ops, "batch")
        self.puts: dict[Name, PutOp] = {}
        self.found: Found = ({}, {})
        self.texts: dict[Name, list[str]] = {}
        self.renew: set[str] = set()
        for op in self.ops:
            if isinstance(op, PutOp):
                self.puts[op.namespace, op.key] = op  # the last one counts
            elif isinstance(op, SearchOp | ListNamespacesOp):
                check_count(op.limit, "limit")
                check_count(op.offset, "offset")
                if isinstance(op, SearchOp):
                    check_filters(query=op.query)
                    check_labels(op.namespace_prefix)
                    check_filter(op.filter)
            elif not isinstance(op, GetOp):
                raise InvalidInputError(f"{type(op).__name__} is no operation of a store")

    @property
    def only_gets(self) -> bool:
        return not any(isinstance(op, SearchOp | ListNamespacesOp) for op in self.ops)

    @property
    def queries(self) -> list[str]:
        return [op.query for op in self.ops if isinstance(op, SearchOp) and op.query]


class HoldfastStore(BaseStore):
    """A LangGraph `BaseStore` on an open Holdfast store, blocking or async; sync and async calls.

    `HoldfastStore(store)` takes what `holdfast.open` or `holdfast.sync.open` gave;
    `HoldfastStore.open(url)` is a context manager, with or without `async`. All items are in one
    scope, `custom:langgraph-store` unless `scope` says otherwise, one key each, so that its
    checkpoints, history and restores are those of any scope. Sync calls may be made in a running
    event loop; they block it for as long as they take.

    **Batches.** Reads of a batch see one moment, before its writes; its writes are one change, all
    or nothing, and the last put of a key counts. A value that would not come back as it was is
    refused with its path, and nothing of the batch is written. `created_at` stays when an item is
    put again. Search results come newest first if there is no query.

    **Filters** mean what they mean in LangGraph's `InMemoryStore`, but a value that cannot be
    compared with a bound does not match, and two texts that are no numbers compare as texts.

    **Semantic search** (`index={"dims": ..., "embed": ..., "fields": [...]}`) is exact: namespace
    and filter first, then cosine in float32 over all that is left; the best vector of an item
    counts. Items without a vector follow those with one. Texts are embedded before the change is
    made, and their vectors are stored with the item; those of another size than `dims` (put under
    another index) are passed over until the item is put again. It needs numpy.

    **Memory.** A namespace that is searched is kept in memory from then on, with all below it:
    its values, some hundred bytes an item, and 4 bytes a dimension for each vector (150 MB for
    100,000 of 384). The first search of a namespace in a process reads it from the storage. `get`
    and `put` need none of this.

    **Several processes.** A read sees every write that returned before it began, also another
    process's: each search first follows the journal and reads what changed. Puts are not
    conditional: of two that meet, the later one stands.

    **Time to live** is given in minutes, by `put(ttl=...)` or as `ttl={"default_ttl": ...}`. An
    expired item reads as absent at once; it is removed by `sweep_ttl`. A read renews it unless
    `refresh_ttl` says no, but only when a tenth of its time has passed, with one change for the
    whole batch: an item expires between 0.9 and 1.0 times its time after it was last read. In a
    store that is opened for reading nothing is renewed.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | AsyncStore,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        *,
        scope: str = SCOPE,
    ) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInputError(
                f"HoldfastStore takes an open store, not {type(store).__name__}; use "
                "HoldfastStore.open(url), or give what holdfast.open or holdfast.sync.open gave"
            )
        self._handle = handle_of(store).line(scope)
        self._core = self._handle.core
        self._embedder = Embedder(index) if index else None
        dims = self._embedder.dims if self._embedder is not None else None
        self._mirror = Mirror(self._handle, dims)
        self._lock = threading.Lock()  # of the next: no time is given twice
        self._latest = 0
        self._sweeping: Future[None] = Future()
        self._sweeping.set_result(None)
        self.ttl_config = ttl

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        scope: str = SCOPE,
        **options: Any,
    ) -> Opening[HoldfastStore]:
        """Open a store for `with` or `async with`; the options are those of `holdfast.open`.

        Without a url, `HOLDFAST_STORE` or else `holdfast.db`.
        """
        return Opening(
            url,
            options,
            lambda store: cls(store, index, ttl, scope=scope),
            lambda made: made.stop_ttl_sweeper(),
        )

    # batches

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads of one moment, then all writes as one change."""
        job = self._job(ops)
        if self._embedder is not None:
            texts = [text for some in job.texts.values() for text in some]
            job.found = self._embedder.embed(texts, job.queries)
        results = self._read(job)
        self._write(job)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, awaited: what may take long leaves the event loop."""
        job = self._job(ops)
        if self._embedder is not None:
            texts = [text for some in job.texts.values() for text in some]
            job.found = await self._embedder.aembed(texts, job.queries)
        if job.only_gets:
            results = await here_or_away(self._core.storage, self._read, job)
        else:
            results = await read_away(self._read, job)
        if job.puts or job.renew:
            await to_the_end(self._write, job)
        return results

    def _job(self, ops: Iterable[Op]) -> _Job:
        """Everything that can be refused is refused here, before a text is embedded."""
        job = _Job(ops)
        for name, put in job.puts.items():
            if put.value is None:
                continue
            ttl = put.ttl
            if ttl is not None and (type(ttl) not in (int, float) or not 0 <= ttl <= MOST_MINUTES):
                raise InvalidInputError(
                    f"a time to live is a number of minutes, from 0 to {MOST_MINUTES:,} (a "
                    "thousand years), or None for one without end"
                )
            if not isinstance(put.value, Mapping):
                kind = type(put.value).__name__
                raise InvalidInputError(f"an item is a mapping of fields to values, not a {kind}")
            try:
                self._core.codec.plain(dict(put.value))
            except InvalidValueError as error:
                where = f"{'/'.join(map(str, put.namespace))} {put.key!r}"
                raise type(error)(f"{where}: {error}", error.path) from None
            if self._embedder is not None:
                job.texts[name] = self._embedder.texts(put)
        return job

    # reading

    def _read(self, job: _Job) -> list[Result]:
        now = self._core.clock.claimed()
        keys = [encode(op.namespace, op.key)[0] for op in job.ops if isinstance(op, GetOp)]
        if job.only_gets:
            records = self._handle.reader.get_many(keys) if keys else {}
            return self._answers(job, iter(keys), records, now)
        with self._mirror.lock:
            self._mirror.follow(
                op.namespace_prefix
                if isinstance(op, SearchOp)
                else common_prefix(op.match_conditions or ())
                for op in job.ops
                if isinstance(op, SearchOp | ListNamespacesOp)
            )
            records = self._mirror.records(keys) if keys else {}
            return self._answers(job, iter(keys), records, now)

    def _answers(
        self, job: _Job, keys: Iterator[str], records: dict[str, Any], now: int
    ) -> list[Result]:
        found: list[Result] = []
        for op in job.ops:
            if isinstance(op, GetOp):
                key = next(keys)
                found.append(self._get(job, op, key, records.get(key), now))
            elif isinstance(op, SearchOp):
                found.append(self._search(job, op, now))
            elif isinstance(op, ListNamespacesOp):
                conditions = op.match_conditions or ()
                present = self._mirror.namespaces(common_prefix(conditions), now)
                names = {name[: op.max_depth] for name in present if matches(name, conditions)}
                found.append(sorted(names)[op.offset : op.offset + op.limit])
            else:
                found.append(None)
        return found

    def _get(self, job: _Job, op: GetOp, key: str, record: Any, now: int) -> Item | None:
        if record is None or _expired(record, now):
            return None
        if op.refresh_ttl and _stale(record.get("ttl"), record.get("expires"), now):
            job.renew.add(key)
        return Item(
            value=record["value"],
            key=op.key,
            namespace=op.namespace,
            created_at=moment(record["created"]),
            updated_at=moment(record["updated"]),
        )

    def _search(self, job: _Job, op: SearchOp, now: int) -> list[SearchItem]:
        query = None
        if op.query and self._embedder is not None:
            query = job.found[1][op.query]
        bounds = (op.offset, op.offset + op.limit)
        found = self._mirror.search(op.namespace_prefix, op.filter, query, bounds, now)
        if op.refresh_ttl:
            job.renew.update(row.key for row, _ in found if _stale(row.ttl, row.expires, now))
        return [
            SearchItem(
                row.namespace,
                row.name,
                copied(row.value),
                moment(row.created),
                moment(row.updated),
                score,
            )
            for row, score in found
        ]

    # writing

    def _write(self, job: _Job) -> None:
        if operations := self._put_operations(job):
            self._core.run(self._built(operations, {}))
        if job.renew and not self._core.read_only:
            try:
                again(partial(self._renew, job.renew), "others always put them", times=TRIES)
            except HoldfastError as error:
                # A renewal that cannot be written, or not by who may only read, fails no read.
                _log.warning("times to live could not be renewed: %s", error)

    def _renew(self, keys: Iterable[str]) -> None:
        """Let items begin their time anew, with one change, if a noticeable part of it is over."""
        operations, expects = [], {}
        now = self._core.clock.claimed()
        for key, (record, version) in self._handle.reader.versioned(keys).items():
            if _stale(record.get("ttl"), record.get("expires"), now):
                expires = now + round(record["ttl"] * MINUTE)
                operations.append(Operation("set", key, {**record, "expires": expires}))
                expects[key] = version
        if operations:
            self._core.run(self._built(operations, expects))

    def _built(self, operations: list[Operation], expects: dict[str, int]) -> Change:
        target = (self._handle.scope, self._handle.timeline, operations, expects, None)
        return build_change(self._core, [target], cause=cause_now())

    def _put_operations(self, job: _Job) -> list[Operation]:
        keys = {name: encode(*name) for name in job.puts}
        kept = [keys[name][0] for name, put in job.puts.items() if put.value is not None]
        before = self._handle.reader.get_many(kept) if kept else {}
        operations = []
        with self._lock:  # no two times that are given are equal in this process
            now = self._core.clock.claimed()
            time = max(now, self._latest + 1)
            self._latest = time + len(kept) - 1
        for name, put in job.puts.items():
            key, hashed = keys[name]
            if put.value is None:
                operations += [Operation("delete", key), Operation("delete", vectors_of(key))]
                continue
            old = before.get(key)
            created = old["created"] if old is not None and not _expired(old, now) else time
            record: dict[str, Any] = {
                "value": dict(put.value),
                "created": created,
                "updated": time,
            }
            if put.ttl is not None:
                record |= {"ttl": put.ttl, "expires": now + round(put.ttl * MINUTE)}
            if hashed:
                record["name"] = [list(put.namespace), put.key]
            texts = job.texts.get(name)
            if texts:
                record["vectors"] = len(texts)
                packed = b"".join(job.found[0][text].tobytes() for text in texts)
                operations.append(Operation("set", vectors_of(key), packed))
            elif old is not None and "vectors" in old:
                operations.append(Operation("delete", vectors_of(key)))
            operations.append(Operation("set", key, record))
            time += 1
        return operations

    # time to live
    #
    # It is not the store's own expiry: there every read puts off what slides, here each read says
    # whether it does, and a search judges all items by a column of times in memory, which the
    # index would have to be asked for one by one. Nor are filters lookups: these are declared for
    # terms that are known beforehand, a filter asks for any part of a value, by any operator.

    def sweep_ttl(self) -> int:
        """Remove expired items; tells how many. It reads all namespaces into memory."""
        now = self._core.clock.claimed()
        with self._mirror.lock:
            self._mirror.follow([()])
            expired = self._mirror.expired(now)
        removed = 0
        for start in range(0, len(expired), SWEEP):
            with suppress(Conflict):  # they were put or renewed: what stays is swept next time
                remove = partial(self._remove, expired[start : start + SWEEP], now)
                removed += again(remove, "others always renew them", times=TRIES)
        return removed

    def _remove(self, keys: list[str], now: int) -> int:
        records = self._handle.reader.versioned(keys)
        gone = {key: v for key, (record, v) in records.items() if _expired(record, now)}
        if gone:
            both = [*gone, *map(vectors_of, gone)]
            self._core.run(self._built([Operation("delete", key) for key in both], gone))
        return len(gone)

    async def asweep_ttl(self) -> int:
        """The same, awaited."""
        return await to_the_end(self.sweep_ttl)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweep now and then in a thread, until the future is cancelled or it is stopped.

        Without a `ttl` configuration there is nothing to sweep: the future is done at once. The
        interval is the one given, else `sweep_interval_minutes` of the configuration, else 5.
        """
        future: Future[None] = Future()
        if self.ttl_config is None:
            future.set_result(None)
            return future
        if not self._sweeping.done():
            return self._sweeping

        def ended() -> None:
            with suppress(InvalidStateError):  # it was cancelled
                future.set_result(None)

        minutes = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes") or 5
        sweeper = Background(self._core, "holdfast-ttl", 60.0 * minutes, self.sweep_ttl, ended)
        sweeper.start()
        future.add_done_callback(lambda _: sweeper.stop())
        self._sweeping = future
        return future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper, behind the sweep that is at work; tells that it has ended."""
        with suppress(InvalidStateError):  # it has ended already
            self._sweeping.set_result(None)
        return True


def _expired(record: dict[str, Any], now: int) -> bool:
    expires = record.get("expires")
    return expires is not None and expires <= now


def _stale(ttl: float | None, expires: int | None, now: int) -> bool:
    """Whether a noticeable part of an item's time has passed since it was last renewed."""
    if ttl is None or expires is None or expires <= now:
        return False
    return expires - now < (1 - SLACK) * ttl * MINUTE
