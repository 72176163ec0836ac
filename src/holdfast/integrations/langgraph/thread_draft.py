"""A change of one thread while it is put together."""

from __future__ import annotations

import hashlib
from typing import Any

from holdfast.errors import Conflict
from holdfast.integrations.langgraph.messages import BEGIN, short_list
from holdfast.integrations.langgraph.messages_seen import Kept
from holdfast.integrations.langgraph.records import INLINE, NAMES, PARTS, Record, Space
from holdfast.integrations.langgraph.thread import Thread
from holdfast.integrations.langgraph.thread_past import Loaded
from holdfast.integrations.langgraph.types.types import LISTED
from holdfast.seal.codec import Typed
from holdfast.store.commit.change import Written
from holdfast.store.commit.request import build_change
from holdfast.store.journal.entry import Cause
from holdfast.store.rules.gates import Operation

MESSAGES = 16
"""Messages up to which a list lies in the head itself."""
_APPENDED: Any = object()


class Draft:
    """A change of one thread while it is put together."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.operations: list[Operation] = []
        self.expects: dict[str, int] = {}
        self.kept: dict[str, dict[str, Any]] = {}
        """By namespace, what long channels hold after this change."""
        self.heads: dict[str, Record] = {}
        """By namespace, the checkpoint that this change puts."""
        self.calls: dict[str, list[Any]] = {}
        """Writes that this change adds."""
        self._whole = False
        self._start_parts()

    def _start_parts(self) -> None:
        # All that is read for a change is of one moment; if that is over, the change fails.
        thread = self.thread
        self.reader = reader = thread.pinned()
        self._before = reader.at.sequence if reader.at is not None else 0
        self.life = reader.at.ledger.number if reader.at is not None else 0
        self._alone = 0 < self._before == thread.last
        """Whether nobody else has written since this thread's last change."""
        self._versions = {NAMES: thread.learn_names(reader)}
        if self._alone:
            thread.parts.again()
        else:
            self._versions[PARTS] = reader.version(PARTS)
            thread.parts.begin(self._versions[PARTS], reader.length(PARTS))
        thread.names.begin()

    @property
    def entry(self) -> int:
        """The least number that its entry can have."""
        return self._before + 1

    def note(self, kind: str, key: str, value: Any = None) -> None:
        """Add an operation."""
        self.operations.append(Operation(kind, key, value))

    def write(self, key: str, call: list[Any]) -> None:
        """Add to a list of writes."""
        self.calls.setdefault(key, []).append(call)
        self.note("append", key, [call])

    def rest_on_all(self) -> None:
        """Let nothing else be written together with what follows, nor come between.

        For what puts lists of writes in the place of those that are stored: one that is added to
        them meanwhile would be lost. `Conflict` if this change holds something already.
        """
        if self.operations:
            raise Conflict(f"thread {self.thread.id!r}: this has to be a change of its own")
        self._whole = True

    def commit(self, cause: Cause | None) -> list[Written]:
        """Write it; `Conflict` if somebody was faster."""
        thread = self.thread
        for key, new in ((PARTS, thread.parts.new), (NAMES, thread.names.new)):
            if new:
                self.operations.insert(0, Operation("append", key, [*new]))
        if not self.operations:
            return []
        # Numbers were given out or used: they must still mean what they meant.
        self.expects |= self._versions
        # That there is no new entry is told faster than that keys are the same.
        same = self._alone or self._whole
        expects, head = ({}, self._before) if same else (self.expects, None)
        target = (thread.scope, "main", self.operations, expects, head)
        written = thread.core.run(build_change(thread.core, [target], cause=cause))
        thread.parts.stored(written[0].sequence)
        follows = written[0].sequence == self._before + 1
        thread.last = written[0].sequence if follows else 0
        life = (self.life or thread.life_now()) if self.heads else 0
        for ns, record in self.heads.items():
            thread.heads[ns] = (written[0].sequence, record)
            thread.note_life(record.id, life)
        for ns, kept in self.kept.items():
            thread.kept[ns] = (written[0].sequence, kept)
        return written

    # channels

    def channels(
        self, space: Space, given: dict[str, Any], before: Loaded | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Write what differs; returns short values in plain form, and who has a key of its own."""
        thread = self.thread
        known = self._known(space, before)
        kept = self.kept[space.ns] = {}
        was = set(before.record.apart) if before is not None else set()
        short: dict[str, Any] = {}
        apart: list[str] = []
        for name, value in given.items():
            with thread.naming(name):
                same: Any = known.get(name)
                grown = None
                if type(same) is Kept and type(value) is list:
                    grown = same.grown(value, thread.parts.digest)
                if grown is not None:
                    kept[name] = grown
                    plain = self._grown(space.channel(name), value[same.count :], grown)
                elif thread.lists_messages(value):
                    if before is not None:
                        thread.learn(space, name, before.record, self.reader)
                    plain = self._listed(value, kept, name)
                else:
                    plain = thread.types.plain(value, thread.parts.ref)
            if plain is _APPENDED:
                apart.append(name)
            elif type(plain) is Typed and plain.name == LISTED:
                short[name] = plain
            else:
                with thread.naming(name):
                    data = thread.core.codec.encode(thread.core.codec.plain(plain))
                if len(data) <= INLINE and not _begins(plain):
                    short[name] = plain
                    continue
                apart.append(name)
                digest = hashlib.sha256(data).digest()
                kept.setdefault(name, digest)
                if name not in was or same != digest:
                    self.note("set", space.channel(name), plain)
        for name in was.difference(apart):
            self.note("delete", space.channel(name))
        return short, apart

    def _known(self, space: Space, before: Loaded | None) -> dict[str, Any]:
        """What the long channels of the newest checkpoint hold; it is read if it is not known."""
        kept = self.thread.kept
        if before is None:
            return {}
        if before.record.apart and kept.get(space.ns, (0, {}))[0] != before.entry:
            self.thread.values(space, before)  # reads and keeps what is stored
        version, known = kept.get(space.ns, (0, {}))
        return known if version == before.entry else {}

    def _grown(self, key: str, more: list[Any], grown: Kept) -> Any:
        """The plain form of a list of messages that is the known one with more at its end.

        If it has a key of its own, only what is new is added there.
        """
        places = self._places(more)
        if grown.places is not None:
            return _plain_list([*grown.places, *places], grown)
        if places:
            self.note("append", key, places)
        return _APPENDED

    def _listed(self, value: list[Any], kept: dict[str, Any], name: str) -> Any:
        """The plain form of a list of messages that is another than the known one."""
        found = Kept.of(value, self.thread.parts.digest)
        if found is not None:
            kept[name] = found
        return _plain_list(self._places(value), found)

    def _places(self, messages: list[Any]) -> list[Any]:
        """The places of messages; those that are new are stored with the change."""
        plain = self.thread.types.plain
        return [self.thread.parts.place(plain(message)) for message in messages]


def _plain_list(places: list[Any], kept: Kept | None) -> Any:
    """A list of messages, in the form for the head or for a key of its own."""
    short = len(places) <= MESSAGES
    if kept is not None:
        kept.places = places if short else None
    return short_list(places) if short else [BEGIN, *places]


def _begins(plain: Any) -> bool:
    return type(plain) is list and bool(plain) and plain[0] is BEGIN
