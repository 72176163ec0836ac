"""Gates: what stands in front of and behind every change.

The store knows the seam and nothing of what stands in it. A gate sees each change before it is
built (`before` may refuse it or return another) and each one that became durable (`after` may
not fail it: what it raises is kept in `Gates.errors` and logged). What is slow or reaches
outside does not belong into a gate; it reads the feed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.errors import GateRefusedError, HoldfastError, InvalidInputError
from holdfast.store.commit.change import Change, Written
from holdfast.store.names.arguments import is_async
from holdfast.store.names.cause import Cause, combined
from holdfast.store.names.meter import INVALID, Meter
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.names.threads import stay_in_loop
from holdfast.store.rules.gate_request import KEYED, GateReading, GateRequest, Operation

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

    def after(self, change: Change, written: Sequence[Written]) -> None:
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

    def after(self, change: Change, written: Sequence[Written]) -> None:
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
