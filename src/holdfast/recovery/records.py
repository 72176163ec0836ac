"""What recoveries keep of themselves: in a scope of its own for each agent, beside the agent's.

Not in the agent's scope: that may be damaged, and is about to be put back. All of it is written
under `$recovery/`, one recovery a key, each step's result a key behind it; so a recovery that was
killed is found, with all that it had done.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, structs

from holdfast.checkpoints.create import plan_release
from holdfast.errors import (
    GateRefusedError,
    HoldfastError,
    InvalidInputError,
    InvalidScopeError,
    MissingError,
    RecoveryFailedError,
    ScopeErasedError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.recovery.failure_kinds import KEPT_PROCEDURES, OWNED, PREFIX, AgentFailure, log
from holdfast.recovery.procedure import Procedure
from holdfast.store.inner import (
    RECOVERIES,
    Body,
    Book,
    BookPage,
    Change,
    ChangeParts,
    Core,
    Ledger,
    LineHandle,
    Plan,
    Stage,
    StoreHandle,
    Target,
    directory,
    erase_scope,
    erased_ids,
    handle_of,
    held,
    leases_now,
    moment,
)
from holdfast.store.names.arguments import check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import called
from holdfast.store.state import State

Tail = dict[str, list[int]]
"""Timelines that lost entries: the first and the last of them."""

# What steps of recoveries come to, and what is kept of a recovery.


class RecoveryStepResult(Struct, frozen=True):
    """What became of one step; an error becomes a result that says so."""

    step: str
    success: bool
    result: dict[str, Any]
    error: str
    seconds: float
    attempt: int
    skipped: bool = False
    """Left out, because a step that it depends on had failed."""
    verdict: str = ""
    """refused: a check refused the state; hopeless: there is no state left to try"""
    validation: dict[str, bool] = {}
    """For each field that the step's `validation` names, whether the result held that value; empty
    if it names none, or the step came to no result."""
    executed_at: datetime | None = None
    """When it began; None if it was left out."""

    @property
    def outcome(self) -> str:
        """How it ended, for people."""
        return "done" if self.success else "left out" if self.skipped else self.error


class RecoveryRecord(Struct, kw_only=True):
    """What is kept of a recovery; its procedure and what its steps came to are keys behind it."""

    agent: str
    failure: dict[str, Any]
    status: str
    attempt: int = 1
    started_at: datetime
    finished_at: datetime | None = None
    why: str = ""
    message: str = ""
    """What the notice of its end says besides."""
    signed: bool | None = None
    gone: Tail | None = None
    """The newest entries that were lost before it began, by timeline, if any were."""
    first: int | None = None
    """The newest entry when it began; None if that could not be read."""
    head: int | None = None
    """What an attempt that failed is put back to."""
    scope: bytes | None = None
    """The id of the scope that it is about: another may get its name. None if there was none."""
    root: str | None = None
    """Of the recovered state."""
    bad: list[dict[str, Any]] = []
    """States that a check refused: what was found, why, and in which attempt."""
    refusal: str = ""
    """Why the last of them was."""
    unread: str = ""
    """What stands in place of a state before that could not be read; empty if it was read."""
    unread_lost: str | None = None
    """What was lost with that."""
    # Kept by earlier versions, and not asked any more.
    absent: bool = False
    lost: str | None = None


class RecoveryNotice(Struct, kw_only=True):
    """The end of a recovery."""

    number: int = 0
    """Its place in the list of all of them."""
    agent: str
    recovery: str
    failure: str
    severity: str
    status: str
    """succeeded, rolled_back or failed"""
    message: str = ""
    """What the procedure's step `notify_systems` had to say besides."""


# Reading what is kept of recoveries past what of it is damaged.

_T = TypeVar("_T")
_S = TypeVar("_S", bound=Struct)


def readable(items: Iterable[Any], read: Callable[[Any], _T]) -> list[_T]:
    """What is read of each; those that are damaged are passed over, with a warning."""
    found = []
    for one in items:
        try:
            found.append(read(one))
        except StateIntegrityError as error:  # it hides none of the others
            pass_over(one, error)
    return found


def pass_over(what: object, error: Exception) -> None:
    """Warn of something that is left out."""
    log.warning("%s: what is kept of recoveries is damaged, and passed over: %s", what, error)


def follow(target: Target, behind: Target) -> None:
    """Let the entry of a target be followed by another one, in its commit."""
    known = target.special, behind.special

    def special(stage: Stage, body: Body) -> None:
        for one, build in zip((target, behind), known, strict=True):
            if build is not None:
                build(stage, body)
            else:
                stage.add(one.prepared(stage.ledger), body)
            body = Body(body.time, [], [], body.cause)

    target.special = special


def check_end(line: LineHandle) -> None:
    """Raise if a scope lacks entries that the feed names: then nothing can be written to it."""
    now = line.reader.now()
    if now is not None and not now.compared:
        now.compare(line.core.lanes)


# An agent that was deleted or erased, also while it is recovered, does not come back by that.


def stays_erased(agent: Scope) -> str:
    """What is said of an agent that a copy still has."""
    return f"{agent} was erased in this store, and stays erased"


def scope_now(core: Core, agent: Scope) -> Ledger | None:
    """A scope as it is now; None if it is not there, or was erased or deleted since."""
    with suppress(StateIntegrityError):  # then it is there, and damaged
        core.current(agent)
    return core.known(agent)


def correlation_of(recovery: str) -> str:
    """What entries of a recovery are known by."""
    return f"recovery/{recovery}"


# What a recovery has held of an agent, let go when it is over.


def letting_go(line: LineHandle, recovery: str, since: int, outcome: str) -> Plan | None:
    """The change that lets go of the state before a recovery, and of the backups of its restores,
    those that undid it included; None if nothing is held, or that is not known.

    `since` is an entry that all of them come behind.
    """
    try:
        made = [(one.why, one.checkpoint) for one in held(line, since, passed=[])]
        known = [
            one.id
            for why, one in made
            if (why == "recovery" and one.metadata["recovery"] == recovery)
            or (why == "restore" and one.cause.correlation == correlation_of(recovery))
        ]
        if known:
            plan = plan_release(line, known, outcome, f"after recovery {recovery}")
            plan[0].targets[0].create = False  # an agent that is no more does not come back by this
            return plan
    except HoldfastError:  # its end is worth more than what it holds
        log.warning("%s: the state before is still held", line.scope, exc_info=True)
    return None


# one recovery, and those of one agent, as they are kept

OWNER = PREFIX.removesuffix("/")
PROCEDURE = "/procedure"
ID = re.compile(r"\d{8}T\d{6}\.\d{6}-[0-9a-f]{4}")
NOTICES = "notices"
"""The list of the ends of all recoveries, in the scope of notices."""
RUNNING, SUCCEEDED, ROLLED_BACK, FAILED = "running", "succeeded", "rolled_back", "failed"
FOUND = ("strategy", "point", "copy")
"""What names a state that was found."""
REFUSED, HOPELESS = "refused", "hopeless"
_HELD = (StateIntegrityError, MissingError, GateRefusedError)
"""What keeps an agent from letting go of the state before, and no recovery from its end."""


def given_core(store: Any, what: str) -> Core:
    """The core of an open store; `what` is what is made from one, for people."""
    core = getattr(store, "_core", None)
    if not isinstance(core, Core):
        raise InvalidInputError(f"{what} takes an open store")
    return core


def given_scope(store: StoreHandle, agent: Any) -> Scope:
    """The scope that is meant by a state of this store, a scope or its text."""
    line = store.of(agent)
    if line.timeline != "main":
        raise InvalidInputError(
            f"recoveries are of the timeline main, not of {line.timeline}: give the state itself; "
            "to take what is on another timeline, adopt it (`restore`)"
        )
    if line.reader.at is not None:
        raise InvalidInputError(
            f"that is a view of {line.scope}: give the state itself, and where to return to as "
            "`point`"
        )
    return line.scope


def check_there(store: StoreHandle, agent: Scope) -> None:
    """Refuse a scope that is not in the store; one that lost all of its entries is."""
    try:
        store.line(agent).history.points.line()
    except ScopeNotFoundError:
        if erased_ids(store.core, agent):
            raise ScopeErasedError(
                f"{agent} was erased in this store, and no copy brings it back; write to it, or "
                "give `defaults`, to begin another one of that name"
            ) from None
        raise ScopeNotFoundError(
            f"there is no scope {agent} in this store to recover; `holdfast scope list` shows them"
        ) from None
    except StateIntegrityError:
        return  # it is there, and damaged


def hashed(scope: Scope) -> str:
    """What stands for a scope in a key, however long its name is."""
    return hashlib.sha256(str(scope).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_own(scope: Scope) -> bool:
    """Whether a scope is one in which recoveries keep what is theirs."""
    return scope.kind == "custom" and (scope.id == OWNER or scope.id.startswith(PREFIX))


def notices_scope() -> Scope:
    """The scope whose list tells of every recovery of the store."""
    return Scope("custom", OWNER)


class Noted(NamedTuple):
    """What is kept of one recovery in a change: records and results by ids, and its procedure."""

    handle: LineHandle
    values: Mapping[str, Any]
    sign: Plan | None = None


def planned(
    store: StoreHandle,
    pages: Sequence[Noted],
    *,
    notices: Collection[RecoveryNotice] = (),
    along: Iterable[Target] = (),
) -> Change:
    """Keep what is noted of recoveries, and add notices, in one change.

    It is no step of a book: a checkpoint that signs it is made in the same commit, and so is what
    is planned of the agent itself; none of it is there without the rest.
    """
    parts = ChangeParts(store, cause_now(), None, owner=True)
    for handle, values, _ in pages:
        part = parts.part(handle)
        for id_, value in values.items():
            if isinstance(value, Struct):
                book_of(handle, type(value)).page(part).put(id_, value)
            else:
                part.set(PREFIX + id_, value)  # a procedure, which is a document of its own
    if notices:
        told = store.line(notices_scope())
        book_of(told, RecoveryNotice).page(parts.part(told)).extend(NOTICES, notices)
    plan = parts.plan()
    assert plan is not None
    for handle, _, sign in pages:
        if sign is not None:  # a checkpoint
            target = next(one for one in plan[0].targets if one.scope == handle.scope)
            follow(target, sign[0].targets[0])
    plan[0].targets.extend(along)
    return plan[0]


def book_of(handle: LineHandle, kind: type[_S]) -> Book[_S]:
    """The records of one kind in a scope that keeps recoveries."""
    return Book(State(handle), OWNED, kind)


def new_id(now: datetime, newest: str = "") -> str:
    """The id of a recovery that is begun now, after another one: they sort in this order.

    So where the clock is behind that of the machine that began the one before, an id says a later
    time than it is; `started_at` does not.
    """
    if newest:
        last = datetime.fromisoformat(newest.partition("-")[0]).replace(tzinfo=UTC)
        now = max(now, last + timedelta(microseconds=1))
    return f"{now:%Y%m%dT%H%M%S.%f}-{os.urandom(2).hex()}"


class Record:
    """One recovery, as it is kept."""

    def __init__(self, handle: LineHandle, agent: Scope, id: str, data: RecoveryRecord) -> None:
        self.handle = handle
        self.agent = agent
        self.id = id
        self.data = data
        self._held: dict[str, Any] = {}
        """What is kept with whatever is written next."""
        self._lock = threading.RLock()
        """Steps keep what is held from threads of their own, beside the one that takes results."""

    @property
    def status(self) -> str:
        """running, succeeded, rolled_back or failed"""
        return self.data.status

    @property
    def failure(self) -> AgentFailure:
        """What it answers."""
        return AgentFailure(**self.data.failure)

    @cached_property
    def procedure(self) -> Procedure:
        """The procedure, as it was when the recovery began; one without steps if it is lost."""
        kept = self.handle.reader.get(PREFIX + self.id + PROCEDURE, None, None, False)
        return Procedure.of(kept) if kept is not None else Procedure("lost", (), ())

    @property
    def attempt(self) -> int:
        """Which attempt is made, from 1."""
        return self.data.attempt

    def begin(self) -> None:
        """Have it kept, with the first thing that is written of it or for it; the procedure apart,
        for it does not change with what is noted."""
        with self._lock:
            self._held[self.id + PROCEDURE] = self.procedure.data()
            self.note(hold=True)

    def keep(self) -> None:
        """Keep that it was begun, if nothing is kept of it yet."""
        with self._lock:
            if self.id + PROCEDURE in self._held:
                self.flush()

    def note(self, *, hold: bool = False, **fields: Any) -> None:
        """Keep what has changed about it: at once, or with whatever is written next.

        Refused to a step that was given up: what it found out is not so any more.
        """
        with self._lock:
            for lease in leases_now():
                if lease.core is self.handle.core:
                    lease.check()
            self.data = structs.replace(self.data, **fields)
            self._held[self.id] = self.data
            if not hold:
                self.flush()

    def bars(self, found: Mapping[str, Any]) -> bool:
        """Whether what a step found names a state, and none that an earlier attempt was refused."""
        known = [one for one in self.data.bad if one["attempt"] != self.attempt]
        named = all(name in found for name in FOUND)
        return named and not any(all(one[name] == found[name] for name in FOUND) for one in known)

    def bar(self, found: Mapping[str, Any], why: str) -> None:
        """Note that a check refused a state, which its strategy is not to find again."""
        known = [one for one in self.data.bad if one["attempt"] != self.attempt]
        one = {name: found[name] for name in FOUND}
        self.note(bad=[*known, one | {"why": why[:500], "attempt": self.attempt}])

    def finish(self, status: str, why: str) -> None:
        """Keep how it ended, with a checkpoint over all of it: that signs the report.

        The notice of it is added in the same change: there is one for each end, and no other. What
        was held for it is let go in it, too. If its agent has ended, `RecoveryFailedError`, and it
        has failed.
        """
        self.end_with_agent()
        self._finish(status, why)

    def end_with_agent(self) -> None:
        """End it as failed, and raise, if its agent was deleted or erased since it began.

        Of an erased one nothing is kept: what was written of it since goes, and nobody is told.
        """
        core, id_ = self.handle.core, self.data.scope
        now = scope_now(core, self.agent) if id_ is not None else None
        if id_ is None or (now is not None and now.id == id_):
            return
        # What bears its name by now may be another one.
        erased = id_ in erased_ids(core, self.agent)
        why = f"{self.agent} was {'erased' if erased else 'deleted'} since it began"
        if erased:
            self._held = {}
            if scope_now(core, self.handle.scope) is not None:
                erase_scope(StoreHandle(core), self.handle.scope)
            end = moment(core.clock.claimed())
            self.data = structs.replace(self.data, status=FAILED, why=why, finished_at=end)
            self.ended()
        else:
            self._finish(FAILED, why)
        raise RecoveryFailedError(f"{self.agent}: recovery {self.id} failed: {why}", self.id)

    def _finish(self, status: str, why: str) -> None:
        before, since = self.data, self.data.first or self.data.head or 0
        agent = StoreHandle(self.handle.core).line(self.agent)
        for along in (letting_go(agent, self.id, since, status), None):
            try:
                self.flush(self.ending(status, why).sign, self.notice(), along)
                break
            except HoldfastError as error:
                self.data = before  # it has not ended: nothing else may say so
                self.note(hold=True)
                if along is None or not isinstance(error, _HELD):
                    raise
                # The agent is damaged; that may keep no recovery from its end.
                log.warning("%s: its state before is still held", self.agent, exc_info=True)
        self.ended()

    def ending(self, status: str, why: str) -> Noted:
        """What is kept when it ends in that way, under a signature."""
        now, signed = moment(self.handle.core.clock.claimed()), self.handle.core.signer is not None
        self.note(hold=True, status=status, why=why[:4000], finished_at=now, signed=signed)
        sign = self.handle.plan_checkpoint(f"recovery {self.id}", "recovery", [status], "", None)
        return Noted(self.handle, self._held, sign)

    def ended(self) -> None:
        """Tell the meter that it came to its end, which is kept."""
        self._held = {}
        assert self.data.finished_at is not None
        seconds = (self.data.finished_at - self.data.started_at).total_seconds()
        labels = (self.failure.kind, self.status)
        self.handle.core.meter.add(RECOVERIES, labels, max(0.0, seconds))

    def notice(self) -> RecoveryNotice:
        """What dependent systems are told of its end."""
        return RecoveryNotice(
            agent=str(self.agent),
            recovery=self.id,
            failure=self.failure.kind,
            severity=self.failure.severity,
            status=self.status,
            message=self.data.message,
        )

    def note_result(self, part: str, result: RecoveryStepResult, hold: bool = False) -> None:
        """Keep what became of a step: at once, or with whatever is written next."""
        with self._lock:
            self._held[f"{self.id}/{result.attempt:03}/{part}/{result.step}"] = result
            if not hold:
                self.flush()

    def flush(
        self,
        sign: Plan | None = None,
        notice: RecoveryNotice | None = None,
        along: Plan | None = None,
    ) -> None:
        """Keep what was held back, in one change, with what is planned of another scope."""
        with self._lock:
            if self._held or along is not None:  # a step beside may have kept it meanwhile
                page = Noted(self.handle, self._held or {self.id: self.data}, sign)
                notices = [notice] if notice is not None else []
                targets = along[0].targets if along is not None else ()
                store = StoreHandle(self.handle.core)
                store.core.run(planned(store, [page], notices=notices, along=targets))
                self._held = {}

    def done(self, part: str) -> dict[str, RecoveryStepResult]:
        """What the steps of this attempt came to so far, as it is kept."""
        if self.id + PROCEDURE in self._held:  # then nothing of it is kept
            return {}
        found = book_of(self.handle, RecoveryStepResult).all(f"{self.id}/{self.attempt:03}/{part}/")
        return {one.step: one for one in found.values()}

    def all_results(self) -> list[tuple[str, RecoveryStepResult]]:
        """(part, result) of every step of every attempt, in the order in which they are done."""
        book = book_of(self.handle, RecoveryStepResult)
        results = [
            (id_.split("/", 3)[2], result)
            for number in range(1, self.attempt + 1)
            for id_, result in book.all(f"{self.id}/{number:03}/").items()
        ]
        steps = [(part, step.key) for part, steps in self.procedure.parts() for step in steps]
        order = {key: number for number, key in enumerate(steps)}
        # Those that the procedure does not name undo it: they come last.
        return sorted(
            results, key=lambda it: (it[1].attempt, order.get((it[0], it[1].step), len(order)))
        )


class Records:
    """The recoveries of one agent."""

    def __init__(self, store: StoreHandle, agent: Scope) -> None:
        self.agent = agent
        self._store = store
        self.handle = store.line(OWNED.scope_beside(agent))
        self._book = book_of(self.handle, RecoveryRecord)

    def begin(
        self, failure: AgentFailure, procedure: Procedure, gone: Tail | None = None
    ) -> Record:
        """A new one, which is kept before anything is done, or with the first thing that is."""
        now, newest = moment(self.handle.core.clock.claimed()), ""
        with suppress(StateIntegrityError):  # then they are mended, or nothing can be kept
            newest = next(iter(self._ids()), "")
        record = self.draft(failure, procedure, new_id(now, newest))
        record.data.gone = gone
        with suppress(StateIntegrityError):  # a head that cannot be read is not known
            record.data.head = record.data.first = self._store.line(self.agent).place()[2]
        with suppress(StateIntegrityError):  # its row is damaged, so is its id
            there = self._store.core.known(self.agent)
            record.data.scope = there.id if there is not None else None
        record.begin()
        return record

    def draft(self, failure: AgentFailure, procedure: Procedure, id: str = "") -> Record:
        """A new one that is not kept yet."""
        now = moment(self.handle.core.clock.claimed())
        data = RecoveryRecord(
            agent=str(self.agent), failure=failure.data(), status=RUNNING, started_at=now
        )
        record = Record(self.handle, self.agent, id or new_id(now), data)
        record.procedure = procedure
        return record

    def get(self, id: str) -> Record:
        """One that was begun."""
        data = self._book.get(id)
        if data is None:
            raise MissingError(f"{self.agent} has had no recovery {id!r}; `reports` lists them")
        return Record(self.handle, self.agent, id, data)

    def all(self, limit: int | None = None) -> list[Record]:
        """Those that were begun, the newest first; what cannot be read is passed over."""
        return self.look(limit)[0]

    def look(self, limit: int | None = None) -> tuple[list[Record], str | None]:
        """The same, and what of it is damaged, if something is."""
        try:
            ids = self._ids()[:limit]
        except StateIntegrityError as error:  # told of, and mended by who recovers next
            pass_over(self.handle.scope, error)
            return [], str(error)
        found = readable(ids, self.get)
        lost = len(ids) - len(found)
        return found, f"{lost} records cannot be read" if lost else None

    def _ids(self) -> list[str]:
        """The ids of those that were begun, the newest first."""
        keys = self.handle.reader.keys(PREFIX, None, "")
        named = (key[len(PREFIX) :] for key in keys if ID.fullmatch(key, len(PREFIX)))
        return sorted(named, reverse=True)

    def unsettled(self) -> bool:
        """Whether one has not ended, or may not have: what is kept of them is damaged."""
        found, why = self.look()
        return why is not None or any(record.status == RUNNING for record in found)


# Which scopes of a store recoveries have to do with.


def recovered_agents(store: StoreHandle) -> list[Scope]:
    """Every scope that has had a recovery, or damaged rows that were set aside.

    One whose name is too long to be part of another is known by its recoveries only.
    """
    found: list[Scope] = []
    for scope in every_scope(store):
        if not is_own(scope) or scope.id == OWNER:
            continue
        name = scope.id.removeprefix(PREFIX)
        if ":" in name or name == "global":
            with suppress(InvalidScopeError):  # else a scope of somebody else, who may call it so
                found.append(Scope.parse(name))
        else:  # the first of its recoveries says whose they are
            read = readable([scope], lambda one: store.line(one).reader.items(PREFIX, 1, "", False))
            found += [Scope.parse(it["agent"]) for one in read for _, it in one if "agent" in it]
    return found


def every_scope(store: StoreHandle, damaged: directory.Told | None = None) -> list[Scope]:
    """The scopes of a store by their names, as far as the directory can be read.

    A row of it that is damaged is told to `damaged`, or else logged: what is done for the others
    does not wait for it.
    """
    told = damaged or (lambda _, error: log.warning("a scope is passed over: %s", error))
    return sorted((one[0] for one in directory.scopes(store.core, told)), key=str)


# Procedures that are kept: for one agent, or for all.
#
# They are in the scope of notices, not with the agent: that may be damaged just when its procedure
# is wanted. Every process that recovers sees them, and they are there after a restart.


class KeptProcedure(Struct):
    """A procedure as it is kept."""

    procedure: dict[str, object]
    """Plain data, which `Procedure.of` reads."""
    agent: str = ""
    """Whose it is; empty: it is for all."""


class ProcedureBook:
    """The procedures of a store's agents."""

    def __init__(self, store: StoreHandle) -> None:
        notices = State(store.line(notices_scope()))
        self._book: Book[KeptProcedure] = Book(notices, KEPT_PROCEDURES, KeptProcedure)

    def set(self, procedures: list[Procedure], agent: Scope | None) -> None:
        """Keep some, each in place of the one of its id; those that are kept so are left."""

        def note(page: BookPage[KeptProcedure]) -> None:
            for one in procedures:
                made = KeptProcedure(one.data(), str(agent or ""))
                if page.get(_id(agent, one.id)) != made:
                    page.put(_id(agent, one.id), made)

        self._book.step(note, reason="procedures of recoveries")

    def remove(self, id: str, agent: Scope | None) -> None:
        """Keep one no longer."""

        def note(page: BookPage[KeptProcedure]) -> None:
            if not page.exists(_id(agent, id)):
                whose = agent if agent is not None else "all agents"
                raise MissingError(
                    f"no procedure {id!r} is kept for {whose}; `recovery.procedures(agent)` "
                    "lists them"
                )
            page.delete(_id(agent, id))

        self._book.step(note, reason="procedures of recoveries")

    def kept(self, agents: Collection[str] | None = None) -> list[KeptProcedure]:
        """All of them, or those of some agents, and of "", which is for all."""
        found = self._book.readable().values()
        return [one for one in found if agents is None or one.agent in agents]

    def all(self, agent: Scope | None) -> list[Procedure]:
        """Those that are kept for all, and then those of an agent."""
        books = (self._book.readable(_id(whose, "")) for whose in dict.fromkeys((None, agent)))
        return [Procedure.of(one.procedure) for kept in books for one in kept.values()]


def _id(agent: Scope | None, id: str) -> str:
    """Whose it is, however long that name is, then the id."""
    return f"{hashed(agent) if agent is not None else 'all'}/{id}"


# Telling dependent systems of recoveries, each exactly once.
#
# Every recovery that ends, well or not, adds a notice to one list, in the change that ends it. A
# consumer keeps how far it has read in its own state, in the same change as what it does with a
# notice: a crash in between does neither.

CURSOR, HAD = PREFIX + "cursor/", PREFIX + "read/"
"""How many notices of the list a consumer has read, and the name of the last of them."""
PAGE = 100


def notices(store: StoreHandle, since: int = 0, limit: int = PAGE) -> list[RecoveryNotice]:
    """Notices from a number on."""
    book = book_of(store.line(notices_scope()), RecoveryNotice)
    found = book.slice(NOTICES, since, since + limit)
    return [structs.replace(one, number=since + n) for n, one in enumerate(found)]


def deliver(
    store: StoreHandle, state: State, consumer: str, function: Callable[[Any, RecoveryNotice], Any]
) -> int:
    """Give a consumer each notice that it has not had; how many there were.

    `function` gets a change of the consumer's state and the notice. What it writes there is
    committed together with the note that the notice was had.
    """
    check_text(consumer, "the name of a consumer", 100, least=1)
    cursor, had, count = CURSOR + consumer, HAD + consumer, 0

    def hand_over(one: RecoveryNotice, at: int, page: BookPage[RecoveryNotice]) -> bool:
        """Give a notice to the function, and note that; False if another process was faster."""
        if int(page.change.get(cursor) or 0) != at:
            return False
        called(function, page.change, one)
        page.change.set(cursor, one.number + 1)
        page.change.set(had, _name(one))
        return True

    while True:
        since = at = int(state.get(cursor, 0))
        last = state.get(had)
        if last is not None and [_name(one) for one in notices(store, at - 1, 1)] != [last]:
            # Damage took notices from the list, so that the last one it had bears another number,
            # or is gone: then those of recoveries that began later are next.
            every = notices(store, 0, store.line(notices_scope()).reader.length(PREFIX + NOTICES))
            since = max((one.number + 1 for one in every if _name(one) <= last), default=0)
        found = notices(store, since)
        if not found:
            return count
        for one in found:
            reason = f"notice of recovery {one.recovery}"
            book = book_of(handle_of(state), RecoveryNotice)
            if not book.step(partial(hand_over, one, at), reason=reason):
                break
            at, count = one.number + 1, count + 1


def _name(one: RecoveryNotice) -> list[str]:
    """What a notice is known by: a recovery of a group has one for each agent, in their order."""
    return [one.recovery, one.agent]
