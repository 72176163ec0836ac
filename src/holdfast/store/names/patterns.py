"""Patterns: names with stars, and regular expressions that come to an end.

`Patterns("agent:*")` fits names; several mean any of them. An `Expression` is a regular expression
of a user's, refused when it is made if some text could keep it busy for long: Python's own engine
tries one way after the other, and nobody can stop it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from itertools import accumulate, product
from math import factorial, inf
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_text, listed

MOST = 200
"""Characters of a pattern."""
STARS = 8
"""Stars of a pattern: each multiplies what a name costs that does not fit."""
SEARCHED = (4096, 2048, 1024, 512, 256)
"""Characters of a text that an expression is searched in: the most that `WORK` allows."""
WORK = 4e6
"""Steps that a search may take at most; some tens of milliseconds."""
ENDLESS = 100
"""A repetition that may be longer counts as one without end."""


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
    """A regular expression without what may take for ever: references back, looks around, and
    more ways through a text than a search can try in some tens of milliseconds.

    Texts are searched up to 4,096 characters, or fewer, at least 256, as its ways allow: `most`.
    What lies behind is not seen by `found`, and left as it is by `replaced`.
    """

    def __init__(self, text: str) -> None:
        check_text(text, "a regular expression", MOST, least=1)
        try:
            parsed = parser.parse(text)
            self._compiled = re.compile(text)
            whole = _part(parsed, _Part(NONE, ONE, ANY, 0, True), parsed.state.flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidInputError(f"that is no regular expression: {error}") from None
        steps = _plus(whole.steps, whole.last)
        fit = [most for most in SEARCHED if _work(steps, most) <= WORK]
        if not fit:
            raise InvalidInputError(
                "this regular expression has too many ways through some texts, and would take too "
                "long: let what repeats, or may be left out, be followed by a character that it "
                "does not fit itself, or say how often: {0,3}"
            )
        self.most = fit[0]
        self.text = text

    def found(self, text: str) -> bool:
        """Whether it fits somewhere in a text."""
        return self._compiled.search(text[: self.most]) is not None

    def replaced(self, text: str, instead: str) -> str:
        """A text with something else for all that fits."""
        head, rest = text[: self.most], text[self.most :]
        return self._compiled.sub(lambda _: instead, head) + rest


# ---- the work of a search -----------------------------------------------------------------------

_Size = tuple[float, ...]
"""How much, for a text of n characters: of 1, of n and of n²."""
NONE: _Size = (0.0, 0.0, 0.0)
ONE: _Size = (1.0, 0.0, 0.0)
"""A step: one way more to go on."""
LOOK: _Size = (0.1, 0.0, 0.0)
"""What it costs to look at a character."""
SAMPLE = "".join(map(chr, range(128))) + "\x85\u0130\u0131\u017f\u212a\u0663\u00e9\u2003\u2603"
"""A character of each kind that a set of ASCII characters and of categories tells apart."""
ANY, LINE_END = frozenset(SAMPLE), frozenset("\n")


CHARACTERS = (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY)


class _Part(NamedTuple):
    """A part of an expression in front of others, tried once at some place of a text."""

    steps: _Size
    ways: _Size
    """How often what comes behind it is tried."""
    first: frozenset[str]
    """Characters that may come next, also of what comes behind a part that may be empty."""
    fails: float
    """Steps until it is seen that another character comes next."""
    sure: bool = False
    """It fits everywhere, with all behind it: nobody comes back to try another way."""
    last: _Size = NONE
    """Steps where nothing can fail any more: they are done once, whatever the ways there."""


def _plus(*sizes: _Size) -> _Size:
    return tuple(map(sum, zip(*sizes, strict=True)))


def _larger(*sizes: _Size) -> _Size:
    return tuple(map(max, zip(*sizes, strict=True)))


def _times(one: _Size, other: _Size) -> _Size:
    found = [0.0, 0.0, 0.0]
    for (n, a), (m, b) in product(enumerate(one), enumerate(other)):
        if a and b:
            found[min(n + m, 2)] += a * b if n + m <= 2 else inf
    return tuple(found)


def _work(steps: _Size, most: int) -> float:
    """Steps of a search from every character of a text; from later ones, less is left of it."""
    return sum(float(one * most**n / factorial(n)) for n, one in enumerate(steps, 1))


@lru_cache(1024)  # what is repeated is asked for again, in each repetition around it
def _part(nodes: Any, rest: _Part, flags: int) -> _Part:
    """What some nodes cost in front of a rest: looked at from the last one on."""
    rest = rest._replace(steps=NONE, ways=ONE, last=NONE)
    for code, given in reversed(list(nodes)):
        one = _node(code, given, rest, flags)
        last = _plus(one.last, rest.last)
        if rest.sure and not one.sure:
            rest, last = rest._replace(steps=NONE), _plus(last, rest.steps)
        steps = _plus(one.steps, _times(one.ways, rest.steps))
        rest = one._replace(steps=steps, ways=_times(one.ways, rest.ways), last=last)
    return rest


def _node(code: Any, given: Any, rest: _Part, flags: int) -> _Part:
    if code in CHARACTERS:
        return _Part(LOOK, ONE, _characters(code, given, flags), 1)
    if code is codes.AT:
        # Where a text ends nothing comes, or the end of its last line.
        first = LINE_END if given in (codes.AT_END, codes.AT_END_STRING) else rest.first
        return _Part(LOOK, ONE, first, rest.fails + 1)
    if code is codes.SUBPATTERN:
        _, more, fewer, what = given
        return _part(what, rest, compiler._combine_flags(flags, more, fewer))
    if code is codes.BRANCH:
        parts = [_part(one, rest, flags) for one in given[1]]
        first = frozenset[str]().union(*(one.first for one in parts))
        alone = rest.sure or sum(len(one.first) for one in parts) == len(first)
        return _Part(
            _plus((float(len(parts)), 0.0, 0.0), *(one.steps for one in parts)),
            (_larger if alone else _plus)(*(one.ways for one in parts)),
            first,
            sum(one.fails for one in parts),
            any(one.sure for one in parts),
            _plus(*(one.last for one in parts)),
        )
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        least, most, what = given
        return _repeated(least, most, what, rest, flags)
    raise InvalidInputError("a regular expression here has no references back and no looks around")


def _repeated(least: int, most: int, what: Any, rest: _Part, flags: int) -> _Part:
    """A repetition: up to the least number only it itself comes behind it, then the rest, too."""
    width, behind = what.getwidth()[0], rest
    early = _Part(NONE, ONE, frozenset(), 0)
    if most > 1:
        if not width:
            raise InvalidInputError("a regular expression here repeats nothing that may be empty")
        alone = _part(what, early, flags)
        early = early._replace(first=alone.first, fails=alone.fails)
        behind = rest._replace(first=alone.first | rest.first, fails=alone.fails + rest.fails)
    items = [_part(what, behind, flags)]
    if least > 1:
        items.append(_part(what, early, flags))
    one, item = all(item.ways == ONE for item in items), items[0]
    if most > ENDLESS:
        rounds: _Size = (0.0, 1 / width, 0.0) if one else (inf, 0.0, 0.0)
        exits = rounds
    else:
        ways = [items[-1].ways] * (least - 1) + [item.ways] * (most - max(least - 1, 0))
        reached = [*accumulate(ways, _times, initial=ONE)]
        rounds, exits = _plus(NONE, *reached[:-1]), _plus(*reached[least:])
    apart = width and one and not item.first & rest.first
    each = _larger(*(_plus(one.steps, one.last) for one in items))
    if len(what) != 1 or what[0][0] not in CHARACTERS:
        each = _plus(each, ONE)
    tried = rest.fails if apart else 1.0
    return _Part(
        _plus(_times(rounds, each), ONE if rest.sure else _times(exits, (tried, 0.0, 0.0))),
        ONE if rest.sure or apart else exits,
        item.first if least else item.first | rest.first,
        item.fails + (0 if least else rest.fails),
        rest.sure and not least,
    )


def _characters(code: Any, given: Any, flags: int) -> frozenset[str]:
    """What one character of an expression may be; of a set with others than ASCII: anything."""
    said = given if code is codes.IN else [(code, given)]
    if max((max(one) if type(one) is tuple else one or 0 for _, one in said), default=0) > 127:
        return ANY
    nodes = parser.SubPattern(parser.State(), [(code, given)])
    return frozenset(compiler.compile(nodes, flags).findall(SAMPLE))
