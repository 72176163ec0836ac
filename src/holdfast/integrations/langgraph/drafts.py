"""A change of one thread while it is put together."""

from __future__ import annotations

import hashlib
from typing import Any

from holdfast.integrations.langgraph.messages import Growth, Kept, short_list, simple
from holdfast.integrations.langgraph.records import INLINE, NAMES, PARTS, Record, Space
from holdfast.integrations.langgraph.thread import Loaded, Thread
from holdfast.store.change import Written
from holdfast.store.entries import Cause
from holdfast.store.gates import Operation
from holdfast.store.writing import build_change

MESSAGES = 16
"""Messages up to which a list lies in the head itself."""


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
        self._start_parts()

    def _start_parts(self) -> None:
        # All that is read for a change is of one moment; if that is over, the change fails.
        self.reader = reader = self.thread.pinned()
        self._versions = {PARTS: reader.version(PARTS), NAMES: reader.version(NAMES)}
        self.thread.parts.begin(reader.length(PARTS))
        self.thread.learn_names(reader)
        self.thread.names.begin()

    def note(self, kind: str, key: str, value: Any = None) -> None:
        """Add an operation."""
        self.operations.append(Operation(kind, key, value))

    def write(self, key: str, call: list[Any]) -> None:
        """Add to a list of writes."""
        self.calls.setdefault(key, []).append(call)
        self.note("append", key, [call])

    def commit(self, cause: Cause | None) -> list[Written]:
        """Write it; `Conflict` if somebody was faster."""
        thread = self.thread
        for key, new in ((PARTS, thread.parts.new), (NAMES, thread.names.new)):
            if new:
                # Numbers were given out: nobody else may have done so meanwhile.
                self.operations.insert(0, Operation("append", key, [*new]))
                self.expects[key] = self._versions[key]
        if not self.operations:
            return []
        target = (thread.scope, "main", self.operations, self.expects, None)
        written = thread.core.run(build_change(thread.core, [target], cause=cause))
        thread.parts.stored()
        for ns, record in self.heads.items():
            thread.heads[ns] = (written[0].sequence, record)
        for ns, kept in self.kept.items():
            known = {k: v.kept() if type(v) is Growth else v for k, v in kept.items()}
            thread.kept[ns] = (written[0].sequence, known)
        return written

    # channels

    def channels(
        self, space: Space, given: dict[str, Any], before: Loaded | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Write what differs; returns short values in plain form, and who has a key of its own."""
        thread = self.thread
        known: dict[str, Any] = {}
        if before is not None:
            if thread.kept.get(space.ns, (0, {}))[0] != before.entry and before.record.apart:
                thread.values(space, before)  # reads and keeps what is stored
            version, known = thread.kept.get(space.ns, (0, {}))
            known = known if version == before.entry else {}
        was = set(before.record.apart) if before is not None else set()
        self.kept[space.ns] = {}
        short: dict[str, Any] = {}
        apart: list[str] = []
        for name, value in given.items():
            before_value = known.get(name)
            refs = self._grown(space, name, value, before_value, name in was)
            if refs is None:
                if name in was and thread.lists_messages(value):
                    thread.learn(space, name)
                plain = thread.types.plain(value, thread.parts.ref)
            elif name in was:
                apart.append(name)
                continue
            else:
                plain = refs
            if refs is not None and len(refs) <= MESSAGES:
                short[name] = short_list(refs)
                continue
            data = thread.core.codec.encode(thread.core.codec.plain(plain))
            if len(data) <= INLINE:
                short[name] = short_list(plain) if thread.lists_messages(value) else plain
            else:
                apart.append(name)
                digest = hashlib.sha256(data).digest()
                if name not in was or before_value != digest:
                    self.note("set", space.channel(name), plain)
            if refs is None:
                self._keep(space, name, value, plain, data)
        for name in was.difference(apart):
            self.note("delete", space.channel(name))
        return short, apart

    def _grown(
        self, space: Space, name: str, value: Any, known: Any, apart: bool
    ) -> list[Any] | None:
        """The refs of a list of messages that is the known one, or that one with more at its end.

        None if it is another. Of a list that has a key of its own only the new refs are noted.
        """
        if type(known) is not Kept or type(value) is not list:
            return None
        now = known.grown(value)
        if now is None or (known.refs is None and not apart):
            return None
        added = value[known.length :]
        refs = [self.thread.parts.ref(message) for message in added]
        plain = self.thread.types.plain
        now.simple = known.simple and all(simple(plain(message).value) for message in added)
        self.kept[space.ns][name] = now
        if apart:
            if refs:
                self.note("append", space.channel(name), refs)
            return refs
        now.refs = [*(known.refs or ()), *refs]
        return now.refs

    def _keep(self, space: Space, name: str, value: Any, plain: Any, data: bytes) -> None:
        """Keep what a channel holds now, to compare with when it is put next."""
        kept = None
        if self.thread.lists_messages(value):
            fields = [self.thread.types.plain(message).value for message in value]
            kept = Kept.of(value, all(map(simple, fields)))
            if kept is not None and len(data) <= INLINE:
                kept.refs = plain
        if kept is not None:
            self.kept[space.ns][name] = kept
        elif len(data) > INLINE:
            self.kept[space.ns][name] = hashlib.sha256(data).digest()
