"""Requests from the arguments of a call: what both faces share."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from holdfast.checkpoints.requests import CheckpointRequest, Locator, RestoreRequest
from holdfast.errors import CheckpointValidationError, InvalidInputError, RestoreValidationError
from holdfast.store.arguments import listed
from holdfast.store.handles import LineHandle, StoreHandle

_MADE = {one.name for one in fields(CheckpointRequest)}
_WHERE = {one.name for one in fields(Locator)}
_RESTORED = {one.name for one in fields(RestoreRequest)} - {"where"}


def checkpoint_request(request: Any, given: dict[str, Any]) -> CheckpointRequest:
    """A request from itself, or from a name and fields."""
    unknown = sorted(given.keys() - _MADE)
    if unknown:
        raise CheckpointValidationError([f"{one} is no field of a request" for one in unknown])
    if not isinstance(request, CheckpointRequest):
        return CheckpointRequest(request, **given)
    if given:
        raise CheckpointValidationError(["give a request, or its fields: one of the two"])
    return request


def locator(given: dict[str, Any]) -> Locator:
    """A locator from its fields."""
    unknown = sorted(given.keys() - _WHERE)
    if unknown:
        raise InvalidInputError(f"a checkpoint is not found by {', '.join(unknown)}")
    return Locator(**given)


def restore_request(request: Any, given: dict[str, Any]) -> RestoreRequest:
    """A request from itself, or from a point and fields, those of a locator among them."""
    unknown = sorted(given.keys() - _RESTORED - _WHERE)
    if unknown:
        raise RestoreValidationError([f"{one} is no field of a request" for one in unknown])
    if isinstance(request, RestoreRequest):
        if given:
            raise RestoreValidationError(["give a request, or its fields: one of the two"])
        return request
    where = Locator(**{name: given[name] for name in given.keys() & _WHERE})
    rest = {name: given[name] for name in given.keys() & _RESTORED}
    return RestoreRequest(request, where, **rest)


def group_members(handle: StoreHandle, states: Any) -> list[LineHandle]:
    """The timelines of states, or of scopes by their names."""
    return [handle.of(state) for state in listed(states, "a group")]
