"""From what a caller asks for to a change that can be committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
)
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.core import Core
from holdfast.store.commit.outcome import content_of, was_applied
from holdfast.store.commit.stage import Stage
from holdfast.store.journal.entry import Body
from holdfast.store.journal.lifetime import NEVER, READ, Terms
from holdfast.store.journal.slot import meta_of
from holdfast.store.names.arguments import (
    check_text,
)
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import LongValue
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.rules.gate_request import Asked, GateRequest, Operation, judged, refused
from holdfast.store.rules.keep import check_trim
from holdfast.store.rules.subjects import Subject
from holdfast.store.tree.value import copied

MOST_OPERATIONS = 100_000


def build_change(
    core: Core,
    targets: Sequence[Asked],
    *,
    cause: Cause | None = None,
    id: str | None = None,
    looked: bool = False,
    shared: bool = False,
    attempt: int = 1,
    stored: Mapping[str, list[Any]] = MappingProxyType({}),
) -> Change:
    """A change of what is asked for in each scope; `looked` says that it rests on reads.

    `shared`: it is asked of the store, so that its id is the store's.
    `stored` has the shapes of long values that are in the scope already, by their keys.
    """
    core.check_writable()
    content = b""
    subjects: dict[str, Subject] = {}
    if id is not None:
        check_text(id, "the id of a change", 256, least=1)
        if not looked:  # what was read may be another value by now, and the change the same
            content = content_of(core, [(t[0], t[1], t[2]) for t in targets])
    scopes = [scope for scope, *_ in targets]
    made = []
    for scope, timeline, operations, expects, head in targets:
        if len(operations) > MOST_OPERATIONS:
            raise InvalidInputError(f"a change has at most {MOST_OPERATIONS} operations")
        due = cause
        if core.gates.front and operations:
            own = [replace(one, value=copied(one.value)) for one in operations]
            request = ask_gates(core, GateRequest(scope, timeline, own, cause, attempt))
            operations, due = request.operations, request.cause
        if any(one.subject is not None for one in operations):
            if id is not None and was_applied(core, scopes, id, shared=shared):
                # It will only be found: a subject that was erased since does not come back for it.
                made.append(Target(scope, timeline, special=_not_found))
                continue
            operations = core.subjects.sealed(scope, operations, subjects)
        target = build_target(core, scope, timeline, operations, expects, head, stored)
        target.cause = (due or Cause()) if due != cause else None
        made.append(target)
    change = Change(made, cause, id, content, attempt, shared=shared)
    if subjects:
        change.fences += tuple(subjects.values())
    return change


def _not_found(stage: Stage, _: Body) -> None:
    """What a change that was applied becomes if nobody knows of that when it is committed."""
    raise Conflict(f"{stage.ledger.scope} was erased and made again meanwhile; send it again")


def ask_gates(core: Core, request: GateRequest) -> GateRequest:
    """Lead operations on keys through the gates in front, by the classes of the keys."""
    return core.gates.ask(request, lambda one: judged(core, one))


def build_target(
    core: Core,
    scope: Scope,
    timeline: str,
    operations: list[Operation],
    expects: dict[str, int],
    head: int | None = None,
    stored: Mapping[str, list[Any]] = MappingProxyType({}),
) -> Target:
    """What is asked for of one timeline, its values taken apart."""
    ledger = core.ledger(scope, create=True)
    ops: list[tuple[Any, ...]] = []
    key = ""
    try:
        for operation in operations:
            key = check_key(operation.key, owner=True)
            if operation.kind == "set":
                terms = (operation.terms,) if operation.terms is not None else ()
                if type(operation.value) is LongValue and key in stored:
                    ops.append(("ahead", key, stored[key], *terms))
                    continue
                ops.append(("set", key, core.split(ledger, key, operation.value), *terms))
            elif operation.kind == "append":
                if type(operation.value) is not list:
                    raise InvalidInputError(f"{scope}: append takes a list of items for {key!r}")
                parts = [ledger.splitter.split_item(item) for item in operation.value]
                if parts:
                    ops.append(("append", key, parts))
            elif operation.kind == "delete":
                ops.append(("delete", key))
            elif operation.kind == "expire":
                ops.append(("expire", key, operation.terms or NEVER))
            elif operation.kind == "trim":
                check_trim(operation.value)
                ops.append(("trim", key, operation.value))
            else:
                raise InvalidInputError(f"{scope}: unknown operation {operation.kind!r}")
    except InvalidValueError as error:
        raise refused(core, scope, timeline, operation, error) from None
    return Target(scope, timeline, ops, expects, head, ledger=ledger)


# ---- expiry -------------------------------------------------------------------------------------
# Changes of keys' expiry that are judged when they are built, and putting it off by reading.
#
# What is to be written is judged by the store's checked clock as its entry is built, so that
# nothing goes, or is put off, that somebody has set meanwhile.


Decide = Callable[[Stage, str], tuple[Any, ...] | None]
"""The operation on a key at a stage, if there is something to do."""


def judging(
    scope: Scope, timeline: str, keys: Sequence[str], decide: Decide, cause: Cause
) -> tuple[Change, list[str]]:
    """A change that decides for each key when it is built, and the list of keys it touched."""
    done: list[str] = []

    def special(stage: Stage, body: Body) -> None:
        ops = [op for key in keys if (op := decide(stage, key)) is not None]
        done[:] = [op[1] for op in ops]
        if not done:
            raise Conflict(f"{scope}: there is nothing left to do", keys)
        stage.add(ops, body)

    target = Target(scope, timeline, special=special, create=False)
    return Change([target], cause), done


def refresh(core: Core, scope: Scope, timeline: str, keys: Sequence[str]) -> None:
    """Put off the expiry of keys that were read. A read does not fail if this does."""
    if core.read_only:
        return
    change, _ = judging(scope, timeline, keys, _put_off, READ)
    if core.later is not None:
        core.later(change)
    else:
        with suppress(HoldfastError):
            core.run(change)


def _put_off(stage: Stage, key: str) -> tuple[Any, ...] | None:
    meta = meta_of(stage.live(key))
    return ("expire", key, Terms(ttl=meta.term, term=meta.term)) if meta.due(stage.now) else None
