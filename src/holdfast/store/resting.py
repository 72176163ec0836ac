"""What a change rests on: what it expects, and the entries beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import Conflict
from holdfast.store.declared import PREFIX

if TYPE_CHECKING:
    from holdfast.store.change import Target
    from holdfast.store.entries import Body
    from holdfast.store.ephemeral import Ephemerals
    from holdfast.store.stage import Stage


def declares(target: Target) -> bool:
    """Whether it changes declarations, which is done alone, also where one is damaged."""
    return bool(target.ops) and target.ops[0][1].startswith(PREFIX)


def check_expected(target: Target, stage: Stage, ephemerals: Ephemerals) -> None:
    """Refuse a change that rests on something that has changed since."""
    if target.head is not None and stage.sequence != (target.head or stage.ledger.before):
        raise Conflict(
            f"{target.scope}: entry {stage.sequence} was written since; read again and retry",
            [str(target.scope)],
        )
    expects, version = target.expects.items(), ephemerals.version
    changed = [key for key, expected in expects if version(stage, key) != expected]
    if changed:
        raise Conflict(
            f"{target.scope}: {', '.join(map(repr, changed[:5]))} changed since it was read; "
            "read again and retry",
            changed,
        )


def name_each_other(staged: list[tuple[Target, Stage]], bodies: list[Body]) -> None:
    """Note in each entry of a change the others, and what it only read."""
    for number, body in enumerate(bodies):
        others = [pair for other, pair in enumerate(staged) if other != number]
        for target, stage in others:
            place = (stage.ledger.number, stage.timeline.number)
            if target.ops or target.special:
                body.also.append((*place, stage.sequence + 1))
            else:
                body.reads.append((*place, stage.sequence))
