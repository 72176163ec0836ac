"""`holdfast doctor`, `repair` and `quarantine`: what is damaged, mended and set aside."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import click

from holdfast import errors
from holdfast.checkpoints.checkpoints import Checkpoints
from holdfast.checkpoints.restore_request import damaged_keys
from holdfast.cli import output
from holdfast.cli.command import Group, command, flag
from holdfast.cli.plain import plain
from holdfast.cli.session import Session
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    LeaseHeldError,
    ReadOnlyError,
    RecoveryFailedError,
)
from holdfast.recovery.changes_of_others import some
from holdfast.recovery.failure_kinds import found_failure, grouped
from holdfast.recovery.heal import Healed, copies_of, fill, heal_all, healing, held, hold
from holdfast.recovery.lost_entries import Tails
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import check_there, notices_scope, readable, recovered_agents
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.report import RecoveryPlan, RecoveryReport
from holdfast.recovery.strategies import check_state, newest_whole, unreadable
from holdfast.replicas.compare import Judge
from holdfast.seal.master_rotation import make_cell_again
from holdfast.seal.ring import GENERATIONS, read_masters
from holdfast.seal.signer import Signer
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite.engine import SqliteStorage
from holdfast.storage.sqlite.guard import mended_log, private, sync_folder, was_store
from holdfast.storage.sqlite.rebuild import Mended, look, mend, mended_before, survey
from holdfast.store.inner import (
    LANES,
    NO_SIGNER,
    STATED,
    Core,
    Finding,
    core_of,
    handle_of,
    numbered,
    state_losses,
    stated,
    told_together,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import cell_at
from holdfast.store.names.scope import Scope
from holdfast.store.open import META
from holdfast.sync import State, Store

MOST_TAKEN = 20
"""Rows of the store itself that are tried with those of a copy: each try verifies everything."""
WELL, ILL = 80, 50
"""From here on health is green, and below here red."""


@command("doctor [SCOPE]")
@click.option("--budget", type=click.FloatRange(0), default=10, help="Seconds for verifying. [10]")
@click.option("--at-least", type=click.IntRange(0, 100), default=ILL, help="Else exit with 1. [50]")
def doctor(session: Session, scope: str | None, budget: float, at_least: int) -> int:
    """Health from 0 to 100, with the reasons and the next step for each.

    Of the whole store, or of one scope: damage, what was begun and never ended, checkpoints,
    retention, where key and signer lie, room on the disk. Nothing is changed. Exits with 1 if
    anything is damaged, too.
    """
    with session.reading() as store:
        found = Recovery(store).health(
            session.state(store, scope) if scope is not None else None,
            budget=budget,
            url=session.url,
            key=session.key or os.environ.get("HOLDFAST_KEY"),
            signer=session.signer_source,
            durability=session.durability,
        )
    colour = "green" if found.score >= WELL else "yellow" if found.score >= ILL else "red"
    columns = "points, what=kind, where=scope, why=what, next step=next"
    made = {"points": lambda one: f"-{one.points}"}
    session.tell(
        found,
        lambda: output.say(f"health: {found.score} of 100", fg=colour, bold=True),
        lambda: output.rows(found.concerns, columns, made),
    )
    if found.omitted:
        session.note(f"… and {found.omitted} more")
    damaged = any(one.kind.startswith("damaged_") for one in found.concerns)
    return 1 if damaged or found.score < at_least else 0


@command("repair [SCOPE] --copy --yes")
@click.option("--budget", type=click.FloatRange(0), metavar="SECONDS", help="For finding damage.")
@flag("--dry-run", "Show the plan, and do nothing.")
@flag("--accept-loss", "State what no copy has as lost, and go on without it.")
@flag("--confirm", "Remove old files, once nothing is damaged.")
def repair(session: Session, /, scope: str | None, **given: Any) -> int:
    """Mend what is damaged, of a scope or of all: damaged keys from what is whole of their past.

    If keys alone are not enough, entries are replayed, or an older state or a copy is taken: the
    plan says which, and what that loses. With --copy, rows that a copy still has are healed before,
    which loses nothing. A timeline whose name no copy has gets another. Damaged rows are set aside
    (see `quarantine`). Leases that are damaged are removed: whoever holds one has lost it.

    Before that, a file whose own structure is damaged is mended: its index in place, all else by a
    new file of every row that can be read. The old one is kept as PATH.damaged until --confirm.
    Nobody else opens the file before this has ended: if it was killed, run it again.

    What is damaged in the past alone, and in no copy, stays damaged. With --accept-loss a signed
    checkpoint states which rows that are: the newest state and all else stays, and `verify` tells
    of them as known losses. So it is with newest entries, and whole scopes, of which a damaged file
    tells only that they were there: nothing is written in their place before. A damaged row of a
    change's id is removed, if none of its entries is left to make it again from: a change with that
    id would then be applied again.

    Exits with 1 if damage is left, be it in the past alone, or found by --dry-run, and with 3 if
    none is known but --budget ended the search.
    """
    paths = [session.path, f"{session.path}.keys"] if session.is_file else []
    with ExitStack() as stack:
        copies = _copies(session, stack, given["copies"])
        files = _mend_files(session, stack, paths, copies, given)
        if files is None:
            return 1
        given["confirm"] &= not given["dry_run"]
        store = _store(session, stack, given, mended=bool(files))
        if scope is not None:
            session.state(store, scope)
        damage = _Damage(store, copies, scope, given["budget"], given["accept_loss"])
        damage.files = files
        if files and not given["dry_run"]:
            damage.fill()
        damage.look(as_if_healed=given["dry_run"])
        if damage.copies and damage.held and not files and not given["dry_run"]:
            damage.fill()
            damage.look()
        if damage.mendable and not given["dry_run"]:
            if not given["yes"]:
                scopes = sorted({one.scope or "the store" for one in damage.found})
                names = ", ".join(scopes[:5]) + (", …" if len(scopes) > 5 else "")
                refusal = f"{names} would be repaired: see the plan with --dry-run, then add --yes"
                show = None if session.json else (lambda: _say(session, damage))
                session.confirm(f"Repair {names}?", refusal, show)
            damage.mend()
        damage.judge()
        if given["confirm"] and not (damage.found or damage.left) and damage.complete:
            mended = [os.path.realpath(path) + end for path in paths for end in ("", "-wal")]
            for old in filter(os.path.exists, [f"{path}.damaged" for path in mended]):
                os.remove(old)
        _say(session, damage)
        for url, one in zip(given["copies"], map(core_of, copies), strict=True):
            if one not in damage.copies:
                session.note(f"{url} is no copy of this store: no row is healed from it")
            elif count := _ahead(core_of(store), one):
                session.note(_PUT_BACK.format(url, count))
    return 1 if damage.left or (given["dry_run"] and damage.found) else 0 if damage.complete else 3


def _copies(session: Session, stack: ExitStack, urls: list[str]) -> list[Store]:
    """Other stores, open until the stack is left."""
    try:
        return stack.enter_context(session.copies(urls))
    except errors.KeyringError:  # the key may not be that of the store itself, which says more
        with suppress(errors.DamagedRecordError, errors.ForeignSchemaError), session.reading():
            raise
        raise


def _store(session: Session, stack: ExitStack, given: dict[str, Any], *, mended: bool) -> Store:
    """The store; of a replica, whose file was `mended`, there is nothing more to do here."""
    try:
        how = session.reading() if given["dry_run"] else session.writing()
        return stack.enter_context(how)
    except ReadOnlyError:
        if not mended:
            raise
    given["dry_run"] = True
    session.note(_REPLICA.format(session.url))
    return stack.enter_context(session.reading())


def _mend_files(
    session: Session, stack: ExitStack, paths: list[str], stores: list[Store], given: dict[str, Any]
) -> list[Mended] | None:
    """Mend files whose own structure is damaged, before the store is opened; None if they are only
    to be looked at. Until the stack is left, nobody else opens them. One that was mended before is
    told of again, until its old file is removed."""
    done: list[Mended] = []
    meta = _store_row(session, stores) if paths else b""
    for path in paths:
        main = path == session.path  # which can come from a copy as a whole
        there = os.path.isfile(path) and os.path.getsize(path)
        log = f"{os.path.realpath(path)}-wal"
        if there and _keep_log(session, path, log, given["yes"] and not given["dry_run"]):
            frames = mended_log(f"{log}.damaged")
            done.append(Mended(log, f"{log}.damaged", cut=sum(not one for one in frames)))
        if not there and not (main and meta and was_store(path)):
            continue
        if not (found := look(path)):
            done += [before] if (before := mended_before(path)) is not None else []
            continue
        if given["dry_run"]:
            left, there_too = survey(path), [core_of(one).storage for one in stores]
            keys = [key for key in left.lost if not any(one.get([key])[0] for one in there_too)]
            runs = map(rowkinds.describe_run, rowkinds.runs(keys))
            gone = [*runs] if left.rows else ["all rows"]
            told = f"the file itself is damaged ({found[0].partition(';')[0]}); it would be mended"
            where = "in no page of it, and in no copy" if stores else "in no page of it"
            lost = [f"{where}, so lost unless a copy has it: {one}" for one in gone]
            session.tell({"file": path, "found": found, "lost": gone}, f"{path}: {told}", *lost)
            return None
        if not given["yes"]:
            refusal = f"the file {path} itself would be mended, and the old one kept: add --yes"
            session.confirm(f"Mend the file {path} itself? The old one is kept.", refusal)
        # Without the row that says what it is, the new file is no store that rows could go into.
        done.append(stack.enter_context(mend(path, {META: meta} if main else {})))
    if given["yes"] and not given["dry_run"] and paths and os.path.isfile(paths[1]):
        with closing(SqliteStorage(paths[1], create=False)) as ring:
            if make_cell_again(ring):
                session.note("the generation cell of the ring is made again from other rows")
    return done


def _store_row(session: Session, stores: list[Store]) -> bytes:
    """What copies say of what the store is, unless the signer or the ring that lies here is
    another's: a new file takes it where the old one has no such row left."""
    found = dict[bytes, bytes]()
    signer = (session.signer_source or f"file:{session.path}.sign").partition(":")[2]
    ring = f"{session.path}.keys"
    for core in map(core_of, stores):
        ours = True
        with suppress(HoldfastError):  # one that cannot be read says nothing
            if core.ring is None and os.path.exists(signer):
                ours = Signer.load(signer).public == core.public
            elif core.ring is not None and os.path.exists(ring):
                with closing(SqliteStorage(ring, create=False, read_only=True)) as storage:
                    ours = read_masters(storage)[1][-1].lineage == core.lineage
        if ours:
            found[core.lineage] = core.storage.get([META])[0] or b""
        else:
            session.note(f"a copy is of another store than the signer or ring of {session.path!r}")
    if len(found) > 1:
        session.note("the copies are of several stores: give those of this one alone")
    return next(iter(found.values())) if len(found) == 1 else b""


def _keep_log(session: Session, path: str, log: str, yes: bool) -> bool:
    """Keep a leftover log of which SQLite would drop commits, so that the next who opens the store
    mends it; whether there is such a one."""
    kept = f"{log}.damaged"
    try:
        SqliteStorage(path, create=False, read_only=True).close()
    except HoldfastError as error:  # what else keeps it from being opened is found later
        if getattr(error, "place", "") == log:
            if not yes:
                raise
            if os.path.exists(kept):
                raise errors.RefusedError(f"{kept!r} is there from before: move it away") from None
            with open(log, "rb") as old, open(kept, "xb", opener=private) as new:
                shutil.copyfileobj(old, new)
                os.fsync(new.fileno())
            sync_folder(log)
            session.note(str(error).partition(";")[0])
            with suppress(HoldfastError):  # which mends the log, as it is kept now
                SqliteStorage(path, create=False).close()
    return os.path.exists(kept)


def _ahead(core: Core, copy: Core) -> int:
    """Commits that a copy has behind those of a store."""
    return sum(max(0, copy.lanes.end(lane)[0] - core.lanes.end(lane)[0]) for lane in range(LANES))


_FEED, _CHANGE, _NAME = b"F".hex(), b"I".hex(), b"D".hex()
_AGAIN = "a change with that id would be applied again"
_EFFECTS = "an effect of which lost entries had a record would be done again: see what went out"
_ELSE = "give a copy (--copy), or go back: holdfast restore {} CHECKPOINT --past-damage"
_PUT_BACK = (
    "{} has {} commits that this store has not: if this store was put back to an older state, put "
    "that copy in its place before agents go on, and promote it if it is a replica"
)
_REPLICA = (
    "this is a replica; from the store that it follows it has all that is not whole here: run "
    "`holdfast --store THAT replica sync --full {}`. Promote it only if that store is lost"
)
_UNNAMED = rowkinds.ROW[b"E"].stray
_MADE = [kind.key.hex() for kind in rowkinds.ROWS if kind.heal == rowkinds.DERIVED]
"""Kinds of rows some of which can be made again without a copy."""


def _finding(key: bytes) -> Finding:
    return Finding("damage", rowkinds.describe(key), "it is lost", "", (), key.hex())


def _go_on(state: State, point: str) -> str:
    """Let a timeline of which something cannot be read go on: without what is damaged of it, else
    as it was before that, else as it is at a point of main."""
    fork, keys, told = handle_of(state), list[str](), "all of it"
    with suppress(HoldfastError):  # its index, or an entry, may be what is damaged
        keys = sorted(damaged_keys(fork.history.points.view(fork.timeline, fork.place()[2])))
        told = some(keys)
    if not keys:
        before = fork.history.points.line().ledger.before
        with suppress(HoldfastError):
            if (last := newest_whole(fork, before, fork.place()[2])) > before:
                point, told = f"{fork.timeline}@{last}", f"what it did behind entry {last}"
    reason = "damaged, and in no copy"
    Checkpoints(state).restore(point, keys=keys or None, past_damage=not keys, reason=reason)
    return f"{fork.scope}: timeline {fork.timeline} lost {told}: it goes on as {point} has that"


class _Damage:
    """What was found, what is to be done about it, and what was."""

    def __init__(
        self,
        store: Store,
        copies: list[Store],
        scope: str | None,
        budget: float | None,
        accept: bool,
    ) -> None:
        self._store = store
        self._scope, self._budget, self._accept = scope, budget, accept
        self._recovery = Recovery(store, copies=copies)
        self.copies = copies_of(core_of(store), copies)
        """Those that rows can be healed from; the others may still have the state."""
        self.found: list[Finding] = []
        self.plans: list[RecoveryPlan] = []
        self.held: set[str] = set()
        """Rows in places of what is lost, whether that is stated or not."""
        self.known: list[Finding] = []
        """What is stated as lost: a copy may have it."""
        self.past: dict[str, list[Finding]] = {}
        """Damage of scopes whose newest state is whole, if it is to be stated as lost."""
        self.stated: list[str] = []
        self.left: list[str] = []
        """What cannot be mended here, and why."""
        self.complete = True
        """Whether all was looked at, before and after mending."""
        self.entries = 0
        """How many were, the last time."""
        self.healing: dict[str, int] = {}
        """How many rows of a scope (of the store itself: an empty text) would be healed, if this is
        only looked at."""
        self.leases = 0
        """Damaged cells of leases, which hold no state and are removed."""
        self.dropping: list[Finding] = []
        """Damaged change rows of which no entry is here any more, if they are to be removed."""
        self.files: list[Mended] = []  # whose structure was mended before
        self.taken: list[bytes] = []
        """Rows that copies had, and the store did not, after a file was made anew."""
        self.healed: list[Healed] = []
        self.repaired: list[RecoveryReport] = []

    def look(self, as_if_healed: bool = False) -> None:
        """Find damage, and plan what to do about it, or about what healing would leave of it."""
        report = self._store.verify(self._scope, budget=self._budget)
        self.found, self.entries = report.findings, report.entries
        self.complete = self.complete and report.resume is None
        self.plans, self.left, self.past = [], [], {}
        self.known = [
            replace(_finding(bytes.fromhex(one.row)), scope=one.scope)
            for one in report.losses
            if one.row
        ]
        self.held = {key.hex() for key in held(core_of(self._store), self.found + self.known)}
        self.dropping = []
        for scope, mine in sorted(grouped(self.found).items(), reverse=True):
            if as_if_healed:
                agent = Scope.parse(scope) if scope else None
                mine, rows, _ = healing(handle_of(self._store), agent, mine, self.copies)
                self.healing |= {scope: len(rows)} if rows else {}
            if scope and mine:
                self._plan(scope, mine)
            elif not scope:
                self._plan_store(mine)

    def fill(self) -> None:
        """Take from copies what no page of a file had; where there were two keys of a row, or two
        rows of a key, find out which one is whole."""
        storage = core_of(self._store).storage
        for copy in self.copies:
            if self.held or any(one.kept for one in self.files):  # an index may have lost names
                self.taken += fill(core_of(self._store), copy)
            for key in self._gone_cells():
                kind = rowkinds.cell_kind(key)
                if (kind is None or kind.copied) and (cell := cell_at(copy.storage, key)):
                    storage.commit(Batch(cells=[(key, None, cell)]))
        for file in self.files:
            for key, other in file.doubts:
                row = storage.get([key])[0]
                if row is not None:
                    self._choose((key, row), (other, row))
            for key, older in file.older:
                row = storage.get([key])[0] or b""
                self._choose((key, row), (key, older))
        hold(core_of(self._store), self._gone())

    def _choose(self, one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> None:
        """Put a row in place of another one, unless more is whole without that."""
        storage = core_of(self._store).storage
        there = storage.get([other[0]])[0] if other[0] != one[0] else None
        if there is not None:  # a copy, or another row, has taken that place
            storage.commit(Batch(drops=[one[0]] if there == one[1] else []))
            return
        before = len(self._store.verify().findings)
        for old, new in ((one, other), (other, one)) if before else ():
            storage.commit(Batch(drops=[old[0]]))
            storage.commit(Batch(puts=[new] if new[1] else []))
            core_of(self._store).lost()
            if len(self._store.verify().findings) < before:
                break

    def _gone(self) -> list[bytes]:
        """Keys of rows that were in the files that were mended, and are not in the store, which
        does not say itself that they went."""
        keys = [key for one in self.files for key in one.lost]
        core = core_of(self._store)
        with core.storage.moment() as moment:
            judge = Judge(core, moment)
            rows = core.storage.get(keys) if keys else []
            there = dict(zip(keys, rows, strict=True))
            return [key for key in keys if not there[key] and not judge.may_go(key)]

    def _gone_cells(self) -> list[bytes]:
        """The same of cells."""
        storage = core_of(self._store).storage
        cells = [key for one in self.files for key in one.cells if key != GENERATIONS]
        return [key for key in cells if cell_at(storage, key) is None]

    @property
    def lost(self) -> list[str]:
        """The same for people."""
        older = [f"{self._named(key)}, one of two" for one in self.files for key, _ in one.older]
        rows = [self._named(*run) for run in rowkinds.runs(self._unstated())]
        return [*rows, *map(rowkinds.describe, self._gone_cells()), *older]

    def _unstated(self) -> list[bytes]:
        """Keys of lost rows that no statement names."""
        gone = self._gone()
        core, said = core_of(self._store), set[bytes]()
        for _, at in numbered(core) if gone else ():
            with suppress(HoldfastError, ValueError):  # erased, or damaged: it states nothing
                ledger = core.ledger_of(at, core.storage.get([at])[0] or b"")
                said.update(key for _, key in stated(ledger))
        return [key for key in gone if key not in said]

    def _named(self, *run: bytes) -> str:
        """Rows that follow each other, with the name of their scope if that can be told."""
        kind, text = rowkinds.row_kind(run[0]), rowkinds.describe_run([*run])
        if kind is None or not kind.is_scoped:
            return f"the name of a scope: {text}" if run[0][:1] == b"D" else text
        names: dict[int, str] = {}
        with suppress(HoldfastError):  # the directory may be what is damaged
            names = core_of(self._store).numbers.scopes([rowkinds.scope_of(run[0])])
        return f"{next(iter(names.values()), 'of a scope whose name is not known')}: {text}"

    def _plan_store(self, mine: list[Finding]) -> None:
        """What to do about findings that belong to no scope."""
        leases = [o for o in mine if o.kind == "damage" and o.place.startswith("lease ")]
        self.leases = len(leases)
        self.dropping = [o for o in mine if self._accept and o.row[:2] == _CHANGE]
        mine = [one for one in mine if one not in leases and one not in self.dropping]
        if mine:
            feed = [one for one in mine if self._accept and self._statable(one)]
            if feed:
                # Any scope can tell of the feed. One whose newest entries it does not name any
                # more has to: the feed names what tells of it, and so all before that.
                for home in [*self.past] or self._home():
                    self.past.setdefault(home, []).extend(feed)
            mine = [one for one in mine if not feed or not self.past or one not in feed]
        if mine:
            places = ", ".join(f"{one.place}: {one.message}" for one in mine[:3])
            if any(one.message.startswith("the ring holds no key") for one in mine):
                self.left.append(f"{places}: only the newest ring (PATH.keys) helps")
                return
            given = "none of the copies given has it whole" if self.copies else "--copy"
            also = f"; {self._state_it}" if self._statable(mine[0]) else ""
            if mine[0].row[:2] == _CHANGE:
                also = f"; --accept-loss removes it: {_AGAIN}"
            self.left.append(f"{places}: only a whole copy of the store helps ({given}){also}")

    @property
    def _state_it(self) -> str:
        if core_of(self._store).signer is None:
            return f"it cannot be stated as lost before the signer is here: {NO_SIGNER}"
        return "--accept-loss states it as lost"

    def _statable(self, one: Finding) -> bool:
        """Whether what belongs to no scope can be stated in any: of the feed, or a lost scope."""
        of_scope = bytes.fromhex(one.row[:2]) in rowkinds.OF_SCOPE
        stray = bool(one.row) and one.kind == "unaccounted"
        return one.row[:2] == _FEED or one.row in self.held or of_scope or stray

    def _home(self) -> list[str]:
        """A scope that can make a statement, if there is one."""
        core = core_of(self._store)
        names = core.numbers.scopes(number for number, _ in numbered(core))
        for name in names.values():
            with suppress(HoldfastError):  # its key may be what is lost
                if unreadable(handle_of(self._store.scope(name))) is None:
                    return [name]
        return []

    @property
    def mendable(self) -> bool:
        """Whether there is something to do."""
        made = self.dropping or any(one.row[:2] in _MADE for one in self.found)
        made = made or (self._accept and bool(self._unstated()))
        found = self.copies and (self.found or self.known)
        return bool(self.plans or self.past or self.leases or made or found)

    def _plan(self, scope: str, found: list[Finding]) -> None:
        given = "none of those given has it whole" if self.copies else "--copy"
        state = self._store.scope(scope)
        tail = Tails(handle_of(self._store)).lost(state.scope)
        if unreadable(handle_of(state)) is None and tail is None:
            named = list(dict.fromkeys(one.place for one in found))
            places = ", ".join(named[:3]) + (", …" if len(named) > 3 else "")
            # Which keys of a timeline rest on damaged rows, says one that has no row.
            rows = [one for one in found if one.row or not one.keys]
            if self._accept and all(o.kind in STATED or o.message == _UNNAMED for o in rows):
                self.past[scope] = found
                return
            self.left.append(
                f"{scope}: its newest state can be read, its past cannot: {places}; a copy of the "
                f"store that still has it heals it ({given}); if there is none, {self._state_it}; "
                "all else stays"
            )
            return
        if not self._accept and any(one.row in self.held for one in found):
            self.left.append(
                f"{scope}: its newest entries are lost, and nothing is written to it: give a copy "
                f"({given}); if there is none, {self._state_it}; then it goes on from those before"
            )
            return
        failure = found_failure(found)
        assert failure is not None
        plan = self._recovery.plan(scope, failure)
        if plan.strategy is None:
            self.left.append(f"{scope}: no strategy serves but a copy of the store ({given})")
        else:
            self.plans.append(plan)

    def mend(self) -> None:
        """Heal what can be, which loses nothing but names of timelines; then do what plans say, and
        look at what is left."""
        self._heal()
        self._take()
        if self.leases:
            core_of(self._store).leases.drop_damaged()
        failed: dict[str, str] = {}
        for plan in self.plans:
            try:
                self.repaired.append(self._recovery.recover(plan.agent, plan.failure))
            except (LeaseHeldError, RecoveryFailedError) as error:
                if self._scope is not None:
                    raise
                # And the others are mended.
                failed[str(plan.agent)] = f"{plan.agent}: {error}; {_ELSE.format(plan.agent)}"
        found, plans, leases = self.found, self.plans, self.leases
        self.look()
        for one in self.dropping:
            Quarantine(handle_of(self._store), notices_scope()).add([one])
            core_of(self._store).leases.commit(Batch(drops=[bytes.fromhex(one.row)]))
            self.stated.append(f"store: removed: {one.place}: {_AGAIN}")
        if self.dropping:
            self.look()
            self.left += [f"{one.place}: it is still damaged" for one in self.dropping]
        lost = [key for key in self._unstated() if key.hex() not in self.held]
        for home in islice([*self.past] or self._home(), 1 if self._accept and lost else 0):
            self.past.setdefault(home, []).extend(map(_finding, lost))
        if self.past:
            for scope, mine in self.past.items():
                # What the feed does not name any more is here; what is written behind it is named.
                mine = [one for one in mine if one.message != _UNNAMED] or mine
                rows = [(one.kind, bytes.fromhex(one.row)) for one in mine]
                # What was written behind a lost entry cannot follow from it, also if that is
                # healed later.
                ends = [key for _, key in rows if key[:1] == b"E" and key.hex() in self.held]
                behind = (rowkinds.entry(key[:9], rowkinds.sequence_of(key) + 1) for key in ends)
                rows += [("chain", key) for key in behind if key.hex() not in self.held]
                handle = handle_of(self._store.scope(scope))
                made = state_losses(handle, rows, "damaged, and in no copy")
                lines = (line.partition(": ")[2] for line in told_together(mine))
                said = "; ".join(line.removeprefix(f"{scope}: ") for line in lines)
                self.stated.append(f"{scope}: {', '.join(made)} states as lost: {said}")
                core = core_of(self._store)
                for _, name, *_ in core.timelines(core.ledger(handle.scope)):
                    if unreadable(handle.on(name)) is not None:
                        fork = self._store.scope(scope).on(name)
                        self.stated.append(_go_on(fork, made[-1]))
            self._give_up_names()
            self.look()
            self._heal()  # what was behind the damage may follow from what is left
            self.left += [f"{scope}: it is still damaged" for scope in self.past]
        damaged = [one for one in self.plans if str(one.agent) not in failed]
        self.left += [*failed.values(), *(f"{one.agent}: it is still damaged" for one in damaged)]
        self.found, self.plans, self.leases = found, plans, leases  # what was, for who reads of it

    def _heal(self) -> None:
        while done := heal_all(handle_of(self._store), self.found + self.known, self.copies)[1]:
            self.healed += done
            self.look()

    @property
    def aged(self) -> list[str]:
        """Scopes that end where a copy does: what they did later may be lost."""
        core = core_of(self._store)
        lines = {key[:9] for key in self.taken if key[:1] == b"E" and not rowkinds.line_of(key)}
        ends = (core.storage.scan(at, rowkinds.after(at), limit=1, reverse=True) for at in lines)
        taken = set(self.taken)
        numbers = [rowkinds.scope_of(key) for ((key, _),) in filter(None, ends) if key in taken]
        return sorted(core.numbers.scopes(numbers).values())

    def again(self) -> list[str]:
        """How to go back to states that recoveries did without, and that are whole again."""
        lines = []
        store, healed = handle_of(self._store), {one.scope for one in self.healed}
        for agent in recovered_agents(store):
            state = self._store.scope(str(agent))
            for one in self._recovery.reports(agent, 1):
                if (agent in healed or self.taken) and one.success and one.lost != "nothing":
                    with suppress(HoldfastError):  # not all of it is whole again
                        last = state.log(until=one.started_at, limit=1)[0].sequence
                        check_state(handle_of(state), "main", last)
                        way = f"holdfast restore {agent} main@{last}"
                        lines.append(f"{agent}: what it had before its recovery is whole: {way}")
        return lines

    def judge(self) -> None:
        """All is not well while something is lost and nothing says so."""
        if not self.left and (lost := self._unstated()):
            self.left.append(
                f"{len(lost)} rows are lost: give a copy that has them (--copy); if there is none, "
                + self._state_it
            )

    def _give_up_names(self) -> None:
        """Let a scope be made under a name whose scope is stated as lost."""
        core = core_of(self._store)
        for row in (row for row in self.held if row[:2] == _NAME):
            key = rowkinds.deletion(bytes.fromhex(row))
            plain = core.codec.encode([0, core.clock.claimed(), 0])
            if core.storage.get([key]) == [None]:
                core.leases.commit(Batch(puts=[(key, core.seal_row(key, plain))]))

    def _take(self) -> None:
        """Take rows of the store itself that copies have otherwise, where that leaves less damage:
        rows of the feed are right if those around them, and the entries, fit."""
        storage = core_of(self._store).storage
        rows = [bytes.fromhex(one.row) for one in self.found if not one.scope and one.row]
        for number, copy in enumerate(self.copies):
            for key in dict.fromkeys(rows[:MOST_TAKEN]):
                mine, theirs = storage.get([key])[0] or b"", copy.storage.get([key])[0]
                if theirs is not None and theirs != mine:
                    self._choose((key, mine), (key, theirs))
                    if storage.get([key]) == [theirs]:
                        place = rowkinds.describe(key)
                        self.healed.append(Healed(None, key.hex(), place, number))


def _say(session: Session, damage: _Damage) -> None:
    names = "plans leases healing healed repaired stated left complete entries lost"
    told = {name: getattr(damage, name) for name in names.split()}
    told["files"] = [{"path": one.path, "kept": one.kept} for one in damage.files]
    lines: list[object] = [*damage.files]
    lines += [f"lost: {text}" for text in damage.lost]
    cut = sum(one.cut for one in damage.files)
    untold = f"{cut} pages were cut off, or damaged in the log" if cut else ""
    if any(one.kept and not one.rows and not one.path.endswith("-wal") for one in damage.files):
        untold = "no row of the file was left"
    aged = damage.aged if untold else []
    told |= {"taken": len(damage.taken), "untold": untold, "aged": aged}
    if untold:
        lines.append(f"{untold}: what it had that no index, feed or copy names, cannot be told")
    if aged:
        lines.append(f"as new as the copy, and what they did later may be lost: {', '.join(aged)}")
    known = f"nothing but what is stated as lost (rows: {len(damage.known)}, see `holdfast verify`)"
    known = known if damage.known else "nothing"
    whole = not (damage.lost or damage.repaired or damage.stated or damage.left)
    if damage.files and whole and not untold:
        lines.append(f"lost: {known}")
    if damage.taken:
        lines.append(f"{len(damage.taken)} rows that the file had lost are taken from a copy")
    for one in damage.healed:
        how = "made again" if one.copy is None else "healed from a copy"
        lost = f"; lost: {one.lost}" if one.lost else ""
        lines.append(f"{one.scope or 'store'}: {how}: {one.place}{lost}")
    lines += damage.again()
    rows = damage.healing.items()
    lines += [f"{scope or 'store'}: {count} rows would be healed" for scope, count in rows]
    if damage.leases:
        lines.append("damaged leases, which hold no state, are removed: they can be taken again")
    lines += damage.repaired or damage.plans
    if damage.stated or any(one.lost != "nothing" for one in damage.repaired):
        lines.append(f"note: {_EFFECTS}")
    lines += damage.stated or [
        *(f"{one}: its damage would be stated as lost" for one in damage.past),
        *(f"store: {one.place} would be removed: {_AGAIN}" for one in damage.dropping),
    ]
    if not damage.found and not damage.healed:
        known = known.replace("nothing", "nothing is damaged", 1)
        lines.append(known if damage.complete else "nothing damaged was found so far")
    session.tell({"findings": len(damage.found), **told}, *lines)
    for text in damage.left:
        session.note(f"not mended: {text}")
    if not damage.complete:
        session.note(
            f"not all was looked at: the time ran out after {damage.entries} entries; go on with "
            "more of it (--budget), or without --budget"
        )


# what was set aside


quarantine = Group(
    "quarantine",
    help="Damaged rows as they were found, kept for whoever wants to know what happened.",
)


@quarantine.verb("list [SCOPE]")
@flag("--all=everything", "Released ones, too.")
def list_(session: Session, scope: str | None, everything: bool) -> None:
    """What was set aside, of a scope or of all."""
    with session.reading() as store:
        made = Recovery(store)
        if scope is not None:
            found = made.quarantine(scope).list()
            if not found:
                check_there(handle_of(store), Scope.parse(scope))
        else:  # what is damaged in its turn keeps nobody from seeing the rest
            agents = recovered_agents(handle_of(store))
            lists = readable(agents, lambda agent: made.quarantine(agent).list())
            found = [one for some in lists for one in some]
    found = [one for one in found if everything or one.released_at is None]
    session.table(
        "quarantine",
        found,
        "id, scope=agent, what=place, why, bytes=size, found=found_at, released=released_at",
        size=lambda one: "missing" if one.content is None else len(one.content),
    )


@quarantine.verb("show SCOPE ID")
@click.option("-o", "--output", "file", type=click.File("wb"), help="Write the row's bytes here.")
def show(session: Session, scope: str, id: str, file: Any) -> None:
    """One of them: what it is, why it is damaged, which recovery found it.

    The bytes are as they lay in storage: sealed if the store is encrypted.
    """
    with session.reading() as store:
        found = Recovery(store).quarantine(scope).get(id)
    if file is not None:
        if found.content is None:
            raise InvalidInputError(f"{id}: there are no bytes: it was missing, or is released")
        file.write(found.content)
    session.fields(found, plain(found).items())


@quarantine.verb("release SCOPE ID")
@click.option("--reason", default="", help="Why; it is kept.")
def release(session: Session, scope: str, id: str, reason: str) -> None:
    """Say that one is dealt with; its bytes are let go, and stay in the history alone.

    One that was released before stays as it is, with the reason and time of then.
    """
    with session.writing() as store:
        done = Recovery(store).quarantine(scope).release(id, reason)
    why = f": {done.reason}" if done.reason else ""
    since = plain(done)["released_at"]
    session.tell(done, f"{scope}: {id} is released since {since}{why}")
