"""Changes of keys' expiry that are judged when they are built, and putting it off by reading.

What is to be written is judged by the store's checked clock as its entry is built, so that nothing
goes, or is put off, that somebody has set meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from holdfast.errors import Conflict, HoldfastError
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.core import Core
from holdfast.store.commit.stage import Stage
from holdfast.store.journal.entry import Body
from holdfast.store.journal.lifetime import READ, Terms
from holdfast.store.journal.slot import meta_of
from holdfast.store.names.cause import Cause
from holdfast.store.names.scope import Scope

Decide = Callable[[Stage, str], tuple[Any, ...] | None]
"""The operation on a key at a stage, if there is something to do."""


def judging(
    scope: Scope, timeline: str, keys: Sequence[str], decide: Decide, cause: Cause
) -> tuple[Change, list[str]]:
    """A change that decides for each key when it is built, and the list of keys it touched."""
    done: list[str] = []

    def special(stage: Stage, body: Body) -> None:
        ops = [op for key in keys if (op := decide(stage, key)) is not None]
        done[:] = [op[1] for op in ops]
        if not done:
            raise Conflict(f"{scope}: there is nothing left to do", keys)
        stage.add(ops, body)

    target = Target(scope, timeline, special=special, create=False)
    return Change([target], cause), done


def refresh(core: Core, scope: Scope, timeline: str, keys: Sequence[str]) -> None:
    """Put off the expiry of keys that were read. A read does not fail if this does."""
    if core.read_only:
        return
    change, _ = judging(scope, timeline, keys, _put_off, READ)
    if core.later is not None:
        core.later(change)
    else:
        with suppress(HoldfastError):
            core.run(change)


def _put_off(stage: Stage, key: str) -> tuple[Any, ...] | None:
    meta = meta_of(stage.live(key))
    return ("expire", key, Terms(ttl=meta.term, term=meta.term)) if meta.due(stage.now) else None
