"""What of a timeline is in use: no rule removes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.checkpoints.holding import held
from holdfast.checkpoints.requests import said
from holdfast.store.handles import LineHandle
from holdfast.store.items import Checkpoint

REASONS = {
    "operation": "its operation is not over",
    "restore": "the backup of a restore that is not confirmed",
}


class Needs:
    """The checkpoints of a timeline that are in use, and why."""

    def __init__(self, main: LineHandle, line: LineHandle, marked: Mapping[str, str]) -> None:
        self._line = line
        self._marked = marked
        """Those that are pinned or on hold."""
        self._starts = {(info.parent, info.start) for info in main.history.timelines()}
        found = held(line)
        self._held = {one.checkpoint.id: REASONS[one.why] for one in found}
        self._newest = line.place()[2]
        begun = (one.checkpoint.sequence for one in found if one.why == "operation")
        self.begun = min(begun, default=self._newest)
        """Behind this entry nothing is pruned: undoing an operation takes all that it wrote."""

    def why(self, one: Checkpoint) -> str:
        """Why a checkpoint stays whatever the rules say; empty if it need not."""
        if one.id in self._marked:
            return self._marked[one.id]
        if (self._line.timeline, one.sequence) in self._starts:
            return "a timeline starts from it"
        if one.id in self._held:
            return self._held[one.id]
        if one.sequence == self._newest:
            return "it is the newest entry"
        if one.sequence >= self.begun:
            return "an operation that began before it is not over"
        return ""

    def released(self, one: Checkpoint) -> Iterator[str]:
        """Ids that a checkpoint lets go: what it releases, and itself once all of that is gone."""
        ids = list(map(str, said(one.metadata, "releases", [])))
        yield from ids
        if ids and one.type == "post_operation" and not any(map(self._there, ids)):
            yield one.id

    def _there(self, id_: str) -> bool:
        timeline, _, number = id_.rpartition("@")
        if timeline != self._line.timeline or not number.isdecimal():
            return True  # nobody here can tell
        line = self._line.history.points.line()
        return line.floor.holds(int(number), line.ledger.before)
