"""Effects: what an agent does in the world, done once.

effects = Effects(state)
with effects.once("send-email", key="order-17") as effect:
    if effect.due:
        effect.result = mail.send(to, text, idempotency_key=effect.key)
print(effect.result)

Intent before, result after: that an attempt is started is committed before the caller may do
anything, then that it is done. Both rest on the record that they read, so that of two who begin one
effect at the same time one is refused, or repeats it with its idempotency key.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial, wraps
from inspect import signature
from typing import Any

from msgspec import structs

from holdfast.agents.agent_keys import CONVERSATION, DONE
from holdfast.agents.effect_records import (
    FINISHED,
    PLANNED,
    STARTED,
    Asked,
    Effect,
    EffectBook,
    Record,
    running,
)
from holdfast.agents.tool_calls import Orphan, Repaired, orphans, repair
from holdfast.errors import (
    Conflict,
    EffectResultLostError,
    EffectUnknownError,
    HoldfastError,
    InvalidInputError,
    MissingError,
    RefusedError,
)
from holdfast.store.inner import (
    BookPage,
    Operation,
    ScopedChange,
    check_ttl,
    handle_of,
    moment,
)
from holdfast.store.names.arguments import check_face, check_run, listed
from holdfast.store.names.face import (
    Blocks,
    Step,
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

    def __init__(self, asked: Asked, record: Record, before: Record | None = None) -> None:
        self.name = asked.name
        self.id = asked.id
        self.key = asked.key
        """The idempotency key to give to the tool; the same at every attempt."""
        self._asked = asked
        self._record = record
        self._before = before
        """What was known before it was begun."""
        self._due = record.phase != FINISHED
        self._asked_due = False
        self._result = record.result
        self.writes: list[Operation] = []
        self.over = False
        """Whether the block has ended: what is noted now would be lost."""

    @property
    def due(self) -> bool:
        """Whether it is to be done; if not, it is done, and `result` is what came of it."""
        self._asked_due = True
        return self._due

    @property
    def attempts(self) -> int:
        """How often it was begun, this time included; more than once: it may have happened."""
        return self._record.attempts

    @property
    def result_lost(self) -> bool:
        """Whether it is done, and its result was nothing that could be stored."""
        return self._record.result_lost

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
        if not self._due:
            raise InvalidInputError(
                f"the effect {self.name} {self.id} is done already; ask `if effect.due:` first"
            )


# ---- effects ------------------------------------------------------------------------------------


Errors = tuple[type[BaseException], ...]
Page = BookPage[Record]
HOW = ("done", "repeat", "drop")
LOST: Any = object()
"""Stands for a result that cannot be stored."""


@faced
class Effects:
    """What an agent does in the world, done once: intent before, result after.

    An effect is known by its name and id. Records are kept in the agent's scope and left alone by
    restores: going back does not make the mail unsent. Those of done effects stay for ever, or for
    `keep` (seconds or a timedelta): after that the same effect would be done again.
    """

    def __init__(self, state: State, *, keep: float | timedelta | None = None) -> None:
        check_face(state, State, "Effects")
        if keep is not None:
            check_ttl(keep)
        self._state = state
        self._keep = keep
        self._core = handle_of(state).core
        self._book = EffectBook(handle_of(state))

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
        yield from self._around(Asked.of(name, id, key, about), harmless, give)

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
        shape = signature(function)
        takes = len(shape.parameters)
        shape.bind(*[None][:takes])  # `TypeError` if it takes something else

        def work(doing: Doing) -> Step | None:
            given = [doing][:takes]
            return ask(function, *given, what="what is called") if doing.due else None

        def take(doing: Doing, answer: Any) -> None:
            doing.result = answer

        doing = yield from self._around(Asked.of(name, id, key, about), harmless, work, take)
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
            id = call_id
            if id is None and about:  # it is known by its arguments
                id = hashlib.sha256(effects._encoded(about)).hexdigest()[:32]

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

    def _around(
        self,
        asked: Asked,
        harmless: Any,
        work: Callable[[Doing], Step | None],
        take: Callable[[Doing, Any], object] = lambda *_: None,
    ) -> Steps[Doing]:
        """Begin an effect, do it in one step, take what came of it, and end it; withdrawn if nobody
        is left to do it."""
        errors = harmless if isinstance(harmless, tuple) else (harmless,)
        if not all(isinstance(one, type) and issubclass(one, BaseException) for one in errors):
            raise InvalidInputError("harmless takes classes of errors")
        doing: Doing = yield write(
            self._begin, asked, undo=lambda doing: self._end(doing, doing._before)
        )
        try:
            # Here, and in no generator inside: what that lets through is no StopIteration any more.
            if (step := work(doing)) is not None:
                take(doing, (yield step))
        except BaseException as error:  # whatever ends it, it is noted that it may have happened
            yield end(self._give_up, doing, error, errors)
            raise
        finally:
            doing.over = True
        yield end(self._done, doing)
        return doing

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
        asked = Asked.of(name, id, key, about)

        def note(page: Page) -> Effect:
            found = page.get(asked.done) or page.get(asked.open)
            if found is not None:
                self._check(asked, found)
                return found.shown()
            record = asked.record(planned_at=self._now())
            self._put(page, record, asked)
            return record.shown()

        return (yield from self._said(into, note))

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
        if how not in HOW:
            raise InvalidInputError(f"an effect is settled as {', '.join(HOW)}")
        if result is not None and how != "done":
            raise InvalidInputError("only what is done has a result")

        def note(page: Page) -> Effect:
            found = page.get(asked.open)
            if found is None and how == "done":  # what came of it may still be said
                done = page.get(asked.done)
                found = done if done is not None and done.result_lost else None
            if found is None:
                raise MissingError(
                    f"{self._state.scope}: no unfinished effect {asked.name} {asked.id} is known; "
                    "unfinished() lists them"
                )
            if found.token in running:
                raise InvalidInputError(
                    f"{self._state.scope}: the effect {asked.name} {asked.id} is being done just "
                    "now; wait for it"
                )
            if found.phase != FINISHED:
                page.delete(asked.open)
            if how == "drop":
                return found.shown()
            if how == "repeat":
                record = structs.replace(found, phase=PLANNED, token="", settled=True)
            else:
                said = {"phase": FINISHED, "result": result, "ended_at": self._now()}
                record = structs.replace(found, **said, result_lost=False, settled=True)
            self._put(page, record, asked)
            return record.shown()

        return (yield from self._said(into, note))

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

    # what is written

    def _said(self, into: Any, note: Callable[[Page], Effect]) -> Steps[Effect]:
        """Note something of an effect, in a change of the user's or one of its own."""
        if into is None:
            return (yield write(self._book.step, note))  # type: ignore[no-any-return]
        if not isinstance(into, ScopedChange):
            raise InvalidInputError("into is what a block of state.change() gives")
        return note(self._book.page(into))

    def _now(self) -> Any:
        return moment(self._core.clock.claimed())

    def _put(self, page: Page, record: Record, asked: Asked) -> None:
        if record.phase == FINISHED:
            page.put(asked.done, record, ttl=self._keep)
        else:
            page.put(asked.open, record)

    def _encoded(self, value: Any) -> bytes:
        """A value as it is stored: what is compared so is the same, whatever `==` says of it."""
        codec = self._core.codec
        return codec.encode(codec.plain(value))

    def _check(self, asked: Asked, found: Record) -> None:
        """Refuse another effect under the same id: its result would be taken for this one's."""
        if found.unread:
            return  # what it was is not known
        if found.key != asked.key:
            raise InvalidInputError(
                f"the effect {asked.name} {asked.id} was begun with another idempotency key; "
                "give that one, or another id"
            )
        if asked.about is None or found.about is None:
            return
        if self._encoded(found.about) != self._encoded(asked.about):
            raise InvalidInputError(
                f"the effect {asked.name} {asked.id} was begun about something else; "
                "give another id to what is another effect"
            )

    def _begin(self, asked: Asked) -> Doing:
        """Commit that an attempt is started, unless it is done, or nobody knows whether it is."""
        token = os.urandom(8).hex()

        def note(page: Page) -> Doing:
            done = page.get(asked.done)
            if done is not None:
                self._check(asked, done)
                return Doing(asked, done)
            found = page.get(asked.open)
            if found is not None:
                self._check(asked, found)
                if found.unread:  # a tool that takes a key is safe to ask again
                    found = structs.replace(found, key=asked.key, about=asked.about)
                effect = found.shown()
                if effect.status == "running":
                    raise EffectUnknownError(
                        f"{self._state.scope}: the effect {effect} is being done in this process "
                        "just now; wait for it",
                        effect,
                    )
                if effect.status == "unknown" and not effect.repeatable:
                    raise EffectUnknownError(
                        f"{self._state.scope}: the effect {effect} was begun before and did not "
                        "say how it ended; find out whether it happened, then settle it as done, "
                        "or to be repeated",
                        effect,
                    )
            base = found or asked.record()
            record = structs.replace(
                base,
                phase=STARTED,
                about=base.about if base.about is not None else asked.about,
                attempts=base.attempts + 1,
                token=token,
                started_at=self._now(),
                error="",
            )
            self._put(page, record, asked)
            return Doing(asked, record, found)

        running.add(token)
        begun = False
        try:
            doing = self._book.step(note)
            begun = doing._due
        finally:
            if not begun:
                running.discard(token)
        return doing

    def _done(self, doing: Doing) -> None:
        """Commit that it is done, with what the caller writes; keep the result that counts.

        It happened: so it is recorded even where its result, or what is to be written with it,
        cannot be, and that is an error besides. A block that did not ask whether it is due is
        refused: it would do the effect again after a crash.
        """
        result, writes = doing._result, doing.writes
        try:
            if doing._due:
                doing._result = self._recorded(doing, result, writes)
        except Conflict:
            raise  # it says what became of it
        except HoldfastError as error:  # as much is recorded as can be
            ways: list[tuple[str, Any, list[Operation]]] = []
            if not isinstance(error, RefusedError):  # storage failed, which it may do but once
                ways.append(("and is recorded as done", result, writes))
            if writes:
                said = "and is recorded as done; what was to be written with it is not"
                ways.append((said, result, []))
            ways.append(("and is recorded as done, without its result", LOST, []))
            told = "which could not be recorded: its end is unknown now"
            for said, *what in ways:
                with suppress(HoldfastError):
                    self._recorded(doing, *what)
                    told = said
                    break
            error.add_note(f"{self._state.scope}: the effect {doing.name} happened, {told}")
            raise
        finally:
            running.discard(doing._record.token)
        if not doing._asked_due:
            raise InvalidInputError(
                f"the block of the effect {doing.name} {doing.id} did not ask whether it is due, "
                "and would do it twice: put what it does under `if effect.due:`"
            )

    def _recorded(self, doing: Doing, result: Any, writes: list[Operation]) -> Any:
        asked, lost = doing._asked, result is LOST
        ended = structs.replace(
            doing._record,
            phase=FINISHED,
            ended_at=self._now(),
            result=None if lost else result,
            result_lost=lost,
        )
        late = ""

        def note(page: Page) -> Any:
            nonlocal late
            late = ""
            done, found = page.get(asked.done), page.get(asked.open)
            if done is not None and done.token == ended.token and not done.settled:
                return done.result  # it is recorded, and only that was not known
            if done is not None and asked.key is not None:
                # Another attempt with the same key was faster: one effect, written with it. But
                # who said that it is done has written nothing.
                if done.settled and writes:
                    late = (
                        "it is done: what was to be written with it is not; write it now if that "
                        "is still meant"
                    )
                return done.result
            other = done or (found if found and found.token != ended.token else None)
            if other is not None and asked.key is None:
                late = "it had not and would not: it is counted in `strays`"
                self._put(page, structs.replace(other, strays=other.strays + 1), asked)
                return None
            page.delete(asked.open)
            self._put(page, ended, asked)
            page.change.operations += writes
            return result

        given = self._book.step(note)
        if late:
            raise Conflict(
                f"{self._state.scope}: the effect {asked.name} {asked.id} happened, after somebody "
                f"had said that {late}",
                [DONE + asked.place],
            )
        return given

    def _give_up(self, doing: Doing, error: BaseException, harmless: Any) -> None:
        """An attempt ended with an error: what that says of the effect is kept, if it can be.

        A harmless one says it of this attempt alone: what an earlier one did stays unknown.
        """
        phase = doing._record.phase
        if isinstance(error, harmless):
            phase = doing._before.phase if doing._before is not None else PLANNED
        self._end(doing, structs.replace(doing._record, error=type(error).__name__, phase=phase))

    def _end(self, doing: Doing, record: Record | None) -> None:
        """Let a record stand for an attempt that is over, if it was one; what cannot be written
        stays as it is: begun, with an unknown end, which is true."""

        def note(page: Page) -> None:
            found = page.get(doing._asked.open)
            if found is None or found.token != doing._record.token:
                return  # somebody has settled it meanwhile
            if record is None:
                page.delete(doing._asked.open)
            else:
                self._put(page, record, doing._asked)

        try:
            with suppress(HoldfastError):
                if doing._due:
                    self._book.step(note)
        finally:
            running.discard(doing._record.token)
