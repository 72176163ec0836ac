"""Ending a timeline that nothing needs any more: a trial, an import that was not taken over.

The chain says so itself, in three entries: one that leaves the timeline empty, the anchor of a
pruning up to there (`prune`), and the end, behind which nobody writes. Killed in between, the
timeline is there, perhaps empty, and is ended again. If something comes to need a state of it
between the first two, nothing is pruned, and it becomes again what it was.

What stays are the envelopes of its entries, so that witnesses still fit and the feed's rows lead
somewhere, and its name, which is not used again. Refused is one of which other timelines use
anything: rows that are in use could never be dropped once it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError, InvalidInputError, StillNeededError
from holdfast.store.commit.stage import Stage, stand_on
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry as entries
from holdfast.store.journal.entry import Body
from holdfast.store.journal.floor import beside_pruning
from holdfast.store.journal.save import BEFORE
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names.arguments import check_text
from holdfast.store.names.items import Pruned
from holdfast.store.names.threads import undivided
from holdfast.store.rules.hold_reasons import END
from holdfast.store.tree.tree import Node
from holdfast.store.upkeep.holds import refuse_end
from holdfast.store.upkeep.prune import Marks, prune_state


def end_line(handle: LineHandle, reason: str | None) -> Pruned:
    """End a timeline of which nothing is kept (`holds`); what it cost is given back."""
    if handle.timeline == "main":
        raise InvalidInputError(
            f"{handle.scope}: main cannot be ended; a scope is deleted as a whole, and its past "
            "is pruned"
        )
    if reason is not None:
        check_text(reason, "the reason of a change")
    handle.ask("prune", handle.timeline)
    refuse_end(handle)
    # Without the right to prune: what the others use may be pruned by somebody meanwhile.
    ledger = handle.history.points.line().ledger
    beside_pruning(ledger, lambda: _check_unused(handle, handle.history.points.line()))
    empty = handle.write(_empty, reason).sequence
    try:
        done = prune_state(
            handle, empty, keep=(), dry_run=False, reason=reason, deed=END, alone=True
        )
    except StillNeededError as why:
        raise _taken_back(handle, empty, reason, why) from None
    handle.write(_end, reason, head=done.anchor)  # else somebody wrote to it meanwhile
    return done


@contextmanager
def ended_if_it_fails(line: LineHandle, reason: str) -> Iterator[None]:
    """Around what puts a state together on a timeline of its own: that is not left behind."""
    try:
        yield
    except BaseException as error:  # also when cancelled: nobody would come back for it
        end_after(error, line, reason)
        raise


def end_after(error: BaseException, line: LineHandle, reason: str) -> None:
    """End a timeline because of an error; if that cannot be done, a note on the error names it."""
    try:
        with undivided():
            end_line(line, reason)
    except HoldfastError as left:
        error.add_note(
            f"{line.scope}: the timeline {line.timeline} is left behind ({type(left).__name__}); "
            "Retention(store).end() ends it"
        )


def _empty(stage: Stage, body: Body) -> None:
    """Go back to the state before the first entry; also what a restore leaves alone goes."""
    _become(stage, body, stage.ledger.trees.empty, stage.ledger.before)


def _become(stage: Stage, body: Body, root: Node, sequence: int) -> None:
    """Go back to the whole state at an entry of the timeline; no checkpoint keeps that of now."""
    stage.become(root, stage.sequence + 1)
    stage.save(BEFORE)
    body.ops = [[entries.RESTORE, stage.timeline.number, sequence, root.hash]]
    stage.finish(body)


def _taken_back(
    handle: LineHandle, empty: int, reason: str | None, why: StillNeededError
) -> StillNeededError:
    """Undo that a timeline was left empty; the error that tells so."""
    points, state = handle.history.points, "its state is what it was"
    try:
        before = points.view(handle.timeline, empty - 1)
        anchors = points.anchors(handle.timeline, empty - 1)

        def special(stage: Stage, body: Body) -> None:
            stand_on(stage, before, empty - 1, anchors)
            _become(stage, body, before.folded(), empty - 1)

        handle.write(special, reason, head=empty)
    except HoldfastError as error:  # as if somebody wrote to it since
        state = (
            f"it was left empty ({type(error).__name__}); what it was is the state at "
            f"{handle.timeline}@{empty - 1}"
        )
    return StillNeededError(
        f"{why}: it was marked, forked or restored while {handle.timeline} was being ended. That "
        f"is not done, and {state}. Take the mark back (`Retention.unpin`, `Retention.lift`), or "
        "end what began from it, and end it again"
    )


def _end(stage: Stage, body: Body) -> None:
    stage.gone = True
    body.ops = [[entries.END]]
    stage.finish(body)


def _check_unused(handle: LineHandle, line: Timeline) -> None:
    ledger, others = line.ledger, []
    for number, name, _, _ in handle.core.lines(ledger):
        if number == line.number:
            continue
        others.append(number)
        at = handle.core.timeline(ledger, name).merged
        while at:
            *_, body = ledger.entry_at(number, at)
            _, merged, _, _, at = body.ops[0]
            if merged == line.number:
                raise _needed(handle, f"{name} was merged with it")
    marks = Marks(ledger, line.number, line.sequence)
    marks.saves(others)
    if marks.values or marks.nodes:
        raise _needed(handle, "states of other timelines hold what was written on it")


def _needed(handle: LineHandle, why: str) -> StillNeededError:
    return StillNeededError(
        f"{handle.scope}: the timeline {handle.timeline} cannot be ended: {why}. Prune that one "
        "past it first, or end it"
    )
