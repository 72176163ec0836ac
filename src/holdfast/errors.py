"""Every error that Holdfast raises.

A miss, a conflict, damage, a refusal, an outage, an unknown outcome and a bug are
different branches, because a caller answers each of them differently.

    HoldfastError
    ├── MissingError                 what was asked for is not there
    │   ├── CheckpointNotFoundError
    │   ├── EffectNotFoundError
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
    │   ├── ScopeErasedError         what was erased does not come back from a copy
    │   ├── StateValidationError     a restored state failed its check and was put back
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


class HoldfastError(Exception):
    """Base of all errors of this package."""


class MissingError(HoldfastError):
    """What was asked for is not there."""


class CheckpointNotFoundError(MissingError):
    """No checkpoint of this scope has that id or name."""


class EffectNotFoundError(MissingError):
    """No unfinished effect of that name and id is known."""


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
    """The entry was pruned: an anchor, which the text names, says so. It cannot be had again."""


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


class DamagedExportError(StateIntegrityError):
    """A file of a checkpoint is not as it was written; nothing of it was taken over."""


class DamagedRecordError(StateIntegrityError):
    """A row is changed, moved, swapped or missing. `place` names it."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class DamagedIndexError(DamagedRecordError):
    """A row of a saved index is damaged. The entries give the same state without it."""


class DamagedRingError(DamagedRecordError):
    """A row of the ring, which holds the wrapped keys, is damaged; a copy of it helps."""


class WitnessError(StateIntegrityError):
    """The store, or a scope of it, was put back behind what a witness saw."""


class RefusedError(HoldfastError):
    """Asked for something that is not allowed; nothing was touched."""


class ChangeIdError(RefusedError):
    """A change was sent under an id that another change, with other content, has used."""


class DependencyError(RefusedError):
    """What a checkpoint rests on is gone, or not as it was; nothing was restored."""


class EffectUnknownError(RefusedError):
    """An effect was begun and did not say how it ended; it is not repeated unless somebody says so.

    `effect` is what is known of it.
    """

    def __init__(self, message: str, effect: typing.Any = None) -> None:
        super().__init__(message)
        self.effect = effect


class FormatError(RefusedError):
    """Not a store, or not one that this version can use."""


class ForeignSchemaError(FormatError):
    """The database holds tables, triggers or views that Holdfast did not make."""


class NewerFormatError(FormatError):
    """The store was written by a newer version."""


class NotAStoreError(FormatError):
    """The file is something else."""


class GateRefusedError(RefusedError):
    """A gate refused the change."""


class IncompleteTransitionError(RefusedError):
    """A machine's last transition was begun and has not ended: its process may be gone.

    `intent` is the `holdfast.MachineIntent` that was stored. `recover` settles it by its declared
    choice, `settle` by yours.
    """

    def __init__(self, message: str, intent: typing.Any = None) -> None:
        super().__init__(message)
        self.intent = intent


class InvalidInputError(RefusedError):
    """An argument cannot be used."""


class AgentValidationError(InvalidInputError):
    """The state of an agent is not as its types and rules say. `problems` lists all that is wrong,
    each with its path. What was to be written was not."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__("; ".join([message, *problems[:5], *(["..."] if problems[5:] else [])]))
        self.problems = tuple(problems)


class CheckpointValidationError(InvalidInputError):
    """A request for a checkpoint cannot be used. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid checkpoint request: {', '.join(problems)}")
        self.problems = tuple(problems)


class HandoverValidationError(InvalidInputError):
    """What is to be handed over is not in order; nothing was done. `problems` lists all of it."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class InvalidKeyError(InvalidInputError):
    """The key of a value breaks the rules for keys."""


class InvalidScopeError(InvalidInputError):
    """The text is not the name of a scope."""


class InvalidValueError(InvalidInputError):
    """A value holds something that would not come back as it was. `path` says where."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class LimitExceededError(InvalidValueError):
    """A value is too deep, too large or has too many items."""


class MachineDataError(InvalidInputError):
    """The data of a machine would break the rules of its state. `problems` holds all of it."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class MachineDefinitionError(InvalidInputError):
    """The definition of a machine cannot work. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"the definition of a machine cannot be used: {'; '.join(problems)}")
        self.problems = tuple(problems)


class PolicyValidationError(InvalidInputError):
    """A checkpoint policy cannot be used; nothing was set. `problems` holds all that is wrong."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class ProcedureValidationError(InvalidInputError):
    """A procedure of recovery cannot be used. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid recovery procedure: {', '.join(problems)}")
        self.problems = tuple(problems)


class RestoreValidationError(InvalidInputError):
    """A request for a restore cannot be used. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid restore request: {', '.join(problems)}")
        self.problems = tuple(problems)


class UnknownStepTypeError(InvalidInputError):
    """A procedure of recovery has a step of a type that is not there."""


class UnknownTypeError(InvalidInputError):
    """A stored value names a type that is not registered here."""


class KeyringError(RefusedError):
    """The key given does not fit the store."""


class KeyMissingError(KeyringError):
    """The store is encrypted and no key, or no key file, is there."""


class KeyNotNeededError(KeyringError):
    """A key was given for a store that is not encrypted."""


class KeyRetiredError(KeyringError):
    """The key opened this store once; its master was rotated to another since."""


class KeyRetiringError(KeyringError):
    """The master is being rotated: with the old one alone no new key can be made."""


class WrongKeyError(KeyringError):
    """The key does not open this store."""


class LeaseHeldError(RefusedError):
    """Another holds the lease, and did so for all the time that it was waited for."""


class LeaseLostError(RefusedError):
    """The lease that a change was made under is another's, or given back; nothing was written."""


class MergeConflictError(RefusedError):
    """Both timelines changed the same thing in different ways; nothing was merged.

    `conflicts` holds all of them as `holdfast.MergeConflict`. Merging again asks again: give a
    strategy that decides.
    """

    def __init__(self, message: str, conflicts: Sequence[typing.Any] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)


class MissingExtraError(RefusedError):
    """An optional dependency is not installed; the text names the extra."""


class NotConfirmedError(RefusedError):
    """What is asked for would remove so much that somebody has to confirm it; nothing was done."""


class ReadOnlyError(RefusedError):
    """A store opened for reading cannot write."""


class ReplayError(RefusedError):
    """A machine's transitions do not follow from each other; nothing was replayed.

    `transition` is the first one that begins elsewhere than the one before it ended.
    """

    def __init__(self, message: str, transition: typing.Any = None) -> None:
        super().__init__(message)
        self.transition = transition


class ScopeErasedError(RefusedError):
    """What was given comes from a scope that was erased here; nothing of it was taken over."""


class StateValidationError(RefusedError):
    """A restored state failed the check that was asked for.

    `rolled_back` is the restore that put the state before back, None if it could not be kept;
    `overtaken` are entries that others wrote in between, which the backup of that restore holds.
    """

    def __init__(
        self, message: str, rolled_back: typing.Any = None, overtaken: Sequence[typing.Any] = ()
    ) -> None:
        super().__init__(message)
        self.rolled_back = rolled_back
        self.overtaken = tuple(overtaken)


class StoreClosedError(RefusedError):
    """The store is closed, or its handle died after a failed write."""


class StoreForkedError(StoreClosedError):
    """The store was opened before os.fork(); the child must open it again."""


class TransitionRefusedError(RefusedError):
    """A machine does not follow a trigger: no arrow, a guard, a rule or who may says no.

    `problems` says why, all of it. The machine is where it was; its log has the attempt.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class UnsafePlaceError(RefusedError):
    """A file system or file mode under which the promises would not hold."""


class UntrustedSignerError(RefusedError):
    """What was given is signed by nobody who is trusted here; nothing of it was taken over."""


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

    `recovery` is its id, under which its report is kept; empty if it never began.
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
