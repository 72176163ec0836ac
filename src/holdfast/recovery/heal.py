"""Healing: a damaged row is replaced by the one that a copy of the store still has.

A copy is another open store of the same lineage: the same file at another time or place. Its row is
believed only for what this store itself commits to: all of the scope is verified with the row in
its place, before anything is written. So a copy that was changed, or that went its own way since,
can give nothing wrong. The damaged row is set aside first; then one storage commit puts the other
in its place, if it is still the damaged one that is there. What no copy has is made again, if its
content follows from the rest (`made_again`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    PrunedError,
    ReadOnlyError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.recovery.failure_kinds import DAMAGED, AgentFailure, grouped
from holdfast.recovery.lost_entries import Tails, tail_text
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import Tail, notices_scope
from holdfast.recovery.strategies import check_state, unreadable
from holdfast.replicas.compare import Judge, differences, paged
from holdfast.storage.contract import LAST, Batch, Storage
from holdfast.storage.rows import each
from holdfast.storage.wrappers import Around
from holdfast.store.inner import (
    GAP,
    LANES,
    Core,
    FeedHeads,
    Finding,
    Ledger,
    LineHandle,
    Outcome,
    StoreHandle,
    begun_at,
    core_of,
    entry,
    make_room,
    numbered,
    read_tombstone,
    readable_timelines,
    row_of,
    seal_outcome,
    seen_in,
    verify_store,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope

# Rows that can be made again without a copy, since what they hold follows from what else is
# there.
#
# The row of a correlation is empty. The row of the timeline `main` is the same in every scope.
# That of another timeline says where it starts, as its first entry does, and its name, which
# stands nowhere else: without a copy that has it, it is made under a name that says so, for without
# one nobody reaches the timeline, and no scope with such a row can be forked.

_encode = msgspec.msgpack.Encoder().encode


def ledgers_of(core: Core, scope: Scope) -> dict[int, Ledger]:
    """The scopes that have, or had, a name, by their numbers, as far as the directory tells."""
    prefix = b"D" + core.tag(b"directory", str(scope))
    found: dict[int, Ledger] = {}
    for key, row in core.storage.scan(prefix, rowkinds.after(prefix)):
        try:
            if rowkinds.state_of(key) == rowkinds.THERE:
                ledger = core.ledger_of(key, row)
                found[ledger.number] = ledger
        except (HoldfastError, ValueError):
            continue  # damaged, which is found with the directory, or erased
    return found


def made_again(core: Core, scope: Scope, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Those of a scope's damaged or missing rows that can be made again."""
    whole = [key for key in keys if rowkinds.row_kind(key) is not None]
    found = {key: b"" for key in whole if key[:1] == b"R"}
    lines = [key for key in whole if key[:1] == b"T"]
    ledgers = ledgers_of(core, scope) if lines else {}
    for key in lines:
        ledger = ledgers.get(rowkinds.scope_of(key))
        content = _line(core, ledger, rowkinds.line_of(key)) if ledger is not None else None
        if ledger is not None and content is not None:
            found[key] = ledger.seal_row(key, _encode(content), ledger.commit_line)
    return found


def _line(
    core: Core, ledger: Ledger, number: int, lost: tuple[int, int] | None = None
) -> tuple[object, ...] | None:
    """What the row of a timeline says; `lost` is where it starts if the entry that began it cannot
    be read."""
    begun = begun_at(ledger, number) or lost
    if begun is None or not number:
        return begun
    taken = set(readable_timelines(core, ledger).values())
    name = f"timeline-{number}"
    while name in taken:
        name += "-again"
    return (name, *begun)


# rows of a scope

_Rows = dict[bytes, tuple[bytes, int | None]]
"""Rows to put in, and which copy has each; None if it was made again."""
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


class Overlay(Around):
    """A storage that is read as if some rows were others; nothing can be written.

    A moment is that of the storage itself: only the feed is read in one, and none of it heals.
    """

    def __init__(self, storage: Storage, over: Mapping[bytes, bytes]) -> None:
        super().__init__(storage)
        self._over = over

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self.inner.get(keys)
        return [self._over.get(key, row) for key, row in zip(keys, found, strict=True)]

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        found = dict(self.inner.scan(low, high, limit=limit, reverse=reverse))
        found |= {key: row for key, row in self._over.items() if low <= key < high}
        return sorted(found.items(), reverse=reverse)[:limit]

    def commit(self, batch: Batch) -> None:
        raise ReadOnlyError("this is only looked at")

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


def heal_all(
    store: StoreHandle, findings: Sequence[Finding], copies: Sequence[Core]
) -> tuple[list[Finding], list[Healed]]:
    """Heal the rows that findings of `verify` are about, as far as a copy has them, or they can be
    made again: what is still wrong, and what is no more."""
    left: list[Finding] = []
    healed: list[Healed] = []
    for scope, those in grouped(findings).items():
        still, done = heal(store, Scope.parse(scope) if scope else None, those, copies)
        left += still
        healed += done
    return left, healed


def heal(
    store: StoreHandle, scope: Scope | None, findings: Sequence[Finding], copies: Sequence[Core]
) -> tuple[list[Finding], list[Healed]]:
    """The same of one scope, or of the rows that belong to none."""
    core = store.core
    # Asked before anything is read or sealed, and absent still when something is put back: it is
    # not erased since, and what was sealed, or opened, was so under the newest data key.
    there = ledgers_of(core, scope).values() if scope is not None else ()
    absent = [key for one in there for key in (one.tombstone, one.next_epoch())]
    # What rows of no scope had hidden, the next look finds: this one would read the whole store.
    left, rows, named = healing(store, scope, findings, copies, look=scope is not None)
    lost = "it is missing"
    Quarantine(store, scope or notices_scope()).add(
        named.get(key)
        or Finding("chain", rowkinds.describe(key), lost, str(scope or ""), (), key.hex())
        for key in rows
    )
    done = []
    for key, (row, copy) in rows.items():
        if replace(core, key, row, absent):
            lost, number = "", rowkinds.line_of(key)
            if scope is None:
                lost = UNCOMPARED if copy is None else ""
            elif copy is None and rowkinds.is_fork(key):  # its name stood nowhere else
                ledger = ledgers_of(core, scope)[rowkinds.scope_of(key)]
                name = readable_timelines(core, ledger).get(number)
                lost = f"the name of timeline {number}, which is called {name!r} now"
            done.append(Healed(scope, key.hex(), rowkinds.describe(key), copy, lost))
    if done:
        core.lost()  # what is held was read around the damage
    return left if scope is None or len(done) == len(rows) else _still(core, scope), done


def healing(
    store: StoreHandle,
    scope: Scope | None,
    findings: Sequence[Finding],
    copies: Sequence[Core],
    *,
    look: bool = True,
) -> tuple[list[Finding], _Rows, dict[bytes, Finding]]:
    """What healing would leave, the rows that it puts in, and what was wrong with damaged ones.

    A damaged row hides what is behind it: what is wrong is looked for again after each time; behind
    rows of no scope only if `look` asks for it.
    """
    core = store.core
    check_copies(core, copies)
    left = list(findings)
    rows: _Rows = {}
    named: dict[bytes, Finding] = {}
    if scope is None:
        named = {bytes.fromhex(one.row): one for one in findings if one.row}
        rows = _fitting_directory(store, set(named), copies)
        if rows:
            with healed(core, rows) as seen:
                left = _still(seen, None) if look else []
        return left, rows, named
    while left:
        known = {bytes.fromhex(one.row): one for one in left if one.row}
        more: _Rows = {}
        with healed(core, rows) as seen:
            # Each copy, and at last none, for what can be made again.
            for number, other in (*enumerate(copies), (None, None)):
                wanted = [key for key in known if key not in more]
                if other is None:
                    given = made_again(seen, scope, wanted)
                else:
                    given = _candidates(seen, other, wanted)
                good = _fitting(seen, scope, given)
                more |= {key: (row, number) for key, row in good.items()}
        if not more.keys() - rows.keys():
            break
        rows, named = rows | more, known | named
        with healed(core, rows) as seen:
            left = _still(seen, scope)
    return left, rows, named


def healed(core: Core, rows: _Rows) -> AbstractContextManager[Core]:
    """The same store, read as if rows were put in."""
    return looking(core, {key: row for key, (row, _) in rows.items()})


def _still(core: Core, scope: Scope | None) -> list[Finding]:
    try:
        report = verify_store(core, scope)
    except ScopeNotFoundError:
        return []  # deleted since
    return [one for one in report.findings if one.scope == str(scope or "")]


def _candidates(core: Core, other: Core, keys: list[bytes]) -> dict[bytes, bytes]:
    """Rows of a copy that are other than ours, or that we lack."""
    here, there = core.storage, other.storage
    found = dict(zip(keys, there.get(keys), strict=True))
    for key in keys:
        if key[:1] == b"E":
            # Entries where we have none, just before it and from it on: a finding about entries
            # that are missing names the next one that is there.
            first, end = key[:9], rowkinds.after(key[:9])
            before = here.scan(first, key, limit=1, reverse=True)
            behind = here.scan(key, end, limit=1)
            low = before[0][0] + b"\0" if before else first
            found |= there.scan(low, behind[0][0] if behind else end, limit=MOST_MISSING)
            # A finding about signatures names the checkpoint that they lie beside.
            beside = rowkinds.signature(key, b"")
            found |= there.scan(beside, rowkinds.after(beside), limit=rowkinds.MOST_SIGNATURES)
        elif key[:1] == b"A":  # one that is missing is known by the anchors alone
            found |= there.scan(key[:9], rowkinds.after(key[:9]), limit=1, reverse=True)
    mine = here.get(list(found))
    return {
        key: row
        for (key, row), ours in zip(found.items(), mine, strict=True)
        if row is not None and row != ours
        if not rowkinds.is_fork(key) or _same_beginning(here, there, key)
    }


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


def _fitting(core: Core, scope: Scope, given: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Those rows that are what this store commits to, as a verification with them shows.

    An entry is committed to by the one behind it, or by the feed if it is the newest: so a finding
    about the one behind speaks against it, too.
    """
    for _ in range(ROUNDS):
        if not given:
            break
        with looking(core, given) as seen:
            storage, report = seen.storage, verify_store(seen, scope)
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


@contextmanager
def looking(core: Core, over: Mapping[bytes, bytes]) -> Iterator[Core]:
    """The same store, read as if some rows were others, with nothing that was read before."""
    seen = seen_in(core, Overlay(core.storage, over))
    try:
        yield seen
    finally:
        seen.close()


def replace(core: Core, key: bytes, row: bytes, absent: Sequence[bytes] = ()) -> bool:
    """Put a row in the place of the damaged or missing one; False if another was faster."""
    before = core.storage.get([key])[0]
    batch = Batch(puts=[(key, row)], absent=[key, *absent])
    if before is not None:
        batch = Batch(swaps=[(key, before, row)], absent=list(absent))
    try:
        core.leases.commit(batch)
    except Conflict:  # it is healed, or changed, by another
        return False
    return True


# Healing the directory: without its row nobody knows that a scope is there.
#
# A row that is damaged is found by its key. One that is missing is found by the feed, which names
# each scope that was ever written to by its number: a copy's row of that number is the one. A
# copy is believed as far as what lies here speaks for it:
#
# | a copy's row | is believed if |
# | --- | --- |
# | of a scope | its name is that of the key, and it opens rows that lie here under its number |
# | that a scope is deleted | it names the number of the scope in whose place it lies |
# | that a scope is erased | the feed names its number, and no row of it lies here |
# | that a subject is erased | it opens in its place, and lay there before |
# | of a change with an id | it opens in its place, and names the entries of it that are here |
#
# The last one can be made again from these entries, if there are any. They do not say what was
# asked for: the change counts as applied, with whatever content it is sent again.

_decode = msgspec.msgpack.Decoder().decode
OF_NO_SCOPE = [
    kind.key
    for kind in rowkinds.ROWS
    if kind.heal != rowkinds.NONE and kind.sealed == rowkinds.STORE_KEY
]
UNCOMPARED = "what its change asked for: sent again with other content, it counts as applied"
LOOKS = 100
"""Rows of a kind that are tried: one that opens is enough, and some may be damaged, too."""


def _fitting_directory(store: StoreHandle, damaged: set[bytes], copies: Sequence[Core]) -> _Rows:
    """Rows of copies that are right here, or made again, and which copy has each: of the directory,
    and of those that are damaged, those that say that a scope is deleted, a subject erased or a
    change applied."""
    core = store.core
    given: _Rows = {}
    unlisted = Tails(store).unlisted() if copies else set()
    applied = _applied(core, {key for key in damaged if key[:1] == b"I"})
    for number, other in enumerate(copies) if damaged or unlisted else ():
        there = {at: key for at, key in numbered(other) if at in unlisted}
        wanted = {key for key in damaged if key[:1] in OF_NO_SCOPE} | set(there.values())
        # Of one scope the row that names it comes before the one that says that it is deleted.
        for key, row in zip(sorted(wanted), other.storage.get(sorted(wanted)), strict=True):
            if row is None or key in given or not _is_right(core, key, row, given, unlisted):
                continue
            # A copy's row of a change names the entries that are here: else it is of another.
            if key not in applied or set(applied[key]) <= {
                tuple(one) for one in _decode(core.open_row(key, row))[1]
            }:
                given[key] = row, number
    made = {key: seal_outcome(core, key, Outcome(b"", found)) for key, found in applied.items()}
    return {key: (row, None) for key, row in made.items()} | given


_Places = list[tuple[str, str, int, bytes, int]]


def _applied(core: Core, keys: set[bytes]) -> dict[bytes, _Places]:
    """The entries, as far as they can be read, of the changes that rows with these keys remember;
    without those of which none is here any more."""
    found: dict[bytes, _Places] = {}
    for _, at in numbered(core) if keys else ():
        if rowkinds.state_of(at) != rowkinds.THERE:
            continue
        with suppress(HoldfastError, ValueError):  # erased, or damaged: then nothing of it is known
            ledger = core.ledger_of(at, core.storage.get([at])[0] or b"")
            names = readable_timelines(core, ledger)
            prefix = b"E" + ledger.number.to_bytes(rowkinds.SCOPE, "big")
            for key, row in each(core.storage.scan, prefix, rowkinds.after(prefix)):
                with suppress(StateIntegrityError, PrunedError):  # it is damaged: others may tell
                    envelope, body = ledger.open_entry(key, row)
                    name = names.get(rowkinds.line_of(key))
                    if (of := row_of(core, ledger, body)) in keys and of and name is not None:
                        place = (str(ledger.scope), name, rowkinds.sequence_of(key))
                        hash_ = ledger.entry_hash(key, envelope.data)
                        found.setdefault(of, []).append((*place, hash_, body.time))
    return found


def _is_right(core: Core, key: bytes, row: bytes, given: _Rows, unlisted: set[int]) -> bool:
    """Whether what lies here speaks for a copy's row, and for none that is here in its place."""
    if rowkinds.row_kind(key) is None:
        return False
    if _is_reused(core, key):
        return False
    with suppress(HoldfastError):  # damaged: a copy's may stand here
        mine = core.storage.get([key])[0]
        if mine is not None:
            core.open_row(key, mine)
            return False  # another scope's, which was made under the name since
    with suppress(HoldfastError, ValueError):  # a copy's row that cannot be read is not right
        if key[:1] in (b"U", b"I"):
            return bool(core.open_row(key, row))
        if rowkinds.state_of(key) == rowkinds.THERE:
            return _opens(core, key, row)
        if rowkinds.state_of(key) == rowkinds.DELETED:
            first = rowkinds.directory(key[1:17], int.from_bytes(key[17:21], "big"), rowkinds.THERE)
            there = core.storage.get([first])[0] or given.get(first, (b"", 0))[0]
            number: int = core.ledger_of(first, there).number
            return bool(_decode(core.open_row(key, row))[0] == number)
        number = read_tombstone(core, key, row).number
        lies = (_rows_of(core, kind, number, 1) for kind in rowkinds.OF_SCOPE)
        return number in unlisted and not any(lies)
    return False


def _of_none(core: Core, keys: Iterable[bytes]) -> set[bytes]:
    """Those rows that belong to scopes which the directory does not name."""
    known = {number for number, _ in numbered(core)}
    scoped = (key for key in keys if key[:1] in rowkinds.OF_SCOPE)
    return {key for key in scoped if rowkinds.scope_of(key) not in known}


def _is_reused(core: Core, key: bytes) -> bool:
    """Whether another scope has the name of one that was stated as lost."""
    if key[:1] != b"D" or core.storage.get([key]) != [b""]:
        return False
    return core.newest(key[1:17])[0][0][:21] > key[:21]


def _opens(core: Core, key: bytes, row: bytes) -> bool:
    """Whether a row of the directory names its scope, and opens a row of it that lies here."""
    ledger = core.ledger_of(key, row)
    named = core.tag(b"directory", str(ledger.scope)) == key[1:17]
    if not named or core.storage.get([rowkinds.tombstone(key)])[0] is not None:
        return False
    for kind in (b"T", b"E"):
        for one, found in _rows_of(core, kind, ledger.number, LOOKS):
            with suppress(StateIntegrityError, PrunedError):  # one that opens is enough
                (ledger.open_entry if kind == b"E" else ledger.open_row)(one, found)
                return True
    return False


def _rows_of(core: Core, kind: bytes, number: int, limit: int) -> list[tuple[bytes, bytes]]:
    prefix = kind + number.to_bytes(rowkinds.SCOPE, "big")
    return core.storage.scan(prefix, rowkinds.after(prefix), limit=limit)


# What is done about damaged and lost rows of an agent before anything is written to it.
#
# They are set aside, and healed if a copy of the store still has them: that comes first, for
# whatever is written takes the number of a lost entry.

BUDGET = 10.0
"""Seconds in which damage is looked for, unless a step says otherwise."""


def damage_of(handle: LineHandle, tails: Tails) -> AgentFailure | None:
    """What is wrong with the newest state of a scope; damage that is past harms nobody now."""
    try:
        check_state(handle, handle.timeline, handle.place()[2])
    except StateIntegrityError as error:  # the newest state; what is past harms nobody
        return AgentFailure("corruption_detected", str(error)[:1000])
    tail = tails.lost(handle.scope)
    if tail is not None:  # nothing in what is left of it shows that
        return AgentFailure("structure_invalid", f"lost: {tail_text(tail)}")
    return None


def is_called_for(failure: AgentFailure, tail: Tail | None, why: str | None) -> bool:
    """Whether damage is to be looked for; `why` the newest state cannot be read, if it cannot."""
    return tail is not None or failure.kind in DAMAGED or why is not None


def copies_of(core: Core, stores: Sequence[Any]) -> list[Core]:
    """Those stores that were made by copying this one: rows can be healed from them."""
    return [core_of(one) for one in stores if core_of(one).lineage == core.lineage]


def fill(core: Core, copy: Core) -> list[bytes]:
    """Take from a copy all rows that are not here, or whose place is held, unless the store says
    itself that they went; which ones. For a store whose file has lost rows."""
    filled: set[bytes] = set()
    puts: list[tuple[bytes, bytes]] = []
    places: list[tuple[bytes, bytes, bytes]] = []
    """Those that are held."""
    trimmed: list[tuple[bytes, bytes, bytes]] = []
    with core.storage.moment() as mine, copy.storage.moment() as theirs:
        judge, judge_of_copy = Judge(core, mine), Judge(copy, theirs)
        rows, ours = (paged(one.scan, b"", LAST) for one in (theirs, mine))
        for key, row, here in differences(rows, ours, lambda _: True):
            wanted = row is not None and not here and not judge.may_go(key)
            wanted = wanted and not _is_reused(core, key)
            if row is not None and wanted and judge_of_copy.whole(key, row):
                if key[:1] == b"E":
                    floor = judge.floor(rowkinds.scope_of(key), rowkinds.line_of(key))
                    if rowkinds.sequence_of(key) <= floor.sequence:  # its body may be pruned here
                        trimmed.append((key, entry.split_row(row)[0].data, row))
                        row = trimmed[-1][1]
                if here is None:
                    puts.append((key, row))
                else:
                    places.append((key, here, row))
                filled.add(key)
                if len(puts) + len(places) == 100:  # each commit tries in vain to shorten the log
                    core.storage.commit(Batch(puts=puts, swaps=places))
                    puts, places = [], []
    core.storage.commit(Batch(puts=puts, swaps=places))
    # Stated as lost, a scope counts as deleted: no more, unless another one has its name now.
    ends = [rowkinds.deletion(key) for key in filled if key[:1] == b"D"]
    given_up = [key for key in ends if [one[0] for one in core.newest(key[1:17])] == [key]]
    core.storage.commit(Batch(drops=given_up))
    core.lost()
    found = verify_store(core).findings if filled else []
    # What was under way as the copy was made belongs to nothing here.
    strays = [bytes.fromhex(one.row) for one in found if one.kind == "unaccounted"]
    drops = sorted(filled.intersection(strays) | _of_none(core, filled))
    taken = sorted(filled.difference(drops))
    # A state that is kept below a floor may need values that bodies there hold: which ones, only
    # all of it together can tell. The next pruning drops those that it does not need.
    hurt = {bytes.fromhex(one.row)[1:7] for one in found if one.kind == "damage"}
    swaps = [(key, short, row) for key, short, row in trimmed if key[1:7] in hurt]
    if not held(core, found):  # nothing is lost any more, also of the feed
        newest = (rowkinds.feed(lane, core.lanes.end(lane)[0]) for lane in range(LANES))
        drops += [key for key in newest if core.storage.get([key]) == [GAP]]
    if drops or swaps:
        core.storage.commit(Batch(drops=drops, swaps=swaps))
        core.lost()
    return taken


# Places of what is known to be lost, because the index of a damaged file named it: the newest
# entries of timelines, and names of scopes. An empty row is put there, which is damaged like any
# other: `verify` finds it, a copy heals it, a statement names it, and nobody writes in its place.
# If the feed does not name those entries, it has lost as much: each lane goes on behind a gap.

LEFT_FREE = 1 << 20
"""How many numbers of a lane may have been lost."""


def held(core: Core, found: Iterable[Finding]) -> list[bytes]:
    """Those rows among findings that stand in the place of lost ones."""
    keys = [bytes.fromhex(row) for row in dict.fromkeys(one.row for one in found if one.row)]
    rows = zip(keys, core.storage.get(keys) if keys else [], strict=True)
    return sorted(key for key, row in rows if row == b"" and key[:1] in (b"D", b"E"))


def hold(core: Core, gone: Sequence[bytes]) -> None:
    """Hold the places of lost rows, of which these are the keys."""
    storage, scopes = core.storage, dict(numbered(core))
    feed = FeedHeads(core.lanes)
    feed.look()
    names = [key for key in gone if key[:1] == b"D" and rowkinds.state_of(key) == rowkinds.THERE]
    puts = [(key, b"") for key in names if not any(at >= key for at, _ in core.newest(key[1:17]))]
    unnamed = False
    for key in gone:
        if key[:1] == b"E":
            number, line = rowkinds.scope_of(key), key[:9]
            found = storage.scan(line, rowkinds.after(line), limit=1, reverse=True)
            newest = rowkinds.sequence_of(found[0][0]) if found else 0
            # A number that is far off is one that is damaged in the index.
            near = newest < rowkinds.sequence_of(key) <= newest + MOST_MISSING
            if number in scopes and near:
                puts.append((key, b""))
            named = feed.named(number, rowkinds.line_of(key))[0]
            unnamed |= near and named < rowkinds.sequence_of(key)
    # The number of a timeline is taken, too, or a new one would stand in its place.
    for key in {
        b"T" + key[1:9] for key in gone if key[:1] in (b"T", b"E") and rowkinds.line_of(key)
    }:
        at = scopes.get(rowkinds.scope_of(key))
        if at is not None and storage.get([key]) == [None]:
            ledger = core.ledger_of(at, storage.get([at])[0] or b"")
            content = _encode(_line(core, ledger, rowkinds.line_of(key), (0, 0)))
            puts.append((key, ledger.seal_row(key, content, ledger.commit_line)))
    if puts and unnamed:
        ends = ((lane, core.lanes.end(lane)[0]) for lane in range(LANES))
        puts += [(rowkinds.feed(lane, end + LEFT_FREE), GAP) for lane, end in ends if end]
    if puts:
        storage.commit(Batch(puts=puts))
        core.lost()


def set_aside(
    store: StoreHandle, agent: Scope, copies: Sequence[Core], recovery: str, budget: float = BUDGET
) -> dict[str, Any]:
    """Set aside what is damaged or lost, as much as is found in the time, and heal it.

    `lost_rows` says, for people, which timelines have lost their names.

    Of entries that stay lost, what else was written with them would stand in the way of what is
    written next: it goes, or their numbers are taken if other timelines may lead to it.
    """
    aside, result = Quarantine(store, agent), dict[str, Any]()
    found: list[Finding] = []
    listed = None
    with suppress(StateIntegrityError):  # then its row is damaged
        listed = store.core.known(agent)
    with suppress(HoldfastError, OSError):  # a copy that cannot be read heals nothing
        if listed is None:
            heal(store, None, [], copies)
    with suppress(ScopeNotFoundError):  # then nothing of it is damaged
        found = verify_store(store.core, agent, budget=budget).findings
    result["quarantined"] = aside.add(found, recovery)
    try:
        left, done = heal(store, agent, found, copies)
        result["healed"] = [one.row for one in done]
        # Timelines that nobody can name any more; what else is wrong, others tell of.
        lines = [key for one in left if rowkinds.is_fork(key := bytes.fromhex(one.row))]
        result["lost_rows"] = [one.lost for one in done if one.lost] + [
            f"timeline {rowkinds.line_of(key)}, whose row and first entry are damaged"
            for key in lines
        ]
    except (HoldfastError, OSError) as error:  # a copy that cannot be read heals nothing
        result["unhealed"] = f"{type(error).__name__}: {error}"[:500]
    for timeline, (_, last) in (Tails(store).lost(agent) or {}).items():
        with suppress(StateIntegrityError):  # nothing can be written to it in any case
            dropped = make_room(store.line(agent, timeline), last)
            result["dropped"] = result.get("dropped", 0) + dropped
    return result


@contextmanager
def as_if_healed(
    store: StoreHandle,
    agent: Scope,
    failure: AgentFailure,
    tail: Tail | None,
    copies: Sequence[Core],
) -> Iterator[tuple[StoreHandle, int]]:
    """The store as it is after `set_aside`, and how many rows that heals; nothing is written."""
    rows: _Rows = {}
    with suppress(HoldfastError, OSError):  # a copy that cannot be read heals nothing
        if copies and is_called_for(failure, tail, unreadable(store.line(agent))):
            found = verify_store(store.core, agent, budget=BUDGET).findings
            rows = healing(store, agent, found, copies)[1]
    if not rows:
        yield store, 0
        return
    with healed(store.core, rows) as seen:
        yield StoreHandle(seen), len(rows)
