"""Effects: what must not happen twice, through crashes, restores and second thoughts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place

import holdfast
from holdfast import Sticky, sync
from holdfast.agents.agent_keys import OPEN
from holdfast.errors import (
    Conflict,
    EffectResultLostError,
    EffectUnknownError,
    InvalidInputError,
    InvalidKeyError,
    InvalidValueError,
    MissingError,
    Unavailable,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


class Killed(BaseException):
    """Stands for the end of a process in the middle of a block."""


class Post:
    """A tool: what it was asked to send. With a key it sends once."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.answers: dict[str, str] = {}

    def send(self, text: str, key: str | None = None) -> str:
        if key is not None and key in self.answers:
            return self.answers[key]
        self.sent.append(text)
        answer = f"receipt {len(self.sent)}"
        if key is not None:
            self.answers[key] = answer
        return answer


@pytest.fixture
def post() -> Post:
    return Post()


def forget(place: Place, name: str = "clerk") -> tuple[sync.State, sync.agents.Effects]:
    """The agent as a new process finds it: nothing of it is at work."""
    from holdfast.agents import effect_records

    effect_records.running.clear()
    state = place.open().agent(name)
    return state, sync.agents.Effects(state)


def test_done_once_and_known_ever_after(place: Place, post: Post) -> None:
    state = place.open().agent("clerk")
    effects = sync.agents.Effects(state)
    assert state._handle.place()[2] == 0, "making it touches nothing"
    for _ in range(3):
        with effects.once("send", key="order-17", about={"to": "Ann"}) as effect:
            if effect.due:
                effect.result = post.send("hello", effect.key)
        assert effect.result == "receipt 1"
    assert post.sent == ["hello"]
    _, again = forget(place)
    with again.once("send", key="order-17") as effect:
        assert not effect.due
    assert effect.result == "receipt 1"
    found = again.get("send", key="order-17")
    assert found is not None
    assert (found.status, found.attempts, found.about) == ("done", 1, {"to": "Ann"})
    assert again.all() == [found]
    assert again.unfinished() == []
    assert place.open().verify().findings == []


def test_calling_a_function(place: Place, post: Post) -> None:
    effects = sync.agents.Effects(place.open().agent("clerk"))
    for _ in range(2):
        send = effects.call("send", lambda effect: post.send("hi", effect.key), key="k", id="1")
        assert send == "receipt 1"
    assert post.sent == ["hi"]
    for result in (0, "", False, None, [], b"\0", datetime(2026, 1, 1, tzinfo=UTC)):
        assert effects.call("odd", lambda _, r=result: r, id=repr(result)) == result
        kept = effects.call("odd", lambda _: "again", id=repr(result))
        assert (kept, type(kept)) == (result, type(result))


def test_killed_in_the_middle_with_a_key_it_is_repeated(place: Place, post: Post) -> None:
    _, effects = forget(place)
    with pytest.raises(Killed), effects.once("send", key="k") as effect:
        assert effect.due
        post.send("hello", effect.key)
        raise Killed
    _, again = forget(place)
    [found] = again.unfinished()
    assert (found.status, found.repeatable, found.error) == ("unknown", True, "Killed")
    with again.once("send", key="k") as effect:
        assert effect.due
        assert effect.attempts == 2
        effect.result = post.send("hello", effect.key)
    assert post.sent == ["hello"]
    assert again.unfinished() == []


def test_killed_in_the_middle_without_a_key_somebody_has_to_say(place: Place, post: Post) -> None:
    _, effects = forget(place)
    with pytest.raises(Killed), effects.once("send", id="call_1", about="to Ann") as effect:
        assert effect.due
        post.send("hello")
        raise Killed
    state, again = forget(place)
    for _ in range(2):
        with pytest.raises(EffectUnknownError, match="settle it") as caught:
            again.call("send", lambda _: post.send("hello"), id="call_1")
        assert caught.value.effect.about == "to Ann"
        assert not caught.value.effect.repeatable
    assert post.sent == ["hello"]
    entry = state._handle.place()[2]
    assert [one.status for one in again.unfinished()] == ["unknown"]
    assert state._handle.place()[2] == entry, "looking writes nothing"
    settled = again.settle("send", "done", id="call_1", result="receipt 1")
    assert (settled.status, settled.settled) == ("done", True)
    assert again.call("send", lambda _: post.send("hello"), id="call_1") == "receipt 1"
    assert post.sent == ["hello"]


@pytest.mark.parametrize("how", ["repeat", "drop"])
def test_settled_as_to_be_repeated_or_dropped(place: Place, post: Post, how: str) -> None:
    _, effects = forget(place)
    with pytest.raises(Killed), effects.once("send", id="1") as effect:
        assert effect.due
        raise Killed
    _, again = forget(place)
    again.settle("send", how, id="1")
    assert [one.status for one in again.unfinished()] == (["planned"] if how == "repeat" else [])
    assert again.call("send", lambda _: post.send("hello"), id="1") == "receipt 1"
    with pytest.raises(MissingError, match="unfinished\\(\\) lists them"):
        again.settle("send", how, id="1")


def test_planned_is_never_started(place: Place, post: Post) -> None:
    """Noted with the conversation in one change; whoever finds it may begin it, key or not."""
    state, effects = forget(place)
    with state.change() as change:
        change.append("talk", "please send it")
        effects.plan("send", id="call_1", about="hello", into=change)
    assert len(state.log()) == 1
    _, again = forget(place)
    [found] = again.unfinished()
    assert (found.status, found.repeatable, found.attempts) == ("planned", True, 0)
    assert again.plan("send", id="call_1").status == "planned", "planning again changes nothing"
    assert again.call("send", lambda _: post.send("hello"), id="call_1") == "receipt 1"
    assert again.plan("send", id="call_1").status == "done"


def test_a_restore_leaves_effects_alone(place: Place, post: Post) -> None:
    state = place.open().agent("clerk")
    effects = sync.agents.Effects(state)
    state.set("plan", "write")
    safe = state.checkpoint("before")
    effects.call("send", lambda _: post.send("hello"), id="1")
    state.set("plan", "wait")
    state.restore(safe)
    assert state.get("plan") == "write"
    assert Sticky("$effects/") in state.declared()
    assert effects.call("send", lambda _: post.send("hello"), id="1") == "receipt 1"
    assert post.sent == ["hello"]
    trial = sync.agents.Effects(state.fork("what-if"))
    assert [one.status for one in trial.all()] == ["done"], "a fork takes them along"


def test_an_undo_of_what_was_written_with_an_effect_leaves_it_done(place: Place) -> None:
    state, effects = forget(place)
    with effects.once("send", id="1") as effect:
        assert effect.due
        effect.result = "sent"
        effect.set("mailed", True)
    undone = state.undo()
    assert undone.done == ["mailed"]
    assert all("what happened in the world is not undone" in one.why for one in undone.left)
    assert not state.exists("mailed")
    with suppress(Killed), effects.once("send", id="2") as effect:
        assert effect.due
        raise Killed
    begun = state.log(limit=2)  # and given up, as one whose end is unknown
    assert state.revert(entries=begun).done == []
    assert [one.id for one in effects.unfinished()] == ["2"]
    assert effects.call("send", lambda _: pytest.fail("it is done again"), id="1") == "sent"
    with pytest.raises(EffectUnknownError):
        effects.call("send", lambda _: pytest.fail("it may have been done"), id="2")


def test_errors_say_whether_it_may_have_happened(place: Place, post: Post) -> None:
    _, effects = forget(place)

    def fail(error: type[Exception]) -> None:
        with (
            pytest.raises(error),
            effects.once("send", id=error.__name__, harmless=(ConnectionRefusedError,)) as effect,
        ):
            assert effect.due
            raise error("with a secret in it")

    fail(ConnectionRefusedError)
    fail(TimeoutError)
    found = {one.id: one for one in effects.unfinished()}
    assert found["ConnectionRefusedError"].status == "planned"
    assert found["TimeoutError"].status == "unknown"
    assert found["TimeoutError"].error == "TimeoutError"
    assert "secret" not in repr(found)
    assert effects.call("send", lambda _: post.send("x"), id="ConnectionRefusedError")
    with pytest.raises(EffectUnknownError):
        effects.call("send", lambda _: post.send("x"), id="TimeoutError")


def test_an_iterator_that_is_at_its_end_is_a_harmless_error_like_any_other(place: Place) -> None:
    """Generators and coroutines make a RuntimeError of it, and those of effects must not."""

    def empty(*_: Any) -> Any:
        return next(iter([]))

    harmless = (StopIteration,)
    effects = sync.agents.Effects(place.open().agent("clerk"))
    with pytest.raises(StopIteration), effects.once("once", harmless=harmless) as effect:
        assert effect.due
        empty()
    with pytest.raises(RuntimeError):
        effects.call("call", empty, harmless=harmless)
    with pytest.raises(RuntimeError):
        effects.tool(empty, name="tool", harmless=harmless)()

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            effects = holdfast.agents.Effects(store.agent("clerk"))
            with pytest.raises(StopIteration):
                async with effects.once("async once", harmless=harmless) as effect:
                    assert effect.due
                    empty()
            with pytest.raises(RuntimeError):
                await effects.call("async call", empty, harmless=harmless)
            with pytest.raises(RuntimeError):
                await effects.tool(empty, name="async tool", harmless=harmless)()

    asyncio.run(main())
    found = {one.name: one.status for one in effects.unfinished()}
    names = ("once", "call", "tool", "async once", "async call", "async tool")
    assert found == dict.fromkeys(names, "planned")


def test_a_harmless_error_says_nothing_of_attempts_before(place: Place, post: Post) -> None:
    state, effects = forget(place)

    def fail(error: type[BaseException]) -> str:
        harmless = (ConnectionRefusedError,)
        with pytest.raises(error), effects.once("send", key="1", harmless=harmless) as effect:
            assert effect.due
            raise error
        found = effects.get("send", key="1")
        assert found is not None
        return found.status

    assert fail(ConnectionRefusedError) == "planned"
    assert fail(KeyboardInterrupt) == "unknown"
    assert [fail(ConnectionRefusedError) for _ in range(2)] == ["unknown", "unknown"]
    call = {"id": "1", "type": "function", "function": {"name": "send", "arguments": "{}"}}
    state.append("talk", {"role": "assistant", "content": None, "tool_calls": [call]})
    [orphan] = effects.orphans("talk")
    assert "not carried out" not in orphan.answer.text
    assert effects.settle("send", "repeat", key="1").status == "planned", "somebody knows better"
    assert fail(ConnectionRefusedError) == "planned"
    assert effects.call("send", lambda _: post.send("x"), key="1")


def test_what_is_written_with_the_result(place: Place, post: Post) -> None:
    state, effects = forget(place)
    state.set("draft", "hello")
    with effects.once("send", id="1") as effect:
        if effect.due:
            effect.result = post.send("hello")
            effect.append("talk", {"role": "tool", "content": effect.result})
            effect.extend("log", ["a", "b"])
            effect.set("plan", "wait")
            effect.delete("draft")
    assert state.items() == [
        ("log", ["a", "b"]),
        ("plan", "wait"),
        ("talk", [{"role": "tool", "content": "receipt 1"}]),
    ]
    assert len(state.log()) == 3, "the draft, the intent, and one entry for all of this"
    with effects.once("send", id="1") as effect, pytest.raises(InvalidInputError, match="is done"):
        assert not effect.due
        effect.append("talk", "again")


def test_what_happened_is_recorded_even_if_its_result_cannot_be(place: Place, post: Post) -> None:
    state, effects = forget(place)
    with pytest.raises(InvalidValueError) as caught, effects.once("send", id="1") as effect:
        if effect.due:
            effect.result = {post.send("hello")}
    assert "recorded as done, without its result" in caught.value.__notes__[-1]
    with pytest.raises(InvalidValueError) as caught, effects.once("send", id="2") as effect:
        if effect.due:
            effect.result = post.send("hello")
            effect.set("k", {1, 2})
    assert "what was to be written with it is not" in caught.value.__notes__[-1]
    first, second = effects.all()
    assert (first.status, first.result, first.result_lost) == ("done", None, True)
    assert (second.status, second.result, second.result_lost) == ("done", "receipt 2", False)
    assert state.keys() == []
    assert effects.unfinished() == []


def test_a_result_that_is_lost_is_not_taken_for_none(place: Place) -> None:
    state, effects = forget(place)
    with pytest.raises(InvalidValueError):
        effects.call("send", lambda effect: {1, 2}, id="1")
    with pytest.raises(EffectResultLostError, match="settle the effect as done"):
        effects.call("send", lambda effect: "again", id="1")
    with effects.once("send", id="1") as effect:
        assert (effect.due, effect.result_lost) == (False, True)
    call = {"id": "1", "type": "function", "function": {"name": "send", "arguments": "{}"}}
    state.append("talk", {"role": "assistant", "content": None, "tool_calls": [call]})
    [orphan] = effects.orphans("talk")
    assert "not known any more" in orphan.answer.text
    effects.settle("send", "done", id="1", result=[1, 2])
    assert effects.call("send", lambda effect: "again", id="1") == [1, 2]
    with pytest.raises(MissingError):
        effects.settle("send", "done", id="1", result="other")


def test_what_an_effect_is_about_is_compared_as_it_is_stored(place: Place) -> None:
    _, effects = forget(place)

    def send(about: Any, kill: bool = False) -> Any:
        with effects.once("send", key="order-17", about=about) as effect:
            if effect.due and kill:
                raise Killed
            if effect.due:
                effect.result = effect.attempts
        return effect.result

    with pytest.raises(Killed):
        send({"score": float("nan"), "urgent": True}, kill=True)
    for other in ({"score": 0.5, "urgent": True}, {"score": float("nan"), "urgent": 1}):
        with pytest.raises(InvalidInputError, match="about something else"):
            send(other)
    assert send({"score": float("nan"), "urgent": True}) == 2


def test_a_block_that_does_not_ask_is_refused_the_first_time(place: Place, post: Post) -> None:
    _, effects = forget(place)
    with pytest.raises(InvalidInputError, match="would do it twice"), effects.once("send", id="1"):
        post.send("hello")
    assert [one.status for one in effects.all()] == ["done"]


def test_what_is_noted_after_the_block_is_refused(place: Place, post: Post) -> None:
    state = place.open().agent("7")
    with sync.agents.Effects(state).once("mail", id="1") as effect:
        if effect.due:
            effect.result = 1
    late: list[Any] = [
        lambda: effect.set("k", 1),
        lambda: effect.append("k", 1),
        lambda: effect.extend("k", [1]),
        lambda: effect.delete("k"),
        lambda: setattr(effect, "result", 2),
    ]
    for note in late:
        with pytest.raises(InvalidInputError, match="is over"):
            note()
    assert effect.result == 1, "what came of it can be read"


def test_two_at_once(place: Place, post: Post) -> None:
    """In one process the second waits for nothing and does nothing; in two, a key repeats."""
    _, effects = forget(place)
    with effects.once("send", key="k") as effect:
        assert effect.due
        assert [one.status for one in effects.unfinished()] == ["running"]
        with pytest.raises(EffectUnknownError, match="just now"):
            effects.call("send", lambda _: post.send("x"), key="k")
        with pytest.raises(InvalidInputError, match="just now"):
            effects.settle("send", "drop", key="k")
        _, other = forget(place)  # another process, that knows of nothing at work
        assert other.call("send", lambda e: post.send("x", e.key), key="k") == "receipt 1"
        effect.result = post.send("x", effect.key)
    assert effect.result == "receipt 1"
    assert post.sent == ["x"]
    [found] = effects.all()
    assert (found.status, found.strays) == ("done", 0)


def test_one_that_ends_after_it_was_given_up(place: Place, post: Post) -> None:
    """Without a key, and settled by mistake: it happened twice, and that is not hidden."""
    _, effects = forget(place)
    with pytest.raises(Conflict, match="strays"), effects.once("send", id="1") as effect:
        assert effect.due
        _, other = forget(place)
        other.settle("send", "repeat", id="1")
        assert other.call("send", lambda _: post.send("x"), id="1") == "receipt 1"
        effect.result = post.send("x")
    [found] = effects.all()
    assert (found.strays, found.result) == (1, "receipt 1")


def test_an_end_that_cannot_be_recorded_is_said_to_be_unknown(plain: Place, post: Post) -> None:
    faulty = Faulty(plain.storage())
    store = sync.Store(StoreHandle(open_core(plain.url, storage=faulty, **plain.options())))
    effects = sync.agents.Effects(store.agent("clerk"))
    with pytest.raises(Unavailable) as caught, effects.once("send", id="1") as effect:
        assert effect.due
        faulty.plan = (Fault("commit", faulty.calls["commit"] + 1, onward=True),)
        effect.result = post.send("x")
    assert "its end is unknown now" in caught.value.__notes__[-1]
    faulty.plan = ()
    assert [one.status for one in effects.unfinished()] == ["unknown"]


def test_storage_that_fails_at_any_call(place: Place) -> None:
    """Whatever call fails: never a second time without a key, never an unknown end unreported."""
    for nth in range(1, 40):
        post = Post()
        name = f"clerk-{nth}"
        faulty = Faulty(place.storage())
        store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
        faulty.plan = (Fault("*", faulty.calls["*"] + nth),)
        with suppress(Unavailable):
            sync.agents.Effects(store.agent(name)).call(
                "send", lambda _, p=post: p.send("x"), id="1"
            )
        hit = bool(faulty.failed)
        store.close()
        _, again = forget(place, name)
        try:
            again.call("send", lambda _, p=post: p.send("x"), id="1")
        except EffectUnknownError as error:
            assert error.effect == again.unfinished()[0]
        assert len(post.sent) <= 1
        assert len(post.sent) == 1 or again.unfinished()
        assert not any(one.result_lost for one in again.all()), "storage failed but once"
        if not hit:
            return
    raise AssertionError("there are more calls than were tried")


def test_kept_for_a_time(timed: sync.Store, hands: Hands, post: Post) -> None:
    effects = sync.agents.Effects(timed.agent("clerk"), keep=3600)
    effects.call("send", lambda _: post.send("x"), key="k")
    hands.move(3599)
    effects.call("send", lambda _: post.send("x"), key="k")
    assert post.sent == ["x"]
    hands.move(2)
    assert effects.all() == []
    effects.call("send", lambda _: post.send("x"), key="k2")
    assert [one.started_at for one in effects.all()] == [hands.time(3601)]


def test_any_name_and_id_is_told_from_any_other(place: Place) -> None:
    state, effects = forget(place)
    names = ["a", "a/b", "a/../b", "..", "%", "a%2Fb", "é", " ", "$x", "__", "x" * 128]
    for name in names:
        for id in [None, "1", "a/b", "../..", "\n", "日本", "y" * 100]:
            assert effects.call(name, lambda _, told=[name, id]: told, id=id) == [name, id]
    assert len(effects.all()) == len(names) * 7
    assert all(key.startswith("$effects/done/") for key in state.keys("$effects/"))
    with pytest.raises(InvalidKeyError):
        state.set(OPEN + "x", 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": 1},
        {"name": "x" * 129},
        {"id": ""},
        {"id": 5},
        {"id": "日" * 201},
        {"key": b"k"},
        {"key": "k" * 201},
        {"harmless": ("TimeoutError",)},
    ],
)
def test_slips(store: sync.Store, wrong: dict[str, Any]) -> None:
    effects = sync.agents.Effects(store.agent("clerk"))
    with pytest.raises(InvalidInputError), effects.once(**{"name": "send", **wrong}):
        pytest.fail("it was begun")
    assert store.agent("clerk")._handle.place()[2] == 0


def test_slips_in_what_is_asked(store: sync.Store) -> None:
    effects = sync.agents.Effects(store.agent("clerk"))
    effects.call("send", lambda _: None, id="1", key="k", about={"to": "Ann"})
    for wrong in ({"key": "other"}, {}, {"key": "k", "about": {"to": "Bob"}}):
        with pytest.raises(InvalidInputError, match="was begun"):
            effects.once("send", id="1", **wrong).__enter__()
    effects.plan("send", id="2")
    for how, more in (("undo", {}), ("repeat", {"result": 1})):
        with pytest.raises(InvalidInputError):
            effects.settle("send", how, id="2", **more)
    with pytest.raises(InvalidInputError):
        effects.plan("send", id="3", into=store.agent("clerk"))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="not of another"), store.change() as change:
        effects.plan("send", id="3", into=change["agent:other"])
    with pytest.raises(InvalidInputError):
        effects.call("send", None, id="4")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"holdfast\.sync"):
        holdfast.agents.Effects(store.agent("clerk"))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="holdfast has its own"):
        sync.agents.Effects("clerk")  # type: ignore[arg-type]
    block = effects.once("send", id="5")
    with block as effect:
        assert effect.due
    with pytest.raises(InvalidInputError, match="entered once"):
        block.__enter__()


def test_the_same_on_the_async_face(place: Place, post: Post) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("clerk")
            effects = holdfast.agents.Effects(state)
            async with state.change() as change:
                change.append("talk", "please")
                await effects.plan("send", id="0", into=change)
            assert (await effects.plan("send", id="0")).status == "planned"

            async def send(effect: Any) -> str:
                await asyncio.sleep(0)
                return post.send("x", effect.key)

            for function in (send, send, lambda effect: post.send("x", effect.key)):
                assert await effects.call("send", function, key="k") == "receipt 1"
            with pytest.raises(Killed):
                async with effects.once("send", id="1") as effect:
                    assert effect.due
                    raise Killed
            with pytest.raises(EffectUnknownError):
                await effects.call("send", send, id="1")
            found = await effects.unfinished()
            assert [one.status for one in found] == ["planned", "unknown"]
            await effects.settle("send", "done", id="1", result="by hand")
            known = await effects.get("send", id="1")
            assert known is not None
            assert known.result == "by hand"
            assert len(await effects.all()) == 3
            with pytest.raises(InvalidInputError):
                await effects.plan("send", into="no")  # type: ignore[arg-type]

    asyncio.run(main())


def test_cancelled_before_it_could_begin_it_was_never_begun(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            effects = holdfast.agents.Effects(store.agent("clerk"))
            await effects.plan("send", id="planned")
            begun = asyncio.Event()

            async def work(id: str) -> None:
                async with effects.once("send", id=id) as effect:
                    assert effect.due
                    begun.set()
                    await asyncio.sleep(60)

            for id in ("planned", "new"):
                task = asyncio.create_task(work(id))
                await asyncio.sleep(0)
                task.cancel()  # while the intent is being written
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert [one.status for one in await effects.unfinished()] == ["planned"]
            task = asyncio.create_task(work("new"))
            await begun.wait()
            task.cancel()  # in the middle
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [one.status for one in await effects.unfinished()] == ["planned", "unknown"]

    asyncio.run(main())


def test_what_a_block_writes_is_not_dropped_if_somebody_says_that_it_is_done(place: Place) -> None:
    """Then who does it is told, as without a key."""
    state = place.open().agent("7")
    effects = sync.agents.Effects(state)
    with (
        pytest.raises(Conflict, match="what was to be written with it is not"),
        effects.once("pay", key="k") as effect,
    ):
        assert effect.due
        forget(place, "7")[1].settle("pay", "done", key="k", result="by hand")
        effect.result = "mine"
        effect.set("balance", 37)
    assert not state.exists("balance")
    assert effects.call("pay", lambda effect: "again", key="k") == "by hand"
    with effects.once("pay", key="k2") as effect:
        assert effect.due
        forget(place, "7")[1].settle("pay", "done", key="k2", result="by hand")
    assert effects.get("pay", key="k2").result == "by hand", "there was nothing to write"
    with effects.once("pay", key="k3") as effect:
        assert effect.due
        effect.append("talk", "paid")
        with forget(place, "7")[1].once("pay", key="k3") as faster:
            assert faster.due
            faster.append("talk", "paid")
    assert state.get("talk") == ["paid"], "once, by the attempt that was faster"


def test_a_change_of_another_store_is_not_planned_into(tmp_path: Path) -> None:
    stores = [sync.open(f"sqlite:{tmp_path}/{name}.db") for name in "ab"]
    effects = sync.agents.Effects(stores[0].agent("7"))
    with (
        pytest.raises(InvalidInputError, match="of another store"),
        stores[1].agent("7").change() as change,
    ):
        effects.plan("mail", id="1", into=change)
    assert [sync.agents.Effects(store.agent("7")).all() for store in stores] == [[], []]
    for store in stores:
        store.close()


@pytest.mark.parametrize("character", ["x", "я", "日", "😀", "%"])
def test_names_and_ids_are_as_long_as_promised_in_any_script(
    store: sync.Store, character: str
) -> None:
    state = store.agent("7")
    effects = sync.agents.Effects(state)
    name, id = character * 128, character * 200
    for length in (60, 199, 200):
        assert effects.call(name, lambda effect, n=length: n, id=id[:length]) == length
        assert effects.call(name, lambda effect: "again", id=id[:length]) == length
    assert effects.call(name, lambda effect: "by name") == "by name"
    assert effects.call(name[:-1], lambda effect: "another", id=id) == "another"
    found = {(one.name, len(one.id)) for one in effects.all()}
    assert found == {(name, 0), (name, 60), (name, 199), (name, 200), (name[:-1], 200)}
    state.append("talk", {"role": "assistant", "tool_calls": [{"id": id, "name": name}]})
    [orphan] = effects.orphans("talk")
    assert orphan.effect is not None
    assert orphan.effect.result == 200


def test_a_restore_to_a_point_of_a_fork_that_is_refused_writes_nothing(
    store: sync.Store,
) -> None:
    """Neither what the fork did: the same call, put right, finds the timeline as it was."""
    state = store.agent("7")
    state.set("plan", 1)
    fork, sent = state.fork("trial"), list[str]()
    sync.agents.Effects(fork).call("mail", lambda effect: sent.append("fork"), id="1")
    point, head = fork.checkpoint(), state.log(limit=1)[0].sequence
    with pytest.raises(InvalidInputError, match="references"):
        state.restore(point, verify="ful", if_head=head)
    assert state.log(limit=1)[0].sequence == head
    state.restore(point, if_head=head)
    sync.agents.Effects(state).call("mail", lambda effect: sent.append("again"), id="1")
    assert sent == ["fork"]


def done_on(fork: sync.State, sent: list[str]) -> None:
    """On the fork: one effect is done, one planned before is done, one has an unknown end."""
    effects = sync.agents.Effects(fork)
    effects.call("mail", lambda effect: sent.append("fork"), id="1")
    effects.call("planned", lambda effect: sent.append("planned"), id="2")
    with suppress(Killed), effects.once("print", id="3") as effect:
        if effect.due:
            raise Killed
    fork.set("mailed", True)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("way", ["adopt", "checkpoint", "chosen", "merge"])
def test_what_was_done_on_a_fork_is_not_done_again_where_its_state_is_taken_over(
    place: Place, way: str, early: bool
) -> None:
    """Nor after going back to before that."""
    state, sent = place.open().agent("7"), list[str]()
    effects = sync.agents.Effects(state)
    state.set("x", 1)
    if early:  # else this timeline has no effects of its own
        effects.call("warm", lambda effect: "here", id="0")
        effects.plan("planned", id="2")
    before, fork = state.checkpoint(), state.fork("trial")
    done_on(fork, sent)
    if early:
        sync.agents.Effects(fork).call("both", lambda effect: "there", id="4")
        effects.call("both", lambda effect: "here", id="4")
    head = state._handle.place()[2]
    if way == "adopt":
        state.adopt("trial")
    elif way == "checkpoint":
        state.restore(fork.checkpoint(), if_head=head)
    elif way == "chosen":
        sync.checkpoints.Checkpoints(state).restore(fork.checkpoint().id)
    else:
        assert not state.merge("trial", strategy="ours", dry_run=True).conflicts
        state.merge("trial")
    assert state.get("mailed")
    for _ in range(2):
        state, effects = forget(place, "7")
        effects.call("mail", lambda effect: sent.append("again"), id="1")
        effects.call("planned", lambda effect: sent.append("again"), id="2")
        with pytest.raises(EffectUnknownError):
            effects.call("print", lambda effect: sent.append("again"), id="3")
        assert sent == ["fork", "planned"]
        assert [str(one) for one in effects.unfinished()] == ["print 3"]
        if early:
            assert effects.call("both", lambda effect: "again", id="4") == "here"
        state.restore(before)
    assert state.get("x") == 1
    assert not state.exists("mailed")


def test_a_restore_with_a_head_that_others_moved_takes_no_effects_over(store: sync.Store) -> None:
    state = store.agent("7")
    head = state.set("x", 1)
    fork = state.fork("trial")
    sync.agents.Effects(fork).call("mail", lambda effect: 1, id="1")
    state.set("x", 2)
    with pytest.raises(Conflict):
        state.restore(fork.checkpoint(), if_head=head)
    assert sync.agents.Effects(state).all() == []


def test_a_fork_that_is_left_alone_takes_nothing_from_here(store: sync.Store) -> None:
    state, sent = store.agent("7"), list[str]()
    state.set("x", 1)
    fork = state.fork("trial")
    for one in (fork, state):
        sync.agents.Effects(one).call("mail", lambda effect: sent.append("sent"), id="1")
    assert sent == ["sent", "sent"], "each timeline does its own"
