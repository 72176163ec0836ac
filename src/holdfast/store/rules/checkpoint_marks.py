"""Checkpoints that are marked to stay, or held, and who may not remove them.

Marks are keys of the main timeline that no restore takes back, whatever is declared (`sticky`), and
no revert, but for a restart that was asked for; the layer above puts them there and takes them
back. Here is what has to look at them: nobody prunes what is pinned, on hold or held (`held`), and
no scope with a hold is deleted, or erased unless that is said.

The key of a mark ends with the checkpoint's id. Timelines may have names that no key can hold as
they are (`a..b`, accents that are signs of their own): of those it has the number, `@3@17`, which
no id looks like, since names have no `@`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidKeyError, StillNeededError
from holdfast.store.journal.key_range import behind, stage_range
from holdfast.store.names.scope import check_key

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.commit.stage import Stage
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.journal.ledger import Ledger
    from holdfast.store.names.items import Pruned
    from holdfast.store.names.scope import Scope

PREFIX = "$retention/"
RESTART = "restart"
"""Marks a checkpoint from which an agent is to be started again, until that is done."""
NEEDED = {"pin": "pinned", "hold": "on hold", RESTART: "a restart"}
RESTARTS = f"{PREFIX}{RESTART}/"
LOOP = "$loop/"
"""Below it is the note of a restart that is asked for."""
ASKING = (LOOP, RESTARTS)
"""What asks for a restart: from a checkpoint of just this scope, so no copy of the state has it."""
_HOLDS = f"{PREFIX}hold/"
_RELEASED = {
    "mark": "take that back first (`Retention.unpin`, `Retention.lift`)",
    "restore": "confirm that first (`Checkpoints.confirm`)",
    "operation": "let it end, or decide about it first (`Checkpoints.finish`)",
    "recovery": "let it end first (`Recovery.resume`, `Recovery.abandon`)",
}
"""How what keeps a checkpoint is ended."""


def mark_key(main: LineHandle, kind: str, id_: str) -> str:
    """The key of a mark on a checkpoint of a scope."""
    key = f"{PREFIX}{kind}/{id_}"
    try:
        if check_key(key, owner=True) == key:
            return key
    except InvalidKeyError:
        pass
    timeline, _, number = id_.rpartition("@")
    return f"{PREFIX}{kind}/@{main.history.points.line(timeline).number}@{number}"


def marks_of(main: LineHandle, kind: str) -> Iterator[tuple[str, str]]:
    """(id, key) of the marks of a kind that a scope has."""
    line = main.reader.now()
    if line is not None:
        for key, _ in line.scan(f"{PREFIX}{kind}/"):
            yield _id(main.core, line.ledger, key), key


def _id(core: Core, ledger: Ledger, key: str) -> str:
    """The id of the checkpoint that a mark is on."""
    timeline, _, number = key.split("/", 2)[2].rpartition("@")
    if timeline.startswith("@"):
        known = core.names(ledger).items()
        timeline = next((name for name, at in known if at == int(timeline[1:])), timeline)
    return f"{timeline}@{number}"


def marked(main: LineHandle) -> dict[str, str]:
    """Ids of the checkpoints of a scope that are pinned, on hold or to go on from, and why."""
    return {
        id_: f"{word}: {main.reader.get(key)}"
        for kind, word in NEEDED.items()
        for id_, key in marks_of(main, kind)
    }


def marked_entries(line: LineHandle) -> dict[int, str]:
    """The same of one timeline, by the number of the checkpoint's entry."""
    split = ((id_.rpartition("@"), why) for id_, why in marked(line.on("main")).items())
    return {int(at[2]): why for at, why in split if at[0] == line.timeline}


def check_no_holds(core: Core, stage: Stage) -> None:
    """Refuse, in the commit that would end a scope, if one of its checkpoints is on hold."""
    for found in stage_range(stage, _HOLDS, behind(_HOLDS)):
        raise _held(stage.ledger.scope, _id(core, stage.ledger, found[0]))


def refuse_held(main: LineHandle) -> None:
    """The same, before anything is done."""
    for id_, _ in marks_of(main, "hold"):
        raise _held(main.scope, id_)


def _held(scope: Scope, id_: str) -> StillNeededError:
    return StillNeededError(
        f"{scope}: {id_} is on hold: lift that first (`Retention.lift`), or "
        "erase it with despite_holds=True"
    )


def _needed(line: LineHandle) -> dict[int, str]:
    """Entries of the checkpoints of a timeline that somebody needs: why, and who lets them go."""
    from holdfast.store.rules.checkpoint_holds import REASONS, held

    found = {
        one.checkpoint.sequence: f"held: {REASONS[one.why]}; {_RELEASED[one.why]}"
        for one in held(line, passed=[])
    }
    marks = marked_entries(line).items()
    return found | {number: f"{why}; {_RELEASED['mark']}" for number, why in marks}


def prune_unneeded(
    handle: LineHandle,
    before: Any,
    *,
    keep: Iterable[Any] | None,
    dry_run: bool,
    reason: str | None,
) -> Pruned:
    """Prune as somebody asks for it: refused if what is needed would go; see `State.prune`.

    What comes to be held meanwhile lies behind the point, where nothing goes; what is marked
    meanwhile may not, and stays, too.
    """
    from holdfast.store.upkeep.prune import prune_state

    if isinstance(keep, Iterable) and not isinstance(keep, str):
        keep = list(keep)
        points = handle.history.points
        last, kept = points.find(before)[1], {points.find(point)[1] for point in keep}
        for number, why in sorted(_needed(handle).items()):
            if number < last and number not in kept:
                raise StillNeededError(
                    f"{handle.scope}: {handle.timeline}@{number} is {why}, or name it in keep="
                )
    return prune_state(
        handle,
        before,
        keep=keep,
        dry_run=dry_run,
        reason=reason,
        needed=lambda: marked_entries(handle),
    )
