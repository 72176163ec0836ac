"""Erasing: a scope's content is removed, not only its name.

1. One commit ends the scope as deleting does, and puts its tombstone. From then on it is gone for
   every reader, and no writer can add to it: each commit expects that there is no tombstone.
2. What leads to its entries from outside (ids of changes, correlations) is dropped. That is found
   by reading its entries, and so comes before
3. its keys leave the ring,
4. its rows are dropped in slices, and its other directory rows, which hold the name, last.
5. The engine's logs, in which all that still lies, are emptied.

Every step can be done again, so whoever was cut short calls once more. The tombstone stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.errors import (
    Conflict,
    FormatError,
    KeyringError,
    PrunedError,
    ScopeNotFoundError,
    StateIntegrityError,
    StillNeededError,
)
from holdfast.storage.contract import Batch
from holdfast.storage.rows import Row, again, each, pages
from holdfast.store.commit.change import Outcome, row_of, scope_tag
from holdfast.store.commit.group import Core
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.journal import entry
from holdfast.store.journal.directory import (
    IN_LOGS,
    Tombstone,
    by_number,
    entomb,
    erased_since,
    read_tombstone,
)
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import Erased, ErasedSubject
from holdfast.store.names.scope import Scope
from holdfast.store.rules.gates import GateRequest, Operation
from holdfast.store.rules.hold_reasons import check_unmarked
from holdfast.store.rules.owned import TABLE
from holdfast.store.rules.subjects import check_subject

SLICE = 256
"""Rows that are read and dropped together: what bounds memory and the length of a commit."""

_UNREADABLE = (StateIntegrityError, FormatError, KeyringError)
"""What stands in the way of reading a scope that is to be erased: that is done all the same."""
_Life = dict[int, tuple[bytes, bytes]]
"""Directory rows of one scope, by state."""
_decode = msgspec.msgpack.Decoder().decode


def erase_scope(
    handle: StoreHandle, scope: Any, wait: bool = True, *, despite_holds: bool = False
) -> Erased:
    """End a scope and remove what it held: its rows, and its keys from the ring.

    All scopes that ever had this name are erased, deleted ones included; one that somebody makes
    under the name meanwhile is not. Erasing again finishes what was cut short. What recoveries of
    it have kept goes first: damaged rows that they set aside are its content, too.

    `wait=False`: only the first step and the third are waited for, however much the scope holds.
    Its content cannot be read from then on; `sweep`, at any time, does the others, as does erasing
    again. In a plain store the rows are the content, and are always waited for.

    What stays, without content: the tombstone (numbers and a time), the feed's rows (numbers and
    hashes), and rows of change ids that scopes which are not erased share (with its name). Out of
    reach: copies of the files, of the ring and of values made before, and memory of processes.
    """
    check_flag(wait, "wait")
    check_flag(despite_holds, "despite_holds")
    line = handle.of(scope)
    line.check_present()
    wait = wait or handle.core.ring is None
    if not despite_holds:  # before anything goes; what is put on hold from now on is seen below
        _refuse_held(line.on("main"))
    line.ask("erase scope", str(line.scope))  # what is kept beside it is part of that
    for beside in (one.scope_beside(line.scope) for one in TABLE.index.beside):
        with suppress(ScopeNotFoundError):
            _Erasure(handle, beside, wait, despite_holds=despite_holds).run()
    return _Erasure(handle, line.scope, wait, despite_holds=despite_holds).run()


def _refuse_held(main: LineHandle) -> None:
    """Refuse if a checkpoint is on hold, or may be; not where the ring says that it is erased."""
    try:
        line = main.reader.now()
        if line is not None:
            check_unmarked(main.core, line.ledger, line.scan)
    except _UNREADABLE as error:
        tag = main.core.tag(b"directory", str(main.scope))
        lives = [life for _, life in _lives(main.core, b"D" + tag) if set(life) == {rowkinds.THERE}]
        if not any(erased_since(main.core, *life[rowkinds.THERE]) for life in lives):
            raise StillNeededError(
                f"{main.scope}: whether a checkpoint of it is on hold cannot be read: recover it "
                f"first, or erase it with despite_holds=True. {error}"
            ) from error


def finish_erasures(handle: StoreHandle) -> tuple[int, int, int]:
    """Drop what erasing scopes and subjects has left: how many those were, rows and bytes.

    One that was made since under the same name is left alone.
    """
    scopes = count = size = 0
    handle.core.leases.stand()  # the ring expects none
    subjects = handle.core.subjects.finish()
    for life in [life for _, life in _lives(handle.core, b"D") if rowkinds.ERASED in life]:
        if rowkinds.THERE in life:
            name = _decode(handle.core.open_row(*life[rowkinds.THERE]))[0]
            work = _Erasure(handle, Scope.parse(name), wait=True)
            work.clear(read_tombstone(handle.core, *life[rowkinds.ERASED]), life)
            scopes, count, size = scopes + 1, count + work.rows, size + work.bytes
    if scopes:
        handle.core.settle()
    return scopes + subjects, count, size


def _lives(core: Core, low: bytes) -> Iterator[tuple[bytes, _Life]]:
    """What the directory says, below a beginning, of each scope; where its tombstone goes."""
    found: dict[bytes, _Life] = {}
    for key, row in each(core.storage.scan, low, rowkinds.after(low)):
        found.setdefault(rowkinds.tombstone(key), {})[rowkinds.state_of(key)] = key, row
    yield from found.items()


class _Erasure:
    def __init__(
        self, handle: StoreHandle, scope: Scope, wait: bool, *, despite_holds: bool = False
    ) -> None:
        self.wait = wait
        self.despite_holds = despite_holds
        self.handle = handle
        self.core = handle.core
        self.storage = handle.core.storage
        self.scope = scope
        self.rows = self.bytes = self.keys = 0
        self.shared: set[bytes] = set()
        """Change rows that stay, because entries of other scopes rest on them."""
        self._erased: set[int] | None = None
        self._settled = True

    def run(self) -> Erased:
        self.core.leases.stand()
        readable = self._end()
        lives = 0
        tag = self.core.tag(b"directory", str(self.scope))
        for key, life in list(_lives(self.core, b"D" + tag)):
            tombstone = self._entombed(key, life, end=not readable)
            if tombstone is not None:
                if self.wait:
                    self.clear(tombstone, life)
                else:
                    self._drop_keys(tombstone)
                lives += 1
        if not lives:
            raise ScopeNotFoundError(f"there is no scope {self.scope} in this store")
        self._settled = self.core.settle(data=self.wait)
        return Erased(
            self.scope, lives, self.rows, self.bytes, self.keys > 0, tuple(self._still_open())
        )

    def _still_open(self) -> Iterator[str]:
        if self.core.ring is None:
            yield "copies, backups and snapshots of the store's files made before hold the content"
        else:
            yield (
                "copies of the ring made before still hold the key: together with the master key "
                "they open copies, backups and snapshots of the store's files made before; "
                "rotate_master(), and destroying the old key, ends that"
            )
        if not self.wait:
            yield "its rows, which nobody can read any more; sweep() drops them"
        yield "exports made of it before hold its content; this store refuses to import them"
        if not self._settled:
            yield IN_LOGS
        if self.core.near is not None:
            yield self.core.near.left()
        yield "processes that had it open keep in memory what they read until they look again"
        yield (
            "what other scopes wrote of it names it still, as handovers, letters and checkpoints "
            "that depend on it do"
        )
        if self.shared:
            yield f"{len(self.shared)} rows of change ids shared with other scopes hold its name"

    # ending

    def _end(self) -> bool:
        """Put the tombstone of the scope that is there; False if its state cannot be read."""

        def step() -> None:  # again if a timeline was forked meanwhile
            change, finish = self.handle.plan_delete(
                self.scope, None, erase=True, despite_holds=self.despite_holds
            )
            finish(self.core.run(change))

        try:
            again(step, f"{self.scope}: other writers were always faster; try again")
        except ScopeNotFoundError:
            pass  # perhaps deleted or erased before
        except _UNREADABLE:
            return False
        return True

    def _entombed(self, key: bytes, life: _Life, *, end: bool) -> Tombstone | None:
        """The tombstone, put if need be; None of a scope that was made meanwhile."""
        if rowkinds.ERASED in life:
            return read_tombstone(self.core, *life[rowkinds.ERASED])
        if rowkinds.DELETED not in life and not end:
            return None
        number, scope_id = self._opened(life[rowkinds.THERE])[1:3]
        if rowkinds.DELETED in life:
            last = self._opened(life[rowkinds.DELETED])[2]
        else:
            # Its state cannot be read: the highest number of an entry is that of all its rows.
            prefix = b"E" + number.to_bytes(rowkinds.SCOPE, "big")
            rows = each(self.storage.scan, prefix, rowkinds.after(prefix))
            last = max((rowkinds.sequence_of(key) for key, _ in rows), default=0)
        made = entomb(self.core, key, number, last, scope_id)
        try:
            self.core.leases.commit(Batch(puts=[made], absent=[key]))
        except Conflict:  # somebody else is at it, too
            made = key, self.storage.get([key])[0] or b""
        return read_tombstone(self.core, *made)

    def _opened(self, found: tuple[bytes, bytes]) -> Any:
        return _decode(self.core.open_row(*found))

    # dropping

    def clear(self, tombstone: Tombstone, life: _Life) -> None:
        """Drop all but the tombstone. The name goes last: without it nobody could look again."""
        number = tombstone.number.to_bytes(rowkinds.SCOPE, "big")
        if rowkinds.THERE in life:
            self._drop_accounts(tombstone, life)
        self._drop_keys(tombstone)
        prefixes = [kind + number for kind in rowkinds.OF_SCOPE]
        # Content is overwritten where it lies, of a plain store; without a key it is the content.
        # Dropping moves rows that lie near, and where they lay, traces of them can stay: nothing of
        # this scope may be in those that are still to be dropped.
        for prefix in prefixes if self.core.ring is None else ():
            for page in self._pages(prefix):
                self.core.leases.commit(Batch(blanks=[key for key, _ in page]))
        for kind in (b"A", b"P", b"R"):
            self._unpin(kind + number)
        for prefix in prefixes:
            for page in self._pages(prefix):
                self._drop(page)
        self._unpin(rowkinds.BESIDE + number)
        self._drop([life[state] for state in (rowkinds.THERE, rowkinds.DELETED) if state in life])

    def _drop_keys(self, tombstone: Tombstone) -> None:
        """From here on nobody can read what the scope held, if the store is encrypted."""
        if self.core.ring is not None:
            self.core.leases.stand()
            self.keys += self.core.ring.erase(tombstone.id)

    def _unpin(self, prefix: bytes) -> None:
        """Drop cells of a scope: pins of values that were not finished, what rested on it, who
        prunes it.

        The tombstone tells their writers.
        """
        while page := self.storage.cells(prefix, rowkinds.after(prefix), limit=SLICE):
            with suppress(Conflict):  # a beat in the last moment: look again
                self.core.leases.commit(Batch(cells=[(key, value, None) for key, value in page]))

    def _pages(self, prefix: bytes) -> Iterator[Sequence[Row]]:
        return pages(self.storage.scan, prefix, rowkinds.after(prefix), limit=SLICE)

    def _drop(self, found: Sequence[Row]) -> None:
        if found:
            self.core.leases.commit(Batch(drops=[key for key, _ in found]))
            self.rows += len(found)
            self.bytes += sum(len(key) + len(row) for key, row in found)

    def _drop_accounts(self, tombstone: Tombstone, life: _Life) -> None:
        """Drop what leads from ids and correlations to the scope's entries."""
        try:
            ledger = self.core.ledger_of(*life[rowkinds.THERE])
        except (ScopeNotFoundError, KeyringError):
            self._sweep(tombstone, life)  # its key is gone: entries do not tell any more
            return
        readable = True
        prefix = b"E" + tombstone.number.to_bytes(rowkinds.SCOPE, "big")
        for page in self._pages(prefix):
            wanted: set[bytes] = set()
            for key, row in page:
                try:
                    body = ledger.open_entry(key, row)[1]
                    wanted |= self._accounts(ledger, key, body)
                    if any(op[0] in (entry.LOST, entry.SPOILT) for op in body.ops):
                        readable = False  # those that it tells of are not there to be asked
                except (*_UNREADABLE, ScopeNotFoundError, PrunedError):
                    readable = False
            names = sorted(wanted)
            found = zip(names, self.storage.get(names) if names else [], strict=True)
            self._drop([(key, row) for key, row in found if row is not None])
        if not readable:
            self._sweep(tombstone, life)

    def _accounts(self, ledger: Ledger, key: bytes, body: Body) -> set[bytes]:
        """Keys of the rows that lead to an entry and to none of a scope that is not erased."""
        found: set[bytes] = set()
        if body.cause is not None and body.cause.correlation is not None:
            tag = self.core.tag(b"correlation", body.cause.correlation)
            line = rowkinds.line_of(key)
            found.add(rowkinds.correlation(tag, ledger.number, line, rowkinds.sequence_of(key)))
        if (name := row_of(self.core, ledger, body)) is not None:
            if self._erased is None:
                known = by_number(self.core).items()
                self._erased = {n for n, (key, _) in known if key[21] == rowkinds.ERASED}
            if self._erased.issuperset(number for number, _, _ in body.also):
                found.add(name)
            else:
                self.shared.add(name)
        return found

    def _sweep(self, tombstone: Tombstone, life: _Life) -> None:
        """The same without the entries: all rows of the two kinds are looked through."""
        before = self._opened(life[rowkinds.THERE])[5]
        number = tombstone.number.to_bytes(rowkinds.SCOPE, "big")
        for page in self._pages(b"R"):
            self._drop([(key, row) for key, row in page if key[17:23] == number])
        for page in self._pages(b"I"):
            self._drop([one for one in page if self._alone(one, before, tombstone.last)])

    def _alone(self, found: tuple[bytes, bytes], before: int, last: int) -> bool:
        """Whether a change row speaks of this scope alone; one that names others, too, is noted."""
        try:
            outcome = Outcome(*self._opened(found))
        except StateIntegrityError:
            return False  # whose it was cannot be known; `verify` names it
        scope, tag = str(self.scope), scope_tag(self.core, str(self.scope))
        named = [name == scope and before < n <= last for name, _, n, *_ in outcome.places]
        mine = [*named, *(one == tag for one, _ in outcome.others)]
        if any(named) and not all(mine):
            self.shared.add(found[0])
        return all(mine)


def erase_subject(core: Core, name: str) -> ErasedSubject:
    """Remove a subject's key, if the gates let that pass; see `Store.erase_subject`."""
    core.check_writable()
    core.leases.stand()
    core.subjects.ring()
    name = check_subject(name)
    if core.gates.front:
        operation = Operation("erase subject", "", name)
        core.gates.ask(GateRequest(Scope("global"), "main", [operation], cause_now()))
    return core.subjects.erase(name)
