"""Patterns: names with stars, and regular expressions that come to an end.

`Patterns("agent:*")` fits names; several mean any of them. An `Expression` is a regular expression
of a user's, refused when it is made if some text could keep it busy for long: Python's own engine
tries one way after the other, and nobody can stop it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_text, listed

MOST = 200
"""Characters of a pattern."""
STARS = 8
"""Stars of a pattern: each multiplies what a name costs that does not fit."""
MANY = 16
"""How often something may be repeated before it counts as repeated without end."""
ENDLESS = 2
"""Repetitions without end in one expression."""
MOST_SEARCHED = (4096, 4096, 1024)
"""Characters of a text that an expression is searched in, by how many repetitions without end it
has: a search from every character takes the square of that in steps with one of them, the third
power with two; some hundred milliseconds in the worst case."""


class Patterns:
    """Names with `*` for any text and `?` for one character. They fit whole names.

    Names that were asked before are answered from memory: a log sees few names, many times.
    """

    def __init__(self, texts: str | Iterable[str] = "*") -> None:
        self.texts = (texts,) if isinstance(texts, str) else tuple(listed(texts, "patterns"))
        if not self.texts:
            raise InvalidInputError("give at least one pattern; '*' fits everything")
        for text in self.texts:
            check_text(text, "a pattern", MOST, least=1)
            if text.count("*") > STARS:
                raise InvalidInputError(f"a pattern has at most {STARS} stars")
        # Brackets are plain characters here: names have them, and nobody means a set of characters.
        fit = re.compile("|".join(translate(text.replace("[", "[[]")) for text in self.texts)).match
        self.every = "*" in self.texts
        self.fit = lru_cache(1024)(lambda name: self.every or fit(name) is not None)
        """Whether a name fits any of them."""


class Expression:
    """A regular expression without what may take for ever: repetitions of repetitions or of
    alternatives, references back, looks around, and more than two repetitions without end.

    Texts are searched up to 4,096 characters, up to 1,024 with two repetitions without end; what
    lies behind is not seen by `found`, and left as it is by `replaced`.
    """

    def __init__(self, text: str) -> None:
        check_text(text, "a regular expression", MOST, least=1)
        try:
            parsed = parser.parse(text)
            self._compiled = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidInputError(f"that is no regular expression: {error}") from None
        endless = sum(1 for _ in _endless(parsed, inside=False))
        if endless > ENDLESS:
            raise InvalidInputError(
                f"a regular expression here repeats at most {ENDLESS} things without end; say how "
                "often: {0,10}"
            )
        self._most = MOST_SEARCHED[endless]
        self.text = text

    def found(self, text: str) -> bool:
        """Whether it fits somewhere in a text."""
        return self._compiled.search(text[: self._most]) is not None

    def replaced(self, text: str, instead: str) -> str:
        """A text with something else for all that fits."""
        head, rest = text[: self._most], text[self._most :]
        return self._compiled.sub(lambda _: instead, head) + rest


def _endless(parsed: Any, *, inside: bool) -> Iterator[None]:
    """Each repetition without end; refuses what multiplies them."""
    for code, given in parsed:
        if code in (codes.GROUPREF, codes.GROUPREF_EXISTS, codes.ASSERT, codes.ASSERT_NOT):
            raise InvalidInputError(
                "a regular expression here has no references back and no looks around"
            )
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, what = given
            if inside and least != most:
                raise _busy("a repetition")
            if most > MANY:
                yield None
            yield from _endless(what, inside=inside or most > 1)
        elif code is codes.BRANCH:
            if inside:
                raise _busy("alternatives")
            for one in given[1]:
                yield from _endless(one, inside=inside)
        elif code is codes.SUBPATTERN:
            yield from _endless(given[-1], inside=inside)


def _busy(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"a regular expression here repeats nothing with {what} in it: some texts would take for "
        "ever"
    )
