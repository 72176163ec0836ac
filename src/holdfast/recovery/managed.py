"""Setting an agent up by a configuration, in one call, and saying what is in force: blocking face.

with set_up(Configuration.from_yaml(text), initial={"task": None}) as managed:
    managed.state.set("task", {"id": 1})
    print(managed.report)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.agents.machines.definition import MachineDefinition
from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.policy.policy import Policy
from holdfast.errors import (
    ConfigurationError,
    Conflict,
    InvalidInputError,
    StateIntegrityError,
)
from holdfast.recovery.configuration import Configuration
from holdfast.recovery.context import StepFunction
from holdfast.recovery.lost_entries import Tails
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.scrub import Scrubber
from holdfast.recovery.strategies import unreadable
from holdfast.storage import shown
from holdfast.store.inner import Core, LineHandle, Operation, StoreHandle, core_of, verify_store
from holdfast.store.names.background import Closable
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.open import open_core
from holdfast.store.state import State
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.backup.backups import Backups
    from holdfast.replicas.replicas import Replicas


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

    def __str__(self) -> str:
        what = "new" if self.created else f"at {self.current_state or 'no state'}"
        lines = [
            f"agent:{self.agent_id} ({what}): {'in force' if self.success else 'damaged'}",
            f"  storage: {'encrypted' if self.encrypted else 'plain'}",
            f"  backups: {self.backup or 'none'}",
            f"  replicas: {', '.join(self.replicas) or 'none'}",
            f"  policies: {', '.join(self.policies) or 'none'}",
            f"  procedures: {', '.join(self.procedures) or 'none'}",
            f"  verified: {self.verification}{self._scrubbed()}",
            *(f"  found: {one}" for one in self.findings),
            *(f"  note: {one}" for one in self.notes),
        ]
        return "\n".join(lines)

    def _scrubbed(self) -> str:
        every = self.scrub_interval
        return f", and in the background every {every:g} s" if every is not None else ""


class Managed(Closable):
    """An agent that was set up: its store, its state, and what takes care of them."""

    def __init__(
        self,
        store: Store,
        config: Configuration,
        steps: Mapping[str, StepFunction] | None,
        machines: Mapping[str, MachineDefinition] | None,
    ) -> None:
        self.store = store
        self.state: State = store.agent(config.agent_id)
        self.backups = backups_of(config, store)
        self.replicas = replicas_of(config, store)
        """What keeps replicas up to date, in the background, if the configuration names any."""
        self._trouble = first_sync(self.replicas)
        """What is wrong with any of them."""
        copies = self.replicas.copies() if self.replicas is not None else []
        self.recovery = Recovery(
            store, procedures=config.procedures, steps=steps, copies=copies, machines=machines
        )
        self.scrubber: Scrubber | None = None
        """What checks the store in the background, if the configuration asks for that."""
        if config.scrub_interval is not None:
            self.scrubber = Scrubber(store, interval=config.scrub_interval, copies=copies)
        self.policies = Policies(store)
        self.report: SetUp
        self._own = False

    def close(self) -> None:
        """Watch no longer; a store that was opened for it is closed."""
        with ExitStack() as ends:  # each of them, whatever becomes of the others
            if self._own:
                ends.callback(self.store.close)
            ends.callback(self.policies.close)
            if self.scrubber is not None:
                ends.callback(self.scrubber.stop)
            if self.replicas is not None:
                ends.callback(self.replicas.stop)


def set_up(
    config: Configuration,
    *,
    store: Store | None = None,
    initial: Mapping[str, Any] | None = None,
    steps: Mapping[str, StepFunction] | None = None,
    machines: Mapping[str, MachineDefinition] | None = None,
) -> Managed:
    """Set an agent up as a configuration says: its store, policies, procedures, first state.

    The store is opened, or made, by the configuration, unless an open one is given. The policies
    are the agent's own from then on; one that it has already in the same words is not written
    again, and one that the configuration does not name is left. `initial` is written if the agent
    is not there, in one change with the policies: of several who set it up at once one writes it,
    and the others take what is there. `steps` are the types of steps of your own that the
    procedures use, `machines` definitions by the names of machines, by which an open transition is
    settled. What is not available is refused with `ConfigurationError` before anything is touched.
    """
    check_set_up(config, initial, store, Store)
    opened = store if store is not None else Store(StoreHandle(open_core(**opening(config))))
    try:
        managed = set_up_in(opened, config, initial, steps, machines, given=store is not None)
    except BaseException:  # a store that was opened for it is not left open
        if store is None:
            opened.close()
        raise
    managed._own = store is None
    return managed


def set_up_in(
    store: Store,
    config: Configuration,
    initial: Mapping[str, Any] | None,
    steps: Mapping[str, StepFunction] | None,
    machines: Mapping[str, MachineDefinition] | None,
    *,
    given: bool,
) -> Managed:
    """The same in an open store, which stays open; `given` says that it was open before."""
    managed = Managed(store, config, steps, machines)
    try:
        managed.report = put_in_force(managed, config, initial, given=given)
        if managed.scrubber is not None:
            managed.scrubber.start()
        if managed.replicas is not None:
            managed.replicas.start()
    except BaseException:  # also a cancelled start: nothing goes on behind it
        managed.policies.close()
        raise
    return managed


def backups_of(config: Configuration, store: Store) -> Backups | None:
    """The backups of a store at the place that a configuration names."""
    if config.backup is None:
        return None
    from holdfast.backup.backups import Backups

    return Backups(store, **asdict(config.backup))


def replicas_of(config: Configuration, store: Store) -> Replicas | None:
    """The replicas that a configuration names."""
    if config.replication is None:
        return None
    from holdfast.replicas.replicas import Replicas

    return Replicas(store, config.replication.urls, factor=config.replication.factor)


def first_sync(replicas: Replicas | None) -> tuple[str, ...]:
    """Bring replicas up to date, or make them; what is wrong with any, which keeps nobody up."""
    if replicas is None:
        return ()
    report = replicas.sync()
    return tuple(
        f"replica {one.url}: {said}"
        for one in report.replicas
        for said in ((one.error,) if one.error is not None else one.findings)
    )


def opening(config: Configuration) -> dict[str, Any]:
    """The arguments of `open` for a configuration."""
    names = ("url", "key", "signer", "durability", "cache", "cache_ttl")
    return {name: getattr(config, name) for name in names}


def check_set_up(config: object, initial: object, store: object, kind: type) -> None:
    """Refuse what cannot be set up, as far as that is known before a store is opened."""
    if not isinstance(config, Configuration):
        raise InvalidInputError("set_up takes a Configuration: Configuration.of(data)")
    if initial is not None and not isinstance(initial, Mapping):
        raise InvalidInputError("initial is a mapping of keys to values")
    for key in initial or ():
        check_key(key)
    config.check()
    if store is not None and not isinstance(store, kind):
        raise InvalidInputError(
            "store is an open one of the same face: that of holdfast.sync for "
            "holdfast.sync.recovery.set_up, that of holdfast.open for holdfast.recovery.set_up"
        )
    _check_backup(config, store)
    if config.replication is not None:
        from holdfast.replicas.replicas import check_urls

        try:
            check_urls(config.replication.urls)
        except InvalidInputError as error:
            raise ConfigurationError([f"synchronization.replicas: {error}"]) from None
    if store is None:
        return
    if config.key is not None and core_of(store).ring is None:  # type: ignore[arg-type]
        raise ConfigurationError(["storage.primary.key: the store that was given is not encrypted"])


def _check_backup(config: Configuration, store: Any) -> None:
    """Refuse backups that cannot be made, before a store is made for them."""
    if config.backup is None:
        return
    from holdfast.backup.place import Place

    if store is None:
        plain = not (config.key or os.environ.get("HOLDFAST_KEY"))
    else:
        plain = core_of(store).ring is None
    if config.backup.encryption and plain:
        problem = "the backup of a plain store is plain; give storage.primary.key, or false"
        raise ConfigurationError([f"storage.backup.encryption: {problem}"])
    try:
        Place(config.backup.url, region=config.backup.region, endpoint=config.backup.endpoint)
    except InvalidInputError as error:
        raise ConfigurationError([f"storage.backup: {error}"]) from None


def put_in_force(
    managed: Managed, config: Configuration, initial: Mapping[str, Any] | None, *, given: bool
) -> SetUp:
    """Verify what is there, write what is not, and say what is in force.

    `given` says that the store was open before.
    """
    policies, recovery = managed.policies, managed.recovery
    core, scope = policies._core, Scope("agent", config.agent_id)
    policies._check(config.policies)
    found = _looked_at(core, scope, config.verification)
    created, broken, findings = found.new, found.broken, found.findings
    current, in_force = 0, tuple[str, ...]()
    if not broken:
        try:
            created = _write(policies, scope, config.policies, initial or {}, new=found.new)
            current = LineHandle(core, scope, "main").place()[2]
            in_force = tuple(one.id for one in policies.list(scope) if one.enabled)
        except StateIntegrityError as error:  # the level asked for no look at it before
            broken, findings = True, (*findings, str(error))
    return SetUp(
        success=not broken,
        agent_id=config.agent_id,
        created=created,
        current_state=f"main@{current}" if current else "",
        storage_initialized=True,
        encrypted=core.ring is not None,
        checkpointing_enabled=not broken,
        policies=in_force,
        backup=config.backup.url if config.backup is not None else "",
        recovery_configured=True,
        procedures=tuple(one.id for one in recovery.procedures()),
        sync_enabled=config.replication is not None,
        replicas=tuple(shown(one) for one in config.replication.urls) if config.replication else (),
        verification=config.verification,
        scrub_interval=config.scrub_interval,
        findings=findings,
        notes=(*config.notes, *managed._trouble, *(config.passed_over() if given else ())),
        initialized_at=core.clock.claimed() // 1000,
    )


class _Found(NamedTuple):
    new: bool
    broken: bool
    findings: tuple[str, ...]


def _looked_at(core: Core, scope: Scope, level: str) -> _Found:
    """Whether an agent is there, and is whole as far as a level asks for."""
    try:
        if not _is_there(core, scope):
            lost = _lost(core) if level == "high" else ()
            return _Found(not lost, bool(lost), lost)
        if level == "low":
            return _Found(False, False, ())
        broken = unreadable(LineHandle(core, scope, "main"))
        findings: tuple[str, ...] = (broken,) if broken else ()
        if level == "high":
            findings = (
                tuple(f"{one.place}: {one.message}" for one in verify_store(core, scope).findings)
                or findings
            )
        return _Found(False, bool(broken), findings)
    except StateIntegrityError as error:  # not even where it begins can be read
        return _Found(False, True, (str(error),))


def _is_there(core: Core, scope: Scope) -> bool:
    """Whether there is such a scope; one that was to be made here, and was refused, is not."""
    ledger = core.known(scope)
    return ledger is not None and (ledger.birth is None or core.current(scope) is not None)


def _lost(core: Core) -> tuple[str, ...]:
    """What is there of scopes that the directory does not name: nobody can tell whose it was."""
    return tuple(
        f"scope {number:x}: the directory does not name it; it may be this agent's"
        for number in sorted(Tails(StoreHandle(core)).unlisted())
    )


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
