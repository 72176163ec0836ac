"""Effects of the async face; `holdfast` itself exports it. What it does leaves the loop."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any

from holdfast.agents.agent_keys import CONVERSATION
from holdfast.agents.effect_block import Doing
from holdfast.agents.effect_book import Attempt, Book
from holdfast.agents.effect_records import Asked, Effect
from holdfast.agents.effects import Errors, checked_errors, end_block
from holdfast.agents.tool_call_repair import Orphan, Repaired, orphans, repair
from holdfast.errors import InvalidInputError
from holdfast.store.commit.request import ScopedChange
from holdfast.store.names.arguments import check_run
from holdfast.store.names.threads import read_away, surely, to_the_end
from holdfast.store.state_async import ChangePart, State


class Effects:
    """What an agent does in the world, done once: intent before, result after.

    An effect is known by its name and id. Records are kept in the agent's scope and left alone by
    restores: going back does not make the mail unsent. Those of done effects stay for ever, or for
    `keep` (seconds or a timedelta): after that the same effect would be done again.
    """

    def __init__(self, state: State, *, keep: float | timedelta | None = None) -> None:
        if not isinstance(state, State):
            raise InvalidInputError("Effects takes a state; those of holdfast.sync have its own")
        self._state = state
        self._book = Book(state._handle, keep)

    def once(
        self,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        harmless: Errors = (),
    ) -> OnceBlock:
        """A block around what must not happen twice: see `OnceBlock`.

        `key` is an idempotency key that the tool takes: then an effect whose end is unknown is
        done again with the same key. Without one, it is refused with `EffectUnknownError`, until
        `settle` says how it ended. `id` tells it from other effects of that name; it is the key
        where none is given. `about` is kept for whoever has to judge it. After one of the
        `harmless` errors this attempt has surely done nothing, and it may be begun again; it is
        still unknown if an attempt before was.
        """
        return OnceBlock(self._book, Asked.of(name, id, key, about), checked_errors(harmless))

    async def call(
        self,
        name: str,
        function: Callable[[Doing], Awaitable[Any] | Any],
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        harmless: Errors = (),
    ) -> Any:
        """Call a function with the effect, once; its result, or that of then."""
        check_run(function, "what is called", awaited=True)
        async with self.once(name, id=id, key=key, about=about, harmless=harmless) as effect:
            if effect.due:
                given = function(effect)
                effect.result = await given if inspect.isawaitable(given) else given
        return effect.result

    async def plan(
        self,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        into: ChangePart | ScopedChange | None = None,
    ) -> Effect:
        """Note that an effect is meant to happen: until it is begun, it is known not to have.

        With `into`, a change of this state's, it is noted together with what else that writes;
        also the change of a machine's step.
        """
        part = into._part if isinstance(into, ChangePart) else into
        if part is not None and not isinstance(part, ScopedChange):
            raise InvalidInputError("into is what `async with state.change() as change` gives")
        asked = Asked.of(name, id, key, about)
        if part is not None:
            return self._book.plan(asked, part)
        return await to_the_end(self._book.plan, asked)

    async def get(
        self, name: str, *, id: str | None = None, key: str | None = None
    ) -> Effect | None:
        """What is known of an effect; None if that is nothing."""
        return await read_away(self._book.effect, Asked.of(name, id, key))

    async def all(self) -> list[Effect]:
        """All effects, in the order in which they were planned or begun."""
        return await read_away(lambda: self._book.effects(done=True))

    async def unfinished(self) -> list[Effect]:
        """Effects that are not done: planned ones, and those whose end is unknown."""
        return await read_away(lambda: self._book.effects(done=False))

    async def settle(
        self,
        name: str,
        how: str,
        *,
        id: str | None = None,
        key: str | None = None,
        result: Any = None,
    ) -> Effect:
        """Say how an unfinished effect ended: `done` (with its result), `repeat` or `drop`.

        `repeat`: it did not happen, or may happen again; the next `once` begins it. `drop`: it is
        not wanted any more, and forgotten. `done` also says the result of one that lost it.
        """
        return await to_the_end(self._book.settle, Asked.of(name, id, key), how, result)

    async def orphans(self, key: str = CONVERSATION) -> tuple[Orphan, ...]:
        """Tool calls in a conversation that have no result, each with what is known of its effect.

        The id of the effect is that of the call. The whole list is read.
        """
        return await read_away(orphans, self._state, self._book, key)

    async def repair(self, key: str = CONVERSATION) -> Repaired:
        """Give every tool call of a conversation its result, so that a model takes it again.

        A call whose effect is done gets its result; one whose end is unknown gets a result that
        says so; any other one gets a result that says that it was not carried out. A result
        without a call is removed. One change; effects stay as they are.
        """
        return await to_the_end(repair, self._state, self._book, key)


class OnceBlock(AbstractAsyncContextManager[Doing]):
    """The block of an effect, which begins by recording the intent and ends with the result.

    If the effect is done, `due` is False and `result` that of then. If the block raises, or is
    cancelled, the effect is unknown (it may have happened), unless the error is a harmless one. A
    block that does not ask whether it is due is refused at its end.
    """

    def __init__(self, book: Book, asked: Asked, harmless: Errors) -> None:
        self._book = book
        self._asked = asked
        self._harmless = harmless
        self._doing: Doing | None = None

    async def __aenter__(self) -> Doing:
        if self._doing is not None:
            raise InvalidInputError("a block of an effect is used once; make another")

        def withdraw(begun: Attempt) -> None:
            if begun.due:  # nobody is there any more to do it
                self._book.withdraw(begun)

        begun = await to_the_end(self._book.begin, self._asked, undo=withdraw)
        self._doing = Doing(begun)
        return self._doing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._doing is not None
        await surely(end_block, self._book, self._doing, error, self._harmless)
