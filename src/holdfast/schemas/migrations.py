"""Migrations: values of older versions of a schema become those of the newest, all or none.

report = Migrations(store).run("agent:*", "profile", dry_run=True)

The work is done on a fork, batch by batch, and taken over in one entry. What others write meanwhile
is brought along and migrated before that. One that was killed goes on where it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msgspec import Struct

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    InvalidSchemaError,
    MissingError,
    SchemaViolationError,
)
from holdfast.schemas.compatibility import MigrationCheck, check_migration
from holdfast.schemas.schema import DOCUMENTS, MIGRATIONS, Schema, SchemaRule
from holdfast.schemas.transforms import Custom
from holdfast.seal.codec import Typed
from holdfast.seal.subject_keys import SEALED
from holdfast.store.inner import (
    Asking,
    Book,
    Operation,
    Slot,
    Stage,
    Terms,
    Timeline,
    announce,
    announced,
    core_of,
    derived,
    end_line,
    given_back,
    handle_of,
    has_sealed,
    index_of,
    lease_name,
    own_step,
    read_meta,
    restore_state,
    sticky_of,
    taken,
    terms_of,
    tree_changes,
)
from holdfast.store.names.arguments import (
    check_count,
    check_face,
    check_flag,
    check_seconds,
    check_text,
)
from holdfast.store.names.cause import acting
from holdfast.store.names.face import faced, writes
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.patterns import Patterns
from holdfast.store.names.scope import Scope
from holdfast.store.state import State
from holdfast.store.store import Store

NOT_STARTED, IN_PROGRESS, COMPLETED = "not_started", "in_progress", "completed"
FAILED, ROLLED_BACK = "failed", "rolled_back"
BATCH = 100
TIMEOUT = 300.0
LEASE = 30.0
"""Seconds for which who runs a migration on another machine is waited for once it is gone."""
ROUNDS = 20
"""How often what others write meanwhile is brought along before it is given up."""


class MigrationRecord(Struct):
    """What is kept of the migration of one scope."""

    status: str
    to: int
    fork: str = ""
    start: int = 0
    """The entry of main that the fork began from."""
    checkpoint: str = ""
    migrated: int = 0


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration of one scope came to."""

    scope: Scope
    schema: str
    to: int
    status: str
    """not_started, in_progress, completed, failed or rolled_back"""
    migrated: int = 0
    """Values that were led to the newer version; in a dry run, that would be."""
    failures: tuple[str, ...] = ()
    """Keys that could not be, each with its path and what is wrong; then nothing was taken over."""
    checkpoint: Checkpoint | None = None
    """The state before."""
    dry_run: bool = False
    versions: dict[int, int] = field(default_factory=dict)
    """How many values there were of each version; 0: written before there was a schema."""


@faced
class Schemas:
    """The schemas that the scopes of a store have declared, in all their versions."""

    def __init__(self, store: Store) -> None:
        check_face(store, Store, "Schemas")
        self._store = store

    def get(self, name: str, version: int | None = None) -> Schema:
        """A schema by its name, of a version or the newest that was declared anywhere."""
        found = [one for one in self.history(name) if version in (None, one.version)]
        if not found:
            raise MissingError(f"no scope has declared a schema {name!r} of that version")
        return found[-1]

    def history(self, name: str) -> Sequence[Schema]:
        """All versions of a schema, the oldest first."""
        check_text(name, "the name of a schema", 64, least=1)
        return [one for one in self._all() if one.name == name]

    def list(self) -> Sequence[Schema]:
        """The newest version of each schema, by their names."""
        return list({one.name: one for one in self._all()}.values())

    def _all(self) -> Iterator[Schema]:
        """All of all scopes, by their names and versions."""
        found: dict[str, Any] = {}
        for info in self._store.scopes().items:
            reader = handle_of(self._store.scope(info.scope)).reader
            found |= dict(reader.items(DOCUMENTS.prefix, None, "", False))
        made = map(Schema.of_document, found.values())
        return iter(sorted(made, key=lambda one: (one.name, one.version)))


@faced
class Migrations:
    """Leads values to the versions of schemas that scopes declare."""

    def __init__(self, store: Store) -> None:
        check_face(store, Store, "Migrations")
        self._store = store

    def validate(self, old: Schema, new: Schema, level: str = "strict") -> MigrationCheck:
        """Whether the steps of a newer schema lead there from an older one, and how risky it is."""
        if not isinstance(old, Schema) or not isinstance(new, Schema):
            raise InvalidInputError("validate takes two schemas: Schemas(store).get(name, version)")
        try:
            steps = new.way(old.version)
        except InvalidSchemaError as error:
            return MigrationCheck(error.problems, "critical", error.problems)
        return check_migration(old.document, new.document, steps, level)

    @writes
    def run(
        self,
        scope: str,
        schema: str,
        *,
        to: int | None = None,
        key: str | None = None,
        dry_run: bool = False,
        batch_size: int = BATCH,
        timeout: float = TIMEOUT,
    ) -> Sequence[MigrationReport]:
        """Migrate the values of a schema in a scope, or in all that fit a pattern; a report each.

        Each value is led from its own version. What fails is named with its key, and then nothing
        of that scope is taken over. `to` is the version that is declared; with `key` one value
        alone. A checkpoint of the type `migration` is made first. A dry run does all but taking it
        over. After `timeout` seconds it is given up, and goes on when it is run again. As
        long it waits for another that runs the migrations of that schema, then `LeaseHeldError`.
        """
        check_count(batch_size, "batch_size", 1)
        check_seconds(timeout, "timeout")
        check_flag(dry_run, "dry_run")
        if to is not None:
            check_count(to, "to", 1)
        # Who runs it beside another waits, and finds it done; who only looks waits for nobody.
        name, lease = lease_name("migration", schema), None
        if not dry_run:
            lease = taken(Asking(core_of(self._store), name, LEASE, timeout, None))
        try:
            with (
                lease.fencing() if lease is not None else nullcontext(),
                acting("migrations", correlation=f"migration/{schema}"),
            ):
                found = self._found(scope, schema, to)
                reports = [_Work(*one, key, batch_size, timeout, dry_run).run() for one in found]
        finally:
            given_back(lease)
        if key is not None and not any(one.versions or one.failures for one in reports):
            raise MissingError(f"no scope that fits {scope} has a key {key!r} of {schema}")
        return reports

    def status(self, scope: str, schema: str) -> Sequence[MigrationReport]:
        """How far the migrations of a schema are: a report for each scope that declares it."""
        return [_Work(*found).status() for found in self._found(scope, schema)]

    def _found(
        self, scope: str, schema: str, to: int | None = None
    ) -> list[tuple[State, SchemaRule]]:
        """The scopes that fit, and declare the schema, of that version if it is said."""
        check_text(schema, "the name of a schema", 64, least=1)
        fits, all_ = Patterns(str(scope)).fit, self._store.scopes().items
        states = [self._store.scope(one.scope) for one in all_ if fits(str(one.scope))]
        found = [
            (state, one)
            for state in states
            for one in state.declared()
            if isinstance(one, SchemaRule) and one.name == schema
        ]
        if not found:
            raise MissingError(f"no scope that fits {scope} declares a schema {schema!r}")
        for state, one in found:
            if to not in (None, one.version):
                said = f"{state.scope} declares version {one.version} of {schema}, not {to}"
                raise InvalidSchemaError([said])
        return found


@dataclass
class _Work:
    """The migration of one scope."""

    state: State
    rule: SchemaRule
    key: str | None = None
    batch: int = BATCH
    timeout: float = TIMEOUT
    dry_run: bool = False

    def __post_init__(self) -> None:
        state, rule = self.state, self.rule
        if (guard := handle_of(state).core.guard) is not None:
            guard.check(state.scope)  # what is said of all values leaves none out
        self._schema = rule.schema(handle_of(state).reader.get)
        # The version that values are taken for that were written before there was a schema.
        steps = self._schema.steps
        self._first = min((one.from_version for one in steps), default=rule.version)
        self._until = time.monotonic() + self.timeout
        self._core = None if self.dry_run else handle_of(state).core  # which tells hooks of it
        self._about = {"scope": str(state.scope), "schema": rule.name, "to": rule.version}
        self._book = Book(state, MIGRATIONS, MigrationRecord)
        self._id = rule.name if self.key is None else f"{rule.name}/{self.key}"
        self._record = MigrationRecord(NOT_STARTED, rule.version)
        self._failures: list[str] = []
        self._done: set[str] = set()

    def status(self) -> MigrationReport:
        """How far it is."""
        known, waiting = self._book.get(self._id), self._versions()
        if known is not None and known.to == self.rule.version:
            self._record = known
        status = self._record.status
        if not self._older(waiting):
            status = COMPLETED
        elif status == COMPLETED:
            # What is older again was put back: all that is written is of the newest version.
            status = ROLLED_BACK
        return self._report(status, waiting)

    def _report(self, status: str, versions: dict[int, int], *failures: str) -> MigrationReport:
        kept = self.state.checkpoints(type="migration") if self._record.checkpoint else ()
        return MigrationReport(
            self.state.scope,
            self.rule.name,
            self.rule.version,
            status,
            self._record.migrated or len(self._done),
            (*self._failures, *failures),
            next((one for one in kept if one.id == self._record.checkpoint), None),
            self.dry_run,
            versions,
        )

    def run(self) -> MigrationReport:
        """Do it on a fork, then take that over, unless something failed; hooks are told."""
        before = self._versions()
        older, record, status = self._older(before), self._record, COMPLETED
        least = min((version or self._first for version in before), default=self.rule.version)
        for step in (one for one in self._schema.steps if one.from_version >= least):
            for one in (each for each in step.transformations if isinstance(each, Custom)):
                _ = one.function  # refused before anything is done
        try:
            with announced(self._core, "migration_", **self._about) as about:
                if older and self.dry_run:
                    self._migrate(self.state)
                elif older:
                    record = self._begun()
                    self._take_over(record)
                # Also what one that was cut short has done.
                about["migrated"] = record.migrated = max(older, len(self._done))
        except TimeoutError:
            return self._report(IN_PROGRESS, before)
        except MissingError:
            if handle_of(self.state).reader.now() is not None:
                raise
            # It keeps none of the others that fit from being migrated.
            self._record.checkpoint = ""
            return self._report(FAILED, {}, "the scope was deleted meanwhile")
        except SchemaViolationError:
            status = FAILED
            announce(self._core, "migration_rollback_completed", **self._about)
        if record.fork:
            if status == FAILED:
                with suppress(HoldfastError):  # what is left of it harms nobody
                    end_line(handle_of(self.state.on(record.fork)), "migration")
            record.fork, record.status = "", status
            self._note(record)
        return self._report(status, before)

    def _begun(self) -> MigrationRecord:
        """The record of a run that was killed or ran out of time, or of a new one; and its fork."""
        record = self._book.get(self._id)
        if record is None or (record.status, record.to) != (IN_PROGRESS, self.rule.version):
            label = f"before {self.rule.name} {self.rule.version}"
            checkpoint = self.state.checkpoint(label, type="migration")
            fork = f"$migration/{self.rule.name}/{time.time_ns():x}"
            about = (fork, checkpoint.sequence, checkpoint.id)
            record = MigrationRecord(IN_PROGRESS, self.rule.version, *about)
            self._note(record)
        self._record = record
        with suppress(Conflict):  # it is there
            self.state.fork(record.fork, at=record.start)
        return record

    def _note(self, record: MigrationRecord) -> None:
        self._book.step(lambda page: page.put(self._id, record), reason="migration")

    def _take_over(self, record: MigrationRecord) -> None:
        """Migrate, and bring along what others write, until it is taken over in one entry."""
        main, fork, since = handle_of(self.state), self.state.on(record.fork), record.start
        reason = f"migrated to {self.rule.name} {self.rule.version}"
        for _ in range(ROUNDS):
            head = main.place()[2]
            self._failures.clear()
            with suppress(Conflict):  # others have written since: that is brought along, too
                self._bring(fork, since, head)
                since = head
                self._migrate(fork)
                point = f"{record.fork}@{handle_of(fork).place()[2]}"
                restore_state(main, point, "full", reason, head, keep=_of_features)
                return
        raise Conflict(f"{self.state.scope}: others never stopped writing; try again", [])

    def _bring(self, fork: State, since: int, head: int) -> None:
        """Let a fork have what main has become from one entry to another: whole values, as stored.

        A merge would make one value of theirs and what it was led to, and would bring back what a
        restore has undone.
        """
        points = handle_of(self.state).history.points
        then, now = (points.view(self.state.timeline, one) for one in (since, head))
        differ = tree_changes(now.ledger.trees, index_of(then), index_of(now))
        keys, noted = {key for key, _, _ in differ}, f"{MIGRATIONS.prefix}{fork.timeline}"
        if since == self._record.start:
            # What an earlier run brought may have gone back since, and then does not differ: the
            # fork knows which keys these are. It is told before it gets the first of them.
            keys.update(handle_of(fork).reader.get(noted, ()))
        wanted = sorted(key for key in keys if not derived(key))
        made = [Operation("append", noted, wanted)] if wanted else []
        for key in wanted:
            slot = now.slot(key)
            if slot is not None:
                made.append(_set(key, slot, _stored(now, key, slot), read_meta(slot.meta).schema))
            else:
                made.append(Operation("delete", key))
        self._write(fork, "what was written meanwhile", made)

    def _write(self, fork: State, reason: str, made: list[Operation]) -> None:
        """Write to the fork, batch by batch. Nobody else does: it is under the lease."""

        def note(some: list[Operation], parts: Any) -> None:
            parts.part(handle_of(fork)).operations += some

        for start in range(0, len(made), self.batch):
            own_step(fork, partial(note, made[start : start + self.batch]), reason=reason)

    def _migrate(self, state: State) -> None:
        """Lead all older values of a state through the steps, batch by batch; all or none."""
        waiting = [key for key, version in self._keys(state) if version < self.rule.version]
        for start in range(0, len(waiting), self.batch):
            if time.monotonic() > self._until:
                raise TimeoutError("run it again to go on")
            made = list(self._led(state, waiting[start : start + self.batch]))
            self._done.update(one.key for one in made)
            if made and not self.dry_run:
                self._write(state, "migration", made)
                done = {**self._about, "migrated": len(self._done)}
                announce(self._core, "migration_step_completed", **done)
        if self._failures:
            raise SchemaViolationError("; ".join(self._failures[:10]), self._failures)

    def _led(self, state: State, keys: list[str]) -> Iterator[Operation]:
        """What sets keys to their values as they are to be now; those that fail are told."""
        reader = handle_of(state).reader
        line = reader.now()
        for key in keys:
            slot = line.slot(key) if line is not None else None
            if line is None or slot is None:
                continue
            value, codec, kept = _stored(line, key, slot), line.ledger.codec, None
            version = read_meta(slot.meta).schema or self._first
            try:
                if isinstance(value, Typed) and value.name == SEALED:  # as a whole, for a subject
                    value = line.ledger.value_of(key, line.settled(slot), codec.plain_viewer)
                    kept = reader.to_update(key, None)[2]
                new = self._schema.migrated(value, version)
                problems = self._schema.checker.problems(
                    codec.plain_viewer.decode(codec.encode(new)) if has_sealed(new) else new
                )
                if problems:
                    raise SchemaViolationError("; ".join(problems), problems)
            except HoldfastError as error:
                self._failures.append(f"{key} (version {version}): {error}")
                continue
            # It is checked once.
            yield _set(key, slot, new, self.rule.version, kept.name if kept is not None else None)

    def _keys(self, state: State) -> Iterator[tuple[str, int]]:
        """Keys of the schema, with the version of each; 0 for none."""
        reader = handle_of(state).reader
        line = reader.now()
        if line is None:
            return
        mine = self.rule
        rules = [one for one in line.declared.all if isinstance(one, SchemaRule)]
        # Of keys below another schema's longer prefix that one says what they are.
        inside = any(one.prefix.startswith(mine.prefix) for one in rules if one.key != mine.key)
        for key, slot in reader.scan(line, mine.prefix):
            if key[:1] == "$" or self.key not in (None, key) or reader.judged(slot) is None:
                continue
            rule = line.declared.check_of(key) if inside else mine
            if rule is not None and rule.key == mine.key:
                yield key, read_meta(slot.meta).schema

    def _versions(self) -> dict[int, int]:
        return dict(Counter(version for _, version in self._keys(self.state)))

    def _older(self, versions: dict[int, int]) -> int:
        return sum(versions[one] for one in versions if one < self.rule.version)


def _of_features(stage: Stage) -> list[str]:
    """How keys begin that taking over leaves alone. Of the users' own the fork has the newest."""
    return [one for one in sticky_of(stage) if one[:1] == "$"]


def _stored(line: Timeline, key: str, slot: Slot) -> Any:
    return line.ledger.value_of(key, line.settled(slot), line.ledger.codec.plain_reader)


def _set(key: str, slot: Slot, value: Any, version: int, subject: str | None = None) -> Operation:
    """Set a key that lasts as long as it did, to the moment, and is of a version; 0: of none."""
    terms = replace(terms_of(read_meta(slot.meta)) or Terms(), schema=version or -1)
    return Operation("set", key, value, terms, subject)
