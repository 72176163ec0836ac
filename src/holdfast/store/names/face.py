"""One face: a public class is written once, blocking; its async class is made from it.

How to convert a class that has a blocking file and a hand-written async one:

1. Put `@faced` above the blocking class. Mark public methods with how they leave the event loop:
   `@reads`    on a thread; cancelled: told at once, the read is left behind; the default
   `@writes`   on a thread; cancelled: it has its end first (`undo=` gives back what it got)
   `@ends`     the same, and it also begins if cancelled: stop, close, release
   `@here`     in the loop, not awaited; with `awaited=True` awaited: `await audit.start()`
   `@quick`    in the loop, and on a thread if it turns out long (see `here_or_away`)
   `@steps`    a generator that says what is to be done next, for what calls a function of the
               user's between two pieces of work (see `Step`); it serves both faces
   `@step_block` the same for a block around code of the user's (see `give`)
   Module-level functions are marked the same way, without `@faced`.
2. Delete the async file. The export tables name the blocking class in both faces; code that used
   the async class takes it from its part (`holdfast.backup`), or calls `asynchronous(Blocking)`.
3. Run `scripts/stubs.py`, which writes the types of the async class, then mypy and the tests.

Done for you: signatures, docstrings, properties, `repr`, `len` and the like. `with` becomes
`async with` (entering is undone by leaving, if cancelled; leaving always begins), also of methods
made with `contextmanager` or `block`. Public attributes of the blocking object can be read. Async
objects among the arguments arrive as blocking ones; blocking ones in what is returned (also in a
list, tuple or dict) leave as async ones. Constructors refuse those of
`holdfast.sync`; functions take both.

Functions of users that may be async: `@calls("found")` on what is given them lets threads call them
and wait for them in the loop. `@calls()` on a method takes its loop for those that the constructor
was given: mark what runs them (`start`, `look`), not what merely reads. `@asks("sync")` is for
those that a method of steps calls with `ask`: in the loop, with async objects.

Pitfalls:
- A thread has a copy of the context: a method that enters `acting`, or sets a variable for its
  caller, is `@here`, `@steps` or by hand. A lock held from `__enter__` to `__exit__` is no RLock.
- Only what is given directly, or in a list or tuple, is taken for async objects; a mapping of
  states, or an iterator of them, is not looked into.
- Setting an attribute of an async object does not reach the blocking one.
- `@quick` takes the storage from `_storage` of the blocking object, and may run a method twice.
- A subclass of the async class overrides what users call; blocking methods call each other.
- By hand stay streams, watches and change blocks: `@faced(by_hand="module:Class")`. Such a class
  has `__blocking__`, `_blocking`, and a classmethod `_of` that makes it of a blocking object. It
  may inherit the rest, docstrings too: `class State(made(Blocking))`, see `store.made`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import cache, partial, update_wrapper, wraps
from importlib import import_module
from itertools import islice
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

from holdfast.errors import InvalidInputError
from holdfast.store.names.threads import LONG, here_unless_long, read_away, surely, to_the_end

if TYPE_CHECKING:
    from holdfast.store.names.threads import OnLoop

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)
_T = TypeVar("_T")
_P = ParamSpec("_P")


# ---- marks ---------------------------------------------------------------------------------


class Way(NamedTuple):
    """How a method leaves the event loop."""

    name: str
    awaited: bool = True
    undo: Callable[[Any, Any], object] | None = None
    """Gets the blocking object and what the method gave, if nobody is there to have it."""
    threads: int | None = None
    """How many calls of one object may be at work, on threads that nothing else waits for."""


DEFAULT = Way("reads")


def _marked(function: _F, way: Way) -> _F:
    function.__way__ = way  # type: ignore[attr-defined]
    function.__face__ = asynchronous  # type: ignore[attr-defined]
    return function


def reads(function: _F) -> _F:
    """On a thread; cancelled, it is left behind. The default."""
    return _marked(function, DEFAULT)


@overload
def writes(function: _F, /) -> _F: ...
@overload
def writes(
    *, undo: Callable[[Any, Any], object] | None = None, threads: int | None = None
) -> Callable[[_F], _F]: ...
def writes(
    function: Any = None,
    /,
    *,
    undo: Callable[[Any, Any], object] | None = None,
    threads: int | None = None,
) -> Any:
    """On a thread; cancelled, it has its end first.

    `undo(self, result)` is called if it was finished though nobody is there to have the result.
    `threads`: it may wait for others, long, and so runs on that many threads of its own.
    """
    way = Way("writes", undo=undo, threads=threads)
    return _marked(function, way) if function is not None else partial(_marked, way=way)


def ends(function: _F) -> _F:
    """On a thread, also if its task is cancelled before it began: stop, close, release."""
    return _marked(function, Way("ends"))


@overload
def here(function: _F, /) -> _F: ...
@overload
def here(*, awaited: bool) -> Callable[[_F], _F]: ...
def here(function: Any = None, /, *, awaited: bool = False) -> Any:
    """In the loop: it takes microseconds and waits for nothing."""
    way = Way("here", awaited=awaited)
    return _marked(function, way) if function is not None else partial(_marked, way=way)


def quick(function: _F) -> _F:
    """In the loop, and begun anew on a thread if it turns out to be long; it only reads."""
    return _marked(function, Way("quick"))


def calls(*names: str, **made: Callable[[Any, OnLoop], Any]) -> Callable[[_F], _F]:
    """Name the arguments that are functions of users, which may be async: threads call them.

    Given by keyword, `made(argument, on_loop)` says what the blocking method gets instead. Without
    names: functions that the constructor was given run on the loop that this is called in.
    """

    def mark(function: _F) -> _F:
        function.__calls__ = {**dict.fromkeys(names), **made}  # type: ignore[attr-defined]
        return function

    return mark


def asks(*names: str) -> Callable[[_F], _F]:
    """Name the arguments that are functions of users which steps `ask`: they may be async."""
    return calls(**{name: partial(_asked, name=name) for name in names})


def _asked(function: Any, _: OnLoop, *, name: str) -> Any:
    from holdfast.store.names.arguments import check_run

    if function is None:
        return None
    check_run(function, name, awaited=True)
    return lambda *args: function(*args)  # plain, as the blocking method demands


# ---- what has two faces --------------------------------------------------------------------

_FACES: dict[type, Callable[[Any], Any]] = {}
"""How an object of a blocking class becomes one of its async class."""
_made: dict[Any, Any] = {}
_making = threading.RLock()
"""One class is made of each, whatever threads ask for it at one moment: `isinstance` counts."""


@overload
def faced(cls: _C, /) -> _C: ...
@overload
def faced(*, by_hand: str) -> Callable[[_C], _C]: ...
def faced(cls: Any = None, /, *, by_hand: str | None = None) -> Any:
    """Declare that a blocking class has an async face: a made one, or `module:Class`."""

    def mark(cls: _C) -> _C:
        _FACES[cls] = lambda found: asynchronous(cls)._of(found)
        cls.__face__ = asynchronous  # type: ignore[attr-defined]
        if by_hand is not None:
            cls.__by_hand__ = by_hand  # type: ignore[attr-defined]
        return cls

    return mark(cls) if cls is not None else mark


def asynchronous(thing: Any) -> Any:
    """The async face of a class or function of the blocking one; itself if it has only one."""
    if "__face__" not in getattr(thing, "__dict__", {}):
        return thing
    if thing not in _made:
        with _making:
            if thing not in _made:
                _made[thing] = _class(thing) if isinstance(thing, type) else _function(thing)
    return _made[thing]


_PLAIN = frozenset({str, int, float, bool, bytes, dict, type(None)})
"""Most arguments; that they are no objects of a face is told fastest so."""
LOOK = 32
"""How many items of a list are looked at for such objects: lists are values, too, and long."""


def taken(thing: Any) -> Any:
    """What the blocking face gets for an argument of the async one."""
    kind = type(thing)
    if kind in _PLAIN:
        return thing
    if kind is list or kind is tuple:
        if any(_is_async(one) for one in thing[:LOOK]):
            return kind(map(taken, thing))
    elif hasattr(kind, "__blocking__"):
        return thing._blocking
    return thing


def _is_async(thing: object) -> bool:
    kind = type(thing)
    return kind not in _PLAIN and hasattr(kind, "__blocking__")


def given(thing: Any, owner: Any = None) -> Any:
    """What the async face gives for what the blocking one gave; `owner` is whose method it was."""
    kind = type(thing)
    if kind in _PLAIN and kind is not dict:
        return thing
    if kind in _FACES:
        return owner if owner is not None and owner._blocking is thing else _FACES[kind](thing)
    if kind is list or kind is tuple:
        if any(type(one) in _FACES for one in thing[:LOOK]):
            return kind(given(one, owner) for one in thing)
    elif kind is dict and any(type(one) in _FACES for one in islice(thing.values(), LOOK)):
        return {name: given(one, owner) for name, one in thing.items()}
    return thing


def _refuse_blocking(what: str, args: Iterable[Any]) -> None:
    """Objects of both faces over one store would commit by two ways; it is a slip, and told."""
    for one in args:
        if type(one) in _FACES:
            raise InvalidInputError(
                f"{what} takes a {type(one).__name__.lower()} of holdfast, not one of "
                f"holdfast.sync, which has its own {what}"
            )


# ---- functions of users --------------------------------------------------------------------


class _Functions:
    """The arguments of a function that are functions of users."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import inspect

        self._made: Mapping[str, Any] = function.__calls__  # type: ignore[attr-defined]
        self._places = {name: at for at, name in enumerate(inspect.signature(function).parameters)}

    def put(self, on_loop: OnLoop, args: list[Any], named: dict[str, Any]) -> None:
        """Put plain functions in their place, which wait for them in the loop."""
        for name, made in self._made.items():
            make = made or partial(_plain, name=name)
            place = self._places[name]
            if name in named:
                named[name] = make(named[name], on_loop)
            elif place < len(args):
                args[place] = make(args[place], on_loop)


def _plain(function: Any, on_loop: OnLoop, *, name: str) -> Any:
    return on_loop.wrap(function, name)


def _loops_of(args: Iterable[Any], named: Mapping[str, Any]) -> list[OnLoop]:
    """Where async functions run that were given to other async objects among the arguments."""
    both = (*args, *named.values())
    return [loop for one in both if isinstance(one, Face) for loop in one._loops]


# ---- calls ---------------------------------------------------------------------------------

_Prepared = tuple[Any, list[Any], dict[str, Any]]
"""Whose method it is (None of a function), and the arguments of the blocking one."""


def _preparing(function: Any, *, method: bool) -> Callable[..., _Prepared]:
    if hasattr(function, "__calls__"):
        return _preparing_functions(function, method=method)

    def prepare(args: tuple[Any, ...], named: dict[str, Any]) -> _Prepared:
        if named:
            named = {name: taken(one) for name, one in named.items()}
        return args[0] if method else None, [taken(one) for one in args], named

    return prepare


def _preparing_functions(function: Any, *, method: bool) -> Callable[..., _Prepared]:
    """The same for what is given functions of users, or takes the loop for them."""
    from holdfast.store.names.threads import OnLoop

    functions = _Functions(function)

    def prepare(args: tuple[Any, ...], named: dict[str, Any]) -> _Prepared:
        on_loop = OnLoop()
        for loop in (on_loop, *_loops_of(args, named)):
            loop.use()
        positional = [taken(one) for one in args]
        named = {name: taken(one) for name, one in named.items()}
        functions.put(on_loop, positional, named)
        return args[0] if method else None, positional, named

    return prepare


def _running(way: Way) -> Callable[[Any, Any], Any]:
    """What leads the work of a call to its end, and is awaited; it gets the owner, too."""
    if way.name == "reads":
        return lambda _, work: read_away(work)
    if way.name == "ends":
        return lambda _, work: surely(work)
    if way.name == "steps":
        return lambda owner, work: _led(work(), owner)
    assert way.name == "writes"
    undo, threads = way.undo, way.threads

    def write(owner: Any, work: Any) -> Any:
        pool = owner._pool(threads) if threads is not None else None
        if undo is None:
            return to_the_end(work, pool=pool)
        return to_the_end(work, pool=pool, undo=partial(undo, taken(owner)))

    return write


def _call(function: Any, *, method: bool, way: Way | None = None) -> Any:
    """The async function of a blocking one; of a method, with the async object in front."""
    way = way or getattr(function, "__way__", DEFAULT)
    assert way is not None
    prepare = _preparing(function, method=method)
    if way.name == "here":

        def at_once(*args: Any, **named: Any) -> Any:
            owner, given_args, named = prepare(args, named)
            return given(function(*given_args, **named), owner)

        if not way.awaited:
            return wraps(function)(at_once)

        @wraps(function)
        async def soon(*args: Any, **named: Any) -> Any:
            return at_once(*args, **named)

        return soon

    if way.name == "quick":
        return _quick(function)
    run = _running(way)
    work = function.__steps__ if way.name == "steps" else function

    @wraps(function)
    async def call(*args: Any, **named: Any) -> Any:
        owner, given_args, named = prepare(args, named)
        return given(await run(owner, partial(work, *given_args, **named)), owner)

    return call


def _function(function: Any) -> Any:
    made = _call(function, method=False)
    del made.__face__  # `wraps` has copied it, and this one is async already
    return made


def _quick(function: Any) -> Any:
    """As `here_or_away`, written out: such a call takes a microsecond, and each step counts."""

    @wraps(function)
    async def call(self: Any, /, *args: Any, **named: Any) -> Any:
        for one in args:
            if type(one) not in _PLAIN:
                args = tuple([taken(one) for one in args])
                break
        if named:
            named = {name: taken(one) for name, one in named.items()}
        blocking = self._blocking
        found = here_unless_long(blocking._storage, function, (blocking, *args), named)
        if found is LONG:
            found = await read_away(partial(function, blocking, *args, **named))
        return given(found, self)

    return call


# ---- steps ---------------------------------------------------------------------------------


class Step(NamedTuple):
    """What a method of steps wants done next; it gets the answer, or the error, where it yields."""

    how: str
    work: Callable[[], Any]
    undo: Callable[[Any], object] | None = None
    what: str = ""


Steps = Generator[Step, Any, _T]
"""What a method of steps is: `def create(self) -> Steps[Result]`, called for a `Result`."""


def read(function: Callable[..., Any], *args: Any, **named: Any) -> Step:
    """A step that reads; cancelled, it is left behind."""
    return Step("reads", partial(function, *args, **named))


def write(
    function: Callable[..., Any],
    *args: Any,
    undo: Callable[[Any], object] | None = None,
    **named: Any,
) -> Step:
    """A step that has its end also if cancelled; `undo` then gets what it gave."""
    return Step("writes", partial(function, *args, **named), undo)


def end(function: Callable[..., Any], *args: Any, **named: Any) -> Step:
    """A step that also begins if cancelled: what ends, undoes or gives back something."""
    return Step("ends", partial(function, *args, **named))


def ask(function: Callable[..., Any], *args: Any, what: str = "") -> Step:
    """A step that calls a function of the user's: in the loop, where it may be async.

    It gets async objects for blocking ones on the async face. `what` names it in the error that
    refuses an answer to be awaited or read; without, the method has to look itself.
    """
    return Step("ask", partial(function, *args), what=what)


def check(function: Any, what: str) -> Step:
    """A step that refuses what is no function, or an async one on the blocking face."""
    return Step("check", lambda: function, what=what)


def steps(function: Callable[_P, Steps[_T]]) -> Callable[_P, _T]:
    """Make a method of a generator of steps: the blocking face leads it here, to its end."""

    @wraps(function)
    def lead(*args: _P.args, **named: _P.kwargs) -> _T:
        return _lead(function(*args, **named))

    lead.__steps__ = function  # type: ignore[attr-defined]
    return _marked(lead, Way("steps"))


def _lead(routine: Steps[_T]) -> _T:
    from holdfast.store.names.arguments import check_plain_function, ran

    try:
        step = next(routine)
        while True:
            try:
                answer = step.work()
                if step.how == "ask" and step.what:
                    answer = ran(answer, step.what)
                elif step.how == "check":
                    check_plain_function(answer, step.what)
            except BaseException as error:  # whatever it is, the routine has its own handlers
                step = routine.throw(error)
            else:
                step = routine.send(answer)
    except StopIteration as over:
        return over.value  # type: ignore[no-any-return]


async def _led(routine: Steps[Any], owner: Any) -> Any:
    try:
        step = next(routine)
        while True:
            try:
                answer = await _done(step, owner)
            except BaseException as error:  # also that the task is cancelled: it may have to undo
                step = routine.throw(error)
            else:
                step = routine.send(answer)
    except StopIteration as over:
        return over.value


async def _done(step: Step, owner: Any) -> Any:
    import inspect

    from holdfast.store.names.arguments import check_run, ran

    if step.how == "reads":
        return await read_away(step.work)
    if step.how == "writes":
        return await to_the_end(step.work, undo=step.undo)
    if step.how == "ends":
        return await surely(step.work, undo=step.undo)
    if step.how == "check":
        return check_run(step.work(), step.what, awaited=True)
    asked = step.work
    assert isinstance(asked, partial)
    answer = asked.func(*(given(one, owner) for one in asked.args), **asked.keywords)
    answer = await answer if inspect.isawaitable(answer) else answer
    return ran(answer, step.what) if step.what else answer


# ---- blocks --------------------------------------------------------------------------------


Blocks = Generator[Step | _T, Any, None]
"""What a block of steps is: `def next(self) -> Blocks[Mail]`, entered for a `Mail`."""


def give(what: object) -> Step:
    """The step of a block of steps that is the user's block, which gets this."""
    return Step("give", lambda: what)


def step_block(
    function: Callable[_P, Blocks[_T]],
) -> Callable[_P, AbstractContextManager[_T]]:
    """Make a block of a generator of steps, one of which gives: what comes before it enters."""

    @wraps(function)
    def begin(*args: _P.args, **named: _P.kwargs) -> AbstractContextManager[_T]:
        return _StepBlock(function(*args, **named))

    return begin


class _StepBlock(AbstractContextManager[Any]):
    """A block of steps, on the blocking face."""

    def __init__(self, routine: Any) -> None:
        self.routine = routine

    def __enter__(self) -> Any:
        return _lead(_before(self.routine))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return _lead(_behind(self.routine, error))


class _AsyncStepBlock(AbstractAsyncContextManager[Any]):
    """The same on the async face, in the task that enters it: functions of users may be async."""

    def __init__(self, routine: Any, owner: Any) -> None:
        self._routine = routine
        self._owner = owner

    async def __aenter__(self) -> Any:
        return given(await _led(_before(self._routine), self._owner), self._owner)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        left: bool = await _led(_behind(self._routine, error), self._owner)
        return left


def _before(routine: Steps[None]) -> Steps[Any]:
    """The steps of a block up to the one that gives, and what that gives."""
    step = next(routine, None)
    while step is not None and step.how != "give":
        try:
            answer = yield step
        except BaseException as error:  # whatever it is, the routine has its own handlers
            step = routine.throw(error)
        else:
            step = routine.send(answer)
    if step is None:
        raise InvalidInputError("a block is entered once; make another")
    return step.work()


def _behind(routine: Steps[None], error: BaseException | None) -> Steps[bool]:
    """The steps of a block behind it; whether an error that it ended with is dealt with."""
    try:
        step = next(routine) if error is None else routine.throw(error)
        while True:
            try:
                answer = yield step
            except BaseException as wrong:  # as above
                step = routine.throw(wrong)
            else:
                step = routine.send(answer)
    except StopIteration:
        return error is not None
    except BaseException as wrong:
        if wrong is not error:
            raise
        return False


async def _entered(manager: AbstractContextManager[Any], owner: Any) -> Any:
    """Enter a blocking block on a thread; if nobody is there any more then, it is left again."""
    return given(
        await to_the_end(manager.__enter__, undo=lambda _: manager.__exit__(None, None, None)),
        owner,
    )


class _Block(AbstractAsyncContextManager[Any]):
    """`async with replicas.following()`, of a method made with `contextmanager` or `block`."""

    def __init__(self, manager: AbstractContextManager[Any], owner: Any) -> None:
        self._manager = manager
        self._owner = owner

    async def __aenter__(self) -> Any:
        return await _entered(self._manager, self._owner)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await surely(self._manager.__exit__, kind, error, trace)


def _block(function: Any) -> Any:
    prepare = _preparing(function, method=True)

    @wraps(function)
    def begin(*args: Any, **named: Any) -> AbstractAsyncContextManager[Any]:
        owner, given_args, named = prepare(args, named)
        manager = function(*given_args, **named)
        if isinstance(manager, _StepBlock):
            return _AsyncStepBlock(manager.routine, owner)
        return _Block(manager, owner)

    return begin


def is_block(function: Any) -> bool:
    """Whether a method was made with `contextmanager`, `block` or `step_block`."""
    import inspect

    inner = getattr(function, "__wrapped__", None)
    return not hasattr(function, "__steps__") and inspect.isgeneratorfunction(inner)


# ---- classes -------------------------------------------------------------------------------


class Face:
    """What all async classes are that were made of blocking ones."""

    __blocking__: type = object
    _blocking: Any
    _loops: tuple[OnLoop, ...] = ()
    """Where functions of users run that are async: its own, and those of objects it was given."""
    _threads: Any = None

    def __init_subclass__(cls) -> None:
        """What is written by hand in the place of a made method has its docstring."""
        for name, member in vars(cls).items():
            if isinstance(member, FunctionType | property) and member.__doc__ is None:
                member.__doc__ = getattr(getattr(cls.__blocking__, name, None), "__doc__", None)

    @classmethod
    def _of(cls, blocking: Any) -> Any:
        face = cls.__new__(cls)
        face._blocking = blocking
        return face

    def _pool(self, threads: int) -> Any:
        """Threads for what may wait long: nothing else is to wait for a thread meanwhile."""
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(threads, f"holdfast-{type(self).__name__.lower()}")
        return self._threads


class _Whole(Face):
    """One that nothing is written by hand for: it also has the attributes of the blocking object.

    `__getattr__` makes each access to an attribute slower, so the hot paths by hand go without.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return given(getattr(self._blocking, name), self)


PASSED = frozenset(
    {
        *("__repr__", "__str__", "__len__", "__bool__", "__contains__", "__iter__", "__getitem__"),
        *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__call__"),
    }
)
"""Methods with names of Python's own that the async class has, too: they run in the loop."""


def _class(cls: Any) -> Any:
    """The async class of a blocking one."""
    if "__by_hand__" in vars(cls):
        module, name = cls.__by_hand__.split(":")
        return getattr(import_module(module), name)
    return made(cls)


@cache
def made(cls: Any) -> Any:
    """An async class with all that can be made of a blocking one.

    Of what is written by hand it is the base, so that the rest need not be written.
    """
    above = [base for base in cls.__mro__[1:] if base in _FACES]
    bases = [made(one) if "__by_hand__" in vars(one) else asynchronous(one) for one in above]
    members: dict[str, Any] = {
        "__blocking__": cls,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    for base in reversed(cls.__mro__):
        if base is object or (base in _FACES and base is not cls):
            continue
        for name, member in vars(base).items():
            one = _member(cls, name, member)
            if one is not None:
                members[name] = one
    if hasattr(cls, "__enter__"):
        members["__aenter__"], members["__aexit__"] = _entering(cls)
    if "__init__" in vars(cls) or not bases:
        members["__init__"] = _making_of(cls)
    first = bases[0] if bases else Face if "__by_hand__" in vars(cls) else _Whole
    return type(cls.__name__, (first,), members)


def _member(cls: Any, name: str, member: Any) -> Any:
    """What the async class has for a member of the blocking one; None for nothing."""
    if name in PASSED:
        if not isinstance(member, FunctionType):
            return member  # `__hash__` may be None
        return _call(member, method=True, way=Way("here", awaited=False))
    if name.startswith("_"):
        return None
    if isinstance(member, property):
        return _property(member)
    if isinstance(member, classmethod):
        return staticmethod(_call(_bound(member.__func__, cls), method=False))
    if isinstance(member, staticmethod):
        return staticmethod(_call(member.__func__, method=False))
    if not isinstance(member, FunctionType):
        return member if not hasattr(member, "__get__") else None  # a slot: see __getattr__
    return _block(member) if is_block(member) else _call(member, method=True)


def _bound(function: Any, cls: Any) -> Any:
    @wraps(function)
    def bound(*args: Any, **named: Any) -> Any:
        return function(cls, *args, **named)

    return bound


def _property(member: property) -> property:
    get, put = member.fget, member.fset
    assert get is not None

    def getter(self: Any) -> Any:
        return given(get(self._blocking), self)

    def setter(self: Any, value: Any) -> None:
        assert put is not None
        put(self._blocking, taken(value))

    return property(getter, setter if put is not None else None, doc=member.__doc__)


def _entering(cls: Any) -> tuple[Any, Any]:
    """`async with` of a class: entering as its mark says, leaving whatever becomes of the task."""
    enter, leave = cls.__enter__, cls.__exit__
    way: Way = getattr(enter, "__way__", Way("writes"))

    async def aenter(self: Any) -> Any:
        if hasattr(enter, "__calls__"):
            for loop in self._loops:
                loop.use()
        if way.name == "here":
            return given(enter(self._blocking), self)
        if way.name == "steps":
            return given(await _led(enter.__steps__(self._blocking), self), self)
        return await _entered(self._blocking, self)

    async def aexit(
        self: Any,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if hasattr(leave, "__steps__"):
            left = await _led(leave.__steps__(self._blocking, kind, error, trace), self)
        else:
            left = await surely(self._blocking.__exit__, kind, error, trace)
        return left  # type: ignore[no-any-return]

    return aenter, aexit


def _making_of(cls: Any) -> Any:
    """`__init__` of the async class: it makes the blocking object."""
    function = cls.__init__
    functions = _Functions(function) if hasattr(function, "__calls__") else None

    def make(self: Any, /, *args: Any, **named: Any) -> None:
        _refuse_blocking(cls.__name__, (*args, *named.values()))
        positional = [self, *(taken(one) for one in args)]
        more = {name: taken(one) for name, one in named.items()}
        loops = _loops_of(args, named)
        if functions is not None:
            from holdfast.store.names.threads import OnLoop

            loops.append(OnLoop())
            functions.put(loops[-1], positional, more)
        if loops:
            self._loops = tuple(loops)
        self._blocking = cls(*positional[1:], **more)

    return update_wrapper(make, function) if function is not object.__init__ else make


# ---- blocks -------------------------------------------------------------------------------------
# Blocks that are entered once: of a lease, of a change.
#
# `contextlib` makes such blocks of generators; entered a second time they fail with an error of its
# own inside, which says nothing.


class _Entered:
    """Whether a block was entered already."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entered = False

    def _enter(self) -> None:
        if self._entered:
            raise InvalidInputError(
                f"a block is entered once; call `{self._name}` again for another one"
            )
        self._entered = True


class Block(_Entered, AbstractContextManager[_T], Generic[_T]):
    """`with store.lease(…)`."""

    def __init__(self, inner: AbstractContextManager[_T], name: str) -> None:
        super().__init__(name)
        self._inner = inner

    def __enter__(self) -> _T:
        self._enter()
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._inner.__exit__(kind, error, trace)


class AsyncBlock(_Entered, AbstractAsyncContextManager[_T], Generic[_T]):
    """`async with store.lease(…)`."""

    def __init__(self, inner: AbstractAsyncContextManager[_T], name: str) -> None:
        super().__init__(name)
        self._inner = inner

    async def __aenter__(self) -> _T:
        self._enter()
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def block(function: Callable[_P, Iterator[_T]]) -> Callable[_P, Block[_T]]:
    """As `contextmanager`; entered again, the block is refused with what to do."""
    make = contextmanager(function)

    @wraps(function)
    def begin(*args: _P.args, **named: _P.kwargs) -> Block[_T]:
        return Block(make(*args, **named), function.__name__)

    return begin


def async_block(function: Callable[_P, AsyncIterator[_T]]) -> Callable[_P, AsyncBlock[_T]]:
    """As `asynccontextmanager`; entered again, the block is refused with what to do."""
    make = asynccontextmanager(function)

    @wraps(function)
    def begin(*args: _P.args, **named: _P.kwargs) -> AsyncBlock[_T]:
        return AsyncBlock(make(*args, **named), function.__name__)

    return begin
