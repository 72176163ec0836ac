"""Procedures that are there without being set."""

from __future__ import annotations

from holdfast.recovery.procedure import Procedure, RecoveryStep

BACKUP = RecoveryStep("backup_current", timeout=30_000.0)
LOCATE = RecoveryStep("locate_checkpoint", timeout=60_000.0)
VERIFY = RecoveryStep("verify_integrity", timeout=30_000.0)
RESTORE = RecoveryStep("restore_state", timeout=120_000.0)
VALIDATE = RecoveryStep("validate_state", timeout=60_000.0)
TRACK = RecoveryStep("update_tracking", timeout=30_000.0)
NOTIFY = RecoveryStep("notify_systems", timeout=30_000.0, critical=False)
CLEAN = RecoveryStep("cleanup", timeout=30_000.0, critical=False)
SETTLE = RecoveryStep("settle_transitions", timeout=120_000.0)

STANDARD = Procedure(
    "standard_recovery",
    ("agent_crash", "corruption_detected"),
    (BACKUP, LOCATE, VERIFY, RESTORE, VALIDATE),
    timeout=300_000.0,
    retries=3,
)
"""Exactly the steps, times and retries that its name stands for."""

_RESTORED = (BACKUP, LOCATE, VERIFY, RESTORE, VALIDATE, TRACK)
_WHOLE = (*_RESTORED, NOTIFY, CLEAN)

DAMAGED_STATE = Procedure(
    "damaged_state",
    (
        "state_corruption",
        "hash_mismatch",
        "signature_invalid",
        "structure_invalid",
        "data_inconsistent",
        "partial_corruption",
        "validation_failed",
    ),
    _WHOLE,
    name="a damaged state",
    retries=3,
)
LOST_STORAGE = Procedure(
    "lost_storage", ("storage_failure",), _WHOLE, name="storage that lost rows", retries=3
)
FAILED_TRANSITION = Procedure(
    "failed_transition",
    ("failed_transition",),
    (*_RESTORED, SETTLE, NOTIFY, CLEAN),  # nothing critical behind it undoes what was completed
    name="a failed transition",
    retries=3,
)
DRIFTED = Procedure("drifted_agent", ("drift", "error_rate"), _WHOLE, name="drift", retries=1)
INTERRUPTED_HANDOVER = Procedure(
    "interrupted_handover",
    ("interrupted_handover",),
    _WHOLE,
    name="an interrupted handover",
    retries=3,
)
RESTART = Procedure(
    "restart",
    ("missed_beats", "memory_leak", "network_partition", "unknown"),
    _WHOLE,
    name="an agent that is not heard",
    retries=3,
)
BUILT_IN = (
    STANDARD,
    DAMAGED_STATE,
    LOST_STORAGE,
    FAILED_TRANSITION,
    DRIFTED,
    INTERRUPTED_HANDOVER,
    RESTART,
)
