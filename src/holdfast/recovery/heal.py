"""Healing: a damaged row is replaced by the one that a copy of the store still has.

A copy is another open store of the same lineage: the same file at another time or place. Its row is
believed only for what this store itself commits to: all of the scope is verified with the row in
its place, before anything is written. So a copy that was changed, or that went its own way since,
can give nothing wrong. The damaged row is set aside first; then one storage commit puts the other
in its place, if it is still the damaged one that is there. What no copy has is made again, if its
content follows from the rest (`derived_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holdfast.errors import (
    Conflict,
    InvalidInputError,
    PrunedError,
    ReadOnlyError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.recovery.derived_rows import ledgers_of, made_again, name_lost, standing
from holdfast.recovery.quarantine import Quarantine
from holdfast.storage.contract import Batch, Moment, Storage
from holdfast.storage.wrappers.base import Around
from holdfast.store.commit.core import Core
from holdfast.store.commit.storage_view import seen_in
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import entry
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope
from holdfast.store.proof.verify import verify_store
from holdfast.store.proof.verify_report import Finding

ROUNDS = 5
"""Times that a scope is verified with rows of one copy, each time without those that do not fit."""
MOST_MISSING = 10_000
"""Entries in a row that are missing and can be healed together."""


@dataclass(frozen=True, slots=True)
class Healed:
    """A row that is whole again."""

    scope: Scope | None
    """None for a row that belongs to no scope: of the directory, or of an erased subject."""
    row: str
    """Its key in storage, in hexadecimal: the id of the damaged one in quarantine begins so."""
    place: str
    copy: int | None
    """Which of the copies had it; None if it was made again from what else is there."""
    lost: str = ""
    """What could not be made again with it, for people."""


class _Overlaid:
    """A moment that is read as if some rows were others."""

    def __init__(self, moment: Moment, over: Mapping[bytes, bytes]) -> None:
        self._moment = moment
        self._over = over

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        found = dict(self._moment.scan(low, high, limit=limit, reverse=reverse))
        found |= {key: row for key, row in self._over.items() if low <= key < high}
        return sorted(found.items(), reverse=reverse)[:limit]

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        return self._moment.cells(low, high, limit=limit)


class Overlay(_Overlaid, Around):
    """A storage that is read as if some rows were others; nothing can be written."""

    def __init__(self, storage: Storage, over: Mapping[bytes, bytes]) -> None:
        _Overlaid.__init__(self, storage, over)
        Around.__init__(self, storage)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self.inner.get(keys)
        return [self._over.get(key, row) for key, row in zip(keys, found, strict=True)]

    def commit(self, batch: Batch) -> None:
        raise ReadOnlyError("this is only looked at")

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        with self.inner.moment() as moment:
            yield _Overlaid(moment, self._over)

    def close(self) -> None:
        """The storage below belongs to somebody else."""


def check_copies(core: Core, copies: Sequence[Core]) -> None:
    """Refuse stores that are no copies of this one."""
    for number, one in enumerate(copies):
        if one is core or one.lineage != core.lineage:
            raise InvalidInputError(
                f"copy {number} is no copy of this store: rows can be healed from another open "
                "store that was made by copying this one's files"
            )


def heal(
    store: StoreHandle,
    scope: Scope,
    findings: Iterable[Finding],
    copies: Sequence[Core],
    *,
    rename: bool = False,
) -> list[Healed]:
    """Heal the rows of a scope that findings of `verify` are about, as far as a copy has them, or
    they can be made again; with `rename` that is so of a timeline whose name is lost, too."""
    core = store.core
    check_copies(core, copies)
    named = {bytes.fromhex(one.row): one for one in findings if one.row}
    done: dict[bytes, Healed] = {}
    absent = standing(core, scope)  # before anything is read or sealed
    for number, other in _sources(copies):
        keys = [key for key in named if key not in done]
        good = _fitting(core, scope, _offered(core, other, scope, keys, rename))
        damaged = [named.get(key) or _missing(scope, key) for key in good]
        Quarantine(store, scope).add(damaged)
        for key, row in good.items():
            if replace(core, key, row, absent):
                lost = (
                    name_lost(core, scope, key) if other is None and rowkinds.is_fork(key) else ""
                )
                done[key] = Healed(scope, key.hex(), rowkinds.describe(key), number, lost)
    if done:
        core.lost()  # what is held of the scope was read around the damage
    return list(done.values())


def heal_all(
    store: StoreHandle,
    scope: Scope,
    findings: Sequence[Finding],
    copies: Sequence[Core],
    *,
    rename: bool = False,
) -> tuple[list[Finding], list[Healed]]:
    """Heal a scope as far as that can be done: what is still wrong, and what is no more.

    A damaged row hides what is behind it: what is wrong is looked for again after each time. Names
    of timelines are given up (`rename`) only when all else is done: until then a copy may have it.
    """
    left = list(findings)
    healed: list[Healed] = []
    for last in (False, True) if rename else (False,):
        while left and (done := heal(store, scope, left, copies, rename=last)):
            healed += done
            left = _still(store.core, scope)
    return left, healed


def would_heal(
    core: Core,
    scope: Scope,
    findings: Sequence[Finding],
    copies: Sequence[Core],
    *,
    rename: bool = False,
) -> tuple[list[Finding], dict[bytes, bytes]]:
    """What `heal_all` would leave, and the rows that it would put in; nothing is written."""
    check_copies(core, copies)
    left, given = list(findings), dict[bytes, bytes]()
    for last in (False, True) if rename else (False,):
        while left:
            seen = looking(core, given)
            try:
                keys = [bytes.fromhex(one.row) for one in left if one.row]
                more: dict[bytes, bytes] = {}
                for _, other in _sources(copies):
                    wanted = [key for key in keys if key not in more]
                    more |= _fitting(seen, scope, _offered(seen, other, scope, wanted, last))
            finally:
                seen.close()
            if not more:
                break
            given |= more
            seen = looking(core, given)
            try:
                left = _still(seen, scope)
            finally:
                seen.close()
    return left, given


def _sources(copies: Sequence[Core]) -> list[tuple[int | None, Core | None]]:
    """Where rows can be had from: each copy, and at last none, for what can be made again."""
    return [*enumerate(copies), (None, None)]


def _still(core: Core, scope: Scope) -> list[Finding]:
    try:
        report = verify_store(core, scope)
    except ScopeNotFoundError:
        return []  # deleted since
    return [one for one in report.findings if one.scope == str(scope)]


def _missing(scope: Scope, key: bytes) -> Finding:
    return Finding("chain", rowkinds.describe(key), "it is missing", str(scope), (), key.hex())


def _offered(
    core: Core, other: Core | None, scope: Scope, keys: list[bytes], rename: bool
) -> dict[bytes, bytes]:
    """Rows for the place of damaged or missing ones, from one source."""
    if other is None:
        return made_again(core, scope, keys, rename=rename)
    return _candidates(core, other, scope, keys)


def _candidates(core: Core, other: Core, scope: Scope, keys: list[bytes]) -> dict[bytes, bytes]:
    """Rows of a copy that are other than ours, or that we lack."""
    found = zip(keys, core.storage.get(keys), other.storage.get(keys), strict=True)
    given = {key: row for key, mine, row in found if row is not None and row != mine}
    for key in keys:
        if key[:1] == b"E":
            given |= _gap(core.storage, other.storage, key)
            # A finding about signatures names the checkpoint that they lie beside.
            given |= _differing(core.storage, other.storage, rowkinds.signature(key, b""))
        elif key[:1] == b"A":  # one that is missing is known by the anchors alone
            given |= _differing(core.storage, other.storage, key[:9], newest=True)
    given |= _deletions(core, other, scope, keys)
    return {
        key: row
        for key, row in given.items()
        if not rowkinds.is_fork(key) or _same_beginning(core.storage, other.storage, key)
    }


def _differing(
    storage: Storage, other: Storage, prefix: bytes, *, newest: bool = False
) -> dict[bytes, bytes]:
    """Rows of a copy behind a prefix that are other than ours, or that we lack; or the last."""
    limit = 1 if newest else rowkinds.MOST_SIGNATURES
    found = dict(other.scan(prefix, rowkinds.after(prefix), limit=limit, reverse=newest))
    mine = dict(zip(found, storage.get(list(found)), strict=True))
    return {key: row for key, row in found.items() if row != mine[key]}


def _same_beginning(storage: Storage, other: Storage, key: bytes) -> bool:
    """Whether a timeline is the same one in a copy: it began with the same entry.

    Forks that a copy made since have numbers that others have here.
    """
    prefix = rowkinds.line(b"E", rowkinds.scope_of(key), rowkinds.line_of(key))
    first = [at.scan(prefix, rowkinds.after(prefix), limit=1) for at in (storage, other)]
    try:
        mine, theirs = ((k, entry.split_row(row)[0].data) for ((k, row),) in first)
    except (StateIntegrityError, ValueError):
        return False  # healed first, if a copy has it
    return mine == theirs


def _deletions(core: Core, other: Core, scope: Scope, keys: list[bytes]) -> dict[bytes, bytes]:
    """Rows of a copy that say that the scope is deleted, where entries here end with just that."""
    given: dict[bytes, bytes] = {}
    ledgers = ledgers_of(core, scope) if any(key[:1] == b"E" for key in keys) else {}
    for key in keys:
        ledger = ledgers.get(rowkinds.scope_of(key)) if key[:1] == b"E" else None
        if ledger is None:
            continue
        ended = rowkinds.deletion(ledger.tombstone)
        mine, theirs = core.storage.get([key, ended]), other.storage.get([ended])[0]
        with suppress(StateIntegrityError, PrunedError):
            ops = ledger.open_entry(key, mine[0])[1].ops
            if mine[1] is None and theirs is not None and ops[-1][0] == entry.GONE:
                given[ended] = theirs
    return given


def _gap(storage: Storage, other: Storage, key: bytes) -> dict[bytes, bytes]:
    """Entries of a copy where we have none, just before a key, and from it on.

    A finding about entries that are missing names the next one that is there.
    """
    first, end = key[:9], rowkinds.after(key[:9])
    before = storage.scan(first, key, limit=1, reverse=True)
    behind = storage.scan(key, end, limit=1)
    low = before[0][0] + b"\0" if before else first
    high = behind[0][0] if behind else end
    return dict(other.scan(low, high, limit=MOST_MISSING))


def _fitting(core: Core, scope: Scope, given: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Those rows that are what this store commits to, as a verification with them shows.

    An entry is committed to by the one behind it, or by the feed if it is the newest: so a finding
    about the one behind speaks against it, too.
    """
    for _ in range(ROUNDS):
        if not given:
            break
        seen = looking(core, given)
        storage = seen.storage
        try:
            report = verify_store(seen, scope)
        finally:
            seen.close()
        wrong = {bytes.fromhex(one.row) for one in report.findings if one.row}
        wrong |= {key for key in given if key[:1] == b"C" and b"E" + key[1:14] in wrong}
        left = {key: row for key, row in given.items() if key not in wrong}
        if len(left) == len(given):
            left = _followed(storage, given, wrong)
        if len(left) == len(given):
            return given
        given = left  # what was judged together with those that go is judged again
    return {}


def _followed(
    storage: Storage, given: Mapping[bytes, bytes], wrong: set[bytes]
) -> dict[bytes, bytes]:
    """Those rows that are no entries, or whose next entry is there and right, if any is."""
    good: dict[bytes, bytes] = {}
    refused = set(wrong)
    for key in sorted(given, reverse=True):
        if key[:1] == b"E":
            behind = rowkinds.entry(key[:9], rowkinds.sequence_of(key) + 1)
            found = storage.scan(behind, rowkinds.after(key[:9]), limit=1)
            if behind in refused or (found and found[0][0] != behind):
                refused.add(key)
                continue
        good[key] = given[key]
    return good


def looking(core: Core, over: Mapping[bytes, bytes]) -> Core:
    """The same store, read as if some rows were others, with nothing that was read before."""
    return seen_in(core, Overlay(core.storage, over))


def replace(core: Core, key: bytes, row: bytes, absent: Sequence[bytes] = ()) -> bool:
    """Put a row in the place of the damaged or missing one; False if another was faster."""
    before = core.storage.get([key])[0]
    batch = Batch(puts=[(key, row)], absent=[key, *absent])
    if before is not None:
        batch = Batch(swaps=[(key, before, row)], absent=list(absent))
    try:
        core.leases.commit(batch)
    except Conflict:
        return False
    return True
