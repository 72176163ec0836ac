"""The types of steps and the procedures that a `Recovery` has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import InvalidValueError, ProcedureNotFoundError, ProcedureValidationError
from holdfast.recovery.context import Settings, StepFunction
from holdfast.recovery.failures import Failure
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.step_problems import action_problems
from holdfast.store.arguments import check_function, check_text
from holdfast.store.handles import StoreHandle


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
