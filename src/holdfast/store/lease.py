"""Leases: one holder at a time, kept apart by terms and not by clocks.

A lease is two cells. The **token** (name, term, owner, duration) changes when the lease is taken,
freed or broken; it is what a change made under the lease expects in its own storage commit, so
that a holder which slept while another took over cannot write. The **beat** changes while the
lease is held: apart from the token, so that renewing disturbs no change on its way.

Whoever wants a lease that is held takes it over once it has itself seen both cells unchanged for
the whole duration, on its own monotonic clock; or at once, if the holder was a process of the same
machine and is known to be gone (`processes`). Wall clocks are never compared. No two tokens or
beats ever have equal bytes: what was expected once and is gone does not come back.

Not promised: who of several that wait is next; and against somebody who can write the storage,
who can put back an older token together with its beat.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    InvalidKeyError,
    LeaseHeldError,
    LeaseLostError,
    MissingError,
    StoreClosedError,
)
from holdfast.storage.contract import Batch
from holdfast.storage.rows import again, each
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.arguments import check_seconds, check_text, is_seconds
from holdfast.store.names.background import Background
from holdfast.store.names.cells import Swap, commit_beside, swap_cells
from holdfast.store.names.face import Steps, asynchronous, pause, steps, write
from holdfast.store.names.scope import Scope, check_key, escape, unescape

if TYPE_CHECKING:
    from holdfast.store.journal.directory import Directory

BEATS = 3
"""Beats in the time that a lease lasts without one: two may fail."""
TOGETHER = 256
"""Leases that are renewed in one commit: each with a sync of its own, a thousand would lapse before
their turn came."""

_T = TypeVar("_T")
log = logging.getLogger("holdfast.leases")

_under: ContextVar[tuple[Lease, ...]] = ContextVar("holdfast_leases", default=())
leases_now = _under.get
"""The leases under which this task or thread acts."""


class Fence(Protocol):
    """Something in a cell that a change rests on; what is gone from there never comes back."""

    key: bytes
    cell: bytes

    @property
    def core(self) -> Directory:
        """The store that the cell is of."""

    def check(self) -> None:
        """Refuse if it is known to be gone."""

    def lost(self) -> HoldfastError:
        """Note that it is gone; the error that says so."""


class Lease:
    """A lease that was taken; renewed in the background until its block ends.

    Holders use `name`, `owner`, `term`, `duration`, `held` and `fencing`; the rest is the store's.
    """

    def __init__(self, leases: Leases, key: bytes, token: Token, cell: bytes, begun: float) -> None:
        self._leases = leases
        self.core = leases.core
        self.key = key
        self.cell = cell
        """The token as it is stored: what changes under this lease expect."""
        self.id = token.id
        self.name = token.name
        self.term = token.term
        """Greater than that of all who held it before: a fencing token also for others."""
        self.owner = shown(token.owner)
        self.duration = token.duration
        self.over = False
        """It is known to be lost or given back."""
        self.beats = 0
        self.renewed(begun)

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} term {self.term}{'' if self.held else ', not held'}>"

    @property
    def held(self) -> bool:
        """Whether nobody else can have taken it, as far as this process knows.

        For deciding to stop early: what counts is decided when a change is committed.
        """
        return not self.over and self.core.clock.ticks() < self._until

    @contextmanager
    def fencing(self) -> Iterator[None]:
        """What this thread or task writes to the store inside the block is under the lease.

        The block of `store.lease` does this by itself, also for tasks begun in it; a thread of
        your own needs it.
        """
        _under.set((*_under.get(), self))
        try:
            yield
        finally:
            # Not by a token of the variable: the end may run in another context than the begin.
            _under.set(tuple(lease for lease in _under.get() if lease is not self))

    def check(self) -> None:
        """Refuse if it is known to be lost."""
        if self.over:
            raise self.lost()

    def lost(self) -> LeaseLostError:
        """Note that it is lost; the error that says so."""
        self.over = True
        return LeaseLostError(
            f"the lease {self.name!r} of term {self.term} is lost or given back; nothing was "
            "written: stop what rests on it, or take the lease again"
        )

    def renewed(self, begun: float) -> None:
        """A beat that began then is stored."""
        self._until = begun + self.duration
        self.due = begun + self.duration / BEATS

    def beat(self) -> None:
        """Renew it; if the storage cannot serve, it is tried again soon."""
        begun = self.core.clock.ticks()
        try:
            if self._leases.renew(self):
                self.renewed(begun)
            else:
                self.over = True
        except StoreClosedError:
            self.over = True
        except Exception as error:  # what ends the thread that renews loses all leases
            if not isinstance(error, HoldfastError):
                log.exception("the lease %r could not be renewed just now", self.name)
            self.due = begun + self.duration / (BEATS * BEATS)

    def release(self) -> None:
        """Give it back at once. If the storage cannot serve, others get it after its duration."""
        if not self.over:
            self.over = True
            with suppress(HoldfastError):
                self._leases.free(self)
            self._leases.let_go(self)


class Leases:
    """The leases of one open store: taking, renewing, freeing."""

    def __init__(self, core: Directory) -> None:
        self.core = core
        self._swap = partial(swap_cells, core.storage)
        # Weak: a lease that nobody has any more, whatever went wrong, is not renewed for ever.
        self._held: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._lock = threading.RLock()  # of those held; `_live` is asked inside, too
        self._beats = Background(core, "holdfast-leases", LONGEST, self._turn)
        self._look = inf
        """When a lease is to be renewed next, by the clock's ticks."""
        self._closing = False

    # taking

    def take(self, name: str, duration: float, owner: str) -> Lease | None:
        """The lease, if it is free, or its holder has not renewed it in time or is known to be
        gone; else None."""
        self.core.check_writable()
        if self._closing:
            raise StoreClosedError("the store is being closed; open it again")
        key = self.key_of(name)
        if any(one.key == key and one.core is self.core and not one.over for one in leases_now()):
            raise InvalidInputError(
                f"what is done here is under the lease {name!r} already: waiting for it could "
                "never end; take it once, around all that needs it"
            )

        begun = self.core.clock.ticks()
        key, before, cells = self._as_it_stands(name, damaged=False)
        if (
            before.owner
            and not self.core.lapses.lapsed(key, cells, begun - before.duration)
            and not is_gone(before.owner)
        ):
            return None
        token = Token(name, before.term + 1, owner, duration, os.urandom(16))
        cell, beat = self._seal(key, token), self._seal(rows.beat(key), Beat(token.id, 0))
        begun = self.core.clock.ticks()
        if not self._swap([(key, cells[0], cell), (rows.beat(key), cells[1], beat)]):
            return None
        if before.owner:
            self._broken(before.id)
        lease = Lease(self, key, token, cell, begun)
        self._hold(lease)
        return lease

    def _as_it_stands(self, name: str, *, damaged: bool = True) -> tuple[bytes, Token, Cells]:
        """A lease, whoever has it; one whose token is damaged gets a term above all that it can
        have had, if that may be."""
        key = self.key_of(name)
        cells = self._cells(key)
        try:
            row = cells[0]
            token = self.core.decoded(key, row, read_token) if row is not None else None
        except DamagedRecordError as error:
            if not damaged:  # who merely wants it must not take it from a holder who lives
                text = f"the lease {name!r} is damaged ({error}): `break_lease` of it mends that"
                raise DamagedRecordError(text, rows.describe(key)) from None
            token = Token(name, self.core.clock.claimed(), None, 0.0, b"")
        return key, token or Token(name, 0, None, 0.0, b""), cells

    def _broken(self, id: bytes) -> None:
        """Whoever holds a lease under a token of this store knows at once that it is gone."""
        for lease in self._live():
            lease.over |= lease.id == id

    # while it is held

    def renew(self, lease: Lease) -> bool:
        """Store a beat; False if the lease is another's."""
        return self._swap_mine(lease, self._beating(lease))

    def _renew_together(self, leases: list[Lease]) -> None:
        """Store a beat of each in one commit; where that cannot be, each has its own."""
        begun, done = self.core.clock.ticks(), False
        if len(leases) > 1:
            with suppress(HoldfastError):  # told below, to the one that it is about
                beats = [(self._beating(lease), self._cells(lease.key)[1]) for lease in leases]
                done = self._swap([swap for made, beat in beats for swap in made(beat)])
        for lease in leases:
            if done:
                lease.renewed(begun)
            else:
                lease.beat()

    def _beating(self, lease: Lease) -> Callable[[bytes | None], list[Swap]]:
        lease.beats += 1  # also if it fails: then its bytes may be stored, or may be later
        key, same = rows.beat(lease.key), (lease.key, lease.cell, lease.cell)
        beat = self._seal(key, Beat(lease.id, lease.beats))
        return lambda old: [(key, old, beat), same]

    def free(self, lease: Lease) -> bool:
        """Give a lease back; False if it was another's already."""
        return self._swap_mine(
            lease, lambda beat: self._freeing(lease, lease.key, (lease.cell, beat))
        )

    def _swap_mine(self, lease: Lease, made: Callable[[bytes | None], list[Swap]]) -> bool:
        def swap() -> bool:
            token, beat = self._cells(lease.key)
            return token == lease.cell and self._swapped(made(beat))

        return again(swap, f"the lease {lease.name!r} does not stand still; try again")

    def _swapped(self, cells: list[Swap]) -> bool:
        if not self._swap(cells):
            raise Conflict("a cell of a lease is another now")
        return True

    # writing under them

    def stand(self) -> None:
        """Refuse if a lease under which this is done is lost, as the storage has it now.

        For what is about to be written elsewhere, where no commit can expect the token.
        """
        for lease in self._fences().values():
            lease.check()
            if self._cells(lease.key)[0] != lease.cell:
                raise lease.lost()

    def commit(self, batch: Batch) -> None:
        """Commit what is no change to a scope, if the leases it is done under are still held."""
        batch.cells += self.expected()
        try:
            commit_beside(self.core.storage, batch)
        except Conflict:
            self.stand()  # that a lease is lost says more than what else did not match
            raise

    def expected(self) -> list[Swap]:
        """What a commit expects that is made under leases; refused if one is known to be lost."""
        fences = self._fences().values()
        for lease in fences:
            lease.check()
        return [(lease.key, lease.cell, lease.cell) for lease in fences]

    def _fences(self) -> dict[bytes, Lease]:
        return {lease.key: lease for lease in leases_now() if lease.core is self.core}

    # for operators

    def infos(self) -> list[LeaseInfo]:
        """All leases that were ever taken, by their names."""
        self.core.check_open()
        found: list[LeaseInfo] = []
        gone = cache(is_gone)  # one process may hold thousands
        for key, row in self.cells():
            try:
                if key[-1] == rows.TOKEN:
                    found.append(LeaseInfo(rows.describe(key), None, 0, 0.0, 0))
                    found[-1] = told(self.core.decoded(key, row, read_token), gone)
                elif found and found[-1].owner is not None:
                    beats = self.core.decoded(key, row, read_beat).count
                    found[-1] = replace(found[-1], beats=beats)
            except DamagedRecordError as error:  # told beside the others, for who mends it
                found[-1] = replace(found[-1], damage=str(error))
        return sorted(found, key=lambda info: info.name)

    def info(self, name: str) -> LeaseInfo | None:
        """One lease, if it was ever taken."""
        key = self.key_of(name)
        token, beat = self._cells(key)
        if token is None:
            return None
        found = told(self.core.decoded(key, token, read_token), is_gone)
        beats = self.core.decoded(rows.beat(key), beat, read_beat).count if beat is not None else 0
        return replace(found, beats=beats)

    def break_(self, name: str, term: int | None = None) -> str | None:
        """Take a lease from its holder, or only from that of a term; returns who that was.

        One whose token is damaged is broken, too; its term goes on above all that it can have had.
        """
        self.core.check_writable()

        def break_it() -> str | None:
            key, token, cells = self._as_it_stands(name, damaged=term is None)
            if cells[0] is None:
                raise MissingError(f"there is no lease {name!r}; `leases()` lists them")
            if term is not None and token.term != term:
                return None
            self._swapped(self._freeing(token, key, cells, 1))
            self._broken(token.id)
            return shown(token.owner)

        return again(break_it, f"the lease {name!r} does not stand still; try again")

    # cells

    def key_of(self, name: str) -> bytes:
        """Key of a lease's token."""
        return rows.lease(self.core.tag(b"lease", name))

    def cells(self) -> Iterator[tuple[bytes, bytes]]:
        """All cells of leases, each token before its beat."""
        return each(self.core.storage.cells, rows.LEASES, rows.after(rows.LEASES))

    def check(self, key: bytes, row: bytes) -> None:
        """Raise if a cell is not what it should be; for `verify`."""
        if key[-1] == rows.TOKEN:
            token = self.core.decoded(key, row, read_token)
            if self.key_of(token.name) != key:
                raise DamagedRecordError(f"{rows.describe(key)}: it names another lease")
        else:
            self.core.decoded(key, row, read_beat)

    def _cells(self, key: bytes) -> Cells:
        """Token and beat as they are stored, of one moment."""
        found = dict(self.core.storage.cells(key, rows.after(key[:-1]), limit=2))
        return found.get(key), found.get(rows.beat(key))

    def drop_damaged(self) -> int:
        """Remove leases whose cells are damaged, whoever holds them; how many there were.

        What is held under them is lost, and their terms begin anew: where the name is known,
        breaking them is better.
        """
        self.core.check_writable()
        dropped = 0
        for key in {rows.token(key) for key, row in self.cells() if self._is_damaged(key, row)}:
            token, beat = self._cells(key)  # somebody may have mended it meanwhile, and hold it
            if self._is_damaged(key, token) or self._is_damaged(rows.beat(key), beat):
                dropped += self._swap([(key, token, None), (rows.beat(key), beat, None)])
        return dropped

    def _is_damaged(self, key: bytes, row: bytes | None) -> bool:
        if row is None:
            return False
        try:
            self.check(key, row)
        except DamagedRecordError:  # which is the question
            return True
        return False

    def _seal(self, key: bytes, content: Token | Beat) -> bytes:
        return self.core.seal_row(key, encode(content))

    def _freeing(self, token: Token | Lease, key: bytes, cells: Cells, more: int = 0) -> list[Swap]:
        """What gives a lease back, as it is stored; or breaks it, with a term that is greater."""
        free = self._seal(key, Token(token.name, token.term + more, None, 0.0, os.urandom(16)))
        return [(key, cells[0], free), (rows.beat(key), cells[1], None)]

    # renewing in the background

    def _hold(self, lease: Lease) -> None:
        with self._lock:
            self._held.add(lease)
            if not self._closing:
                self._beats.start()
                if lease.due < self._look:
                    self._beats.wake()
                return
        lease.release()
        raise StoreClosedError("the store is being closed; open it again")

    def let_go(self, lease: Lease) -> None:
        """A lease was given back."""
        with self._lock:
            self._held.discard(lease)

    def _turn(self) -> float | None:
        pause = self.renew_due()
        with self._lock:  # who takes one now comes before this, or begins anew
            if not self._live():
                self._beats.stop()
        return pause

    def renew_due(self) -> float | None:
        """Renew what is due; seconds until the next is, None if no lease is held."""
        now = self.core.clock.ticks()
        due = [lease for lease in self._live() if lease.due <= now]
        for first in range(0, len(due), TOGETHER):
            self._renew_together(due[first : first + TOGETHER])
        with self._lock:
            left, now = [lease.due for lease in self._live()], self.core.clock.ticks()
            self._look = min(left, default=inf)
        return self._look - now if left else None

    def _live(self) -> list[Lease]:
        with self._lock:  # a set that grows while it is gone through ends the thread that renews
            return [lease for lease in self._held if not lease.over]

    def close(self) -> None:
        """Give back what is held and end the thread."""
        with self._lock:  # who takes one from now on gives it back at once
            self._closing = True
        for lease in self._live():
            lease.release()
        self._beats.stop()


# ---- lease cells --------------------------------------------------------------------------------
# What the cells of a lease hold, and what is told of it.


encode = msgspec.msgpack.Encoder().encode


class Token(msgspec.Struct, array_like=True, frozen=True):
    """The cell that says who holds a lease."""

    name: str
    term: int
    owner: str | None
    """None: it is free."""
    duration: float
    id: bytes
    """Random: no two tokens are equal."""


class Beat(msgspec.Struct, array_like=True, frozen=True):
    """The cell that changes as long as the holder lives; a free lease has none."""

    id: bytes
    """Of the token."""
    count: int


Cells = tuple[bytes | None, bytes | None]
"""Token and beat as they are stored."""
read_token = msgspec.msgpack.Decoder(Token).decode
read_beat = msgspec.msgpack.Decoder(Beat).decode


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """What the storage says of a lease."""

    name: str
    owner: str | None
    """Who took it last and has not given it back; None if it is free."""
    term: int
    """How often it was taken or broken; it falls only if its cells were damaged and dropped."""
    duration: float
    beats: int
    """How often it was renewed in this term: who looks twice sees whether the holder lives."""
    gone: bool = False
    """Whether its holder is known to be gone: a process of this machine that is no more."""
    damage: str | None = None
    """What is wrong with its cells. If it is its token, only where it lies is known, which is its
    `name` here; nobody gets it until it is broken by its own name."""


def told(token: Token, gone: Callable[[str | None], bool]) -> LeaseInfo:
    """A lease for people; how often it was renewed is in another cell."""
    owner = token.owner
    return LeaseInfo(token.name, shown(owner), token.term, token.duration, 0, gone(owner))


# ---- lease names --------------------------------------------------------------------------------
# Names of leases that stand for something else: always legal, and never two things with one name.
#
# lease_name("recovery", "agent:7")        # recovery/agent:7
# lease_name("agent", "a/b")               # agent/a%2Fb
# running_lease(Scope("agent", "7"))       # agent/7: of who runs it


_HASHED = "/%~"
"""What no escaped part begins with."""


def lease_name(*parts: str) -> str:
    """The name of a lease that these parts have, and no others.

    Parts are joined by `/`, with `/` and `%` in them percent-encoded. What is too long for a key or
    would be no legal one has a hash behind its first part, which is one of the program's own.
    """
    name = "/".join(map(escape, parts))
    try:
        if check_key(name) == name:
            return name
    except InvalidKeyError:
        pass
    return f"{parts[0]}{_HASHED}{sha256(name.encode()).hexdigest()}"


def lease_parts(name: str) -> list[str] | None:
    """The parts that make such a name; None if they are hashed."""
    return None if _HASHED in name else [unescape(part) for part in name.split("/")]


def running_lease(scope: Scope, timeline: str = "main") -> str:
    """The lease of who runs an agent; each timeline has its own."""
    parts = [scope.kind, scope.id, "" if timeline == "main" else timeline]
    return lease_name(*filter(None, parts))


# ---- asking and waiting -------------------------------------------------------------------------
# Asking for a lease and waiting for it.


SHORTEST, LONGEST = 0.1, 86_400.0
"""Seconds that a lease may last without a beat."""
FIRST_LOOK, LAST_LOOK = 0.001, 0.05
"""Seconds between two looks at a lease that is held: at first, and after some time."""


class Lending(Protocol):
    """An open store, as far as it has leases."""

    @property
    def leases(self) -> Leases:
        """Those of it."""
        ...


class Asking:
    """Somebody who wants a lease, and waits for it if need be."""

    def __init__(
        self,
        core: Lending,
        name: str,
        duration: float,
        wait: float | None,
        owner: str | None,
    ) -> None:
        self._core = core
        self._name = check_name(name)
        if not is_seconds(duration, SHORTEST, LONGEST):
            raise InvalidInputError(f"duration is {SHORTEST} to {LONGEST:.0f} seconds")
        check_seconds(wait, "wait")
        if owner is not None:
            check_text(owner, "the owner of a lease", 256, least=1)
            if shown(owner) != owner:
                raise InvalidInputError(
                    "the owner of a lease ends like the name under which a process holds leases, "
                    "and would be taken for one; leave it out, or give another"
                )
        self._duration = float(duration)
        self._owner = owner or this_process()
        self._wait = wait
        self._end = time.monotonic() + wait if wait is not None else None
        self._pause = FIRST_LOOK

    def take(self) -> Lease | None:
        """The lease; None if it is to be waited for."""
        lease = self._core.leases.take(self._name, self._duration, self._owner)
        if lease is None and self._end is not None and time.monotonic() >= self._end:
            raise LeaseHeldError(
                f"another holds the lease {self._name!r}; it was waited for {self._wait:g} s: "
                "try again later, or let an operator break it if its holder is gone"
            )
        return lease

    def pause(self) -> float:
        """Seconds until the next look."""
        pause, self._pause = self._pause, min(2 * self._pause, LAST_LOOK)
        left = self._end - time.monotonic() if self._end is not None else pause
        return max(min(pause, left), 0)


def check_name(name: str) -> str:
    """The name of a lease, which follows the rules of keys."""
    try:
        return check_key(name)
    except InvalidKeyError as error:
        raise InvalidInputError(f"the name of a lease follows the rules of keys: {error}") from None


def taking(asked: Asking) -> Steps[Lease]:
    """The steps to a lease, which may have to be waited for."""
    while True:
        lease: Lease | None = yield write(asked.take, undo=given_back)
        if lease is not None:
            return lease
        yield pause(asked.pause())


taken = steps(taking)
"""The lease, once it can be had; `LeaseHeldError` if that takes too long."""


async def taken_async(asked: Asking) -> Lease:
    """The same in an event loop, which goes on meanwhile."""
    return await asynchronous(taken)(asked)  # type: ignore[no-any-return]


def given_back(lease: Lease | None) -> None:
    """Undo a `take`."""
    if lease is not None:
        lease.release()


# ---- processes ----------------------------------------------------------------------------------
# Which process holds a lease, and whether it is known to be no more.
#
# The name of a holder is `HOST/NUMBER`, and on Linux behind it `#MACHINE.START`: a hash of what
# numbers of processes mean anything in (the kernel since it was started, the namespace of
# processes, that of times), and when the process was started. So a process that was killed is told
# from
#
# - one of another machine or container that has the same host name and number: another `MACHINE`;
# - one that was given its number since: another `START`;
# - one that only is not heard, stopped or slow: it is there.
#
# Where any of this cannot be seen, nobody is known to be gone, and time decides. One that was
# frozen and is thawed as another process counts as gone: what it writes under its leases is
# refused.


_MARK = re.compile(r"/(\d{1,10})#([0-9a-f]{16})\.(\d+)$", re.ASCII)
_ENDED = "ended"
"""Stands for the start of a process that has ended, though its number is not free yet."""


def this_process() -> str:
    """The name under which this process holds leases."""
    return _name_of(os.getpid())


@lru_cache(1)
def _name_of(number: int) -> str:
    import socket  # only who takes a lease pays for loading it

    name = f"{socket.gethostname()[:200]}/{number}"
    machine, start = _machine(number), _start(number)
    return f"{name}#{machine}.{start}" if machine and start else name


def shown(owner: str | None) -> str | None:
    """What people see of the name of a holder."""
    mark = _MARK.search(owner) if owner else None
    return owner[: mark.start(2) - 1] if owner and mark else owner


def is_gone(owner: str | None) -> bool:
    """Whether a holder is a process of this machine that is no more; False if that is not known."""
    mark = _MARK.search(owner) if owner else None
    if mark is None or mark[2] != _machine(os.getpid()):
        return False
    number = int(mark[1])
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # there is one that is another user's
    start = _start(number)
    return start is not None and start != mark[3]


@lru_cache(1)
def _machine(mine: int) -> str | None:
    """A hash of what the numbers of processes, this one's too, are good within; None if that cannot
    be seen."""
    try:
        if os.readlink("/proc/self") != str(mine):
            return None  # it shows the numbers of another namespace
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts = [file.read().strip(), os.readlink("/proc/self/ns/pid")]
        if os.path.lexists("/proc/self/ns/time"):  # starts are told as this one counts
            parts.append(os.readlink("/proc/self/ns/time"))
    except OSError:
        return None
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16] if all(parts) else None


def _start(number: int) -> str | None:
    """When a process was started, in ticks of its kernel; None if that cannot be seen."""
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            data = file.read()
        fields = data[data.rindex(b")") + 2 :].split()  # behind its name, which may hold anything
        state, threads, start = fields[0], int(fields[17]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
    # Nobody has asked how it ended, and none of its threads is left, which may outlive the first.
    return _ENDED if state in (b"Z", b"X") and threads <= 1 else str(start)
