"""Boot recovery on the blocking face: what was unfinished when processes ended comes to an end.

report = boot(store, machines={"orders": ORDERS})
print(report)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.agents.agent_keys import HANDOVER, MAILBOX
from holdfast.agents.effects import Effects
from holdfast.agents.handover import Handovers
from holdfast.agents.machines.definition import MachineDefinition
from holdfast.agents.machines.machine_records import open_intents
from holdfast.agents.mailbox import Mailbox
from holdfast.agents.mailbox_records import BEGUN
from holdfast.checkpoints.operation import finish
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
)
from holdfast.recovery import failure_kinds
from holdfast.recovery.context import Machines, machines_on_loop
from holdfast.recovery.failure_kinds import log
from holdfast.recovery.heal import damage_of
from holdfast.recovery.records import (
    ROLLED_BACK,
    SUCCEEDED,
    Records,
    check_there,
    every_scope,
    given_core,
    given_scope,
    is_own,
    notices_scope,
    recovered_agents,
)
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.report import RecoveryReport
from holdfast.recovery.run import LEASE
from holdfast.recovery.watchdog import BOOT_OWNER, lease_of
from holdfast.store.inner import StoreHandle, handle_of, held
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import (
    check_flag,
    check_function,
    check_own,
    check_seconds,
    listed,
)
from holdfast.store.names.cause import acting
from holdfast.store.names.face import calls, writes
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import called, safe_point
from holdfast.store.state import State
from holdfast.store.store import Store

_METHODS = {
    failure_kinds.NOTHING: "primary",
    failure_kinds.COPY: "backup",
    failure_kinds.DEFAULTS: "default",
}


@dataclass(frozen=True, slots=True)
class BootItem:
    """Something that was unfinished, and what became of it."""

    scope: Scope
    kind: str
    """recovery, state, operation, transition, effect, handover or request"""
    what: str
    outcome: str
    """completed, rolled_back, retry (whoever does it next does it again), or left to the caller"""
    why: str = ""
    report: RecoveryReport | None = None
    """Of a recovery: every step of it."""


@dataclass(slots=True)
class BootReport:
    """What was found when a store was opened, and what became of it.

    Changes are never unfinished: one is in all of its scopes or in none.
    """

    items: list[BootItem] = field(default_factory=list)
    methods: dict[str, str] = field(default_factory=dict)
    """How each scope that was looked at came back: primary (its newest state), checkpoint, backup
    or default; `none` if it could not."""
    seconds: float = 0.0

    @property
    def left(self) -> list[BootItem]:
        """What the caller has to decide."""
        return [one for one in self.items if one.outcome == "left"]

    def __str__(self) -> str:
        head = f"{len(self.methods)} scopes, {len(self.items)} unfinished, {self.seconds:.2f} s"
        lines = [head, "changes: none is ever unfinished"]
        lines += [f"{s}: {how}" for s, how in self.methods.items() if how != "primary"]
        for one in self.items:
            why = f" ({one.why})" if one.why else ""
            lines.append(f"{one.scope}: {one.kind} {one.what}: {one.outcome}{why}")
        return "\n".join(lines)


@calls("ready", "requests", "effects", machines=machines_on_loop)
@writes
def boot(
    store: Any,
    *,
    recovery: Recovery | None = None,
    scopes: Iterable[Any] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
    ready: Callable[[], Any] | None = None,
    requests: Callable[[State, Any], Any] | None = None,
    effects: Callable[[State, Any], Any] | None = None,
    check: bool = True,
    wait: float = 0.0,
) -> BootReport:
    """Bring what was unfinished to its end, by the choice that was declared for it.

    Call it before anything works on these scopes (all, if none are given): agents that run under a
    lease are left alone, others cannot be told from those that were interrupted; leases of
    processes that died are waited for, `wait` seconds in all. `ready()` is waited for first. Then
    for each scope: recoveries go on; a state that cannot be read
    is recovered (`check=False`: not looked at); operations are undone, unless they were to be kept;
    transitions are settled as `machines` (definitions by the names of machines; those of `recovery`
    count, too) declare; effects
    with an idempotency key are to be done again, about others `effects(state, effect)` says done,
    repeat or drop, or nothing; handovers are reconciled; and letters that wait are given to
    `requests(state, letter)`, which may be called again after the next start: they stay in the
    mailbox until they are processed. What nobody declared anything about is `left` in the report.
    """
    core = given_core(store, "boot")
    core.check_writable()
    for name, function in (("ready", ready), ("requests", requests), ("effects", effects)):
        if function is not None:
            check_function(function, name)
    check_flag(check, "check")
    check_seconds(wait, "wait")
    if recovery is not None and not isinstance(recovery, Recovery):
        raise InvalidInputError("recovery is a Recovery of this store")
    check_own(core, "that recovery", recovery and recovery._handle)
    known = machines if isinstance(machines, Machines) else Machines(machines)
    if recovery is not None:
        its = recovery._settings.machines
        recoverer = known.recoverer if machines is not None else its.recoverer
        known = Machines({**its, **known}, recoverer)
    handle = StoreHandle(core)
    made, end = recovery or Recovery(store), time.monotonic() + wait
    booting = Booting(Store(handle), made, known, requests, effects, check, end)
    given = listed(scopes, "scopes") if scopes is not None else None
    wanted = [given_scope(handle, one) for one in given] if given is not None else None
    for scope in wanted or ():
        check_there(handle, scope)
    if ready is not None:
        called(ready)
    return booting.run(wanted)


_OUTCOMES = {SUCCEEDED: "completed", ROLLED_BACK: "rolled_back"}
"""What became of a recovery that was taken up; one that failed is left as it is."""


@dataclass
class Booting:
    """One boot of one store."""

    _store: Store
    _recovery: Recovery
    _machines: Machines
    _answer: Callable[[State, Any], Any] | None
    _say: Callable[[State, Any], Any] | None
    _check: bool
    _end: float
    """When leases of others are waited for no longer, by the monotonic clock."""
    _report: BootReport = field(default_factory=BootReport)

    def __post_init__(self) -> None:
        self._handle, self._tails = handle_of(self._store), self._recovery._tails

    def run(self, scopes: list[Scope] | None) -> BootReport:
        """All of it."""
        begun = time.monotonic()
        gone: list[Scope] = []
        if scopes is None:
            scopes = self._every_scope()
            known, there = recovered_agents(self._handle), set(scopes)
            gone = [one for one in known if one not in there and not is_own(one)]
        with acting("boot"):
            for scope in scopes:
                if is_own(scope):
                    continue  # recoveries are looked at with what they recover
                safe_point()
                try:
                    self._scope(scope)
                except ScopeNotFoundError:
                    continue  # it was deleted or erased meanwhile: nothing of it is unfinished
                except StateIntegrityError as error:
                    self._report.methods[str(scope)] = "none"
                    self._failed(scope, "state", "damaged", error)
            for scope in gone:  # recoveries of who is not there any more come to their end, too
                with self._leaving(scope, "recovery", "unfinished"):
                    self._recoveries(self._store.scope(scope))
        self._report.seconds = time.monotonic() - begun
        return self._report

    def _every_scope(self) -> list[Scope]:
        """All of them. Those whose row in the directory is damaged, so that nobody knows their
        names, are told of; else those without one: to who asks by name they were never there."""

        def unnamed(key: bytes, error: Exception) -> None:
            why = f"{error}; heal it from a copy: holdfast repair --copy URL"
            self._note(notices_scope(), "state", rowkinds.describe(key), "left", why)

        scopes = every_scope(self._handle, unnamed)
        looks = self._check and not self._report.left
        for number in sorted(self._tails.unlisted()) if looks else ():
            why = (
                "the feed names it, and the directory does not: its row is lost, and whoever "
                "writes to it begins an empty one; before that, heal it from a copy: "
                "holdfast repair --copy URL"
            )
            self._note(notices_scope(), "state", f"scope {number:x}", "left", why)
        return scopes

    def _scope(self, scope: Scope) -> None:
        """Look at a scope; what is to be done there is done under the lease of who runs it."""
        damaged = self._check and damage_of(self._handle.line(scope), self._tails)
        if not damaged and not self._is_unfinished(scope):
            self._report.methods[str(scope)] = "primary"
            return self._requests(scope)
        name = lease_of(scope)
        if name is None:
            return self._settle(scope)
        try:
            left = max(0.0, self._end - time.monotonic())
            with self._store.lease(name, duration=LEASE, wait=left, owner=BOOT_OWNER):
                self._settle(scope)
        except LeaseHeldError:  # it is not ours to settle then
            self._report.methods[str(scope)] = "none" if damaged else "primary"
            why = "somebody runs it, or died a moment ago: wait, or let a watchdog see to it"
            self._note(scope, "state", "unfinished", "left", why)
        return None

    def _note(
        self, scope: Scope, kind: str, what: str, outcome: str, why: str = "", report: Any = None
    ) -> None:
        self._report.items.append(BootItem(scope, kind, what, outcome, why[:500], report))

    # looking

    def _is_unfinished(self, scope: Scope) -> bool:
        """Whether there is anything to settle; a cheap look, without a lease."""
        handle = self._handle.line(scope)
        state = State(handle)
        return bool(
            Records(self._handle, scope).unsettled()
            or any(one.why == "operation" for one in held(handle))
            or open_intents(handle)
            or Effects(state).unfinished()
            or handle.reader.keys(HANDOVER, 1, "")
            or handle.reader.keys(BEGUN, 1, "")
        )

    # settling

    def _settle(self, scope: Scope) -> None:
        state = self._store.scope(scope)
        parts: list[tuple[str, Callable[[State], None]]] = [
            ("recovery", self._recoveries),
            ("state", self._state),
            ("operation", self._operations),
            ("transition", self._transitions),
            ("effect", self._effects),
            ("handover", self._handovers),
            ("request", self._interrupted),
        ]
        for kind, part in parts:
            with self._leaving(scope, kind, kind):
                part(state)
            if self._report.methods.get(str(scope)) == "none":
                return  # there is no state that the rest could be about
        self._requests(scope)

    @contextmanager
    def _leaving(
        self, scope: Scope, kind: str, what: str, also: type[Exception] = HoldfastError
    ) -> Iterator[None]:
        """A block that may fail: one thing that cannot be settled keeps no other from it.

        With `Exception` it is of a user's function, which may raise anything.
        """
        try:
            yield
        except (LeaseLostError, StoreClosedError):
            raise  # another goes on with all of it
        except (HoldfastError, also) as error:
            self._failed(scope, kind, what, error)

    def _failed(self, scope: Scope, kind: str, what: str, error: Exception) -> None:
        known = isinstance(error, HoldfastError)  # then its text says all
        log.warning(
            "%s: %s %s is left: %s", scope, kind, what, error, exc_info=None if known else error
        )
        self._note(scope, kind, what, "left", f"{type(error).__name__}: {error}")

    def _recoveries(self, state: State) -> None:
        for report in self._recovery.resume(state.scope):
            outcome = _OUTCOMES.get(report.status, "left")
            self._note(state.scope, "recovery", report.id, outcome, report.why, report)

    def _state(self, state: State) -> None:
        """The newest state if it can be read, else a checkpoint, a copy, or defaults."""
        methods, scope = self._report.methods, state.scope
        failure = damage_of(self._handle.line(scope), self._tails) if self._check else None
        if failure is None:
            methods[str(scope)] = "primary"
            return
        methods[str(scope)] = "none"
        report = self._recovery.recover(scope, failure)
        methods[str(scope)] = method = _METHODS.get(report.strategy or "", "checkpoint")
        self._note(scope, "state", method, "completed", f"lost: {report.lost}", report)

    def _operations(self, state: State) -> None:
        """Undone, the outer one together with those inside of it, unless it was to be kept."""
        handle = handle_of(state)
        while todo := [one for one in held(handle) if one.on_error == "revert"]:
            first = todo[-1]
            done = finish(handle, first, "revert")
            kept = [one.key for one in done.left] if done is not None else []
            why = f"left alone: {', '.join(map(str, kept))}" if kept else ""
            self._note(state.scope, "operation", first.checkpoint.name, "rolled_back", why)
        for one in held(handle):
            if one.why == "operation":
                why = "it is to be kept: finish it"
                self._note(state.scope, "operation", one.checkpoint.name, "left", why)

    def _transitions(self, state: State) -> None:
        settled, left, _ = self._machines.settle(state)
        for name, how in settled.items():
            outcome = "rolled_back" if how == "roll_back" else "completed"
            self._note(state.scope, "transition", name, outcome)
        for name, why in left.items():
            self._note(state.scope, "transition", name, "left", why)

    def _effects(self, state: State) -> None:
        """Those that may be repeated are to be begun again; about others somebody has to say."""
        book = Effects(state)
        for one in book.unfinished():
            if one.status == "running":
                continue
            with self._leaving(state.scope, "effect", str(one), Exception):
                how = "repeat" if one.repeatable else ""
                if not how and self._say is not None:
                    how = called(self._say, state, one) or ""
                if how not in ("", "done", "repeat", "drop"):
                    raise InvalidInputError("effects says done, repeat or drop, or nothing")
                if how and one.status != "planned":
                    book.settle(one.name, how, id=one.id or None, key=one.key)
                outcome = {"repeat": "retry", "done": "completed", "drop": "rolled_back"}.get(how)
                why = "" if how else "whether it happened is not known: settle it"
                self._note(state.scope, "effect", str(one), outcome or "left", why)

    def _handovers(self, state: State) -> None:
        book = Handovers(self._store)
        done = book.reconcile(state)
        for task in (*done.removed, *done.put_back):
            self._note(state.scope, "handover", task, "completed")
        for offer in book.offers(state):
            self._note(state.scope, "handover", offer.task, "left", "offered: accept or refuse it")

    def _interrupted(self, state: State) -> None:
        """Attempts at letters that their process did not outlive are failures of them."""
        for id in Mailbox(state).interrupted():
            self._note(state.scope, "request", id, "left", "set aside: cut short too often")

    def _requests(self, scope: Scope) -> None:
        """Letters that wait: whoever processes the mailbox next gets them, in their order."""
        state = self._store.scope(scope)
        if not handle_of(state).reader.keys(MAILBOX, 1, ""):
            return
        for letter in Mailbox(state).waiting():
            with self._leaving(scope, "request", letter.id, Exception):
                if self._answer is not None:
                    called(self._answer, state, letter)
                self._note(scope, "request", letter.id, "retry")
