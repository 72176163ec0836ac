"""Books: the one way in which a feature keeps records in a scope.

A feature declares the keys that it owns (`Owned`), and keeps a record a key below them:

    TODOS = Owned("todos/", restore=Owned.STAY, merge=Owned.UNION)

    class Todo(msgspec.Struct):    # flat; fields that have their default are left out
        text: str
        done: bool = False

    todos = Book(state, TODOS, Todo)
    todos.step(lambda page: page.put("milk", Todo(text="buy milk")))
    todos.get("milk"), todos.all()

A step reads and writes in one change; what it reads is expected, and it is done again, with new
reads, when somebody else was faster. That restores leave the records alone is declared with the
first of them. To move a feature of Holdfast here: declare its keys in the light module of its
package, make a Book of its state, and let every function that read, noted and committed become a
step of it. Its own change, its retries, `sticky`, `stored` and `loaded` go.

What one change over several scopes needs is a page each of it (`BookPage.beside`). Records of
several kinds below one prefix are a book each (`under`), and so are those of each name where the
prefix has a star (`name`). A list of records is an id whose value grows at its end (`tail`,
`slice`, `length`; `BookPage.extend`, `trim`); where there are many, the class of the records is
`array_like`, and they are stored without the names of their fields. Steps of a method that asks
functions of users between reading and writing are those of `own_steps`; what is written below owned
keys is declared there, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, Generic, TypeVar

from msgspec import NODEFAULT, Struct, structs

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    LookupNotBuiltError,
    LookupNotFoundError,
    NewerFormatError,
    StateIntegrityError,
)
from holdfast.storage.rows import ATTEMPTS, again
from holdfast.store.commit.group import Core
from holdfast.store.history.handle import ChangeParts, LineHandle, StoreHandle
from holdfast.store.journal.lifetime import asked_terms
from holdfast.store.names.arguments import check_function, check_own, unawaited
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import Step, Steps, ask, commit, faced, quick, writes
from holdfast.store.names.items import Page
from holdfast.store.names.scope import owned_key
from holdfast.store.read.change_block import ScopedChange
from holdfast.store.read.find import question
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.keep import Keep, trim_of
from holdfast.store.rules.owned import Owned
from holdfast.store.rules.sticky import Sticky
from holdfast.store.state import View
from holdfast.store.tree.value import copied

R = TypeVar("R", bound=Struct)
_T = TypeVar("_T")
_O = TypeVar("_O", bound=Struct)


class BookPage(Generic[R]):
    """What a step of a book reads and writes: records by their ids, in one change.

    What is read must not change until the change is applied; reads see what was written before.
    `change` is the same for other keys.
    """

    def __init__(self, book: Book[R], change: ScopedChange, parts: ChangeParts | None) -> None:
        self._book = book
        self._parts = parts
        self.change = change

    def get(self, id: str) -> R | None:
        """The record of an id; None if there is none."""
        return self._book._read(id, self.change.get(self._book._key(id)))

    def exists(self, id: str) -> bool:
        """Whether there is a record of an id."""
        return self.change.exists(self._book._key(id))

    def versioned(self, id: str) -> tuple[R | None, int]:
        """The record of an id, and its version: the entry that wrote it; (None, 0) if none did."""
        return self.get(id), self.change.expects[self._book._key(id)]

    def all(self, prefix: str = "") -> dict[str, R]:
        """Records by their ids, those that begin with a text.

        None may come, go or change until the change is applied, nor anything else of the timeline:
        ask so only where a rule is about all of them.
        """
        own = self._book._prefix
        ids = [key[len(own) :] for key in self.change.keys(own + prefix)]
        return {id: found for id in ids if (found := self.get(id)) is not None}

    def put(
        self,
        id: str,
        record: R | None,
        *,
        ttl: float | timedelta | None = None,
        class_: str | None = None,
    ) -> None:
        """Write a record; with `ttl` (seconds) it expires.

        None says that there is none, and keeps the key: one that is there is found faster than that
        one is not.
        """
        if record is not None:
            self._book._check(record)
        terms = asked_terms(ttl, class_=class_)
        made = copied(stored(record)) if record is not None else None
        self._note(Operation("set", self._book._key(id), made, terms))

    def delete(self, id: str) -> None:
        """Remove a record; one that is absent is no error."""
        self._note(Operation("delete", self._book._key(id)))

    def extend(self, id: str, records: Iterable[R]) -> None:
        """Add records to the end of the list of an id, which is made if there is none."""
        found = list(records)
        for one in found:
            self._book._check(one)
        made = copied([stored(one) for one in found])
        self._note(Operation("append", self._book._key(id), made))

    def trim(self, id: str, *, keep_last: int | None = None, before: int | None = None) -> None:
        """Remove the oldest records of the list of an id; see `State.trim`."""
        self._note(Operation("trim", self._book._key(id), trim_of(keep_last, before)))

    def _note(self, operation: Operation) -> None:
        self.change._check_open()
        self.change.operations.append(operation)  # a user's own change refuses keys of features

    def beside(self, book: Book[_O]) -> BookPage[_O]:
        """A page of another book, of whatever state of the store, in the same change."""
        assert self._parts is not None
        return BookPage(book, self._parts.part(book._line), self._parts)


@faced
class Book(Generic[R]):
    """The records of one feature in one state, by their ids.

    `owned` says which keys these are, and what becomes of them when the state is restored, merged
    or copied; `kind` is the class of the records, a `msgspec.Struct` whose fields are values.
    `under` is how the keys of these go on, where records of other kinds lie beside them: "open/".
    `name` is what stands for the star of a prefix that has one: `Owned("plans/*/")`.
    """

    def __init__(
        self, state: View, owned: Owned, kind: type[R], *, under: str = "", name: str = ""
    ) -> None:
        if not isinstance(state, View):
            raise InvalidInputError(
                "Book takes a state of the same face: holdfast has its own, so has holdfast.sync"
            )
        whole = isinstance(owned, Owned) and owned.prefix[-1] == "/"
        if not whole or ("*" in owned.prefix) != bool(name) or "/" in name:
            raise InvalidInputError(
                "a book has a prefix of its own, Owned('todos/'), and a name for the star of one "
                "that has it"
            )
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            raise InvalidInputError("the records of a book are of a msgspec.Struct")
        self._line: LineHandle = state._handle
        self._storage = self._line.core.storage
        self._prefix = owned.prefix.replace("*", name) + under
        self._kind = kind

    @quick
    def get(self, id: str) -> R | None:
        """The record of an id; None if there is none."""
        return self._read(id, self._line.reader.get(self._key(id)))

    @quick
    def all(
        self, prefix: str = "", *, after: str = "", limit: int | None = None, plain: bool = False
    ) -> dict[str, R]:
        """Records by their ids, in the order of these: those that begin with a text, some of them.

        `after` is the last id of those that were given before. With `plain`, objects of registered
        classes in them are given as data, as by `State.get`.
        """
        own = self._prefix
        start = own + after if after else ""
        found = self._line.reader.items(own + prefix, limit, start, plain)
        ids = ((key[len(own) :], value) for key, value in found)
        return {id: record for id, data in ids if (record := self._read(id, data)) is not None}

    @quick
    def readable(self, prefix: str = "") -> dict[str, R]:
        """The same as `all`, past damage: a record that cannot be read is left out, with a warning,
        and hides none of the others."""
        found: dict[str, R] = {}
        try:
            for key in self._line.reader.keys(self._prefix + prefix, None, ""):
                id = key[len(self._prefix) :]
                try:
                    record = self._read(id, self._line.reader.get(key))
                except StateIntegrityError as error:  # the others may be whole
                    _pass_over(self._line, key, error)
                    continue
                found |= {id: record} if record is not None else {}
        except StateIntegrityError as error:  # not even which there are can be read
            _pass_over(self._line, self._prefix, error)
        return found

    @quick
    def find(
        self,
        lookup: str,
        where: Mapping[str, Any] | None = None,
        *,
        order: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Records that a lookup leads to: a page of (id, record); see `State.find`.

        It may be declared with the first record: while there is none, nothing is found.
        """
        own = len(self._prefix)
        asked = question(lookup, where, {}, order, limit, after)
        try:
            found = self._line.reader.find(asked, True, False)
        except (LookupNotFoundError, LookupNotBuiltError):  # nor is any written before it is built
            if self._line.reader.keys(self._prefix, 1, ""):
                raise
            return Page()
        items = [(key[own:], self._read(key[own:], data)) for key, data in found.items]
        return Page(items, found.after)

    @quick
    def versioned(self, id: str) -> tuple[R | None, int]:
        """The record of an id, and its version: the entry that wrote it; (None, 0) if none did."""
        found = self._line.reader.versioned([self._key(id)], False)
        data, version = found.get(self._key(id), (None, 0))
        return self._read(id, data), version

    @quick
    def tail(self, id: str, count: int) -> list[R]:
        """The last records of the list of an id, without reading the rest."""
        return self._records(id, self._line.reader.tail(self._key(id), count))

    @quick
    def slice(self, id: str, start: int, stop: int | None = None) -> list[R]:
        """Records start..stop of the list of an id, without reading the rest."""
        return self._records(id, self._line.reader.slice(self._key(id), start, stop))

    @quick
    def length(self, id: str) -> int:
        """How many records the list of an id has."""
        return self._line.reader.length(self._key(id))

    @writes
    def step(
        self,
        function: Callable[[BookPage[R]], _T],
        *,
        reason: str | None = None,
        id: str | None = None,
    ) -> _T:
        """Do something to the records, in one change; returns what the function returns.

        The function gets a `BookPage`. It is called again, with new reads, if somebody else changed
        what it has read before its change was durable: it does nothing but read and write there.
        Under an `id` it is applied once. The `reason` stands in the cause of the entry.
        """
        check_function(function, "what step takes")

        def note(parts: ChangeParts) -> _T:
            answer = function(BookPage(self, parts.part(self._line), parts))
            if unawaited(answer):
                raise InvalidInputError("step takes a plain function: it may run several times")
            return answer

        return own_step(self._line, note, reason=reason, id=id)

    def page(self, change: ScopedChange) -> BookPage[R]:
        """The records as a change of the caller's reads and writes them, with what else it does."""
        if change._place != (self._line.scope, self._line.timeline):
            raise InvalidInputError(f"it takes a change of {self._line.scope}, not of another")
        check_own(self._line.core, "that change", change._reader)
        change._check_open()
        return BookPage(self, change, None)

    def _key(self, id: str) -> str:
        return owned_key(self._prefix + id)

    def _read(self, id: str, data: Any) -> R | None:
        what = f"{self._prefix}{id}, a {self._kind.__name__},"
        return loaded(self._kind, data, what) if data is not None else None

    def _records(self, id: str, items: list[Any]) -> list[R]:
        what = f"an item of {self._prefix}{id}, a {self._kind.__name__},"
        return [loaded(self._kind, one, what) for one in items]

    def _check(self, record: Any) -> None:
        """Refuse what is no record of this book."""
        if type(record) is not self._kind:
            given, kind = type(record).__name__, self._kind.__name__
            raise InvalidInputError(f"a record of {self._prefix} is a {kind}, not {given}")


class Books:
    """Several books of one state: as they are, or as a change of the state has them.

    A feature with records of several kinds has a class of its own with this base.
    """

    def __init__(self, state: View, part: ScopedChange | None = None) -> None:
        self.line: LineHandle = state._handle
        self._part = part

    @property
    def part(self) -> ScopedChange:
        """The part of the change."""
        assert self._part is not None
        return self._part

    def of(self, book: Book[_O]) -> Book[_O] | BookPage[_O]:
        """One of the books, or the page of the change in it."""
        return book.page(self._part) if self._part is not None else book

    def page(self, book: Book[_O]) -> BookPage[_O]:
        """The page of the change in one of the books."""
        return book.page(self.part)

    def value(self, key: str, default: Any) -> Any:
        """What a key of the feature holds that is no record: a number, a list of numbers."""
        if self._part is not None:
            return self._part.get(key, default)
        return self.line.reader.get(key, default)


def _pass_over(line: LineHandle, key: str, error: Exception) -> None:
    import logging  # here, because it loads slowly and hardly any program comes by

    text = "%s: %s is damaged, and passed over: %s"
    logging.getLogger("holdfast.books").warning(text, line.scope, key, error)


# ---- records ------------------------------------------------------------------------------------
# Flat Structs, stored as plain mappings: fields that have their default are left out; values are
# stored as they are, not as JSON. Those that are `array_like` are lists of their values in order,
# without defaults at the end. A field that is renamed is stored under its other name.

_fields = lru_cache(structs.fields)  # which takes longer than all the rest


def stored(record: Struct) -> Any:
    """What is stored of a record: the fields that say something."""
    fields = _fields(type(record))
    if record.__struct_config__.array_like:
        made = [getattr(record, field.name) for field in fields]
        while made[-1] is fields[len(made) - 1].default:
            made.pop()
        return made
    return {
        field.encode_name: value
        for field in fields
        if (value := getattr(record, field.name)) is not field.default
        and (field.default_factory is NODEFAULT or value != field.default_factory())
    }


def loaded(kind: type[_O], data: Any, what: str) -> _O:
    """The opposite of `stored`."""
    try:
        if kind.__struct_config__.array_like:
            return kind(*data)
        if kind.__struct_fields__ != kind.__struct_encode_fields__:
            names = {one.encode_name: one.name for one in _fields(kind)}
            data = {names[name]: value for name, value in data.items()}
        return kind(**data)
    except (TypeError, KeyError, AttributeError):
        raise NewerFormatError(
            f"{what} is stored in a way that this version does not know; "
            "use the newest version of the program, or delete the key if it is no such record"
        ) from None


# ---- changes of a feature -----------------------------------------------------------------------


def own_change(
    of: Any,
    *,
    reason: str | None = None,
    actor: str | None = None,
    correlation: str | None = None,
    id: str | None = None,
) -> ChangeParts:
    """A change of a State or Store (of either face) that may write keys of features."""
    return ChangeParts(of._handle, cause_now(actor, reason, correlation), id, owner=True)


def own_step(
    of: Any,
    note: Callable[[ChangeParts], _T],
    *,
    reason: str | None = None,
    id: str | None = None,
) -> _T:
    """Commit what a function notes in such a change, if that is anything; what it returns.

    It is called again with new reads if it was overtaken. `of` may be a handle, too.
    """

    def step() -> _T:
        handle = getattr(of, "_handle", of)
        parts = ChangeParts(handle, cause_now(reason=reason), id, owner=True)
        answer = note(parts)
        run_parts(parts)
        return answer

    return again(step)


def own_steps(
    of: Any,
    note: Callable[[ChangeParts], Steps[_T]],
    *,
    reason: str | None = None,
) -> Steps[_T]:
    """The same for a method that asks functions of users: what it notes may have steps itself."""

    def step() -> Steps[_T]:
        parts = own_change(of, reason=reason)
        answer = yield from note(parts)
        plan = yield look(of, parts.plan, planned=True)
        if plan is not None:
            yield commit(of, plan)
        return answer

    return (yield from again_in_steps(step))


def sticky(handle: LineHandle, prefix: str) -> list[Operation]:
    """What a change has to write so that restores leave a prefix alone; mostly nothing.

    For what writes by other ways than a book or a change of parts, which do it themselves.
    """
    wanted = Sticky(prefix)
    if wanted in handle.reader.declared().all:
        return []
    return [Operation("set", wanted.key, wanted.data())]


def run_parts(parts: ChangeParts) -> bool:
    """Commit such a change, if anything was noted; whether there was."""
    plan = parts.plan()
    if plan is not None:
        change, finish = plan
        finish(parts._handle.core.run(change))
    return plan is not None


def again_in_steps(step: Callable[[], Steps[_T]]) -> Steps[_T]:
    """Do a part of a method of steps that reads and commits; with new reads after each `Conflict`,
    `ATTEMPTS` times."""
    for _ in range(ATTEMPTS - 1):
        try:
            return (yield from step())
        except Conflict:  # somebody was faster: what is read now may be fit for it
            continue
    return (yield from step())


def look(state: Any, function: Callable[..., Any], *args: Any, planned: bool = False) -> Step:
    """A step that reads: in the loop, and on a thread if it turns out long; it may run twice.

    With `planned` it makes a change, for which functions of users may be called: those have their
    end.
    """

    def run(own: Any) -> Any:
        if own is state:
            return function(*args)
        from holdfast.store.names.threads import here_or_away, read_away, to_the_end

        away = to_the_end if planned else read_away
        return here_or_away(state._handle.core.storage, function, *args, away=away)

    return ask(run, state)


# ---- events -------------------------------------------------------------------------------------
# What changes no state of a scope (a backup) is told of by an entry of a scope of its own. That is
# there once somebody wants to be told, as hooks do; before that, telling costs a look.

TOLD = "$told/"
"""How keys of that scope go on: with the name of an event, `$told/backup.completed`."""
EVENTS_KEPT = 1000


def _told(core: Core) -> LineHandle:
    return StoreHandle(core).line("custom:$told")


def listen(core: Core) -> None:
    """Have events written from now on."""
    line, wanted = _told(core), Keep(count=EVENTS_KEPT)
    if line.reader.now() is None:
        own_step(line, lambda parts: parts.part(line).set(wanted.key, wanted.data()))


def announce(core: Core | None, name: str, /, **about: Any) -> None:
    """Tell of an event, if anybody ever wanted to be told.

    That it cannot be told of keeps nothing from being done: it is logged.
    """
    try:
        line = _told(core) if core is not None else None
        if line is not None and line.reader.now() is not None:
            own_step(line, lambda parts: parts.part(line).set(TOLD + name, about), reason=name)
    except HoldfastError as error:  # what is told of goes before telling
        import logging  # here, because it loads slowly and hardly any program comes by

        logging.getLogger("holdfast.events").warning("%s could not be told: %s", name, error)


@contextmanager
def announced(core: Core | None, what: str, /, **about: Any) -> Iterator[dict[str, Any]]:
    """Tell that something starts, and how it ended: `what` with started, completed or failed.

    What the block puts into the mapping is told at the end.
    """
    announce(core, f"{what}started", **about)
    try:
        yield about
    except BaseException as error:  # however it ended, that is told
        announce(core, f"{what}failed", **about, error=f"{type(error).__name__}: {error}"[:500])
        raise
    announce(core, f"{what}completed", **about)


class Running(set[str]):
    """What is at work in this process, by what tells it from others; nothing of it after a fork."""

    def __init__(self) -> None:
        super().__init__()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.clear)  # it is the other's
