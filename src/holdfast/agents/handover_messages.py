"""Where in a conversation the messages of a task are.

Equal messages are said again and again, and old ones are let go: no single message tells where the
others begin. What came along is looked for as a whole, behind the message that it followed. Where
nothing is sure, nothing is cut apart and nothing is removed.
"""

from __future__ import annotations

from typing import Any

from holdfast.agents.handover_records import Standing
from holdfast.store.tree.difference import identity


def begins(messages: list[Any], standing: Standing, context: list[Any]) -> int:
    """Where the messages of a task begin in a conversation from which old ones may be gone.

    `context` are those that came along. If they are not found, they or what was in front of them
    are gone, and all that is there may be of the task.
    """
    said, came = _identities(messages), _identities(context)
    before = identity(standing.follows) if standing.follows is not None else None
    if before is None and not came:
        return min(standing.at, len(messages))
    found: dict[int, tuple[int, bool]] = {}
    for place in range(min(standing.at, len(said)) + 1):
        alike, follows = _alike(said, place, came), place > 0 and said[place - 1] == before
        whole = alike == len(came)
        if not place:
            sure = alike > 0
        elif follows:  # if none was let go, a changed one is no other conversation
            sure = alike > 0 or whole or place == standing.at
        else:
            sure = whole and (before is None or alike > 1)
        if sure:
            found[place] = (alike, follows)
    best = max(found.values(), default=None)
    places = [place for place, how in found.items() if how == best]
    return standing.at if standing.at in places else min(places, default=0)


def without(messages: list[Any], context: list[Any], low: int) -> list[Any]:
    """A conversation of an earlier time without as much of a context as it had then.

    Nothing of the context was in front of the place `low`.
    """
    found, given = _identities(messages), _identities(context)
    for position in range(max(low, len(messages) - len(context)), len(messages)):
        if found[position:] == given[: len(messages) - position]:
            return messages[:position]
    return messages


def known(messages: list[Any], given: list[Any]) -> int:
    """How many of the first messages are the last of those that were given, or all of them.

    One alone that is equal to the last may be a new one, which would be lost.
    """
    said, came = _identities(messages), _identities(given)
    for place in range(len(came)):
        rest = came[place:]
        if said[: len(rest)] == rest and (len(rest) > 1 or not place):
            return len(rest)
    return 0


def place_of(messages: list[Any], context: list[Any]) -> int:
    """Where a context stands in a conversation, the last time if more than once; else its end."""
    said, came = _identities(messages), _identities(context)
    for place in range(len(said) - len(came), -1, -1):
        if _alike(said, place, came) == len(came):
            return place
    return len(said)


def _alike(said: list[Any], place: int, came: list[Any]) -> int:
    """How many messages from a place on are those that came."""
    count = 0
    for one, other in zip(said[place : place + len(came)], came, strict=False):
        if one != other:
            break
        count += 1
    return count


def _identities(messages: list[Any]) -> list[Any]:
    return [identity(one) for one in messages]
