"""Writing long bytes under a key, piece by piece; the key changes when it is closed.

What turns out to be short is set like any other value. What is long becomes an upload.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any

from holdfast.errors import (
    Conflict,
    GateRefusedError,
    InvalidInputError,
    ReadOnlyError,
    StateIntegrityError,
)
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.change_request import ask_gates
from holdfast.store.commit.stage import Stage
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.declared import Declared
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.long.long_reader import ByteTree
from holdfast.store.long.uploads import Upload
from holdfast.store.names.arguments import check_version
from holdfast.store.names.cause import cause_now
from holdfast.store.names.items import LongValue
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.rules.classes import SENSITIVE
from holdfast.store.rules.ephemeral import ephemeral_prefixes
from holdfast.store.rules.gate_request import GateRequest, Operation

SHORT = 1 << 20
"""Bytes up to which a value is set by one entry, with its chunks beside it."""
ATTEMPTS = 10


class _Moved(Conflict):
    """The scope of this name is another one than that which the rows were written for."""


class LongWriter:
    """Bytes on their way to a key; several threads take turns, each with a whole piece.

    It ends by `commit` or `abort`. An error ends it, too: then nothing of it is ever seen.
    """

    def __init__(self, handle: LineHandle, key: str, if_version: int | None) -> None:
        if handle.reader.at is not None:
            raise ReadOnlyError(f"{handle.scope}: a view of the past cannot be changed; fork it")
        handle.core.check_writable()
        check_version(if_version)
        self._handle = handle
        self.key = check_key(key)
        self._expects = {self.key: if_version} if if_version is not None else {}
        self._cause = cause_now()
        self._short = bytearray()
        self._upload: Upload | None = None
        self._turn = threading.RLock()
        self.over = ""
        """Why it has ended; empty while it has not."""
        self.size = 0
        self.version: int | None = None
        """The entry that it became; None before."""

    def holds(self, size: int) -> bool:
        """Whether so many bytes more can be taken without cutting or storing any."""
        return self._upload is None and len(self._short) + size <= SHORT

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Take more bytes; returns how many."""
        data = as_bytes(data)
        with self._turn:
            self._check()
            try:
                if self.holds(len(data)):
                    self._short += data
                else:
                    self._begin().write(data)
            except BaseException:
                self.abort("it failed before")
                raise
            self.size += len(data)
        return len(data)

    def commit(self) -> int:
        """Let the key have what was written; returns the entry's number."""
        with self._turn:
            return self._commit()

    def _commit(self) -> int:
        self._check()
        try:
            if self._upload is None:
                operation = Operation("set", self.key, bytes(self._short))
                change, finish = self._handle._plan(
                    [operation], self._handle._version, expects=self._expects, cause=self._cause
                )
                self.version = finish(self._handle.core.run(change))
            else:
                self._ask()
                self.version = self._named()
        except BaseException:
            self.abort("it failed before")
            raise
        self.over = "it is closed"
        assert self.version is not None
        return self.version

    def abort(self, why: str = "it was given up") -> None:
        """Forget what was written; the key stays as it is."""
        with self._turn:
            if not self.over:
                self.over = why
                self._short.clear()
                if self._upload is not None:
                    self._upload.abandon()

    def __del__(self) -> None:
        # Let go of unfinished. This runs anywhere, even inside a commit, so it only says so: the
        # thread that beats drops the rows.
        upload = getattr(self, "_upload", None)
        if upload is not None:
            upload.pin.over = True

    def _check(self) -> None:
        if self.over:
            raise InvalidInputError(
                f"{self._handle.scope}: {self.key!r} cannot be written on: {self.over}; "
                "open it again and write all of it"
            )
        self._handle.core.check_writable()

    # uploads

    def _begin(self) -> Upload:
        if self._upload is None:
            _refuse_ephemeral(self._handle, self.key)
            self._ask()
            self._upload = self._new_upload()
            self._upload.write(self._short)
            self._short.clear()
        return self._upload

    def _new_upload(self) -> Upload:
        core, handle = self._handle.core, self._handle
        # It knows nothing of this writer, which is let go of when nobody else has it.
        guard = partial(_refuse_ephemeral, handle, self.key)
        quiet = True  # for all we know, if what is declared cannot be read
        # A state that cannot be read is told when the entry is built; here it only spares rows.
        with suppress(StateIntegrityError):
            quiet = handle.reader.class_of(self.key) == SENSITIVE
            timeline = handle.reader.now()
            slot = timeline.slot(self.key) if timeline is not None else None
            if timeline is not None and slot is not None:
                old = (slot.ref, slot.location)
                upload = Upload(core, timeline.ledger, old, quiet=quiet, guard=guard)
                upload.anchors = timeline.floor.number
                return upload
        for _ in range(ATTEMPTS):
            ledger = core.ledger(handle.scope, create=True)
            # The keys of a scope that the entry will bring into being are durable before its rows.
            with suppress(Conflict):  # the master is being rotated: they are made anew
                core.commit_ring([ledger])
                return Upload(core, ledger, None, quiet=quiet, guard=guard)
        raise Conflict(f"{handle.scope}: the master key is rotated again and again; try again")

    def _ask(self) -> None:
        """Lead the value through the gates in front; how long it is so far is what they see."""
        core, handle = self._handle.core, self._handle
        if not core.gates.front:
            return
        operations = [Operation("set", self.key, LongValue(self.size))]
        request = GateRequest(handle.scope, handle.timeline, operations, self._cause)
        given = deepcopy(request)
        asked = ask_gates(core, request)
        self._cause, asked.cause = asked.cause, given.cause
        if asked != given:
            raise GateRefusedError(
                f"{handle.scope}: a gate replaces {self.key!r}, which is too long for that; "
                "set it whole"
            )

    def _named(self) -> int:
        """Commit the entry that names the upload; written anew if the scope is another one now."""
        assert self._upload is not None
        shape = self._upload.finish()
        for _ in range(ATTEMPTS):
            try:
                return self._enter(self._upload, shape)
            except _Moved:
                old, self._upload = self._upload, self._new_upload()
                for piece in ByteTree(old.ledger, shape[1], shape[2]).pieces():
                    self._upload.write(piece)
                old.abandon()
                shape = self._upload.finish()
        raise Conflict(f"{self._handle.scope}: it was deleted again and again; try again")

    def _enter(self, upload: Upload, shape: list[Any]) -> int:
        core, pin = self._handle.core, upload.pin
        ledger: Ledger = upload.ledger

        def special(stage: Stage, body: Body) -> None:
            if stage.ledger.number != ledger.number:
                raise _Moved(f"{ledger.scope}: it was deleted meanwhile")
            _check_ephemeral(ledger.scope, self.key, stage.declared)
            upload.enter(stage)
            stage.add([("ahead", self.key, shape)], body)

        target = Target(self._handle.scope, self._handle.timeline, [], self._expects)
        target.special = special
        with pin.lock:  # its value stays what the commit expects
            try:
                written = core.run(Change([target], self._cause))
            except Conflict:
                core.pins.check(pin)
                raise
            core.pins.let_go(pin)
        return written[0].sequence


def _refuse_ephemeral(handle: LineHandle, key: str) -> None:
    """Refuse before anything is stored, by what is declared now: it may be so meanwhile."""
    # Damage is told when the entry is built.
    with suppress(StateIntegrityError):
        timeline = handle.reader.now()
        if timeline is not None:
            _check_ephemeral(handle.scope, key, timeline.declared)


def _check_ephemeral(scope: Scope, key: str, declared: Declared) -> None:
    if key.startswith(ephemeral_prefixes(declared)):
        raise InvalidInputError(
            f"{scope}: {key!r} is ephemeral and this value is too long for that; store it under "
            "another key"
        )


def as_bytes(data: Any) -> bytes | bytearray | memoryview:
    """Something made of bytes, as such."""
    if type(data) in (bytes, bytearray):
        return data  # type: ignore[no-any-return]
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidInputError(
            f"only bytes can be written, not {type(data).__name__}; encode text first"
        ) from None
