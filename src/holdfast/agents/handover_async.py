"""Handovers of the async face; `holdfast` itself exports it. What it does leaves the loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from holdfast.agents.again import again_async
from holdfast.agents.handover_book import HandoverBook, failed, on_main
from holdfast.agents.handover_records import (
    OFFERED,
    REFUSED,
    WITHDRAWN,
    Handover,
    Package,
    Reconciled,
)
from holdfast.agents.handover_steps import Asked, Prepared
from holdfast.agents.state.checks import told
from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_function
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import read_away, to_the_end
from holdfast.store.state_async import State
from holdfast.store.store_async import Store

Check = Callable[[State, Package], Any]


class Handovers:
    """Tasks that agents of a store hand to each other, with the conversation that belongs to them.

    A task is offered, and the giver's until the taker accepts; then it, its messages and what is
    carried along move in one change over both scopes. An agent is given as its state, or by its
    scope: `agent:billing`, and takes part with its main timeline only. A check is a function of the
    state and the `Package`: it returns nothing or True if all is well, else what is wrong; it may
    be called several times.
    """

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError(
                "Handovers takes an open store: await holdfast.open(...) first; holdfast.sync has "
                "its own"
            )
        self._store = store
        self._book = HandoverBook(store)

    async def offer(
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
    ) -> Handover:
        """Offer a task to another agent; it stays the giver's until the other accepts.

        `context`: the messages since the task came here (all, if it began here) `move`, are copied
        (`copy`), or stay (`none`). `carry` are other keys that move along. Under an `id` it is
        offered once, however often it is sent. With a `term` (seconds) it expires if nobody
        answers: for each process, once that has itself seen the offer for so long.

        Refused with `HandoverValidationError` if there is no such task, it is over or offered
        already, a tool call in those messages has no result, an effect of the giver's has an
        unknown end, or the check finds something.
        """
        a, b = self._state(giver), self._state(taker)
        asked = Asked(reason, id, context, carry, term)
        return await self._again(
            lambda: self._book.prepare_offer(a._handle, b._handle, task, asked),
            self._book.commit_offer,
            check,
            a,
        )

    async def accept(
        self, taker: State | Scope | str, id: str, *, check: Check | None = None
    ) -> Handover:
        """Take the task that an offer is about: from now on it is the taker's.

        The giver's side is looked at again; if it is not in order, the offer stays. If the taker's
        is not (such a task or key is there, the check finds something), the offer is refused with
        that as the reason, and `HandoverValidationError` says so.
        """
        b = self._state(taker)
        return await self._again(
            lambda: self._book.prepare_accept(b._handle, id), self._book.commit_accept, check, b
        )

    async def refuse(self, taker: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Refuse an offer; the task stays the giver's."""
        return await self._answer(taker, id, REFUSED, reason)

    async def withdraw(self, giver: State | Scope | str, id: str, *, reason: str) -> Handover:
        """Take an offer back, as its giver."""
        return await self._answer(giver, id, WITHDRAWN, reason)

    async def expire(self, giver: State | Scope | str) -> list[Handover]:
        """End the offers by an agent whose term is over, and tell which: the tasks can be offered
        again, and those offers be accepted no more.

        The next offer of such a task does so by itself.
        """
        return await to_the_end(self._book.expire, self._state(giver)._handle)

    async def hand_over(
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
    ) -> Handover:
        """Offer and accept, for a caller who answers for both; the check is the taker's.

        With an `id` it may be called again after a crash, and goes on where it was.
        """
        made = await self.offer(
            giver, taker, task, reason=reason, id=id, context=context, carry=carry
        )
        return await self.accept(taker, made.id, check=check) if made.status == OFFERED else made

    async def give_back(
        self,
        holder: State | Scope | str,
        task: str,
        *,
        reason: str,
        id: str | None = None,
        term: float | timedelta | None = None,
        check: Check | None = None,
    ) -> Handover:
        """Offer a task to the agent that handed it here, with what has been said since."""
        a = self._state(holder)
        return await self._again(
            lambda: self._book.prepare_return(a._handle, task, reason=reason, id=id, term=term),
            self._book.commit_offer,
            check,
            a,
        )

    async def offers(self, taker: State | Scope | str) -> list[Handover]:
        """Offers to an agent that wait for its answer, oldest first."""
        return await read_away(self._book.offers, self._state(taker)._handle)

    async def history(self, agent: State | Scope | str, task: str | None = None) -> list[Handover]:
        """All handovers by and to an agent, oldest first: who handed what to whom, and why."""
        return await read_away(self._book.history, self._state(agent)._handle, task)

    async def owner(self, agent: State | Scope | str, task: str) -> Scope:
        """Who has a task that an agent has, or had once."""
        found = await read_away(self._book.owner, self._state(agent)._handle, task)
        return found.scope

    async def chain(self, agent: State | Scope | str, task: str) -> list[Handover]:
        """The way of a task that an agent has, or had once: what was accepted, oldest first."""
        return await read_away(self._book.chain, self._state(agent)._handle, task)

    async def reconcile(self, agent: State | Scope | str) -> Reconciled:
        """Make a state that was restored fit what was handed over since; call it after a restore.

        A handover stays made: tasks that another agent has are removed again, those that this one
        has are put back as they came.
        """
        return await to_the_end(self._book.reconcile, self._state(agent)._handle)

    async def _answer(
        self, agent: State | Scope | str, id: str, status: str, reason: str
    ) -> Handover:
        return await to_the_end(self._book.answer, self._state(agent)._handle, id, status, reason)

    def _state(self, agent: State | Scope | str) -> State:
        return State(on_main(self._store._handle.of(agent)), self._store._pump)

    async def _again(
        self,
        prepare: Callable[[], Prepared],
        commit: Callable[[Prepared, list[str]], Handover],
        check: Check | None,
        state: State,
    ) -> Handover:
        """Do both halves of a step; again, with new reads, if somebody was faster."""

        async def step() -> Handover:
            prepared = await to_the_end(prepare)
            problems = await _judge(check, state, prepared)
            return await to_the_end(commit, prepared, problems)

        return await again_async(step)


async def _judge(check: Check | None, state: State, prepared: Prepared) -> list[str]:
    if check is None or prepared.known:
        return []
    check_function(check, "the check of a handover")
    try:
        answer = check(state, prepared.package)
        return told(await answer if inspect.isawaitable(answer) else answer, "the check")
    except Exception as error:
        return failed(error)
