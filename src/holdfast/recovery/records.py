"""What recoveries keep of themselves: in a scope of its own for each agent, beside the agent's.

Not in the agent's scope: that may be damaged, and is about to be put back. All of it is written
under `$recovery/`, one recovery a key, each step's result a key behind it; so a recovery that was
killed is found, with all that it had done.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

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
from holdfast.recovery.failures import PREFIX, AgentFailure, log
from holdfast.recovery.procedure import Procedure
from holdfast.store.inner import (
    RECOVERIES,
    Body,
    Change,
    ChangeParts,
    Core,
    Held,
    Ledger,
    LineHandle,
    Meter,
    Plan,
    Stage,
    StoreHandle,
    Target,
    directory,
    erase_scope,
    erased_ids,
    held,
    leases_now,
    moment,
)
from holdfast.store.names.cause import cause_now
from holdfast.store.names.scope import BESIDE, Scope, beside

# What steps of recoveries come to.


@dataclass(frozen=True, slots=True)
class RecoveryStepResult:
    """What became of one step; an error becomes a result that says so."""

    step: str
    success: bool
    result: Mapping[str, Any]
    error: str
    seconds: float
    attempt: int
    skipped: bool = False
    """Left out, because a step that it depends on had failed."""
    verdict: str = ""
    """refused: a check refused the state; hopeless: there is no state left to try"""
    validation: Mapping[str, bool] = field(default_factory=dict)
    """For each field that the step's `validation` names, whether the result held that value; empty
    if it names none, or the step came to no result."""
    executed_at: datetime | None = None
    """When it began; None if it was left out."""

    @property
    def outcome(self) -> str:
        """How it ended, for people."""
        return "done" if self.success else "left out" if self.skipped else self.error

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


# Reading what is kept of recoveries past what of it is damaged.

_T = TypeVar("_T")


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


# The checkpoint that signs how a recovery ended, made in the commit that ends it.


def signed_as(recovery: str) -> str:
    """The name of the checkpoint that signs how a recovery ended, which its tag says."""
    return f"recovery {recovery}"


def sign_along(handle: LineHandle, change: Change, sign: Plan) -> None:
    """Let the entry that a change makes in a scope be followed by a checkpoint, in its commit."""
    target = next(one for one in change.targets if one.scope == handle.scope)
    signs = sign[0].targets[0].special
    assert signs is not None

    def special(stage: Stage, body: Body) -> None:
        stage.add(handle.core.prepared(stage.ledger, target), body)
        signs(stage, Body(body.time, [], [], body.cause))

    target.special = special


# An agent that was deleted or erased, also while it is recovered, does not come back by that.


def is_erased(record: Record, core: Core, there: LineHandle, erased: set[bytes]) -> bool:
    """Whether what a copy has was erased here; `erased` are scopes that bore the agent's name.

    If nothing had the name again when the recovery began, nothing of the name comes back, from
    whatever store.
    """
    gone = record.absent or core.known(record.agent) is None
    return bool(erased) and (gone or there.history.points.line().ledger.id in erased)


def stays_erased(agent: Scope) -> str:
    """What is said of an agent that a copy still has."""
    return f"{agent} was erased in this store, and stays erased"


def scope_now(core: Core, agent: Scope) -> Ledger | None:
    """A scope as it is now; None if it is not there, or was erased or deleted since."""
    with suppress(StateIntegrityError):  # then it is there, and damaged
        core.current(agent)
    return core.known(agent)


def ended_since(core: Core, agent: Scope, id: bytes | None) -> str:
    """How a scope that had an id has ended since, for people; empty if it has not, or had none.

    What bears its name by now may be another one.
    """
    now = scope_now(core, agent) if id is not None else None
    if id is None or (now is not None and now.id == id):
        return ""
    return f"{agent} was {'erased' if id in erased_ids(core, agent) else 'deleted'} since it began"


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
        known = [one.checkpoint.id for one in held(line, since) if _is_of(one, recovery)]
        if known:
            plan = plan_release(line, known, outcome, f"after recovery {recovery}")
            plan[0].targets[0].create = False  # an agent that is no more does not come back by this
            return plan
    except ScopeNotFoundError:
        pass  # it was taken back, or erased meanwhile
    except HoldfastError:  # its end is worth more than what it holds
        log.warning("%s: the state before is still held", line.scope, exc_info=True)
    return None


def _is_of(one: Held, recovery: str) -> bool:
    if one.why == "recovery":
        return bool(one.checkpoint.metadata["recovery"] == recovery)
    cause = one.checkpoint.cause
    return one.why == "restore" and cause.correlation == correlation_of(recovery)


# one recovery, and those of one agent, as they are kept

OWNER = BESIDE
PROCEDURE = "/procedure"
Tail = dict[str, list[int]]
"""Timelines that lost entries: the first and the last of them."""
ID = re.compile(r"\d{8}T\d{6}\.\d{6}-[0-9a-f]{4}")
NOTICES = PREFIX + "notices"
GROUPS = PREFIX + "group/"
"""Recoveries of groups, which are kept beside the notices."""
RUNNING, SUCCEEDED, ROLLED_BACK, FAILED = "running", "succeeded", "rolled_back", "failed"
FOUND = ("strategy", "point", "copy")
"""What names a state that was found."""
REFUSED, HOPELESS = "refused", "hopeless"
_HELD = (StateIntegrityError, MissingError, GateRefusedError)
"""What keeps an agent from letting go of the state before, and no recovery from its end."""


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


def check_writable(store: StoreHandle, agent: Scope) -> None:
    """Refuse an agent that can neither be read nor written, not even an empty state: one whose row
    in the directory is damaged."""
    try:
        store.line(agent).place()
    except StateIntegrityError as error:  # told before anything is kept of it
        raise RecoveryFailedError(
            f"{agent}: nothing can be put back, for the row that names it is damaged ({error}); "
            "give a copy of this store's files that has it, or erase the agent and begin anew"
        ) from error


scope_of = beside
"""The scope that keeps the recoveries of another one."""


def is_own(scope: Scope) -> bool:
    """Whether a scope is one in which recoveries keep what is theirs."""
    return scope.kind == "custom" and (scope.id == OWNER or scope.id.startswith(PREFIX))


def notices_scope() -> Scope:
    """The scope whose list tells of every recovery of the store."""
    return Scope("custom", OWNER)


def planned(
    handle: LineHandle,
    values: Mapping[str, Any],
    *,
    drop: str | None = None,
    notices: Iterable[Mapping[str, Any]] = (),
    sign: Plan | None = None,
    along: Iterable[Target] = (),
    reason: str | None = None,
) -> Change:
    """Set keys that this layer owns, drop one, and add notices, in one change.

    A checkpoint that is to sign it is made in the same commit, and what else is planned of another
    scope: none of it is there without the rest.
    """
    store = StoreHandle(handle.core)
    parts = ChangeParts(store, cause_now(reason=reason), None, owner=True)
    part = parts.part(handle)
    if drop is not None:
        part.delete(drop)
    for key, value in values.items():
        part.set(key, value)
    for notice in notices:
        parts.part(store.line(notices_scope())).append(NOTICES, notice)
    plan = parts.plan()
    assert plan is not None
    if sign is not None:
        sign_along(handle, plan[0], sign)
    plan[0].targets.extend(along)
    return plan[0]


def write(handle: LineHandle, values: Mapping[str, Any], **more: Any) -> None:
    """The same, done at once."""
    handle.core.run(planned(handle, values, **more))


def new_id(now: datetime, newest: str = "") -> str:
    """The id of a recovery that is begun now, after another one: they sort in this order.

    So where the clock is behind that of the machine that began the one before, an id says a later
    time than it is; `started_at` does not.
    """
    if newest:
        last = datetime.fromisoformat(newest.partition("-")[0]).replace(tzinfo=UTC)
        now = max(now, last + timedelta(microseconds=1))
    return f"{now:%Y%m%dT%H%M%S.%f}-{os.urandom(2).hex()}"


def notice_of(
    agent: str, recovery: str, failure: AgentFailure, status: str, message: str = ""
) -> dict[str, Any]:
    """What dependent systems are told of the end of a recovery."""
    return {
        "agent": agent,
        "recovery": recovery,
        "failure": failure.kind,
        "severity": failure.severity,
        "status": status,
        "message": message,
    }


def counted(meter: Meter, data: Mapping[str, Any]) -> None:
    """Tell a meter of a recovery, of one agent or of a group, that came to an end."""
    seconds = (data["finished_at"] - data["started_at"]).total_seconds()
    meter.add(
        RECOVERIES, (AgentFailure.of(data["failure"]).kind, data["status"]), max(0.0, seconds)
    )


class Record:
    """One recovery, as it is kept."""

    def __init__(self, handle: LineHandle, agent: Scope, id: str, data: Mapping[str, Any]) -> None:
        self.handle = handle
        self.agent = agent
        self.id = id
        self.data: dict[str, Any] = dict(data)
        self._held: dict[str, Any] = {}
        """Results that are kept with whatever is written next."""
        self._lock = threading.RLock()
        """Steps keep what is held from threads of their own, beside the one that takes results."""

    @property
    def key(self) -> str:
        """Where it is kept."""
        return PREFIX + self.id

    @property
    def status(self) -> str:
        """running, succeeded, rolled_back or failed"""
        return str(self.data["status"])

    @property
    def failure(self) -> AgentFailure:
        """What it answers."""
        return AgentFailure.of(self.data["failure"])

    @cached_property
    def procedure(self) -> Procedure:
        """The procedure, as it was when the recovery began; one without steps if it is lost."""
        kept = self.handle.reader.get(self.key + PROCEDURE, None, None, False)
        return Procedure.of(kept) if kept is not None else Procedure("lost", (), ())

    @property
    def attempt(self) -> int:
        """Which attempt is made, from 1."""
        return int(self.data["attempt"])

    def begin(self) -> None:
        """Have it kept, with the first thing that is written of it or for it; the procedure apart,
        for it does not change with what is noted."""
        with self._lock:
            self._held[self.key + PROCEDURE] = self.procedure.data()
            self.note(hold=True)

    @property
    def kept(self) -> bool:
        """Whether anything of it is kept."""
        return self.key + PROCEDURE not in self._held

    def keep(self) -> None:
        """Keep that it was begun, if nothing is kept of it yet."""
        with self._lock:
            if not self.kept:
                self.flush()

    def note(self, *, hold: bool = False, **fields: Any) -> None:
        """Keep what has changed about it: at once, or with whatever is written next.

        Refused to a step that was given up: what it found out is not so any more.
        """
        with self._lock:
            for lease in leases_now():
                if lease.core is self.handle.core:
                    lease.check()
            self.data.update(fields)
            self._held[self.key] = self.data
            if not hold:
                self.flush()

    @property
    def gone(self) -> Tail | None:
        """The newest entries that were lost before it began, by timeline, if any were."""
        return self.data.get("gone")

    @property
    def absent(self) -> bool:
        """Whether there was no such scope when it began; whatever it makes is not the agent."""
        return bool(self.data.get("absent"))

    @property
    def scope_id(self) -> bytes | None:
        """The id of the scope that it is about: another one may get its name. None if there was
        none, and none was made yet."""
        return self.data.get("scope")

    @property
    def unread(self) -> str:
        """What stands in place of a state before that could not be read; empty if it was read."""
        return str(self.data.get("unread", ""))

    def bars(self, found: Mapping[str, Any]) -> bool:
        """Whether what a step found names a state, and none that an earlier attempt was refused."""
        known = [one for one in self.data.get("bad", ()) if one["attempt"] != self.attempt]
        named = all(name in found for name in FOUND)
        return named and not any(all(one[name] == found[name] for name in FOUND) for one in known)

    def bar(self, found: Mapping[str, Any], why: str) -> None:
        """Note that a check refused a state, which its strategy is not to find again."""
        known = [one for one in self.data.get("bad", ()) if one["attempt"] != self.attempt]
        one = {name: found[name] for name in FOUND}
        self.note(bad=[*known, one | {"why": why[:500], "attempt": self.attempt}])

    def finish(self, status: str, why: str) -> None:
        """Keep how it ended, with a checkpoint over all of it: that signs the report.

        The notice of it is added in the same change: there is one for each end, and no other. What
        was held for it is let go in it, too. If its agent has ended, `RecoveryFailedError`, and it
        has failed.
        """
        self.end_with_agent()
        self._finish(status, why, gone=False)

    def end_with_agent(self) -> None:
        """End it as failed, and raise, if its agent was deleted or erased since it began.

        Of an erased one nothing is kept: what was written of it since goes, and nobody is told.
        """
        core = self.handle.core
        why = ended_since(core, self.agent, self.scope_id)
        if not why:
            return
        if self.scope_id in erased_ids(core, self.agent):
            self._held = {}
            self.data |= {"status": FAILED, "why": why, "finished_at": moment(core.clock.claimed())}
            if scope_now(core, self.handle.scope) is not None:
                erase_scope(StoreHandle(core), self.handle.scope)
            counted(core.meter, self.data)
        else:
            self._finish(FAILED, why, gone=True)
        raise RecoveryFailedError(f"{self.agent}: recovery {self.id} failed: {why}", self.id)

    def _finish(self, status: str, why: str, *, gone: bool) -> None:
        now, before = moment(self.handle.core.clock.claimed()), dict(self.data)
        signed = self.handle.core.signer is not None
        for along in (self._letting_go(status), None):
            self.note(hold=True, status=status, why=why[:4000], finished_at=now, signed=signed)
            try:
                self.flush(self._signed(status), self.notice(), along)
                break
            except HoldfastError as error:
                self.data = before  # it has not ended: nothing else may say so
                self.note(hold=True)
                if not gone:
                    self.end_with_agent()
                if along is None or not isinstance(error, _HELD):
                    raise
                # The agent is damaged; that may keep no recovery from its end.
                log.warning("%s: its state before is still held", self.agent, exc_info=True)
        counted(self.handle.core.meter, self.data)

    def _letting_go(self, status: str) -> Plan | None:
        line = StoreHandle(self.handle.core).line(self.agent)
        since = self.data.get("first", self.data.get("head")) or 0
        plan = letting_go(line, self.id, since, status)
        if plan is None and status == SUCCEEDED:  # of an agent that is there then
            return Change([Target(self.agent, create=False)]), lambda _: None
        return plan

    def notice(self) -> dict[str, Any]:
        """What dependent systems are told of its end."""
        message = self.data.get("message", "")
        return notice_of(str(self.agent), self.id, self.failure, self.status, message)

    def _signed(self, status: str) -> Plan:
        return self.handle.plan_checkpoint(signed_as(self.id), "recovery", [status], "", None)

    def note_result(self, part: str, result: RecoveryStepResult, hold: bool = False) -> None:
        """Keep what became of a step: at once, or with whatever is written next."""
        place = f"{self.key}/{result.attempt:03}/{part}/{result.step}"
        with self._lock:
            self._held[place] = result.data()
            if not hold:
                self.flush()

    def flush(
        self,
        sign: Plan | None = None,
        notice: Mapping[str, Any] | None = None,
        along: Plan | None = None,
    ) -> None:
        """Keep what was held back, in one change, with what is planned of another scope."""
        with self._lock:
            if self._held or along is not None:  # a step beside may have kept it meanwhile
                values = self._held or {self.key: self.data}
                notices = [notice] if notice is not None else []
                targets = along[0].targets if along is not None else ()
                write(self.handle, values, sign=sign, notices=notices, along=targets)
                self._held = {}

    def done(self, part: str) -> dict[str, RecoveryStepResult]:
        """What the steps of this attempt came to so far, as it is kept."""
        if not self.kept:
            return {}
        prefix = f"{self.key}/{self.attempt:03}/{part}/"
        found = self.handle.reader.items(prefix, None, "", False)
        return {value["step"]: RecoveryStepResult(**value) for _, value in found}

    def all_results(self) -> list[tuple[str, RecoveryStepResult]]:
        """(part, result) of every step of every attempt, in the order in which they are done."""
        found = self.handle.reader.items(self.key + "/", None, "", False)
        rows = [(key.split("/", 4), value) for key, value in found]
        steps = [(part, step.key) for part, steps in self.procedure.parts() for step in steps]
        order = {key: number for number, key in enumerate(steps)}
        results = [(parts[3], RecoveryStepResult(**one)) for parts, one in rows if len(parts) == 5]
        # Those that the procedure does not name undo it: they come last.
        return sorted(
            results, key=lambda it: (it[1].attempt, order.get((it[0], it[1].step), len(order)))
        )


class Records:
    """The recoveries of one agent."""

    def __init__(self, store: StoreHandle, agent: Scope) -> None:
        self.agent = agent
        self._store = store
        self.handle = store.line(scope_of(agent))

    def begin(
        self, failure: AgentFailure, procedure: Procedure, gone: Tail | None = None
    ) -> Record:
        """A new one, which is kept before anything is done, or with the first thing that is."""
        record = self.draft(failure, procedure)
        record.data["gone"] = gone
        with suppress(StateIntegrityError):  # then they are mended, or nothing can be kept
            record.id = new_id(record.data["started_at"], next(iter(self._ids()), ""))
        with suppress(StateIntegrityError):  # a head that cannot be read is not known
            head = self._store.line(self.agent).place()[2]
            record.data |= {"head": head, "first": head}
            record.data["absent"] = not head and self._store.core.known(self.agent) is None
        with suppress(StateIntegrityError):  # its row is damaged, so is its id
            there = self._store.core.known(self.agent)
            record.data["scope"] = there.id if there is not None else None
        record.begin()
        return record

    def draft(self, failure: AgentFailure, procedure: Procedure) -> Record:
        """A new one that is not kept yet."""
        now = moment(self.handle.core.clock.claimed())
        id_ = new_id(now)
        said = {
            "agent": str(self.agent),
            "failure": failure.data(),
            "status": RUNNING,
            "attempt": 1,
            "started_at": now,
        }
        record = Record(self.handle, self.agent, id_, said)
        record.procedure = procedure
        return record

    def get(self, id: str) -> Record:
        """One that was begun."""
        data = self.handle.reader.get(PREFIX + id, None, None, False)
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

    def running(self) -> list[Record]:
        """Those that did not come to an end."""
        return [record for record in self.all() if record.status == RUNNING]

    def unsettled(self) -> bool:
        """Whether one has not ended, or may not have: what is kept of them is damaged."""
        found, why = self.look()
        return why is not None or any(record.status == RUNNING for record in found)


# Which scopes of a store recoveries have to do with.


def recovered_agents(store: StoreHandle) -> list[Scope]:
    """Every scope that has had a recovery, or damaged rows that were set aside.

    One whose name is too long to be part of another is known by its recoveries only.
    """
    found: list[Scope | None] = []
    for scope in every_scope(store):
        if not is_own(scope) or scope.id == OWNER:
            continue
        name = scope.id.removeprefix(PREFIX)
        if ":" in name or name == "global":
            with suppress(InvalidScopeError):  # else a scope of somebody else, who may call it so
                found.append(Scope.parse(name))
        else:
            found += readable([scope], lambda one: _agent_of(store.line(one)))
    return [one for one in found if one is not None]


def _agent_of(handle: LineHandle) -> Scope | None:
    """Whose recoveries a scope keeps, as the first of them says."""
    first = handle.reader.items(PREFIX, 1, "", False)
    return Scope.parse(first[0][1]["agent"]) if first and "agent" in first[0][1] else None


def every_scope(store: StoreHandle, damaged: directory.Told | None = None) -> list[Scope]:
    """The scopes of a store by their names, as far as the directory can be read.

    A row of it that is damaged is told to `damaged`, or else logged: what is done for the others
    does not wait for it.
    """
    found = directory.scopes(store.core, damaged or _unnamed)
    return sorted((one[0] for one in found), key=str)


def _unnamed(key: bytes, error: Exception) -> None:
    del key
    log.warning("a scope is passed over: %s", error)
