"""Healing: a damaged row is replaced by the one that a copy of the store still has.

A copy is another open store of the same lineage: the same file at another time or place. Its row is
believed only for what this store itself commits to: all of the scope is verified with the row in
its place, before anything is written. So a copy that was changed, or that went its own way since,
can give nothing wrong. The damaged row is set aside first; then one storage commit puts the other
in its place, if it is still the damaged one that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    ReadOnlyError,
    ScopeNotFoundError,
)
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import notices_scope
from holdfast.storage.contract import Batch, Moment, Storage
from holdfast.store import rows
from holdfast.store.core import Core
from holdfast.store.handles import StoreHandle
from holdfast.store.scopes import Scope
from holdfast.store.seeing import seen_in
from holdfast.store.verify import verify_store
from holdfast.store.verify_report import Finding

ROUNDS = 5
"""Times that a scope is verified with rows of one copy, each time without those that do not fit."""
MOST_MISSING = 10_000
"""Entries in a row that are missing and can be healed together."""


@dataclass(frozen=True, slots=True)
class Healed:
    """A row that is whole again."""

    scope: Scope | None
    """None for a row of the directory."""
    row: str
    """Its key in storage, in hexadecimal: the id of the damaged one in quarantine begins so."""
    place: str
    copy: int
    """Which of the copies had it."""


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


class Overlay(_Overlaid):
    """A storage that is read as if some rows were others; nothing can be written."""

    def __init__(self, storage: Storage, over: Mapping[bytes, bytes]) -> None:
        super().__init__(storage, over)
        self._storage = storage
        self.limits = storage.limits

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._storage.get(keys)
        return [self._over.get(key, row) for key, row in zip(keys, found, strict=True)]

    def commit(self, batch: Batch) -> None:
        raise ReadOnlyError("this is only looked at")

    def version(self) -> object:
        return self._storage.version()

    def turn(self) -> AbstractContextManager[object]:
        return self._storage.turn()

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        with self._storage.moment() as moment:
            yield _Overlaid(moment, self._over)

    def size(self) -> int:
        return self._storage.size()

    def check(self) -> list[str]:
        return self._storage.check()

    def settle(self) -> bool:
        return self._storage.settle()

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
    store: StoreHandle, scope: Scope, findings: Iterable[Finding], copies: Sequence[Core]
) -> list[Healed]:
    """Heal the rows of a scope that findings of `verify` are about, as far as a copy has them."""
    core = store.core
    check_copies(core, copies)
    named = {bytes.fromhex(one.row): one for one in findings if one.row}
    done: dict[bytes, Healed] = {}
    for number, other in enumerate(copies):
        keys = [key for key in named if key not in done]
        good = _fitting(core, scope, _candidates(core, other, keys))
        damaged = [named.get(key) or _missing(scope, key) for key in good]
        Quarantine(store, scope).add(damaged)
        for key, row in good.items():
            if replace(core, key, row):
                done[key] = Healed(scope, key.hex(), rows.describe(key), number)
    if done:
        core.lost()  # what is held of the scope was read around the damage
    return list(done.values())


def heal_directory(
    store: StoreHandle, findings: Iterable[Finding], copies: Sequence[Core]
) -> list[Healed]:
    """Heal rows of the directory, without which nobody knows that their scopes are there.

    A copy's row is believed if it opens the first row of the scope that lies here.
    """
    core = store.core
    check_copies(core, copies)
    done: dict[bytes, Healed] = {}
    for one in findings:
        key = bytes.fromhex(one.row)
        whole = key[:1] == b"D" and len(key) == rows.DIRECTORY
        if not whole or rows.state_of(key) != rows.THERE:
            continue
        for number, other in enumerate(copies):
            row = other.storage.get([key])[0]
            if row is None or key in done or not _opens(core, key, row):
                continue
            Quarantine(store, notices_scope()).add([one])
            if replace(core, key, row):
                done[key] = Healed(None, key.hex(), rows.describe(key), number)
    return list(done.values())


def _opens(core: Core, key: bytes, row: bytes) -> bool:
    try:
        ledger = core.ledger_of(key, row)
        named = core.tag(b"directory", str(ledger.scope)) == key[1:17]
        return named and bool(core.timelines(ledger))
    except (HoldfastError, ValueError):
        return False  # damaged as well, or of a scope that is none of this store's


def heal_all(
    store: StoreHandle, scope: Scope, findings: Sequence[Finding], copies: Sequence[Core]
) -> tuple[list[Finding], list[Healed]]:
    """Heal a scope as far as copies go: what is still wrong, and what is no more.

    A damaged row hides what is behind it: what is wrong is looked for again after each time.
    """
    left = list(findings)
    healed: list[Healed] = []
    while left and copies and (done := heal(store, scope, left, copies)):
        healed += done
        left = _still(store.core, scope)
    return left, healed


def would_heal(
    core: Core, scope: Scope, findings: Sequence[Finding], copies: Sequence[Core]
) -> tuple[list[Finding], dict[bytes, bytes]]:
    """What `heal_all` would leave, and the rows that it would put in; nothing is written."""
    check_copies(core, copies)
    left, given = list(findings), dict[bytes, bytes]()
    while left and copies:
        seen = looking(core, given)
        try:
            keys = [bytes.fromhex(one.row) for one in left if one.row]
            more: dict[bytes, bytes] = {}
            for other in copies:
                wanted = [key for key in keys if key not in more]
                more |= _fitting(seen, scope, _candidates(seen, other, wanted))
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


def _still(core: Core, scope: Scope) -> list[Finding]:
    try:
        report = verify_store(core, scope)
    except ScopeNotFoundError:
        return []  # deleted since
    return [one for one in report.findings if one.scope == str(scope)]


def _missing(scope: Scope, key: bytes) -> Finding:
    return Finding("chain", rows.describe(key), "it is missing", str(scope), (), key.hex())


def _candidates(core: Core, other: Core, keys: list[bytes]) -> dict[bytes, bytes]:
    """Rows of a copy that are other than ours, or that we lack."""
    found = zip(keys, core.storage.get(keys), other.storage.get(keys), strict=True)
    given = {key: row for key, mine, row in found if row is not None and row != mine}
    for key in keys:
        if key[:1] == b"E":
            given |= _gap(core.storage, other.storage, key)
    return given


def _gap(storage: Storage, other: Storage, key: bytes) -> dict[bytes, bytes]:
    """Entries of a copy where we have none, just before a key, and from it on.

    A finding about entries that are missing names the next one that is there.
    """
    first, end = key[:9], rows.after(key[:9])
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
            behind = rows.entry(key[:9], rows.sequence_of(key) + 1)
            found = storage.scan(behind, rows.after(key[:9]), limit=1)
            if behind in refused or (found and found[0][0] != behind):
                refused.add(key)
                continue
        good[key] = given[key]
    return good


def looking(core: Core, over: Mapping[bytes, bytes]) -> Core:
    """The same store, read as if some rows were others, with nothing that was read before."""
    return seen_in(core, Overlay(core.storage, over))


def replace(core: Core, key: bytes, row: bytes) -> bool:
    """Put a row in the place of a damaged or missing one; False if another was faster."""
    before = core.storage.get([key])[0]
    batch = Batch(puts=[(key, row)], absent=[key])
    if before is not None:
        batch = Batch(swaps=[(key, before, row)])
    try:
        core.leases.commit(batch)
    except Conflict:
        return False
    return True
