"""What of a timeline is in use: no rule removes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from holdfast.checkpoints.group import made_with
from holdfast.checkpoints.operation import failed_beside
from holdfast.errors import StateIntegrityError
from holdfast.store.inner import REASONS, LineHandle, Rest, StoreHandle, held, rests_on
from holdfast.store.names.items import Checkpoint, said
from holdfast.store.read.points import DELETED


@dataclass(frozen=True, slots=True)
class Judged:
    """A checkpoint, and what becomes of it."""

    checkpoint: Checkpoint
    stays: bool
    why: str


class Needs:
    """The checkpoints of a timeline that are in use, and why."""

    def __init__(self, main: LineHandle, line: LineHandle, marked: Mapping[str, str]) -> None:
        self._line = line
        self._marked = marked
        """Those that are pinned or on hold."""
        self._rests = {one.sequence: one for one in rests_of(line)}
        self.entries = set(self._rests)
        """What others rest on and no checkpoint was found at, of those that were asked about."""
        self._starts = {(info.parent, info.start) for info in main.history.timelines()}
        now = line.history.points.line()  # what begins after this is behind it
        self._floor, self._before, self._newest = now.floor, now.ledger.before, now.sequence
        found = held(line)
        self._held = {one.checkpoint.id: REASONS[one.why] for one in found}
        begun = [one.checkpoint.sequence for one in found if one.why == "recovery"]
        for one in found:
            if one.why == "operation":
                begun.append(failed_beside(line, one.checkpoint)[0])
        self.begun = min([*begun, self._newest])
        """Behind this entry nothing is pruned: undoing an operation takes all that it wrote, and
        what others wrote beside it that failed; undoing a recovery what others wrote meanwhile."""

    def why(self, one: Checkpoint) -> str:
        """Why a checkpoint stays whatever the rules say; empty if it need not."""
        self.entries.discard(one.sequence)
        if one.id in self._marked:
            return self._marked[one.id]
        if (self._line.timeline, one.sequence) in self._starts:
            return "a timeline starts from it"
        if one.id in self._held:
            return self._held[one.id]
        if one.sequence in self._rests:
            return f"{self._rests[one.sequence].name(self._line.core)} rests on it"
        if one.sequence == self._newest:
            return "it is the newest entry"
        if one.sequence >= self.begun:
            return "an operation or recovery that began before it is not over"
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
        return self._floor.holds(int(number), self._before)


def rests_of(line: LineHandle) -> Iterator[Rest]:
    """The checkpoints of other scopes that rest on entries of a timeline."""
    timeline = line.history.points.line()
    return (one for one in rests_on(timeline.ledger) if one.timeline == timeline.number)


class Together:
    """Keeps the members of a group while any other one stays: they are restored together.

    `staying` gives the checkpoints of a scope that stay by themselves. So members whose rules all
    let them go do go, one scope after the other. Where damage leaves open what stays of another
    scope, the members here stay, and all else of this one goes by its rules.
    """

    def __init__(self, handle: StoreHandle, staying: Callable[[str], Iterable[Checkpoint]]) -> None:
        self._handle = handle
        self._staying = staying
        self._known: dict[str, set[str] | None] = {}
        """Of each scope, the groups of which a member stays by itself; None: nobody can tell."""

    def judged(self, one: Judged) -> Judged:
        """What becomes of a checkpoint, its group considered."""
        group = said(one.checkpoint.metadata, "group", "")
        if one.stays or not group:
            return one
        for scope, _, _ in made_with(self._handle, one.checkpoint):
            if scope == DELETED:
                continue
            if scope not in self._known:
                self._known[scope] = self._groups(scope)
            known = self._known[scope]
            if known is None:
                why = f"{scope} is damaged, so nobody can tell whether it keeps one of its group"
                return Judged(one.checkpoint, True, why)
            if group in known:
                return Judged(one.checkpoint, True, f"{scope} keeps another one of its group")
        return one

    def _groups(self, scope: str) -> set[str] | None:
        try:
            return {said(other.metadata, "group", "") for other in self._staying(scope)}
        except StateIntegrityError:
            return None
