"""Handovers: tasks that agents of a store hand to each other.

handovers = Handovers(store)
offer = handovers.offer("agent:triage", "agent:billing", "t1", reason="it is about money")
handovers.accept("agent:billing", offer.id)          # or: refuse(..., reason="not ours")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec import structs

from holdfast.agents import handover_package as packing
from holdfast.agents.agent_keys import SEEN, task_key
from holdfast.agents.effect_records import EffectBook
from holdfast.agents.handover_package import (
    ACCEPTED,
    CONTEXTS,
    IN,
    OFFERED,
    OUT,
    OVER,
    REFUSED,
    WAITING,
    WITHDRAWN,
    Handover,
    HandoverPackage,
    Reconciled,
    Record,
    Side,
    conversation,
    keys_of,
    packed,
    take_again,
)
from holdfast.agents.machines.machine_records import open_intents
from holdfast.agents.state.agent_state import AgentState
from holdfast.agents.state.checks import told
from holdfast.agents.tool_calls import open_calls
from holdfast.errors import (
    HandoverValidationError,
    InvalidInputError,
    MissingError,
)
from holdfast.store.inner import (
    ChangeParts,
    LineHandle,
    StoreHandle,
    handle_of,
    moment,
    own_step,
    own_steps,
)
from holdfast.store.names.arguments import check_face, check_function, check_not_async, check_text
from holdfast.store.names.face import Steps, ask, asks, faced, read, steps, steps_of, writes
from holdfast.store.names.scope import Scope
from holdfast.store.state import State
from holdfast.store.store import Store

Check = Callable[[State, HandoverPackage], Any]


MOST_CHAIN = 10_000


@faced
class Handovers:
    """Tasks that agents of a store hand to each other, with the conversation that belongs to them.

    A task is offered, and the giver's until the taker accepts; then it and its messages move in one
    change over both scopes. An agent is given as its state, or by its scope: `agent:billing`, and
    takes part with its main timeline only. A check is a function of the state and the
    `HandoverPackage`: it returns nothing or True if all is well, else what is wrong; it may be
    called several times.
    """

    def __init__(self, store: Store) -> None:
        check_face(store, Store, "Handovers")
        self._store = store
        self._handle: StoreHandle = handle_of(store)

    @asks("check")
    @steps
    def offer(
        self,
        giver: State | Scope | str,
        taker: State | Scope | str,
        task: str,
        *,
        reason: str,
        id: str | None = None,
        context: str = "move",
        check: Check | None = None,
    ) -> Steps[Handover]:
        """Offer a task to another agent; it stays the giver's until the other accepts.

        `context`: the messages since the task came here (all, if it began here) `move`, are copied
        (`copy`), or stay (`none`). Under an `id` it is offered once, however often it is sent. It
        stands until it is answered or withdrawn.

        Refused with `HandoverValidationError` if there is no such task, it is over or offered
        already, a tool call in those messages has no result, an effect of the giver's has an
        unknown end, or the check finds something.
        """
        a, b = self._main(giver), self._main(taker)
        id = os.urandom(8).hex() if id is None else id
        prepare = partial(self._prepare_offer, a, b, task, reason, id, context)
        return (yield from self._step(prepare, self._offered, check, a, f"{id} offered"))

    @asks("check")
    @steps
    def accept(
        self, taker: State | Scope | str, id: str, *, check: Check | None = None
    ) -> Steps[Handover]:
        """Take the task that an offer is about: from now on it is the taker's.

        The giver's side is looked at again; if it is not in order, the offer stays. If the taker's
        is not (such a task or key is there, the check finds something), the offer is refused with
        that as the reason, and `HandoverValidationError` says so.
        """
        b = self._main(taker)
        prepare = partial(self._prepare_accept, b, id)
        return (yield from self._step(prepare, self._accepted, check, b, f"{id} accepted"))

    @writes
    def refuse(self, taker: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Refuse an offer; the task stays the giver's."""
        return self._answer(taker, id, REFUSED, reason)

    @writes
    def withdraw(self, giver: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Take an offer back, as its giver."""
        return self._answer(giver, id, WITHDRAWN, reason)

    @asks("check")
    @steps
    def hand_over(
        self,
        giver: State | Scope | str,
        taker: State | Scope | str,
        task: str,
        *,
        reason: str,
        id: str | None = None,
        context: str = "move",
        check: Check | None = None,
    ) -> Steps[Handover]:
        """Offer and accept, for a caller who answers for both; the check is the taker's.

        With an `id` it may be called again after a crash, and goes on where it was.
        """
        offer, accept = steps_of(self.offer), steps_of(self.accept)
        made = yield from offer(giver, taker, task, reason=reason, id=id, context=context)
        return made if made.status != OFFERED else (yield from accept(taker, made.id, check=check))

    @asks("check")
    @steps
    def give_back(
        self,
        holder: State | Scope | str,
        task: str,
        *,
        reason: str,
        id: str | None = None,
        check: Check | None = None,
    ) -> Steps[Handover]:
        """Offer a task to the agent that handed it here, with what has been said since."""
        a = self._main(holder)
        id = os.urandom(8).hex() if id is None else id
        prepare = partial(self._prepare_return, a, task, reason=reason, id=id)
        return (yield from self._step(prepare, self._offered, check, a, f"{id} offered"))

    def offers(self, taker: State | Scope | str) -> list[Handover]:
        """Offers to an agent that wait for its answer, oldest first."""
        agent = Side(self._main(taker))
        waiting = [key[len(WAITING) :] for key in agent.line.reader.keys(WAITING)]
        found = [agent.record(id, IN) for id in waiting]
        return _in_order(one for one in found if one is not None)

    def history(self, agent: State | Scope | str, task: str | None = None) -> list[Handover]:
        """All handovers by and to an agent, oldest first: who handed what to whom, and why."""
        side = Side(self._main(agent))
        if task is not None:
            packing.check_task(task)
        found = [one for book in side.books.values() for one in book.all().values()]
        return [one for one in _in_order(found) if task is None or one.task == task]

    def owner(self, agent: State | Scope | str, task: str) -> Scope:
        """Who has a task that an agent has, or had once."""
        return self._owner(self._main(agent), task).line.scope

    def chain(self, agent: State | Scope | str, task: str) -> list[Handover]:
        """The way of a task that an agent has, or had once: what was accepted, oldest first."""
        side = self._owner(self._main(agent), task)
        found: list[Handover] = []
        id = side.standing(task).handover
        while id and len(found) < MOST_CHAIN:
            record = side.record(id, IN)
            if record is None:
                break  # the scope was deleted since
            found.append(record.shown())
            side, id = self._side(record, OUT), record.before
        return found[::-1]

    @writes
    def reconcile(self, agent: State | Scope | str) -> Reconciled:
        """Make a state that was restored fit what was handed over since; call it after a restore.

        A handover stays made: tasks that another agent has are removed again, those that this one
        has are put back as they came.
        """
        return self._reconcile([self._main(agent)])[0]

    def _answer(self, agent: State | Scope | str, id: str, status: str, reason: str) -> Handover:
        """End an offer that leaves the task where it is, as one of its sides knows it."""
        check_text(reason, "the reason", least=1)
        line, where = self._main(agent), OUT if status == WITHDRAWN else IN

        def note(parts: ChangeParts) -> Handover:
            prepared = self._prepared(parts, _known(Side(line, parts.part(line)), id, where))
            if prepared.record.status != status:
                self._check_open(prepared, alone=True)
                self._close(prepared, status, reason)
            return prepared.record.shown()

        return own_step(self._store, note, reason=f"handover {id} {status}")

    def _main(self, agent: State | Scope | str) -> LineHandle:
        """Its main timeline; refused where another is given.

        A fork has copies of the tasks and of the records as they were when it began: what it gave
        away would be main's as well, and what it was offered has been answered elsewhere.
        """
        handle = self._handle.of(agent)
        if handle.timeline != "main":
            raise InvalidInputError(
                f"{handle.scope}: handovers are between the main timelines of agents, not on "
                f"{handle.timeline!r}; restore main to the fork, reconcile(), and hand over from "
                "there"
            )
        return handle

    def _step(
        self,
        prepare: Callable[[ChangeParts], Prepared],
        commit: Callable[[Prepared], None],
        check: Check | None,
        asked: LineHandle,
        what: str,
    ) -> Steps[Handover]:
        """Look, ask the caller's check, and write: in one change, done again if it was overtaken.

        What a check finds wrong with a taker is written, too, and told then.
        """

        def note(parts: ChangeParts) -> Steps[Prepared]:
            prepared = yield read(prepare, parts)
            if prepared.known:
                return prepared  # type: ignore[no-any-return]
            if check is not None:
                check_function(check, "the check of a handover")
                check_not_async(check, "the check of a handover")
                try:
                    answer = yield ask(check, State(asked), prepared.package)
                    prepared.problems += told(answer, "the check")
                except Exception as error:  # its text may hold values: its kind is told
                    prepared.problems.append(f"the check raised {type(error).__name__}")
            yield read(commit, prepared)
            return prepared  # type: ignore[no-any-return]

        done = yield from own_steps(self._store, note, reason=f"handover {what}")
        if done.problems:
            raise self._invalid(done.record.taker, done.record.task, done.problems)
        return done.record.shown()

    # Every step is one change over both scopes. Until the taker accepts, the task is the giver's;
    # the change that accepts moves the task and its messages, so that at any moment exactly one
    # agent has it. What `_prepare_…` reads is expected by the change.

    def _prepare_offer(
        self,
        giver: LineHandle,
        taker: LineHandle,
        task: str,
        reason: str,
        id: str,
        context: str,
        parts: ChangeParts,
        returns: str = "",
    ) -> Prepared:
        """Look at the giver's side; refused with all that is wrong with it."""
        packing.check_task(task)
        check_text(reason, "the reason of a handover", least=1)
        check_text(id, "the id of a handover", 128, least=1)
        if context not in CONTEXTS:
            raise InvalidInputError(f"the context of a handover is {', '.join(CONTEXTS)}")
        if giver.scope == taker.scope:
            raise InvalidInputError(f"{giver.scope}: a task is handed to another agent")
        record = Record(
            id=id,
            task=task,
            giver=str(giver.scope),
            taker=str(taker.scope),
            reason=reason,
            offered_at=moment(self._handle.core.clock.claimed()),
            context=context,
            returns=returns,
        )
        prepared = self._prepared(parts, record)
        known = prepared.giver.record(record.id, OUT)
        if known is not None:
            for name in ("task", "giver", "taker"):
                if getattr(record, name) != getattr(known, name):
                    raise InvalidInputError(
                        f"{record.giver}: the handover {id} was another one; give another id"
                    )
            prepared.record, prepared.known = known, True
            return prepared
        standing = prepared.giver.standing(task)
        if standing.offer:
            error = HandoverValidationError(
                f"{giver.scope}: the task {task!r} is offered already, by the handover "
                f"{standing.offer}; withdraw that one first",
                [f"the task {task!r} is offered already"],
            )
            raise self._handle.core.meter.invalid("handover", error)
        self._look(prepared)
        record.before = standing.handover
        return prepared

    def _prepare_return(
        self, holder: LineHandle, task: str, parts: ChangeParts, *, reason: str, id: str
    ) -> Prepared:
        """The same, back to who handed the task here: by a handover that was no return itself."""
        packing.check_task(task)
        side = Side(holder, parts.part(holder))
        known, standing = side.record(id, OUT) if id else None, side.standing(task)
        by = "" if standing.away else standing.handover
        if known is not None and known.returns:
            by = known.returns
        while by:
            came = _known(side, by, IN)
            if not came.returns:
                back, how = self._handle.line(came.giver), came.context
                return self._prepare_offer(holder, back, task, reason, id, how, parts, came.id)
            by = _known(side, came.returns, OUT).before
        raise MissingError(
            f"{side.line.scope}: the task {task!r} was not handed to this agent, or is not here"
        )

    def _offered(self, prepared: Prepared) -> None:
        """Offer the task, unless the giver's check found something."""
        record, giver = prepared.record, prepared.giver
        if prepared.problems:
            raise self._invalid(record.giver, record.task, prepared.problems)
        giver.stands(record.task, structs.replace(giver.standing(record.task), offer=record.id))
        self._write(prepared)

    def _prepare_accept(self, taker: LineHandle, id: str, parts: ChangeParts) -> Prepared:
        """Look at both sides; what is wrong with the taker's is for the other half to refuse."""
        record = _known(Side(taker, parts.part(taker)), id, IN)
        prepared = self._prepared(parts, record)
        prepared.known = record.status == ACCEPTED
        if prepared.known:
            return prepared
        self._check_open(prepared)
        self._look(prepared)
        exists = prepared.taker.part.exists
        taken = [k for k in keys_of(record, prepared.package) if exists(k)]
        prepared.problems = [f"{key!r} is there already" for key in taken]
        prepared.problems += AgentState(State(taker)).problems()
        return prepared

    def _accepted(self, prepared: Prepared) -> None:
        """Move the task, or, if the taker's check found something, refuse it."""
        record, giver, taker = prepared.record, prepared.giver, prepared.taker
        if prepared.problems:
            self._close(prepared, REFUSED, "; ".join(prepared.problems)[:4096])
            return
        kept = None
        if record.context == "move" and prepared.package.context:
            kept = conversation(giver.part)[: prepared.start]
        packing.keep(taker, giver.part, record, prepared.package)
        packing.take(giver.part, record, prepared.package, kept)
        packing.give(taker, record, prepared.package)
        record.messages = len(prepared.package.context)
        self._close(prepared, ACCEPTED, "")

    # what they are made of

    def _prepared(self, parts: ChangeParts, record: Record) -> Prepared:
        lines = self._handle.line(record.giver), self._handle.line(record.taker)
        giver, taker = (Side(line, parts.part(line)) for line in lines)
        return Prepared(giver, taker, record)

    def _check_open(self, prepared: Prepared, *, alone: bool = False) -> None:
        """Refuse what is answered already; and rest on it that it is not.

        What leaves the task where it is can be done `alone`, after the other agent was deleted.
        """
        id = prepared.record.id
        known = [side.record(id, where) for side, where in prepared.sides()]
        found = [one.status for one in known if one is not None]
        if None in known and not alone:
            found.append("not known to both agents")
        for status in found:
            if status != OFFERED:
                raise InvalidInputError(f"the handover {id} is {status}; offer it again")

    def _look(self, prepared: Prepared) -> None:
        """Read what is to be handed over; refused if the giver's state is not in order."""
        record, giver = prepared.record, prepared.giver
        standing = giver.standing(record.task)
        package, prepared.start = packed(giver, record)
        if package is None:
            raise self._invalid(record.giver, record.task, [f"there is no task {record.task!r}"])
        status, parent = package.task.get("status"), package.task.get("parent")
        problems = [f"the task {record.task!r} is {status}"] if status in OVER else []
        if parent:
            problems.append(f"the task {record.task!r} is part of {parent!r}: hand that one over")
        problems += [
            f"the tool call {call.id} has no result: let it end, or repair the conversation"
            for call in open_calls(package.context)
        ]
        problems += [
            f"the effect {effect} is {effect.status}: settle it first"
            for effect in EffectBook(giver.line).effects(done=False, plain=True)
            if effect.status in ("unknown", "running")
        ]
        problems += [
            f"the machine {name!r} is on its way to {intent.to_state!r}: recover() or settle() it"
            for name, intent in open_intents(giver.line)
        ]
        if standing.away and giver.part.get(SEEN + record.task) != standing.handover:
            problems.append(f"the task {record.task!r} was handed on: reconcile() this agent first")
        problems += AgentState(State(giver.line)).problems()
        if problems:
            raise self._invalid(record.giver, record.task, problems)
        prepared.package = package

    def _close(self, prepared: Prepared, status: str, answer: str) -> None:
        record, giver = prepared.record, prepared.giver
        record.status, record.answer = status, answer
        record.answered_at = moment(self._handle.core.clock.claimed())
        if giver.record(record.id, OUT) is not None:  # else the giver was deleted since
            standing = giver.standing(record.task)
            standing.offer = ""
            if status == ACCEPTED:
                standing.handover, standing.away = record.id, True
            giver.stands(record.task, standing)
        self._write(prepared)

    def _write(self, prepared: Prepared) -> None:
        """Note the record in both scopes."""
        record, taker = prepared.record, prepared.taker.part
        for side, where in prepared.sides():
            if record.status == OFFERED or side.record(record.id, where) is not None:
                side.page(side.books[where]).put(record.id, record)
        if record.status == OFFERED:
            taker.set(WAITING + record.id, True)
        elif taker.exists(WAITING + record.id):
            taker.delete(WAITING + record.id)

    def _side(self, record: Record, where: str) -> Side:
        return Side(self._handle.line(record.giver if where == OUT else record.taker))

    def _invalid(self, scope: str, task: str, problems: list[str]) -> HandoverValidationError:
        error = HandoverValidationError(
            f"{scope}: the task {task!r} cannot be handed over: {'; '.join(problems)}", problems
        )
        return self._handle.core.meter.invalid("handover", error)

    def _reconcile(self, agents: Sequence[LineHandle]) -> list[Reconciled]:
        """The same for several that were put back together, in one change."""

        def note(side: Side) -> Reconciled:
            removed, back, part = [], [], side.part
            for task in side.standings.all():
                standing = side.standing(task)
                if not standing.handover or part.get(SEEN + task) == standing.handover:
                    continue
                record = side.record(standing.handover, OUT if standing.away else IN)
                if record is None:
                    continue  # damage took it: nothing here says what was handed over
                if standing.away:
                    take_again(part, record, self._side(record, IN))
                    removed.append(task)
                elif not part.exists(task_key(task)):
                    kept = side.of(side.packages).get(record.id)
                    if kept is None:
                        continue
                    packing.give(side, record, kept)
                    back.append(task)
                part.set(SEEN + task, standing.handover)
            return Reconciled(tuple(removed), tuple(back))

        return own_step(
            self._store,
            lambda parts: [note(Side(agent, parts.part(agent))) for agent in agents],
            reason="reconciled with what was handed over",
        )

    def _owner(self, agent: LineHandle, task: str) -> Side:
        """Who has a task that an agent has, or had."""
        key, side = packing.check_task(task), Side(agent)
        if not agent.reader.exists(key) and side.standings.get(task) is None:
            raise MissingError(f"{agent.scope} has no task {task!r}, and never handed it on")
        for _ in range(MOST_CHAIN):
            standing = side.standing(task)
            if not standing.away:
                return side
            side = self._side(_known(side, standing.handover, OUT), IN)
        raise InvalidInputError(f"the task {task!r} was handed over too often to follow it")


def _known(side: Side, id: str, where: str) -> Record:
    """A handover by or to an agent; refused if there is none."""
    check_text(id, "the id of a handover", 128, least=1)
    found = side.record(id, where)
    if found is None:
        way = "to" if where == IN else "by"
        raise MissingError(
            f"{side.line.scope}: no handover {id!r} was offered {way} this agent; "
            "history() lists them"
        )
    return found


def _in_order(found: Iterable[Record]) -> list[Handover]:
    """Handovers as they are shown, oldest first."""
    shown = [one.shown() for one in found]
    return sorted(shown, key=lambda one: (one.offered_at, one.id))


# ---- handover steps -----------------------------------------------------------------------------
# Steps of a handover on their way: what is looked at before it.


@dataclass
class Prepared:
    """A step that waits for what the caller's function says of it."""

    giver: Side
    taker: Side
    record: Record
    package: HandoverPackage = field(default_factory=lambda: HandoverPackage({}, []))
    start: int = 0
    problems: list[str] = field(default_factory=list)
    """What is wrong with the side that is asked."""
    known: bool = False
    """It was done before, under the same id."""

    def sides(self) -> tuple[tuple[Side, str], ...]:
        """Both agents, and where each keeps its record."""
        return (self.giver, OUT), (self.taker, IN)
