"""What the async and the blocking face share: everything but the waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import InvalidInputError, ReadOnlyError, ScopeNotFoundError
from holdfast.store.commit.change import Change, Target, Written, ask_gates, build_change
from holdfast.store.commit.group import Core
from holdfast.store.commit.stage import Keep, Stage, sticky_of
from holdfast.store.history.checkpoint import History, Plan
from holdfast.store.history.diff import diff_states, index_of
from holdfast.store.journal import entry
from holdfast.store.journal.directory import deletion
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger, gone
from holdfast.store.journal.lifetime import KEEP, Terms
from holdfast.store.journal.timeline import Timeline, behind
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import (
    check_count,
    check_filters,
    check_flag,
    check_function,
    check_limit,
    check_own,
    check_prefixes,
    check_text,
    check_timeline,
    check_version,
    listed,
    unawaited,
)
from holdfast.store.names.cause import CAUSE, Cause, cause_now
from holdfast.store.names.items import TYPES, Checkpoint, Entry, Page, ScopeInfo
from holdfast.store.names.scope import KINDS, Scope, check_key, known_key
from holdfast.store.names.threads import MUCH, leave_loop
from holdfast.store.read.change_block import ScopedChange
from holdfast.store.read.reader import Reader, microseconds, moment
from holdfast.store.rules.gates import GateRequest, Operation
from holdfast.store.rules.hold_reasons import check_unmarked
from holdfast.store.rules.keep import going
from holdfast.store.rules.sticky import sticky_along
from holdfast.store.tree.difference import Diff
from holdfast.store.tree.value import is_longer


class LineHandle:
    """One timeline of one scope: reads, and plans of what to write."""

    def __init__(
        self,
        core: Core,
        scope: Scope,
        timeline: str,
        at: Timeline | None = None,
        time: int | None = None,
    ) -> None:
        self.core = core
        self.scope = scope
        self.timeline = timeline
        self.reader = Reader(core, scope, timeline, at, time)
        self.history = History(core, scope, timeline)

    # plans

    def _plan(
        self,
        operations: list[Operation],
        finish: Callable[[list[Written]], Any],
        *,
        expects: dict[str, int] | None = None,
        cause: Cause | None = None,
        attempt: int = 1,
    ) -> Plan:
        if self.reader.at is not None:
            self.check_present()
        target = (self.scope, self.timeline, operations, expects or {}, None)
        change = build_change(self.core, [target], cause=cause or CAUSE.get(), attempt=attempt)
        return change, finish

    def plan_set(
        self,
        key: str,
        value: Any,
        if_version: int | None,
        terms: Terms | None = None,
        subject: str | None = None,
    ) -> Plan:
        """Set one key."""
        key = known_key(key) if type(key) is str else check_key(key)
        expects = None
        if if_version is not None:
            check_version(if_version)
            expects = {key: if_version}
        if subject is not None:
            self.core.subjects.expect([subject])
        operation = Operation("set", key, value, terms, subject)
        return self._plan([operation], self._version, expects=expects)

    def plan_expire(self, key: str, terms: Terms) -> Plan | None:
        """Say when one key expires; None if that is known of it already."""
        key = check_key(key)
        plan = self._plan([Operation("expire", key, None, terms)], self._version)
        return None if self.reader.lasts(key, terms) else plan

    def plan_delete(self, key: str, if_version: int | None) -> Plan | None:
        """Remove one key; tells whether it was there. None if there is not even the scope, which
        must not come into being for that."""
        key = check_key(key)
        check_version(if_version)
        self.check_present()
        self.core.check_writable()
        if not if_version and self.reader.now() is None:
            request = GateRequest(
                self.scope, self.timeline, [Operation("delete", key)], cause_now()
            )
            if ask_gates(self.core, request).operations == [Operation("delete", key)]:
                return None
        expects = {key: if_version} if if_version is not None else None
        return self._plan(
            [Operation("delete", key)], lambda w: bool(w and w[0].answer[0]), expects=expects
        )

    def plan_extend(self, key: str, items: Iterable[Any], subject: str | None = None) -> Plan:
        """Add items to a list."""
        if subject is not None:
            self.core.subjects.expect([subject])
        operation = Operation("append", check_key(key), listed(items, "extend"), subject=subject)
        return self._plan([operation], self._version)

    def plan_update(
        self, key: str, change: Callable[[Any], Any], default: Any, attempt: int
    ) -> tuple[Plan, Any]:
        """One try at changing a value by a function of itself."""
        check_function(change, "what update takes")
        key = check_key(key)
        before, version, kept = self.reader.to_update(key, default)
        after = _done(change(before), "update")
        operations = [Operation("set", key, after, KEEP, kept.name if kept is not None else None)]
        plan = self._plan(operations, self._version, expects={key: version}, attempt=attempt)
        if kept is not None:
            kept.check(self.scope, key, plan[0].fences)
        return plan, after

    def _version(self, written: list[Written]) -> int:
        """The number of the new entry; of the newest one if there was nothing to write."""
        return written[0].sequence if written else self.place()[2]

    def plan_checkpoint(
        self,
        name: str,
        type: str,
        tags: Sequence[str],
        description: str,
        metadata: dict[str, Any] | None,
    ) -> Plan:
        """A checkpoint of the newest state."""
        self.ask("checkpoint", name)
        if type not in TYPES:
            raise InvalidInputError(f"unknown type {type!r}; a checkpoint is {', '.join(TYPES)}")
        check_text(name, "the name of a checkpoint", 256)
        tags = listed(tags, "tags")
        for tag in tags:
            check_text(tag, "a tag", 256)
        check_text(description, "the description of a checkpoint", 64 * 1024)
        if metadata is not None and not isinstance(metadata, dict):
            raise InvalidInputError("the metadata of a checkpoint is a dict")
        codec = self.core.codec
        packed = codec.encode(codec.plain(metadata)) if metadata else b""
        if len(packed) + sum(map(len, tags)) + len(description) > 64 * 1024:
            raise InvalidInputError("tags, description and metadata take at most 64 KiB together")
        op = [entry.CHECKPOINT, name, type, str(self.scope), tags, description, packed]
        while not op[-1]:
            op.pop()
        made: list[Checkpoint] = []

        def special(stage: Stage, body: Body) -> None:
            body.ops = [op]
            made[:] = [self.history.signed(stage, body)]

        target = Target(self.scope, self.timeline, special=special)
        return Change([target], cause_now()), lambda _: made[0]

    def plan_restore(
        self,
        point: Any,
        verify: str,
        reason: str | None,
        if_head: int | None,
        past_damage: bool = False,
        keep: Keep = sticky_of,
    ) -> Plan:
        """Return to a point."""
        check_flag(past_damage, "past_damage")
        check_limit(if_head, "if_head")
        self.ask("restore", str(getattr(point, "id", point)))
        cause = cause_now(reason=reason)
        return self.history.plan_restore(point, verify, cause, if_head, past_damage, keep)

    def plan_fork(self, name: str, at: Any) -> Plan:
        """A new timeline; tells whether all its lookups are built.

        They are not at the entry of a restore, or while one is built: whoever does that goes on
        behind that entry, on the timeline that the fork is of.
        """
        self.ask("fork", name)
        point = at if at is not None else self.place()[2]
        change, _ = self.history.plan_fork(name, point, cause_now())
        fork = change.targets[0].fork
        assert fork is not None
        return change, lambda _: fork.built

    def ask(self, kind: str, what: str) -> None:
        """Lead what is no operation on keys through the gates, which may only refuse it."""
        self.core.check_writable()
        self.check_present()
        if self.core.gates.front:
            operation = Operation(kind, "", what)
            self.core.gates.ask(GateRequest(self.scope, self.timeline, [operation], cause_now()))

    def check_present(self) -> None:
        """Refuse to change a view."""
        if self.reader.at is not None:
            raise ReadOnlyError(f"{self.scope}: a view of the past cannot be changed; fork it")

    def write(
        self,
        special: Callable[[Stage, Body], None],
        reason: str | None,
        *,
        ledger: Ledger | None = None,
        head: int | None = None,
    ) -> Written:
        """Commit one entry that a function builds; refused if the scope is none of a `ledger`."""

        def build(stage: Stage, body: Body) -> None:
            if ledger is not None and stage.ledger.number != ledger.number:
                raise gone(self.scope)
            special(stage, body)

        target = Target(self.scope, self.timeline, special=build, create=False, head=head)
        return self.core.run(Change([target], cause_now(reason=reason)))[0]

    # looking

    def on(self, timeline: str) -> LineHandle:
        """A handle on another timeline of the scope."""
        check_timeline(timeline)
        return LineHandle(self.core, self.scope, timeline)

    def place(self) -> tuple[Scope, str, int]:
        """(scope, timeline, sequence) of the newest entry that this handle sees."""
        try:
            line = self.reader.at or self.history.points.line(past=False)
        except ScopeNotFoundError:
            return self.scope, self.timeline, 0
        return self.scope, self.timeline, line.sequence

    def root(self) -> str:
        """Commitment to the whole state, in hexadecimal."""
        if self.core.guard is not None:
            self.core.guard.check(self.scope)
        line = self.reader.now()
        if line is None:
            raise ScopeNotFoundError(f"there is no scope {self.scope} in this store")
        return index_of(line).hash.hex()

    def view(self, point: Any) -> LineHandle:
        """A handle on the state at a point."""
        timeline, sequence = self.history.points.find(point)
        line = self.history.points.view(timeline, sequence)
        # A time is also the one by which expiry is judged, in place of that of its entry.
        time = microseconds(point) if isinstance(point, datetime) else None
        return LineHandle(self.core, self.scope, timeline, line, time)

    def pinned(self) -> LineHandle:
        """A handle on the newest state that stays at its entry: many reads of one moment.

        What has expired is judged by now, not by the entry's time.
        """
        _, timeline, sequence = self.place()
        line = self.history.points.view(timeline, sequence)
        return LineHandle(self.core, self.scope, timeline, line, self.core.clock.checked())

    def diff(self, since: Any, until: Any, reveal: bool = False, plain: bool = False) -> Diff:
        """What changed between two points; `until` is the newest state if it is left out."""
        before = self.view(since).reader
        after = self.view(until).reader if until is not None else self.reader
        check_flag(plain, "plain")
        return diff_states(before, after, reveal=check_flag(reveal, "reveal"), plain=plain)

    def replay(
        self, fold: Callable[[Any, Entry], Any], start: Any, since: int, until: int | None
    ) -> Any:
        """Lead every entry, oldest first, through a function."""
        check_function(fold, "what replay takes")
        check_count(since, "since")
        check_limit(until, "until")
        state = start
        for key, envelope, body in self.history.entries(newest_first=False, low=since, high=until):
            state = _done(fold(state, self.history.entry(key, envelope, body)), "replay")
        return state


def _done(answer: Any, what: str) -> Any:
    """What a function gave; refused if the function has not even run."""
    if unawaited(answer):
        raise InvalidInputError(
            f"{what} takes a plain function: what an `async def` gives is awaited by nobody here"
        )
    return answer


def plan_trim(
    handle: LineHandle, key: str, trim: dict[str, int], if_version: int | None
) -> Plan | None:
    """A change that trims a list; None if nothing would go."""
    check_version(if_version)
    key = check_key(key)
    plan = handle._plan(
        [Operation("trim", key, trim)],
        lambda written: written[0].answer[0] if written else 0,
        expects={key: if_version} if if_version is not None else None,
    )
    if if_version is None and not going(handle.reader.length(key), trim):
        return None
    return plan


class StoreHandle:
    """What both faces of a store share."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def line(self, scope: Scope | str, timeline: str = "main") -> LineHandle:
        """A handle on a scope."""
        return LineHandle(self.core, Scope.parse(scope), timeline)

    def of(self, given: Any) -> LineHandle:
        """The timeline of a state or view of this store, or the main one of a scope."""
        line = getattr(given, "_handle", given)
        if not isinstance(line, LineHandle):
            return self.line(given)
        check_own(self.core, f"that state of {line.scope}", line)
        return line

    def scopes(self, kind: str | None, prefix: str, limit: int | None, after: str | None) -> Page:
        """Scopes in the order of their names."""
        if kind is not None and kind not in KINDS:
            raise InvalidInputError(f"unknown kind {kind!r}; scopes are {', '.join(KINDS)}")
        check_prefixes(prefix=prefix)
        check_filters(after=after)
        check_limit(limit)
        self.core.check_open()
        found = []
        for scope, _, _, made in self.core.scopes():
            text = str(scope)
            wanted = (kind is None or scope.kind == kind) and scope.id.startswith(prefix)
            if wanted and (after is None or text > after):
                found.append((text, ScopeInfo(scope, moment(made))))
        found.sort(key=lambda pair: pair[0])
        page = [info for _, info in found[:limit]]
        more = limit is not None and len(found) > limit
        return Page(page, found[len(page) - 1][0] if more and page else None)

    def plan_delete(
        self, scope: Any, cause: Cause | None, *, erase: bool = False, despite_holds: bool = False
    ) -> Plan:
        """End a scope: its timelines get a last entry, its name can be used again.

        With `erase` the same commit says that the rest of it is to be dropped: `erase_scope`,
        which has asked the gates.
        Refused if a checkpoint is on hold, unless it is to be done `despite_holds`.
        """
        handle = self.of(scope)
        if not erase:
            handle.ask("delete scope", str(handle.scope))
        core = self.core
        main = core.current(handle.scope)
        if main is None:
            raise ScopeNotFoundError(f"there is no scope {handle.scope} in this store")
        ledger = main.ledger
        known, lines = core.timelines(ledger), core.lines(ledger)
        over = (one for one in known if one not in lines)
        last = {number: core.timeline(ledger, name).sequence for number, name, _, _ in over}
        if not lines:
            raise ledger.damage(rowkinds.line(b"T", ledger.number, 0), "it is missing")
        # A timeline that is forked meanwhile would be left alive: then nothing is deleted.
        next_line = rowkinds.line(b"T", ledger.number, known[-1][0] + 1)

        def special(stage: Stage, body: Body) -> None:
            if not stage.timeline.number and not despite_holds:
                check_unmarked(core, stage.ledger, lambda low: stage.range(low, behind(low)))
            stage.gone = True
            body.ops = [[entry.GONE]]
            stage.finish(body)
            last[stage.timeline.number] = stage.sequence
            if stage.timeline.number == lines[-1][0]:
                ended, row = deletion(core, ledger, max(last.values()), erase=erase)
                stage.rows.append((ended, row))
                stage.absent += [ended, next_line]

        targets = [
            Target(handle.scope, name, special=special, create=False) for _, name, _, _ in lines
        ]

        def finish(written: list[Written]) -> int:
            core.forget(ledger)
            return written[0].sequence

        return Change(targets, cause or cause_now(), linked=False), finish


class ChangeParts:
    """A change over several scopes, while it is being put together.

    What it is asked of, a store or a state, is whose its id is.
    """

    def __init__(
        self,
        handle: StoreHandle | LineHandle,
        cause: Cause | None,
        id: str | None,
        *,
        owner: bool = False,
    ) -> None:
        self._handle = StoreHandle(handle.core)
        self._shared = isinstance(handle, StoreHandle)
        self._cause = cause
        self._id = id
        self._owner = owner
        self._over = False
        self.parts: dict[tuple[Scope, str], ScopedChange] = {}
        self.repeated = False
        """Whether it had been applied before, under its id, and so was not applied now."""

    def part(self, given: Any) -> ScopedChange:
        """The part for the timeline of a state of this store, or the main one of a scope."""
        line = self._handle.of(given)
        line.check_present()
        name = (line.scope, line.timeline)
        if name not in self.parts:
            self.parts[name] = ScopedChange(line.reader, owner=self._owner)
            self.parts[name].over = self._over
        return self.parts[name]

    def end(self) -> None:
        """Let what is noted from now on be refused."""
        self._over = True
        for part in self.parts.values():
            part.over = True

    def plan(self) -> Plan | None:
        """The change, or None if nothing was written. What is noted later is refused."""
        self.end()
        if all(part.empty for part in self.parts.values()):
            return None
        for part in self.parts.values():
            known = part._reader.declared_here, part._reader.declared
            part.operations += sticky_along(part.operations, *known)
        noted = [one for part in self.parts.values() for one in part.operations]
        self._handle.core.subjects.expect({one.subject for one in noted})
        if is_longer([one.value for one in noted], MUCH):
            leave_loop()
        change = build_change(
            self._handle.core,
            [part.target for part in self.parts.values()],
            cause=self._cause or cause_now(),
            id=self._id,
            looked=any(part.looked for part in self.parts.values()),
            shared=self._shared,
        )
        return change, self._done

    def _done(self, written: list[Written]) -> list[Written]:
        self.repeated = any(one.repeated for one in written)
        for part in self.parts.values():
            part.repeated = self.repeated
        return [one for one in written if one.hash]
