"""The types of steps and the procedures that a `Recovery` has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.errors import (
    InvalidInputError,
    InvalidValueError,
    ProcedureNotFoundError,
    ProcedureValidationError,
)
from holdfast.recovery.builtin_procedures import RESTORE, VALIDATE
from holdfast.recovery.context import Settings, StepFunction
from holdfast.recovery.failures import Failure, given_failure
from holdfast.recovery.procedure import Procedure, RecoveryStep
from holdfast.recovery.step_problems import action_problems
from holdfast.recovery.steps import STEPS
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.arguments import check_function, check_text


class Procedures:
    """What answers which failure; a part of `Recovery`."""

    steps: dict[str, StepFunction]
    _handle: StoreHandle
    _settings: Settings
    _procedures: dict[str, Procedure]

    def register(self, type: str, function: StepFunction) -> None:
        """Give a type of step of your own its function."""
        check_text(type, "the type of a step", 100, least=1)
        check_function(function, "the function of a step")
        self.steps[type] = function

    def set(self, procedure: Procedure | Mapping[str, Any]) -> Procedure:
        """Add a procedure, or put it in place of the one of its id.

        Refused with `ProcedureValidationError`, which lists everything that is wrong, and with
        `UnknownStepTypeError` if it has steps of a type that is not there.
        """
        made = procedure if isinstance(procedure, Procedure) else Procedure.of(procedure)
        made.check(self.steps)
        problems = list(action_problems(made, self.steps, self._settings.strategies))
        try:
            self._handle.core.codec.plain(made.data())  # it is kept with each recovery
        except InvalidValueError as error:
            problems.append(f"it cannot be kept: {error}")
        if problems:
            raise ProcedureValidationError(problems)
        self._procedures.pop(made.id, None)
        self._procedures[made.id] = made
        return made

    def procedures(self) -> list[Procedure]:
        """All procedures, those set last first: the first that has a failure's trigger is used."""
        return list(reversed(self._procedures.values()))

    def select(self, failure: Failure, procedure: str | None = None) -> Procedure:
        """The procedure of an id, or the one that answers a failure."""
        if procedure is not None:
            check_text(procedure, "the id of a procedure", 200)
            if procedure not in self._procedures:
                raise ProcedureNotFoundError(
                    f"there is no procedure {procedure!r}; there are {', '.join(self._procedures)}"
                )
            return self._procedures[procedure]
        for one in self.procedures():
            if failure.kind in one.triggers:
                return one
        return self._procedures["standard_recovery"]

    def _asked(self, failure: Failure | str, point: Any = None, at: Any = None) -> Failure:
        """A failure as a caller names it, checked."""
        return given_failure(self._handle.core.codec, failure, point, at)

    def _answering(self, failure: Failure, procedure: str | None) -> Procedure:
        """The same, as it is done: the functions in `validate` are asked by each procedure.

        A point that none of its steps could return to is refused.
        """
        found = self.select(failure, procedure)
        if failure.names_state and not any(self._may_restore(step) for step in found.steps):
            raise InvalidInputError(
                f"the procedure {found.id!r} restores nothing, so it does not return to a point or "
                "time: give it steps of type locate_checkpoint and restore_state, name another "
                "procedure, such as standard_recovery, or leave point and at out"
            )
        checking = (*found.steps, *found.validation)
        if not self._settings.validate or any(step.type == VALIDATE.type for step in checking):
            return found
        keys = {step.key for step in found.validation}
        named = (f"{VALIDATE.type}{more}" for more in ("", *range(len(keys))))
        step = replace(VALIDATE, id=next(name for name in named if name not in keys))
        return replace(found, validation=(*found.validation, step))

    def _may_restore(self, step: RecoveryStep) -> bool:
        """Whether a step may return to a point: steps of users' own may do whatever they like."""
        return step.type == RESTORE.type or self.steps.get(step.type) is not STEPS.get(step.type)
