"""Functions as tools: `@effects.tool`, and what is mended after a crash."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.agents import Effects as AsyncEffects
from holdfast.errors import EffectUnknownError, InvalidInputError, InvalidValueError
from holdfast.sync.agents import Effects


def test_a_tool_is_not_done_twice_in_any_process(tmp_path: Any) -> None:
    sent: list[Any] = []
    for _ in range(2):  # as after a restart
        with sync.open(tmp_path / "a.db") as store:
            effects = Effects(store.agent("clerk"))

            @effects.tool
            def send(to: str, *more: str, text: str = "hello") -> str:
                """Send a mail."""
                sent.append((to, more, text))
                return f"receipt {len(sent)}"

            assert send("Ann", call_id="call_1") == "receipt 1"
            assert send("Ann", "Bob", text="hi") == "receipt 2"
            assert send("Ann", "Bob", text="hi") == "receipt 2"  # known by its arguments
            assert (send.__name__, send.__doc__) == ("send", "Send a mail.")
            assert list(inspect.signature(send).parameters) == ["to", "more", "text"]
            with pytest.raises(InvalidInputError, match="about something else"):
                send("Cid", call_id="call_1")
            with pytest.raises(TypeError):
                send()
            assert [one.status for one in effects.all()] == ["done", "done"]
    assert sent == [("Ann", (), "hello"), ("Ann", ("Bob",), "hi")]


def test_a_tool_of_no_arguments_and_one_that_takes_its_effect() -> None:
    with sync.open("memory:") as store:
        state = store.agent("clerk")
        effects, done = Effects(state), []

        @effects.tool(name="ring")
        def bell() -> int:
            done.append(1)
            return len(done)

        assert [bell(), bell(), bell(call_id="again")] == [1, 1, 2]

        @effects.tool(idempotent=True)
        def pay(amount: int, effect: Any) -> str:
            effect.set("balance", -amount)
            if effect.attempts == 1:
                raise TimeoutError
            return f"paid by {effect.key}"

        with pytest.raises(TimeoutError):
            pay(5, call_id="call_2")
        assert state.get("balance") is None
        assert pay(5, call_id="call_2") == "paid by call_2"
        assert state.get("balance") == -5
        assert list(inspect.signature(pay).parameters) == ["amount"]


def test_a_tool_whose_end_is_unknown_is_not_repeated() -> None:
    with sync.open("memory:") as store:
        effects = Effects(store.agent("clerk"))

        @effects.tool(harmless=(ConnectionRefusedError,))
        def send(error: str) -> None:
            raise {"refused": ConnectionRefusedError, "timeout": TimeoutError}[error]

        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                send("refused")
        with pytest.raises(TimeoutError):
            send("timeout")
        with pytest.raises(EffectUnknownError):
            send("timeout")
        with pytest.raises(InvalidValueError, match="tuple would not come back"):
            send(error=("a", "b"))  # before anything is begun
        assert len(effects.all()) == 2


def test_tools_of_the_async_face() -> None:
    done: list[str] = []

    async def main() -> None:
        async with holdfast.open("memory:") as store:
            effects = AsyncEffects(store.agent("clerk"))

            @effects.tool
            async def slow(word: str) -> str:
                await asyncio.sleep(0)
                done.append(word)
                return word.upper()

            @effects.tool(name="plain")
            def quick() -> str:
                done.append("quick")
                return "ok"

            assert inspect.iscoroutinefunction(slow)
            assert [await slow("a"), await slow("a"), await slow("b")] == ["A", "A", "B"]
            assert [await quick(), await quick()] == ["ok", "ok"]
            assert await effects.call("none", lambda: 7) == 7

    asyncio.run(main())
    assert done == ["a", "b", "quick"]
    with sync.open("memory:") as store:
        effects = Effects(store.agent("clerk"))

        async def never() -> None: ...

        with pytest.raises(InvalidInputError, match="async def"):
            effects.tool(never)


def test_a_function_of_no_argument_is_called_and_one_of_two_is_refused_before() -> None:
    with sync.open("memory:") as store:
        effects = Effects(store.agent("clerk"))
        assert effects.call("tick", lambda: 1) == 1
        with pytest.raises(TypeError, match="other"):
            effects.call("tock", lambda effect, other: 1)
        assert effects.get("tock") is None


def test_settle_writes_along_what_the_block_would_have_written() -> None:
    with sync.open("memory:") as store:
        state = store.agent("clerk")
        effects = Effects(state)
        with pytest.raises(TimeoutError), effects.once("pay", id="1") as effect:
            assert effect.due
            raise TimeoutError
        with pytest.raises(InvalidInputError), state.change() as change:
            change.set("balance", 0)
            effects.settle("pay", "done", id="1", into=change)
            raise InvalidInputError("not yet")
        assert effects.get("pay", id="1").status == "unknown"  # type: ignore[union-attr]
        with state.change() as change:
            change.set("balance", 37)
            effects.settle("pay", "done", id="1", result="paid", into=change)
        assert (state.get("balance"), effects.call("pay", lambda: "again", id="1")) == (37, "paid")
        assert set(state.log(limit=1)[0].keys) > {"balance"}
