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
        *("(a+)+b", "(a*)*", "(a|aa)+$", "(ab|a|b)*c", r"(\w+\s?)*$", "((ab?)+)+c"),
        *(r"(a)\1", "(?=a)b", "(?<!a)b", ".*.*.*x", "(a{1,20}){1,20}$", "(?>(a+)+b)"),
        *("(", "[", "a" * 201, "", "(?P<x>a)(?(x)b|c)"),
        *("a??" * 22 + "b", "a?" * 28 + "a" * 28, "(?:" + "a?" * 28 + ")" + "a" * 28),
        *("a{0,90}" * 3 + "b", "(?:|)" * 30 + "b", "(?:a|a)" * 25 + "b", "(?:a?){28}a"),
        *("(?i)(k+K+)+x", "(?i)(k+\u212a)+x", "(?i:k+)+x", "a*b*" * 5 + "c"),
        "(?:" * 28 + "aa?" + "){2}" * 28 + "b",
    ],
)
def test_what_may_take_for_ever_is_refused_when_it_is_set(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        (r"\b\d{3}-\d{2}-\d{4}\b", "078-05-1120"),
        (r"[\w.]+@[\w.]+", "ann@x.org"),
        (r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b", "ann.b@x.org"),
        (r"[\w.+-]+@[\w-]+\.[\w.-]+", "ann@x.org"),
        (r"\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b", "4111 1111-11111111"),
        (r"\b(?:\d[ -]?){13,16}\b", "4111 1111 1111 1111"),
        (r"\d{1,3}(?:,\d{3})*(?:\.\d+)?", "1,234,567.8"),
        (
            r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?",
            "2026-01-02",
        ),
        (r"\b\d{1,3}(?:\.\d{1,3}){3}\b", "127.0.0.1"),
        (r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}", "DE89 3704 0044 0532 0130 00"),
        (r"(?:Jan|Feb|Mar|Apr|Jun|Jul)[a-z]* \d{1,2},? \d{4}", "January 2, 2026"),
        (r"(?i)\b(?:error|fatal|panic|warning)\b", "FATAL"),
        (r"(?:password|token)\s*[:=]\s*\S+", "token: x"),
        (r"https?://[^\s/]+(/\S*)?", "http://x/y"),
        (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "eyJa.b.c"),
        (r'"(?:[^"\\]|\\.)*"', r'"a\"b"'),
        (r"^\s*\w+\s*=\s*\w+\s*$", "a = b"),
        *[(".*error.*", "an error"), ("^a.{0,10}b$", "a--b"), ("(?:cat|dog)+", "dogcat")],
        *[("x+y*", "xx"), ("(?:\u00e9a)*b", "\u00e9ab"), ("(?:a?b){3}", "babb")],
    ],
)
def test_what_ends_is_taken(text: str, fit: str) -> None:
    made = Expression(text)
    assert made.text == text
    assert made.found(fit)


def test_the_worst_that_is_taken_comes_to_an_end() -> None:
    assert not Expression("a*a*b").found("a" * 100_000)
    assert Expression("[ab]+c").found("ab" * 100 + "c")


def test_the_more_ways_an_expression_has_the_less_is_searched() -> None:
    taken = [Expression(text).most for text in ("abc", "a+b", "a+ba+$", "a+a+b")]
    assert taken == [4096, 2048, 1024, 256]


def test_what_fits_is_replaced_and_only_so_far() -> None:
    card = Expression(r"\d{4}")
    assert card.replaced(r"1234 and 99 and 5678", r"\1*") == r"\1* and 99 and \1*"
    long = "x" * 5000 + "1234"
    assert not card.found(long)
    assert card.replaced(long, "*") == long
    assert Expression("a*a*1").found("x" * 255 + "1")
    assert not Expression("a*a*1").found("x" * 256 + "1")
