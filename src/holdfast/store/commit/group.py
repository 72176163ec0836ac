"""Group commit: all changes waiting at one moment, of all scopes, in one storage commit.

Entries are built here, on the newest state, one after the other, so that a change which only
writes is never in conflict: it is built on whatever came before it. A change that read
something is checked against it here, and fails alone. `Core` is whose changes they are: what all
handles of one open store share.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from holdfast.errors import (
    Conflict,
    DamagedIndexError,
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    OutcomeUnknown,
    Unavailable,
)
from holdfast.seal.codec import Codec
from holdfast.seal.ring import Ring
from holdfast.seal.signer import Signer
from holdfast.storage.contract import Batch, Storage
from holdfast.store.commit.change import (
    Change,
    Fork,
    Outcome,
    Target,
    Ticket,
    Written,
    answer_of,
    change_tag,
    check_expected,
    failure,
    find_outcome,
    id_tag,
    interrupted,
    keyless,
    name_each_other,
    outcome,
    outrun,
    seal_outcome,
)
from holdfast.store.commit.stage import Lookups, Stage
from holdfast.store.journal import timeline as lines
from holdfast.store.journal.declared import KINDS, NOTHING, PREFIX
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.entry import Body, same_entry
from holdfast.store.journal.feed import FeedItem, Lanes
from holdfast.store.journal.floor import Anew
from holdfast.store.journal.ledger import Ledger, RowCache, gone
from holdfast.store.journal.timeline import Timeline
from holdfast.store.lease import Fence, Leases
from holdfast.store.names import background, rowkinds
from holdfast.store.names.clock import Clock
from holdfast.store.names.meter import COMMITS, MOST_TOLD, SAVED, SAVES, Meter
from holdfast.store.names.threads import SHORT, Breath
from holdfast.store.rules.classes import Classed
from holdfast.store.rules.ephemeral import Ephemeral, Ephemerals, Made
from holdfast.store.rules.gates import Gates
from holdfast.store.rules.keep import Keep
from holdfast.store.rules.lookup import Lookup
from holdfast.store.rules.sticky import Sticky
from holdfast.store.rules.subjects import Subjects
from holdfast.store.rules.upload_pins import Pins
from holdfast.store.tree.split import MemoCache

GROUP = 1024
"""Changes in one commit: what bounds its memory, and how long the first of them waits."""
ATTEMPTS = 200
"""At a commit that others were faster at. Only writers without any pause outrun it so often."""
MANY = 32
"""Changes of a group from which on the garbage collector waits for its end."""
_ANSWERING = frozenset(("delete", "trim"))


class Committer:
    """Takes changes, makes entries of them and commits them."""

    def __init__(self, core: Core, lanes: Lanes) -> None:
        self._core = core
        self._lanes = lanes
        self._waiting: deque[Ticket] = deque()
        self._lock = threading.RLock()  # a gate behind a change may write, too
        self._sent = False
        """Whether what is being committed may be in the storage."""
        self._told = 0
        """What the meter was told since it was made to count that."""

    def submit(self, ticket: Ticket) -> None:
        """Queue a change; it is committed by whoever drives next."""
        self._waiting.append(ticket)

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a change back; False if it is already on its way."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        return True

    def drive(self, ticket: Ticket) -> None:
        """Commit until this change is done; others that wait go along."""
        try:
            while not ticket.done:
                with self._lock:
                    if not ticket.done:
                        self._commit_waiting()
        except BaseException:  # Ctrl-C: nobody is there any more to be told of it
            self.withdraw(ticket)
            raise

    def drain(self) -> None:
        """Commit all that waits; what another thread is committing is waited for, too."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                self._commit_waiting()

    @property
    def waiting(self) -> int:
        """How many changes wait."""
        return len(self._waiting)

    # one group

    def _commit_waiting(self) -> None:
        group: list[Ticket] = []
        self._sent = False
        try:
            try:
                while self._waiting and len(group) < GROUP:
                    # In one step: Ctrl-C comes before it or behind it.
                    group.extend(map(deque.popleft, (self._waiting,)))
            except IndexError:
                pass  # the last one was withdrawn just now
            if group:
                self._commit(group)
        except BaseException as error:
            # Nobody knows what of the group is stored now: all that is held is read anew.
            self._core.lost()
            left = [ticket for ticket in group if not ticket.done]
            if isinstance(error, KeyboardInterrupt) and not self._sent:
                # That is this thread's own: the others commit what is theirs.
                self._waiting.extendleft(reversed(left))
                group = [ticket for ticket in group if ticket.done]
            else:
                self._fail(left, failure(error))  # whatever it is, nobody may wait for ever
            if not isinstance(error, Exception):
                raise
        finally:
            if group:
                self._settled(group)

    def _commit(self, group: list[Ticket]) -> None:
        conflicts = 0
        while group:
            try:
                conflicts += not self._try(group, first=not conflicts)
            finally:
                self._lanes.settled()
            if conflicts >= ATTEMPTS:
                self._fail([t for t in group if not t.done], outrun(self._core.storage))
            if len(group) == 1 and group[0].done:
                return
            group = [ticket for ticket in group if not ticket.done]

    def _settled(self, group: list[Ticket]) -> None:
        """Tell the meter, and who waits, of changes whose outcome is known."""
        now, tell, waiting = perf_counter(), self._core.meter.tell, []
        for ticket in group:
            error = ticket.error
            if error is None:
                tell((SAVES, SAVED, now - ticket.begun))
            elif not isinstance(error, Conflict):  # of which who asked mostly makes another one
                tell((SAVES, (type(error).__name__,), now - ticket.begun))
            if ticket.waiter is not None:
                waiting.append(ticket.waiter)
        if waiting:
            self._core.pump.wake(waiting)
        self._told += len(group) + 1
        if self._told > MOST_TOLD:
            self._told = 0
            self._core.meter.settle()

    def _try(self, group: list[Ticket], *, first: bool) -> bool:
        """Build and commit once; False if it has to be built again.

        What comes behind a change that fails half way, of which nothing may be committed, goes into
        the next group.
        """
        self._sent = False
        storage = self._core.storage
        relaxed = group[0].change.relaxed and all(one.change.relaxed for one in group)
        with storage.turn(durable=False) if relaxed else storage.turn():
            blind = first and not storage.limits.embedded and all(map(_is_blind, group))
            try:
                attempt = self._built(group, blind)
            except _Asked:
                attempt = self._built(group, False)
            batch, feed_row = attempt.batch(self._lanes)
            if not attempt.stages:
                attempt.settle()
                return True
            begun = perf_counter()
            try:
                if attempt.born:
                    self._core.commit_ring(attempt.born)
                self._sent = True
                storage.commit(batch)
            except Conflict as conflict:  # others were faster: nothing of this is stored
                self._sent = False
                self._conflicted(attempt, conflict)
                return False
            except OutcomeUnknown as unknown:
                if self._sent:
                    return self._unknown(attempt, batch, feed_row, unknown)
                self._core.lost()
                self._fail(attempt.built, keyless(unknown))
                return True
            except Unavailable as error:
                self._fail(attempt.built, error)
                return True
            except (KeyboardInterrupt, SystemExit) as error:
                if self._sent:
                    self._unknown(attempt, batch, feed_row, interrupted(error))
                raise
        self._core.meter.tell((COMMITS, (), perf_counter() - begun))
        self._applied(attempt, feed_row)
        return True

    def _built(self, group: list[Ticket], blind: bool) -> Attempt:
        """An attempt at as much of a group as can be committed together."""
        attempt = Attempt(self._core, None if blind else self._core.storage.version())
        failed: Ticket | None = None
        many, breath = len(group) > MANY, None
        if many and threading.current_thread() is not threading.main_thread():
            breath = Breath(SHORT)
        # What is built lives until it is committed: walking it again and again in search of what
        # can go took a third of the time. Not while the disk or a server is waited for, which may
        # be long: what others make meanwhile has to be looked through.
        paused = many and gc.isenabled()
        try:
            if paused:
                gc.disable()
            for ticket in group:
                if not ticket.done and not attempt.build(ticket):
                    failed = ticket
                    break
                if breath is not None:
                    breath()  # an event loop would wait for the next 5 ms of this thread
        finally:
            if paused:
                gc.enable()
        # One that failed when a part of it was built, or has to wait: what comes before it.
        return attempt if failed is None else self._built(group[: group.index(failed)], False)

    def _applied(self, attempt: Attempt, feed_row: bytes) -> None:
        core = self._core
        self._lanes.committed(feed_row)
        for stage in attempt.stages.values():
            stage.publish(attempt.token)
            core.published(stage.timeline)
            if stage.remember:
                core.memos.note(stage.ledger.number, stage.remember)
        if attempt.forks is not None:
            attempt.forks.made()
        for ledger in attempt.born:
            ledger.birth = None
        attempt.settle()
        if core.gates.behind:
            for ticket, written in attempt.results:
                core.gates.after(ticket.change, written)
        if (near := core.near) is not None:
            for stage in attempt.stages.values():  # rows with values, for other processes
                keys = {stage.ledger.row_of(place) for place, _, _ in stage.laid}
                near.offer(stage.ledger, [row for row in stage.rows if row[0] in keys])

    def _conflicted(self, attempt: Attempt, conflict: Conflict) -> None:
        """Forget what was overtaken; what only wrote is built again on what is there now."""
        keys = {key for key in conflict.keys if isinstance(key, bytes)}
        for ticket in attempt.built:
            for fence in attempt.fences(ticket):
                if fence.key in keys:
                    self._fail([ticket], fence.lost())
        if any(key[:1] == b"F" for key in keys):
            self._lanes.move()
        for ledger in {stage.ledger for used in attempt.used.values() for stage in used}:
            if ledger.birth is not None and any(key[:1] in (b"D", b"T") for key in keys):
                self._core.forget(ledger)
        for stage in attempt.stages.values():
            stage.timeline.seen = None
            if keys.intersection([*stage.absent, *(cell[0] for cell in stage.cells)]):
                # What it is about has ended or grown meanwhile: only the caller can decide anew.
                mine = [t for t in attempt.built if t.special and stage in attempt.used[id(t)]]
                self._fail(mine, Conflict(f"{stage.ledger.scope}: overtaken; try again"))

    def _unknown(
        self, attempt: Attempt, batch: Batch, feed_row: bytes, unknown: OutcomeUnknown
    ) -> bool:
        """Settle an unknown outcome by the entry's own row; never guess, never apply twice."""
        key, row = next((k, v) for k, v in batch.puts if k[:1] == b"E")
        lost: Conflict | None = None
        for _ in range(5):
            try:
                found = self._core.storage.get([key])[0]
                if found is None and lost is not None:
                    self._conflicted(attempt, lost)
                    return False
                if found is None:
                    # The first attempt may still land, so only the same bytes may follow it.
                    self._core.storage.commit(batch)
                    found = row
                if same_entry(found, row):
                    self._applied(attempt, feed_row)
                    return True
                self._lanes.move()
                self._conflicted(attempt, Conflict("overtaken"))
                return False
            except Conflict as conflict:
                # A token that is gone never comes back: from now on no attempt can land.
                if not attempt.cells.keys().isdisjoint(conflict.keys):
                    lost = conflict
            except (OutcomeUnknown, Unavailable):
                continue
            except HoldfastError:
                break
        self._core.lost()
        self._fail(attempt.built, unknown)
        return True

    def _fail(self, tickets: Iterable[Ticket], error: HoldfastError) -> None:
        for ticket in tickets:
            ticket.error = error
            ticket.done = True


class _Later(Exception):
    """It cannot stand beside something in this group: it belongs into the next one."""


class _Asked(Exception):
    """What was built on what is held may rest on something old: the storage has to be asked."""


def _is_blind(ticket: Ticket) -> bool:
    """Whether a change only writes to timelines that are held here, and of which nothing is
    declared.

    Then it need not be asked, in a round trip to a server, whether others have committed: if they
    have, to one of these, its entry's number is taken, and it is built again.
    """
    for target in ticket.change.targets:
        ledger = target.ledger
        if ledger is None or ledger.stale or ledger.birth is not None or not target.ops:
            return False
        line = ledger.timelines.get(0) if target.timeline == "main" else None
        if line is None or line.seen is None or line.known is not NOTHING:
            return False
        if target.expects or target.head is not None or target.special is not None:
            return False  # a fork, or what cannot be read, has such a function, too
    return ticket.change.id is None and not ticket.change.shared


class Attempt:
    """One try at a group: stages, and what each change became on them."""

    def __init__(self, core: Core, token: object) -> None:
        self.core = core
        self.token = token
        """The storage's version as of which it is built; None: as of what is held."""
        self.stages: dict[tuple[int, int], Stage] = {}
        self.born: list[Ledger] = []
        """Scopes that this commit brings into being."""
        self.results: list[tuple[Ticket, list[Written]]] = []
        self.built: list[Ticket] = []
        self.extra: list[tuple[bytes, bytes]] = []
        self.absent: list[bytes] = []
        self.ids: dict[bytes, Outcome] = {}
        self.used: dict[int, list[Stage]] = {}
        self.held: dict[int, list[tuple[Timeline, Made, Written]]] = {}
        """What changes make of ephemeral keys, by the change."""
        self.held_keys: set[tuple[int, int, str]] = set()
        self.forks: Forks | None = None
        """The timelines that the group makes, and what cannot stand beside them."""
        self.cells: dict[bytes, bytes] = {}
        """Those that changes expect: of leases that they are made under, of subjects."""
        self._begun = False
        """Whether there is something here of the change that is built now."""

    def fences(self, ticket: Ticket) -> Iterable[Fence]:
        """What a change expects, if it writes; leases of other stores are not known here."""
        if not ticket.change.fences or not self.used.get(id(ticket), True):
            return ()
        return [fence for fence in ticket.change.fences if fence.core is self.core]

    def build(self, ticket: Ticket) -> bool:
        """Make entries of a change.

        False if it fails, or has to wait, when a part of it is built already: then the attempt has
        to be made again without it.
        """
        self._begun = False
        stages: list[Stage] = []
        try:
            written = self._build(ticket, stages)
            for stage in stages:
                if stage.absent and not self._forks().stand_beside(stage):
                    raise _Later
        except _Later:
            return not self._begun
        except Exception as error:
            if self.token is None:
                raise _Asked from error
            if not self._may_go_on(ticket, error):
                ticket.error, ticket.done = failure(error), True
            return not self._begun
        self.results.append((ticket, written))
        self.built.append(ticket)
        self.used[id(ticket)] = stages
        if ticket.change.fences:
            for fence in self.fences(ticket):
                self.cells[fence.key] = fence.cell
        return True

    def _forks(self) -> Forks:
        if self.forks is None:
            self.forks = Forks(self.core, self.token)
        return self.forks

    def _may_go_on(self, ticket: Ticket, error: Exception) -> bool:
        """Whether to build it anew: on a state read again, for rows of the one that was held may
        have been pruned away, then on one made without the saved index."""
        if not isinstance(error, DamagedRecordError):
            return False
        anew = ticket.anew = ticket.anew or Anew()
        places = {target.scope for target in ticket.change.targets}
        times = max(anew.times(self.core.ledger(scope)) for scope in places)
        if times > 2 or (times == 2 and not isinstance(error, DamagedIndexError)):
            return False
        for target in ticket.change.targets:
            self.core.reload(target.scope, target.timeline, times == 1)
        return True

    def _build(self, ticket: Ticket, stages: list[Stage]) -> list[Written]:
        core, change = self.core, ticket.change
        if change.id is not None:
            tag = change_tag(core, change, change.id)
            if before := self.ids.get(tag) or find_outcome(core, tag):
                return before.repeated(core, change)
        if change.fences:
            for fence in self.fences(ticket):
                fence.check()
                if self.cells.get(fence.key, fence.cell) != fence.cell:
                    raise _Later  # at most one of the two can be held
        staged, ruled = [], False
        for target in change.targets:
            stage = self._stage(target)
            staged.append((target, stage))
            ruled = ruled or not stage.unruled
        time, ahead = core.clock.now()
        asked = staged
        if ruled:
            staged = [(self._routed(change, one, stage, time), stage) for one, stage in staged]
        for target, stage in asked:
            if target.expects or target.head is not None:
                check_expected(target, stage, core.ephemerals)
        bodies: list[Body] = []
        for target, stage in staged:
            stages.append(stage)
            stage.ahead = ahead
            cause = target.cause or change.cause
            bodies.append(Body(time, [], [], cause, None, [], change.id, [], []))
        if (change.shared or len(staged) > 1) and change.linked:
            name_each_other(staged, bodies)
        self._begun = True
        written = []
        for (target, stage), body in zip(staged, bodies, strict=True):
            if target.ops or target.special is not None:
                written.append(self._entry(target, stage, body))
                continue
            # Only read: nobody may extend it until this change is durable.
            self.absent.append(rowkinds.entry(stage.timeline.prefix, stage.start + 1))
            self.absent.extend(key for key, _ in stage.ledger.birth or ())
        if change.id is not None:  # its one scope may have been made again since it was looked up
            tag = id_tag(core, None if change.storewide else staged[0][1].ledger, change.id)
            self.ids[tag] = outcome(core, change, written)
            key = rowkinds.change(tag)
            self.extra.append((key, seal_outcome(self.core, key, self.ids[tag])))
            self.absent.append(key)
        return written

    def _routed(self, change: Change, target: Target, stage: Stage, time: int) -> Target:
        """Take out what is ephemeral: readers see it once the rest is committed."""
        # Declarations are written alone, also where one is damaged: no rule is asked then.
        if target.special is not None or (target.ops and target.ops[0][1].startswith(PREFIX)):
            return target
        place = (stage.ledger.number, stage.timeline.number)
        keys = (*target.expects, *(op[1] for op in target.ops)) if self.held_keys else ()
        if any((*place, key) in self.held_keys for key in keys):
            raise _Later  # it rests on a change that readers do not see yet
        if not any(stage.ephemeral(op[1]) for op in target.ops):
            return target
        ops, cause = target.prepared(stage.ledger), target.cause or change.cause
        rest, made, answers = self.core.ephemerals.route(ops, stage, time, cause)
        self.held_keys.update((*place, key) for key in made)
        version = max((slot.sequence for slot in made.values() if slot), default=0)
        done = Written(target.scope, target.timeline, version, b"", time, answer=answers)
        self.held.setdefault(id(change), []).append((stage.timeline, made, done))
        return replace(target, ops=rest)

    def _entry(self, target: Target, stage: Stage, body: Body) -> Written:
        """Build the next entry of a timeline."""
        timeline, first = stage.timeline, stage.sequence + 1
        behind = timeline.sequence - timeline.saved
        due = behind >= lines.DELTA_EVERY or timeline.atoms_since >= lines.HEAVY
        if due and stage.sequence == stage.start and not stage.saves:
            # A checkpoint writes little, whatever the state: saves go with other entries, unless
            # there are hardly any others.
            kind = timeline.due(4 if target.special is not None else 1)
            if kind is not None:
                stage.save(kind)
        answer: Any = []
        if target.special is not None:
            answer = target.special(stage, body)
        else:
            ops: Sequence[tuple[Any, ...]] = target.ops
            if target.ledger is not stage.ledger:
                ops = target.prepared(stage.ledger)
            for op in ops:
                answer.append(answer_of(stage, op) if op[0] in _ANSWERING else None)
            stage.add(ops, body)
        if body.cause is not None and (correlation := body.cause.correlation) is not None:
            known = stage.blocks.get(correlation, timeline.blocks.get(correlation))
            for sequence in range(first, stage.sequence + 1):  # in one block or two
                if sequence // rowkinds.BLOCK != known:
                    known = stage.blocks[correlation] = sequence // rowkinds.BLOCK
                    tag, at = self.core.tag(b"correlation", correlation), stage.ledger.number
                    key = rowkinds.correlation(tag, at, timeline.number, sequence)
                    self.extra.append((key, b""))
        where = (target.scope, target.timeline, stage.sequence, stage.head, body.time)
        return Written(*where, answer=answer, ops=body.ops)

    def _stage(self, target: Target) -> Stage:
        if target.stranded is not None:  # nobody else can write it either: it cannot be read
            line = target.stranded
            if line.ledger.erased():
                raise gone(line.ledger.scope)
            stage = Stage(line, self.core.clock, self.core.lookups)
            self.stages[line.ledger.number, line.number] = stage
            return stage
        if target.fork is not None:  # under a number that nobody else may take
            target.line = None
            target.line = self._forks().line(target.fork)
            self._begun = True
            key = rowkinds.line(b"T", target.fork.ledger.number, target.line.number)
            self.absent.append(key)
        ledger, timeline = target.ledger, target.line
        if timeline is not None:
            ledger = timeline.ledger
        elif ledger is None or ledger.stale:
            ledger = self.core.ledger(target.scope, create=target.create)
        if timeline is None and target.timeline == "main":
            timeline = ledger.timelines.get(0)
        if timeline is None:
            timeline = self.core.timeline(ledger, target.timeline)
        place = (ledger.number, timeline.number)
        known = self.stages.get(place)
        if known is None:
            if self.token is not None and timeline.seen != self.token:
                timeline.refresh(self.token)
            if timeline.gone:
                if target.line is not None:
                    raise gone(target.scope)  # what it was to begin from is no more
                # Deleted by somebody else: what is written now belongs to a new incarnation.
                self.core.ended(timeline, target.timeline)
                return self._stage(target)
            if not timeline.compared and self.token is not None:
                timeline.compare(self.core.lanes)
            known = self.stages[place] = Stage(timeline, self.core.clock, self.core.lookups)
        elif known.gone:
            raise _Later
        return known

    def batch(self, lanes: Lanes) -> tuple[Batch, bytes]:
        """Everything that the group writes, and what it expects; and the row of the feed among it.

        Timelines that were only looked at are left out.
        """
        batch = Batch(puts=[], absent=[], cells=[], own=True)
        items: list[Any] = []
        begin: list[FeedItem] = []
        for key, stage in [*self.stages.items()]:
            if not stage.bodies:
                del self.stages[key]
                continue
            ledger, first = stage.ledger, stage.start + 1
            items.append((*key, first, stage.sequence - stage.start, stage.head))
            batch.puts += stage.rows
            batch.absent.append(stage.timeline.prefix + first.to_bytes(5, "big"))
            batch.absent += stage.absent
            batch.cells += stage.cells
            if ledger.birth is None:
                # Its entries may be dropped already: their absence alone would not stop this.
                batch.absent.append(ledger.tombstone)
            elif ledger not in self.born:
                self.born.append(ledger)
            if stage.behind is not None:
                begin.append(stage.behind)
        if not items:
            return batch, b""
        if begin or self.born:
            # What begins with nothing before it on its own timeline: a fork, a scope that is made
            # again under the name of a deleted one. The feed keeps the order of each timeline by
            # its numbers; so that its readers get these behind where the one starts and the other
            # ended, whatever lanes they lie in, the commit names that: its links.
            begin[:0] = [ledger.behind for ledger in self.born if ledger.behind is not None]
            others = (one for one in begin if (one.scope, one.timeline) not in self.stages)
            items[:0] = dict.fromkeys(others)
        for ledger in self.born:
            batch.puts += ledger.birth or ()
            batch.absent += dict(ledger.birth or ())
        if batch.cells or self.cells:
            # Where two changes expect different things of one cell, the first's does not hold.
            batch.cells = [*{one[0]: one for one in reversed(batch.cells)}.values()]
            batch.cells += [(key, cell, cell) for key, cell in self.cells.items()]
        batch.puts += self.extra
        batch.absent = [*dict.fromkeys(batch.absent + self.absent)]  # forks share theirs
        feed_key, feed_row = lanes.next_row(items)
        batch.puts.append((feed_key, feed_row))
        batch.absent.append(feed_key)
        return batch, feed_row

    def settle(self) -> None:
        """The changes have become what their results say."""
        for ticket, written in self.results:
            ticket.result = written
            if self.held and (held := self.held.get(id(ticket.change))):
                for timeline, made, _ in held:
                    self.core.ephemerals.apply(timeline, made)
                # Where no entry came of it, what was held answers the caller.
                ticket.result = written or [done for _, _, done in held]
            ticket.done = True


# ---- forks --------------------------------------------------------------------------------------
# Forks: numbers for timelines that are made in one group of changes.
#
# The numbers of a scope's timelines have no gaps, so that whoever claims the next one has seen the
# names of all before it. They are given when the group is built: a thousand forks at one moment
# are one commit, and one that others have overtaken takes the next number instead.


MOST_LINES = rowkinds.UPLOADS
"""Timelines that a scope can have."""


class Forks:
    """The timelines that one group makes."""

    def __init__(self, core: Directory, token: object) -> None:
        self._core = core
        self._token = token
        self._names: dict[int, dict[str, int]] = {}
        """Of scopes that get one: numbers of their timelines by name, the new ones too."""
        self._lines: list[tuple[str, Timeline]] = []
        self._claimed: set[bytes] = set()
        """Rows of timelines that something in this group makes, or expects not to be there."""

    def stand_beside(self, stage: Stage) -> bool:
        """Whether what a change expects of a scope can be in this group: its end, or a new key, for
        all its timelines cannot be beside a new one."""
        lines = {key for key in stage.absent if key[:1] == b"T"}
        beside = self._claimed.isdisjoint(lines)
        self._claimed |= lines
        return beside

    def line(self, fork: Fork) -> Timeline:
        """The new timeline, under the next number that is free."""
        ledger = fork.ledger
        names = self._names.get(ledger.number)
        if names is None:
            names = dict(self._core.names(ledger))
            if ledger.erased():
                raise gone(ledger.scope)
            if not names:
                raise ledger.damage(rowkinds.line(b"T", ledger.number, 0), "it is missing")
        elif fork.root.count and fork.root.place is None:
            raise _Later  # the first to begin with an index saves its nodes
        if fork.name in names:
            raise Conflict(f"{ledger.scope} has a timeline {fork.name!r} already", [fork.name])
        number = next(reversed(names.values())) + 1
        if number >= MOST_LINES:
            raise InvalidInputError(f"{ledger.scope} has all the timelines that it can have")
        key = rowkinds.line(b"T", ledger.number, number)
        if key in self._claimed:
            raise _Later
        self._claimed.add(key)
        names[fork.name] = number
        self._names[ledger.number] = names
        line = Timeline(ledger, number)
        line.seen = self._token  # whoever is given this number finds nothing under it
        self._lines.append((fork.name, line))
        return line

    def made(self) -> None:
        """The group is committed: nobody here need read these from the storage."""
        for name, line in self._lines:
            self._core.register(name, line)


# ---- the core ------------------------------------------------------------------------------------


KINDS.update({kind.kind: kind for kind in (Classed, Ephemeral, Keep, Lookup, Sticky)})


class Core(Directory):
    """The shared inside of a store. Thread safe; handles of it are cheap."""

    def __init__(
        self,
        storage: Storage,
        lineage: bytes,
        *,
        instance: bytes,
        public: bytes,
        self_signed: bool,
        ring: Ring | None,
        ring_storage: Storage | None,
        signer: Signer | None,
        codec: Codec,
        clock: Clock,
        lookups: Lookups,
        read_only: bool = False,
    ) -> None:
        super().__init__(storage, lineage, ring, codec, clock, read_only=read_only)
        self.instance = instance
        self.lookups = lookups
        self.public = public
        self.self_signed = self_signed
        self.ring_storage = ring_storage
        self.signer = signer
        self.meter = Meter()
        self.gates = Gates(self.meter)
        self.near: RowCache | None = None  # there is none, unless who opens the store is given one
        self.ephemerals = Ephemerals()
        self.committer = Committer(self, self.lanes)
        self.pins = Pins(storage)
        self.announcing: list[int] = []
        """Scopes whose pruning this process is about to announce, once for each who does."""
        self.later: Callable[[Change], None] | None = None
        """Commits, behind who asks, what nobody waits for."""
        self.pump: Any = None
        """Commits for the async face of the store, if it has one."""
        self.leases = Leases(self)
        self.subjects = Subjects(self, self.leases)
        if ring is not None:
            codec.unseal = self.subjects.unseal
        self.memos = MemoCache()
        background.joined(self)

    def __reduce__(self) -> Any:
        raise TypeError("an open store cannot be pickled: hand over its URL, and open it there")

    guard: Any = None
    """What every way to a scope leads by, where somebody may not use all of the store; see
    `holdfast.access.grants`."""

    redact: Any = None
    """Makes of a value what people may see, where something is not for them."""

    def check_store(self) -> None:
        """Refuse what concerns the whole store, where somebody may not use all of it."""

    def check_lease(self, name: str) -> None:
        """Refuse a lease that somebody may not take."""

    def forget(self, ledger: Ledger) -> None:
        """Drop what is held of a scope, so that it is read again."""
        with self._lock:
            self.ephemerals.forget(ledger.number)
            super().forget(ledger)

    # changes

    def submit(self, change: Change) -> Ticket:
        """Queue a change."""
        if self.closed or self.read_only:
            self.check_writable()
        ticket = Ticket(change)
        self.committer.submit(ticket)
        return ticket

    def run(self, change: Change) -> list[Written]:
        """Commit a change and wait for it in this thread."""
        ticket = self.submit(change)
        self.committer.drive(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def published(self, timeline: Timeline) -> None:
        """What was committed is told to a timeline; another object that was read in its place
        meanwhile follows, though the storage's version need not say that there is something."""
        ledger = self.held.get(timeline.ledger.scope, timeline.ledger)
        held = ledger.timelines.get(timeline.number, timeline)
        if held is not timeline:
            with held.lock:  # who follows just now may be past the place
                held.seen = None

    def close(self) -> None:
        """Commit what waits and release everything."""
        if self.closed:
            return
        failed: Exception | None = None
        try:
            while self.closing:
                try:
                    self.closing.pop()()
                except Exception as error:  # the others keep what they hold all the same
                    failed = failed or error
            self.committer.drain()
            if self.pump is not None:
                self.pump.stop()
            self.leases.close()
            if failed is not None:
                raise failed
        finally:
            self.pins.close()
            self.closed = "the store is closed; open it again"
            self.lanes.bell.ring()
            for held in (self.held, self.nodes, self.atoms, self.ephemerals):
                held.clear()  # at once: else it waits, in a cycle, for a slow garbage collection
            self.storage.close()
            if self.ring_storage is not None:
                self.ring_storage.close()


# ---- another storage ----------------------------------------------------------------------------
# The same store, seen in another storage: a copy, or rows as if some were others.


def seen_in(core: Core, storage: Storage) -> Core:
    """A store that is read in another storage with the keys of this one, and nothing cached.

    Nothing can be written. The ring belongs to the store that it is taken from: that must stay
    open as long.
    """
    core.check_store()  # nothing asks there
    return Core(
        storage,
        core.lineage,
        instance=core.instance,
        public=core.public,
        self_signed=core.self_signed,
        ring=core.ring,
        ring_storage=None,
        signer=None,
        codec=copy(core.codec),
        clock=core.clock,
        lookups=core.lookups,
        read_only=True,
    )
