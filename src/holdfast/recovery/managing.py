"""Setting an agent up by a configuration, in one call, and saying what is in force: blocking face.

with set_up(Configuration.from_yaml(text), initial={"task": None}) as managed:
    managed.state.set("task", {"id": 1})
    print(managed.report)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from holdfast.checkpoints.policies import Policies
from holdfast.errors import InvalidInputError, StateIntegrityError
from holdfast.recovery.configuration import Configuration
from holdfast.recovery.context import StepFunction
from holdfast.recovery.engine import Recovery
from holdfast.store.blocking import State, Store
from holdfast.store.handles import StoreHandle
from holdfast.store.opening import open_core
from holdfast.store.scopes import Scope
from holdfast.store.verify import verify_store


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
    recovery_configured: bool
    procedures: tuple[str, ...]
    """Ids of the procedures, those that are asked first first."""
    sync_enabled: bool
    verification: str
    findings: tuple[str, ...]
    """What is damaged, as far as it was looked at: of the past, too, if all was verified."""
    notes: tuple[str, ...]
    initialized_at: int
    """Milliseconds since 1970, as this process's clock claimed."""

    def __str__(self) -> str:
        what = "new" if self.created else f"at {self.current_state}"
        lines = [
            f"agent:{self.agent_id} ({what}): {'in force' if self.success else 'damaged'}",
            f"  storage: {'encrypted' if self.encrypted else 'plain'}",
            f"  policies: {', '.join(self.policies) or 'none'}",
            f"  procedures: {', '.join(self.procedures) or 'none'}",
            f"  verified: {self.verification}",
            *(f"  found: {one}" for one in self.findings),
            *(f"  note: {one}" for one in self.notes),
        ]
        return "\n".join(lines)


class Managed:
    """An agent that was set up: its store, its state, and what takes care of them."""

    def __init__(
        self, store: Store, config: Configuration, recovery: Recovery, policies: Policies, own: bool
    ) -> None:
        self.store = store
        self.state: State = store.agent(config.agent_id)
        self.policies = policies
        self.recovery = recovery
        self.report: SetUp
        self._own = own

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Watch no longer; a store that was opened for it is closed."""
        self.policies.close()
        if self._own:
            self.store.close()


def set_up(
    config: Configuration,
    *,
    store: Store | None = None,
    initial: Mapping[str, Any] | None = None,
    steps: Mapping[str, StepFunction] | None = None,
) -> Managed:
    """Set an agent up as a configuration says: its store, policies, procedures, first state.

    The store is opened, or made, by the configuration, unless an open one is given. The policies
    are the agent's own from then on; one that it has already in the same words is not written
    again, and one that the configuration does not name is left. `initial` is written if the agent
    is not there. `steps` are the types of steps of your own that the procedures use. What is not
    available is refused with `ConfigurationError` before anything is touched.
    """
    check_set_up(config, initial)
    opened = store if store is not None else Store(StoreHandle(open_core(**opening(config))))
    try:
        recovery = Recovery(opened, procedures=config.procedures, steps=steps)
        policies = Policies(opened)
        managed = Managed(opened, config, recovery, policies, store is None)
        try:
            managed.report = put_in_force(config, recovery, policies, initial)
        except BaseException:
            policies.close()
            raise
    except BaseException:
        if store is None:
            opened.close()
        raise
    return managed


def opening(config: Configuration) -> dict[str, Any]:
    """The arguments of `open` for a configuration."""
    return {
        "url": config.url,
        "key": config.key,
        "signer": config.signer,
        "durability": config.durability,
    }


def check_set_up(config: object, initial: object) -> None:
    """Refuse what cannot be set up."""
    if not isinstance(config, Configuration):
        raise InvalidInputError("set_up takes a Configuration: Configuration.of(data)")
    if initial is not None and not isinstance(initial, Mapping):
        raise InvalidInputError("initial is a mapping of keys to values")
    config.check()


def put_in_force(
    config: Configuration,
    recovery: Recovery,
    policies: Policies,
    initial: Mapping[str, Any] | None,
) -> SetUp:
    """Verify what is there, write what is not, and say what is in force."""
    core = policies._core
    store = Store(StoreHandle(core))
    state = store.agent(config.agent_id)
    scope = Scope("agent", config.agent_id)
    created = core.known(scope) is None
    broken = "" if created or config.verification == "low" else _broken(store, scope)
    findings: tuple[str, ...] = (broken,) if broken else ()
    if config.verification == "high" and not created:
        findings = tuple(str(one) for one in verify_store(core, scope).findings) or findings
    if not broken:
        if created and initial:
            with state.change(reason="initial state") as change:
                for key, value in initial.items():
                    change.set(key, value)
        for policy in config.policies:
            if policies.get(scope, policy.id) != policy:
                policies.set(scope, policy)
    there = core.known(scope) is not None
    return SetUp(
        success=not broken,
        agent_id=config.agent_id,
        created=created,
        current_state="@".join(map(str, state.place()[1:])) if there and not broken else "",
        storage_initialized=True,
        encrypted=core.ring is not None,
        checkpointing_enabled=not broken,
        policies=() if broken else tuple(p.id for p in policies.list(scope) if p.enabled),
        recovery_configured=True,
        procedures=tuple(one.id for one in recovery.procedures()),
        sync_enabled=False,
        verification=config.verification,
        findings=findings,
        notes=config.notes,
        initialized_at=core.clock.claimed() // 1000,
    )


def _broken(store: Store, scope: Scope) -> str:
    """What is wrong with the newest state of an agent; empty if it is whole."""
    history = store._handle.line(scope).history
    try:
        line = history.points.line()
        history.check_point(line, line.sequence, "full")
    except StateIntegrityError as error:
        return str(error)
    return ""
