"""Tool calls without their results: found in every shape, repaired by one rule."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents.agent_keys import CONVERSATION
from holdfast.agents.tool_calls import (
    NOT_DONE,
    UNKNOWN,
    Answer,
    calls_of,
    completed,
    open_calls,
    unpaired,
)
from holdfast.errors import InvalidInputError
from holdfast.seal.subject_keys import ERASED
from holdfast.store.inner import own_change

USER = {"role": "user", "content": "go on"}


def openai(*ids: str) -> dict[str, Any]:
    function = {"name": "search", "arguments": '{"q": 1}'}
    calls = [{"id": id, "type": "function", "function": function} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def plain(*ids: str) -> dict[str, Any]:
    calls = [{"id": id, "name": "search", "arguments": {"q": 1}} for id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def langchain(*ids: str) -> dict[str, Any]:
    calls = [{"id": id, "name": "search", "args": {"q": 1}, "type": "tool_call"} for id in ids]
    return {"type": "ai", "data": {"content": "", "tool_calls": calls}}


def anthropic(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": id, "name": "search", "input": {"q": 1}} for id in ids]
    return {"role": "assistant", "content": [{"type": "text", "text": "hm"}, *blocks]}


def tool(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "found"}


def wrapped_tool(id: str) -> dict[str, Any]:
    return {"type": "tool", "data": {"content": "found", "tool_call_id": id}}


def tool_results(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": "found"} for id in ids]
    return {"role": "user", "content": blocks}


def answers(messages: list[Any], text: str = "?") -> list[Any]:
    return completed(messages, lambda call: Answer(text, True))


@pytest.mark.parametrize("asks", [openai, plain, langchain, anthropic])
def test_calls_are_understood_in_every_shape(asks: Any) -> None:
    found = calls_of(asks("a", "b"), 3)
    assert [(call.id, call.name, call.message) for call in found] == [
        ("a", "search", 3),
        ("b", "search", 3),
    ]
    assert found[0].arguments in ({"q": 1}, '{"q": 1}')


def test_what_each_shape_gets() -> None:
    assert answers([openai("a"), USER]) == [
        openai("a"),
        {"role": "tool", "tool_call_id": "a", "content": "?"},
        USER,
    ]
    status = {"name": "search", "status": "error"}
    body = {"type": "tool", "content": "?", "tool_call_id": "a", **status}
    assert answers([langchain("a")]) == [langchain("a"), {"type": "tool", "data": body}]
    block = {"type": "tool_result", "tool_use_id": "a", "content": "?", "is_error": True}
    assert answers([anthropic("a")]) == [anthropic("a"), {"role": "user", "content": [block]}]
    call = {"type": "function_call", "call_id": "a", "name": "search", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "?"}
    assert answers([call, USER]) == [call, output, USER]
    assert open_calls([call, output]) == []


def test_an_answer_stands_where_a_model_expects_it() -> None:
    """Behind the results of the same message that are there; with blocks, in one message."""
    missing = {"role": "tool", "tool_call_id": "b", "content": "?"}
    assert answers([openai("a", "b"), tool("a"), USER]) == [
        openai("a", "b"),
        tool("a"),
        missing,
        USER,
    ]
    block = {"type": "tool_result", "tool_use_id": "b", "content": "?", "is_error": True}
    [_, both] = answers([anthropic("a", "b"), tool_results("a")])
    assert both["content"] == [block, *tool_results("a")["content"]]
    [_, said] = answers([anthropic("b"), USER])
    assert said["content"] == [block, {"type": "text", "text": "go on"}]


def item(id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "search", "arguments": "{}"}


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "found"}


def test_an_id_that_is_used_again_is_another_call() -> None:
    missing = {"role": "tool", "tool_call_id": "a", "content": "?"}
    assert answers([openai("a"), USER, openai("a"), tool("a")]) == [
        openai("a"),
        missing,
        USER,
        openai("a"),
        tool("a"),
    ]
    assert answers([openai("a"), openai("a"), tool("a"), USER, openai("a")]) == [
        openai("a"),
        missing,
        openai("a"),
        tool("a"),
        USER,
        openai("a"),
        missing,
    ]
    twice = [openai("a"), tool("a"), USER, openai("a"), tool("a")]
    assert answers(twice) == twice


def test_items_stand_between_a_call_and_its_result() -> None:
    """The responses of OpenAI: all calls, what the model thinks of them, then all results."""
    thinks = {"type": "reasoning", "summary": []}
    says = {"type": "message", "role": "assistant", "content": "a moment"}
    whole = [USER, item("a"), thinks, item("b"), says, output("a"), output("b"), USER]
    assert answers(whole) == whole
    assert [call.id for call in open_calls([item("a"), item("a"), output("a")])] == ["a"]


def test_results_without_a_call_go() -> None:
    assert answers([tool("x"), USER, wrapped_tool("y")]) == [USER]
    assert answers([anthropic("a"), tool_results("a", "x"), tool_results("z")]) == [
        anthropic("a"),
        tool_results("a"),
    ]
    assert answers([openai("a"), tool("a"), tool("a")]) == [openai("a"), tool("a")], "twice"
    twice = [anthropic("a"), tool_results("a", "a")]
    assert answers(twice) == [anthropic("a"), tool_results("a")]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([openai, plain, langchain, anthropic]),
            st.lists(st.booleans(), max_size=4),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_every_call_is_answered_and_nothing_else_changes(turns: list[Any]) -> None:
    """Against a model: a conversation made whole, from which some results are then taken."""
    whole: list[Any] = []
    torn: list[Any] = []
    for number, (asks, kept, speaks) in enumerate(turns):
        ids = [f"{number}-{index}" for index in range(len(kept))]
        there = [id for id, keep in zip(ids, kept, strict=True) if keep]
        message = asks(*ids)
        torn.append(message)
        whole.append((message, ids))
        if asks is anthropic:
            torn += [tool_results(*there)] if there else []
        else:
            torn += [(wrapped_tool if asks is langchain else tool)(id) for id in there]
        torn += [{"role": "assistant", "content": f"said {number}"}] if speaks else []
    before = deepcopy(torn)
    made = answers(torn)
    assert torn == before
    assert unpaired(made) == ([], [])
    assert answers(made) == made, "once is enough"
    assert [m for m in made if calls_of(m)] == [m for m, ids in whole if ids]
    said = [m for m in torn if str(m.get("content")).startswith("said")]
    assert [m for m in made if str(m.get("content")).startswith("said")] == said


IDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3)
SHAPES = {
    "openai": (openai, lambda *ids: tool(ids[0])),
    "wrapped": (langchain, lambda *ids: wrapped_tool(ids[0])),
    "blocks": (anthropic, tool_results),
    "items": (lambda *ids: item(ids[0]), lambda *ids: output(ids[0])),
}


def texts(messages: list[Any]) -> list[str]:
    """What is said besides calls and results."""
    return [
        block["text"]
        for message in messages
        for block in message.get("content") or ()
        if isinstance(block, dict) and block["type"] == "text" and block["text"] != "hm"
    ]


@given(
    st.sampled_from(list(SHAPES)),
    st.lists(st.tuples(st.sampled_from(["asks", "answers", "says"]), IDS, st.booleans())),
)
def test_whatever_a_conversation_is_once_is_enough(shape: str, parts: list[Any]) -> None:
    messages: list[Any] = []
    for number, (kind, ids, speaks) in enumerate(parts):
        text = {"type": "text", "text": f"said {number}"}
        if kind == "says":
            messages.append({"role": "user" if speaks else "assistant", "content": [text]})
            continue
        messages.append(SHAPES[shape][kind == "answers"](*ids))
        if shape == "blocks" and kind == "answers" and speaks:
            messages[-1]["content"].append(text)
    made = answers(messages)
    assert unpaired(made) == ([], [])
    assert answers(made) == made
    assert texts(made) == texts(messages)


def talk(state: Any, messages: list[Any]) -> None:
    parts = own_change(state)
    parts.part(state._handle).set(CONVERSATION, messages)
    plan = parts.plan()
    assert plan is not None
    state._handle.core.run(plan[0])


class Killed(BaseException):
    """Stands for the end of a process."""


def test_the_rule(place: Place) -> None:
    """Done: its result. Unknown: that it is. Otherwise: that it was not carried out."""
    from holdfast.agents import effect_records

    state = place.open().agent("clerk")
    effects = sync.agents.Effects(state)
    talk(state, [USER, openai("done", "unknown", "planned", "never")])
    effects.call("search", lambda _: {"hits": 3}, id="done")
    with pytest.raises(Killed), effects.once("search", id="unknown") as effect:
        assert effect.due
        raise Killed
    effects.plan("search", id="planned")
    effect_records.running.clear()
    found = effects.orphans()
    assert [one.effect.status if one.effect else None for one in found] == [
        "done",
        "unknown",
        "planned",
        None,
    ]
    entry = state._handle.place()[2]
    repaired = effects.repair()
    assert [one.call.id for one in repaired.answered] == ["done", "unknown", "planned", "never"]
    assert state._handle.place()[2] == entry + 1
    tail = state.get(CONVERSATION)[2:]
    assert [one["content"] for one in tail] == ['{"hits": 3}', UNKNOWN, NOT_DONE, NOT_DONE]
    assert effects.repair().answered == ()
    assert state._handle.place()[2] == entry + 1, "nothing to repair, nothing written"
    assert [one.status for one in effects.unfinished()] == ["unknown", "planned"], "still listed"


def test_in_the_middle_and_under_another_key(place: Place) -> None:
    state = place.open().agent("clerk")
    state.set("talk", [openai("a"), USER, tool("lone")])
    state.set("other", "text")
    effects = sync.agents.Effects(state)
    with pytest.raises(InvalidInputError, match="no list of messages"):
        effects.orphans("other")
    done = effects.repair("talk")
    assert done.removed == ("lone",)
    assert [m["role"] for m in state.get("talk")] == ["assistant", "tool", "user"]


def test_a_result_in_a_wrong_place_is_not_thrown_away(place: Place) -> None:
    state = place.open().agent("clerk")
    effects = sync.agents.Effects(state)
    state.set("talk", [openai("a"), USER, tool("a")])
    with pytest.raises(InvalidInputError, match="move the result directly behind"):
        effects.repair("talk")
    assert state.get("talk") == [openai("a"), USER, tool("a")]


def test_objects_of_langchain(place: Place) -> None:
    """Found by their attributes; the answer is a mapping, as LangChain takes it."""
    messages = pytest.importorskip("langchain_core.messages")
    call = {"name": "search", "args": {}, "id": "a", "type": "tool_call"}
    asked = messages.AIMessage("", tool_calls=[call, {**call, "id": "b"}])
    made = answers([asked, messages.ToolMessage("found", tool_call_id="a")])
    read = messages.convert_to_messages(made)
    assert [type(one).__name__ for one in read] == ["AIMessage", "ToolMessage", "ToolMessage"]
    assert read[2].tool_call_id == "b"
    kept = messages.messages_to_dict([asked])
    back = messages.messages_from_dict(answers(kept))
    assert [one.type for one in back] == ["ai", "tool", "tool"]
    assert (back[1].tool_call_id, back[1].status) == ("a", "error")


def test_the_same_on_the_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("clerk")
            effects = holdfast.agents.Effects(state)
            assert await effects.orphans() == ()
            assert (await effects.repair()).answered == ()
            talk(state, [plain("a")])
            await effects.call("search", lambda _: "three hits", id="a")
            assert [one.call.id for one in await effects.orphans()] == ["a"]
            await effects.repair()
            assert (await state.get(CONVERSATION))[1]["content"] == "three hits"

    asyncio.run(main())


# what is sealed, sensitive or expires


def text(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_repair_leaves_sealed_messages_sealed(tmp_path: Path) -> None:
    """Behind them it adds its answers; where it would have to write them anew, it is refused."""
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state, effects = store.agent("7"), sync.agents.Effects(store.agent("7"))
    state.append("talk", text("my address"), subject="user:42")
    state.append("talk", openai("c1"))
    assert [one.call.id for one in effects.repair("talk").answered] == ["c1"]
    state.append("talk", openai("c2"))
    state.append("talk", text("my address"), subject="user:42")
    for key, whole in (("talk", None), ("whole", [openai("c1")])):
        if whole is not None:
            state.set(key, whole, subject="user:42")
        before = state.get(key)
        with pytest.raises(InvalidInputError, match="sealed for a subject"):
            effects.repair(key)
        assert state.get(key) == before
    store.erase_subject("user:42")
    assert [one is ERASED for one in state.get("talk")] == [True, False, False, False, True]
    place.close()


@pytest.mark.parametrize("behind", [[], [USER]])
def test_a_repair_keeps_class_and_expiry(store: sync.Store, behind: list[Any]) -> None:
    state = store.agent("7")
    state.set("talk", [openai("c1"), *behind], class_="sensitive", ttl=3600)
    expires = state.item("talk").expires
    assert len(sync.agents.Effects(state).repair("talk").answered) == 1
    assert state.item("talk").expires == expires is not None
    assert state._handle.reader.class_of("talk") == "sensitive"
