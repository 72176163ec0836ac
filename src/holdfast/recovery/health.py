"""How healthy a store, or one agent of it, is: from 0 to 100, with reasons and what to do next.

Each kind of concern takes its points once, the gravest of it, however many agents have it: so a
store with one damaged agent and one with a thousand of them are both told to repair, and a
thousand small remarks do not hide what is grave. Nothing is written.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path

from holdfast.agents.effect_records import EffectBook
from holdfast.agents.handover import Handovers
from holdfast.agents.machines.machine_records import open_intents
from holdfast.checkpoints.retention import Retention
from holdfast.errors import MissingError, StateIntegrityError
from holdfast.recovery.failure_kinds import grouped
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import FAILED, ROLLED_BACK, RUNNING, Records, every_scope, is_own
from holdfast.recovery.setup.alerts import firing
from holdfast.recovery.strategies import unreadable
from holdfast.store.inner import (
    NO_SIGNER,
    Finding,
    LineHandle,
    Report,
    StoreHandle,
    held,
    moment,
    verify_store,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope
from holdfast.store.store import Store

# Where a store and its secrets lie, and whether there is room: what only its arguments tell.

_FEW = 1 << 30
"""Bytes free below which the disk is called nearly full; and a tenth of it."""
_NONE = 100 << 20
"""Bytes free below which it is called full: a long value may not fit any more."""


def placement(
    url: str, key: str | None, signer: str | None, durability: str
) -> Iterator[tuple[str, str, str]]:
    """What is wrong with what a store was opened with: the kind, what it is, what to do. Only files
    are looked at, and their content never."""
    engine, _, path = url.partition(":")
    if engine == "memory":
        what = "the store is in memory: all of it ends with the process"
        yield "in_memory", what, "open sqlite:PATH instead"
    if durability == "normal":
        what = "durability is normal: a power loss may take the last acknowledged writes"
        yield "durability", what, "open it with durability full"
    if engine != "sqlite" or not path:
        return
    folder = Path(path).parent.resolve()
    for what, source in (("key", key), ("signer", signer)):
        kind, _, name = (source or "").partition(":")
        if kind == "file" and Path(name).expanduser().parent.resolve() == folder:
            text = f"the {what} file lies in the folder of the store: who copies it has both"
            yield f"{what}_beside_store", text, f"move the {what} file to another disk"
    with suppress(OSError):  # opening the store has said so already
        disk, size = shutil.disk_usage(folder), os.path.getsize(path)
        few = disk.free < min(_FEW, disk.total // 10) or disk.free < size // 10
        if few or disk.free < _NONE:
            kind = "disk_full" if disk.free < _NONE else "disk_nearly_full"
            step = "make room: holdfast retention run, holdfast sweep, or a larger disk"
            yield kind, f"{disk.free >> 20} MiB are free on the disk", step


# what is wrong

BUDGET = 10.0
"""Seconds that are spent on `verify`, and as many on the agents one by one."""
MOST = 200
"""Concerns that are told; the others are counted."""
OLD = timedelta(days=1)
"""A newest checkpoint that is older than this, with changes since, is a concern."""
HEAL = "holdfast repair --copy URL; what that leaves needs a copy of the store that is whole"
"""What to do about rows that belong to no scope."""
POINTS = {
    "damaged_state": 60,
    "damaged_store": 40,
    "damaged_past": 20,
    "unfinished_recovery": 25,
    "failed_recovery": 20,
    "unfinished_operation": 10,
    "unfinished_transition": 10,
    "unknown_effect": 10,
    "unsigned": 10,
    "hook_left_out": 10,
    "alert": 10,
    "not_all_looked_at": 5,
    "old_checkpoint": 5,
    "unfinished_pruning": 5,
    "unfinished_erase": 5,
    "signer_with_store": 5,
    "unanswered_handover": 3,
    "dropped_events": 3,
    "retention_due": 3,
    "in_quarantine": 3,
    "unfinished_values": 2,
    "unconfirmed_restore": 2,
    "not_encrypted": 2,
    "known_loss": 0,
    "known_damage": 0,
    "in_memory": 30,
    "disk_full": 30,
    "disk_nearly_full": 10,
    "key_beside_store": 10,
    "signer_beside_store": 5,
    "durability": 5,
}
"""What each kind of concern takes from 100."""


@dataclass(frozen=True, slots=True)
class HealthConcern:
    """One reason why health is not 100, or, without points, what is to be known."""

    kind: str
    scope: str
    """Empty if it is about the whole store."""
    what: str
    points: int
    next: str
    """What to do about it."""

    def __str__(self) -> str:
        where = f"{self.scope}: " if self.scope else ""
        return f"-{self.points} {self.kind}: {where}{self.what}; next: {self.next}"


@dataclass(frozen=True, slots=True)
class Health:
    """What was found, the gravest first."""

    score: int
    """From 0 to 100."""
    concerns: tuple[HealthConcern, ...]
    omitted: int
    """Concerns that are not told, because there are too many."""
    entries: int
    """Entries that were verified."""
    complete: bool
    """Whether everything was looked at; if not, it is a concern, too."""

    def __str__(self) -> str:
        lines = [f"health: {self.score} of 100", *(f"  {one}" for one in self.concerns)]
        return "\n".join([*lines, *([f"  … and {self.omitted} more"] if self.omitted else [])])


def health_of(
    store: StoreHandle, agent: Scope | None, budget: float, placed: Iterable[tuple[str, str, str]]
) -> Health:
    """Look at a store, or at one scope of it; `placed` is what `placement` says."""
    report = verify_store(store.core, agent, budget=budget)
    if structure := [one.message for one in report.findings if one.kind == "storage"]:
        # Which rows are gone can be told once the file is mended: what seems so now would mislead.
        what = f"the file itself is damaged: {structure[0]}"
        one = _concern("damaged_store", "", what, "holdfast repair, then doctor again")
        return Health(max(0, 100 - one.points), (one,), 0, report.entries, False)
    found = [*_damage(store, report.findings), *_of_store(store, report)]
    known = {one.scope for one in found}
    looked, end = True, time.monotonic() + budget
    # All but those in which recoveries keep their own records.
    for scope in [agent] if agent is not None else every_scope(store):
        if agent is None and is_own(scope):
            continue
        if time.monotonic() > end:
            looked = False
            break
        for one in _of_scope(store, scope):  # damage of a scope is told once
            if one.kind not in ("damaged_state", "damaged_past") or one.scope not in known:
                found.append(one)
    found += [_concern(kind, "", what, step) for kind, what, step in placed]
    complete = looked and report.resume is None
    if not complete:
        what = f"time ran out after {report.entries} entries"
        found.append(_concern("not_all_looked_at", "", what, "holdfast doctor --budget SECONDS"))
    found.sort(key=lambda one: (-one.points, one.kind, one.scope))
    score = max(0, 100 - sum({one.kind: one.points for one in found}.values()))
    omitted = max(0, len(found) - MOST)
    return Health(score, tuple(found[:MOST]), omitted, report.entries, complete)


def _concern(kind: str, scope: object, what: str, step: str) -> HealthConcern:
    return HealthConcern(kind, str(scope), what, POINTS[kind], step)


# of the whole store


def _damage(store: StoreHandle, findings: list[Finding]) -> Iterator[HealthConcern]:
    """One concern for each scope, of what is graver: damage of its newest state."""
    for scope, mine in grouped(findings).items():
        first = mine[0]
        more = f" (and {len(mine) - 1} more)" if len(mine) > 1 else ""
        what = f"{first.place}: {first.message}{more}"
        keys = sorted({key for one in mine for key in one.keys})
        if keys:
            names = ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
            what = f"damaged keys: {names}: {what}"
        if scope:
            # Without its row a timeline cannot be reached at all.
            newest = bool(keys) or any(
                one.kind == "feed" or rowkinds.is_fork(bytes.fromhex(one.row)) for one in mine
            )
            aside = []
            with suppress(StateIntegrityError):  # then nobody can say that it is dealt with
                aside = [] if newest else Quarantine(store, Scope.parse(scope)).list()
            open_ = {one.id.partition(".")[0] for one in aside if one.released_at is None}
            released = {one.id.partition(".")[0] for one in aside} - open_
            if all(one.row in released for one in mine):
                step = f"nothing; `holdfast quarantine list {scope} --all` has what is left of it"
                yield _concern("known_damage", scope, f"released from quarantine: {what}", step)
            else:
                yield _damaged(store.line(scope), what, known=newest)
        else:
            yield _concern("damaged_store", "", what, HEAL)


def _damaged(handle: LineHandle, what: str, *, known: bool = False) -> HealthConcern:
    """Damage of a scope: of its newest state, if that is known or it cannot be read, or before."""
    scope = handle.scope
    if known or unreadable(handle) is not None:
        return _concern("damaged_state", scope, what, f"holdfast repair {scope}")
    step = (
        f"holdfast repair {scope} --copy URL; if no copy of the store has it, its newest state can "
        f"be read all the same: holdfast repair {scope} --accept-loss states the rest as lost"
        + ("" if handle.core.signer is not None else f", once the signer is here: {NO_SIGNER}")
    )
    return _concern("damaged_past", scope, what, step)


def _of_store(store: StoreHandle, report: Report) -> Iterator[HealthConcern]:
    """What was left over; what is out of bounds, parts that died, as whoever watches keeps it; what
    this process lost or passed over; and where keys are."""
    if report.unfinished:
        what = f"{report.unfinished} long values were never finished"
        yield _concern("unfinished_values", "", what, "holdfast sweep --wait")
    if report.pruning:
        what = f"the pruning of {report.pruning} scopes was cut short"
        yield _concern("unfinished_pruning", "", what, "holdfast retention run SCOPE")
    if report.unswept:
        what = f"{report.unswept} erases of scopes or subjects are not finished"
        yield _concern("unfinished_erase", "", what, "holdfast sweep; of a subject, erase it again")
    for scope, losses in groupby(report.losses, lambda one: one.scope):
        first, *more = (one.what for one in losses)  # what is answered, and stays true
        what = f"lost, and answered: {first}" + (f" (and {len(more)} more)" if more else "")
        step = "nothing; `holdfast verify` names the entry that tells of it"
        yield _concern("known_loss", scope, what, step)
    for alert in firing(store):
        yield _concern("alert", "", str(alert), "mend what it names; then it resolves")
    if dropped := store.core.meter.read().count("events", outcome="dropped"):
        what = f"{dropped} events of this process's log did not fit into its queue"
        yield _concern("dropped_events", "", what, "Events(queue=…), or log.write, which waits")
    for outcome, told in (
        ("passed_over", "was not asked about {} changes"),
        ("opened", "was told of nothing for a while, {} times; changes wait for it"),
    ):
        for name, count in store.core.meter.read().by("hooks", "hook", outcome=outcome).items():
            what = f"the hook {name} failed again and again, and {told.format(count)}"
            yield _concern("hook_left_out", "", what, "mend the hook; it is asked again by itself")
    core = store.core
    if core.signer is None:
        step = "give --signer file:PATH to whoever makes checkpoints"
        yield _concern("unsigned", "", "the signer is not here: checkpoints are not signed", step)
    elif core.self_signed:
        what = "the signer lies with the store: who can write the store can sign what they wrote"
        step = "pin the identity and keep witnesses elsewhere (holdfast witness)"
        yield _concern("signer_with_store", "", what, step)
    if core.ring is None:
        what = "it is not encrypted: who can read the file can read the state"
        step = "make a new store with --key, and import checkpoints"
        yield _concern("not_encrypted", "", what, step)


# of one scope


def _of_scope(store: StoreHandle, scope: Scope) -> Iterator[HealthConcern]:
    handle = store.line(scope)
    try:
        store.core.known(scope)
    except StateIntegrityError as error:  # its row in the directory: nothing else can be looked at
        yield _concern("damaged_state", scope, str(error), HEAL)
        return
    for look in (_recoveries, _held, _transitions, _outside, _checkpoints, _retention):
        try:
            yield from look(store, handle)
        except MissingError:
            continue  # nothing of the kind is there
        except StateIntegrityError as error:
            yield _damaged(handle, str(error))


def _recoveries(store: StoreHandle, handle: LineHandle) -> Iterator[HealthConcern]:
    scope = handle.scope
    records = Records(store, scope)
    known = records.all(10)
    for one in known:
        if one.status == RUNNING:
            what = f"recovery {one.id} has not ended; unless somebody is at it"
            yield _concern("unfinished_recovery", scope, what, f"holdfast recovery resume {scope}")
    if known and known[0].status in (FAILED, ROLLED_BACK):
        what = f"its last recovery, {known[0].id}, did not succeed"
        yield _concern("failed_recovery", scope, what, f"holdfast recovery show {scope}")
    try:
        aside = [one for one in Quarantine(store, scope).list() if one.released_at is None]
    except StateIntegrityError as error:  # of the quarantine, not of the agent
        yield _damaged(records.handle, str(error))
        return
    if aside:
        what = f"{len(aside)} damaged or lost rows are in quarantine"
        step = f"holdfast quarantine list {scope}, then release what is dealt with"
        yield _concern("in_quarantine", scope, what, step)


def _held(_: StoreHandle, handle: LineHandle) -> Iterator[HealthConcern]:
    scope = handle.scope
    for one in held(handle):
        id_ = one.checkpoint.id
        if one.why == "operation":
            what = f"the operation after checkpoint {id_} has not ended"
            step = f"holdfast checkpoint finish {scope} {id_} --how revert (or keep)"
            yield _concern("unfinished_operation", scope, what, step)
        elif one.why == "restore":  # a recovery that is not over is a concern of its own
            what = f"the restore with the backup {id_} is not confirmed"
            step = f"holdfast checkpoint confirm {scope} {id_}"
            yield _concern("unconfirmed_restore", scope, what, step)


def _transitions(_: StoreHandle, handle: LineHandle) -> Iterator[HealthConcern]:
    scope = handle.scope
    for name, intent in open_intents(handle):
        what = f"machine {name}: {intent.trigger} was begun and has not ended"
        step = f"holdfast agent transitions {scope}, then `recover` or `settle` of the machine"
        yield _concern("unfinished_transition", scope, what, step)


def _outside(store: StoreHandle, handle: LineHandle) -> Iterator[HealthConcern]:
    """What an agent did, or offered, whose end nobody knows."""
    scope = handle.scope
    for one in EffectBook(handle).effects(done=False, plain=True):
        if one.status == "unknown":
            what = f"whether the effect {one} happened is not known"
            step = f"holdfast agent effects {scope}, then settle it"
            yield _concern("unknown_effect", scope, what, step)
    for offer in Handovers(Store(store)).offers(scope):
        what = f"{offer.giver} offered the task {offer.task}, and has no answer"
        step = f"holdfast agent handovers {scope}"
        yield _concern("unanswered_handover", scope, what, step)


def _checkpoints(store: StoreHandle, handle: LineHandle) -> Iterator[HealthConcern]:
    """Whether an agent that changes is checkpointed."""
    scope = handle.scope
    if scope.kind != "agent":
        return
    head = handle.place()[2]
    newest = next(iter(handle.history.checkpoints(limit=1)), None)
    step = f"holdfast checkpoint create {scope} NAME, or a schedule: holdfast schedule add {scope}"
    if newest is None:
        if head:
            yield _concern("old_checkpoint", scope, "it has no checkpoint", step)
        return
    age = moment(store.core.clock.claimed()) - newest.time
    if age > OLD and newest.sequence < head:
        what = f"its newest checkpoint, {newest.id}, is {age.days} days old, and it went on since"
        yield _concern("old_checkpoint", scope, what, step)


def _retention(store: StoreHandle, handle: LineHandle) -> Iterator[HealthConcern]:
    scope = handle.scope
    plan = Retention(Store(store)).plan(scope)
    if plan.removed:
        what = f"{len(plan.removed)} checkpoints are to go by the rules of retention"
        step = f"holdfast retention plan {scope}, then run"
        yield _concern("retention_due", scope, what, step)
