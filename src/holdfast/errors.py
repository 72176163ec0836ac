"""Every error that Holdfast raises.

A miss, a conflict, damage, a refusal, an outage, an unknown outcome and a bug are
different branches, because a caller answers each of them differently.

    HoldfastError
    ├── MissingError                 what was asked for is not there
    │   ├── BackupNotFoundError
    │   ├── CheckpointNotFoundError
    │   ├── EffectNotFoundError
    │   ├── EffectResultLostError    it happened, and what came of it could not be kept
    │   ├── ErasedError              the subject that a value was sealed for is erased
    │   ├── HandoverNotFoundError
    │   ├── LeaseNotFoundError
    │   ├── LookupNotFoundError
    │   ├── PointNotFoundError
    │   │   └── PrunedError          it was there; an anchor says that it was pruned
    │   ├── ProcedureNotFoundError
    │   ├── ScheduleNotFoundError
    │   ├── ScopeNotFoundError
    │   ├── StoreNotFoundError
    │   ├── SubjectNotFoundError
    │   └── TimelineNotFoundError
    ├── Conflict                     someone else changed what this change rests on
    ├── StateIntegrityError          what is stored is not what was written
    │   ├── ChainError               entries dropped, reordered or forked
    │   ├── DamagedBackupError       an object of a backup is not as it was written
    │   ├── DamagedExportError       a file of a checkpoint is not as it was written
    │   ├── DamagedRecordError       a row is changed, moved, swapped or missing
    │   │   ├── DamagedIndexError    a row of a saved index; entries give the state without it
    │   │   └── DamagedRingError     a row of the ring, which holds the wrapped keys
    │   └── WitnessError             the store was put back behind what a witness saw
    ├── RefusedError                 asked for something that is not allowed
    │   ├── ChangeIdError            the id was used before, for another change
    │   ├── DependencyError          what a checkpoint rests on is not as it was
    │   ├── EffectUnknownError       it may have happened; somebody has to say whether it did
    │   ├── FormatError              not a store, or not one this version can use
    │   │   ├── ForeignSchemaError
    │   │   ├── NewerFormatError
    │   │   └── NotAStoreError
    │   ├── GateRefusedError         a gate said no
    │   ├── IncompleteTransitionError  a machine's last transition was begun and never ended
    │   ├── InvalidInputError
    │   │   ├── AgentValidationError     the state of an agent is not as its types and rules say
    │   │   ├── CheckpointValidationError
    │   │   ├── ConfigurationError
    │   │   ├── HandoverValidationError
    │   │   ├── InvalidKeyError
    │   │   ├── InvalidScopeError
    │   │   ├── InvalidValueError
    │   │   │   └── LimitExceededError
    │   │   ├── MachineDataError
    │   │   ├── MachineDefinitionError
    │   │   ├── PolicyValidationError
    │   │   ├── ProcedureValidationError
    │   │   ├── RestoreValidationError
    │   │   ├── UnknownStepTypeError
    │   │   └── UnknownTypeError
    │   ├── KeyringError             the key given does not fit the store
    │   │   ├── KeyMissingError
    │   │   │   └── DataKeyRemovedError  it left the ring when the scope was resealed
    │   │   ├── KeyNotNeededError
    │   │   ├── KeyRetiredError      the key opened this store once
    │   │   ├── KeyRetiringError     the old key alone makes no new keys while it is rotated
    │   │   └── WrongKeyError
    │   ├── LeaseHeldError           another holds the lease
    │   ├── LeaseLostError           another took over the lease that a change was made under
    │   ├── MergeConflictError       both timelines changed the same; nobody said which counts
    │   ├── MissingExtraError        an optional dependency is not installed
    │   ├── NotConfirmedError        it would remove more than is removed without being asked
    │   ├── ReadOnlyError            a store opened for reading cannot write
    │   ├── ReplayError              a transition does not begin where the one before ended
    │   ├── ReplicaSplitError        a replica holds what its store does not
    │   ├── ScopeErasedError         what was erased does not come back from a copy
    │   ├── StateValidationError     a restored state failed its check and was put back
    │   ├── StillNeededError         something rests on what was to be removed
    │   ├── StoreClosedError
    │   │   └── StoreForkedError     carried through os.fork()
    │   ├── TransitionRefusedError   a machine's definition, a guard or a rule says no
    │   ├── UnsafePlaceError         a file system or file mode that cannot be trusted
    │   └── UntrustedSignerError     nobody who is trusted here vouches for it
    ├── Unavailable                  storage cannot serve now; nothing was applied
    │   ├── DiskFullError
    │   ├── LookupNotBuiltError      its terms are still being added
    │   ├── StorageReadOnlyError
    │   └── StoreLockedError
    ├── RecoveryFailedError          a recovery did not succeed, and was undone if it could be
    │   ├── CriticalStepFailureError
    │   └── RecoveryValidationError
    ├── OutcomeUnknown               it may or may not have been applied
    └── InternalError                a bug in Holdfast; never a subclass of the above

Texts name the scope, the key or checkpoint, and the next step; never values or secrets.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from holdfast.refusals import *  # noqa: F403
from holdfast.refusals import HoldfastError


class MissingError(HoldfastError):
    """What was asked for is not there."""


class BackupNotFoundError(MissingError):
    """No backup of that id is at this place, or an object of it is missing."""


class CheckpointNotFoundError(MissingError):
    """No checkpoint of this scope has that id or name."""


class EffectNotFoundError(MissingError):
    """No unfinished effect of that name and id is known."""


class EffectResultLostError(MissingError):
    """The effect happened, and its result was nothing that could be stored."""


class ErasedError(MissingError):
    """The value was sealed for a subject that has been erased; nobody can read it any more."""


class HandoverNotFoundError(MissingError):
    """No handover of that id is known to this agent."""


class LeaseNotFoundError(MissingError):
    """No lease of that name was ever taken."""


class LookupNotFoundError(MissingError):
    """The scope declares no lookup of that name."""


class PointNotFoundError(MissingError):
    """The entry or time lies outside the history of this scope."""


class PrunedError(PointNotFoundError):
    """The entry was pruned: an anchor, which the text names, says so. It cannot be had again.

    Raised by a feed or a watch, it has the `position` behind what was pruned there, which passes
    over nothing else.
    """

    position: dict[int, int] | None = None


class ProcedureNotFoundError(MissingError):
    """No procedure of recovery has that id."""


class ScheduleNotFoundError(MissingError):
    """The store has no schedule of that name."""


class ScopeNotFoundError(MissingError):
    """No scope of that name is in the store."""


class StoreNotFoundError(MissingError):
    """There is no store at that place and none may be created."""


class SubjectNotFoundError(MissingError):
    """Nothing was ever sealed for a subject of that name, or it is erased."""


class TimelineNotFoundError(MissingError):
    """The scope has no timeline of that name."""


class Conflict(HoldfastError):
    """Someone else changed what this change rests on; nothing of it was applied.

    `keys` holds what did not match: row keys at the storage level, state keys above it.
    """

    def __init__(self, message: str, keys: Sequence[bytes | str] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class StateIntegrityError(HoldfastError):
    """What is stored is not what was written."""


class ChainError(StateIntegrityError):
    """Entries were dropped, reordered or forked."""


class DamagedBackupError(StateIntegrityError):
    """A backup was changed or cut short. Nothing of a store is damaged by it."""


class DamagedExportError(StateIntegrityError):
    """A file of a checkpoint is not as it was written; nothing of it was taken over."""


class DamagedRecordError(StateIntegrityError):
    """A row is changed, moved, swapped or missing. `place` names it; `row` is its key in storage,
    in hexadecimal, if it is one of a scope."""

    def __init__(self, message: str, place: str = "", row: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.row = row


class DamagedIndexError(DamagedRecordError):
    """A row of a saved index is damaged. The entries give the same state without it."""


class DamagedRingError(DamagedRecordError):
    """A row or the file of the ring, which holds the wrapped keys, is damaged: use a copy."""


class WitnessError(StateIntegrityError):
    """The store, or a scope of it, was put back behind what a witness saw."""


class Unavailable(HoldfastError):
    """Storage cannot serve now; nothing was applied, trying again is safe."""


class DiskFullError(Unavailable):
    """No room is left on the disk."""


class LookupNotBuiltError(Unavailable):
    """A lookup is declared, and not all keys have their terms yet."""


class StorageReadOnlyError(Unavailable):
    """The file or its folder cannot be written."""


class StoreLockedError(Unavailable):
    """Another program holds the store."""


class RecoveryFailedError(HoldfastError):
    """A recovery did not succeed; the text says where the agent was left.

    `recovery` is its id, under which its report is kept, unless the agent was erased meanwhile;
    empty if it never began.
    """

    TEXT: typing.ClassVar[str] = "Recovery failed"

    def __init__(self, message: str, recovery: str = "") -> None:
        super().__init__(message)
        self.recovery = recovery


class CriticalStepFailureError(RecoveryFailedError):
    """A critical step of a recovery failed, in the last attempt that there was time for."""

    TEXT = "Critical recovery step failed"


class RecoveryValidationError(RecoveryFailedError):
    """The recovered state failed its check."""

    TEXT = "Recovery validation failed"


class OutcomeUnknown(HoldfastError):
    """The change may or may not have been applied; open the store again to see."""


class InternalError(HoldfastError):
    """A bug in Holdfast. Please report it with this text."""


for _found in list(vars().values()):
    if isinstance(_found, type) and issubclass(_found, HoldfastError):
        _found.__module__ = __name__  # where users import it, also after pickling
del _found
