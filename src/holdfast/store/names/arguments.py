"""Refusing arguments that cannot be meant, before anything is touched.

What Python would take or stumble over later (a text for a list, True for a number) is refused
here with a sentence that says what is expected.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from holdfast.errors import HoldfastError, InvalidInputError, MissingExtraError

MOST_TEXT = 4096
"""Characters of each part of a cause: it is a remark, not a place for values."""


class NotRunError(InvalidInputError):
    """A function was called and has not run: so it will be however often it is called again."""


def check_text(text: object, what: str, most: int = MOST_TEXT, *, least: int = 0) -> None:
    """Refuse what is no text that can be stored; an entry with it could never be read again."""
    if not isinstance(text, str) or not least <= len(text) <= most:
        raise InvalidInputError(f"{what} is text of {least} to {most} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{what} must be valid Unicode") from None


def check_name(name: Any, what: str, most: int = 100) -> str:
    """A name that can be a part of a key, if it can be one: in normal form, as keys are."""
    check_text(name, what, most, least=1)
    if "/" in name or any(unicodedata.category(one) == "Cc" for one in name):
        raise InvalidInputError(f"{what} has no slash and no control characters")
    return unicodedata.normalize("NFC", name)


def check_filters(**texts: object) -> None:
    """Refuse what no stored text can be equal to; None stands for any."""
    for what, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise InvalidInputError(f"{what} is text, not {_shown(text)}")


def check_prefixes(**texts: object) -> None:
    """Refuse what no stored text can begin with; '' stands for any."""
    for what, text in texts.items():
        if not isinstance(text, str):
            raise InvalidInputError(f"{what} is text ('' for any), not {_shown(text)}")


def check_timeline(name: object) -> None:
    """Refuse what can be no timeline's name."""
    check_text(name, "the name of a timeline", 128, least=1)
    if "@" in str(name):
        raise InvalidInputError("the name of a timeline has no '@'")


def check_new_timeline(name: object) -> None:
    """Refuse a name that would break lines, lists and texts; there may be older ones that do."""
    check_timeline(name)
    for character in str(name):
        if unicodedata.category(character) == "Cc":
            raise InvalidInputError(
                "the name of a timeline must not contain the control character "
                f"U+{ord(character):04X}"
            )


def check_version(version: object) -> None:
    """Refuse what can be no key's version; a comparison with it would fail, or worse, fit."""
    if version is not None and (type(version) is not int or version < 0):
        raise InvalidInputError("if_version takes the version of an item, or 0 for an absent key")


def check_count(number: object, what: str, least: int = 0) -> None:
    """Refuse what is no number of things."""
    if type(number) is not int or number < least:
        raise InvalidInputError(f"{what} is a number of {least} or more, not {_shown(number)}")


def check_limit(number: object, what: str = "limit") -> None:
    """Like `check_count`; None stands for no limit."""
    if number is not None:
        check_count(number, what)


def check_listing(prefix: object, limit: object, after: object) -> None:
    """Refuse what cannot say which keys to list."""
    check_prefixes(prefix=prefix, after=after)
    check_limit(limit)


def check_index(number: object, what: str) -> None:
    """Refuse what cannot stand in a slice; negative numbers count from the end."""
    if number is not None and type(number) is not int:
        raise InvalidInputError(f"{what} is a whole number or None, not {_shown(number)}")


def check_seconds(number: object, what: str) -> None:
    """Refuse what is no length of time."""
    if number is not None and not is_seconds(number):
        raise InvalidInputError(f"{what} is a number of seconds of 0 or more, not {_shown(number)}")


def is_seconds(number: object, least: float = 0.0, most: float = math.inf) -> bool:
    """Whether it is a length of time, and one that can be reckoned with."""
    if type(number) is int and number.bit_length() > 1023:
        return False  # no float is so great
    return type(number) in (int, float) and least <= number <= most  # type: ignore[operator]


def check_flag(flag: object, what: str) -> bool:
    """The flag, if it is True or False: a text such as "no" would count as true."""
    if type(flag) is not bool:
        raise InvalidInputError(f"{what} is True or False, not {_shown(flag)}")
    return flag


def check_function(function: object, what: str) -> None:
    """Refuse what cannot be called."""
    if not callable(function):
        raise InvalidInputError(f"{what} is a function, not {_shown(function)}")


def is_async(function: object) -> bool:
    """Whether calling it gives something to be awaited."""
    import inspect  # here, because it loads slowly

    whole = (function, getattr(function, "__call__", None))  # noqa: B004 an object may be async
    return any(map(inspect.iscoroutinefunction, whole))


def is_generator(function: object) -> bool:
    """Whether calling it gives something that runs only when it is read."""
    import inspect

    whole = (function, getattr(function, "__call__", None))  # noqa: B004 an object may be one
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(kind(one) for kind in kinds for one in whole)


def check_run(function: object, what: str, *, awaited: bool) -> None:
    """Refuse what cannot be called, and what would not have run when its call is over."""
    check_function(function, what)
    if is_generator(function):
        raise InvalidInputError(
            f"{what} is a generator, which runs when it is read, and nobody reads it: use a "
            "function without `yield`"
        )
    if not awaited:
        check_not_async(function, what)


def check_not_async(function: object, what: str) -> None:
    """Refuse what would have to be awaited."""
    if is_async(function):
        raise InvalidInputError(
            f"{what} is an `async def`, which nobody awaits here: use what has the same name in "
            "holdfast, or a plain function"
        )


def check_plain_function(function: object, what: str) -> None:
    """Refuse what cannot be called, and what would have to be awaited or read."""
    check_run(function, what, awaited=False)


def unawaited(answer: Any) -> bool:
    """Whether something is still to be awaited; then nobody will."""
    if not hasattr(answer, "__await__"):
        return False
    if hasattr(answer, "close"):
        answer.close()  # else Python warns of it
    return True


def check_awaited(answer: Any, what: str) -> None:
    """Refuse what a function gave if that is still to be awaited: the function has not run."""
    if unawaited(answer):
        raise NotRunError(
            f"{what} gave something to be awaited, which nobody does here: use what has the same "
            "name in holdfast, or a plain function"
        )


def ran(answer: Any, what: str) -> Any:
    """What a function gave, unless it has not run yet, because nobody here awaits or reads it."""
    check_awaited(answer, what)
    if isinstance(answer, GeneratorType | AsyncGeneratorType):
        raise NotRunError(
            f"{what} gave a generator, which runs when it is read, and nobody reads it: use a "
            "function without `yield`"
        )
    return answer


def check_moment(time: object, what: str) -> None:
    """Refuse what is no moment; without a zone it could be any of a day's."""
    if not isinstance(time, datetime):
        raise InvalidInputError(f"{what} is a datetime, not {_shown(time)}")
    if time.tzinfo is None:
        raise InvalidInputError(f"{what} needs a zone, for example datetime.now(UTC)")


def check_bounds(*, numbers: bool, **bounds: object) -> None:
    """Refuse what bounds no entries: neither a moment nor, where they may stand, a number."""
    for what, bound in bounds.items():
        if bound is None or (numbers and type(bound) is int and bound >= 0):
            continue
        if numbers and not isinstance(bound, datetime):
            raise InvalidInputError(
                f"{what} is an entry's number or a datetime, not {_shown(bound)}"
            )
        check_moment(bound, what)


def check_own(core: object, what: str, given: Any) -> None:
    """Refuse what was made from another store: its entries and versions mean nothing in this one.

    A store that is opened twice counts as two: a copy could not be told from it.
    """
    # One that is guarded shares everything with the store that it was made from (access).
    if given is not None and vars(given.core) is not vars(core):
        raise InvalidInputError(
            f"{what} is of another store, or of this one opened once more; give one that was made "
            "from this store (for a state, the name of its scope will do)"
        )


def check_face(given: object, kind: type, whose: str) -> None:
    """Refuse what is no store, or no state, of the face that something is made for."""
    if not isinstance(given, kind):
        what = "an open store" if kind.__name__ == "Store" else "a state"
        raise InvalidInputError(
            f"{whose} takes {what} of the same face: holdfast has its own, so has holdfast.sync"
        )


def by_name(given: object, what: str) -> dict[str, Any]:
    """Things that are given by their names; None: none."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInputError(f"{what} takes a mapping by names, not {_shown(given)}")
    return dict(given)


def listed(items: Iterable[Any], what: str) -> list[Any]:
    """Several things as a list; one text, or a mapping, is hardly meant to be several."""
    if type(items) is list:
        return items.copy()
    if isinstance(items, str | bytes | bytearray | Mapping) or not isinstance(items, Iterable):
        raise InvalidInputError(f"{what} takes several, for example a list, not {_shown(items)}")
    return list(items)


def _shown(thing: object) -> str:
    """A number or True as it is, else only what it is: texts show no values."""
    if isinstance(thing, int) and thing.bit_length() > 128:
        return "such a number"  # one of thousands of digits has no text
    if thing is None or isinstance(thing, int | float):
        return repr(thing)
    return type(thing).__name__


def check_texts(**texts: str | None) -> None:
    """Refuse what no path can be; a key's text is not repeated."""
    for name, text in texts.items():
        if text is not None and "\0" in text:
            raise InvalidInputError(f"{name} cannot hold a NUL character")
        try:
            (text or "").encode()
        except UnicodeEncodeError:
            raise InvalidInputError(
                f"{name} is not UTF-8: a file's path, or other text, must be; rename the file"
            ) from None


# ---- definitions in YAML ------------------------------------------------------------------------
# Definitions from YAML, read as YAML 1.2 does: only `true` and `false` are no plain words.


MOST_YAML = 1 << 20


def read_yaml(text: str, refusal: Callable[[list[str]], HoldfastError]) -> Any:
    """The plain data of a YAML text; no tags, no aliases, no name twice.

    What is wrong with it is raised as the error that `refusal` makes of it.
    """
    if not isinstance(text, str) or len(text) > MOST_YAML:
        raise refusal([f"a definition in YAML is text of at most {MOST_YAML} characters"])
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(
            "definitions in YAML need PyYAML: install holdfast[yaml], or give the same as "
            "plain data (for a configuration: in a file .toml or .json)"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Safe, and without what makes small texts long or words something else."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise refusal(["aliases (*name) are not taken; write it out"])
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = set()
            for found, _ in node.value:
                name = self.construct_object(found, deep=True)
                if not isinstance(name, Hashable):
                    break  # which the base class refuses, with the line
                if name in names:
                    line = found.start_mark.line + 1
                    raise refusal([f"line {line}: {name!r} is there twice"])
                names.add(name)
            return super().construct_mapping(node, deep)

    bool_tag = "tag:yaml.org,2002:bool"
    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != bool_tag]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(bool_tag, re.compile("true|false"), list("tf"))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise refusal([f"{where}{getattr(error, 'problem', None) or 'this is not YAML'}"]) from None
    except (TypeError, ValueError, RecursionError):
        raise refusal(["this YAML holds something that no definition has"]) from None
