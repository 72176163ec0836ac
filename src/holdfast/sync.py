"""The blocking face: the same names as `holdfast`, without `await`.

Calls over embedded engines pay for no event loop and no thread. One store may be used from
several threads; all that wait at one moment share a commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.checkpoints.exports import export_checkpoint, import_checkpoint, inspect_export
from holdfast.seal.limits import ValueLimits
from holdfast.seal.registry import Registry
from holdfast.storage.contract import Storage
from holdfast.store.blocking import Change, State, Store, View
from holdfast.store.caching import HOUR
from holdfast.store.clock import Clock
from holdfast.store.handles import StoreHandle
from holdfast.store.leasing import Lease
from holdfast.store.opening import open_core
from holdfast.store.watching import Watch

if TYPE_CHECKING:
    from holdfast.access.auditing import Audit
    from holdfast.agents.agent import Agent
    from holdfast.agents.agent_files import export_agent
    from holdfast.agents.agent_state import AgentState
    from holdfast.agents.attaching import Attached, attach
    from holdfast.agents.drift import Drift
    from holdfast.agents.effects import Effects
    from holdfast.agents.folder_importing import import_folder
    from holdfast.agents.handovers import Handovers
    from holdfast.agents.loop import Loop, check_loop, run
    from holdfast.agents.machines.blocking import Machine
    from holdfast.agents.mailbox import Mail, Mailbox
    from holdfast.agents.registry import Agents
    from holdfast.backup.backups import Backups
    from holdfast.checkpoints.blocking import CheckpointGroups, Checkpoints
    from holdfast.checkpoints.optimizer import Optimizer
    from holdfast.checkpoints.policies import Policies
    from holdfast.checkpoints.retention import Retention
    from holdfast.checkpoints.scheduler import Scheduler
    from holdfast.recovery.booting import boot
    from holdfast.recovery.engine import Recovery
    from holdfast.recovery.managing import Managed, set_up
    from holdfast.recovery.scrubbing import Scrubber
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
        "holdfast.access.auditing": "Audit",
        "holdfast.agents.drift": "Drift",
        "holdfast.agents.loop": "Loop check_loop run",
        "holdfast.agents.mailbox": "Mail Mailbox",
        "holdfast.agents.agent": "Agent",
        "holdfast.agents.agent_files": "export_agent",
        "holdfast.agents.folder_importing": "import_folder",
        "holdfast.agents.agent_state": "AgentState",
        "holdfast.agents.attaching": "Attached attach",
        "holdfast.agents.effects": "Effects",
        "holdfast.agents.handovers": "Handovers",
        "holdfast.agents.registry": "Agents",
        "holdfast.agents.machines.blocking": "Machine",
        "holdfast.backup.backups": "Backups",
        "holdfast.checkpoints.blocking": "CheckpointGroups Checkpoints",
        "holdfast.checkpoints.optimizer": "Optimizer",
        "holdfast.checkpoints.policies": "Policies",
        "holdfast.checkpoints.retention": "Retention",
        "holdfast.checkpoints.scheduler": "Scheduler",
        "holdfast.recovery.booting": "boot",
        "holdfast.recovery.engine": "Recovery",
        "holdfast.recovery.managing": "Managed set_up",
        "holdfast.recovery.scrubbing": "Scrubber",
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
            import_module("holdfast.agents.effect_mending")
        return getattr(import_module(_HOME[name]), name)
