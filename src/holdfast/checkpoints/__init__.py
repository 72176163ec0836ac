"""Rules about checkpoints, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Policy**: when a checkpoint of an agent is made by itself (`policy.policy`): **conditions** that
  compare a **metric** with a threshold, how often, how long it is kept.
- **Tracker**: one agent under its policies, and its metrics (`policy.tracker`); the **engine**
  watches all of them behind a gate, and makes what they ask for (`policy.policy_engine`). The
  **optimizer** says what longer intervals would save (`policy.optimizer`).
- **Retention**: which checkpoints stay, by **rules**, and pruning the rest (`retention`).
- **Export**: a checkpoint as one file that stands for itself: signed, encrypted if a key is given,
  read in bounded time and memory (`export`, `export_file`).
- **Readable forms**: the same state as JSON for people and as a Protocol Buffers message for
  programs (`export`, checkpoint.proto). They are not imported.
- **Import**: what is in an export becomes the state of a scope, by a restore that can be undone
  (`export_import`).
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.checkpoints.checkpoints": "Checkpoints",
    "holdfast.checkpoints.export": "export_checkpoint",
    "holdfast.checkpoints.export_file": "Export",
    "holdfast.checkpoints.export_import": "Imported import_checkpoint inspect_export",
    "holdfast.checkpoints.checkpoint_group": "CheckpointGroups",
    "holdfast.checkpoints.policy.optimizer": "Optimizer",
    "holdfast.checkpoints.policy.policies": "Policies",
    "holdfast.checkpoints.policy.policy": (
        "Condition Policy PolicyFrequency PolicyRetention PolicySetting"
    ),
    "holdfast.checkpoints.policy.tracker": "PolicyEvent",
    "holdfast.checkpoints.request": "CheckpointRequest Locator RestoreRequest",
    "holdfast.checkpoints.retention": "JudgedCheckpoint LinePlan Retention RetentionPlan "
    "RetentionRule",
    "holdfast.checkpoints.schedule": "Cron Every ScheduleInfo",
    "holdfast.checkpoints.scheduler": "ScheduledRun Scheduler",
    "holdfast.checkpoints.shutdown": "Participant ShutdownCheckpoints",
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
