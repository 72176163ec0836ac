"""Marks on checkpoints: pinned, on hold, cleared; keys of the scope that no restore takes back.

A mark stands on the state that it keeps, as a fork does: it is committed only if that is not pruned
by then, and whoever prunes looks at the marks in the commit that announces what goes (`needed` of
`holdfast.store.upkeep.prune`). So one that was accepted is kept, whatever runs beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.store.inner import (
    Body,
    Change,
    LineHandle,
    Operation,
    Stage,
    beside_pruning,
    mark_key,
    marked,
    marks_of,
    stand_on,
)
from holdfast.store.names.arguments import check_text
from holdfast.store.names.items import Checkpoint


class Marks:
    """The marks of a scope, by the handle of its main timeline."""

    def __init__(self, main: LineHandle) -> None:
        self._main = main

    def of(self, kind: str) -> Iterator[tuple[str, str]]:
        """(id, key) of the checkpoints that are marked so, and of their marks."""
        return marks_of(self._main, kind)

    def needed(self) -> dict[str, str]:
        """Ids of the checkpoints that are pinned, on hold or to go on from, and why."""
        return marked(self._main)

    def add(self, kind: str, checkpoint: Checkpoint, reason: str) -> None:
        """Mark a checkpoint; refused if it is gone by the time of the commit."""
        check_text(reason, "the reason", 1000)
        self._main.history.points.find(checkpoint)
        operation = Operation("set", mark_key(self._main, kind, checkpoint.id), reason)
        beside_pruning(lambda: self._stand(operation, checkpoint))

    def _stand(self, operation: Operation, checkpoint: Checkpoint) -> None:
        change, _ = self._main._plan([operation], self._main._version)
        stand(self._main, change, checkpoint)
        self._main.core.run(change)

    def remove(self, kind: str, checkpoint: Checkpoint) -> bool:
        """Take a mark back; tells whether there was one."""
        self._main.history.points.find(checkpoint)
        key = mark_key(self._main, kind, checkpoint.id)
        if self._main.reader.get(key) is None:
            return False
        self._main.core.run(self._main._plan([Operation("delete", key)], self._main._version)[0])
        return True


def stand(main: LineHandle, change: Change, point: Any) -> None:
    """Let a change that writes a mark to a main timeline fail if its point is pruned by then."""
    points = main.history.points
    timeline, sequence = points.find(point)
    line, anchors = points.line(timeline), points.anchors(timeline, sequence)
    place = (main.scope, main.timeline)
    target = next(one for one in change.targets if (one.scope, one.timeline) == place)

    def special(stage: Stage, body: Body) -> None:
        stand_on(stage, line, sequence, anchors)
        stage.add(main.core.prepared(stage.ledger, target), body)

    target.special = special
