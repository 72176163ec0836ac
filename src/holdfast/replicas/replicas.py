"""Replicas of a store."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    ReplicaSplitError,
    StoreClosedError,
    StoreNotFoundError,
    Unavailable,
)
from holdfast.replicas.replica_cell import cell_of, mark_of
from holdfast.replicas.replica_sync import (
    ReplicaStatus,
    SyncedReplica,
    SyncReport,
    check_place,
    lag,
    sync,
)
from holdfast.storage import file_of, open_storage, shown, url_of
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.rows import again
from holdfast.store.inner import Core, StoreHandle, core_of, seen_in
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_face, check_flag, is_seconds
from holdfast.store.names.background import Background, log
from holdfast.store.names.face import ends, faced, here, writes
from holdfast.store.names.items import Checkpoint
from holdfast.store.open import META
from holdfast.store.store import Store

LONGEST = 86_400.0
MOST = 64
"""Replicas of one store."""


@writes
def promote_replica(url: str | Path) -> None:
    """Make a store of its own of a replica: it can be written to, and follows no longer.

    For when the store that it follows is lost. If that comes back, it is not synced into this one
    any more; and what this one is given from now on, that does not have.
    """
    url = url_of(url)
    storage = open_storage(url, create=False)

    def step() -> None:
        held = cell_of(storage)
        if held is None:
            raise InvalidInputError(f"{shown(url)} is no replica; there is nothing to promote")
        if storage.get([META])[0] is None:
            raise StoreNotFoundError(
                f"the replica {shown(url)} was never finished: it is no store yet"
            )
        storage.commit(Batch(cells=[(rowkinds.FOLLOWS, held, None)], present=[META]))

    with closing(storage):  # who syncs it meanwhile finds their next commit refused
        again(step, f"the replica {shown(url)} is being synced; stop that first")


class _Replica:
    """One of them, and its storage as long as that serves."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.shown = shown(url)
        self.error: str | None = None
        self._storage: Storage | None = None
        self._lock = threading.RLock()  # one copies at a time, and nobody closes it meanwhile

    @contextmanager
    def opened(self, *, create: bool) -> Iterator[Storage]:
        """Its storage, for one user at a time; what fails is opened anew the next time."""
        with self._lock:
            try:
                if self._storage is None:
                    self._storage = open_storage(self.url, create=create)
                yield self._storage
            except BaseException:  # cancelled, too: its state is not known
                self.close()
                raise

    def close(self) -> None:
        with self._lock:
            storage, self._storage = self._storage, None
            if storage is not None:
                storage.close()


@faced
class Replicas:
    """Other stores that hold what a store holds, and follow it: `sqlite:/mnt/other/agents.db`, …

    Rows are sent as they lie in the store: sealed, if it is encrypted. Its ring is not sent: keep a
    copy of that where the replica would be opened without the store. `factor` is how many hold a
    checkpoint, the store itself included, before `hold` is content; all of them if it is left out.
    `interval` is how many seconds pass between two looks of a follower.

    A replica can be read by who opens it with `read_only=True`, and written to once it is promoted
    (`promote_replica`). Leases show in it as the store has them: held ones run out there as after a
    crash of their holder. Nothing is written to the store: one that was opened with
    `read_only=True` can be followed, too.
    """

    def __init__(
        self,
        store: Store,
        urls: Sequence[str | Path],
        *,
        factor: int | None = None,
        interval: float = 1.0,
    ) -> None:
        check_face(store, Store, "Replicas")
        self._core: Core = core_of(store)
        self._core.check_store()
        self._replicas = [_Replica(url) for url in check_urls(urls)]
        check_factor(factor, len(self._replicas), "factor")
        self._needed = len(self._replicas) if factor is None else factor - 1
        if not is_seconds(interval, 0.01, LONGEST):
            raise InvalidInputError("interval is a number of seconds, a day at most")
        self._background = Background(self._core, "holdfast-replicas", interval, self._turn)
        self._core.closing.append(self._close_all)

    def __repr__(self) -> str:
        return f"Replicas({[one.shown for one in self._replicas]!r})"

    @property
    def urls(self) -> tuple[str, ...]:
        """Where they are, without passwords."""
        return tuple(one.shown for one in self._replicas)

    @writes
    def sync(self, *, full: bool = False, remake: str | None = None) -> SyncReport:
        """Bring all replicas up to now; those that are not there are made.

        Trouble with one does not keep the others from it: the report says what it is. Of what was
        copied before a sample is compared, so that damage is noticed in time and not at once. With
        `full=True` all rows of both sides are compared, instead of what has changed since. `remake`
        names a replica that is to become a copy of the store whatever it holds now.
        """
        check_flag(full, "full")
        anew = [one for one in self._replicas if remake in (one.url, one.shown)]
        if remake is not None and not anew:
            raise InvalidInputError("remake is the URL of one of the replicas, as it was given")
        self._core.check_open()
        done = []
        for one in self._replicas:
            try:
                with one.opened(create=True) as storage:
                    done.append(
                        sync(self._core, storage, named=one.shown, full=full, remake=one in anew)
                    )
                one.error = None  # not before: who asks meanwhile is told what is still so
            except StoreClosedError:
                self._core.check_open()
                raise
            except HoldfastError as error:  # the others are synced all the same
                one.error = _told(error)
                split = isinstance(error, ReplicaSplitError)
                done.append(SyncedReplica(one.shown, False, 0, 0, 0, (), one.error, split=split))
        return SyncReport(tuple(done))

    def status(self) -> list[ReplicaStatus]:
        """How far each replica is behind, or that it holds what the store does not.

        Nothing is written, and none is made.
        """
        self._core.check_open()
        return [self._status(one) for one in self._replicas]

    def _status(self, one: _Replica) -> ReplicaStatus:
        whole = False
        try:
            with one.opened(create=False) as storage:
                mark = mark_of(storage)[1]
                check_place(self._core, storage)
                if mark is None or not mark.whole:
                    return ReplicaStatus(one.shown, False, None, None, one.error)
                whole = True
                return ReplicaStatus(one.shown, True, *lag(self._core, storage), one.error)
        except StoreNotFoundError:
            return ReplicaStatus(one.shown, False, None, None, one.error)
        except HoldfastError as error:
            return ReplicaStatus(one.shown, whole, None, None, _told(error))

    @writes
    def hold(self, checkpoint: Checkpoint | None = None) -> int:
        """Bring the replicas up to now, and refuse unless enough of them hold it; how many do.

        For `Checkpoints(state, sync=replicas.hold)`: a checkpoint that is made with `sync=True` is
        synchronized once so many stores have it as `factor` says. One holds it if the sync found
        nothing damaged there, and the checkpoint's entry is in it.
        """
        key = META
        if checkpoint is not None:
            if not isinstance(checkpoint, Checkpoint):
                raise InvalidInputError("hold takes a Checkpoint of this store")
            line = StoreHandle(self._core).line(checkpoint.scope, checkpoint.timeline)
            key = rowkinds.entry(line.history.points.line().prefix, checkpoint.sequence)
        done = zip(self._replicas, self.sync().replicas, strict=True)
        wrong = [f"{one.shown}: {why}" for one, did in done if (why := _lack(one, did, key))]
        holders = len(self._replicas) - len(wrong)
        if holders < self._needed:
            told = "; ".join(wrong)
            raise Unavailable(f"{holders} replicas hold it, {self._needed} must: {told}")
        return holders

    def copies(self) -> list[Store]:
        """The replicas as stores to be read, with the keys of this one: for `Recovery(copies=…)`.

        Those that cannot be opened now, or are not made yet, are left out. They are closed with the
        store.
        """
        found = []
        for one in self._replicas:
            with suppress(HoldfastError), ExitStack() as otherwise:
                storage = open_storage(one.url, create=False, read_only=True)
                otherwise.callback(storage.close)
                if storage.get([META])[0] == self._core.storage.get([META])[0]:
                    core = seen_in(self._core, storage)
                    self._core.closing.append(core.close)
                    found.append(Store(StoreHandle(core)))
                    otherwise.pop_all()  # closed with the store
        return found

    # following

    @here(awaited=True)
    def start(self) -> None:
        """Follow in the background, until `stop` or the store is closed; a second call is none."""
        self._background.start()

    @ends
    def stop(self) -> None:
        """Follow no longer; what has not been sent by then is sent by the next sync."""
        self._background.stop()

    @contextmanager
    def following(self) -> Iterator[Replicas]:
        """Follow as long as the block lasts; at its end the replicas are brought up to date."""
        self.start()
        try:
            yield self
        finally:
            self.stop()
        self.sync()

    def _turn(self) -> None:
        for one in self.sync().replicas:
            for finding in one.findings:  # said once: the next sync looks at what is new
                log.warning("%s: %s", one.url, finding)

    def _close_all(self) -> None:
        self.stop()
        for one in self._replicas:
            one.close()


def _lack(one: _Replica, done: SyncedReplica, key: bytes) -> str | None:
    """Why a replica that was just synced does not count as one that holds a record."""
    if not done.ok:
        return done.error or "; ".join(done.findings)
    try:
        with one.opened(create=False) as storage:
            return None if storage.get([key])[0] is not None else "it does not have it"
    except HoldfastError as error:
        return _told(error)


def _told(error: HoldfastError) -> str:
    return f"{type(error).__name__}: {error}"


def check_factor(factor: object, replicas: int, name: str) -> None:
    """Refuse what is no number of stores, or more than there are with the replicas."""
    if factor is None:
        return
    if type(factor) is not int or factor < 1:
        raise InvalidInputError(f"{name} is a number of stores, 1 or more")
    if factor > replicas + 1:
        raise InvalidInputError(
            f"{name} is {factor}, and the store and its replicas are {replicas + 1}"
        )


def check_urls(urls: object) -> list[str]:
    """URLs of replicas, if no two of them are of one place."""
    if isinstance(urls, str) or not isinstance(urls, Sequence) or not urls:
        raise InvalidInputError("replicas are a list of URLs, for example ['sqlite:/mnt/copy.db']")
    if len(urls) > MOST:
        raise InvalidInputError(f"a store has at most {MOST} replicas")
    urls = [url_of(url) for url in urls]
    if "memory:" in urls:
        raise InvalidInputError("a replica in memory needs a name: memory:NAME")
    if len({file_of(url) or url for url in urls}) < len(urls):
        raise InvalidInputError("two of the replicas are one place")
    return urls
