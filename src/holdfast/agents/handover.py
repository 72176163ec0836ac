"""Handovers: tasks that agents of a store hand to each other.

handovers = Handovers(store)
offer = handovers.offer("agent:triage", "agent:billing", "t1", reason="it is about money")
handovers.accept("agent:billing", offer.id)          # or: refuse(..., reason="not ours")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec import structs

from holdfast.agents import handover_package as packing
from holdfast.agents.agent_keys import (
    SEEN,
    again,
    again_in_steps,
    own_change,
    run_parts,
    stored,
    task_key,
)
from holdfast.agents.effect_book import EffectBook
from holdfast.agents.handover_package import (
    ACCEPTED,
    CONTEXTS,
    EXPIRED,
    IN,
    OFFERED,
    OUT,
    REFUSED,
    STANDINGS,
    WAITING,
    WITHDRAWN,
    Handover,
    HandoverPackage,
    Reconciled,
    Record,
    Standing,
    conversation,
    keys_of,
    packed,
    record_of,
    standing_of,
    take_again,
)
from holdfast.agents.machines.machine_records import open_intents
from holdfast.agents.state.agent_state import AgentState
from holdfast.agents.state.checks import told
from holdfast.errors import (
    Conflict,
    HandoverNotFoundError,
    HandoverValidationError,
    InvalidInputError,
)
from holdfast.store.inner import (
    ChangeParts,
    LineHandle,
    ScopedChange,
    StoreHandle,
    check_ttl,
    handle_of,
    moment,
    own_step,
)
from holdfast.store.names.arguments import check_function, check_not_async, check_text, listed
from holdfast.store.names.face import Steps, ask, asks, faced, steps, steps_of, write, writes
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.state import State
from holdfast.store.store import Store

Check = Callable[[State, HandoverPackage], Any]


MOST_CHAIN = 10_000


@faced
class Handovers:
    """Tasks that agents of a store hand to each other, with the conversation that belongs to them.

    A task is offered, and the giver's until the taker accepts; then it, its messages and what is
    carried along move in one change over both scopes. An agent is given as its state, or by its
    scope: `agent:billing`, and takes part with its main timeline only. A check is a function of the
    state and the `HandoverPackage`: it returns nothing or True if all is well, else what is wrong;
    it may be called several times.
    """

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError(
                "Handovers takes an open store of the same face: holdfast has its own, so has "
                "holdfast.sync"
            )
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
        carry: Iterable[str] = (),
        term: float | timedelta | None = None,
        check: Check | None = None,
    ) -> Steps[Handover]:
        """Offer a task to another agent; it stays the giver's until the other accepts.

        `context`: the messages since the task came here (all, if it began here) `move`, are copied
        (`copy`), or stay (`none`). `carry` are other keys that move along. Under an `id` it is
        offered once, however often it is sent. With a `term` (seconds) it expires if nobody
        answers: for each process, once that has itself seen the offer for so long.

        Refused with `HandoverValidationError` if there is no such task, it is over or offered
        already, a tool call in those messages has no result, an effect of the giver's has an
        unknown end, or the check finds something.
        """
        a, b = self._main(giver), self._main(taker)
        asked = Asked(reason, id, context, carry, term)
        prepare = partial(self._prepare_offer, a, b, task, asked)
        return (yield from self._again(prepare, self._commit_offer, check, a))

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
        return (yield from self._again(prepare, self._commit_accept, check, b))

    @writes
    def refuse(self, taker: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Refuse an offer; the task stays the giver's."""
        return self._answer(taker, id, REFUSED, reason)

    @writes
    def withdraw(self, giver: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Take an offer back, as its giver."""
        return self._answer(giver, id, WITHDRAWN, reason)

    @writes
    def expire(self, giver: State | Scope | str) -> list[Handover]:
        """End the offers by an agent whose term is over, and tell which: the tasks can be offered
        again, and those offers be accepted no more.

        The next offer of such a task does so by itself.
        """
        line = self._main(giver)
        tasks = [key[len(STANDINGS) :] for key in line.reader.keys(STANDINGS, None, "")]
        ended = [self._expire_of(line, task) for task in tasks]
        return [one for one in ended if one is not None]

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
        carry: Iterable[str] = (),
        check: Check | None = None,
    ) -> Steps[Handover]:
        """Offer and accept, for a caller who answers for both; the check is the taker's.

        With an `id` it may be called again after a crash, and goes on where it was.
        """
        offer, accept = steps_of(self.offer), steps_of(self.accept)
        about = {"reason": reason, "id": id, "context": context, "carry": carry}
        made = yield from offer(giver, taker, task, **about)  # type: ignore[arg-type]
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
        term: float | timedelta | None = None,
        check: Check | None = None,
    ) -> Steps[Handover]:
        """Offer a task to the agent that handed it here, with what has been said since."""
        a = self._main(holder)
        prepare = partial(self._prepare_return, a, task, reason=reason, id=id, term=term)
        return (yield from self._again(prepare, self._commit_offer, check, a))

    def offers(self, taker: State | Scope | str) -> list[Handover]:
        """Offers to an agent that wait for its answer, oldest first."""
        agent = self._main(taker)
        keys = [IN + key[len(WAITING) :] for key in agent.reader.keys(WAITING, None, "")]
        found = agent.reader.get_many(keys, False).values()
        return _in_order(data for data in found if not self._overdue(record_of(data)))

    def history(self, agent: State | Scope | str, task: str | None = None) -> list[Handover]:
        """All handovers by and to an agent, oldest first: who handed what to whom, and why."""
        line = self._main(agent)
        if task is not None:
            packing.check_task(task)
        found = [
            data for where in (OUT, IN) for _, data in line.reader.items(where, None, "", False)
        ]
        return [one for one in _in_order(found) if task is None or one.task == task]

    def owner(self, agent: State | Scope | str, task: str) -> Scope:
        """Who has a task that an agent has, or had once."""
        return self._owner(self._main(agent), task).scope

    def chain(self, agent: State | Scope | str, task: str) -> list[Handover]:
        """The way of a task that an agent has, or had once: what was accepted, oldest first."""
        line = self._owner(self._main(agent), task)
        found: list[Handover] = []
        id = standing_of(line.reader.get(STANDINGS + task)).handover
        while id and len(found) < MOST_CHAIN:
            data = line.reader.get(IN + id)
            if data is None:
                break  # the scope was deleted since
            record = record_of(data)
            found.append(record.shown())
            line, id = self._line(record, OUT), record.before
        return found[::-1]

    @writes
    def reconcile(self, agent: State | Scope | str) -> Reconciled:
        """Make a state that was restored fit what was handed over since; call it after a restore.

        A handover stays made: tasks that another agent has are removed again, those that this one
        has are put back as they came.
        """
        return self._reconcile([self._main(agent)])[0]

    def _answer(self, agent: State | Scope | str, id: str, status: str, reason: str) -> Handover:
        check_text(reason, "the reason", least=1)
        return self._ended(
            self._main(agent), OUT if status == WITHDRAWN else IN, id, status, reason
        )

    def _ended(self, line: LineHandle, where: str, id: str, status: str, reason: str) -> Handover:
        """End an offer that leaves the task where it is, as one of its sides knows it."""

        def step() -> Handover:
            record = self._received(line, id, where)
            if record.status != status:
                prepared = self._prepared(record, status)
                self._check_open(prepared, id, alone=True)
                self._close(prepared, status, reason)
            return record.shown()

        return again(step)

    def _main(self, agent: State | Scope | str) -> LineHandle:
        return on_main(self._handle.of(agent))

    def _again(
        self,
        prepare: Callable[[], Prepared],
        commit: Callable[[Prepared, list[str]], Handover],
        check: Check | None,
        asked: LineHandle,
    ) -> Steps[Handover]:
        """Do both halves of a step; again, with new reads, if somebody was faster."""

        def step() -> Steps[Handover]:
            prepared = yield write(prepare)
            problems = yield from _judge(check, State(asked), prepared)
            return (yield write(commit, prepared, problems))  # type: ignore[no-any-return]

        return (yield from again_in_steps(step))

    # Every step is one change over both scopes. Until the taker accepts, the task is the giver's;
    # the change that accepts moves the task, its messages and what is carried along, so that at any
    # moment exactly one agent has it. Steps that ask the caller's functions come in two halves:
    # what `_prepare_…` reads is expected by the change that the other half commits.

    def _prepare_offer(
        self,
        giver: LineHandle,
        taker: LineHandle,
        task: str,
        asked: Asked,
        returns: str = "",
    ) -> Prepared:
        """Look at the giver's side; refused with all that is wrong with it."""
        packing.check_task(task)
        asked.check()
        if giver.scope == taker.scope:
            raise InvalidInputError(f"{giver.scope}: a task is handed to another agent")
        record = Record(
            id=asked.id or os.urandom(8).hex(),
            task=task,
            giver=str(giver.scope),
            taker=str(taker.scope),
            reason=asked.reason,
            offered_at=self._now(),
            context=asked.context,
            carry=[check_key(key) for key in listed(asked.carry, "carry")],
            returns=returns,
            term=asked.seconds(),
        )
        self._expire_of(giver, task)
        prepared = self._prepared(record, "offered")
        known = prepared.giver.get(OUT + record.id)
        if known is not None:
            return self._repeated(prepared, record_of(known))
        standing = standing_of(prepared.giver.get(STANDINGS + task))
        if standing.offer:
            error = HandoverValidationError(
                f"{giver.scope}: the task {task!r} is offered already, by the handover "
                f"{standing.offer}; withdraw that one first, or give offers a term",
                [f"the task {task!r} is offered already"],
            )
            raise self._handle.core.meter.invalid("handover", error)
        self._look(prepared, standing)
        record.before = standing.handover
        return prepared

    def _prepare_return(
        self,
        holder: LineHandle,
        task: str,
        *,
        reason: str,
        id: str | None,
        term: float | timedelta | None,
    ) -> Prepared:
        """The same, back to who handed the task here, with what came along."""
        known = holder.reader.get(OUT + id) if id else None
        if known is not None and record_of(known).returns:
            came = self._received(holder, record_of(known).returns)
        else:
            came = self._came_by(holder, task)
        asked = Asked(reason, id, came.context, came.carry, term)
        return self._prepare_offer(holder, self._line(came, OUT), task, asked, came.id)

    def _came_by(self, agent: LineHandle, task: str) -> Record:
        """The handover that brought a task to an agent that has it, returns to it left out."""
        packing.check_task(task)
        standing = standing_of(agent.reader.get(STANDINGS + task))
        id = "" if standing.away else standing.handover
        while id:
            came = self._received(agent, id)
            if not came.returns:
                return came
            id = self._received(agent, came.returns, OUT).before
        raise HandoverNotFoundError(
            f"{agent.scope}: the task {task!r} was not handed to this agent, or is not here"
        )

    def _repeated(self, prepared: Prepared, known: Record) -> Prepared:
        asked = prepared.record
        for name in ("task", "giver", "taker"):
            if getattr(asked, name) != getattr(known, name):
                raise InvalidInputError(
                    f"{asked.giver}: the handover {asked.id} was another one; give another id"
                )
        prepared.record, prepared.known = known, True
        return prepared

    def _commit_offer(self, prepared: Prepared, problems: list[str]) -> Handover:
        """Offer the task, unless the giver's check found something."""
        record, giver = prepared.record, prepared.giver
        if prepared.known:
            return record.shown()
        if problems:
            raise self._invalid(record.giver, record.task, problems)
        standing = standing_of(giver.get(STANDINGS + record.task))
        giver.set(STANDINGS + record.task, stored(structs.replace(standing, offer=record.id)))
        self._write(prepared)
        self._overdue(record)  # from now on it is seen
        return record.shown()

    def _prepare_accept(self, taker: LineHandle, id: str) -> Prepared:
        """Look at both sides; what is wrong with the taker's is for the other half to refuse."""
        record = self._received(taker, id)
        if self._overdue(record):
            self._expire(taker, IN, record)
        prepared = self._prepared(record, "accepted")
        prepared.known = record.status == ACCEPTED
        if prepared.known:
            return prepared
        self._check_open(prepared, id)
        self._look(prepared, standing_of(prepared.giver.get(STANDINGS + record.task)))
        if record.returns:
            self._leave(prepared)
        taken = [k for k in keys_of(record, prepared.package) if prepared.taker.exists(k)]
        prepared.problems = [f"{key!r} is there already" for key in taken]
        prepared.problems += AgentState(State(taker)).problems()
        return prepared

    def _leave(self, prepared: Prepared) -> None:
        """Let keys stay where they are that who gets a task back has made again meanwhile."""
        package, exists = prepared.package, prepared.taker.exists
        carried = {key: value for key, value in package.carried.items() if not exists(key)}
        prepared.package = replace(package, carried=carried)

    def _commit_accept(self, prepared: Prepared, problems: list[str]) -> Handover:
        """Move the task, or, if the taker's check found something, refuse it."""
        record = prepared.record
        if prepared.known:
            return record.shown()
        wrong = [*prepared.problems, *problems]
        if wrong:
            self._close(prepared, REFUSED, "; ".join(wrong)[:4096])
            raise self._invalid(record.taker, record.task, wrong)
        kept = None
        if record.context == "move" and prepared.package.context:
            kept = conversation(prepared.giver)[: prepared.start]
        load = packing.load_of(prepared.giver, record, prepared.package)
        packing.take(prepared.giver, record, prepared.package, kept)
        packing.give(prepared.taker, record, prepared.package, load)
        packing.keep(prepared.taker, record, prepared.package, load)
        record.messages = len(prepared.package.context)
        record.carry = list(prepared.package.carried)
        self._close(prepared, ACCEPTED, "")
        return record.shown()

    # offers that nobody answers

    def _expire_of(self, giver: LineHandle, task: str) -> Handover | None:
        id = standing_of(giver.reader.get(STANDINGS + task)).offer
        record = self._received(giver, id, OUT) if id else None
        late = record is not None and self._overdue(record)
        return self._expire(giver, OUT, record) if record is not None and late else None

    def _overdue(self, record: Record) -> bool:
        """Whether this process has itself seen an offer without an answer for all of its term."""
        if record.status != OFFERED or record.term is None:
            return False
        core = self._handle.core
        latest = core.clock.ticks() - record.term
        return core.lapses.lapsed(_watched(record), record.offered_at, latest)

    def _expire(self, line: LineHandle, where: str, record: Record) -> Handover | None:
        """End an offer whose term is over; None if somebody answered it meanwhile."""
        with suppress(InvalidInputError, HandoverNotFoundError):
            why = f"no answer within {record.term:g} s"
            return self._ended(line, where, record.id, EXPIRED, why)
        return None

    # what they are made of

    def _prepared(self, record: Record, what: str) -> Prepared:
        parts = own_change(self._store, reason=f"handover {record.id} {what}")
        giver, taker = (parts.part(self._line(record, where)) for where in (OUT, IN))
        return Prepared(parts, giver, taker, record, HandoverPackage({}, []), 0, [])

    def _received(self, agent: LineHandle, id: str, where: str = IN) -> Record:
        check_text(id, "the id of a handover", 128, least=1)
        data = agent.reader.get(where + id)
        if data is None:
            side = "to" if where == IN else "by"
            raise HandoverNotFoundError(
                f"{agent.scope}: no handover {id!r} was offered {side} this agent; "
                "history() lists them"
            )
        return record_of(data)

    def _check_open(self, prepared: Prepared, id: str, *, alone: bool = False) -> None:
        """Refuse what is answered already; and rest on it that it is not.

        What leaves the task where it is can be done `alone`, after the other agent was deleted.
        """
        known = [part.get(where + id) for part, where in prepared.sides()]
        found = [record_of(data).status for data in known if data is not None]
        if None in known and not alone:
            found.append("not known to both agents")
        for status in found:
            if status != OFFERED:
                self._check_unanswered(prepared.record)
                raise InvalidInputError(f"the handover {id} is {status}; offer it again")

    def _check_unanswered(self, record: Record) -> None:
        """Let what is found wrong be looked at again if somebody answered the offer meanwhile:
        it was read at two moments."""
        data = self._line(record, IN).reader.get(IN + record.id)
        if data is not None and record_of(data).status != record.status:
            raise Conflict(f"{record.taker}: the handover {record.id} was answered meanwhile")

    def _look(self, prepared: Prepared, standing: Standing) -> None:
        """Read what is to be handed over; refused if the giver's state is not in order."""
        record = prepared.record
        line = self._line(record, OUT)
        package, prepared.start = packed(prepared.giver, record, standing)
        unfinished = EffectBook(line).effects(done=False, plain=True)
        problems = packing.giver_problems(record.task, package, unfinished)
        problems += [
            f"the machine {name!r} is on its way to {intent.to_state!r}: recover() or settle() it"
            for name, intent in open_intents(line)
        ]
        carried = package.carried if package is not None else record.carry
        if not record.returns:  # what the holder has removed since does not come back
            problems += [f"there is no key {key!r}" for key in record.carry if key not in carried]
        if standing.away and prepared.giver.get(SEEN + record.task) != standing.handover:
            problems.append(f"the task {record.task!r} was handed on: reconcile() this agent first")
        problems += AgentState(State(line)).problems()
        if package is None or problems:
            self._check_unanswered(record)
            raise self._invalid(record.giver, record.task, problems)
        prepared.package = package

    def _close(self, prepared: Prepared, status: str, answer: str) -> None:
        record, giver = prepared.record, prepared.giver
        record.status, record.answer, record.answered_at = status, answer, self._now()
        if giver.exists(OUT + record.id):  # else the giver was deleted since
            standing = standing_of(giver.get(STANDINGS + record.task))
            standing.offer = ""
            if status == ACCEPTED:
                standing.handover, standing.away = record.id, True
            giver.set(STANDINGS + record.task, stored(standing))
        self._write(prepared)
        self._handle.core.lapses.forget(_watched(record))

    def _write(self, prepared: Prepared) -> None:
        """Commit the record in both scopes, and with the first one that restores leave it alone."""
        record = prepared.record
        for part, where in prepared.sides():
            if record.status == OFFERED or part.exists(where + record.id):
                part.set(where + record.id, stored(record))
        if record.status == OFFERED:
            prepared.taker.set(WAITING + record.id, True)
        elif prepared.taker.exists(WAITING + record.id):
            prepared.taker.delete(WAITING + record.id)
        run_parts(prepared.parts)

    def _line(self, record: Record, where: str) -> LineHandle:
        return self._handle.line(record.giver if where == OUT else record.taker)

    def _now(self) -> Any:
        return moment(self._handle.core.clock.claimed())

    def _invalid(self, scope: str, task: str, problems: list[str]) -> HandoverValidationError:
        error = HandoverValidationError(
            f"{scope}: the task {task!r} cannot be handed over: {'; '.join(problems)}", problems
        )
        return self._handle.core.meter.invalid("handover", error)

    def _reconcile(self, agents: Sequence[LineHandle]) -> list[Reconciled]:
        """The same for several that were put back together, in one change."""

        def note(agent: LineHandle, part: ScopedChange) -> Reconciled:
            removed, back = [], []
            for key in agent.reader.keys(STANDINGS, None, ""):
                task = key[len(STANDINGS) :]
                standing = standing_of(part.get(key))
                if not standing.handover or part.get(SEEN + task) == standing.handover:
                    continue
                data = part.get((OUT if standing.away else IN) + standing.handover)
                if data is None:
                    continue  # damage took it: nothing here says what was handed over
                record = record_of(data)
                if standing.away:
                    take_again(part, record, self._line(record, IN).reader)
                    removed.append(task)
                elif not part.exists(task_key(task)):
                    kept = packing.kept_of(part, record)
                    if kept is None:
                        continue
                    packing.give(part, record, *kept)
                    back.append(task)
                part.set(SEEN + task, standing.handover)
            return Reconciled(tuple(removed), tuple(back))

        return own_step(
            self._store,
            lambda parts: [note(agent, parts.part(agent)) for agent in agents],
            reason="reconciled with what was handed over",
        )

    def _owner(self, agent: LineHandle, task: str) -> LineHandle:
        """Who has a task that an agent has, or had."""
        key = packing.check_task(task)
        if not agent.reader.exists(key) and not agent.reader.exists(STANDINGS + task):
            raise HandoverNotFoundError(
                f"{agent.scope} has no task {task!r}, and never handed it on"
            )
        for _ in range(MOST_CHAIN):
            standing = standing_of(agent.reader.get(STANDINGS + task))
            if not standing.away:
                return agent
            agent = self._line(self._received(agent, standing.handover, OUT), IN)
        raise InvalidInputError(f"the task {task!r} was handed over too often to follow it")


def _judge(check: Check | None, state: State, prepared: Prepared) -> Steps[list[str]]:
    if check is None or prepared.known:
        return []
    check_function(check, "the check of a handover")
    check_not_async(check, "the check of a handover")
    try:
        return told((yield ask(check, state, prepared.package)), "the check")
    except Exception as error:
        return failed(error)


def _watched(record: Record) -> tuple[str, str]:
    """What the store knows an offer by that it has seen."""
    return record.giver, record.id


def on_main(handle: LineHandle) -> LineHandle:
    """Refuse another timeline than main.

    A fork has copies of the tasks and of the records as they were when it began: what it gave away
    would be main's as well, and what it was offered has been answered elsewhere.
    """
    if handle.timeline != "main":
        raise InvalidInputError(
            f"{handle.scope}: handovers are between the main timelines of agents, not on "
            f"{handle.timeline!r}; restore main to the fork, reconcile(), and hand over from there"
        )
    return handle


def _in_order(found: Iterable[Any]) -> list[Handover]:
    """Handovers from what is stored of them, oldest first."""
    shown = [record_of(data).shown() for data in found]
    return sorted(shown, key=lambda one: (one.offered_at, one.id))


def failed(error: Exception) -> list[str]:
    """What a caller's check that raised says: its kind, because its text may hold values."""
    return [f"the check raised {type(error).__name__}"]


# ---- handover steps -----------------------------------------------------------------------------
# Steps of a handover on their way: what a caller asks for, and what is looked at before it.


@dataclass(frozen=True)
class Asked:
    """How a caller wants a task to be handed over."""

    reason: str
    id: str | None
    context: str
    carry: Iterable[str]
    term: float | timedelta | None = None

    def check(self) -> None:
        """Refuse what cannot be meant."""
        check_text(self.reason, "the reason of a handover", least=1)
        if self.id is not None:
            check_text(self.id, "the id of a handover", 128, least=1)
        if self.context not in CONTEXTS:
            raise InvalidInputError(f"the context of a handover is {', '.join(CONTEXTS)}")

    def seconds(self) -> float | None:
        """How long the offer stands without an answer."""
        return check_ttl(self.term, "term") / 1_000_000 if self.term is not None else None


@dataclass
class Prepared:
    """A step that waits for what the caller's function says of it."""

    parts: ChangeParts
    giver: ScopedChange
    taker: ScopedChange
    record: Record
    package: HandoverPackage
    start: int
    problems: list[str]
    """What is wrong with the taker's side."""
    known: bool = False
    """It was done before, under the same id."""

    def sides(self) -> tuple[tuple[ScopedChange, str], ...]:
        """Both agents' parts, and where each keeps its record."""
        return (self.giver, OUT), (self.taker, IN)
