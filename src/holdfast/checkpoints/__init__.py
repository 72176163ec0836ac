"""Rules about checkpoints, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Policy**: when a checkpoint of an agent is made by itself (`policy.policy`): **conditions** that
  compare a **metric** with a threshold (`policy.conditions`, `policy.metrics`), how often, how long
  it is kept.
- **Tracker**: one agent under its policies (`policy.tracker`); the **engine** watches all of them
  behind a gate (`policy.policy_engine`), and a **worker** makes what they ask for
  (`policy.worker`). The **optimizer** leads an agent's history through other settings
  (`policy.optimizer`).
- **Retention**: which checkpoints stay, by **rules** (`retention_rules`), and pruning the rest
  (`retention`).
- **Export**: a checkpoint as one file that stands for itself: signed, encrypted if a key is given,
  read in bounded time and memory (`export.write`, `export.file`, `export.export_records`).
- **Readable forms**: the same state as JSON for people and as a Protocol Buffers message for
  programs (`export.readable`, checkpoint.proto). They are not imported.
- **Import**: what is in an export becomes the state of a scope, by a restore that can be undone
  (`export.read`).
"""

from __future__ import annotations

from holdfast.exports import lazy

__all__ = [
    "CheckpointGroups",
    "CheckpointRequest",
    "Checkpoints",
    "Condition",
    "Cron",
    "Every",
    "Export",
    "Imported",
    "Judged",
    "LinePlan",
    "Locator",
    "Optimizer",
    "Participant",
    "Policies",
    "Policy",
    "PolicyEvent",
    "PolicyFrequency",
    "PolicyRecording",
    "PolicyRetention",
    "PolicySetting",
    "RestoreRequest",
    "Retention",
    "RetentionPlan",
    "RetentionRule",
    "Run",
    "ScheduleInfo",
    "Scheduler",
    "ShutdownCheckpoints",
    "export_checkpoint",
    "import_checkpoint",
    "inspect_export",
]

HOMES = {
    "holdfast.checkpoints.checkpoints": "CheckpointGroups Checkpoints",
    "holdfast.checkpoints.export.export_records": "Export",
    "holdfast.checkpoints.export.read": "Imported",
    "holdfast.checkpoints.export.write": "export_checkpoint import_checkpoint inspect_export",
    "holdfast.checkpoints.needs": "Judged",
    "holdfast.checkpoints.policy.conditions": "Condition",
    "holdfast.checkpoints.policy.optimizer": "Optimizer PolicyRecording",
    "holdfast.checkpoints.policy.policies": "Policies",
    "holdfast.checkpoints.policy.policy": "Policy PolicyFrequency PolicyRetention PolicySetting",
    "holdfast.checkpoints.policy.tracker": "PolicyEvent",
    "holdfast.checkpoints.request": "CheckpointRequest Locator RestoreRequest",
    "holdfast.checkpoints.retention": "LinePlan Retention RetentionPlan",
    "holdfast.checkpoints.retention_rules": "RetentionRule",
    "holdfast.checkpoints.schedule.calendar": "Cron Every",
    "holdfast.checkpoints.schedule.runner": "Run",
    "holdfast.checkpoints.schedule.schedule": "ScheduleInfo",
    "holdfast.checkpoints.schedule.scheduler": "Scheduler",
    "holdfast.checkpoints.shutdown": "Participant ShutdownCheckpoints",
}
__getattr__, __dir__ = lazy(__name__, HOMES)
