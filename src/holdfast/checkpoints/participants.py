"""What others hold in memory when a process ends: collected into its last checkpoints, and given
back at the next start.

It lies under `$shutdown/collected` of a scope of theirs, so the checkpoint that is made of the
scope covers it. Whoever has been given it back has it: it is removed then, and a start after a
crash finds nothing that was done before. Nor does one after a restore, for it is sticky.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.checkpoints.schedule.schedule import target_of
from holdfast.errors import InvalidInputError
from holdfast.store.commit.core import Core
from holdfast.store.commit.request import Asked, build_change
from holdfast.store.history.handle import LineHandle
from holdfast.store.names.arguments import check_plain_function, ran
from holdfast.store.names.cause import cause_now
from holdfast.store.names.scope import Scope
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.sticky import COLLECTED

_KEY = COLLECTED + "collected"
_log = logging.getLogger("holdfast.shutdown")


class Participant(Protocol):
    """Something that holds what is worth keeping in memory only, such as a queue at work."""

    def collect(self) -> Any:
        """What is to be kept of it: a value as `set` takes it.

        It must change nothing: where a signal is not the end, it is called again at the end, and
        what it gives then takes the place of what it gave before.
        """

    def restore(self, kept: Any, /) -> Any:
        """Take up again what `collect` gave before the last end.

        It may get the same once more: if the block does not begin after all, or the process is
        killed before it is noted who has it.
        """


class Participation:
    """One participant, and the timeline that keeps what it holds."""

    def __init__(self, core: Core, target: Any, participant: Participant) -> None:
        scope, timeline = target_of(core, target)
        self.line = (Scope.parse(scope or ""), timeline)
        self._handle = LineHandle(core, *self.line)
        self._participant = participant
        for name in ("collect", "restore"):
            function = getattr(participant, name, None)
            check_plain_function(function, f"{name} of what takes part for {scope}")

    def kept(self) -> list[Any]:
        """What was collected, as the only item; empty if nothing was, or somebody took it."""
        found = self._handle.reader.get(_KEY, None, None, False)
        return [] if found is None else [found["value"]]

    def give(self, kept: Any) -> None:
        """Let it have that again."""
        ran(self._participant.restore(kept), "restore of a participant")

    def collect(self) -> list[Any]:
        """What it holds now, as the only item; empty if it cannot say."""
        try:
            return [ran(self._participant.collect(), "collect of a participant")]
        except Exception:
            _log.exception("%s: nothing was collected of what takes part", self.line[0])
            return []

    def keep(self, held: list[Any]) -> None:
        """Store what was collected. What cannot be stored keeps nothing else from being stored."""
        try:
            for value in held:
                operation = Operation("set", _KEY, {"value": value})
                change, _ = self._handle._plan([operation], self._handle._version)
                self._handle.core.run(change)
        except Exception as error:
            _log.error("%s: what was collected is not kept: %s", self.line[0], error)


def participations(core: Core, given: Mapping[Any, Participant] | None) -> list[Participation]:
    """Those who take part, checked before anything begins."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise InvalidInputError("participants are objects by their scopes, as in 'custom:queue'")
    made = [Participation(core, target, one) for target, one in given.items()]
    if len({one.line for one in made}) < len(made):
        raise InvalidInputError("participants have a timeline each: what one holds is kept there")
    return made


def note_taken(core: Core, by: Sequence[Participation]) -> None:
    """Note that these have what was kept for them: all, or none."""
    asked: list[Asked] = [(*one.line, [Operation("delete", _KEY)], {}, None) for one in by]
    if asked:
        change = build_change(core, asked, cause=cause_now())
        change.linked = False  # they have nothing to do with each other
        core.run(change)
