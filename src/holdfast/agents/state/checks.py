"""Between a component's type and what is stored: plain data, and all that is wrong with it.

A type is a msgspec Struct, a dataclass, a pydantic model, or what these are made of. msgspec stops
at the first thing that is wrong; here all of them are gathered, each with its path, and none of
them repeats a value.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Literal
from unicodedata import is_normalized

import msgspec
from msgspec import convert

from holdfast.agents.state.shapes import TASK_PLACES
from holdfast.errors import HoldfastError, InvalidValueError
from holdfast.seal.codec import ValueLimits, complaints
from holdfast.store.names.arguments import unawaited

# ---- checks -------------------------------------------------------------------------------------


MOST_PROBLEMS = 100
"""That are told of one value."""
DEPTH = ValueLimits().depth + 1
"""Levels at which nothing can be stored any more."""


def told(answer: Any, what: str) -> list[str]:
    """What a function of the user says is wrong, as texts; None and True: nothing is.

    It says so by a text, by several of them in whatever holds several (of a mapping, each with its
    name), or by False. What says nothing, such as a number or an error that is returned and not
    raised, is no yes, either.
    """
    if answer is None or answer is True:
        return []
    no = f"{what} says no"
    if answer is False:
        return [no]
    if isinstance(answer, str):
        return [answer or no]
    if isinstance(answer, Mapping):
        return [f"{name}: {text}" for name, text in islice(answer.items(), MOST_PROBLEMS)]
    if isinstance(answer, Iterable) and not isinstance(answer, bytes | bytearray):
        return [str(text) or no for text in islice(answer, MOST_PROBLEMS)]
    if unawaited(answer):
        return [f"{what} gave something to be awaited, which nobody does here"]
    kind = type(answer).__name__
    return [f"{what} gave back {kind}: it gives nothing, True, or what is wrong as texts"]


def refusal_of(check: Callable[..., Any], *args: Any, **more: Any) -> list[str]:
    """What a check says that refuses something; nothing if it does not."""
    try:
        check(*args, **more)
    except HoldfastError as error:
        return [str(error)]
    return []


def plain(value: Any, left: int = DEPTH) -> Any:
    """Objects of classes with fields as mappings, all the way down; the rest as it is.

    Fields that have their default are left out where the class says so. What contains itself, or
    is nested too deeply to be stored, is left at that depth: who stores it refuses it.
    """
    kind = type(value)
    if not left:
        return value
    left -= 1
    if kind is dict:
        return {key: plain(part, left) for key, part in value.items()}
    if kind is list:
        return [plain(part, left) for part in value]
    if is_model(kind):
        return plain(value.model_dump(), left)
    if isinstance(value, msgspec.Struct):
        omit = value.__struct_config__.omit_defaults
        parts = ((name, getattr(value, name), default) for name, default in _defaults(type(value)))
        return {
            name: plain(part, left)
            for name, part, default in parts
            if not (omit and type(part) is type(default) and part == default)
        }
    if dataclasses.is_dataclass(kind):
        return {f.name: plain(getattr(value, f.name), left) for f in dataclasses.fields(value)}
    return value


def stored(kind: Any, value: Any) -> Any:
    """An object of a type, or plain data that fit it, as data that are stored.

    Sets, tuples and members of enums, where the type says that there are such, become what the type
    builds them from again. Elsewhere they stay, and who stores them refuses them.
    """
    return _stored(kind, plain(value))


def _stored(kind: Any, value: Any) -> Any:
    bare = _bare(_present(kind))
    args, origin = typing.get_args(bare), typing.get_origin(bare)
    if isinstance(value, dict) and is_structured(bare):
        fields = fields_of(bare)
        return {name: _stored(fields.get(name, Any), part) for name, part in value.items()}
    if isinstance(value, dict) and origin is dict:
        return {name: _stored(args[1], part) for name, part in value.items()}
    if isinstance(value, list) and origin is list:
        return [_stored(args[0], part) for part in value]
    if isinstance(value, set | frozenset | tuple | Enum) and bare is not Any:
        made = to_builtins(value)
        return value if not_coming_back(bare, made, value, "") else made
    return value


def not_coming_back(kind: Any, made: Any, value: Any, path: str) -> list[str]:
    """All that keeps a type from building a value again, as it is, from data made of it."""
    if found := problems(kind, made, path):
        return found
    back = build(kind, made)
    if back != value and repr(back) != repr(value):  # nan is not equal to itself
        return [f"{path}: would come back as another one"]
    _look_at_types(back, value, path, found)
    return found[:MOST_PROBLEMS]


def _look_at_types(back: Any, value: Any, path: str, found: list[str]) -> None:
    """Where one of two values that are equal has another type than the other."""
    kind = type(value)
    if type(back) is not kind:
        if (kind, type(back)) != (int, float):  # a whole number, where the type says float
            found.append(f"{path}: a {kind.__name__} would come back as {type(back).__name__}")
    elif kind is dict:
        for (key, part), (name, one) in zip(back.items(), value.items(), strict=False):
            _look_at_types(key, name, f"{path} (a key)", found)
            _look_at_types(part, one, f"{path}.{name}", found)
    elif issubclass(kind, list | tuple):
        for number, (part, one) in enumerate(zip(back, value, strict=False)):
            _look_at_types(part, one, f"{path}[{number}]", found)
    elif issubclass(kind, set | frozenset):
        own = {one: one for one in back}
        for one in value:
            _look_at_types(own.get(one, one), one, f"{path} (an item)", found)
    elif is_structured(kind):
        for name in fields_of(value.__class__):
            _look_at_types(getattr(back, name), getattr(value, name), f"{path}.{name}", found)


@lru_cache(maxsize=256)
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of a Struct and their defaults; only compared with, never given away."""
    made = {one.name: one.default_factory for one in msgspec.structs.fields(kind)}
    return tuple(
        (one.name, one.default if made[one.name] is msgspec.NODEFAULT else made[one.name]())
        for one in msgspec.structs.fields(kind)
    )


def is_model(kind: Any) -> bool:
    """Whether it is a pydantic model."""
    return hasattr(kind, "model_fields") and hasattr(kind, "model_validate")


def is_structured(kind: Any) -> bool:
    """Whether it is a class with fields."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct) or is_model(kind) or dataclasses.is_dataclass(kind)
    )


def is_frozen(kind: type) -> bool:
    """Whether the fields of such a class cannot be set."""
    if is_model(kind):
        return bool(getattr(kind, "model_config", {}).get("frozen"))
    if issubclass(kind, msgspec.Struct):
        return bool(kind.__struct_config__.frozen)
    return bool(dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a class and their types."""
    hints = typing.get_type_hints(kind, include_extras=True)
    if is_model(kind):
        names = list(kind.model_fields)
    elif issubclass(kind, msgspec.Struct):
        names = list(kind.__struct_fields__)
    else:
        names = [one.name for one in dataclasses.fields(kind)]
    return {name: hints[name] for name in names}


def item_type(hint: Any) -> Any:
    """What the items of a list type are; None if it is no list."""
    hint = _bare(hint)
    if hint is list:
        return Any
    return typing.get_args(hint)[0] if typing.get_origin(hint) is list else None


def inner_type(hint: Any) -> Any:
    """What the items of a list, or the values of a mapping, are; Any if that is not said."""
    args = typing.get_args(_bare(hint))
    return args[-1] if args and typing.get_origin(_bare(hint)) in (list, dict) else Any


def to_builtins(value: Any) -> Any:
    """Plain data of a value whose type is known: also tuples, sets, enums become such.

    `InvalidValueError` if there is something of a class that is no type for data.
    """
    return _listed(msgspec.to_builtins(value, builtin_types=(bytes, datetime), enc_hook=_outer))


def _listed(value: Any) -> Any:
    """The same with lists for tuples and sets."""
    if isinstance(value, dict):
        return {key: _listed(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_listed(part) for part in value]
    return value


def _outer(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump()
    raise InvalidValueError(
        f"a {type(value).__qualname__} would not come back as it was; keep what it is made of"
    )


def build(kind: Any, value: Any) -> Any:
    """An object of a type from plain data; raises what msgspec and pydantic raise."""
    if kind is Any:
        return value
    return kind.model_validate(value) if is_model(kind) else convert(value, kind, dec_hook=_inner)


def _inner(kind: type, value: Any) -> Any:
    """What msgspec cannot build by itself."""
    if is_model(kind):
        return kind.model_validate(value)  # type: ignore[attr-defined]
    if isinstance(value, kind):
        return value
    raise msgspec.ValidationError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def problems(kind: Any, value: Any, path: str) -> list[str]:
    """All that keeps plain data from being of a type: `path: what is wrong`."""
    found: list[str] = []
    _look(kind, value, path, found)
    return found[:MOST_PROBLEMS]


def _look(kind: Any, value: Any, path: str, found: list[str]) -> None:
    if len(found) >= MOST_PROBLEMS:
        return
    bare = _bare(kind)
    args = typing.get_args(bare)
    origin = typing.get_origin(bare)
    if (present := _present(bare)) is not bare:
        if value is not None:
            _look(present, value, path, found)
    elif isinstance(bare, type) and is_structured(bare) and not is_model(bare):
        _look_at_fields(bare, value, path, found)
    elif isinstance(value, dict) and (meant := _meant(origin, args)) is not None:
        _look_at_fields(meant, value, path, found)
    elif (origin is list or args[1:] == (...,)) and isinstance(value, list):
        for number, part in enumerate(value):
            _look(args[0], part, f"{path}[{number}]", found)
    elif origin is dict and isinstance(value, dict):
        for name, part in value.items():
            _look(args[0], name, f"{path} (a key)", found)
            _look(args[1], part, f"{path}.{name}", found)
    elif origin is Literal:
        if value not in args:
            found.append(f"{path}: Expected one of {', '.join(map(repr, args))}")
    else:
        _look_whole(kind, value, path, found)


def _meant(origin: Any, args: tuple[Any, ...]) -> Any:
    """The class of several types that a mapping is meant for; None if that is not plain.

    msgspec would leave out fields that the class does not have, and what was given is lost.
    """
    if origin not in (typing.Union, types.UnionType):
        return None
    found = [one for one in args if is_structured(one)]
    others = [one for one in args if typing.get_origin(one) is dict or one in (dict, Any)]
    return found[0] if len(found) == 1 and not others and not is_model(found[0]) else None


def _look_at_fields(kind: Any, value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, kind):
        return  # it is made already, and checked itself
    if not isinstance(value, dict):
        found.append(f"{path}: Expected `object`, got `{type(value).__name__}`")
        return
    fields = fields_of(kind)
    needed = _required(kind)
    before = len(found)
    for name, hint in fields.items():
        if name in value:
            _look(hint, value[name], f"{path}.{name}", found)
        elif name in needed:
            found.append(f"{path}.{name}: is missing")
    for name in value:
        if name not in fields:
            found.append(f"{path}: has no field {str(name)[:40]!r}")
    if len(found) == before and hasattr(kind, "__post_init__"):
        _look_whole(kind, value, path, found)  # the class checks itself when it is made


@lru_cache(maxsize=256)
def _required(kind: Any) -> frozenset[str]:
    if issubclass(kind, msgspec.Struct):
        return frozenset(one.name for one in msgspec.structs.fields(kind) if one.required)
    missing = dataclasses.MISSING
    return frozenset(
        one.name
        for one in dataclasses.fields(kind)
        if one.default is missing and one.default_factory is missing
    )


def _look_whole(kind: Any, value: Any, path: str, found: list[str]) -> None:
    try:
        build(kind, value)
    except Exception as error:
        found += [f"{path}{inner.removeprefix('$')}: {text}" for text, inner in complaints(error)]


def _present(hint: Any) -> Any:
    """The type of what may be None, without that; any other as it is."""
    bare = _bare(hint)
    args = typing.get_args(bare)
    optional = typing.get_origin(bare) in (typing.Union, types.UnionType) and type(None) in args
    if optional and len(args) == 2:
        return next(one for one in args if one is not type(None))
    return bare


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


# ---- state rules --------------------------------------------------------------------------------
# Rules that concern several parts of an agent's state at once, over plain data.


Has = Callable[[str], bool]
"""Whether there is something of an id."""
FORM = "is not in Unicode normal form C, in which ids are kept"


def in_form(id: str) -> bool:
    """Whether an id is as it is kept: another one that looks alike is none of that name."""
    return is_normalized("NFC", id)


def _none(what: str, id: str) -> str:
    return f"there is no {what} {id!r}" + ("" if in_form(id) else f": that {FORM}")


def _own_id(kept: str, id: str) -> list[str]:
    if id == kept:
        return []
    return ["id: is another one" if in_form(id) else f"id: {FORM}"]


def stack_problems(stack: Mapping[str, Any]) -> list[str]:
    """A task stands in one place, and its status fits it."""
    found: list[str] = []
    seen: dict[str, str] = {}
    for place, task in placed(stack):
        id, status = task["id"], task.get("status", "pending")
        if id in seen:
            found.append(f"tasks.{place}: the task {id!r} stands in {seen[id]}, too")
        seen[id] = place
        fits = status in ("pending", "running") if place == "current" else status == place
        if not fits:
            found.append(f"tasks.{place}: the task {id!r} has the status {status!r}")
    return found


def placed(stack: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The tasks of a stack, each with its place."""
    if stack.get("current") is not None:
        yield "current", stack["current"]
    for place in TASK_PLACES:
        tasks = stack.get(place, ())
        yield from ((place, task) for task in (tasks if isinstance(tasks, list | tuple) else ()))


def item_problems(name: str, items: Iterable[tuple[str, Any]], has: Has) -> list[str]:
    """A task, or a goal, has the id that it is kept under, and what it names exists."""
    found, by = [], "parent" if name == "tasks" else "dependencies"
    for id, item in items:
        lost = [_none(name[:-1], other) for other in links(item) if not has(other)]
        found += [f"{name}.{id}.{text}" for text in _own_id(id, item["id"])]
        found += [f"{name}.{id}.{by}: {text}" for text in lost]
    return found


def links(item: Any) -> list[str]:
    """The ids of others that a task (its parent) or a goal (what it depends on) names."""
    if not isinstance(item, dict):
        return []
    return [one for one in (item.get("parent"), *item.get("dependencies", ())) if one]


def circle_problems(name: str, ids: Iterable[str], item: Callable[[str], Any]) -> list[str]:
    """No task is below itself, and no goal waits for itself, by whatever way from these ids on."""
    found: list[str] = []
    done: set[str] = set()
    for start in ids:
        way = {start: iter(links(item(start)))} if start not in done else {}
        while way and len(found) < MOST_PROBLEMS:
            last = next(reversed(way))
            other = next(way[last], None)
            if other is None:
                done.add(last)
                del way[last]
            elif other in way:
                ring = list(way)[list(way).index(other) :]
                found.append(f"{name}.{other}: is below itself: {' -> '.join([*ring, other])}")
            elif other not in done:
                way[other] = iter(links(item(other)))
    return found


def command_problems(commands: Iterable[Any], has: Has) -> list[str]:
    """The task of every command exists."""
    return [
        f"execution_trace.commands: of {command['id']!r} {_none('task', command['task_id'])}"
        for command in commands
        if not has(command["task_id"])
    ]


def window_problems(window: Mapping[str, Any], messages: int) -> list[str]:
    """No more messages than fit, unless the window adapts."""
    most = window.get("max_size", 100)
    if messages > most and window.get("window_type", "sliding") != "adaptive":
        return [f"context_window.messages: {messages} of them, at most {most}"]
    return []


def all_problems(
    data: Mapping[str, Any], tasks: Mapping[str, Any], current: str | None
) -> list[str]:
    """All that is wrong with components that are each as their type says.

    `tasks` are those of the stack by the ids that they are kept under.
    """
    goals = data.get("goals") or {}
    trace = data.get("execution_trace") or {}
    window = data.get("context_window") or {}
    lost = current is not None and current not in tasks
    return [
        *([f"current_task: there is no task {current!r}"] if lost else []),
        *stack_problems(data.get("tasks") or {}),
        *item_problems("tasks", tasks.items(), tasks.__contains__),
        *item_problems("goals", goals.items(), goals.__contains__),
        *circle_problems("tasks", tasks, tasks.get),
        *circle_problems("goals", goals, goals.get),
        *command_problems(trace.get("commands", ()), tasks.__contains__),
        *window_problems(window, len(window.get("messages", ()))),
    ]
