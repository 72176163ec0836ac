"""Filters of a search and conditions on namespaces, with LangGraph's meaning."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

from holdfast.errors import InvalidInputError

Test = Callable[[Any], bool]
"""Whether a value, or a part of one, is what a filter wants it to be."""


def check_filter(wanted: Any) -> None:
    """Refuse what is no filter; also one with an unknown operator."""
    if wanted is not None and not isinstance(wanted, Mapping):
        raise InvalidInputError(
            "a filter is a mapping of fields to what they are, for example {'kind': 'note'}, not a "
            f"{type(wanted).__name__}"
        )
    test_of(wanted)


def test_of(wanted: Any) -> Test:
    """What tests values by a filter, or by a part of one; made once, for it is done for each."""
    if isinstance(wanted, Mapping):
        if any(isinstance(name, str) and name.startswith("$") for name in wanted):
            operators = [_operator(name, bound) for name, bound in wanted.items()]
            return lambda value: all(test(value) for test in operators)
        return _mapping([(field, test_of(one)) for field, one in wanted.items()])
    if isinstance(wanted, list | tuple):
        tests = [test_of(one) for one in wanted]
        return lambda value: (
            isinstance(value, list | tuple)
            and len(value) == len(tests)
            and all(test(part) for test, part in zip(tests, value, strict=True))
        )
    return lambda value: bool(value == wanted)


def _mapping(parts: list[tuple[Any, Test]]) -> Test:
    def fits(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        for field, test in parts:  # noqa: SIM110 - a loop by hand: it runs for each of all items
            if not test(value.get(field)):
                return False
        return True

    return fits


def _operator(name: Any, bound: Any) -> Test:
    if name in ("$eq", "$ne"):
        return lambda value: bool(value == bound) is (name == "$eq")
    if name not in _ORDERED:
        known = ", ".join(("$eq", "$ne", *_ORDERED))
        raise InvalidInputError(f"a filter knows the operators {known}, not {name!r}")
    compare = _ORDERED[name]

    def fits(value: Any) -> bool:
        """Compares as numbers, else two texts as texts; what cannot be compared does not fit."""
        try:
            return bool(compare(float(value), float(bound)))
        except (TypeError, ValueError, OverflowError):
            both = isinstance(value, str) and isinstance(bound, str)
            return both and bool(compare(value, bound))

    return fits


_ORDERED = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


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
