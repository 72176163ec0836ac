"""Filters of a search and conditions on namespaces, with LangGraph's meaning."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

from holdfast.errors import InvalidInputError


def check_filter(wanted: Any) -> None:
    """Refuse what is no filter; also one with an unknown operator."""
    if wanted is not None and not isinstance(wanted, Mapping):
        raise InvalidInputError(
            "a filter is a mapping of fields to what they are, for example {'kind': 'note'}, not a "
            f"{type(wanted).__name__}"
        )
    _check(wanted)


def fits(value: Any, wanted: Any) -> bool:
    """Whether a value, or a part of one, is what a filter wants it to be."""
    if isinstance(wanted, Mapping):
        if has_operators(wanted):
            return all(_OPERATORS[name](value, one) for name, one in wanted.items())
        return isinstance(value, Mapping) and all(
            fits(value.get(field), one) for field, one in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(fits, value, wanted))
        )
    return bool(value == wanted)


def has_operators(wanted: Mapping[Any, Any]) -> bool:
    """Whether a part of a filter compares; else it describes a mapping."""
    return any(isinstance(name, str) and name.startswith("$") for name in wanted)


def _check(wanted: Any) -> None:
    if isinstance(wanted, Mapping):
        if has_operators(wanted):
            unknown = [name for name in wanted if name not in _OPERATORS]
            if unknown:
                raise InvalidInputError(
                    f"a filter knows the operators {', '.join(_OPERATORS)}, not {unknown[0]!r}"
                )
            return
        for one in wanted.values():
            _check(one)
    elif isinstance(wanted, list | tuple):
        for one in wanted:
            _check(one)


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """Compare as numbers, else two texts as texts; what cannot be compared does not fit."""

    def fits(value: Any, bound: Any) -> bool:
        try:
            return bool(compare(float(value), float(bound)))
        except (TypeError, ValueError, OverflowError):
            both = isinstance(value, str) and isinstance(bound, str)
            return both and bool(compare(value, bound))

    return fits


ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, one: bool(value == one),
    "$ne": lambda value, one: bool(value != one),
    **{name: _ordered(compare) for name, compare in ORDERED.items()},
}


def matches(namespace: tuple[str, ...], conditions: Iterable[MatchCondition]) -> bool:
    """Whether a namespace meets all conditions; `*` stands for one label."""
    return all(_meets(namespace, condition) for condition in conditions)


def _meets(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    if condition.match_type == "prefix":
        labels = namespace[: len(path)]
    elif condition.match_type == "suffix":
        labels = namespace[len(namespace) - len(path) :]
    else:
        raise InvalidInputError(
            f"namespaces are matched by prefix or suffix, not by {condition.match_type!r}"
        )
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))


def common_prefix(conditions: Iterable[MatchCondition]) -> tuple[str, ...]:
    """Labels that every namespace which meets the conditions begins with."""
    longest: tuple[str, ...] = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            labels = tuple(condition.path)
            if "*" in labels:
                labels = labels[: labels.index("*")]
            longest = max(longest, labels, key=len)
    return longest
