"""What stands inside the block of an effect, the same on both faces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.agents.effect_book import Attempt
from holdfast.errors import EffectResultLostError, InvalidInputError
from holdfast.store.names.arguments import listed
from holdfast.store.names.scope import check_key
from holdfast.store.rules.gates import Operation


class Doing:
    """An effect inside its block. Do it if it is `due`, and leave what came of it in `result`.

    What is noted with `set`, `append`, `extend` and `delete` is written in the change that records
    the result: both are there, or neither.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._asked_due = False
        self._result = attempt.record.result
        self.writes: list[Operation] = []
        self.over = False
        """Whether the block has ended: what is noted now would be lost."""

    @property
    def due(self) -> bool:
        """Whether it is to be done; if not, it is done, and `result` is what came of it."""
        self._asked_due = True
        return self._attempt.due

    @property
    def name(self) -> str:
        """The effect's name."""
        return self._attempt.asked.name

    @property
    def id(self) -> str:
        """The effect's id."""
        return self._attempt.asked.id

    @property
    def key(self) -> str | None:
        """The idempotency key to give to the tool; the same at every attempt."""
        return self._attempt.asked.key

    @property
    def attempts(self) -> int:
        """How often it was begun, this time included; more than once: it may have happened."""
        return self._attempt.record.attempts

    @property
    def result_lost(self) -> bool:
        """Whether it is done, and its result was nothing that could be stored."""
        return self._attempt.record.result_lost

    @property
    def result(self) -> Any:
        """What came of it; `EffectResultLostError` if that was nothing that could be stored."""
        if self.result_lost:
            raise EffectResultLostError(
                f"the effect {self.name} {self.id} happened, and its result could not be stored; "
                "find it out where it happened, and settle the effect as done with it"
            )
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        self._check_due()
        self._result = result

    def set(self, key: str, value: Any) -> None:
        """Set a key, in the change that records the result."""
        self._note("set", key, value)

    def append(self, key: str, item: Any) -> None:
        """Add an item to the end of a list, in the change that records the result."""
        self._note("append", key, [item])

    def extend(self, key: str, items: Iterable[Any]) -> None:
        """Add items to the end of a list, in the change that records the result."""
        self._note("append", key, listed(items, "extend"))

    def delete(self, key: str) -> None:
        """Remove a key, in the change that records the result."""
        self._note("delete", key, None)

    def _note(self, kind: str, key: str, value: Any) -> None:
        self._check_due()
        self.writes.append(Operation(kind, check_key(key), value))

    def _check_due(self) -> None:
        if self.over:
            raise InvalidInputError(
                f"the block of the effect {self.name} {self.id} is over; what is noted for it "
                "stands inside the block"
            )
        if not self._attempt.due:
            raise InvalidInputError(
                f"the effect {self.name} {self.id} is done already; ask `if effect.due:` first"
            )

    def check_asked(self) -> None:
        """Refuse a block that did not ask: it would do the effect again after a crash."""
        if not self._asked_due:
            raise InvalidInputError(
                f"the block of the effect {self.name} {self.id} did not ask whether it is due, and "
                "would do it twice: put what it does under `if effect.due:`"
            )
