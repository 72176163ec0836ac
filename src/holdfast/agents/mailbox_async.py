"""The mailbox on the async face; `holdfast` itself exports it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.agents.again import again_async
from holdfast.agents.mailbox_book import Box, Letter, MailboxStatus, Reruns, Taken, post
from holdfast.agents.retry import RetryPolicy
from holdfast.errors import Conflict, InvalidInputError
from holdfast.store.names.arguments import check_limit, check_run, ran
from holdfast.store.state_async import ChangePart, State


class Mail:
    """A letter that is being processed; what `change` writes is committed together with that."""

    def __init__(self, state: State, taken: Taken) -> None:
        self._state = state
        self._taken = taken
        self.letter: Letter = taken.letter
        self.content: Any = taken.letter.content
        self.change = ChangePart(taken.part)
        """Writes to the agent's own state, in the same entry."""

    def send(self, to: State, content: Any) -> str:
        """Send a letter to another agent of this store, in the same commit; returns its id."""
        if not isinstance(to, State):
            raise InvalidInputError("a letter is sent to a state: store.agent(...)")
        part = self._taken.parts.part(to._handle)
        own = str(self._state.scope)
        return post(to._handle, part, content, own, by=own)


class Mailbox:
    """Letters to an agent, each processed once: what was done with it is in the same change.

    A letter that was sent is never lost, whoever crashes; one whose processing was cut short is
    the next one again. Any number of processes may send; several may process, and each letter is
    done by one of them. After a restore the letters that came since are still there, and those that
    were processed since are processed again, because what that wrote was undone: guard effects
    outside by the letter's id. The last `keep` processed ones are kept for that. What fails is
    tried again as `retry` says (without it: 5 times in all, whatever the failure is), then set
    aside, so that those behind it go on; it stays so in a restore.
    """

    def __init__(self, state: State, *, keep: int = 1000, retry: RetryPolicy | None = None) -> None:
        if not isinstance(state, State):
            raise InvalidInputError("Mailbox takes a state; those of holdfast.sync have its own")
        self._state = state
        self._box = Box(state._handle, keep, retry)

    async def send(self, content: Any, *, sender: str = "", id: str | None = None) -> str:
        """Put a letter into the mailbox; returns its id. With an `id` it is sent once.

        Another content under a known id is refused with `ChangeIdError`.
        """
        plan, made = await self._state._do(self._box.plan_send, content, sender, id)
        await self._state._run(plan)
        return made

    @asynccontextmanager
    async def next(self) -> AsyncIterator[Mail | None]:
        """The next letter; it is processed when the block ends without an error.

        None if none waits, or the next is one that failed and it is too early to try it again.

        If somebody else was faster, or changed what was read, the block ends with `Conflict`, and
        nothing of it was applied. An error in the block counts as a failed attempt, and so does
        what it wrote if that is refused.
        """
        taken = await self._take()
        if taken is None:
            yield None
            return
        over = False
        try:
            yield Mail(self._state, taken)
            over = True
            await self._state._make(self._box.plan_done, taken)
        except Exception as error:
            if not over or not isinstance(error, Conflict):
                await self._failed(taken, error)
            raise

    async def _take(self) -> Taken | None:
        taken = await self._state._do(self._box.take)
        plan = await self._state._do(self._box.plan_begin, taken) if taken is not None else None
        if plan is not None:
            await self._state._run(plan)
        return taken

    async def _failed(self, taken: Taken, error: Exception) -> None:
        async def step() -> None:
            plan = await self._state._do(self._box.plan_failed, taken, error)
            if plan is not None:
                await self._state._run(plan)

        await again_async(step)

    async def process(self, function: Callable[[Mail], Any], *, limit: int | None = None) -> int:
        """Process what waits, at most `limit` letters, by `function(mail)`; tells how many.

        The function (async, if it likes) runs again if somebody else was faster, or changed what it
        has read; after 5 times in a row with the same letter that is an error like any other. An
        error ends this, after it has been counted.
        """
        check_run(function, "what processes letters", awaited=True)
        check_limit(limit)
        count, reruns = 0, Reruns()
        while limit is None or count < limit:
            taken = await self._take()
            if taken is None:
                break
            try:
                answer = function(Mail(self._state, taken))
                ran(await answer if inspect.isawaitable(answer) else answer, "what it calls")
                await self._state._make(self._box.plan_done, taken)
            except Exception as error:
                pause = reruns.pause(taken, error)
                if pause is None:
                    await self._failed(taken, error)
                    raise
                await asyncio.sleep(pause)
            else:
                count += 1
        return count

    async def waiting(self, *, limit: int | None = None) -> list[Letter]:
        """Letters that are not processed yet, the next one first."""
        check_limit(limit)
        return await self._state._do(self._box.waiting, limit)

    async def set_aside(self) -> list[Letter]:
        """Letters that failed too often, oldest first."""
        return await self._state._do(self._box.set_aside)

    async def retry(self, number: int) -> str:
        """Put a letter that was set aside behind all others; returns its id."""
        plan, id = await self._state._do(self._box.plan_retry, number)
        await self._state._run(plan)
        return id

    async def interrupted(self) -> list[str]:
        """Count attempts whose process ended before they did as failures (`daemon_restart`).

        For when a program starts, before anyone processes this mailbox: a loop and `boot` do it.
        Known of attempts that were made under a `retry` with kinds. Returns the ids of those that
        are set aside by it.
        """

        async def step() -> list[str]:
            found = await self._state._do(self._box.plan_interrupted)
            if found is None:
                return []
            await self._state._run(found[0])
            return found[1]

        return await again_async(step)

    async def remove(self, number: int) -> None:
        """Let nobody process a letter that waits or was set aside; it stays in the history."""

        async def step() -> None:
            await self._state._make(self._box.plan_remove, number)

        await again_async(step)

    async def clear_failed(self) -> int:
        """Remove what was set aside; tells how many letters. They stay in the history."""
        return await self._clear(failed_only=True)

    async def clear_all(self) -> int:
        """Remove what waits and what was set aside; tells how many letters."""
        return await self._clear(failed_only=False)

    async def _clear(self, *, failed_only: bool) -> int:
        async def step() -> int:
            plan, count = await self._state._do(
                lambda: self._box.plan_clear(failed_only=failed_only)
            )
            if plan is not None:
                await self._state._run(plan)
            return count

        return await again_async(step)

    async def status(self) -> MailboxStatus:
        """How many came, are processed, wait, are set aside or were missed."""
        return await self._state._do(self._box.status)
