"""The async class that is made of a blocking one: what each mark means, what goes in and out."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import InvalidInputError
from holdfast.storage import open_storage
from holdfast.store.names.face import (
    Blocks,
    Steps,
    ask,
    asynchronous,
    calls,
    check,
    end,
    ends,
    faced,
    give,
    here,
    made,
    quick,
    read,
    reads,
    step_block,
    steps,
    write,
    writes,
)
from holdfast.store.names.threads import MUCH, leave_loop


@faced
class Part:
    """A part of a thing."""

    def __init__(self, name: str) -> None:
        self.name = name

    @here
    def of(self, other: Part) -> str:
        """Both names."""
        assert type(other) is Part
        return f"{self.name} {other.name}"


@faced
class Thing:
    """A thing."""

    kind = "thing"

    @calls("found")
    def __init__(self, *, found: Callable[[int], Any] | None = None) -> None:
        self.found = found
        self.log: list[str] = []
        self.begun = threading.Event()
        self.go = threading.Event()
        self._hidden = 1
        self._storage = open_storage("memory:")

    def __repr__(self) -> str:
        return "Thing()"

    def __len__(self) -> int:
        return 7

    def __enter__(self) -> Thing:
        self.note("enter")
        return self

    def __exit__(self, *_: object) -> None:
        self.note("exit")

    @here
    def note(self, what: str) -> None:
        """Note where something ran."""
        main = threading.current_thread() is threading.main_thread()
        self.log.append(f"{what} {'here' if main else 'away'}")

    def plain(self, a: int, *, b: int = 2) -> int:
        """Is read away."""
        self.note("plain")
        return a + b

    @reads
    def long_read(self) -> None:
        """Is left behind."""
        self._long("read")

    @writes
    def long_write(self) -> None:
        """Has its end."""
        self._long("write")

    @steps
    def take(self) -> Steps[str]:
        """Is given back."""
        yield write(self._long, "take", undo=lambda _: self.log.append("undone lease"))
        return "lease"

    @ends
    def close(self) -> None:
        """Begins, too."""
        self.note("close")

    @here(awaited=True)
    def start(self) -> None:
        """Starts."""
        self.note("start")

    @calls()
    @writes
    def tell(self, number: int) -> Any:
        """Tell the user's function."""
        assert self.found is not None
        return self.found(number)

    @quick
    def size(self, bytes: int) -> str:
        """Read so many bytes."""
        leave_loop(bytes)
        self.note("size")
        return f"{bytes}"

    @property
    def part(self) -> Part:
        """A part."""
        return Part("own")

    def parts(self) -> list[Part]:
        """Some."""
        return [Part("a"), Part("b")]

    @contextmanager
    def working(self) -> Iterator[Thing]:
        """A block."""
        self.note("begin")
        try:
            yield self
        except ValueError:
            self.note("wrong")
            raise
        self.note("end")

    @step_block
    def once(self) -> Blocks[int]:
        """A block that is entered once."""
        yield give(1)

    @steps
    def judged(self, function: Any) -> Steps[list[Any]]:
        """Work, a function of the user's, and work."""
        yield check(function, "the function")
        first = yield read(lambda: threading.current_thread().name)
        try:
            said = yield ask(function, Part("asked"), what="the function")
        except BaseException as error:
            yield end(self.log.append, f"undone: {type(error).__name__}")
            raise
        last = yield write(lambda: threading.current_thread().name)
        return [first, said, last]

    def _long(self, what: str) -> None:
        self.log.append(f"{what} begun")
        self.begun.set()
        assert self.go.wait(20)
        self.log.append(f"{what} done")


@writes
def rename(part: Part, name: str) -> Part:
    """Name a part anew."""
    part.name = name
    return part


AsyncThing, AsyncPart, async_rename = map(asynchronous, (Thing, Part, rename))


def test_it_looks_like_the_class_it_was_made_of() -> None:
    assert AsyncThing is asynchronous(Thing) is not Thing
    assert (AsyncThing.__name__, AsyncThing.__doc__) == ("Thing", "A thing.")
    assert AsyncThing.plain.__doc__ == "Is read away."
    assert inspect.signature(AsyncThing.plain) == inspect.signature(Thing.plain)
    assert inspect.signature(AsyncThing) == inspect.signature(Thing)
    assert inspect.iscoroutinefunction(AsyncThing.plain)
    assert not inspect.iscoroutinefunction(AsyncThing.note)
    thing = AsyncThing()
    assert (repr(thing), len(thing), thing.kind) == ("Thing()", 7, "thing")
    with pytest.raises(AttributeError, match="'Thing' object has no attribute '_hidden'"):
        _ = thing._hidden
    with pytest.raises(AttributeError):
        _ = thing.missing


def test_each_mark_runs_where_it_says() -> None:
    async def work() -> list[str]:
        async with AsyncThing() as thing:
            thing.note("note")
            assert await thing.plain(1, b=3) == 4
            await thing.start()
            await thing.close()
            async with thing.working() as same:
                assert same is thing
            with pytest.raises(ValueError, match="no"):
                async with thing.working():
                    raise ValueError("no")
        return list(thing.log)

    assert asyncio.run(work()) == [
        *("enter away", "note here", "plain away", "start here", "close away"),
        *("begin away", "end away", "begin away", "wrong away", "exit away"),
    ]


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("long_read", ["read begun"]),
        ("long_write", ["write begun", "write done"]),
        ("take", ["take begun", "take done", "undone lease"]),
    ],
)
def test_a_cancelled_call(name: str, log: list[str]) -> None:
    async def work() -> None:
        thing = AsyncThing()
        task = asyncio.create_task(getattr(thing, name)())
        await asyncio.to_thread(thing.begun.wait, 20)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        assert task.done() is (name == "long_read")
        seen = list(thing.log) if task.done() else None
        thing.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (seen or thing.log) == log

    asyncio.run(work())


def test_what_is_cancelled_before_it_begins() -> None:
    async def work() -> list[str]:
        from concurrent.futures import ThreadPoolExecutor

        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        busy, thing = AsyncThing(), AsyncThing()
        first = asyncio.create_task(busy.long_write())
        rest = [asyncio.create_task(call()) for call in (thing.plain, thing.take, thing.close)]
        await asyncio.sleep(0.05)
        for task in rest:
            task.cancel()
        await asyncio.sleep(0.01)
        busy.go.set()
        await first
        gone = await asyncio.gather(*rest, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in gone)
        return list(thing.log)

    assert asyncio.run(work()) == ["close away"]


def test_entering_is_undone_if_nobody_is_there_any_more() -> None:
    async def work() -> list[str]:
        thing = AsyncThing()
        entering = thing._blocking.__enter__

        def slow() -> Any:
            assert thing.go.wait(20)
            return entering()

        thing._blocking.__enter__ = slow
        task = asyncio.create_task(thing.__aenter__())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.01)
        thing.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(thing.log)

    assert asyncio.run(work()) == ["enter away", "exit away"]


def test_objects_of_one_face_stay_in_it() -> None:
    async def work() -> None:
        thing = AsyncThing()
        assert type(thing.part) is AsyncPart
        assert [(type(one), one.name) for one in await thing.parts()] == [
            (AsyncPart, "a"),
            (AsyncPart, "b"),
        ]
        part = AsyncPart("x")
        assert part.of(thing.part) == "x own"
        other = await async_rename(part, "y")
        assert (type(other), part.name) == (AsyncPart, "y")

    asyncio.run(work())


def test_functions_of_users_run_in_the_loop() -> None:
    async def found(number: int) -> str:
        assert threading.current_thread() is threading.main_thread()
        await asyncio.sleep(0)
        return f"told {number}"

    async def work() -> None:
        assert await AsyncThing(found=found).tell(5) == "told 5"
        assert await AsyncThing(found=lambda number: number + 1).tell(5) == 6
        with pytest.raises(InvalidInputError, match="found"):
            AsyncThing(found=3)

    asyncio.run(work())


def test_steps_lead_through_both_faces() -> None:
    async def judge(part: Any) -> str:
        assert type(part) is AsyncPart
        await asyncio.sleep(0)
        return str(part.name)

    async def wrong(_: Any) -> None:
        raise KeyError("no")

    async def work() -> None:
        thing = AsyncThing()
        first, said, last = await thing.judged(judge)
        assert said == "asked"
        assert "MainThread" not in (first, last)
        with pytest.raises(KeyError):
            await thing.judged(wrong)
        task = asyncio.create_task(thing.judged(lambda _: asyncio.sleep(60)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert thing.log == ["undone: KeyError", "undone: CancelledError"]

    asyncio.run(work())
    thing = Thing()
    assert thing.judged(lambda part: part.name) == ["MainThread", "asked", "MainThread"]
    with pytest.raises(InvalidInputError, match="the function"):
        thing.judged(judge)


@faced
class Blocky:
    """What has a block of steps."""

    @step_block
    def around(self, function: Any, log: list[str]) -> Blocks[Part]:
        """A block, before and behind which a function of the user's is called."""
        log.append((yield ask(function, "before")))
        try:
            yield give(Part("given"))
        except ValueError:
            log.append((yield ask(function, "swallowed")))
            return
        except BaseException as error:
            log.append((yield ask(function, type(error).__name__)))
            raise
        log.append((yield ask(function, "behind")))


def test_a_block_of_steps_on_both_faces() -> None:
    """What is around the block may ask functions of users, and see how the block ended."""

    async def later(word: str) -> str:
        await asyncio.sleep(0)
        return word

    async def main(log: list[str], error: BaseException | None) -> None:
        async with asynchronous(Blocky)().around(later, log) as part:
            assert type(part) is asynchronous(Part)
            if error is not None:
                raise error

    def plain(log: list[str], error: BaseException | None) -> None:
        with Blocky().around(str, log) as part:
            assert type(part) is Part
            if error is not None:
                raise error

    for run in (plain, lambda *given: asyncio.run(main(*given))):
        log: list[str] = []
        run(log, None)
        run(log, ValueError())
        for wrong in (KeyError, asyncio.CancelledError):
            with pytest.raises(wrong):
                run(log, wrong())
        ends_ = ["before", "KeyError", "before", "CancelledError"]
        assert log == ["before", "behind", "before", "swallowed", *ends_]
    around = Blocky().around(str, [])
    with around:
        pass
    with pytest.raises(InvalidInputError, match="entered once"), around:
        pass


def test_a_block_is_entered_once() -> None:
    async def work() -> None:
        once = AsyncThing().once()
        async with once as found:
            assert found == 1
        with pytest.raises(InvalidInputError, match="entered once"):
            async with once:
                pass

    asyncio.run(work())


def test_the_async_face_refuses_a_store_of_the_other() -> None:
    from holdfast.backup import Backups

    with (
        sync.open("memory:") as store,
        pytest.raises(InvalidInputError, match="Backups takes a store of holdfast, not one of"),
    ):
        Backups(store, "dir:x")  # type: ignore[arg-type]


def test_what_is_quick_leaves_the_loop_if_it_turns_out_long() -> None:
    async def work() -> list[str]:
        thing = AsyncThing()
        assert await thing.size(1) == "1"
        assert await thing.size(MUCH + 1) == f"{MUCH + 1}"
        return list(thing.log)

    assert asyncio.run(work()) == ["size here", "size away"]


@faced(by_hand=f"{__name__}:ByHand")
class Both:
    """Has an async class that is written by hand in parts."""

    def plain(self) -> str:
        """Made."""
        return "made"

    def hot(self) -> str:
        """What it says."""
        return "blocking"


class ByHand(made(Both)):  # type: ignore[misc]
    """The async one."""

    def __init__(self) -> None:
        self._blocking = Both()

    async def hot(self) -> str:
        return "by hand"


def test_a_class_by_hand_inherits_what_it_does_not_write() -> None:
    async def work() -> list[str]:
        both = ByHand()
        return [await both.plain(), await both.hot()]

    assert asyncio.run(work()) == ["made", "by hand"]
    assert ByHand.hot.__doc__ == Both.hot.__doc__ == "What it says."
    assert asynchronous(Both) is ByHand
