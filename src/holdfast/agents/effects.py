"""Effects of the blocking face; `holdfast.sync` exports it.

effects = Effects(state)
with effects.once("send-email", key="order-17") as effect:
    if effect.due:
        effect.result = mail.send(to, text, idempotency_key=effect.key)
print(effect.result)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any

from holdfast.agents.agent_keys import CONVERSATION
from holdfast.agents.effect_block import Doing
from holdfast.agents.effect_book import Book
from holdfast.agents.effect_records import Asked, Effect
from holdfast.agents.tool_call_repair import Orphan, Repaired, orphans, repair
from holdfast.errors import InvalidInputError
from holdfast.store.commit.request import ScopedChange
from holdfast.store.names.arguments import check_run, ran
from holdfast.store.state import State

Errors = tuple[type[BaseException], ...]


class Effects:
    """What an agent does in the world, done once: intent before, result after.

    An effect is known by its name and id. Records are kept in the agent's scope and left alone by
    restores: going back does not make the mail unsent. Those of done effects stay for ever, or for
    `keep` (seconds or a timedelta): after that the same effect would be done again.
    """

    def __init__(self, state: State, *, keep: float | timedelta | None = None) -> None:
        if not isinstance(state, State):
            raise InvalidInputError(
                "Effects takes a state of holdfast.sync; holdfast has its own for its states"
            )
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

    def call(
        self,
        name: str,
        function: Callable[[Doing], Any],
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        harmless: Errors = (),
    ) -> Any:
        """Call a function with the effect, once; its result, or that of then."""
        check_run(function, "what is called", awaited=False)
        with self.once(name, id=id, key=key, about=about, harmless=harmless) as effect:
            if effect.due:
                effect.result = ran(function(effect), "what is called")
        return effect.result

    def plan(
        self,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        into: ScopedChange | None = None,
    ) -> Effect:
        """Note that an effect is meant to happen: until it is begun, it is known not to have.

        With `into`, a change of this state's, it is noted together with what else that writes;
        also the change of a machine's step.
        """
        if into is not None and not isinstance(into, ScopedChange):
            raise InvalidInputError("into is what `with state.change() as change` gives")
        return self._book.plan(Asked.of(name, id, key, about), into)

    def get(self, name: str, *, id: str | None = None, key: str | None = None) -> Effect | None:
        """What is known of an effect; None if that is nothing."""
        return self._book.effect(Asked.of(name, id, key))

    def all(self) -> list[Effect]:
        """All effects, in the order in which they were planned or begun."""
        return self._book.effects(done=True)

    def unfinished(self) -> list[Effect]:
        """Effects that are not done: planned ones, and those whose end is unknown."""
        return self._book.effects(done=False)

    def settle(
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
        return self._book.settle(Asked.of(name, id, key), how, result)

    def orphans(self, key: str = CONVERSATION) -> tuple[Orphan, ...]:
        """Tool calls in a conversation that have no result, each with what is known of its effect.

        The id of the effect is that of the call. The whole list is read.
        """
        return orphans(self._state, self._book, key)

    def repair(self, key: str = CONVERSATION) -> Repaired:
        """Give every tool call of a conversation its result, so that a model takes it again.

        A call whose effect is done gets its result; one whose end is unknown gets a result that
        says so; any other one gets a result that says that it was not carried out. A result
        without a call is removed. One change; effects stay as they are.
        """
        return repair(self._state, self._book, key)


class OnceBlock(AbstractContextManager[Doing]):
    """The block of an effect, which begins by recording the intent and ends with the result.

    If the effect is done, `due` is False and `result` that of then. If the block raises, the effect
    is unknown (it may have happened), unless the error is a harmless one. A block that does not ask
    whether it is due is refused at its end.
    """

    def __init__(self, book: Book, asked: Asked, harmless: Errors) -> None:
        self._book = book
        self._asked = asked
        self._harmless = harmless
        self._doing: Doing | None = None

    def __enter__(self) -> Doing:
        if self._doing is not None:
            raise InvalidInputError("a block of an effect is used once; make another")
        self._doing = Doing(self._book.begin(self._asked))
        return self._doing

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._doing is not None
        end_block(self._book, self._doing, error, self._harmless)


def end_block(book: Book, doing: Doing, error: BaseException | None, harmless: Errors) -> None:
    """Record how an effect ended, if it was due."""
    attempt = doing._attempt
    doing.over = True
    if attempt.due and error is not None:
        book.give_up(attempt, error, harmless=isinstance(error, harmless))
    elif attempt.due:
        doing._result = book.finish(attempt, doing.result, doing.writes)
    if error is None:
        doing.check_asked()


def checked_errors(harmless: Any) -> Errors:
    """Classes of errors, one or several."""
    given = harmless if isinstance(harmless, tuple) else (harmless,)
    for one in given:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidInputError("harmless takes classes of errors")
    return given
