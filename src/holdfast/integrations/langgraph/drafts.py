"""A change of one thread while it is put together."""

from __future__ import annotations

import hashlib
from typing import Any

from holdfast.integrations.langgraph.messages import Kept, simple
from holdfast.integrations.langgraph.records import INLINE, NAMES, PARTS, Space
from holdfast.integrations.langgraph.thread import Loaded, Thread, messages
from holdfast.store.change import Written
from holdfast.store.entries import Cause
from holdfast.store.gates import Operation
from holdfast.store.writing import build_change


class Draft:
    """A change of one thread while it is put together."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.operations: list[Operation] = []
        self.expects: dict[str, int] = {}
        self.kept: dict[str, dict[str, Any]] = {}
        """By namespace, what long channels hold after this change."""
        self.heads: dict[str, str] = {}
        """By namespace, the checkpoint that this change puts."""
        self.calls: dict[str, list[Any]] = {}
        """Writes that this change adds."""
        self._start_parts()

    def _start_parts(self) -> None:
        reader = self.thread.reader
        self._versions = {PARTS: reader.version(PARTS), NAMES: reader.version(NAMES)}
        self.thread.parts.begin(reader.length(PARTS))
        self.thread.names.begin(reader.get(NAMES, [], None, True))

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
        for ns, kept in self.kept.items():
            thread.kept[ns] = (written[0].sequence, kept)
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
            if self._grown(space, name, value, known.get(name) if name in was else None):
                apart.append(name)
                continue
            if name in was and messages(value):
                thread.learn(space, name)
            plain = thread.types.plain(value, thread.parts.ref)
            data = thread.core.codec.encode(thread.core.codec.plain(plain))
            if len(data) <= INLINE:
                short[name] = plain
                continue
            apart.append(name)
            self._set(space, name, value, plain, data, known.get(name) if name in was else None)
        for name in was.difference(apart):
            self.note("delete", space.channel(name))
        return short, apart

    def _grown(self, space: Space, name: str, value: Any, known: Any) -> bool:
        """Whether a list of messages is the known one, or that one with more at its end."""
        if type(known) is not Kept or type(value) is not list:
            return False
        grown = known.grown(value)
        if grown is None:
            return False
        now, count = grown
        refs = [self.thread.parts.ref(message) for message in value[count:]]
        if refs:
            self.note("append", space.channel(name), refs)
            now.simple = known.simple and all(
                simple(self.thread.types.plain(message).value) for message in value[count:]
            )
        self.kept[space.ns][name] = now
        return True

    def _set(
        self, space: Space, name: str, value: Any, plain: Any, data: bytes, known: Any
    ) -> None:
        digest = hashlib.sha256(data).digest()
        if known != digest:
            self.note("set", space.channel(name), plain)
        kept = None
        if messages(value):
            fields = [self.thread.types.plain(message).value for message in value]
            kept = Kept.of(value, all(map(simple, fields)))
        self.kept[space.ns][name] = kept or digest
