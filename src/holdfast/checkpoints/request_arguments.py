"""Requests from the arguments of a call: what both faces share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from holdfast.checkpoints.request import CheckpointRequest, Locator, RestoreRequest
from holdfast.errors import CheckpointValidationError, InvalidInputError, RestoreValidationError
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.names.arguments import listed

_ONE = "give a request, or its fields: one of the two"
_MADE = {one.name for one in fields(CheckpointRequest)}
_WHERE = {one.name for one in fields(Locator)}
_RESTORED = {one.name for one in fields(RestoreRequest)} - {"where"}


def checkpoint_request(request: Any, given: dict[str, Any]) -> CheckpointRequest:
    """A request from itself, or from a name and fields."""
    unknown = _no_fields(given.keys() - _MADE)
    if isinstance(request, CheckpointRequest):
        if given:
            raise CheckpointValidationError([*unknown, _ONE])
        return request
    made = CheckpointRequest(request, **{name: given[name] for name in given.keys() & _MADE})
    if unknown:
        raise CheckpointValidationError([*unknown, *made.problems()])
    return made


def _no_fields(unknown: Iterable[str]) -> list[str]:
    return [f"{one} is no field of a request" for one in sorted(unknown)]


def locator(given: dict[str, Any]) -> Locator:
    """A locator from its fields."""
    unknown = sorted(given.keys() - _WHERE)
    if unknown:
        raise InvalidInputError(f"a checkpoint is not found by {', '.join(unknown)}")
    return Locator(**given)


def restore_request(request: Any, given: dict[str, Any]) -> RestoreRequest:
    """A request from itself, or from a point and fields, those of a locator among them."""
    unknown = _no_fields(given.keys() - _RESTORED - _WHERE)
    if isinstance(request, RestoreRequest):
        if given:
            raise RestoreValidationError([*unknown, _ONE])
        return request
    where = Locator(**{name: given[name] for name in given.keys() & _WHERE})
    rest = {name: given[name] for name in given.keys() & _RESTORED}
    made = RestoreRequest(request, where, **rest)
    if unknown:
        raise RestoreValidationError([*unknown, *made.problems()])
    return made


def group_members(handle: StoreHandle, states: Any) -> list[LineHandle]:
    """The timelines of states, or of scopes by their names."""
    return [handle.of(state) for state in listed(states, "a group")]
