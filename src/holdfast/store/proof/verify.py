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

from holdfast.errors import (
    DataKeyRemovedError,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.seal.signer import parse_identity
from holdfast.store.commit.group import Core
from holdfast.store.journal.entry import Envelope
from holdfast.store.journal.floor import Stated, stated
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.signatures import signers_of
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope
from holdfast.store.proof.cosign import Trust
from holdfast.store.proof.verify_line import LineCheck, find_floors, pruned_meanwhile
from holdfast.store.proof.verify_nodes import NodeCheck, UploadCheck
from holdfast.store.proof.verify_report import Finding, KnownLoss, Report
from holdfast.store.proof.verify_rows import (
    OutOfTime,
    Verification,
    check_cells,
    check_correlations,
    check_epochs,
    check_kinds,
    check_outcomes,
    check_scopes,
    check_subjects,
    check_timelines,
    find_timelines,
)
from holdfast.store.proof.witness import Witness, read_witness, store_identity

_BEGINNING = ("", 0, 0, 0)
_RESUME = "resume takes what a report gave as `resume`"


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
    if scope is None or expect is not None:
        core.check_store()
    elif core.guard is not None:
        core.guard.check(scope)
    check = _Run(core, budget, progress)
    check.trust = Trust.of(trust, require)
    started = time.monotonic()
    with suppress(OutOfTime):
        check.run(scope, expect, identity, resume)
    check.report.seconds = time.monotonic() - started
    return check.report


class _Run(Verification):
    epochs = 0
    """Rows of data keys that were found."""

    def run(
        self, scope: Scope | None, expect: str | None, identity: str | None, resume: str | None
    ) -> None:
        self._identity(identity)
        witness = read_witness(expect) if expect is not None else None
        if witness is not None and (witness.lineage, witness.public) != (
            self.core.lineage,
            self.public,
        ):
            # A store put in the place of the one that it saw is a finding.
            self.find("witness", "store", "the witness saw another store, or another signer")
            witness = None
        start = _parse_resume(resume)
        self.whole = scope is None and resume is None
        with ThreadPoolExecutor(1, "verify") as beside:
            # The engine's check needs no interpreter: it runs meanwhile, unless time is short.
            checked = beside.submit(self._storage) if scope is None and self.end is None else None
            try:
                self._walk(scope, witness, start)
            finally:
                if any(not one.scope and one.row for one in self.report.findings):
                    for ledger in self.directory.ledgers:  # any of them may tell of the feed
                        self._set_apart(ledger, 0, "")
            if scope is None:
                for place, text in checked.result() if checked is not None else self._storage():
                    self.find("storage", place, text)

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
            row = (b"D" + self.core.tag(b"directory", str(scope))).hex()
            if not found and not any(one.row.startswith(row) for one in self.report.findings):
                # Nor is it there with a row in the directory that cannot be read.
                raise ScopeNotFoundError(f"there is no scope {scope} in this store")
        named = any((str(ledger.scope), ledger.number) == start[:2] for ledger in found)
        gone = start == _BEGINNING or start[1] in self.directory.erased or self.report.findings
        if not named and not gone:
            raise InvalidInputError(f"{_RESUME}, of the same store and scope")
        for ledger in found:
            if (str(ledger.scope), ledger.number) >= start[:2]:
                self.report.scopes += 1
                with self._going_on("scope", str(ledger.scope)):
                    self._scope_or_gone(ledger, start)
        if scope is None:
            with self._going_on("store"):
                for number in sorted(self.feed.lines):
                    if not self.directory.knows(number):
                        message = "the feed names a scope that is not in the directory"
                        key = rowkinds.line(b"T", number, 0)
                        self.find("feed", f"scope {number:x}", message, row=key)
            # Checks of what belongs to the store as a whole.
            checks: list[Callable[[Verification], None]]
            checks = [check_kinds, check_cells, check_subjects]
            checks += [partial(check_scopes, kind=kind) for kind in rowkinds.OF_SCOPE]
            for check in (*checks, check_outcomes, check_correlations):
                with self._going_on("store"):
                    check(self)
            with self._going_on("store"):
                self.accounts.compare(b"K", self.epochs)

    @contextmanager
    def _going_on(self, place: str, scope: str = "") -> Iterator[None]:
        """Where storage cannot even list the rows, that is a finding, and the next part's turn."""
        try:
            yield
        except StateIntegrityError as error:
            # Of what could not be read nothing can be counted.
            self.whole = False
            self.find("damage", place, str(error), scope)

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

    # scopes

    def _scope_or_gone(self, ledger: Ledger, start: tuple[str, int, int, int]) -> None:
        """Check a scope; what was found of one that is erased meanwhile means nothing.

        Of one that is pruned meanwhile it is what a second look finds as well: each begins at the
        floor of its moment, so that what pruning drops is found at one place only once. One in
        which the time is used up is judged alike: whoever resumes goes on where the last stopped.
        """
        before = _copied(self.report)
        first = self._look(ledger, start, before)
        if first and not ledger.erased() and pruned_meanwhile(self, ledger):
            self._forget(before)
            again = self._look(ledger, start, before)
            self.report.findings = [*before.findings, *(one for one in again if one in first)]
        if ledger.erased():
            self._forget(replace(before, resume=self.report.resume))
        if self.report.resume is not None:
            raise OutOfTime

    def _look(
        self, ledger: Ledger, start: tuple[str, int, int, int], before: Report
    ) -> list[Finding]:
        """Look at a scope once, as far as time allows: what is found."""
        try:
            with suppress(OutOfTime), self._going_on("scope", str(ledger.scope)):
                self._scope(ledger, start)
        except ScopeNotFoundError:
            if not ledger.erased():
                raise
        self._set_apart(ledger, len(before.findings), str(ledger.scope))
        return self.report.findings[len(before.findings) :]

    def _set_apart(self, ledger: Ledger, first: int, scope: str) -> None:
        """What was found of a scope, or of the store itself, and is stated to be lost in a scope is
        a known loss, and no finding."""
        mine = self.report.findings[first:]
        if not any(one.scope == scope and one.row for one in mine):
            return

        def signed(key: bytes, envelope: Envelope) -> bool:
            valid, wrong = signers_of(ledger, key, envelope, self.public)
            return self.public in valid and not wrong

        said: dict[tuple[str, bytes], tuple[int, Stated]] = {}
        with self._going_on("entry", scope):  # then nothing is known to be lost: all is a finding
            said = stated(ledger, signed)
        line = rowkinds.line(b"E", ledger.number, 0)
        del self.report.findings[first : first + len(mine)]
        for one in mine:
            at, loss = said.get((one.kind, bytes.fromhex(one.row)), (0, None))
            if one.scope != scope or loss is None or not loss.fits(ledger):
                self.report.findings.append(one)
                continue
            place, what = rowkinds.describe(rowkinds.entry(line, at)), f"{one.place}: {one.message}"
            self.report.losses.append(KnownLoss(one.scope, place, what, one.row))

    def _forget(self, before: Report) -> None:
        """What was found since means nothing."""
        self.report = _copied(before)
        self.accounts.forget()
        self.whole = False

    def _scope(self, ledger: Ledger, start: tuple[str, int, int, int]) -> None:
        self.feed.run()  # before anything of the scope is read: all that it names is there
        try:
            lines = find_timelines(self, ledger)
        except DataKeyRemovedError as error:  # nothing of the scope can be read
            self.whole = False
            self.find("damage", "timeline", str(error), str(ledger.scope))
            return
        floors = find_floors(self, ledger, lines)
        self.feed.run()  # the anchors that were found are among what is looked at
        for number in sorted(set(lines) - self.feed.lines[ledger.number] - {0}):
            key = rowkinds.line(b"T", ledger.number, number)
            message = "nothing made this timeline: the feed names no entry of it"
            self.row("unaccounted", key, message, ledger)
        heads = {number: self.feed.judged(ledger.number, number) for number in lines}
        self.epochs += check_epochs(self, ledger)
        check_timelines(self, ledger, set(heads))
        below = [(number, floors[number].sequence) for number in lines]
        nodes = NodeCheck(self, ledger, dict(below))
        uploads = UploadCheck(self, nodes, ledger)
        for number in lines:
            here = (str(ledger.scope), ledger.number, number)
            if here < start[:3]:
                continue
            begin = start[3] if here == start[:3] else 0
            self.report.timelines += 1
            LineCheck(self, uploads, number, begin, heads[number]).run()
            self.pause(ledger, number + 1, 0)  # at least one timeline a call: it gets on
        if (str(ledger.scope), ledger.number) == start[:2]:
            uploads.note_since(dict.fromkeys(lines, ledger.before))
        uploads.run()


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
