"""Hooks in front, against a plain model: which value is written, or who refuses it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Operation, sync
from holdfast.errors import HookCancelledError, HookResultError
from holdfast.sync.hooks import Cancel, Hooks, Modified, Redirect, Replace, Skipped

PRIORITIES = ("highest", "high", "normal", "low", "lowest")
KEYS = ("a", "b", "c")
KINDS = ("none", "skipped", "modified", "cancel", "redirect", "replace")


@st.composite
def declared(draw: st.DrawFn) -> list[tuple[str, str, str, str]]:
    """(priority, key that it is about, what it gives, key that this names) of some hooks."""
    one = st.tuples(
        st.sampled_from(PRIORITIES),
        st.sampled_from(KEYS),
        st.sampled_from(KINDS),
        st.sampled_from(KEYS),
    )
    return draw(st.lists(one, max_size=6))


def modelled(
    hooks: list[tuple[str, str, str, str]], operations: list[tuple[str, str]]
) -> list[tuple[str, str]] | str:
    """What is written in the end, or the name of the hook that refuses it."""
    order = sorted(range(len(hooks)), key=lambda at: (PRIORITIES.index(hooks[at][0]), at))
    told: list[set[int]] = [set() for _ in operations]
    for _ in range(len(hooks) + 1):
        again = False
        for number in order:
            _, about, kind, other = hooks[number]
            for at, (key, value) in enumerate(operations):
                if key != about or number in told[at]:
                    continue
                told[at].add(number)
                if kind == "cancel":
                    return str(number)
                if kind == "modified":
                    operations[at] = (key, f"{value}+{number}")
                if kind == "redirect":
                    operations[at], told[at], again = (other, value), {number}, True
                if kind == "replace":
                    operations, told, again = [(other, f"by {number}")], [{number}], True
                    break
        if not again:
            return operations
    return "circle"


@given(declared(), st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
def test_what_is_written_is_what_the_model_says(
    hooks: list[tuple[str, str, str, str]], keys: list[str]
) -> None:
    with sync.open("memory:") as store:
        made = Hooks(store)
        for number, (priority, about, kind, other) in enumerate(hooks):

            def give(event: Any, context: Any, kind: str = kind, other: str = other) -> Any:
                return {
                    "none": None,
                    "skipped": Skipped("why"),
                    "modified": Modified(f"{event.new}+{context.hook}"),
                    "cancel": Cancel("no"),
                    "redirect": Redirect(other),
                    "replace": Replace([Operation("set", other, f"by {context.hook}")]),
                }[kind]

            made.before(about, priority=priority, name=str(number))(give)
        state, refused = store.agent("x"), ""
        try:
            with state.change() as change:
                for key in keys:
                    change.set(key, f"v{key}")
        except HookCancelledError as error:
            refused = error.hook
        except HookResultError:
            refused = "circle"
        expected = modelled(hooks, [(key, f"v{key}") for key in keys])
        there = {key: state.get(key) for key in KEYS if state.exists(key)}
        if isinstance(expected, str):
            assert (refused, there) == (expected, {})
        else:
            assert (refused, there) == ("", dict(expected))
