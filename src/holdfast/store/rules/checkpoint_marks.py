"""Checkpoints that are marked to stay, or held, and who may not remove them.

Marks are keys of the main timeline that no restore takes back, whatever is declared (`sticky`), and
no revert, but for a restart that was asked for; the layer above puts them there and takes them
back. Nobody prunes what is pinned, on hold or held (`store.upkeep.holds`), and no scope with a
hold is deleted, or erased unless that is said.

The key of a mark ends with the checkpoint's id. Timelines may have names that no key can hold as
they are (`a..b`, accents that are signs of their own): of those it has the number, `@3@17`, which
no id looks like, since names have no `@`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.errors import StillNeededError

if TYPE_CHECKING:
    from holdfast.store.journal.directory import Directory
    from holdfast.store.journal.key_range import Found
    from holdfast.store.journal.ledger import Ledger
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
HOLDS = f"{PREFIX}hold/"


def marked_id(core: Directory, ledger: Ledger, key: str) -> str:
    """The id of the checkpoint that a mark is on."""
    timeline, _, number = key.split("/", 2)[2].rpartition("@")
    if timeline.startswith("@"):
        known = core.names(ledger).items()
        timeline = next((name for name, at in known if at == int(timeline[1:])), timeline)
    return f"{timeline}@{number}"


def check_no_holds(core: Directory, ledger: Ledger, holds: Iterable[Found]) -> None:
    """Refuse, in the commit that would end a scope, if one of its checkpoints is on hold."""
    for key, _ in holds:
        raise on_hold(ledger.scope, marked_id(core, ledger, key))


def on_hold(scope: Scope, id_: str) -> StillNeededError:
    """The error for a scope that is to end though a checkpoint of it is on hold."""
    return StillNeededError(
        f"{scope}: {id_} is on hold: lift that first (`Retention.lift`), or "
        "erase it with despite_holds=True"
    )
