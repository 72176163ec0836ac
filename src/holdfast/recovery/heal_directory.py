"""Healing the directory: without its row nobody knows that a scope is there.

A row that is damaged is found by its key. One that is missing is found by the feed, which names
each scope that was ever written to by its number: a copy's row of that number is the one. A copy is
believed as far as what lies here speaks for it:

| a copy's row | is believed if |
| --- | --- |
| of a scope | its name is that of the key, and it opens rows that lie here under its number |
| that a scope is deleted | it names the number of the scope in whose place it lies |
| that a scope is erased | the feed names its number, and no row of it lies here |
| that a subject is erased | it opens in its place, and lay there before |
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.errors import HoldfastError, PrunedError, StateIntegrityError
from holdfast.recovery.heal import Healed, check_copies, looking, replace
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import notices_scope
from holdfast.recovery.tails import Tails
from holdfast.store.commit.core import Core
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal.directory import numbered
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.tombstones import read_tombstone
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify import verify_store
from holdfast.store.proof.verify_report import Finding

_decode = msgspec.msgpack.Decoder().decode
_Rows = dict[bytes, tuple[bytes, int]]
LOOKS = 100
"""Rows of a kind that are tried: one that opens is enough, and some may be damaged, too."""


def heal_directory(
    store: StoreHandle, findings: Sequence[Finding], copies: Sequence[Core]
) -> list[Healed]:
    """Heal rows of the directory that copies still have, and of those that findings of `verify` are
    about, those that say that a scope is deleted or a subject erased."""
    named = {bytes.fromhex(one.row): one for one in findings if one.row}
    done: list[Healed] = []
    for key, (row, copy) in _fitting(store, findings, copies).items():
        place = rowkinds.describe(key)
        lost = Finding("feed", place, "it is missing", "", (), key.hex())
        Quarantine(store, notices_scope()).add([named.get(key, lost)])
        if replace(store.core, key, row):
            done.append(Healed(None, key.hex(), place, copy))
    if done:
        store.core.lost()  # what is held was read as if these scopes were not there
    return done


def would_heal_directory(
    store: StoreHandle, findings: Sequence[Finding], copies: Sequence[Core]
) -> tuple[list[Finding], dict[bytes, bytes]]:
    """What `heal_directory` would leave of findings that belong to no scope, and the rows that it
    would put in; nothing is written."""
    given = {key: row for key, (row, _) in _fitting(store, findings, copies).items()}
    if not given:
        return list(findings), given
    seen = looking(store.core, given)
    try:
        return [one for one in verify_store(seen).findings if not one.scope], given
    finally:
        seen.close()


def _fitting(store: StoreHandle, findings: Sequence[Finding], copies: Sequence[Core]) -> _Rows:
    """Rows of copies that are right here, and which copy has each."""
    core = store.core
    given: _Rows = {}
    check_copies(core, copies)
    damaged = {bytes.fromhex(one.row) for one in findings if one.row}
    unlisted = Tails(store).unlisted() if copies else set()
    for number, other in enumerate(copies) if damaged or unlisted else ():
        there = {at: key for at, key in numbered(other) if at in unlisted}
        wanted = {key for key in damaged if key[:1] in b"DU"} | set(there.values())
        # Of one scope the row that names it comes before the one that says that it is deleted.
        for key, row in zip(sorted(wanted), other.storage.get(sorted(wanted)), strict=True):
            if row is not None and key not in given and _is_right(core, key, row, given, unlisted):
                given[key] = row, number
    return given


def _is_right(core: Core, key: bytes, row: bytes, given: _Rows, unlisted: set[int]) -> bool:
    """Whether what lies here speaks for a copy's row, and for none that is here in its place."""
    if len(key) != (rowkinds.DIRECTORY if key[:1] == b"D" else rowkinds.SUBJECT_TOMBSTONE):
        return False
    with suppress(HoldfastError):
        mine = core.storage.get([key])[0]
        if mine is not None:
            core.open_row(key, mine)
            return False  # another scope's, which was made under the name since
    with suppress(HoldfastError, ValueError):
        if key[:1] == b"U":
            return bool(core.open_row(key, row))
        if rowkinds.state_of(key) == rowkinds.THERE:
            return _opens(core, key, row)
        if rowkinds.state_of(key) == rowkinds.DELETED:
            first = rowkinds.directory(key[1:17], int.from_bytes(key[17:21], "big"), rowkinds.THERE)
            there = core.storage.get([first])[0] or given.get(first, (b"", 0))[0]
            number: int = core.ledger_of(first, there).number
            return bool(_decode(core.open_row(key, row))[0] == number)
        number = read_tombstone(core, key, row).number
        return number in unlisted and not _lies_here(core, number)
    return False


def _opens(core: Core, key: bytes, row: bytes) -> bool:
    """Whether a row of the directory names its scope, and opens a row of it that lies here."""
    ledger = core.ledger_of(key, row)
    named = core.tag(b"directory", str(ledger.scope)) == key[1:17]
    erased = core.storage.get([rowkinds.tombstone(key)])[0] is not None
    return named and not erased and _opens_any(ledger)


def _opens_any(ledger: Ledger) -> bool:
    for kind in (b"T", b"E"):
        prefix = kind + ledger.number.to_bytes(rowkinds.SCOPE, "big")
        for key, row in ledger.storage.scan(prefix, rowkinds.after(prefix), limit=LOOKS):
            with suppress(StateIntegrityError, PrunedError):
                (ledger.open_entry if kind == b"E" else ledger.open_row)(key, row)
                return True
    return False


def _lies_here(core: Core, number: int) -> bool:
    prefixes = [kind + number.to_bytes(rowkinds.SCOPE, "big") for kind in rowkinds.OF_SCOPE]
    return any(core.storage.scan(one, rowkinds.after(one), limit=1) for one in prefixes)
