"""Holdfast: durable, verifiable state for AI agents.

    async with holdfast.open("sqlite:agents.db") as store:
        state = store.agent("researcher-7")
        await state.set("plan", {"goal": "ship"})
        safe = await state.checkpoint("before deploy")
        await state.restore(safe)

`holdfast.sync` has the same names without `await`. `DELETED` stands for a value where there is none
(in the conflicts of a merge), `ERASED` for one that was sealed for a subject who is erased. Start
with docs/getting-started.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast import sync as sync
    from holdfast.access.audit import Read
    from holdfast.access.audit_async import Audit
    from holdfast.agents.agent_async import Agent
    from holdfast.agents.agent_info import AgentInfo
    from holdfast.agents.agent_protocol import PersistentAgent
    from holdfast.agents.attach_async import Attached, attach
    from holdfast.agents.drift_async import Drift
    from holdfast.agents.drift_cycles import DriftStatus
    from holdfast.agents.drift_signs import Alarm, Signal
    from holdfast.agents.effect_records import Effect
    from holdfast.agents.effects_async import Effects
    from holdfast.agents.handover_async import Handovers
    from holdfast.agents.handover_records import Handover, Package
    from holdfast.agents.loop.check import LoopReport
    from holdfast.agents.loop.decide import LoopResult, LoopSettings, Worked
    from holdfast.agents.loop.loop_async import Loop, check_loop, run
    from holdfast.agents.machines.definition import MachineArrow, MachineDefinition, MachineState
    from holdfast.agents.machines.log import MachineLimits
    from holdfast.agents.machines.machine_async import Machine
    from holdfast.agents.machines.records import (
        MachineIntent,
        MachineRecovered,
        MachineSnapshot,
        Replayed,
        Transition,
    )
    from holdfast.agents.machines.rules import MachineRule
    from holdfast.agents.machines.step import MachineStep
    from holdfast.agents.mailbox_async import Mail, Mailbox
    from holdfast.agents.mailbox_book import Letter, MailboxStatus
    from holdfast.agents.registry_async import Agents
    from holdfast.agents.retry import RetryPolicy, failure_kind
    from holdfast.agents.state.agent_file_async import export_agent
    from holdfast.agents.state.agent_state_async import AgentState
    from holdfast.agents.state.components import Component
    from holdfast.agents.state.shapes import Message, Task, ToolCall
    from holdfast.backup.backups import BackupReport, PrunedBackups
    from holdfast.backup.backups_async import Backups
    from holdfast.backup.manifest import Backup
    from holdfast.backup.restore import RestoredBackup
    from holdfast.checkpoints.checkpoints_async import CheckpointGroups, Checkpoints
    from holdfast.checkpoints.export.exports_async import (
        export_checkpoint,
        import_checkpoint,
        inspect_export,
    )
    from holdfast.checkpoints.export.read import Imported
    from holdfast.checkpoints.export.records import Export
    from holdfast.checkpoints.needs import Judged
    from holdfast.checkpoints.participants import Participant
    from holdfast.checkpoints.policy.activity import Recording
    from holdfast.checkpoints.policy.conditions import Condition
    from holdfast.checkpoints.policy.optimizer_async import Optimizer
    from holdfast.checkpoints.policy.policies_async import Policies
    from holdfast.checkpoints.policy.policy import (
        Policy,
        PolicyFrequency,
        PolicyRetention,
        PolicySetting,
    )
    from holdfast.checkpoints.policy.tracker import Event
    from holdfast.checkpoints.request import CheckpointRequest, Locator, RestoreRequest
    from holdfast.checkpoints.retention import LinePlan, RetentionPlan
    from holdfast.checkpoints.retention_async import Retention
    from holdfast.checkpoints.retention_rules import Rule
    from holdfast.checkpoints.schedule.calendar import Cron, Every
    from holdfast.checkpoints.schedule.runner import Run
    from holdfast.checkpoints.schedule.schedule import ScheduleInfo
    from holdfast.checkpoints.schedule.scheduler_async import Scheduler
    from holdfast.checkpoints.shutdown import ShutdownCheckpoints
    from holdfast.importers.folder import ImportedAgent
    from holdfast.importers.folder_async import import_folder
    from holdfast.recovery.boot import BootItem, BootReport
    from holdfast.recovery.failures import Failure
    from holdfast.recovery.group_report import GroupRecoveryReport
    from holdfast.recovery.heal import Healed
    from holdfast.recovery.health import Concern, Health
    from holdfast.recovery.notices import Notice
    from holdfast.recovery.plan import RecoveryPlan
    from holdfast.recovery.procedure import Procedure, RecoveryStep
    from holdfast.recovery.quarantine import Quarantined
    from holdfast.recovery.recovery_async import Recovery
    from holdfast.recovery.report import RecoveryReport, RecoveryStatistics
    from holdfast.recovery.scrub import Scrubbed, ScrubStatus
    from holdfast.recovery.setup.configuration import BackupPlace, Configuration
    from holdfast.recovery.setup.managed import SetUp
    from holdfast.recovery.setup.managed_async import Managed, set_up
    from holdfast.recovery.sightings import Unanswered
    from holdfast.recovery.step_result import RecoveryStepResult
    from holdfast.recovery.strategy_order import Proposal
    from holdfast.recovery.target import Target, Unfit
    from holdfast.recovery.watchdog import Answered
    from holdfast.recovery.watchdog_async import Scrubber, Watchdog, boot
    from holdfast.replicas.replicas_async import Replicas, promote_replica
    from holdfast.replicas.report import ReplicaStatus, SyncedReplica, SyncReport
    from holdfast.seal.codec import Typed
    from holdfast.seal.limits import ValueLimits
    from holdfast.seal.registry import Registry, default_registry
    from holdfast.seal.subject_parts import ERASED
    from holdfast.store.commit.meter import Latency, MetricAlert, Metrics
    from holdfast.store.history.blame import Blame, Blamed
    from holdfast.store.history.merge import Merged
    from holdfast.store.history.merge_conflicts import MergeConflict
    from holdfast.store.journal.entry import Cause
    from holdfast.store.lease.lease import Lease
    from holdfast.store.lease.lease_cells import LeaseInfo
    from holdfast.store.names.clock import Clock
    from holdfast.store.names.items import (
        Checkpoint,
        Entry,
        Erased,
        ErasedSubject,
        Item,
        Left,
        LongValue,
        Page,
        Pruned,
        Restored,
        Reverted,
        ScopeInfo,
        Swept,
        TimelineInfo,
    )
    from holdfast.store.names.scope import Scope
    from holdfast.store.proof.proof_files import Proof
    from holdfast.store.proof.verify_report import Finding, KnownLoss, Report
    from holdfast.store.read.find import Begins, Range
    from holdfast.store.rules.classes import Classed
    from holdfast.store.rules.declared import Declaration
    from holdfast.store.rules.ephemeral import Ephemeral
    from holdfast.store.rules.gates import Gate, Operation, Reading, Request
    from holdfast.store.rules.keep import Keep
    from holdfast.store.rules.lookup import Lookup
    from holdfast.store.rules.sticky import Sticky
    from holdfast.store.state_async import Change, State, View
    from holdfast.store.store_async import Store, open
    from holdfast.store.streams_async import ReadStream, WriteStream
    from holdfast.store.tree.difference import DELETED, Diff, Difference
    from holdfast.store.upkeep.keyring import Keyring, MasterRotated
    from holdfast.store.upkeep.rotate import Resealed
    from holdfast.store.watch_async import Watch

    register = default_registry.register

__version__ = "0.1.0"

__all__ = [
    "DELETED",
    "ERASED",
    "Agent",
    "AgentInfo",
    "AgentState",
    "Agents",
    "Alarm",
    "Answered",
    "Attached",
    "Audit",
    "Backup",
    "BackupPlace",
    "BackupReport",
    "Backups",
    "Begins",
    "Blame",
    "Blamed",
    "BootItem",
    "BootReport",
    "Cause",
    "Change",
    "Checkpoint",
    "CheckpointGroups",
    "CheckpointRequest",
    "Checkpoints",
    "Classed",
    "Clock",
    "Component",
    "Concern",
    "Condition",
    "Configuration",
    "Cron",
    "Declaration",
    "Diff",
    "Difference",
    "Drift",
    "DriftStatus",
    "Effect",
    "Effects",
    "Entry",
    "Ephemeral",
    "Erased",
    "ErasedSubject",
    "Event",
    "Every",
    "Export",
    "Failure",
    "Finding",
    "Gate",
    "GroupRecoveryReport",
    "Handover",
    "Handovers",
    "Healed",
    "Health",
    "HoldfastError",
    "Imported",
    "ImportedAgent",
    "Item",
    "Judged",
    "Keep",
    "Keyring",
    "KnownLoss",
    "Latency",
    "Lease",
    "LeaseInfo",
    "Left",
    "Letter",
    "LinePlan",
    "Locator",
    "LongValue",
    "Lookup",
    "Loop",
    "LoopReport",
    "LoopResult",
    "LoopSettings",
    "Machine",
    "MachineArrow",
    "MachineDefinition",
    "MachineIntent",
    "MachineLimits",
    "MachineRecovered",
    "MachineRule",
    "MachineSnapshot",
    "MachineState",
    "MachineStep",
    "Mail",
    "Mailbox",
    "MailboxStatus",
    "Managed",
    "MasterRotated",
    "MergeConflict",
    "Merged",
    "Message",
    "MetricAlert",
    "Metrics",
    "Notice",
    "Operation",
    "Optimizer",
    "Package",
    "Page",
    "Participant",
    "PersistentAgent",
    "Policies",
    "Policy",
    "PolicyFrequency",
    "PolicyRetention",
    "PolicySetting",
    "Position",
    "Procedure",
    "Proof",
    "Proposal",
    "Pruned",
    "PrunedBackups",
    "Quarantined",
    "Range",
    "Read",
    "ReadStream",
    "Reading",
    "Recording",
    "Recovery",
    "RecoveryPlan",
    "RecoveryReport",
    "RecoveryStatistics",
    "RecoveryStep",
    "RecoveryStepResult",
    "Registry",
    "Replayed",
    "ReplicaStatus",
    "Replicas",
    "Report",
    "Request",
    "Resealed",
    "RestoreRequest",
    "Restored",
    "RestoredBackup",
    "Retention",
    "RetentionPlan",
    "RetryPolicy",
    "Reverted",
    "Rule",
    "Run",
    "ScheduleInfo",
    "Scheduler",
    "Scope",
    "ScopeInfo",
    "ScrubStatus",
    "Scrubbed",
    "Scrubber",
    "SetUp",
    "ShutdownCheckpoints",
    "Signal",
    "State",
    "Sticky",
    "Store",
    "Swept",
    "SyncReport",
    "SyncedReplica",
    "Target",
    "Task",
    "TimelineInfo",
    "ToolCall",
    "Transition",
    "Typed",
    "Unanswered",
    "Unfit",
    "ValueLimits",
    "View",
    "Watch",
    "Watchdog",
    "Worked",
    "WriteStream",
    "attach",
    "boot",
    "check_loop",
    "export_agent",
    "export_checkpoint",
    "failure_kind",
    "import_checkpoint",
    "import_folder",
    "inspect_export",
    "open",
    "promote_replica",
    "register",
    "run",
    "set_up",
]

_HOMES = {
    "holdfast.replicas.replicas_async": "Replicas promote_replica",
    "holdfast.replicas.report": "ReplicaStatus SyncReport SyncedReplica",
    "holdfast.backup.backups_async": "Backups",
    "holdfast.backup.backups": "BackupReport PrunedBackups",
    "holdfast.backup.manifest": "Backup",
    "holdfast.backup.restore": "RestoredBackup",
    "holdfast.access.audit_async": "Audit",
    "holdfast.access.audit": "Read",
    "holdfast.agents.drift_async": "Drift",
    "holdfast.agents.loop.loop_async": "Loop check_loop run",
    "holdfast.agents.mailbox_async": "Mail Mailbox",
    "holdfast.agents.drift_cycles": "DriftStatus",
    "holdfast.agents.drift_signs": "Alarm Signal",
    "holdfast.agents.loop.check": "LoopReport",
    "holdfast.agents.loop.decide": "LoopResult LoopSettings Worked",
    "holdfast.agents.mailbox_book": "Letter MailboxStatus",
    "holdfast.agents.retry": "RetryPolicy failure_kind",
    "holdfast.agents.agent_async": "Agent",
    "holdfast.agents.state.agent_file_async": "export_agent",
    "holdfast.importers.folder_async": "import_folder",
    "holdfast.importers.folder": "ImportedAgent",
    "holdfast.agents.state.agent_state_async": "AgentState",
    "holdfast.agents.attach_async": "Attached attach",
    "holdfast.agents.effects_async": "Effects",
    "holdfast.agents.handover_async": "Handovers",
    "holdfast.agents.registry_async": "Agents",
    "holdfast.agents.state.components": "Component",
    "holdfast.agents.effect_records": "Effect",
    "holdfast.agents.handover_records": "Handover Package",
    "holdfast.agents.agent_protocol": "PersistentAgent",
    "holdfast.agents.agent_info": "AgentInfo",
    "holdfast.agents.machines.machine_async": "Machine",
    "holdfast.agents.machines.definition": "MachineArrow MachineDefinition MachineState",
    "holdfast.agents.machines.records": (
        "MachineIntent MachineRecovered MachineSnapshot Replayed Transition"
    ),
    "holdfast.agents.machines.rules": "MachineRule",
    "holdfast.agents.machines.step": "MachineStep",
    "holdfast.agents.machines.log": "MachineLimits",
    "holdfast.agents.state.shapes": "Message Task ToolCall",
    "holdfast.checkpoints.retention_async": "Retention",
    "holdfast.checkpoints.needs": "Judged",
    "holdfast.checkpoints.retention": "LinePlan RetentionPlan",
    "holdfast.checkpoints.retention_rules": "Rule",
    "holdfast.checkpoints.export.exports_async": (
        "export_checkpoint import_checkpoint inspect_export"
    ),
    "holdfast.checkpoints.export.records": "Export",
    "holdfast.checkpoints.export.read": "Imported",
    "holdfast.checkpoints.checkpoints_async": "CheckpointGroups Checkpoints",
    "holdfast.checkpoints.request": "CheckpointRequest Locator RestoreRequest",
    "holdfast.checkpoints.policy.optimizer_async": "Optimizer",
    "holdfast.checkpoints.policy.activity": "Recording",
    "holdfast.checkpoints.policy.policies_async": "Policies",
    "holdfast.checkpoints.policy.conditions": "Condition",
    "holdfast.checkpoints.policy.policy": "Policy PolicyFrequency PolicyRetention PolicySetting",
    "holdfast.checkpoints.schedule.scheduler_async": "Scheduler",
    "holdfast.checkpoints.schedule.calendar": "Cron Every",
    "holdfast.checkpoints.schedule.runner": "Run",
    "holdfast.checkpoints.schedule.schedule": "ScheduleInfo",
    "holdfast.checkpoints.participants": "Participant",
    "holdfast.checkpoints.shutdown": "ShutdownCheckpoints",
    "holdfast.checkpoints.policy.tracker": "Event",
    "holdfast.recovery.setup.managed_async": "Managed set_up",
    "holdfast.recovery.setup.configuration": "BackupPlace Configuration",
    "holdfast.recovery.setup.managed": "SetUp",
    "holdfast.recovery.recovery_async": "Recovery",
    "holdfast.recovery.watchdog_async": "Scrubber Watchdog boot",
    "holdfast.recovery.boot": "BootItem BootReport",
    "holdfast.recovery.strategy_order": "Proposal",
    "holdfast.recovery.failures": "Failure",
    "holdfast.recovery.group_report": "GroupRecoveryReport",
    "holdfast.recovery.heal": "Healed",
    "holdfast.recovery.health": "Concern Health",
    "holdfast.recovery.notices": "Notice",
    "holdfast.recovery.plan": "RecoveryPlan",
    "holdfast.recovery.procedure": "Procedure RecoveryStep",
    "holdfast.recovery.quarantine": "Quarantined",
    "holdfast.recovery.step_result": "RecoveryStepResult",
    "holdfast.recovery.report": "RecoveryReport RecoveryStatistics",
    "holdfast.recovery.scrub": "ScrubStatus Scrubbed",
    "holdfast.recovery.sightings": "Unanswered",
    "holdfast.recovery.target": "Target Unfit",
    "holdfast.recovery.watchdog": "Answered",
    "holdfast.seal.codec": "Typed",
    "holdfast.seal.limits": "ValueLimits",
    "holdfast.seal.subject_parts": "ERASED",
    "holdfast.seal.registry": "Registry",
    "holdfast.store.state_async": "Change State View",
    "holdfast.store.store_async": "Store open",
    "holdfast.store.streams_async": "ReadStream WriteStream",
    "holdfast.store.watch_async": "Watch",
    "holdfast.store.history.blame": "Blame Blamed",
    "holdfast.store.rules.classes": "Classed",
    "holdfast.store.names.clock": "Clock",
    "holdfast.store.tree.difference": "DELETED Diff Difference",
    "holdfast.store.rules.declared": "Declaration",
    "holdfast.store.journal.entry": "Cause",
    "holdfast.store.rules.ephemeral": "Ephemeral",
    "holdfast.store.read.find": "Begins Range",
    "holdfast.store.rules.gates": "Gate Operation Reading Request",
    "holdfast.store.names.items": (
        "Checkpoint Entry Erased ErasedSubject Item Left LongValue Page Position Pruned Restored "
        "Reverted ScopeInfo Swept TimelineInfo"
    ),
    "holdfast.store.proof.proof_files": "Proof",
    "holdfast.store.rules.keep": "Keep",
    "holdfast.store.upkeep.keyring": "Keyring MasterRotated",
    "holdfast.store.lease.lease_cells": "LeaseInfo",
    "holdfast.store.lease.lease": "Lease",
    "holdfast.store.history.merge_conflicts": "MergeConflict",
    "holdfast.store.history.merge": "Merged",
    "holdfast.store.commit.meter": "Latency MetricAlert Metrics",
    "holdfast.store.upkeep.rotate": "Resealed",
    "holdfast.store.rules.lookup": "Lookup",
    "holdfast.store.names.scope": "Scope",
    "holdfast.store.rules.sticky": "Sticky",
    "holdfast.store.proof.verify_report": "Finding KnownLoss Report",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: a blocking program never loads asyncio."""
        from importlib import import_module

        if name == "sync":
            return import_module("holdfast.sync")
        if name == "register":
            found = import_module("holdfast.seal.registry").default_registry.register
        elif name in _HOME:
            found = getattr(import_module(_HOME[name]), name)
            if name == "Checkpoints":  # what damage leaves of effects is told by their own part
                import_module("holdfast.agents.effect_stand_ins")
        else:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "sync"})
