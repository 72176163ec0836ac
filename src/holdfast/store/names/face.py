"""One face: a public class is written once, blocking; its async class is made from it.

Put `@faced` above the blocking class, and mark public methods (functions of a module, too) with how
they leave the event loop; `scripts/stubs.py` then writes the types of the async class:

   `@reads`    on a thread; cancelled: told at once, the read is left behind; the default
   `@writes`   on a thread; cancelled: it has its end first
   `@ends`     the same, and it also begins if cancelled: stop, close, release
   `@here`     in the loop, not awaited; with `awaited=True` awaited: `await audit.start()`
   `@quick`    in the loop, and on a thread if it turns out long (see `here_or_away`); only data
   `@steps`    a generator that says what is to be done next, for what commits as its face does,
               or calls a function of the user's between two pieces of work (see `Step`); it serves
               both faces
   `@step_block` the same for a block around code of the user's (see `give`)

Export tables name the blocking class in both faces; who needs the async one takes it from its part
(`holdfast.backup`), or calls `asynchronous(Blocking)`. It has the same signatures, docstrings,
properties, `repr`, `len` and the like. `with` becomes `async with` (entering is undone by leaving,
if cancelled; leaving always begins), also of methods made with `contextmanager`; `for`
over what has `__next__` becomes `async for`, if its `_next` is a routine of steps. Public
attributes of the blocking object can be read. Async objects among the arguments arrive as blocking
ones; blocking ones in what is returned (also in a list, tuple or dict) leave as async ones.
Constructors refuse those of `holdfast.sync`; functions take both.

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
- `@quick` takes the storage from `_storage` of the blocking object, and may run a method twice; it
  neither takes nor gives objects of a face.
- A subclass of the async class overrides what users call; blocking methods call each other.
- By hand stay streams: `@faced(by_hand="module:Class")`. Such a class has
  `__blocking__`, `_blocking`, and a classmethod `_of` that makes it of a blocking object. It may
  inherit the rest, docstrings too: `class State(made(Blocking))`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import cache, partial, update_wrapper, wraps
from importlib import import_module
from itertools import islice
from math import inf
from types import FunctionType
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from holdfast.errors import InvalidInputError
from holdfast.store.names.threads import (
    HERE,
    MUCH,
    OnLoop,
    TooMuch,
    here_or_away,
    read_away,
    safe_point,
    surely,
    to_the_end,
)

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)
_T = TypeVar("_T")
_P = ParamSpec("_P")


# ---- marks ---------------------------------------------------------------------------------


class Way(NamedTuple):
    """How a method leaves the event loop."""

    name: str
    awaited: bool = True
    threads: int | None = None
    """How many calls of one object may be at work, on threads that nothing else waits for."""


DEFAULT = Way("reads")


class Bell(Protocol):
    """Calls functions, each once, when it rings; of any thread."""

    def add(self, wake: Callable[[], object], /) -> None: ...
    def remove(self, wake: Callable[[], object], /) -> None: ...


class _Mark(Protocol):
    """`@writes`, or `@writes(threads=8)`."""

    @overload
    def __call__(self, function: _F, /) -> _F: ...
    @overload
    def __call__(self, /, **more: Any) -> Callable[[_F], _F]: ...


def _mark(name: str, **usual: Any) -> _Mark:
    def mark(function: Any = None, /, **more: Any) -> Any:
        if function is None:
            return partial(mark, **more)
        function.__way__ = Way(name, **(usual | more))
        function.__face__ = asynchronous
        return function

    return mark


reads = _mark("reads")
"""On a thread; cancelled, it is left behind. The default."""
writes = _mark("writes")
"""On a thread; cancelled, it has its end first. `threads`: it may wait for others, long, and so
runs on that many threads of its own."""
ends = _mark("ends")
"""On a thread, also if its task is cancelled before it began: stop, close, release."""
here = _mark("here", awaited=False)
"""In the loop: it takes microseconds and waits for nothing."""
both = _mark("both", awaited=False)
"""As it is on both faces: it looks itself at whose it is."""
quick = _mark("quick")
"""In the loop, and begun anew on a thread if it turns out to be long; it only reads."""


def calls(*names: str, **made: Callable[[Any, OnLoop], Any]) -> Callable[[_F], _F]:
    """Name the arguments that are functions of users, which may be async: threads call them.

    Given by keyword, `made(argument, on_loop)` says what the blocking method gets instead. Without
    names: functions that the constructor was given run on the loop that this is called in.
    """

    def mark(function: _F) -> _F:
        function.__calls__ = {  # type: ignore[attr-defined]
            **{name: lambda given, loop, name=name: loop.wrap(given, name) for name in names},
            **made,
        }
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
        if any(hasattr(type(one), "__blocking__") for one in thing[:LOOK]):
            return kind(map(taken, thing))
    elif hasattr(kind, "__blocking__"):
        return thing._blocking
    return thing


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


# ---- calls ---------------------------------------------------------------------------------


def _arguments(
    function: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """What a blocking function gets for the arguments of the async one."""
    own_args = [taken(one) for one in args]
    own_named = {name: taken(one) for name, one in named.items()} if named else named
    if not hasattr(function, "__calls__"):
        return own_args, own_named
    on_loop = OnLoop()
    for loop in (on_loop, *_loops_of(args, named)):
        loop.use()
    return _with_functions(function, on_loop, own_args, own_named)


def _with_functions(
    function: Any, on_loop: OnLoop, args: Iterable[Any], named: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments with plain functions for those of users, which are waited for in the loop."""
    bound = _signature(function).bind(*args, **named)
    for name, make in function.__calls__.items():
        if name in bound.arguments:
            bound.arguments[name] = make(bound.arguments[name], on_loop)
    return bound.args, bound.kwargs


@cache
def _signature(function: Any) -> Any:
    import inspect

    return inspect.signature(function)


def _loops_of(args: Iterable[Any], named: Mapping[str, Any]) -> list[OnLoop]:
    """Where async functions run that were given to async objects among the arguments."""
    both = (*args, *named.values())
    return [loop for one in both if isinstance(one, Face) for loop in one._loops]


_RUN: dict[str, Callable[..., Any]] = {"reads": read_away, "writes": to_the_end, "ends": surely}


def _call(function: Any, *, method: bool, way: Way | None = None) -> Any:
    """The async function of a blocking one; of a method, with the async object in front."""
    way = way or getattr(function, "__way__", DEFAULT)
    assert way is not None
    if way.name == "quick":
        return _quick(function)
    if way.name == "both":
        return function

    @wraps(function)
    def at_once(*args: Any, **named: Any) -> Any:
        own_args, own_named = _arguments(function, args, named)
        return given(function(*own_args, **own_named), args[0] if method else None)

    @wraps(function)
    async def call(*args: Any, **named: Any) -> Any:
        if way.name == "here":
            return at_once(*args, **named)
        owner: Any = args[0] if method else None
        own_args, own_named = _arguments(function, args, named)
        if way.name == "steps":
            return given(await _led(function.__steps__(*own_args, **own_named), owner), owner)
        pool = {"pool": owner._pool(way.threads)} if owner and way.threads else {}
        work = partial(function, *own_args, **own_named)
        return given(await _RUN[way.name](work, **pool), owner)

    return call if way.awaited else at_once


def _function(function: Any) -> Any:
    made = _call(function, method=False)
    del made.__face__  # `wraps` has copied it, and this one is async already
    return made


def _quick(function: Any) -> Any:
    """As `here_or_away`, written out: such a call takes a microsecond, and each step counts."""

    @wraps(function)
    async def call(self: Any, /, *args: Any, **named: Any) -> Any:
        blocking = self._blocking
        if blocking._storage.limits.embedded:
            HERE.left = MUCH
            try:
                return function(blocking, *args, **named)
            except TooMuch:
                pass
            finally:
                HERE.left = inf
        return await read_away(partial(function, blocking, *args, **named))

    return call


# ---- steps ---------------------------------------------------------------------------------


class Step(NamedTuple):
    """What a method of steps wants done next; it gets the answer, or the error, where it yields."""

    how: str
    work: partial[Any]
    undo: Callable[[Any], object] | None = None
    what: str = ""


Steps = Generator[Step, Any, _T]
"""What a method of steps is: `def create(self) -> Steps[Result]`, called for a `Result`."""
Blocks = Generator[Step | _T, Any, None]
"""What a block of steps is: `def next(self) -> Blocks[Mail]`, entered for a `Mail`."""


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


def planned(function: Callable[..., Any], *args: Any) -> Step:
    """A step that plans a change: in the loop, and on a thread if it turns out to be long."""
    return Step("plan", partial(function, *args))


def commit(owner: Any, plan: Any, *, away: bool = False) -> Step:
    """A step that commits what is planned for an object, as its face does.

    `away`: it may take long to build, see `Pump.commit`.
    """
    return Step("commit", partial(owner._run, plan, away))


def pause(seconds: float) -> Step:
    """A step that lets some time pass; others go on meanwhile."""
    return Step("pause", partial(_rest, seconds))


def _rest(seconds: float) -> None:
    safe_point()
    time.sleep(seconds)


def wait(bell: Bell, over: Callable[[], bool], seconds: float) -> Step:
    """A step that waits until a bell rings or the time is up, unless `over` says there is no need:
    asked once the bell would be heard."""
    return Step("wait", partial(_heard, bell, over, seconds))


def _heard(bell: Bell, over: Callable[[], bool], seconds: float) -> None:
    rung = threading.Event()
    bell.add(rung.set)
    try:
        if not over():
            rung.wait(seconds)
    finally:
        bell.remove(rung.set)


async def _heard_in_loop(bell: Bell, over: Callable[[], bool], seconds: float) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    rung = asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it who waited
            loop.call_soon_threadsafe(rung.set)

    timer = loop.call_later(seconds, rung.set)
    bell.add(wake)
    try:
        if not over():
            await rung.wait()
    finally:
        timer.cancel()
        bell.remove(wake)


def ask(function: Callable[..., Any], *args: Any, what: str = "") -> Step:
    """A step that calls a function of the user's: in the loop, where it may be async.

    It gets async objects for blocking ones on the async face. `what` names it in the error that
    refuses an answer to be awaited or read; without, the method has to look itself.
    """
    return Step("ask", partial(function, *args), what=what)


def check(function: Any, what: str) -> Step:
    """A step that refuses what is no function, or an async one on the blocking face."""
    return Step("check", partial(_same, function), what=what)


def give(what: object) -> Step:
    """The step of a block of steps that is the user's block, which gets this."""
    return Step("give", partial(_same, what))


def _same(thing: object) -> object:
    return thing


def steps(function: Callable[_P, Steps[_T]]) -> Callable[_P, _T]:
    """Make a method of a generator of steps: the blocking face leads it here, to its end."""

    @wraps(function)
    def lead(*args: _P.args, **named: _P.kwargs) -> _T:
        return led(function(*args, **named))

    lead.__steps__ = function  # type: ignore[attr-defined]
    return _mark("steps")(lead)


def steps_of(method: Callable[_P, _T]) -> Callable[_P, Steps[_T]]:
    """A method of steps as part of another one: `yield from steps_of(self.save)()`."""
    return partial(method.__steps__, method.__self__)  # type: ignore[attr-defined]


def led(routine: Steps[_T]) -> _T:
    """What a routine of steps comes to, on the blocking face."""
    try:
        next(_driven(routine))
    except StopIteration as over:
        return over.value  # type: ignore[no-any-return]
    raise AssertionError("a routine that gives is a block")


def _driven(routine: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Do the steps of a routine here; what one gives is yielded, to the block of the user."""
    try:
        step = next(routine)
        while True:
            try:
                answer = (yield step.work()) if step.how == "give" else _done_here(step)
            except BaseException as error:  # whatever it is, the routine has its own handlers
                step = routine.throw(error)
            else:
                step = routine.send(answer)
    except StopIteration as over:
        return over.value


def _done_here(step: Step) -> Any:
    answer = step.work()
    if not step.what:
        return answer
    from holdfast.store.names.arguments import check_plain_function, ran

    return (
        check_plain_function(answer, step.what) if step.how == "check" else ran(answer, step.what)
    )


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


@asynccontextmanager
async def _led_block(routine: Generator[Any, Any, Any], owner: Any) -> AsyncIterator[Any]:
    """The same of a block, in the task that enters it: functions of users may be async."""
    try:
        step = next(routine)
        while True:
            try:
                if step.how == "give":
                    answer = yield given(step.work(), owner)
                else:
                    answer = await _done(step, owner)
            except BaseException as error:  # as above; also what the block ended with
                step = routine.throw(error)
            else:
                step = routine.send(answer)
    except StopIteration:
        return


def _done(step: Step, owner: Any) -> Awaitable[Any]:
    # A plain function: what one of the user's raises comes out as it is, while a coroutine would
    # make a RuntimeError of a StopIteration.
    if step.how == "plan":
        return here_or_away(owner._blocking._storage, step.work, away=to_the_end)
    if step.how == "commit":
        whose = step.work.func.__self__  # type: ignore[attr-defined]
        return given(whose, owner)._run(*step.work.args)  # type: ignore[no-any-return]
    if step.how == "reads":
        return read_away(step.work)
    if step.how in ("writes", "ends"):
        return _RUN[step.how](step.work, undo=step.undo)  # type: ignore[no-any-return]
    if step.how == "wait":
        return _heard_in_loop(*step.work.args)
    if step.how == "pause":
        import asyncio

        return asyncio.sleep(*step.work.args)
    from holdfast.store.names.arguments import check_run

    if step.how == "check":
        check_run(step.work(), step.what, awaited=True)
        return _answered(None, "")
    own_args = [given(one, owner) for one in step.work.args]
    return _answered(step.work.func(*own_args, **step.work.keywords), step.what)


async def _answered(answer: Any, what: str) -> Any:
    import inspect

    from holdfast.store.names.arguments import ran

    answer = await answer if inspect.isawaitable(answer) else answer
    return ran(answer, what) if what else answer


# ---- blocks --------------------------------------------------------------------------------


class Block(AbstractContextManager[_T], Generic[_T]):
    """`with store.lease(…)`, or `async with`: entered once, and nothing but entered."""

    _name = ""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner = inner
        self._name = name
        self._entered = False

    def __getattr__(self, name: str) -> Any:
        way = "async with" if hasattr(self._inner, "__aenter__") else "with"
        raise AttributeError(
            f"`{self._name}` begins a block, and {name} is of what the block gives: write "
            f"`{way} ….{self._name}(…) as {self._name}:`"
        )

    def __getitem__(self, state: Any) -> Any:
        return self.__getattr__("[...]")

    def _enter(self) -> Any:
        if self._entered:  # `contextlib` says nothing of use about that
            raise InvalidInputError(
                f"a block is entered once; call `{self._name}` again for another one"
            )
        self._entered = True
        return self._inner

    def __enter__(self) -> _T:
        return self._enter().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *raised: Any) -> bool | None:
        return self._inner.__exit__(*raised)  # type: ignore[no-any-return]


class AsyncBlock(Block[Any], AbstractAsyncContextManager[Any]):
    """The same in an event loop."""

    async def __aenter__(self) -> Any:
        return await self._enter().__aenter__()

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._inner.__aexit__(*raised)  # type: ignore[no-any-return]


def step_block(function: Callable[_P, Blocks[_T]]) -> Callable[_P, Block[_T]]:
    """Make a block of a generator of steps, one of which gives: what comes before it enters."""

    make = contextmanager(lambda *args, **named: _driven(function(*args, **named)))

    @wraps(function)
    def begin(*args: _P.args, **named: _P.kwargs) -> Block[_T]:
        return Block(make(*args, **named), function.__name__)

    begin.__steps__ = function  # type: ignore[attr-defined]
    return begin


def is_block(function: Any) -> bool:
    """Whether a method was made with `contextmanager` or `step_block`."""
    import inspect

    inner = inspect.unwrap(function)
    steps = getattr(function, "__way__", DEFAULT).name == "steps"
    return not steps and inner is not function and inspect.isgeneratorfunction(inner)


def _block(function: Any) -> Any:
    @wraps(function)
    def begin(*args: Any, **named: Any) -> AbstractAsyncContextManager[Any]:
        own_args, own_named = _arguments(function, args, named)
        if hasattr(function, "__steps__"):
            routine = function.__steps__(*own_args, **own_named)
        else:
            routine = _around(function(*own_args, **own_named))
        return AsyncBlock(_led_block(routine, args[0]), function.__name__)

    return begin


def _around(manager: AbstractContextManager[Any]) -> Generator[Step, Any, None]:
    """The steps of a blocking block: it is entered and left on threads."""
    found = yield _entry(manager)
    try:
        yield give(found)
    except BaseException as error:  # what the user's block raised: the manager decides about it
        if not (yield end(manager.__exit__, type(error), error, error.__traceback__)):
            raise
    else:
        yield end(manager.__exit__, None, None, None)


def _entry(manager: AbstractContextManager[Any]) -> Step:
    """Enter a blocking block; if nobody is there any more then, it is left again."""
    return write(manager.__enter__, undo=lambda _: manager.__exit__(None, None, None))


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
    if hasattr(cls, "__next__"):
        del members["__iter__"]
        members["__aiter__"], members["__anext__"] = lambda self: self, _following(cls)
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
    if isinstance(member, classmethod | staticmethod):
        return staticmethod(_call(member.__get__(None, cls), method=False))
    if not isinstance(member, FunctionType):
        return member if not hasattr(member, "__get__") else None  # a slot: see __getattr__
    return _block(member) if is_block(member) else _call(member, method=True)


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
    leave = Way("steps") if hasattr(cls.__exit__, "__steps__") else Way("ends")
    aexit = _call(cls.__exit__, method=True, way=leave)
    way = getattr(cls.__enter__, "__way__", None)
    if way is not None:
        return _call(cls.__enter__, method=True, way=way._replace(awaited=True)), aexit

    async def aenter(self: Any) -> Any:
        for loop in self._loops:
            loop.use()
        return given(await _done(_entry(self._blocking), self), self)

    return aenter, aexit


def _following(cls: Any) -> Any:
    """`async for` over a class with `_next`, a routine of steps that gives None at the end."""

    async def anext(self: Any) -> Any:
        found = await _led(cls._next(self._blocking), self)
        if found is None:
            raise StopAsyncIteration
        return found

    return anext


def _making_of(cls: Any) -> Any:
    """`__init__` of the async class: it makes the blocking object."""
    function = cls.__init__

    def make(self: Any, /, *args: Any, **named: Any) -> None:
        for one in (*args, *named.values()):
            # Objects of both faces over one store would commit by two ways; it is a slip, and told.
            if type(one) in _FACES:
                raise InvalidInputError(
                    f"{cls.__name__} takes a {type(one).__name__.lower()} of holdfast, not one of "
                    f"holdfast.sync, which has its own {cls.__name__}"
                )
        loops = _loops_of(args, named)
        own_args: Sequence[Any] = [self, *map(taken, args)]
        own_named: Mapping[str, Any] = {name: taken(one) for name, one in named.items()}
        if hasattr(function, "__calls__"):
            loops.append(OnLoop())
            own_args, own_named = _with_functions(function, loops[-1], own_args, own_named)
        if loops:
            self._loops = tuple(loops)
        self._blocking = cls(*own_args[1:], **own_named)

    return update_wrapper(make, function) if function is not object.__init__ else make
