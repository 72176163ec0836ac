"""Effects: what an agent does in the world, done once.

effects = Effects(state)
with effects.once("send-email", key="order-17") as effect:
    if effect.due:
        effect.result = mail.send(to, text, idempotency_key=effect.key)
print(effect.result)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial, wraps
from inspect import signature
from typing import Any

from holdfast.agents.agent_keys import CONVERSATION
from holdfast.agents.effect_book import Asked, Attempt, Effect, EffectBook
from holdfast.agents.tool_calls import Orphan, Repaired, orphans, repair
from holdfast.errors import EffectResultLostError, InvalidInputError
from holdfast.store.inner import Operation, ScopedChange, handle_of
from holdfast.store.names.arguments import check_run, listed
from holdfast.store.names.face import (
    Blocks,
    Steps,
    ask,
    both,
    check,
    end,
    faced,
    give,
    step_block,
    steps,
    taken,
    write,
    writes,
)
from holdfast.store.names.scope import check_key
from holdfast.store.state import State

# ---- effect block -------------------------------------------------------------------------------
# What stands inside the block of an effect, the same on both faces.


class Doing:
    """An effect inside its block. Do it if it is `due`, and leave what came of it in `result`.

    What is noted with `set`, `append`, `extend` and `delete` is written in the change that records
    the result: both are there, or neither.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._asked_due = False
        self._result = attempt.record.result
        self.writes: list[Operation] = []
        self.over = False
        """Whether the block has ended: what is noted now would be lost."""

    @property
    def due(self) -> bool:
        """Whether it is to be done; if not, it is done, and `result` is what came of it."""
        self._asked_due = True
        return self._attempt.due

    @property
    def name(self) -> str:
        """The effect's name."""
        return self._attempt.asked.name

    @property
    def id(self) -> str:
        """The effect's id."""
        return self._attempt.asked.id

    @property
    def key(self) -> str | None:
        """The idempotency key to give to the tool; the same at every attempt."""
        return self._attempt.asked.key

    @property
    def attempts(self) -> int:
        """How often it was begun, this time included; more than once: it may have happened."""
        return self._attempt.record.attempts

    @property
    def result_lost(self) -> bool:
        """Whether it is done, and its result was nothing that could be stored."""
        return self._attempt.record.result_lost

    @property
    def result(self) -> Any:
        """What came of it; `EffectResultLostError` if that was nothing that could be stored."""
        if self.result_lost:
            raise EffectResultLostError(
                f"the effect {self.name} {self.id} happened, and its result could not be stored; "
                "find it out where it happened, and settle the effect as done with it"
            )
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        self._check_due()
        self._result = result

    def set(self, key: str, value: Any) -> None:
        """Set a key, in the change that records the result."""
        self._note("set", key, value)

    def append(self, key: str, item: Any) -> None:
        """Add an item to the end of a list, in the change that records the result."""
        self._note("append", key, [item])

    def extend(self, key: str, items: Iterable[Any]) -> None:
        """Add items to the end of a list, in the change that records the result."""
        self._note("append", key, listed(items, "extend"))

    def delete(self, key: str) -> None:
        """Remove a key, in the change that records the result."""
        self._note("delete", key, None)

    def _note(self, kind: str, key: str, value: Any) -> None:
        self._check_due()
        self.writes.append(Operation(kind, check_key(key), value))

    def _check_due(self) -> None:
        if self.over:
            raise InvalidInputError(
                f"the block of the effect {self.name} {self.id} is over; what is noted for it "
                "stands inside the block"
            )
        if not self._attempt.due:
            raise InvalidInputError(
                f"the effect {self.name} {self.id} is done already; ask `if effect.due:` first"
            )

    def check_asked(self) -> None:
        """Refuse a block that did not ask: it would do the effect again after a crash."""
        if not self._asked_due:
            raise InvalidInputError(
                f"the block of the effect {self.name} {self.id} did not ask whether it is due, and "
                "would do it twice: put what it does under `if effect.due:`"
            )


# ---- effects ------------------------------------------------------------------------------------


Errors = tuple[type[BaseException], ...]


@faced
class Effects:
    """What an agent does in the world, done once: intent before, result after.

    An effect is known by its name and id. Records are kept in the agent's scope and left alone by
    restores: going back does not make the mail unsent. Those of done effects stay for ever, or for
    `keep` (seconds or a timedelta): after that the same effect would be done again.
    """

    def __init__(self, state: State, *, keep: float | timedelta | None = None) -> None:
        if not isinstance(state, State):
            raise InvalidInputError(
                "Effects takes a state of the same face: holdfast has its own, so has holdfast.sync"
            )
        self._state = state
        self._book = EffectBook(handle_of(state), keep)

    @step_block
    def once(
        self,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        harmless: Errors = (),
    ) -> Blocks[Doing]:
        """A block around what must not happen twice.

        It begins by recording the intent and ends with the result. If the effect is done, `due` is
        False and `result` that of then. If the block raises, or is cancelled, the effect is unknown
        (it may have happened), unless the error is a harmless one. A block that does not ask
        whether it is due is refused at its end.

        `key` is an idempotency key that the tool takes: then an effect whose end is unknown is
        done again with the same key. Without one, it is refused with `EffectUnknownError`, until
        `settle` says how it ended. `id` tells it from other effects of that name; it is the key
        where none is given. `about` is kept for whoever has to judge it. After one of the
        `harmless` errors this attempt has surely done nothing, and it may be begun again; it is
        still unknown if an attempt before was.
        """
        asked, errors = Asked.of(name, id, key, about), checked_errors(harmless)
        doing = yield from self._begun(asked)
        try:
            yield give(doing)
        except BaseException as error:  # whatever ends it, it is noted that it may have happened
            yield end(self._book.give_up, doing._attempt, error, errors)
            raise
        finally:
            doing.over = True
        yield end(self._done, doing)

    @steps
    def call(
        self,
        name: str,
        function: Callable[[Doing], Any] | Callable[[], Any],
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        harmless: Errors = (),
    ) -> Steps[Any]:
        """Call a function with the effect, once; its result, or that of then.

        A function that takes no argument is called without it.
        """
        yield check(function, "what is called")
        takes = _takes_effect(function)
        asked, errors = Asked.of(name, id, key, about), checked_errors(harmless)
        doing = yield from self._begun(asked)
        try:
            if doing.due:
                doing.result = yield ask(function, *[doing][:takes], what="what is called")
        except BaseException as error:  # whatever ends it, it is noted that it may have happened
            yield end(self._book.give_up, doing._attempt, error, errors)
            raise
        yield end(self._done, doing)
        return doing.result

    @both
    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        idempotent: bool = False,
        harmless: Errors = (),
    ) -> Any:
        """Make a function a tool whose calls are recorded and not repeated: `@effects.tool`.

        A call that is done gives the result of then. It is known by `call_id=`, which a tool takes
        besides its own arguments: give the id of the model's tool call. Without one, it is known by
        its arguments. A parameter called `effect` gets the effect. The effect's name is the
        function's, or `name`. With `idempotent` its id is an idempotency key, which the function
        passes on: a call whose end is unknown is done again with it. See `once` for the rest.

        On the async face a tool is awaited, and its function may be async.
        """
        if function is None:
            return partial(self.tool, name=name, idempotent=idempotent, harmless=harmless)
        shape, effects = signature(function), taken(self)
        check_run(function, "a tool", awaited=effects is not self)
        called = Asked.of(name or getattr(function, "__name__", ""), None, None).name
        own = {"effect": None} if "effect" in shape.parameters else {}
        rest = [name for name, one in shape.parameters.items() if one.kind is one.VAR_POSITIONAL]

        def call(*args: Any, call_id: str | None = None, **named: Any) -> Any:
            bound = shape.bind(*args, **named, **own)
            about = {one: part for one, part in bound.arguments.items() if one not in own}
            about |= {one: list(about[one]) for one in rest if one in about}  # no tuple is stored
            id = call_id if call_id is not None else effects._book.named(about)

            def run(doing: Doing) -> Any:
                bound.arguments |= dict.fromkeys(own, doing)
                return function(*bound.args, **bound.kwargs)

            key, told = id if idempotent else None, about or None
            return self.call(called, run, id=id, key=key, about=told, harmless=harmless)

        async def call_async(*args: Any, **named: Any) -> Any:
            return await call(*args, **named)

        made: Any = wraps(function)(call if effects is self else call_async)
        seen = [one for name, one in shape.parameters.items() if name not in own]
        made.__signature__ = shape.replace(parameters=seen)  # what a model is told to give
        return made

    def _begun(self, asked: Asked) -> Steps[Doing]:
        """An effect on its way; it is withdrawn if nobody is there any more to do it."""
        return Doing((yield write(self._book.begin, asked, undo=self._book.withdraw)))

    def _done(self, doing: Doing) -> None:
        if doing._attempt.due:
            doing._result = self._book.finish(doing._attempt, doing.result, doing.writes)
        doing.check_asked()

    @steps
    def plan(
        self,
        name: str,
        *,
        id: str | None = None,
        key: str | None = None,
        about: Any = None,
        into: ScopedChange | None = None,
    ) -> Steps[Effect]:
        """Note that an effect is meant to happen: until it is begun, it is known not to have.

        With `into`, a change of this state's, it is noted together with what else that writes;
        also the change of a machine's step.
        """
        return (yield from _said(into, self._book.plan, Asked.of(name, id, key, about)))

    def get(self, name: str, *, id: str | None = None, key: str | None = None) -> Effect | None:
        """What is known of an effect; None if that is nothing."""
        return self._book.effect(Asked.of(name, id, key))

    def all(self) -> list[Effect]:
        """All effects, in the order in which they were planned or begun."""
        return self._book.effects(done=True)

    def unfinished(self) -> list[Effect]:
        """Effects that are not done: planned ones, and those whose end is unknown."""
        return self._book.effects(done=False)

    @steps
    def settle(
        self,
        name: str,
        how: str,
        *,
        id: str | None = None,
        key: str | None = None,
        result: Any = None,
        into: ScopedChange | None = None,
    ) -> Steps[Effect]:
        """Say how an unfinished effect ended: `done` (with its result), `repeat` or `drop`.

        `repeat`: it did not happen, or may happen again; the next `once` begins it. `drop`: it is
        not wanted any more, and forgotten. `done` also says the result of one that lost it. With
        `into`, a change of this state's, it is said together with what else that writes: what the
        block would have written.
        """
        asked = Asked.of(name, id, key)
        return (yield from _said(into, self._book.settle, asked, how, result))

    def orphans(self, key: str = CONVERSATION) -> tuple[Orphan, ...]:
        """Tool calls in a conversation that have no result, each with what is known of its effect.

        The id of the effect is that of the call. The whole list is read.
        """
        return orphans(self._state, self._book, key)

    @writes
    def repair(self, key: str = CONVERSATION) -> Repaired:
        """Give every tool call of a conversation its result, so that a model takes it again.

        A call whose effect is done gets its result; one whose end is unknown gets a result that
        says so; any other one gets a result that says that it was not carried out. A result
        without a call is removed. One change; effects stay as they are. Refused where something
        stands between a call and its result, or messages that must be written anew are sealed for
        a subject.
        """
        return repair(self._state, self._book, key)


def _said(into: Any, note: Callable[..., Effect], *what: Any) -> Steps[Effect]:
    """Note something of an effect, in a change of the user's or one of its own."""
    if into is None:
        return (yield write(note, *what))  # type: ignore[no-any-return]
    if not isinstance(into, ScopedChange):
        raise InvalidInputError("into is what a block of state.change() gives")
    return note(*what, into=into)


def _takes_effect(function: Callable[..., Any]) -> bool:
    """Whether a function takes the effect, not nothing; `TypeError` if it takes something else."""
    try:
        shape = signature(function)
    except ValueError:  # one of C's, which does not say
        return True
    shape.bind(*[None][: len(shape.parameters)])
    return bool(shape.parameters)


def checked_errors(harmless: Any) -> Errors:
    """Classes of errors, one or several."""
    given = harmless if isinstance(harmless, tuple) else (harmless,)
    for one in given:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidInputError("harmless takes classes of errors")
    return given
