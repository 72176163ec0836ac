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

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agents.effect_records import Asked, Effect, EffectBook
from holdfast.errors import InvalidInputError
from holdfast.seal.codec import Typed
from holdfast.store.inner import (
    KEEP,
    ChangeParts,
    Operation,
    exact,
    handle_of,
    has_sealed,
    json_values,
    own_step,
)


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
    body = _body(message)
    found = [_field(body, "tool_call_id")]
    found += [_field(block, "tool_use_id") for block in _blocks(body, "tool_result")]
    if _field(message, "type") == "function_call_output":
        found = [_field(message, "call_id")]
    return [one for one in found if isinstance(one, str) and one]


def unpaired(messages: Sequence[Any]) -> tuple[list[Call], list[tuple[int, str]]]:
    """Calls without a result directly behind them, in order; and results without a call there.

    Such a result has no call in front of it, is a call's second, or stands behind something else
    that was said: (position, id). An id may be used again; each call has its own result.
    """
    waiting: dict[str, Call] = {}
    opened: list[Call] = []
    lone: list[tuple[int, str]] = []
    for position, message in enumerate(messages):
        results, calls = results_of(message), calls_of(message, position)
        ended: list[Call] = []
        if not results or _besides(message, results):
            fit = not waiting.keys().isdisjoint(results)
            others = [one for one in waiting.values() if one.id not in results]
            ended = [one for one in others if _ends(message, one, fit)]
        for id in [*results, *(one.id for one in ended), *(one.id for one in calls)]:
            call = waiting.pop(id, None)
            if call is not None and id not in results:
                opened.append(call)
            elif call is None and id in results:
                lone.append((position, id))
        waiting |= {call.id: call for call in calls}
    return sorted([*opened, *waiting.values()], key=lambda call: call.message), lone


def _ends(message: Any, call: Call, fit: bool) -> bool:
    """Whether no result of a call is expected any more behind a message that says something else,
    perhaps behind results, which may `fit` other calls.

    Among OpenAI's items other calls and what the model thinks may stand in between. Blocks with
    results stand in front of all that is said.
    """
    if call.shape == "items":
        return bool(_field(message, "role", "assistant") != "assistant")
    return call.shape == "blocks" or not fit


def open_calls(messages: Sequence[Any]) -> list[Call]:
    """Calls that have no result directly behind them, in order."""
    return unpaired(messages)[0]


def completed(messages: Sequence[Any], answer: Callable[[Call], Answer]) -> list[Any]:
    """The conversation with an answer for each open call, and without results that have no call.

    An answer stands where a model expects it: behind the message with the call, and behind those
    results of the same message that are there. Every other message stays as it is.
    """
    lone: dict[int, list[str]] = {}
    opened, without = unpaired(messages)
    for position, id in without:
        lone.setdefault(position, []).append(id)
    asked: dict[int, list[Call]] = {}
    for one in opened:
        asked.setdefault(one.message, []).append(one)
    made: list[Any] = []
    waiting: list[Call] = []
    for position, message in enumerate(messages):
        kept = message
        if position in lone:
            rest = _besides(message, lone[position])
            if not rest:
                continue  # nothing else was in it
            kept = {**message, "content": rest}
        # Blocks belong into one message, also with results that are there; others stand behind.
        inside = any(one.shape == "blocks" for one in waiting)
        if waiting and (inside or not results_of(kept)):
            kept = _answered(made, kept, waiting, answer)
            waiting = []
        made.append(kept)
        waiting += asked.get(position, [])
    if waiting:
        _answered(made, None, waiting, answer)
    return made


def _answered(
    made: list[Any], following: Any, waiting: list[Call], answer: Callable[[Call], Answer]
) -> Any:
    """Add the answers of open calls; the message that follows, perhaps with answers in it."""
    blocks: list[Any] = []
    for one in waiting:
        (blocks if one.shape == "blocks" else made).append(_result(one, answer(one)))
    if not blocks:
        return following
    if not isinstance(following, Mapping) or following.get("role") != "user":
        made.append({"role": "user", "content": blocks})
        return following
    content = following.get("content")
    rest = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    return {**following, "content": [*blocks, *rest]}


def _result(call: Call, answer: Answer) -> dict[str, Any]:
    if call.shape == "blocks":
        block = {"type": "tool_result", "tool_use_id": call.id, "content": answer.text}
        return {**block, "is_error": True} if answer.failed else block
    if call.shape == "items":
        return {"type": "function_call_output", "call_id": call.id, "output": answer.text}
    if call.shape == "wrapped":
        status = "error" if answer.failed else "success"
        body = {"type": "tool", "content": answer.text, "tool_call_id": call.id, "name": call.name}
        return {"type": "tool", "data": {**body, "status": status}}
    return {"role": "tool", "tool_call_id": call.id, "content": answer.text}


def _besides(message: Any, ids: Iterable[str]) -> list[Any]:
    """What a message with results says besides some of them.

    Of an id that is named once, and stands there twice, the last one is left out.
    """
    body = _body(message)
    if not _blocks(body, "tool_result"):
        return []
    gone = Counter(ids)
    rest = []
    for block in reversed(_field(body, "content")):
        id = _field(block, "tool_use_id") if _field(block, "type") == "tool_result" else None
        if isinstance(id, str) and gone[id]:
            gone[id] -= 1
        else:
            rest.append(block)
    return rest[::-1]


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


# ---- tool call repair ---------------------------------------------------------------------------
# Repairing a conversation that a crash left with tool calls and without their results.


UNKNOWN = (
    "The outcome of this call is unknown: it was begun, and the agent stopped before it ended. "
    "It may have happened; find out before calling again."
)
NOT_DONE = "This call was not carried out: the agent stopped before it was begun."

LOST = "This call was carried out, and its result is not known any more. Do not call again."


@dataclass(frozen=True)
class Orphan:
    """A tool call that has no result."""

    call: Call
    effect: Effect | None
    """What is known of it; None if it was never planned or begun under `once`."""

    @property
    def answer(self) -> Answer:
        """The rule: what is known to have come of it, or what is known of it."""
        status = self.effect.status if self.effect is not None else "planned"
        if status == "done":
            assert self.effect is not None
            if self.effect.result_lost:
                return Answer(LOST, True)
            result = self.effect.result
            return Answer(result if isinstance(result, str) else json_values.dumps(result), False)
        return Answer(NOT_DONE if status == "planned" else UNKNOWN, True)


@dataclass(frozen=True)
class Repaired:
    """What a repair did."""

    answered: tuple[Orphan, ...]
    """Calls that have a result now, directly behind them."""
    removed: tuple[str, ...]
    """The ids of results that had no call, and are gone."""


def orphans(state: Any, book: EffectBook, key: str) -> tuple[Orphan, ...]:
    """Tool calls without a result, with what is known of their effects."""
    return _orphans(book, _listed(state, key, handle_of(state).reader.get(key)))[0]


def repair(state: Any, book: EffectBook, key: str) -> Repaired:
    """Give every call its result, in one change that rests on the conversation it has read."""

    def note(parts: ChangeParts) -> Repaired:
        part = parts.part(handle_of(state))
        messages = _listed(state, key, part.get(key))
        found, lone = _orphans(book, messages)
        if late := {one.call.id for one in found}.intersection(lone):  # it would be thrown away
            raise InvalidInputError(
                f"{state.scope}: in {key!r} something stands between the tool call {min(late)!r} "
                "and its result: move the result directly behind its call, then repair"
            )
        stored = exact(part, key)
        if stored is None or not (found or lone):
            return Repaired(found, lone)
        answers = {(one.call.message, one.call.id): one.answer for one in found}
        made = completed(messages, lambda call: answers[call.message, call.id])
        if made[: len(messages)] == messages and type(stored.value) is not Typed:
            part.extend(key, made[len(messages) :])
        elif has_sealed(stored.value):  # what stays would be written open
            raise InvalidInputError(
                f"{state.scope}: messages of {key!r} are sealed for a subject, and the repair "
                "would have to write them open: give the tool calls their results yourself, with "
                "subject="
            )
        else:  # the key keeps its class and expiry
            part.operations.append(Operation("set", key, made, KEEP))
        return Repaired(found, lone)

    return own_step(state, note, reason="tool calls without a result")


def _orphans(book: EffectBook, messages: list[Any]) -> tuple[tuple[Orphan, ...], tuple[str, ...]]:
    """Orphans, and the ids of results that belong to none."""
    opened, without = unpaired(messages)
    found = tuple(Orphan(one, _effect(book, one)) for one in opened)
    return found, tuple(id for _, id in without)


def _effect(book: EffectBook, call: Call) -> Effect | None:
    try:
        return book.effect(Asked.of(call.name, call.id, None))
    except InvalidInputError:
        return None  # no effect can have such a name


def _listed(state: Any, key: str, found: Any) -> list[Any]:
    if found is None:
        return []
    if not isinstance(found, list) or any(isinstance(one, str) for one in found):
        raise InvalidInputError(
            f"{state.scope}: {key!r} is no list of messages, each a mapping or an object"
        )
    return found
