"""Several agents recovered to one moment: all of them, or none.

A moment is a group of checkpoints that were made in one commit, a time, or now. It is looked at
whole before anything is changed: every value of every agent is read, and every check asked. Then
one commit puts all of them back and notes that it did, so there is nothing to undo; a process that
ends before it has changed nothing, and what is left to do after it can be done again.

What the agents told each other, or themselves, since the moment is undone with the rest. A letter
that one of them sent while it processed another will be sent again when that is processed again: it
is taken back in the same commit. Letters from elsewhere stay, and so do those that were sent by
themselves: those are facts, and sent again under their id they are still one. Tasks that were
handed over since stay where they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from holdfast.agents.agent_keys import again
from holdfast.agents.handover import Handovers
from holdfast.agents.mailbox_numbers import letters_taken_back, mend_numbers
from holdfast.checkpoints.restore_request import damaged_sticky, past_damage
from holdfast.errors import (
    GateRefusedError,
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    MissingError,
    OutcomeUnknown,
    RecoveryFailedError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery.changes_of_others import (
    changes_after,
    damage_text,
    first_of_others,
    lost_text,
    of_others,
)
from holdfast.recovery.context import Settings
from holdfast.recovery.failures import AgentFailure, log
from holdfast.recovery.heal import copies_of, is_called_for, set_aside
from holdfast.recovery.moments import Moment, Moments
from holdfast.recovery.procedure import PROCEDURE_TIMEOUT
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import (
    FAILED,
    GROUPS,
    RUNNING,
    SUCCEEDED,
    Tail,
    check_writable,
    correlation_of,
    counted,
    ended_since,
    letting_go,
    new_id,
    notice_of,
    notices_scope,
    planned,
    signed_as,
)
from holdfast.recovery.report import GroupRecoveryReport, group_report
from holdfast.recovery.run import FIRST, LEASE, Slot, recovering_lease
from holdfast.recovery.salvage import sticky_replayed
from holdfast.recovery.strategies import lacking, unreadable
from holdfast.recovery.tails import Tails, depth_for, tell_tail
from holdfast.store.inner import (
    Asked,
    Body,
    Change,
    LineHandle,
    Operation,
    Stage,
    StoreHandle,
    Target,
    Written,
    build_change,
    moment,
    settle_after,
)
from holdfast.store.names.cause import acting, cause_now
from holdfast.store.names.scope import Scope
from holdfast.store.state import State
from holdfast.store.store import Store

TIMEOUT = PROCEDURE_TIMEOUT / 1000
"""Seconds that checks of a group may take, if nothing else is said: those of a procedure."""
_GOES_ON = (LeaseLostError, OutcomeUnknown, StoreClosedError, Unavailable)
"""After these, another process, or this one later, goes on where it stands."""


@contextmanager
def _timed(steps: dict[str, float], name: str) -> Iterator[None]:
    """Note how long something took, with what it took before it was taken up again."""
    begun = time.monotonic()
    yield
    steps[name] = steps.get(name, 0.0) + time.monotonic() - begun


class _Plan(NamedTuple):
    """How one agent of a group goes back."""

    target: Target
    finish: Callable[[list[Written]], Any]
    unsent: int
    """Letters that are taken out of its inbox."""
    damaged: tuple[str, ...]
    """Sticky keys that cannot be read, and are what could be replayed of them."""
    unread: bool
    """Whether some or all of its sticky keys could not be read."""


class Together:
    """Recovers several agents of a store at once."""

    def __init__(self, store: StoreHandle, settings: Settings) -> None:
        self._store = store
        self._blocking = Store(store)
        self._settings = settings
        self._handle = store.line(notices_scope())
        self._tails = Tails(store)
        self._moments = Moments(store, settings)

    # from the failure to the end

    def recover(
        self,
        agents: Iterable[Scope],
        failure: AgentFailure,
        wait: float,
        timeout: float,
        settle: Callable[[Scope], None],
    ) -> GroupRecoveryReport:
        """Begin one and bring it to its end; `settle` ends what was begun of one agent alone."""
        scopes = sorted(set(agents), key=str)
        if not scopes:
            raise InvalidInputError("a group has one or more agents")
        with self._leases(scopes, wait):
            for scope in scopes:
                settle(scope)
            self._moments.check_asked(scopes, failure)
            now = moment(self._store.core.clock.claimed())
            newest = max(self._handle.reader.keys(GROUPS, None, ""), default="")
            id_ = new_id(now, newest.removeprefix(GROUPS))
            steps: dict[str, float] = {}
            with _timed(steps, "set_aside"):
                healed = {str(scope): self._healed(id_, scope, failure) for scope in scopes}
            for scope in scopes:
                check_writable(self._store, scope)
            data = {
                "agents": [str(scope) for scope in scopes],
                "failure": failure.data(),
                "status": RUNNING,
                "started_at": now,
                "heads": {str(scope): self._store.line(scope).place()[2] for scope in scopes},
                "scopes": {str(scope): self._store.core.ledger(scope).id for scope in scopes},
                "gone": {scope: tail for scope, tail in healed.items() if tail is not None},
                "timeout": timeout,
                "steps": steps,
            }
            self._blocking._core.run(self._note(id_, data))
            return self._brought_to_end(id_, data)

    def _healed(self, id_: str, scope: Scope, failure: AgentFailure) -> Tail | None:
        """Set aside what is damaged or lost of an agent, and heal it from copies, before anything
        is kept or looked for; newest entries that are lost after that."""
        tail = self._tails.lost(scope, depth_for(failure))
        if tail is not None:
            Quarantine(self._store, scope).add(self._tails.findings(scope, tail), id_)
        copies = copies_of(self._store.core, self._settings.copies)
        handle = self._store.line(scope)
        if is_called_for(failure, tail, unreadable(handle)):
            set_aside(self._store, scope, copies, id_)
            return self._tails.lost(scope)
        return tail

    def resume(self, wait: float, member: Scope | None = None) -> list[GroupRecoveryReport]:
        """Go on with those, of all or with a member, whose process ended in the middle, but for
        those somebody is at."""
        ended = []
        for id_, found in self.all():
            if found["status"] != RUNNING or (member and str(member) not in found["agents"]):
                continue
            try:
                with self._leases([Scope.parse(one) for one in found["agents"]], wait):
                    self._take_up(id_)
            except LeaseHeldError:  # somebody is at it
                continue
            except _GOES_ON:  # it goes on later, so nothing is ended here
                raise
            except Exception:  # one that cannot be ended keeps no other from its end
                log.warning("recovery %s of a group did not succeed", id_, exc_info=True)
            data = self._get(id_)
            if data is not None and data["status"] != RUNNING:
                ended.append(group_report(id_, data))
        return ended

    def _take_up(self, id_: str) -> None:
        """Go on with one that another began, unless that would undo what was done since."""
        data = self._get(id_)
        if data is None or data["status"] != RUNNING:
            return  # another ended it meanwhile
        if self._ended(data):
            self._finish(id_, data, FAILED)
            return
        for agent, head in data["heads"].items() if "strategy" not in data else ():
            other = first_of_others(self._store.line(Scope.parse(agent)), id_, head)
            if other is not None:
                data["why"] = (
                    f"others wrote to {agent} since it began (entry {other.sequence}), so it was "
                    "not taken up again, and changed nothing"
                )
                self._finish(id_, data, FAILED)
                return
        self._brought_to_end(id_, data)

    def abandon(self, id_: str, why: str) -> GroupRecoveryReport | None:
        """End one that never ended, and change nothing more; None if there is no such one."""
        data = self._get(id_)
        if data is None or data["status"] != RUNNING:
            return None
        with self._leases([Scope.parse(one) for one in data["agents"]], 0):
            data = self._get(id_)
            if data is not None and data["status"] == RUNNING:
                stands = "; that all of them are back stands" if data.get("points") else ""
                data["why"] = "; ".join(filter(None, [data.get("why", ""), why + stands]))
                self._finish(id_, data, SUCCEEDED if "strategy" in data else FAILED)
        return group_report(id_, self._get(id_) or {})

    def _brought_to_end(self, id_: str, data: dict[str, Any]) -> GroupRecoveryReport:
        """Go on, and see to it that whatever is raised ends it first: nothing is left half."""
        try:
            with acting("recovery", correlation=correlation_of(id_)):
                return self._go_on(id_, data)
        except (RecoveryFailedError, *_GOES_ON):  # ended, or to be gone on with
            raise
        except Exception as error:  # also a bug: nothing stays half
            kept = self._get(id_)
            if kept is not None and kept["status"] == RUNNING:
                ended = self._ended(kept)  # then what was raised is a consequence of that
                said = [kept.get("why", ""), "" if ended else f"{type(error).__name__}: {error}"]
                kept["why"] = "; ".join(filter(None, said))[:2000]
                self._finish(id_, kept, SUCCEEDED if "strategy" in kept else FAILED)
                if ended:
                    raise self._failed(id_, kept) from error
                if isinstance(error, StateIntegrityError) and kept["status"] == FAILED:
                    text = f"recovery {id_} of {len(kept['agents'])} agents failed, and changed"
                    raise RecoveryFailedError(f"{text} nothing: {error}", id_) from error
            raise

    def reports(self, limit: int | None) -> list[GroupRecoveryReport]:
        """What became of them, the newest first."""
        return [group_report(id_, data) for id_, data in self.all()][:limit]

    def _leases(self, scopes: Iterable[Scope], wait: float) -> ExitStack:
        """All of their leases, in one order, so that no two wait for each other."""
        with ExitStack() as stack:
            for scope in sorted(scopes, key=str):
                name = recovering_lease(scope)
                stack.enter_context(self._blocking.lease(name, duration=LEASE, wait=wait))
            return stack.pop_all()

    def _go_on(self, id_: str, data: dict[str, Any]) -> GroupRecoveryReport:
        scopes = [Scope.parse(one) for one in data["agents"]]
        steps = data["steps"]
        self._check_there(id_, data)
        if "strategy" not in data:
            with _timed(steps, "look"):
                found, data["passed"] = self._looked(scopes, data)
            if found is None:
                passed = data["passed"].items()
                data["why"] = "; ".join(f"{name}: {why}" for name, why in passed)[:2000]
                self._finish(id_, data, FAILED)
                raise RecoveryFailedError(
                    f"recovery {id_} of {len(scopes)} agents failed, and changed nothing: there is "
                    f"no moment to return to: {data['why']}",
                    id_,
                )
            with _timed(steps, "put_back"):
                self._put_back(id_, data, found)
            self._check_there(id_, data)
        with _timed(steps, "reconcile"):
            for one in data.get("unread", ()):
                state = State(self._store.line(Scope.parse(one)))
                again(lambda state=state: mend_numbers(state))  # type: ignore[misc]
            lines = [self._store.line(scope) for scope in scopes]
            Handovers(self._blocking)._reconcile(lines)
        with _timed(steps, "check"):
            bad = list(filter(None, (unreadable(line) for line in lines if data["points"])))
        if bad:
            why = f"all are back, but that cannot be read whole: {'; '.join(bad)}"
            data["why"] = "; ".join(filter(None, [data["why"], why]))[:2000]
        self._finish(id_, data, FAILED if bad else SUCCEEDED)
        if data["status"] == FAILED:
            raise self._failed(id_, data)
        return group_report(id_, data)

    def _failed(self, id_: str, data: Mapping[str, Any]) -> RecoveryFailedError:
        text = f"recovery {id_} of {len(data['agents'])} agents failed: {data['why']}"
        return RecoveryFailedError(text, id_)

    def _ended(self, data: Mapping[str, Any]) -> str:
        """Which agents were deleted or erased since it began, for people."""
        known = data.get("scopes", {}).items()
        found = (ended_since(self._store.core, Scope.parse(one), id_) for one, id_ in known)
        return "; ".join(filter(None, found))

    def _check_there(self, id_: str, data: dict[str, Any]) -> None:
        """End it, and raise, if an agent was deleted or erased since it began."""
        if self._ended(data):
            self._finish(id_, data, FAILED)
            raise self._failed(id_, data)

    def _looked(
        self, scopes: Sequence[Scope], data: Mapping[str, Any]
    ) -> tuple[Moment | None, dict[str, str]]:
        """Look for a moment; checks, which may hang, get as long as the recovery was given."""
        if not self._settings.validate:
            return self._moments.look(scopes, data)
        seconds = data.get("timeout", TIMEOUT)
        slot = Slot(self._blocking, recovering_lease(scopes[0], FIRST))
        try:
            looked = slot.answer(lambda: self._moments.look(scopes, data))
            wait_for([looked], seconds)
            if looked.done():
                return looked.result()
            slot.give_up()
            return None, {"time": f"to read and check moments took more than {seconds:g} s"}
        finally:
            slot.close(idle=False)

    # putting them back

    def _put_back(self, id_: str, data: dict[str, Any], found: Moment) -> None:
        """One commit: all of them, their inboxes, and the note that it was done."""
        data["strategy"] = found.strategy
        data["why"] = found.why
        data["points"] = {str(scope): "{}@{}".format(*at) for scope, at in found.points.items()}
        again(lambda: self._commit(id_, data, found))  # what others wrote meanwhile counts as lost

    def _commit(self, id_: str, data: dict[str, Any], found: Moment) -> None:
        with ExitStack() as stack:
            plans = {scope: self._plan(stack, id_, scope, found) for scope in found.points}
            data["unsent"] = {str(scope): one.unsent for scope, one in plans.items() if one.unsent}
            data["lost"] = {
                str(scope): self._lost(id_, data, scope, found, one.damaged)
                for scope, one in plans.items()
            }
            data["unread"] = [str(scope) for scope, one in plans.items() if one.unread]
            note = self._note(id_, data)
            targets = [one.target for one in plans.values()]
            written = self._store.core.run(Change([*targets, *note.targets], note.cause))
        for (scope, plan), one in zip(plans.items(), written, strict=False):
            plan.finish([one])
            settle_after(self._store.line(scope))

    def _lost(
        self,
        id_: str,
        data: Mapping[str, Any],
        scope: Scope,
        found: Moment,
        damaged: Sequence[str],
    ) -> str:
        """What an agent loses by going back, with what others wrote since the recovery began."""
        handle, head = self._store.line(scope), data["heads"][str(scope)]
        timeline, sequence = found.points[scope]
        if timeline != handle.timeline:
            lost = lacking(handle, timeline, head)
        else:
            after = changes_after(handle, sequence, head)
            lost = lost_text(after, sum(1 for _ in of_others(handle, id_, head)))
        return damage_text(lost, damaged)

    def _plan(self, stack: ExitStack, id_: str, scope: Scope, found: Moment) -> _Plan:
        handle = self._store.line(scope)
        point, reason = "{}@{}".format(*found.points[scope]), f"recovery {id_}"
        head = handle.place()[2]
        damaged = damaged_sticky(handle)
        replayed = sticky_replayed(handle, point, reason, damaged=bool(damaged))
        there = stack.enter_context(replayed)
        way = stack.enter_context(past_damage(handle, there, "full", reason))
        change, finish = handle.plan_restore(way.point, "full", reason, head, True, way.keep)
        target = change.targets[0]
        stranded = target.stranded is not None  # then sticky keys will be those of the point
        sticky = handle.view(there) if stranded else way.line
        members = {str(one) for one in found.points}
        operations, count = letters_taken_back(sticky.reader, handle.view(point).reader, members)
        if operations:
            self._also(handle, target, operations)
        return _Plan(target, finish, count, way.damaged, stranded or bool(damaged))

    def _also(self, handle: LineHandle, target: Target, operations: list[Operation]) -> None:
        """Let the entry that restores be followed by one that changes the inbox, in its commit."""
        core, restores = handle.core, target.special
        assert restores is not None
        asked: Asked = (handle.scope, handle.timeline, operations, {}, None)
        inbox = build_change(core, [asked], cause=cause_now()).targets[0]

        def special(stage: Stage, body: Body) -> None:
            restores(stage, body)
            stage.add(core.prepared(stage.ledger, inbox), Body(body.time, [], [], body.cause))

        target.special = special

    # what is kept

    def _note(self, id_: str, data: Mapping[str, Any]) -> Change:
        return planned(self._handle, {GROUPS + id_: dict(data)}, reason=f"recovery {id_}")

    def _finish(self, id_: str, data: dict[str, Any], status: str) -> None:
        """Let members tell what they lost, then keep how it ended, and let go of what was held.

        In this order: one that has ended is not taken up again. It has failed if a member is no
        more.
        """
        ended = self._ended(data)
        if ended:
            stands = "the others are back" if data.get("points") else "nothing was changed"
            said = [f"{ended}; {stands}", data.get("why", "")]
            data["why"], status = "; ".join(filter(None, said))[:2000], FAILED
        for agent, tail in data.get("gone", {}).items() if status == SUCCEEDED else ():
            tell_tail(self._store.line(Scope.parse(agent)), tail, id_)
        data |= {"status": status, "finished_at": moment(self._store.core.clock.claimed())}
        data["signed"] = self._store.core.signer is not None
        try:
            self._store.core.run(self._ending(id_, data, self._let_go(id_, data)))
        except (StateIntegrityError, MissingError, GateRefusedError):
            if not ended and self._ended(data):
                self._finish(id_, data, FAILED)
                return
            # A member is damaged, or no more; that may keep no recovery from its end.
            log.warning("recovery %s: what it held of members is held", id_, exc_info=True)
            self._store.core.run(self._ending(id_, data, []))
        counted(self._store.core.meter, data)

    def _let_go(self, id_: str, data: Mapping[str, Any]) -> list[Target]:
        """What lets go of the states before, where there was something to put back."""
        plans = [
            letting_go(self._store.line(Scope.parse(one)), id_, data["heads"][one], data["status"])
            for one in data.get("points", ())
        ]
        found = [target for plan in plans if plan is not None for target in plan[0].targets]
        if data["status"] == SUCCEEDED:  # of members that are there then
            others = {Scope.parse(one) for one in data["agents"]} - {one.scope for one in found}
            found += [Target(one, create=False) for one in sorted(others, key=str)]
        return found

    def _ending(self, id_: str, data: Mapping[str, Any], along: Sequence[Target]) -> Change:
        """The change that says how one ended, with notices, under a signature."""
        failure, status = AgentFailure.of(data["failure"]), data["status"]
        return planned(
            self._handle,
            {GROUPS + id_: dict(data)},
            notices=[notice_of(agent, id_, failure, status) for agent in data["agents"]],
            sign=self._handle.plan_checkpoint(signed_as(id_), "recovery", [status], "", None),
            along=along,
            reason=f"recovery {id_}",
        )

    def all(self) -> list[tuple[str, dict[str, Any]]]:
        """(id, what is kept) of each, the newest first."""
        found = self._handle.reader.items(GROUPS, None, "", False)
        return [(key[len(GROUPS) :], value) for key, value in reversed(found)]

    def _get(self, id_: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._handle.reader.get(GROUPS + id_, None, None, False)
        return found
