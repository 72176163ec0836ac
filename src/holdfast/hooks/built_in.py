"""Hooks that are there already, to be put where they are wanted.

hooks.before("profiles/*", name="valid profiles")(validation(profile_schema))
hooks.background("critical_config", name="backup on change")(backup_on_change(backups))
hooks.background(on="task.ended", name="keep agents")(persistence({"agent:a": attached}))

The log of all changes needs no hook: it is the journal, seen as `hooks.changes()`. What a schema
that a scope declares refuses is refused anyway; `validation` is for keys of many scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.hooks.hook import Function
from holdfast.hooks.hook_events import Cancel, Changed, HookContext, Skipped


def validation(schema: Any) -> Function:
    """A hook in front that refuses values which do not fit a `holdfast.schemas.Schema`, with all
    problems and their paths. Of an append each item is checked; a delete has nothing to check."""
    problems: Callable[[Any], list[str]] | None = getattr(
        getattr(schema, "checker", None), "problems", None
    )
    if problems is None:
        raise InvalidInputError("validation takes a holdfast.schemas.Schema")

    def check(event: Changed, _: HookContext) -> Cancel | Skipped | None:
        if event.kind not in ("set", "append"):
            return Skipped(f"a {event.kind} has no value")
        values = event.new if event.kind == "append" else [event.new]
        found = [one for value in values for one in problems(value)]
        return Cancel("; ".join(found)) if found else None

    return check


def backup_on_change(backups: Any) -> Function:
    """A background hook that makes a backup, named after the event's scope and key.

    `backups` is a `Backups` of the same face as the hooks. In a replay that simulates, none is
    made.
    """
    create = _acting(backups, "create")
    return lambda event, context: create(context, f"{event.scope} {event.key or event.name}"[:200])


def persistence(agents: Mapping[str, Any]) -> Function:
    """A background hook that saves attached agents (`holdfast.agents.attach`), by their scopes:
    the one whose scope an event is of, if there is one; `save` writes only what has changed."""
    savers = {scope: _acting(agent, "save") for scope, agent in agents.items()}

    def save(event: Changed, context: HookContext) -> Any:
        found = savers.get(str(event.scope))
        return found(context) if found is not None else Skipped("no agent of that scope")

    return save


def _acting(thing: Any, name: str) -> Callable[..., Any]:
    """A method of something, of either face, as hooks call it; what that gives is nothing to them.
    In a replay that simulates, it is not called."""
    call: Callable[..., Any] | None = getattr(thing, name, None)
    if call is None:
        raise InvalidInputError(f"it takes what has a method {name}: {type(thing).__name__}")

    async def waited(answer: Any) -> None:
        await answer

    def act(context: HookContext, *arguments: Any) -> Any:
        if context.replay == "simulate":
            return Skipped("only what it would do is asked for")
        answer = call(*arguments)
        return waited(answer) if hasattr(answer, "__await__") else None

    return act
