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
    from holdfast.access.async_auditing import Audit
    from holdfast.access.auditing import Read
    from holdfast.agents.async_agent import Agent
    from holdfast.agents.async_agent_files import export_agent
    from holdfast.agents.async_agent_state import AgentState
    from holdfast.agents.async_attaching import Attached, attach
    from holdfast.agents.async_drift import Drift
    from holdfast.agents.async_effects import Effects
    from holdfast.agents.async_folder_importing import import_folder
    from holdfast.agents.async_handovers import Handovers
    from holdfast.agents.async_loop import Loop, check_loop, run
    from holdfast.agents.async_mailbox import Mail, Mailbox
    from holdfast.agents.async_registry import Agents
    from holdfast.agents.components import Component
    from holdfast.agents.drift_keeping import DriftStatus
    from holdfast.agents.drift_signs import Alarm, Signal
    from holdfast.agents.effect_records import Effect
    from holdfast.agents.folder_importing import ImportedAgent
    from holdfast.agents.handover_records import Handover, Package
    from holdfast.agents.loop_checking import LoopReport
    from holdfast.agents.looping import LoopResult, LoopSettings, Worked
    from holdfast.agents.machines.async_machine import Machine
    from holdfast.agents.machines.definition import MachineArrow, MachineDefinition, MachineState
    from holdfast.agents.machines.records import (
        MachineIntent,
        MachineRecovered,
        MachineSnapshot,
        Replayed,
        Transition,
    )
    from holdfast.agents.machines.rules import MachineRule
    from holdfast.agents.machines.steps import MachineStep
    from holdfast.agents.machines.versions import MachineLimits
    from holdfast.agents.mailbox_keeping import Letter, MailboxStatus
    from holdfast.agents.protocols import PersistentAgent
    from holdfast.agents.registering import AgentInfo
    from holdfast.agents.retry_policy import RetryPolicy, failure_kind
    from holdfast.agents.shapes import Message, Task, ToolCall
    from holdfast.backup.async_backups import Backups
    from holdfast.backup.backups import BackupReport, PrunedBackups
    from holdfast.backup.manifest import Backup
    from holdfast.backup.restoring import RestoredBackup
    from holdfast.checkpoints.async_checkpoints import CheckpointGroups, Checkpoints
    from holdfast.checkpoints.async_exports import (
        export_checkpoint,
        import_checkpoint,
        inspect_export,
    )
    from holdfast.checkpoints.async_optimizer import Optimizer
    from holdfast.checkpoints.async_policies import Policies
    from holdfast.checkpoints.async_retention import Retention
    from holdfast.checkpoints.async_scheduler import Scheduler
    from holdfast.checkpoints.calendar import Cron, Every
    from holdfast.checkpoints.conditions import Condition
    from holdfast.checkpoints.export_records import Export
    from holdfast.checkpoints.importing import Imported
    from holdfast.checkpoints.needing import Judged
    from holdfast.checkpoints.participants import Participant
    from holdfast.checkpoints.policy import (
        Policy,
        PolicyFrequency,
        PolicyRetention,
        PolicySetting,
    )
    from holdfast.checkpoints.recording import Recording
    from holdfast.checkpoints.requests import CheckpointRequest, Locator, RestoreRequest
    from holdfast.checkpoints.retention import LinePlan, RetentionPlan
    from holdfast.checkpoints.rules import Rule
    from holdfast.checkpoints.runner import Run
    from holdfast.checkpoints.schedules import ScheduleInfo
    from holdfast.checkpoints.shutdown import ShutdownCheckpoints
    from holdfast.checkpoints.tracker import Event
    from holdfast.recovery.async_managing import Managed, set_up
    from holdfast.recovery.async_recovery import Recovery
    from holdfast.recovery.async_watchdog import Scrubber, Watchdog, boot
    from holdfast.recovery.booting import BootItem, BootReport
    from holdfast.recovery.choice import Proposal
    from holdfast.recovery.configuration import BackupPlace, Configuration
    from holdfast.recovery.failures import Failure
    from holdfast.recovery.group_reports import GroupRecoveryReport
    from holdfast.recovery.healing import Healed
    from holdfast.recovery.health import Concern, Health
    from holdfast.recovery.managing import SetUp
    from holdfast.recovery.notices import Notice
    from holdfast.recovery.plans import RecoveryPlan
    from holdfast.recovery.procedure import Procedure, RecoveryStep
    from holdfast.recovery.quarantine import Quarantined
    from holdfast.recovery.reports import RecoveryReport, RecoveryStatistics
    from holdfast.recovery.results import RecoveryStepResult
    from holdfast.recovery.scrubbing import Scrubbed, ScrubStatus
    from holdfast.recovery.sightings import Unanswered
    from holdfast.recovery.targets import Target, Unfit
    from holdfast.recovery.watchdog import Answered
    from holdfast.replicas.async_replicas import Replicas, promote_replica
    from holdfast.replicas.reports import ReplicaStatus, SyncedReplica, SyncReport
    from holdfast.seal.codec import Typed
    from holdfast.seal.limits import ValueLimits
    from holdfast.seal.parts import ERASED
    from holdfast.seal.registry import Registry, default_registry
    from holdfast.store.async_state import Change, State, View
    from holdfast.store.async_store import Store, open
    from holdfast.store.async_streaming import ReadStream, WriteStream
    from holdfast.store.async_watching import Watch
    from holdfast.store.blaming import Blame, Blamed
    from holdfast.store.classes import Classed
    from holdfast.store.clock import Clock
    from holdfast.store.compare import DELETED, Diff, Difference
    from holdfast.store.declared import Declaration
    from holdfast.store.entries import Cause
    from holdfast.store.ephemeral import Ephemeral
    from holdfast.store.finding import Begins, Range
    from holdfast.store.gates import Gate, Operation, Reading, Request
    from holdfast.store.items import (
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
    from holdfast.store.keep import Keep
    from holdfast.store.keyring import Keyring, MasterRotated
    from holdfast.store.lease_cells import LeaseInfo
    from holdfast.store.leasing import Lease
    from holdfast.store.lookups import Lookup
    from holdfast.store.merge_conflicts import MergeConflict
    from holdfast.store.merging import Merged
    from holdfast.store.metering import Latency, MetricAlert, Metrics
    from holdfast.store.proof_files import Proof
    from holdfast.store.rekeying import Resealed
    from holdfast.store.scopes import Scope
    from holdfast.store.sticky import Sticky
    from holdfast.store.verify_report import Finding, KnownLoss, Report

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
    "holdfast.replicas.async_replicas": "Replicas promote_replica",
    "holdfast.replicas.reports": "ReplicaStatus SyncReport SyncedReplica",
    "holdfast.backup.async_backups": "Backups",
    "holdfast.backup.backups": "BackupReport PrunedBackups",
    "holdfast.backup.manifest": "Backup",
    "holdfast.backup.restoring": "RestoredBackup",
    "holdfast.access.async_auditing": "Audit",
    "holdfast.access.auditing": "Read",
    "holdfast.agents.async_drift": "Drift",
    "holdfast.agents.async_loop": "Loop check_loop run",
    "holdfast.agents.async_mailbox": "Mail Mailbox",
    "holdfast.agents.drift_keeping": "DriftStatus",
    "holdfast.agents.drift_signs": "Alarm Signal",
    "holdfast.agents.loop_checking": "LoopReport",
    "holdfast.agents.looping": "LoopResult LoopSettings Worked",
    "holdfast.agents.mailbox_keeping": "Letter MailboxStatus",
    "holdfast.agents.retry_policy": "RetryPolicy failure_kind",
    "holdfast.agents.async_agent": "Agent",
    "holdfast.agents.async_agent_files": "export_agent",
    "holdfast.agents.async_folder_importing": "import_folder",
    "holdfast.agents.folder_importing": "ImportedAgent",
    "holdfast.agents.async_agent_state": "AgentState",
    "holdfast.agents.async_attaching": "Attached attach",
    "holdfast.agents.async_effects": "Effects",
    "holdfast.agents.async_handovers": "Handovers",
    "holdfast.agents.async_registry": "Agents",
    "holdfast.agents.components": "Component",
    "holdfast.agents.effect_records": "Effect",
    "holdfast.agents.handover_records": "Handover Package",
    "holdfast.agents.protocols": "PersistentAgent",
    "holdfast.agents.registering": "AgentInfo",
    "holdfast.agents.machines.async_machine": "Machine",
    "holdfast.agents.machines.definition": "MachineArrow MachineDefinition MachineState",
    "holdfast.agents.machines.records": (
        "MachineIntent MachineRecovered MachineSnapshot Replayed Transition"
    ),
    "holdfast.agents.machines.rules": "MachineRule",
    "holdfast.agents.machines.steps": "MachineStep",
    "holdfast.agents.machines.versions": "MachineLimits",
    "holdfast.agents.shapes": "Message Task ToolCall",
    "holdfast.checkpoints.async_retention": "Retention",
    "holdfast.checkpoints.needing": "Judged",
    "holdfast.checkpoints.retention": "LinePlan RetentionPlan",
    "holdfast.checkpoints.rules": "Rule",
    "holdfast.checkpoints.async_exports": "export_checkpoint import_checkpoint inspect_export",
    "holdfast.checkpoints.export_records": "Export",
    "holdfast.checkpoints.importing": "Imported",
    "holdfast.checkpoints.async_checkpoints": "CheckpointGroups Checkpoints",
    "holdfast.checkpoints.requests": "CheckpointRequest Locator RestoreRequest",
    "holdfast.checkpoints.async_optimizer": "Optimizer",
    "holdfast.checkpoints.recording": "Recording",
    "holdfast.checkpoints.async_policies": "Policies",
    "holdfast.checkpoints.conditions": "Condition",
    "holdfast.checkpoints.policy": "Policy PolicyFrequency PolicyRetention PolicySetting",
    "holdfast.checkpoints.async_scheduler": "Scheduler",
    "holdfast.checkpoints.calendar": "Cron Every",
    "holdfast.checkpoints.runner": "Run",
    "holdfast.checkpoints.schedules": "ScheduleInfo",
    "holdfast.checkpoints.participants": "Participant",
    "holdfast.checkpoints.shutdown": "ShutdownCheckpoints",
    "holdfast.checkpoints.tracker": "Event",
    "holdfast.recovery.async_managing": "Managed set_up",
    "holdfast.recovery.configuration": "BackupPlace Configuration",
    "holdfast.recovery.managing": "SetUp",
    "holdfast.recovery.async_recovery": "Recovery",
    "holdfast.recovery.async_watchdog": "Scrubber Watchdog boot",
    "holdfast.recovery.booting": "BootItem BootReport",
    "holdfast.recovery.choice": "Proposal",
    "holdfast.recovery.failures": "Failure",
    "holdfast.recovery.group_reports": "GroupRecoveryReport",
    "holdfast.recovery.healing": "Healed",
    "holdfast.recovery.health": "Concern Health",
    "holdfast.recovery.notices": "Notice",
    "holdfast.recovery.plans": "RecoveryPlan",
    "holdfast.recovery.procedure": "Procedure RecoveryStep",
    "holdfast.recovery.quarantine": "Quarantined",
    "holdfast.recovery.results": "RecoveryStepResult",
    "holdfast.recovery.reports": "RecoveryReport RecoveryStatistics",
    "holdfast.recovery.scrubbing": "ScrubStatus Scrubbed",
    "holdfast.recovery.sightings": "Unanswered",
    "holdfast.recovery.targets": "Target Unfit",
    "holdfast.recovery.watchdog": "Answered",
    "holdfast.seal.codec": "Typed",
    "holdfast.seal.limits": "ValueLimits",
    "holdfast.seal.parts": "ERASED",
    "holdfast.seal.registry": "Registry",
    "holdfast.store.async_state": "Change State View",
    "holdfast.store.async_store": "Store open",
    "holdfast.store.async_streaming": "ReadStream WriteStream",
    "holdfast.store.async_watching": "Watch",
    "holdfast.store.blaming": "Blame Blamed",
    "holdfast.store.classes": "Classed",
    "holdfast.store.clock": "Clock",
    "holdfast.store.compare": "DELETED Diff Difference",
    "holdfast.store.declared": "Declaration",
    "holdfast.store.entries": "Cause",
    "holdfast.store.ephemeral": "Ephemeral",
    "holdfast.store.finding": "Begins Range",
    "holdfast.store.gates": "Gate Operation Reading Request",
    "holdfast.store.items": (
        "Checkpoint Entry Erased ErasedSubject Item Left LongValue Page Position Pruned Restored "
        "Reverted ScopeInfo Swept TimelineInfo"
    ),
    "holdfast.store.proof_files": "Proof",
    "holdfast.store.keep": "Keep",
    "holdfast.store.keyring": "Keyring MasterRotated",
    "holdfast.store.lease_cells": "LeaseInfo",
    "holdfast.store.leasing": "Lease",
    "holdfast.store.merge_conflicts": "MergeConflict",
    "holdfast.store.merging": "Merged",
    "holdfast.store.metering": "Latency MetricAlert Metrics",
    "holdfast.store.rekeying": "Resealed",
    "holdfast.store.lookups": "Lookup",
    "holdfast.store.scopes": "Scope",
    "holdfast.store.sticky": "Sticky",
    "holdfast.store.verify_report": "Finding KnownLoss Report",
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
                import_module("holdfast.agents.effect_mending")
        else:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "sync"})
