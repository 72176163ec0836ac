"""Gates: what stands in front of and behind every change, and what they are asked about.

The store knows the seam and nothing of what stands in it. A gate sees each change before it is
built (`before` may refuse it or return another) and each one that became durable (`after` may
not fail it: what it raises is kept in `Gates.errors` and logged). What is slow or reaches
outside does not belong into a gate; it reads the feed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import (
    GateRefusedError,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    NewerFormatError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.store.journal.declared import NOTHING
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.lifetime import Meta, Terms
from holdfast.store.names.arguments import is_async
from holdfast.store.names.cause import Cause, combined
from holdfast.store.names.items import MASK
from holdfast.store.names.meter import INVALID, Meter
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.names.threads import stay_in_loop
from holdfast.store.rules.classes import SENSITIVE, TRUSTED, class_of, inferred

KEYED = frozenset(("set", "append", "delete", "trim", "expire"))
"""Operations on keys: those that a gate may put in place of others."""


@dataclass(slots=True)
class Operation:
    """One operation of a change, as a gate sees it: values as the caller gave them, in a copy that
    the gate may change."""

    kind: str
    """set, append, delete, trim, expire, checkpoint, cosign, restore, fork, merge, sweep, delete
    scope, erase scope or (with the scope `global`) erase subject"""
    key: str = ""
    value: Any = None
    """Of long bytes that are written in pieces: a `LongValue`, which says how many there are so
    far. A gate is asked when they have become long and once more, with all of them and their hash,
    at the end; it may refuse them, and not replace them."""
    terms: Terms | None = None
    """When the key is to expire, and its class, if that was asked for."""
    subject: str | None = None
    """Whom a value that is set, or each item that is appended, is sealed for; a gate sees it open,
    and may name somebody."""
    sensitive: bool | None = field(default=None, compare=False, kw_only=True)
    """Whether its key is, by what is declared and stored when gates are asked; None if that was not
    judged yet. Then `repr` goes by what the operation itself tells."""

    def __repr__(self) -> str:
        named = self.terms.class_ if self.terms is not None else ""
        hidden = self.sensitive or named == SENSITIVE
        if self.sensitive is None and self.key and not named:
            hidden = inferred(self.key) == SENSITIVE
        return f"Operation({self.kind!r}, {self.key!r}, {MASK if hidden else self.value!r})"


@dataclass(frozen=True, slots=True)
class GateReading:
    """A read of keys of class sensitive."""

    scope: Scope
    timeline: str
    entry: int
    """The entry whose state is read."""
    keys: tuple[str, ...]
    cause: Cause


@dataclass(slots=True)
class GateRequest:
    """A change to one timeline of one scope, before it is built.

    A gate may change it in place or return another request: other operations, another cause. It
    may not send them elsewhere, to another scope or timeline.
    """

    scope: Scope
    timeline: str
    operations: list[Operation] = field(default_factory=list)
    cause: Cause | None = None
    attempt: int = 1


Asked = tuple[Scope, str, list[Operation], dict[str, int], int | None]
"""Scope, timeline, operations, expected versions, expected head."""


def judged(core: Directory, request: GateRequest) -> bool:
    """Note which operations are sensitive; whether all that is to be written is of class trusted.

    If that cannot be said, all may be sensitive and nothing is trusted.
    """
    try:
        found = _classes(core, request)
    except (StateIntegrityError, NewerFormatError, ScopeNotFoundError):
        # What is damaged, or new, may be just what says that a key is sensitive.
        found = [SENSITIVE] * len(request.operations)
    for operation, class_ in zip(request.operations, found, strict=True):
        operation.sensitive = class_ == SENSITIVE
    return all(class_ == TRUSTED for class_ in found)


def _classes(core: Directory, request: GateRequest) -> list[str]:
    """The class of each key that is to be written, as it will be.

    What a stored value was given counts for operations that keep it.
    """
    line = core.current(request.scope, request.timeline)
    declared = line.declared if line is not None else NOTHING
    metas: dict[str, bytes] = {}
    found: list[str] = []
    for one in request.operations:
        key, terms = one.key, one.terms
        if one.kind == "set" and not (terms is not None and terms.keep):
            metas[key] = Meta(class_=terms.class_ if terms is not None else "").pack()
        elif key not in metas:
            slot = line.slot(key) if line is not None else None
            expired = slot is not None and slot.over(core.clock.checked())
            metas[key] = b"" if slot is None or expired else slot.meta
        found.append(class_of(key, metas[key], declared))
        if one.kind == "delete":
            metas[key] = b""
    return found


def refused(
    core: Directory, scope: Scope, timeline: str, operation: Operation, error: InvalidValueError
) -> InvalidValueError:
    """The error for a value that cannot be stored, which now says where it was to be written.

    Of what is sensitive it does not say where in the value: names in a path are part of that.
    """
    judged(core, GateRequest(scope, timeline, [operation]))
    masked = operation.subject is not None or bool(operation.sensitive)
    return error.placed(scope, operation.key, masked=masked)


# ---- the gates -----------------------------------------------------------------------------------


Judge = Callable[[GateRequest], bool]


class Gate:
    """Base of gates; its methods do nothing.

    A gate that decides on `access` is asked about every change; others are not asked about one
    that writes only what is of class trusted.
    """

    access = False

    def before(self, request: GateRequest) -> GateRequest | None:
        """Refuse by raising `GateRefusedError`, replace by returning a request, or pass (None).

        What is no operation on keys (a checkpoint, a restore) can be refused and not replaced,
        nor can its cause.
        """
        return None

    def after(self, change: Any, written: Sequence[Any]) -> None:
        """Take note of what is durable; raising here changes nothing."""

    def reading(self, reading: GateReading) -> None:
        """Take note of a read of something sensitive; raising here refuses it."""


class Gates:
    """The gates of one store, in order."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.front: list[Gate] = []
        self.behind: list[Gate] = []
        self.readers: list[Gate] = []
        self.errors: deque[str] = deque(maxlen=100)

    def add(self, gate: Gate) -> None:
        """Put a gate behind those that are there."""
        _check(gate)
        if type(gate).before is not Gate.before:
            self.front.append(gate)
        if type(gate).after is not Gate.after:
            self.behind.append(gate)
        if type(gate).reading is not Gate.reading:
            self.readers.append(gate)

    def remove(self, gate: Gate) -> None:
        """Take a gate away."""
        _check(gate)
        self.front = [g for g in self.front if g is not gate]
        self.behind = [g for g in self.behind if g is not gate]
        self.readers = [g for g in self.readers if g is not gate]

    def ask(self, request: GateRequest, judge: Judge | None = None) -> GateRequest:
        """Lead a request through the gates in front; a trusted one only through those of access.

        `judge` says whether it is, and notes which operations are sensitive.
        """
        trusted = judge is not None and bool(self.front) and judge(request)
        stay_in_loop()
        for gate in self.front:
            if gate.access or not trusted:
                judged = _judged_by(request)
                try:
                    request = self._asked(gate, request)
                except HoldfastError:
                    self._meter.add(INVALID, ("gate",))
                    raise
                if judge is not None and _judged_by(request) != judged:
                    trusted = judge(request) and trusted  # what is asked for is another thing now
        return request

    def _asked(self, gate: Gate, request: GateRequest) -> GateRequest:
        scope, timeline = request.scope, request.timeline
        given = {(one.kind, one.key) for one in request.operations}
        with _refusing(gate, scope, "changed"):
            answer = gate.before(request)
            request = answer if isinstance(answer, GateRequest) else request
            if answer is not request and answer is not None:
                raise _misspoken(gate, scope, "a request, or None to let it pass", answer)
            try:
                _check_request(scope, timeline, request, given)
            except InvalidInputError as error:
                raise GateRefusedError(
                    f"{scope}: the gate {type(gate).__name__} {error}, which it may not; it can "
                    "refuse the change"
                ) from error
            return request

    def reading(self, reading: GateReading) -> None:
        """Tell gates of a read, before the values are given."""
        stay_in_loop()
        for gate in self.readers:
            with _refusing(gate, reading.scope, "read"):
                answer: object = gate.reading(reading)  # type: ignore[func-returns-value]
                if answer is not None:
                    raise _misspoken(gate, reading.scope, "nothing from `reading`", answer)

    def after(self, change: Any, written: Sequence[Any]) -> None:
        """Tell the gates behind."""
        for gate in self.behind:
            try:
                gate.after(change, written)
            except KeyboardInterrupt:  # not the gate's
                raise
            except BaseException as error:  # sys.exit() would end the thread that serves all
                self.errors.append(f"{type(gate).__name__}: {type(error).__name__}")
                import logging  # here, because it loads slowly and hardly any program comes by

                logging.getLogger("holdfast.gates").exception("a gate failed behind a change")


def _judged_by(request: GateRequest) -> list[Any]:
    """What the class of each key follows from; in another operation the verdict may be copied."""
    return [(one.kind, one.key, one.terms, one.sensitive) for one in request.operations]


@contextmanager
def _refusing(gate: Gate, scope: Scope, what: str) -> Iterator[None]:
    """A gate that breaks must not let through what it was there to check."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise GateRefusedError(
            f"{scope}: the gate {type(gate).__name__} failed with "
            f"{type(error).__name__}; nothing was {what}"
        ) from error


def _misspoken(gate: Gate, scope: Scope, what: str, answer: object) -> GateRefusedError:
    """A gate says no by raising; what else it says could be meant as yes or as no."""
    if isinstance(answer, Coroutine):
        answer.close()
    return GateRefusedError(
        f"{scope}: the gate {type(gate).__name__} gave {type(answer).__name__}, which counts as "
        f"no: a gate gives {what}, is not async, and refuses by raising GateRefusedError"
    )


def _check_request(
    scope: Scope, timeline: str, request: GateRequest, given: set[tuple[str, str]]
) -> None:
    """Refuse what a gate has made of a request, if nobody could have asked for it."""
    operations: object = request.operations
    if not (
        isinstance(request.scope, Scope)
        and isinstance(request.timeline, str)
        and isinstance(operations, list)
        and all(isinstance(one, Operation) and isinstance(one.key, str) for one in operations)
        and (request.cause is None or isinstance(request.cause, Cause))
    ):
        raise InvalidInputError(
            "made something else of a request (it has a Scope, the name of a timeline, a list of "
            "operations on keys, and a Cause or None)"
        )
    if (request.scope, request.timeline) != (scope, timeline):
        raise InvalidInputError(f"sends the change to {request.scope} {request.timeline}")
    keys = {key for _, key in given}
    try:
        for one in request.operations:
            if (one.kind, one.key) not in given:
                check_key(one.key, owner=one.key in keys)
                if one.kind not in KEYED:
                    raise InvalidInputError(f"unknown operation {one.kind!r}")
        if request.cause is not None:
            combined(request.cause, None)
    except InvalidInputError as error:
        raise InvalidInputError(f"made of a request what cannot be done ({error})") from error


def _check(gate: object) -> None:
    if not isinstance(gate, Gate):
        raise InvalidInputError("a gate is an object of a class made from holdfast.Gate")
    for method in (gate.before, gate.after, gate.reading):
        if is_async(method):
            raise InvalidInputError(
                f"{type(gate).__name__}.{method.__name__} is async, which a gate is on neither "
                "face; what has to wait reads the feed"
            )
