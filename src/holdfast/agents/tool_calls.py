"""Tool calls in a conversation, in the shapes that models and frameworks give them.

A call and its result belong together by an id, in one of these shapes:

| shape | call | result |
| --- | --- | --- |
| openai | in `tool_calls`, with a `function` | a message with role `tool` and `tool_call_id` |
| plain | in `tool_calls`, with a `name` (LangChain, Holdfast) | the same, or with type `tool` |
| wrapped | the same below `data` (LangChain's `messages_to_dict`) | type `tool`, below `data` |
| blocks | a block `tool_use` (Anthropic) | a block `tool_result` in the next message |
| items | an item `function_call` with `call_id` (OpenAI's responses) | `function_call_output` |

Messages are mappings, or objects with the same names as attributes. Nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    id: str
    name: str
    arguments: Any
    message: int
    """The position of the message that asks for it."""
    shape: str


@dataclass(frozen=True)
class Answer:
    """What stands for the result of a call that has none."""

    text: str
    failed: bool


def calls_of(message: Any, position: int = 0) -> list[Call]:
    """The calls that a message asks for."""
    if _field(message, "type") == "function_call":
        id, name = _field(message, "call_id"), _field(message, "name")
        return [Call(id, name, _field(message, "arguments"), position, "items")]
    body = _body(message)
    shape = "plain" if body is message else "wrapped"
    found: dict[str, Call] = {}
    for call in _several(_field(body, "tool_calls")):
        function = _field(call, "function")
        if function is not None:
            name, arguments = _field(function, "name"), _field(function, "arguments")
        else:
            name, arguments = _field(call, "name"), _field(call, "args", _field(call, "arguments"))
        id = _field(call, "id")
        kind = "openai" if function is not None and shape == "plain" else shape
        found[id] = Call(id, name, arguments, position, kind)
    for block in _blocks(body, "tool_use"):
        id = _field(block, "id")
        if id not in found:  # LangChain gives the calls of Anthropic's models both ways
            name, arguments = _field(block, "name"), _field(block, "input")
            found[id] = Call(id, name, arguments, position, "blocks")
    return [call for call in found.values() if isinstance(call.id, str) and call.id]


def results_of(message: Any) -> list[str]:
    """The ids of the calls whose results a message holds."""
    if _field(message, "type") == "function_call_output":
        return _texts([_field(message, "call_id")])
    body = _body(message)
    return _texts(
        [_field(body, "tool_call_id")]
        + [_field(block, "tool_use_id") for block in _blocks(body, "tool_result")]
    )


def open_calls(messages: Sequence[Any]) -> list[Call]:
    """Calls that have no result behind them, in order."""
    waiting: dict[str, Call] = {}
    for position, message in enumerate(messages):
        for id in results_of(message):
            waiting.pop(id, None)
        for call in calls_of(message, position):
            waiting[call.id] = call
    return list(waiting.values())


def lone_results(messages: Sequence[Any]) -> list[tuple[int, str]]:
    """Results that have no call in front of them, or are a call's second: (position, id)."""
    called: set[str] = set()
    lone = []
    for position, message in enumerate(messages):
        for id in results_of(message):
            if id not in called:
                lone.append((position, id))
            called.discard(id)
        called.update(call.id for call in calls_of(message))
    return lone


def completed(messages: Sequence[Any], answers: Mapping[str, Answer]) -> list[Any]:
    """The conversation with an answer for each open call, and without results that have no call.

    An answer stands where a model expects it: behind the message with the call, and behind those
    results of the same message that are there. Every other message stays as it is.
    """
    lone: dict[int, set[str]] = {}
    for position, id in lone_results(messages):
        lone.setdefault(position, set()).add(id)
    asked: dict[int, list[Call]] = {}
    for call in open_calls(messages):
        asked.setdefault(call.message, []).append(call)
    made: list[Any] = []
    waiting: list[Call] = []
    for position, message in enumerate(messages):
        kept = _without(message, lone[position]) if position in lone else message
        if kept is None:
            continue
        # Blocks belong into one message, also with results that are there; others stand behind.
        inside = any(call.shape == "blocks" for call in waiting)
        if waiting and (inside or not results_of(kept)):
            kept = _answered(made, kept, waiting, answers)
            waiting = []
        made.append(kept)
        waiting += asked.get(position, [])
    if waiting:
        _answered(made, None, waiting, answers)
    return made


def _answered(
    made: list[Any], following: Any, waiting: list[Call], answers: Mapping[str, Answer]
) -> Any:
    """Add the answers of open calls; the message that follows, perhaps with answers in it."""
    made += [_result(call, answers[call.id]) for call in waiting if call.shape != "blocks"]
    blocks = [_block(call, answers[call.id]) for call in waiting if call.shape == "blocks"]
    if not blocks:
        return following
    if not isinstance(following, Mapping) or following.get("role") != "user":
        made.append({"role": "user", "content": blocks})
        return following
    content = following.get("content")
    rest = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    return {**following, "content": [*blocks, *rest]}


def _result(call: Call, answer: Answer) -> dict[str, Any]:
    if call.shape == "items":
        return {"type": "function_call_output", "call_id": call.id, "output": answer.text}
    if call.shape == "wrapped":
        status = "error" if answer.failed else "success"
        body = {"type": "tool", "content": answer.text, "tool_call_id": call.id, "name": call.name}
        return {"type": "tool", "data": {**body, "status": status}}
    return {"role": "tool", "tool_call_id": call.id, "content": answer.text}


def _block(call: Call, answer: Answer) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call.id, "content": answer.text}
    return {**block, "is_error": True} if answer.failed else block


def _without(message: Any, ids: set[str]) -> Any:
    """A message without some results; None if nothing else was in it."""
    body = _body(message)
    if not _blocks(body, "tool_result"):
        return None
    rest = [
        block
        for block in _field(body, "content")
        if _field(block, "type") != "tool_result" or _field(block, "tool_use_id") not in ids
    ]
    return {**message, "content": rest} if rest else None


def _body(message: Any) -> Any:
    """Where the fields of a message are."""
    inner = _field(message, "data")
    return inner if isinstance(inner, Mapping) and _field(message, "type") else message


def _blocks(body: Any, kind: str) -> list[Any]:
    return [block for block in _several(_field(body, "content")) if _field(block, "type") == kind]


def _several(found: Any) -> Sequence[Any]:
    return found if isinstance(found, list | tuple) else ()


def _field(thing: Any, name: str, default: Any = None) -> Any:
    if isinstance(thing, Mapping):
        return thing.get(name, default)
    return default if isinstance(thing, str) else getattr(thing, name, default)


def _texts(found: list[Any]) -> list[str]:
    return [one for one in found if isinstance(one, str) and one]
