"""Setting an agent up by a configuration, in one call, and all that runs beside it: blocking face.

with set_up("agents.yaml", initial={"task": None}) as running:
    running.state.set("task", {"id": 1})
    print(running.status())
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.agents.loop.loop import Loop
from holdfast.agents.machines.definition import MachineDefinition
from holdfast.agents.state.agent_state import AgentState
from holdfast.checkpoints.checkpoints import Checkpoints
from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.policy.policy import DEFAULTS, Policy
from holdfast.errors import (
    ConfigurationError,
    Conflict,
    HoldfastError,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
    Unavailable,
)
from holdfast.recovery.context import StepFunction
from holdfast.recovery.failure_kinds import COPY, AgentFailure
from holdfast.recovery.lost_entries import Tails
from holdfast.recovery.records import every_scope, is_own
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.report import RecoveryReport
from holdfast.recovery.scrub import Scrubber
from holdfast.recovery.setup.alerts import (
    Alert,
    Tell,
    firing,
)
from holdfast.recovery.setup.configuration import Configuration
from holdfast.recovery.setup.parts import parts_of
from holdfast.recovery.setup.supervisor import (
    FAILING,
    PartStatus,
    Supervisor,
)
from holdfast.recovery.strategies import refusal, unreadable, written_at
from holdfast.recovery.watchdog import Sightings
from holdfast.store.inner import (
    Core,
    LineHandle,
    Operation,
    StoreHandle,
    core_of,
    handle_of,
    verify_store,
)
from holdfast.store.names.arguments import by_name
from holdfast.store.names.background import Closable
from holdfast.store.names.face import calls, ends, faced, writes
from holdfast.store.names.items import Checkpoint, Entry
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.open import open_core
from holdfast.store.state import State, View
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.backup.backups import Backups
    from holdfast.checkpoints.create import CheckpointResult
    from holdfast.checkpoints.restore_request import RestoreResult
    from holdfast.replicas.replica_sync import SyncReport
    from holdfast.replicas.replicas import Replicas

REPLICAS = "HOLDFAST_REPLICAS"
"""Names the places of replicas, with spaces between them, where a document names none."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What a program has for an agent beside the document; see `set_up`."""

    steps: Mapping[str, StepFunction] | None = None
    machines: Mapping[str, MachineDefinition] | None = None
    agents: Mapping[str, Any] = field(default_factory=dict)
    validate: Sequence[Callable[[Any], Any]] = ()
    replicas: Sequence[str | Path] = ()
    on_alert: Tell | None = None
    start: bool = True
    run: Callable[[State, Any], tuple[Callable[[], Any], Callable[[Any], Any]]] = field(
        default=lambda state, make: (lambda: Loop(state, make, signals=()), lambda done: done)
    )
    """How a loop is made of an agent, and waited for: in which the faces differ."""


@dataclass(frozen=True, slots=True)
class RunningStatus:
    """How an agent that was set up, and all that runs beside it, is now."""

    agent_id: str
    current_state: str
    """Its newest entry, TIMELINE@NUMBER; empty if it cannot be told."""
    checkpoint: str
    """Its newest checkpoint; empty if there is none."""
    parts: tuple[PartStatus, ...]
    alerts: tuple[Alert, ...]
    """Those that fire, whichever process watches."""
    unanswered: tuple[str, ...]
    """Failures that were found and are not answered yet."""

    @property
    def ok(self) -> bool:
        """Whether nothing fails, no alert fires, and every failure is answered."""
        failing = any(one.state == FAILING for one in self.parts)
        return not (failing or self.alerts or self.unanswered)

    def __str__(self) -> str:
        at = f"at {self.current_state or 'no state'}, checkpoint {self.checkpoint or 'none'}"
        lines = [f"agent:{self.agent_id} {at}: {'well' if self.ok else 'not well'}"]
        lines += [f"  {one}" for one in self.parts]
        lines += [f"  alert {one}" for one in self.alerts]
        return "\n".join([*lines, *(f"  failure {one}" for one in self.unanswered)])


@dataclass(frozen=True, slots=True)
class SetUp:
    """What is in force for an agent since it was set up; what cannot be raised instead."""

    success: bool
    """False if the newest state is damaged: nothing was written, no policy of it is in force."""
    agent_id: str
    created: bool
    """Whether the agent was not there before."""
    current_state: str
    """Its newest entry, TIMELINE@NUMBER."""
    storage_initialized: bool
    encrypted: bool
    checkpointing_enabled: bool
    policies: tuple[str, ...]
    """Ids of the policies that are on, default ones included, the highest priority first."""
    backup: str
    """Where `managed.backups` puts them; empty if the configuration names no place."""
    recovery_configured: bool
    procedures: tuple[str, ...]
    """Ids of the procedures, those that are asked first first."""
    sync_enabled: bool
    replicas: tuple[str, ...]
    """Where replicas of the store are, which are kept up to date; without passwords."""
    verification: str
    scrub_interval: float | None
    """Seconds between two slices of the background check of its store; None: there is none."""
    findings: tuple[str, ...]
    """What is damaged, as far as it was looked at: of the past, too, if all was verified."""
    notes: tuple[str, ...]
    initialized_at: int
    """Milliseconds since 1970, as this process's clock claimed."""


@faced
class Managed(Closable):
    """An agent that was set up: its store, its state, and what takes care of them.

    All that can be done with the agent's state is here: `checkpoint`, `restore`, `list`,
    `validate`, `recover`, `synchronise`, `history` and `status`, with its policies in force.
    """

    def __init__(self, store: Store, config: Configuration, beside: Beside) -> None:
        self.store = store
        self.state: State = store.agent(config.agent_id)
        self.backups: Backups | None = None
        """Of the store, at the place that the configuration names, if it names one."""
        self.replicas: Replicas | None = None
        """What keeps replicas up to date, in the background, if there are any."""
        for place in [one for one in config.backups if not one.scopes]:
            from holdfast.backup.backups import Backups

            where = {"region": place.region, "endpoint": place.endpoint}
            self.backups = Backups(store, place.url, **where, encryption=place.encryption)
        if config.replication is not None and (places := places_of(config, beside.replicas)):
            from holdfast.replicas.replicas import Replicas

            self.replicas = Replicas(store, places, factor=config.replication.factor)
        self._newest_wins = config.replication is not None and config.replication.newest_wins
        # First those that are not there yet are made, so that all of them are copies.
        begun = self.replicas.sync() if self.replicas is not None else None
        self._copies = self.replicas.copies() if self.replicas is not None else []
        self.recovery: Recovery = Recovery(
            store,
            steps=beside.steps,
            copies=self._copies,
            # What is kept of the agent's components is as their types and rules want it.
            validate=[
                lambda view: "; ".join(AgentState(view).problems()[:5]) or None,
                *beside.validate,
            ],
            machines=beside.machines,
        )
        self.scrubber: Scrubber | None = None
        """What checks the store in the background, if the configuration asks for that."""
        if config.scrub_interval is not None:
            self._scrub_every(config.scrub_interval)
        self.policies: Policies = Policies(store)
        sync = self.replicas.hold if self.replicas is not None else None
        self.checkpoints: Checkpoints = Checkpoints(self.state, sync=sync)
        self.report: SetUp
        self._own = False
        # Before anything is written here: that would be the newest.
        self._trouble = [
            f"replica {one.url}: {said}"
            for one in (self._resolved(begun).replicas if begun is not None else ())
            for said in ((one.error,) if one.error is not None else one.findings)
        ]
        """What is wrong with any of the replicas, which keeps nobody up."""
        self._supervisor = Supervisor(core_of(store), parts_of(self, config, beside))

    def _scrub_every(self, interval: float) -> Scrubber:
        """Make what checks the store in the background anew; it is not started."""

        def found(findings: Any) -> None:
            watchdog = self._supervisor.part("watchdog")
            if watchdog is None:
                raise Unavailable("the watchdog does not run just now")
            watchdog.report(findings)

        copies = self._copies
        self.scrubber = Scrubber(self.store, interval=interval, copies=copies, found=found)
        return self.scrubber

    @ends
    def close(self) -> None:
        """Stop all that runs beside the agent, each after what it is at; a store that was opened
        for it is closed."""
        with ExitStack() as ends:  # each of them, whatever becomes of the others
            if self._own:
                ends.callback(self.store.close)
            ends.callback(self.policies.close)
            ends.callback(self._supervisor.stop)

    # the agent's state

    @writes
    def checkpoint(self, request: Any = "", **fields: Any) -> CheckpointResult:
        """Make a checkpoint, as `Checkpoints.create` does; `sync=True` waits for the replicas."""
        return self.checkpoints.create(request, **fields)

    @writes
    def restore(self, request: Any = None, **fields: Any) -> RestoreResult:
        """Return to a point, as `Checkpoints.restore` does."""
        return self.checkpoints.restore(request, **fields)

    def list(self, *, limit: int | None = None, **where: Any) -> builtins.list[Checkpoint]:
        """Checkpoints of the agent, the newest first, as `Checkpoints.find` does."""
        return self.checkpoints.find(limit=limit, **where)

    def validate(self) -> builtins.list[str]:
        """What is wrong with the agent's newest state: damage, or what a check refuses."""
        handle = handle_of(self.state)
        damaged = unreadable(handle)
        if damaged is not None:
            return [damaged]
        head = handle.place()[2]
        checks = self.recovery._settings.validate
        why = refusal(checks, View(handle.view(head))) if head else "there is no state yet"
        return [why] if why is not None else []

    @calls()
    @writes
    def recover(self, failure: Any = "unknown", **more: Any) -> RecoveryReport:
        """Bring the agent back to a good state, as `Recovery.recover` does."""
        return self.recovery.recover(self.state, failure, **more)

    @writes
    def synchronise(self) -> SyncReport:
        """Bring all replicas up to now.

        One that went its own way, for it was promoted, or the store was put back, is left as it is;
        with `conflict_resolution: timestamp_wins` it follows again, once each scope has the state
        whose newest change is the later one, there or here.
        """
        if self.replicas is None:
            raise InvalidInputError(
                "there are no replicas: name them in synchronization.replicas of the document"
            )
        return self._resolved(self.replicas.sync())

    def _resolved(self, report: SyncReport) -> SyncReport:
        """What became of replicas that went their own way, if the newest wins.

        A state of theirs comes as a recovery from a copy does: what was here is in the history. All
        else that only they hold is gone with them.
        """
        split = {one.url for one in report.replicas if one.split} if self._newest_wins else ()
        if not split or self.replicas is None:
            return report
        recovery = Recovery(self.store, copies=self._copies, order=[COPY])
        here, there = handle_of(self.store), [handle_of(one) for one in self._copies]
        why, wrong = f"a replica was written to by itself: {', '.join(sorted(split))}", list[str]()
        for scope in sorted({scope for one in there for scope in every_scope(one)}, key=str):
            try:
                newest = max(written_at(one.line(scope)) for one in there)
                if not is_own(scope) and newest > written_at(here.line(scope)):
                    recovery.recover(scope, AgentFailure("network_partition", why[:1000]))
            except HoldfastError as error:  # somebody has to look: nothing that it holds may go
                wrong.append(f"{scope}: {type(error).__name__}: {error}")
        if wrong:
            said = f"it went its own way, and is left as it is: {'; '.join(wrong)}"[:2000]
            told = (replace(one, error=said) if one.split else one for one in report.replicas)
            return replace(report, replicas=tuple(told))
        for url in split:
            report = self.replicas.sync(remake=url)
        return report

    def history(self, *, limit: int | None = None) -> builtins.list[Entry]:
        """What was written to the agent, the newest first, with who and why."""
        return self.state.log(limit=limit)

    def status(self) -> RunningStatus:
        """How the agent and all that runs beside it are now."""
        store, scope = handle_of(self.store), self.state.scope
        current = checkpoint = ""
        with suppress(StateIntegrityError, ScopeNotFoundError):  # damaged, or not there yet
            current = f"main@{handle_of(self.state).place()[2]}"
            checkpoint = next((one.id for one in self.list(limit=1)), "")
        open_ = [f"{one.agent}: {one.failure.kind}: {one.error}" for one in Sightings(store).all()]
        parts = self._supervisor.status()
        return RunningStatus(
            scope.id, current, checkpoint, parts, tuple(firing(store)), tuple(open_)
        )


# ---- setting up ---------------------------------------------------------------------------------


def set_up(
    config: Configuration | Mapping[str, Any] | str | Path,
    *,
    store: Store | None = None,
    initial: Mapping[str, Any] | None = None,
    steps: Mapping[str, StepFunction] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
    agents: Sequence[Any] | Mapping[str, Any] = (),
    validate: Sequence[Callable[[Any], Any]] = (),
    replicas: Sequence[str | Path] = (),
    on_alert: Tell | None = None,
    start: bool = True,
) -> Managed:
    """Set an agent up as a configuration says, and start all that runs beside it.

    `config` is a file (.yaml, .toml, .json), the same as plain data, or a `Configuration`. The
    store is opened, or made, by it, unless an open one is given. The policies are the agent's own
    from then on, the procedures are kept for it; one that it has already in the same words is not
    written again, and one that the configuration does not name is left. `initial` is written if
    the agent is not there, in one change with the policies: of several who set it up at once one
    writes it, and the others take what is there. What is not available is refused with
    `ConfigurationError` before anything is touched.

    Then the parts run until it is closed: policies and schedules, retention, backups, replicas,
    the watchdog, scrubbing, expiry, audit and alerts; with `start=False` none of them but policies.
    Of several processes one does each job. A part that dies is started again.

    `agents` is what is run here in a `Loop`: a list of one class or function that makes the agent
    of the document, or several by their ids. `steps` are types of steps of your own that procedures
    use, `machines` definitions by the names of machines, by which an open transition is settled;
    `validate` are functions that get a view of the state: what they refuse is recovered from.
    `replicas` are their URLs where the document names none. `on_alert` is called with each event.
    """
    config = Configuration.load(config)
    made = Beside(steps, machines, agents_of(config, agents), validate, replicas, on_alert, start)
    check_set_up(config, initial, store, Store, made)
    opened = store if store is not None else Store(StoreHandle(open_core(**opening(config))))
    try:
        managed = set_up_in(opened, config, initial, made, given=store is not None)
    except BaseException:  # a store that was opened for it is not left open
        if store is None:
            opened.close()
        raise
    managed._own = store is None
    return managed


def agents_of(config: Configuration, given: Any) -> dict[str, Any]:
    """Agents by their ids."""
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, list | tuple) or len(given) > 1:
        raise InvalidInputError(
            "agents is a list of one class or function, which makes the agent of the document, or "
            "several by their ids: {'planner': make_planner, 'writer': make_writer}"
        )
    return dict.fromkeys((config.agent_id,), given[0]) if given else {}


def set_up_in(
    store: Store,
    config: Configuration,
    initial: Mapping[str, Any] | None,
    beside: Beside,
    *,
    given: bool,
) -> Managed:
    """The same in an open store, which stays open; `given` says that it was open before."""
    managed = Managed(store, config, beside)
    try:
        managed.report = put_in_force(managed, config, initial, given=given)
        if beside.start:
            managed._supervisor.start()
            watchdog = managed._supervisor.part("watchdog")
            if not managed.report.success and watchdog is not None:
                # What is damaged now is answered as if it were just found.
                with suppress(ScopeNotFoundError):  # what is left of it nobody can name
                    watchdog.report(verify_store(core_of(store), managed.state.scope).findings)
    except BaseException:  # also a cancelled start: nothing goes on behind it
        managed._supervisor.stop()
        managed.policies.close()
        raise
    return managed


def places_of(config: Configuration, given: Sequence[str | Path]) -> Sequence[str | Path]:
    """Where replicas are: as the document says, else the program, else the environment."""
    if config.replication is None:
        return ()
    return config.replication.urls or given or os.environ.get(REPLICAS, "").split()


def opening(config: Configuration) -> dict[str, Any]:
    """The arguments of `open` for a configuration."""
    names = ("url", "key", "signer", "durability", "cache", "cache_ttl")
    return {name: getattr(config, name) for name in names}


def check_set_up(
    config: Configuration, initial: object, store: object, kind: type, beside: Beside
) -> None:
    """Refuse what cannot be set up, as far as that is known before a store is opened."""
    for key in by_name(initial, "initial"):
        check_key(key)
    if store is not None and not isinstance(store, kind):
        raise InvalidInputError(
            "store is an open one of the same face: that of holdfast.sync for "
            "holdfast.sync.recovery.set_up, that of holdfast.open for holdfast.recovery.set_up"
        )
    plain = not (config.key or os.environ.get("HOLDFAST_KEY"))
    if store is not None:
        plain = core_of(store).ring is None  # type: ignore[arg-type]
    asks = [
        f"checkpointing.policies {one.id}: encryption"
        for one in config.policies
        if one.demands_encryption
    ]
    asks += ["storage.backup.encryption" for one in config.backups if one.encryption]
    if plain and asks:  # before a plain store is made
        way = "the store is plain: give storage.primary.key, or HOLDFAST_KEY, when it is made"
        raise ConfigurationError([f"{one}: {way}; or ask for none" for one in asks])
    if store is not None and config.key is not None and plain:
        raise ConfigurationError(["storage.primary.key: the store that was given is not encrypted"])
    for one in config.backups:
        from holdfast.backup.place import Place

        try:
            Place(one.url, region=one.region, endpoint=one.endpoint).make()
        except InvalidInputError as error:
            raise ConfigurationError([f"storage.backup: {error}"]) from None
    if config.replication is not None and (places := places_of(config, beside.replicas)):
        from holdfast.replicas.replicas import check_factor, check_urls

        try:
            urls = check_urls(places)
            check_factor(config.replication.factor, len(urls), "replication_factor")
        except InvalidInputError as error:
            raise ConfigurationError([f"synchronization.replicas: {error}"]) from None


def put_in_force(
    managed: Managed, config: Configuration, initial: Mapping[str, Any] | None, *, given: bool
) -> SetUp:
    """Verify what is there, write what is not, and say what is in force.

    `given` says that the store was open before.
    """
    policies, recovery = managed.policies, managed.recovery
    core, scope = policies._core, Scope("agent", config.agent_id)
    policies._check(config.policies)
    new, broken, findings = _looked_at(core, scope, config.verification)
    created, notes = new, [*config.notes]
    for one in config.procedures:
        recovery._checked(one)  # all of them, before any is kept
    if config.procedures:
        recovery._mend_notices()  # where they are kept
        recovery._book.set(list(config.procedures), scope)
    current, in_force = 0, tuple[str, ...]()
    if not broken:
        try:
            # Who names some policies wants those: the default ones are switched off.
            named = {one.id for one in config.policies}
            off = [one.id for one in DEFAULTS if named and one.id not in named]
            wanted = [*config.policies, *(Policy(id, (), enabled=False) for id in off)]
            created = _write(policies, scope, wanted, initial or {}, new=new)
            current = LineHandle(core, scope, "main").place()[2]
            in_force = tuple(one.id for one in policies.list(scope) if one.enabled)
        except StateIntegrityError as error:  # the level asked for no look at it before
            broken, findings = True, (*findings, str(error))
    if config.replication is not None and managed.replicas is None:
        how = f"name them in synchronization.replicas, by replicas=, or in {REPLICAS}"
        notes.append(f"synchronization: nothing is copied yet, for no replicas are named; {how}")
    # What a document says of a store, and does not matter, for an open one was given.
    said = [config.url.partition(":")[2], config.key, config.signer, config.durability != "full"]
    for part, there in (("storage.primary", any(said)), ("storage.cache", config.cache)):
        if given and there:
            notes.append(f"{part}: the store that was given is used, as it was opened")
    return SetUp(
        success=not broken,
        agent_id=config.agent_id,
        created=created,
        current_state=f"main@{current}" if current else "",
        storage_initialized=True,
        encrypted=core.ring is not None,
        checkpointing_enabled=not broken,
        policies=in_force,
        backup=", ".join(one.url for one in config.backups),
        recovery_configured=True,
        procedures=tuple(one.id for one in recovery.procedures(scope)),
        sync_enabled=managed.replicas is not None,
        replicas=managed.replicas.urls if managed.replicas is not None else (),
        verification=config.verification,
        scrub_interval=config.scrub_interval,
        findings=findings,
        notes=(*notes, *managed._trouble),
        initialized_at=core.clock.claimed() // 1000,
    )


def _looked_at(core: Core, scope: Scope, level: str) -> tuple[bool, bool, tuple[str, ...]]:
    """Whether an agent is new, whether it is broken, as far as a level asks for, and findings."""
    try:
        if not _is_there(core, scope):
            # Of a scope that the directory does not name, nobody can tell whose it was.
            lost = tuple(
                f"scope {number:x}: the directory does not name it; it may be this agent's"
                for number in sorted(Tails(StoreHandle(core)).unlisted() if level == "high" else ())
            )
            return not lost, bool(lost), lost
        broken = unreadable(LineHandle(core, scope, "main")) if level != "low" else None
        findings: tuple[str, ...] = (broken,) if broken else ()
        if level == "high":
            found = verify_store(core, scope).findings
            findings = tuple(f"{one.place}: {one.message}" for one in found) or findings
        return False, bool(broken), findings
    except StateIntegrityError as error:  # not even where it begins can be read
        return False, True, (str(error),)


def _is_there(core: Core, scope: Scope) -> bool:
    """Whether there is such a scope; one that was to be made here, and was refused, is not."""
    ledger = core.known(scope)
    return ledger is not None and (ledger.birth is None or core.current(scope) is not None)


def _write(
    policies: Policies,
    scope: Scope,
    wanted: Sequence[Policy],
    initial: Mapping[str, Any],
    *,
    new: bool,
) -> bool:
    """Write what an agent does not have, in one change; whether it was not there before.

    Of several who make the same agent one does; the others take what is there then.
    """
    have = {one.id: one for one in policies.list(scope)}
    others = [one for one in wanted if have.get(one.id) != one]
    if new:
        first = [Operation("set", key, value) for key, value in initial.items()]
        if not first and not others:
            return True
        try:
            policies._put(scope, others, first, head=0, reason="initial state")
            return True
        except Conflict:  # of several who make it at once, another was first
            if not _is_there(policies._core, scope):
                raise
        return _write(policies, scope, wanted, {}, new=False)
    if others:
        policies._put(scope, others)
    return False
