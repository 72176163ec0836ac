"""Sticky keys: covered by checkpoints, left alone by restore.

A restore names the older entry whose state it returns to and the prefixes that it left alone; the
state is then that of the older entry with the keys of now under those prefixes. So its entry
stays short, however many sticky keys there are, and only where the two states differ is read.

Below it: the keys that are so whatever is declared (marks of checkpoints).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from holdfast.errors import InvalidInputError, StillNeededError
from holdfast.store.journal.declared import PREFIX, Declared, PrefixDeclaration
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import Found
from holdfast.store.names.scope import Scope
from holdfast.store.rules.gate_request import Operation
from holdfast.store.rules.owned import TABLE


@dataclass(frozen=True)
class Sticky(PrefixDeclaration):
    """Keys that begin with the prefix are left alone by a restore.

    For what has happened in the world and is not undone by going back: effects done, money
    spent. Checkpoints cover such keys like all others.
    """

    kind: ClassVar[str] = "sticky"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.prefix:
            raise InvalidInputError(
                "Sticky takes a prefix that is not empty: else a restore would restore nothing"
            )


def sticky_prefixes(declared: Declared) -> tuple[str, ...]:
    """The prefixes that a restore leaves alone, in the form that it needs.

    Declarations are among them whatever is declared, and what always stays (`Owned`): nobody lifts
    a hold by going back.
    """
    return apart([PREFIX, *TABLE.index.always, *(one.prefix for one in declared.of(Sticky))])


def sticky_along(
    operations: Sequence[Operation], declared: Callable[[], Declared]
) -> list[Operation]:
    """What a change has to declare with the first records of features that restores leave alone."""
    found: dict[str, Operation] = {}
    for one in operations:
        rule = TABLE.index.rule(one.key) if one.kind in ("set", "append") else None
        prefix = rule.sticky(one.key) if rule is not None else ""
        if prefix and prefix not in found:
            wanted = Sticky(prefix)
            if wanted not in declared().all:
                found[prefix] = Operation("set", wanted.key, wanted.data())
    noted = {one.key for one in operations}
    return [one for one in found.values() if one.key not in noted]


def apart(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Prefixes sorted, none the beginning of another."""
    found: list[str] = []
    for prefix in sorted(prefixes):
        if not found or not prefix.startswith(found[-1]):
            found.append(prefix)
    return tuple(found)


# ---- checkpoint marks ---------------------------------------------------------------------------
# Checkpoints that are marked to stay, or held, and who may not remove them.
#
# Marks are keys of the main timeline that no restore takes back, whatever is declared (`sticky`),
# and no revert, but for a restart that was asked for; the layer above puts them there and takes
# them back. Nobody prunes what is pinned, on hold or held (`store.upkeep.holds`), and no scope with
# a hold is deleted, or erased unless that is said.
#
# The key of a mark ends with the checkpoint's id. Timelines may have names that no key can hold as
# they are (`a..b`, accents that are signs of their own): of those it has the number, `@3@17`, which
# no id looks like, since names have no `@`.


MARKS = "$retention/"
RESTART = "restart"
"""Marks a checkpoint from which an agent is to be started again, until that is done."""
NEEDED = {"pin": "pinned", "hold": "on hold", RESTART: "a restart"}
HOLDS = f"{MARKS}hold/"


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
