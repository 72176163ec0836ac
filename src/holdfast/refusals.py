"""Errors of one branch: what was asked for is not allowed. `holdfast.errors` draws the whole tree.

Users import all of them from there; here they are apart because they are many.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

__all__ = [
    "AgentValidationError",
    "ChangeIdError",
    "CheckpointValidationError",
    "ConfigurationError",
    "DataKeyRemovedError",
    "DependencyError",
    "EffectUnknownError",
    "ForeignSchemaError",
    "FormatError",
    "GateRefusedError",
    "HandoverValidationError",
    "HoldfastError",
    "IncompleteTransitionError",
    "InvalidInputError",
    "InvalidKeyError",
    "InvalidScopeError",
    "InvalidValueError",
    "KeyMissingError",
    "KeyNotNeededError",
    "KeyRetiredError",
    "KeyRetiringError",
    "KeyringError",
    "LeaseHeldError",
    "LeaseLostError",
    "LimitExceededError",
    "MachineDataError",
    "MachineDefinitionError",
    "MergeConflictError",
    "MissingExtraError",
    "NewerFormatError",
    "NotAStoreError",
    "NotConfirmedError",
    "PolicyValidationError",
    "ProcedureValidationError",
    "ReadOnlyError",
    "RefusedError",
    "ReplayError",
    "ReplicaSplitError",
    "RestoreValidationError",
    "ScopeErasedError",
    "StateValidationError",
    "StillNeededError",
    "StoreClosedError",
    "StoreForkedError",
    "TransitionRefusedError",
    "UnknownStepTypeError",
    "UnknownTypeError",
    "UnsafePlaceError",
    "UntrustedSignerError",
    "WrongKeyError",
]


class HoldfastError(Exception):
    """Base of all errors of this package. They can be copied and pickled as they are."""

    def __reduce__(self) -> tuple[typing.Any, ...]:
        # Not by a call of the class, which may make another text of this one's.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[HoldfastError], args: tuple[typing.Any, ...]) -> HoldfastError:
    """An error with these arguments, without its `__init__`."""
    return kind.__new__(kind, *args)


class RefusedError(HoldfastError):
    """Asked for something that is not allowed; nothing was touched."""


class ChangeIdError(RefusedError):
    """A change was sent under an id that was used before, for other content or elsewhere."""


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
    """An argument cannot be used; `problems` lists all that is wrong, where it was looked for."""

    def __init__(self, message: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class AgentValidationError(InvalidInputError):
    """The state of an agent is not as its types and rules say. `problems` lists all that is wrong,
    each with its path. What was to be written was not."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(
            "; ".join([message, *problems[:5], *(["..."] if problems[5:] else [])]), problems
        )


class CheckpointValidationError(InvalidInputError):
    """A request for a checkpoint cannot be used. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid checkpoint request: {', '.join(problems)}", problems)


class ConfigurationError(InvalidInputError):
    """A configuration cannot be used. `problems` lists all that is wrong with it or not there."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid configuration: {'; '.join(problems)}", problems)


class HandoverValidationError(InvalidInputError):
    """What is to be handed over is not in order; nothing was done. `problems` lists all of it."""


class InvalidKeyError(InvalidInputError):
    """The key of a value breaks the rules for keys."""


class InvalidScopeError(InvalidInputError):
    """The text is not the name of a scope."""


class InvalidValueError(InvalidInputError):
    """A value holds something that would not come back as it was. `path` says where."""

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
    """A value is too deep, too large or has too many items."""


class MachineDataError(InvalidInputError):
    """The data of a machine would break the rules of its state. `problems` holds all of it."""


class MachineDefinitionError(InvalidInputError):
    """The definition of a machine cannot work. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(
            f"the definition of a machine cannot be used: {'; '.join(problems)}", problems
        )


class PolicyValidationError(InvalidInputError):
    """A checkpoint policy cannot be used; nothing was set. `problems` holds all that is wrong."""


class ProcedureValidationError(InvalidInputError):
    """A procedure of recovery cannot be used. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid recovery procedure: {', '.join(problems)}", problems)


class RestoreValidationError(InvalidInputError):
    """A request for a restore cannot be used. `problems` lists all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid restore request: {', '.join(problems)}", problems)


class UnknownStepTypeError(InvalidInputError):
    """A procedure of recovery has a step of a type that is not there."""


class UnknownTypeError(InvalidInputError):
    """A stored value names a type that is not registered here."""


class KeyringError(RefusedError):
    """The key given does not fit the store."""


class KeyMissingError(KeyringError):
    """The store is encrypted and no key, or no key file, is there.

    Raised by a feed or a watch, it has the `position` behind what it cannot open there, which
    passes over nothing else.
    """

    position: dict[int, int] | None = None


class DataKeyRemovedError(KeyMissingError):
    """A record is sealed under a data key that left the ring when its scope was resealed."""


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


class ReplicaSplitError(RefusedError):
    """A replica holds commits that the store it follows does not; nothing was changed."""


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


class StillNeededError(RefusedError):
    """Something else rests on what was to be removed; the text says what."""


class StoreClosedError(RefusedError):
    """The store is closed, or its handle died after a failed write."""


class StoreForkedError(StoreClosedError):
    """The store was opened before os.fork(), and the child must open it again; or a call to it was
    under way then, and this process cannot open its file safely."""


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
