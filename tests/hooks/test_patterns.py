"""Patterns of names, and regular expressions that come to an end."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidInputError
from holdfast.store.names.patterns import Expression, Patterns


@pytest.mark.parametrize(
    ("patterns", "fit", "unfit"),
    [
        ("agent:*", ["agent:a", "agent:"], ["agents:a", "xagent:a"]),
        ("plan/?", ["plan/1"], ["plan/", "plan/12"]),
        (["a", "b*"], ["a", "b", "bc"], ["ab", "c"]),
        ("*", ["", "anything", "a\nb"], []),
        ("a[bc]", ["a[bc]"], ["ab", "ac"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_patterns_fit_whole_names(
    patterns: str | list[str], fit: list[str], unfit: list[str]
) -> None:
    made = Patterns(patterns)
    assert all(made.fit(name) for name in fit)
    assert not any(made.fit(name) for name in unfit)


@pytest.mark.parametrize(
    "text",
    [
        *("(a+)+b", "(a*)*", "(a|aa)+$", "(ab|a)*c", r"(\w+\s?)*$", "((ab?)+)+"),
        *(r"(a)\1", "(?=a)b", "(?<!a)b", "a*b*c*", ".*.*.*x", "(a{1,20}){1,20}"),
        *("(", "[", "a" * 201, "", "(?P<x>a)(?(x)b|c)"),
    ],
)
def test_what_may_take_for_ever_is_refused_when_it_is_set(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Expression(text)


@pytest.mark.parametrize(
    "text",
    [r"\b\d{3}-\d{2}-\d{4}\b", r"[\w.]+@[\w.]+", "(error|fatal)", "^a.{0,10}b$", "x+y*"],
)
def test_what_ends_is_taken(text: str) -> None:
    assert Expression(text).text == text


def test_the_worst_that_is_taken_comes_to_an_end() -> None:
    assert not Expression("a*a*b").found("a" * 100_000)
    assert Expression("[ab]+c").found("ab" * 100 + "c")


def test_what_fits_is_replaced_and_only_so_far() -> None:
    card = Expression(r"\d{4}")
    assert card.replaced(r"1234 and 99 and 5678", r"\1*") == r"\1* and 99 and \1*"
    long = "x" * 5000 + "1234"
    assert not card.found(long)
    assert card.replaced(long, "*") == long
    assert Expression("a*b*1").found("x" * 1023 + "1")
    assert not Expression("a*b*1").found("x" * 1024 + "1")
