"""The blocking face: the same names as `holdfast`, without `await`.

Calls over embedded engines pay for no event loop and no thread. One store may be used from
several threads; all that wait at one moment share a commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.checkpoints.export.exports import export_checkpoint, import_checkpoint, inspect_export
from holdfast.seal.limits import ValueLimits
from holdfast.seal.registry import Registry
from holdfast.storage.contract import Storage
from holdfast.store.history.handle import StoreHandle
from holdfast.store.lease.lease import Lease
from holdfast.store.names.clock import Clock
from holdfast.store.open import open_core
from holdfast.store.open_cache import HOUR
from holdfast.store.read.watch import Watch
from holdfast.store.state import Change, State, Store, View

if TYPE_CHECKING:
    from holdfast.access.audit import Audit
    from holdfast.agents.agent import Agent
    from holdfast.agents.attach import Attached, attach
    from holdfast.agents.drift import Drift
    from holdfast.agents.effects import Effects
    from holdfast.agents.handover import Handovers
    from holdfast.agents.loop.loop import Loop, check_loop, run
    from holdfast.agents.machines.machine import Machine
    from holdfast.agents.mailbox import Mail, Mailbox
    from holdfast.agents.registry import Agents
    from holdfast.agents.state.agent_file import export_agent
    from holdfast.agents.state.agent_state import AgentState
    from holdfast.backup.backups import Backups
    from holdfast.checkpoints.checkpoints import CheckpointGroups, Checkpoints
    from holdfast.checkpoints.policy.optimizer import Optimizer
    from holdfast.checkpoints.policy.policies import Policies
    from holdfast.checkpoints.retention import Retention
    from holdfast.checkpoints.schedule.scheduler import Scheduler
    from holdfast.importers.folder import import_folder
    from holdfast.recovery.boot import boot
    from holdfast.recovery.recovery import Recovery
    from holdfast.recovery.scrub import Scrubber
    from holdfast.recovery.setup.managed import Managed, set_up
    from holdfast.recovery.watchdog import Watchdog
    from holdfast.replicas.replicas import Replicas, promote_replica

__all__ = [
    "Agent",
    "AgentState",
    "Agents",
    "Attached",
    "Audit",
    "Backups",
    "Change",
    "CheckpointGroups",
    "Checkpoints",
    "Drift",
    "Effects",
    "Handovers",
    "Lease",
    "Loop",
    "Machine",
    "Mail",
    "Mailbox",
    "Managed",
    "Optimizer",
    "Policies",
    "Recovery",
    "Replicas",
    "Retention",
    "Scheduler",
    "Scrubber",
    "State",
    "Store",
    "View",
    "Watch",
    "Watchdog",
    "attach",
    "boot",
    "check_loop",
    "export_agent",
    "export_checkpoint",
    "import_checkpoint",
    "import_folder",
    "inspect_export",
    "open",
    "promote_replica",
    "run",
    "set_up",
]


def open(
    url: str = "sqlite:",
    *,
    key: str | None = None,
    durability: str = "full",
    create: bool = True,
    read_only: bool = False,
    signer: str | None = None,
    identity: str | None = None,
    registry: Registry | None = None,
    limits: ValueLimits | None = None,
    clock: Clock | None = None,
    storage: Storage | None = None,
    cache: str | None = None,
    cache_ttl: float = HOUR,
) -> Store:
    """Open or create a store; see `holdfast.open` for the arguments."""
    core = open_core(
        url,
        key=key,
        durability=durability,
        create=create,
        read_only=read_only,
        signer=signer,
        identity=identity,
        registry=registry,
        limits=limits,
        clock=clock,
        storage=storage,
        cache=cache,
        cache_ttl=cache_ttl,
    )
    return Store(StoreHandle(core))


if not TYPE_CHECKING:
    _HOMES = {
        "holdfast.access.audit": "Audit",
        "holdfast.agents.drift": "Drift",
        "holdfast.agents.loop.loop": "Loop check_loop run",
        "holdfast.agents.mailbox": "Mail Mailbox",
        "holdfast.agents.agent": "Agent",
        "holdfast.agents.state.agent_file": "export_agent",
        "holdfast.importers.folder": "import_folder",
        "holdfast.agents.state.agent_state": "AgentState",
        "holdfast.agents.attach": "Attached attach",
        "holdfast.agents.effects": "Effects",
        "holdfast.agents.handover": "Handovers",
        "holdfast.agents.registry": "Agents",
        "holdfast.agents.machines.machine": "Machine",
        "holdfast.backup.backups": "Backups",
        "holdfast.checkpoints.checkpoints": "CheckpointGroups Checkpoints",
        "holdfast.checkpoints.policy.optimizer": "Optimizer",
        "holdfast.checkpoints.policy.policies": "Policies",
        "holdfast.checkpoints.retention": "Retention",
        "holdfast.checkpoints.schedule.scheduler": "Scheduler",
        "holdfast.recovery.boot": "boot",
        "holdfast.recovery.recovery": "Recovery",
        "holdfast.recovery.setup.managed": "Managed set_up",
        "holdfast.recovery.scrub": "Scrubber",
        "holdfast.recovery.watchdog": "Watchdog",
        "holdfast.replicas.replicas": "Replicas promote_replica",
    }
    _HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import what stands above the store when it is first used."""
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast.sync' has no attribute {name!r}")
        from importlib import import_module

        if name == "Checkpoints":  # what damage leaves of effects is told by their own part
            import_module("holdfast.agents.effect_stand_ins")
        return getattr(import_module(_HOME[name]), name)
