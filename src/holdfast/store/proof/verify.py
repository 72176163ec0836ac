"""Verifying: everything that is stored is read and checked against everything else.

Of each timeline all entries are replayed: the chain, the commitment to each body and to each
pack of values, the signature and root of each checkpoint, each saved index against the state that
the entries give. Of the store: the feed's lanes, the feed against the timelines, the directory,
and rows that nothing accounts for. A finding never stops it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.errors import (
    DataKeyRemovedError,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.seal.signer import parse_identity
from holdfast.store.commit.core import Core
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.save import Floor
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import odd_counts
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point
from holdfast.store.proof.cosign import Trust
from holdfast.store.proof.schedule_cells import check_schedules
from holdfast.store.proof.verify_line import LineCheck, find_floors, pruned_meanwhile
from holdfast.store.proof.verify_nodes import DAMAGE, NodeCheck
from holdfast.store.proof.verify_report import Finding, Report
from holdfast.store.proof.verify_rows import (
    Accounts,
    DirectoryCheck,
    FeedCheck,
    Leftovers,
    Standing,
    check_kinds,
    check_rests,
    check_scopes,
    check_subjects,
    check_timelines,
    find_timelines,
    read_standing,
)
from holdfast.store.proof.verify_uploads import UploadCheck, check_pins
from holdfast.store.proof.witness import Witness, read_witness, store_identity

ATTEMPTS = 5
_BEGINNING = ("", 0, 0, 0)
_RESUME = "resume takes what a report gave as `resume`"


class _Budget(Exception):
    """The time is used up."""


def verify_store(
    core: Core,
    scope: Scope | None = None,
    *,
    expect: str | None = None,
    identity: str | None = None,
    trust: Sequence[str] = (),
    require: int | None = None,
    budget: float | None = None,
    resume: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Report:
    """Verify a scope or the whole store; see `Store.verify`."""
    core.check_open()
    check = _Check(core, budget, progress)
    check.trust = Trust.of(trust, require)
    started = time.monotonic()
    with suppress(_Budget):
        check.run(scope, expect, identity, resume)
    check.report.seconds = time.monotonic() - started
    return check.report


class _Check:
    def __init__(
        self, core: Core, budget: float | None, progress: Callable[[str, int], None] | None
    ) -> None:
        self.core = core
        self.report = Report()
        self.end = time.monotonic() + budget if budget is not None else None
        self.progress = progress
        """Whether a second process may help: not in a part of the work, which reads nodes first."""
        self.feed = FeedCheck(self)
        self.public = core.public
        self.trust = Trust(frozenset(), 0)
        """Whose signatures are called for, whatever the store's own signer did."""
        self.accounts = Accounts(self)
        self.directory = DirectoryCheck(self)
        self.leftovers = Leftovers(self)
        self.floors: dict[tuple[int, int], Floor] = {}
        """Below which entry each timeline that was looked at is pruned."""
        self.swept = False
        """Whether the scope that is looked at was being pruned when that began."""
        self.whole = True

    def find(
        self, kind: str, place: str, message: str, scope: str = "", keys: Any = (), row: bytes = b""
    ) -> None:
        """Note a finding."""
        found = Finding(kind, place, message, scope, tuple(keys), row.hex())
        self.report.findings.append(found)

    def run(
        self, scope: Scope | None, expect: str | None, identity: str | None, resume: str | None
    ) -> None:
        self._identity(identity)
        witness = self._witness(expect) if expect is not None else None
        standing = read_standing(resume) if scope is None else None
        if standing is not None:
            self._left_over(standing)
            return
        start = _parse_resume(resume)
        self.whole = scope is None and resume is None
        with ThreadPoolExecutor(1, "verify") as beside:
            # The engine's check needs no interpreter: it runs meanwhile, unless time is short.
            checked = beside.submit(self._storage) if scope is None and self.end is None else None
            self._walk(scope, witness, start)
            if scope is None:
                for place, text in checked.result() if checked is not None else self._storage():
                    self.find("storage", place, text)
        if scope is None:
            self.report.resume = self.leftovers.settle(self.end)

    def _left_over(self, standing: Standing) -> None:
        """Look once more at what is left of the erased; all else was told when it was looked at."""
        self.whole = False
        told = list(self.report.findings)
        parts: list[Callable[[], None]] = [self.directory.run, partial(check_subjects, self)]
        parts += [partial(check_scopes, self, kind) for kind in rowkinds.OF_SCOPE]
        for part in (*parts, self._correlations):
            with self._going_on("store"):
                part()
        self.report.findings = told
        self.report.resume = self.leftovers.settle(self.end, standing)

    def _walk(
        self, scope: Scope | None, witness: Witness | None, start: tuple[str, int, int, int]
    ) -> None:
        with self._going_on("feed"):
            self.feed.run(witness)
        with self._going_on("directory"):
            self.directory.run()
        found = self.directory.ledgers
        if scope is not None:
            found = [ledger for ledger in found if ledger.scope == scope]
            if not found and not self._damaged_row(scope):
                raise ScopeNotFoundError(f"there is no scope {scope} in this store")
        if start != _BEGINNING:
            self._check_start(found, start)
        for ledger in found:
            if (str(ledger.scope), ledger.number) >= start[:2]:
                self.report.scopes += 1
                with self._going_on("scope", str(ledger.scope)):
                    self._scope_or_gone(ledger, start)
        if scope is None:
            for part in (self._feed_without_scope, *self._others()):
                with self._going_on("store"):
                    part()

    def _check_start(self, found: list[Ledger], start: tuple[str, int, int, int]) -> None:
        """Where an earlier call stopped must be in what this one looks at."""
        scope, number, timeline, sequence = start
        here = any((str(ledger.scope), ledger.number) == (scope, number) for ledger in found)
        if not here and number not in self.directory.erased and not self.report.findings:
            raise InvalidInputError(f"{_RESUME}, of the same store and scope")
        newest = self.feed.newest(number, timeline)
        if here and sequence > newest:
            message = f"entry {sequence} was verified before, the newest that the feed names now is"
            self.find("feed", f"timeline {timeline}", f"{message} {newest}: it was put back", scope)

    @contextmanager
    def _going_on(self, place: str, scope: str = "") -> Iterator[None]:
        """Where storage cannot even list the rows, that is a finding, and the next part's turn."""
        try:
            yield
        except StateIntegrityError as error:
            self.whole = False
            self.find("damage", place, str(error), scope)

    def _damaged_row(self, scope: Scope) -> bool:
        """Whether a scope may be there, but its row in the directory cannot be read."""
        named = (b"D" + self.core.tag(b"directory", str(scope))).hex()
        return any(one.row.startswith(named) for one in self.report.findings)

    def _storage(self) -> list[tuple[str, str]]:
        """What no read shows: the engine's own check of its files."""
        rings = [] if self.core.ring_storage is None else [("ring", self.core.ring_storage)]
        places = [("store", self.core.storage), *rings]
        return [(place, text) for place, storage in places for text in storage.check()]

    def _identity(self, identity: str | None) -> None:
        core = self.core
        if identity is not None:
            pinned = parse_identity(identity)
            self.public = pinned.public
            if identity.strip() != store_identity(core):
                self.find("identity", "store", "this is not the store that the identity names")
            self.report.trust = (
                f"checkpoints are checked against the pinned key {pinned.public.hex()[:16]}…"
            )
        elif core.signer is None:
            self.report.trust = (
                "the signer is not here: checkpoints made without it are unsigned, the signed ones "
                "are checked against the key that the store names; pin identity="
            )
        elif core.self_signed:
            self.report.trust = (
                "self-signed: the signer lies with the store, so this finds accidents and those "
                "who cannot read it; keep the signer elsewhere, or pin identity= and keep witnesses"
            )
        else:
            self.report.trust = (
                "checkpoints are checked against the key that the store names; pin identity="
            )

    # the feed

    def _witness(self, text: str) -> Witness | None:
        """The witness, if it speaks of this store; a store put in its place is a finding."""
        witness = read_witness(text)
        if witness.lineage == self.core.lineage and witness.public == self.public:
            return witness
        message = "the witness saw another store, or one with another signer"
        self.find("witness", "store", message)
        return None

    def _feed_without_scope(self) -> None:
        for number in sorted(self.feed.lines):
            if self.directory.knows(number):
                continue
            message = "the feed names a scope that is not in the directory"
            self.find("feed", f"scope {number:x}", message)

    # scopes

    def _scope_or_gone(self, ledger: Ledger, start: tuple[str, int, int, int]) -> None:
        """Check a scope; what was found of one that is erased meanwhile means nothing.

        Of one that is pruned meanwhile it is what the next attempts find as well: each begins at
        the floor of its moment, so that what pruning drops is found at one place only once. One in
        which the time is used up is judged alike: whoever resumes goes on where the last stopped.
        """
        before = _copied(self.report)
        seen: set[Finding] = set()
        for attempt in range(1, ATTEMPTS + 1):
            stopped: _Budget | None = None
            try:
                with self._going_on("scope", str(ledger.scope)):  # judged like what it noted itself
                    self._scope(ledger, start)
            except ScopeNotFoundError:
                if not ledger.erased():
                    raise
            except _Budget as budget:
                stopped = budget
            found = self.report.findings[len(before.findings) :]
            erased = ledger.erased()
            if not erased and found and pruned_meanwhile(self, ledger):
                if attempt < ATTEMPTS:
                    seen.update(found)
                    self._forget(before)
                    continue
                again = [finding for finding in found if finding in seen]
                self.report.findings = [*before.findings, *again]
            elif erased:
                self._forget(replace(before, resume=self.report.resume))
            if stopped is not None:
                raise stopped
            return

    def _forget(self, before: Report) -> None:
        """What was found since means nothing."""
        self.report = _copied(before)
        self.accounts.forget()
        self.whole = False

    def _scope(self, ledger: Ledger, start: tuple[str, int, int, int]) -> None:
        self.feed.catch_up()  # before anything of the scope is read: all that it names is there
        try:
            lines = find_timelines(self, ledger)
        except DataKeyRemovedError as error:  # nothing of the scope can be read
            self.whole = False
            self.find("damage", "timeline", str(error), str(ledger.scope))
            return
        floors = find_floors(self, ledger, lines)
        self.feed.catch_up()  # the anchors that were found are among what is looked at
        for number in sorted(set(lines) - self.feed.named(ledger.number) - {0}):
            key = rowkinds.line(b"T", ledger.number, number)
            message = "nothing made this timeline: the feed names no entry of it"
            self.find("unaccounted", rowkinds.describe(key), message, str(ledger.scope), row=key)
        heads = {number: self.feed.judged(ledger.number, number) for number in lines}
        self._epochs(ledger)
        check_timelines(self, ledger, set(heads))
        below = [(number, floors[number].sequence) for number in lines]
        nodes = NodeCheck(self, ledger, dict(below))
        uploads = UploadCheck(self, nodes, ledger)
        if self.end is None:  # where time is short, they are read with the entries
            for number in lines:
                nodes.read(number)
        nodes.finish()
        for number in lines:
            here = (str(ledger.scope), ledger.number, number)
            if here < start[:3]:
                continue
            begin = start[3] if here == start[:3] else 0
            parts = (nodes, uploads, ledger, number, begin, heads[number], floors[number])
            self.report.timelines += 1
            LineCheck(self, *parts).run()
            self.pause(ledger, number + 1, 0)  # at least one timeline a call: it gets on
        if (str(ledger.scope), ledger.number) == start[:2]:
            uploads.note_since(dict.fromkeys(lines, ledger.before))
        uploads.run()

    def _epochs(self, ledger: Ledger) -> None:
        """The rows that announce the scope's data keys; its entries call for each."""
        prefix = rowkinds.epoch(ledger.number, 0)[:7]
        for key, row in self.core.storage.scan(prefix, rowkinds.after(prefix)):
            self.accounts.stored_epochs += 1
            try:
                ledger.open_row(key, row)
            except DAMAGE as error:
                self.find("damage", rowkinds.describe(key), str(error), str(ledger.scope), row=key)

    def late(self) -> bool:
        """Whether the time is used up."""
        return self.end is not None and time.monotonic() > self.end

    def pause(
        self,
        ledger: Ledger,
        timeline: int,
        sequence: int,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        """Tell how far it is, and stop if the time is used up, or nobody waits any more.

        `stopping` says what only this part of the work knows.
        """
        safe_point()
        if self.progress is not None:
            self.progress(str(ledger.scope), self.report.entries)
        if self.late():
            stopping()
            self.report.resume = f"{ledger.number:x}/{timeline}/{sequence}/{ledger.scope}"
            raise _Budget

    # rows that belong to nothing

    def _others(self) -> Iterator[Callable[[], None]]:
        """Checks of what belongs to the store as a whole."""
        yield lambda: check_kinds(self)
        yield lambda: check_pins(self)
        yield self._cells
        yield lambda: check_subjects(self)
        for kind in rowkinds.OF_SCOPE:
            yield partial(check_scopes, self, kind)
        yield self._outcomes
        yield self._correlations
        yield self._epochs_stored

    def _epochs_stored(self) -> None:
        if self.whole:
            self.accounts.compare(b"K", self.accounts.stored_epochs, self.accounts.epochs)

    def _cells(self) -> None:
        storage, leases = self.core.storage, self.core.leases
        kinds = (rowkinds.LEASES, rowkinds.SUBJECTS, rowkinds.SCHEDULES, rowkinds.FOLLOWS)
        known = (rowkinds.BESIDE, *kinds, b"P", b"R")
        bounds = [b"", *(bound for kind in known for bound in (kind, rowkinds.after(kind)))]
        for low, high in zip(bounds[::2], [*bounds[1::2], b"\xff" * 64], strict=True):
            for key, _ in storage.cells(low, high, limit=100):
                pruning = key[:1] == b"A" and len(key) in (7, rowkinds.ARRIVAL)
                if pruning and self.directory.knows(rowkinds.scope_of(key)):
                    continue  # somebody prunes this scope
                self.find("unaccounted", rowkinds.describe(key), "nothing accounts for this cell")
        for key in odd_counts(storage, self.directory.knows):
            self.find("unaccounted", rowkinds.describe(key), "nothing accounts for this cell")
        check_schedules(self)
        check_rests(self)
        token = b""
        for key, row in leases.cells():
            if len(key) == rowkinds.LEASE and key == rowkinds.token(key):
                token = key
            if len(key) != rowkinds.LEASE or token != rowkinds.token(key):
                self.find("unaccounted", rowkinds.describe(key), "it belongs to no lease")
                continue
            try:
                leases.check(key, row)
                self.report.leases += key == token
            except DAMAGE as error:
                self.find("damage", rowkinds.describe(key), str(error))

    def _outcomes(self) -> None:
        low = b"I"
        stored = 0
        while page := self.core.storage.scan(low, b"J", limit=1000):
            for key, row in page:
                try:
                    plain = self.core.open_row(key, row)
                    stored += not self.accounts.of_pruned(plain)
                except DAMAGE as error:
                    self.find("damage", rowkinds.describe(key), str(error), row=key)
            low = page[-1][0] + b"\0"
        if self.whole:
            self.accounts.compare(b"I", stored, self.accounts.ids)

    def _correlations(self) -> None:
        low = b"R"
        stored = 0
        while page := self.core.storage.scan(low, b"S", limit=1000):
            for key, row in page:
                number = int.from_bytes(key[17:23], "big")
                if len(key) != rowkinds.CORRELATION or row:
                    message = "nothing accounts for this row"
                    scope = self.directory.name_of(number)
                    self.find("unaccounted", rowkinds.describe(key), message, scope, row=key)
                elif not self.directory.is_known(number):
                    self.directory.stray(key, number, "nothing accounts for this row")
                else:
                    line, block = int.from_bytes(key[23:25], "big"), int.from_bytes(key[25:], "big")
                    stored += self.accounts.counts_block(number, line, block)
            low = page[-1][0] + b"\0"
        if self.whole:
            self.accounts.compare(b"R", stored, self.accounts.correlations)


def _copied(report: Report) -> Report:
    return replace(report, findings=list(report.findings), losses=list(report.losses))


def _parse_resume(text: str | None) -> tuple[str, int, int, int]:
    if text is None:
        return _BEGINNING
    try:
        number, timeline, sequence, scope = text.split("/", 3)
        if "-" not in number + timeline + sequence:
            return (scope, int(number, 16), int(timeline), int(sequence))
    except ValueError:
        pass
    raise InvalidInputError(_RESUME)
