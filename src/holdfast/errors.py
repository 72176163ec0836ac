"""Every error that Holdfast raises.

A miss, a conflict, damage, a refusal, an outage, an unknown outcome and a bug are
different branches, because a caller answers each of them differently.

    HoldfastError
    ├── MissingError                 what was asked for is not there
    │   ├── BackupNotFoundError
    │   ├── CheckpointNotFoundError
    │   ├── EffectResultLostError    it happened, and what came of it could not be kept
    │   ├── EntityNotFoundError
    │   ├── ErasedError              the subject that a value was sealed for is erased
    │   ├── LookupNotFoundError
    │   ├── PointNotFoundError
    │   │   └── PrunedError          it was there; an anchor says that it was pruned
    │   ├── ScopeNotFoundError
    │   ├── StoreNotFoundError
    │   └── TimelineNotFoundError
    ├── Conflict                     someone else changed what this change rests on
    ├── StateIntegrityError          what is stored is not what was written
    │   ├── ChainError               entries dropped, reordered or forked
    │   ├── DamagedBackupError       an object of a backup is not as it was written
    │   ├── DamagedExportError       a file of a checkpoint is not as it was written
    │   ├── DamagedRecordError       a row is changed, moved, swapped or missing
    │   │   ├── DamagedIndexError    a row of a saved index; entries give the state without it
    │   │   ├── DamagedRingError     a row of the ring, which holds the wrapped keys
    │   │   └── DamagedStorageError  what the engine keeps rows in; read only until repaired
    │   └── WitnessError             the store was put back behind what a witness saw
    ├── RefusedError                 asked for something that is not allowed
    │   ├── AccessDeniedError        no grant lets this principal do that
    │   ├── ChangeIdError            the id was used before, for another change
    │   ├── DependencyError          what a checkpoint rests on is not as it was
    │   ├── EffectUnknownError       it may have happened; somebody has to say whether it did
    │   ├── EntityExistsError        there is one of that id, and it stays as it is
    │   ├── FormatError              not a store, or not one this version can use
    │   │   ├── ForeignSchemaError
    │   │   ├── NewerFormatError
    │   │   └── NotAStoreError
    │   ├── GateRefusedError         a gate said no
    │   │   ├── HookBehindError      a background hook is too far behind for more
    │   │   ├── HookCancelledError   a hook in front said no
    │   │   └── HookResultError      a hook gave what it may not give there
    │   ├── IncompleteTransitionError  a machine's last transition was begun and never ended
    │   ├── InvalidInputError
    │   │   ├── AgentValidationError     the state of an agent is not as its types and rules say
    │   │   ├── CheckpointValidationError
    │   │   ├── ConfigurationError
    │   │   ├── HandoverValidationError
    │   │   ├── InvalidKeyError
    │   │   ├── InvalidSchemaError       a schema, or a step between two, that cannot be
    │   │   ├── InvalidScopeError
    │   │   ├── InvalidValueError
    │   │   │   ├── LimitExceededError
    │   │   │   └── SchemaViolationError   a value is not what the schema of its key says
    │   │   ├── MachineDataError
    │   │   ├── MachineDefinitionError
    │   │   ├── PolicyValidationError
    │   │   ├── ProcedureValidationError
    │   │   ├── RestoreValidationError
    │   │   ├── TransformError           a value that a step of a migration cannot be applied to
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
    │   ├── RequestFailedError       a request was tried as often as it may be, and failed
    │   ├── RuntimeStartError        a module of a daemon failed in a phase, or took too long
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

TYPE_CHECKING = False
if TYPE_CHECKING:  # not from typing, which takes longer to load than all of this
    import typing
    from collections.abc import Sequence

# ---- refusals: what was asked for is not allowed ------------------------------------------------


class HoldfastError(Exception):
    """Base of all errors of this package. They can be copied and pickled as they are."""

    def __reduce__(self) -> tuple[typing.Any, ...]:
        # Not by a call of the class, which may make another text of this one's.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[HoldfastError], args: tuple[typing.Any, ...]) -> HoldfastError:
    """An error with these arguments, without its `__init__`."""
    return kind.__new__(kind, *args)


class RefusedError(HoldfastError):
    """Asked for something that is not allowed; nothing was touched.

    To do: change the call.
    """


class AccessDeniedError(RefusedError):
    """No grant lets somebody do that: `principal`, `scope` and `permission` say who, where, what.

    To do: the text names the grant that is missing; ask whoever grants.
    """

    def __init__(
        self, message: str, principal: str = "", scope: str = "", permission: str = ""
    ) -> None:
        super().__init__(message)
        self.principal = principal
        self.scope = scope
        self.permission = permission


class ChangeIdError(RefusedError):
    """A change was sent under an id that was used before, for other content or elsewhere.

    To do: give each change an id of its own.
    """


class DependencyError(RefusedError):
    """What a checkpoint rests on is gone, or not as it was; nothing was restored.

    To do: restore what it rests on, too, or give `dependencies="ignore"`.
    """


class EffectUnknownError(RefusedError):
    """An effect was begun and did not say how it ended; it is not repeated unless somebody says so.

    `effect` is what is known of it.

    To do: find out whether it happened, then call `effects.settle(…)`.
    """

    def __init__(self, message: str, effect: typing.Any = None) -> None:
        super().__init__(message)
        self.effect = effect


class EntityExistsError(RefusedError):
    """There is an entity of that id already; it stays as it is.

    To do: give another id, or `update` the one that is there.
    """


class FormatError(RefusedError):
    """Not a store, or not one that this version can use.

    To do: give another path.
    """


class ForeignSchemaError(FormatError):
    """The database holds tables, triggers or views that Holdfast did not make.

    To do: give another path, or put the file back from a copy. Nothing was changed.
    """


class NewerFormatError(FormatError):
    """The store was written by a newer version.

    To do: update Holdfast.
    """


class NotAStoreError(FormatError):
    """The file is something else.

    To do: give another path, or put the file back from a copy. Nothing was changed.
    """


class GateRefusedError(RefusedError):
    """A gate refused the change.

    To do: the text names the gate; ask whoever set it.
    """


class HookBehindError(GateRefusedError):
    """A background hook that is declared so is too far behind to be told of more.

    To do: try again later; `hooks.metrics()` tells how far behind it is, and why.
    """


class HookCancelledError(GateRefusedError):
    """A hook in front refused the change; nothing was written.

    `hook` is its name, `reason` what it said.

    To do: what the reason says.
    """

    def __init__(self, message: str, hook: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.hook = hook
        self.reason = reason


class HookResultError(GateRefusedError):
    """A hook gave something that it may not give where it stands, or nothing that can be given.

    To do: mend the hook; docs/hooks.md has the table of results.
    """


class IncompleteTransitionError(RefusedError):
    """A machine's last transition was begun and has not ended: its process may be gone.

    `intent` is the `holdfast.agents.MachineIntent` that was stored. `recover` settles it by its
    declared choice, `settle` by yours.

    To do: call `machine.recover()` or `machine.settle()`.
    """

    def __init__(self, message: str, intent: typing.Any = None) -> None:
        super().__init__(message)
        self.intent = intent


class InvalidInputError(RefusedError):
    """An argument cannot be used; `problems` lists all that is wrong, where it was looked for.

    To do: the text says what is expected.
    """

    def __init__(self, message: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class AgentValidationError(InvalidInputError):
    """The state of an agent is not as its types and rules say. `problems` lists all that is wrong,
    each with its path. What was to be written was not.

    To do: mend what `problems` lists.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(
            "; ".join([message, *problems[:5], *(["..."] if problems[5:] else [])]), problems
        )


class CheckpointValidationError(InvalidInputError):
    """A request for a checkpoint cannot be used. `problems` lists all that is wrong with it.

    To do: mend what `problems` lists.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid checkpoint request: {', '.join(problems)}", problems)


class ConfigurationError(InvalidInputError):
    """A configuration cannot be used. `problems` lists all that is wrong with it or not there.

    To do: mend what `problems` lists. It never shows a value.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid configuration: {'; '.join(problems)}", problems)


class HandoverValidationError(InvalidInputError):
    """What is to be handed over is not in order; nothing was done. `problems` lists all of it.

    To do: mend what `problems` lists.
    """


class InvalidKeyError(InvalidInputError):
    """The key of a value breaks the rules for keys.

    To do: the text says which rule.
    """


class InvalidSchemaError(InvalidInputError):
    """A schema, or a step between two versions of one, that cannot be; `problems` lists all.

    To do: what the problems say; nothing was declared.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems), problems)


class InvalidScopeError(InvalidInputError):
    """The text is not the name of a scope.

    To do: the text says which rule.
    """


class InvalidValueError(InvalidInputError):
    """A value holds something that would not come back as it was. `path` says where.

    To do: convert the part at `path`, or register its class.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def placed(self, scope: object, key: str, *, masked: bool = False) -> typing.Self:
        """The error, which now says where the value was to be written.

        `masked`: and no longer where in the value, for names in a path are part of that.
        """
        text = str(self)
        if masked and self.path.strip("$"):
            text, self.path = text.replace(self.path, "$<sensitive>"), "$<sensitive>"
        self.args = (f"{scope}: {key!r} cannot take this value: {text}",)
        return self


class LimitExceededError(InvalidValueError):
    """A value is too deep, too large or has too many items.

    To do: use several keys, or `limits=holdfast.ValueLimits(…)`.
    """


class SchemaViolationError(InvalidValueError):
    """A value is not what the schema says that is declared for its key; `problems` lists all.

    To do: mend the value, or declare a newer version of the schema.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)

    def placed(self, scope: object, key: str, *, masked: bool = False) -> typing.Self:
        """The error, which says already where the value was to be written."""
        return self


class MachineDataError(InvalidInputError):
    """The data of a machine would break the rules of its state. `problems` holds all of it.

    To do: mend what `problems` lists.
    """


class MachineDefinitionError(InvalidInputError):
    """The definition of a machine cannot work. `problems` lists all that is wrong with it.

    To do: mend what `problems` lists.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(
            f"the definition of a machine cannot be used: {'; '.join(problems)}", problems
        )


class PolicyValidationError(InvalidInputError):
    """A checkpoint policy cannot be used; nothing was set. `problems` holds all that is wrong.

    To do: mend what `problems` lists.
    """


class ProcedureValidationError(InvalidInputError):
    """A procedure of recovery cannot be used. `problems` lists all that is wrong with it.

    To do: mend what `problems` lists.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid recovery procedure: {', '.join(problems)}", problems)


class RestoreValidationError(InvalidInputError):
    """A request for a restore cannot be used. `problems` lists all that is wrong with it.

    To do: mend what `problems` lists.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid restore request: {', '.join(problems)}", problems)


class TransformError(InvalidInputError):
    """A step of a migration cannot be applied to a value: what it reads is not there, or not so.

    To do: mend the value, or the step; nothing was migrated.
    """


class UnknownStepTypeError(InvalidInputError):
    """A procedure of recovery has a step of a type that is not there.

    To do: register a function for this type of step first.
    """


class UnknownTypeError(InvalidInputError):
    """A stored value names a type that is not registered here.

    To do: register the class under the name that it was stored with, then read again.
    """


class KeyringError(RefusedError):
    """The key given does not fit the store.

    To do: give the key that belongs to this store.
    """


class KeyMissingError(KeyringError):
    """The store is encrypted and no key, or no key file, is there.

    Raised by a feed or a watch, it has the `position` behind what it cannot open there, which
    passes over nothing else.

    To do: give `key=`, or put the key file or the ring back.
    """

    position: dict[int, int] | None = None


class DataKeyRemovedError(KeyMissingError):
    """A record is sealed under a data key that left the ring when its scope was resealed.

    To do: open files of that time with a copy of the ring of that time.
    """


class KeyNotNeededError(KeyringError):
    """A key was given for a store that is not encrypted.

    To do: leave `key=` out, and look whether `HOLDFAST_KEY` is set.
    """


class KeyRetiredError(KeyringError):
    """The key opened this store once; its master was rotated to another since.

    To do: give the key that it was rotated to.
    """


class KeyRetiringError(KeyringError):
    """The master is being rotated: with the old one alone no new key can be made.

    To do: open the store with the new key, or call `store.add_key(…)`.
    """


class WrongKeyError(KeyringError):
    """The key does not open this store.

    To do: give the key that the store was made with or rotated to. If it is right, the ring may be
    an older copy.
    """


class LeaseHeldError(RefusedError):
    """Another holds the lease, and did so for all the time that it was waited for.

    To do: try later.
    """


class LeaseLostError(RefusedError):
    """The lease that a change was made under is another's, or given back; nothing was written.

    To do: stop what rests on the lease, or take it again.
    """


class MergeConflictError(RefusedError):
    """Both timelines changed the same thing in different ways; nothing was merged.

    `conflicts` holds all of them as `holdfast.MergeConflict`. Merging again asks again: give a
    strategy that decides.

    To do: look at `conflicts`, then merge again with a strategy.
    """

    def __init__(self, message: str, conflicts: Sequence[typing.Any] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)


class MissingExtraError(RefusedError):
    """An optional dependency is not installed; the text names the extra.

    To do: install the extra that the text names.
    """


class NotConfirmedError(RefusedError):
    """What is asked for would remove so much that somebody has to confirm it; nothing was done.

    To do: look at the plan, then run it with `confirm=True`.
    """


class ReadOnlyError(RefusedError):
    """A store opened for reading cannot write.

    To do: open the store without `read_only=True`. A replica is written to by its store alone.
    """


class ReplayError(RefusedError):
    """A machine's transitions do not follow from each other; nothing was replayed.

    `transition` is the first one that begins elsewhere than the one before it ended.

    To do: replay until the transition before.
    """

    def __init__(self, message: str, transition: typing.Any = None) -> None:
        super().__init__(message)
        self.transition = transition


class ReplicaSplitError(RefusedError):
    """A replica holds commits that the store it follows does not; nothing was changed.

    To do: look at both. Then promote the replica, recover the store with it, or remake it.
    """


class RequestFailedError(RefusedError):
    """A request was tried as often as its policy allows, and failed each time, or failed in a way
    that is not tried again; `error` says how, `attempts` how often.

    To do: mend what the error names, and submit it anew under another id.
    """

    def __init__(self, message: str, error: str = "", attempts: int = 0) -> None:
        super().__init__(message)
        self.error = error
        self.attempts = attempts


class RuntimeStartError(RefusedError):
    """A module of a daemon failed in a phase of its life, or took too long; `module` and `phase`
    say which. Those that had begun were ended.

    To do: mend the module, or leave it out.
    """

    def __init__(self, message: str, module: str = "", phase: str = "") -> None:
        super().__init__(message)
        self.module = module
        self.phase = phase


class ScopeErasedError(RefusedError):
    """What was given comes from a scope that was erased here; nothing of it was taken over.

    To do: nothing: what was erased stays erased.
    """


class StateValidationError(RefusedError):
    """A restored state failed the check that was asked for.

    `rolled_back` is the restore that put the state before back, None if it could not be kept;
    `overtaken` are entries that others wrote in between, which the backup of that restore holds.

    To do: look why the check failed; the state before is back.
    """

    def __init__(
        self, message: str, rolled_back: typing.Any = None, overtaken: Sequence[typing.Any] = ()
    ) -> None:
        super().__init__(message)
        self.rolled_back = rolled_back
        self.overtaken = tuple(overtaken)


class StillNeededError(RefusedError):
    """Something else rests on what was to be removed; the text says what.

    To do: end or release what the text names, then call again.
    """


class StoreClosedError(RefusedError):
    """The store is closed, or its handle died after a failed write.

    To do: open the store again.
    """


class StoreForkedError(StoreClosedError):
    """The store was opened before os.fork(), and the child must open it again; or a call to it was
    under way then, and this process cannot open its file safely.

    To do: open the store in the child. If opening it says so, fork while no call is under way, or
    start processes with the method `spawn`.
    """


class TransitionRefusedError(RefusedError):
    """A machine does not follow a trigger: no arrow, a guard, a rule or who may says no.

    `problems` says why, all of it. The machine is where it was; its log has the attempt.

    To do: mend what `problems` lists, or send another trigger.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class UnsafePlaceError(RefusedError):
    """A file system or file mode under which the promises would not hold.

    To do: follow the text.
    """


class UntrustedSignerError(RefusedError):
    """What was given is signed by nobody who is trusted here; nothing of it was taken over.

    To do: learn whose key it is, then give `trust=`.
    """


# ---- all other branches --------------------------------------------------------------------------


class MissingError(HoldfastError):
    """What was asked for is not there.

    To do: check the name, or use a default.
    """


class BackupNotFoundError(MissingError):
    """No backup of that id is at this place, or an object of it is missing.

    To do: `backups.list()` shows what is there.
    """


class CheckpointNotFoundError(MissingError):
    """No checkpoint of this scope has that id or name.

    To do: `state.checkpoints()` lists them. One of another timeline is named by its id, as
    `trial@7`.
    """


class EffectResultLostError(MissingError):
    """The effect happened, and its result was nothing that could be stored.

    To do: ask `effect.result_lost` before `effect.result`. Say what the result was with
    `effects.settle(name, "done", result=…)`.
    """


class EntityNotFoundError(MissingError):
    """There is no entity of that id in the scope, or it was deleted meanwhile.

    To do: make it first, or look with `query` what is there.
    """


class ErasedError(MissingError):
    """The value was sealed for a subject that has been erased; nobody can read it any more.

    To do: set it anew, or delete it.
    """


class LookupNotFoundError(MissingError):
    """The scope declares no lookup of that name.

    To do: `state.declared()` lists what is declared, also at a point in the past.
    """


class PointNotFoundError(MissingError):
    """The entry or time lies outside the history of this scope.

    To do: `state.log(limit=1)` gives the newest entry.
    """


class PrunedError(PointNotFoundError):
    """The entry was pruned: an anchor, which the text names, says so. It cannot be had again.

    Raised by a feed or a watch, it has the `position` behind what was pruned there, which passes
    over nothing else.

    To do: ask for a later entry or a kept checkpoint. A reader of the feed reads the state, then
    goes on with `past_pruned=True` or from `error.position`.
    """

    position: dict[int, int] | None = None


class ScopeNotFoundError(MissingError):
    """No scope of that name is in the store.

    To do: `store.scopes()` lists them. A scope is made by its first write.
    """


class StoreNotFoundError(MissingError):
    """There is no store at that place and none may be created.

    To do: check the path, or open with `create=True`.
    """


class TimelineNotFoundError(MissingError):
    """The scope has no timeline of that name.

    To do: `state.timelines()` lists them.
    """


class Conflict(HoldfastError):
    """Someone else changed what this change rests on; nothing of it was applied.

    `keys` holds what did not match: row keys at the storage level, state keys above it.

    To do: read again, decide again, and send the change again. `state.update(key, function)` does
    that by itself.
    """

    def __init__(self, message: str, keys: Sequence[bytes | str] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class StateIntegrityError(HoldfastError):
    """What is stored is not what was written.

    To do: do not write on. Copy the files, run `store.verify()`, then restore a point that
    verifies.
    """


class ChainError(StateIntegrityError):
    """Entries were dropped, reordered or forked.

    To do: run `store.verify()`, then heal from a copy or restore the store from a backup.
    """


class DamagedBackupError(StateIntegrityError):
    """A backup was changed or cut short. Nothing of a store is damaged by it.

    To do: use another backup, or make a new one.
    """


class DamagedExportError(StateIntegrityError):
    """A file of a checkpoint is not as it was written; nothing of it was taken over.

    To do: get the file again.
    """


class DamagedRecordError(StateIntegrityError):
    """A row is changed, moved, swapped or missing. `place` names it; `row` is its key in storage,
    in hexadecimal, if it is one of a scope.

    To do: set the damaged key again, restore a point that verifies, or heal from a copy.
    """

    def __init__(self, message: str, place: str = "", row: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.row = row


class DamagedIndexError(DamagedRecordError):
    """A row of a saved index is damaged. The entries give the same state without it.

    To do: nothing at once; `verify` names the row, and a copy heals it.
    """


class DamagedRingError(DamagedRecordError):
    """A row or the file of the ring, which holds the wrapped keys, is damaged: use a copy.

    To do: put the ring back from a copy, or do what the text says.
    """


class DamagedStorageError(DamagedRecordError):
    """What the engine keeps rows in is damaged: a file of SQLite, or its index. Nothing more is
    written to it, for that would come onto an older state than the newest.

    To do: close the store everywhere and run `holdfast repair`.
    """


class WitnessError(StateIntegrityError):
    """The store, or a scope of it, was put back behind what a witness saw.

    To do: find out who put the store back, or whether you opened the right one.
    """


class Unavailable(HoldfastError):
    """Storage cannot serve now; nothing was applied, trying again is safe.

    To do: make the same call again, later.
    """


class DiskFullError(Unavailable):
    """No room is left on the disk.

    To do: free some room. The store is as it was.
    """


class LookupNotBuiltError(Unavailable):
    """A lookup is declared, and not all keys have their terms yet.

    To do: ask again later, or call `state.declare(lookup, rebuild=True)` if nobody builds it.
    """


class StorageReadOnlyError(Unavailable):
    """The file or its folder cannot be written.

    To do: give this process write access to the file and to its folder.
    """


class StoreLockedError(Unavailable):
    """Another program holds the store.

    To do: end the program that holds the file, then call again.
    """


class RecoveryFailedError(HoldfastError):
    """A recovery did not succeed; the text says where the agent was left.

    `recovery` is its id, under which its report is kept, unless the agent was erased meanwhile;
    empty if it never began.

    To do: read the report of that recovery.
    """

    TEXT: typing.ClassVar[str] = "Recovery failed"

    def __init__(self, message: str, recovery: str = "") -> None:
        super().__init__(message)
        self.recovery = recovery


class CriticalStepFailureError(RecoveryFailedError):
    """A critical step of a recovery failed, in the last attempt that there was time for.

    To do: read the report; it names the step and why it failed.
    """

    TEXT = "Critical recovery step failed"


class RecoveryValidationError(RecoveryFailedError):
    """The recovered state failed its check.

    To do: read the report, and recover to an earlier point.
    """

    TEXT = "Recovery validation failed"


class OutcomeUnknown(HoldfastError):
    """The change may or may not have been applied; open the store again to see.

    To do: look whether it is there. A change with an `id` can be sent again: it is applied once.
    """


class InternalError(HoldfastError):
    """A bug in Holdfast. Please report it with this text.

    To do: report the text.
    """
