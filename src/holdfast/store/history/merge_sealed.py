"""Conflicts of a merge over what is sealed for subjects.

Who decides is shown the values open, as a read gives them, and `ERASED` where nobody can. What is
written is either one of them exactly as it is stored, or sealed for the subject of all of them.
Nothing that was sealed on a side becomes open by a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.commit.core import Core
from holdfast.store.names.scope import Scope
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.owned_keys import whole
from holdfast.store.rules.subject_values import Shown
from holdfast.store.rules.subjects import Kept, Subject, erased
from holdfast.store.tree.difference import DELETED, same


class Decisions:
    """What was decided in one merge, as it is to be written."""

    def __init__(self, core: Core, scope: Scope) -> None:
        self._core = core
        self._scope = scope
        self._subjects: dict[str, Subject] = {}

    @property
    def fences(self) -> tuple[Subject, ...]:
        """Subjects for whom something was sealed: they must still be there at the commit."""
        return tuple(self._subjects.values())

    def stored(self, key: str, decided: Any, sides: Sequence[Shown], base: Shown) -> Any:
        """What to write, in plain form, for what somebody has decided on seeing these values."""
        if whole(key):
            for side in sides:
                if same(decided, side.value):
                    return side.stored
            raise InvalidInputError(
                f"{self._scope}: what the function returned for {key!r} is of neither side: where "
                "a machine is comes from one of them, so that its rules led there; nothing was "
                "merged. Return conflict.ours or conflict.theirs"
            )
        values = [*sides, base]
        ids = frozenset[bytes]().union(*(one.ids for one in values))
        if not ids or decided is DELETED:
            return decided
        # Where an open and a sealed one look alike, the sealed one is meant.
        for one in sorted(values, key=lambda one: not one.ids):
            if same(decided, one.value):
                return one.stored
        if len(ids) > 1 or not all(side.whole for side in sides):
            raise InvalidInputError(
                f"{self._scope}: what the function returned for {key!r} is made of values that "
                "are not all sealed, as a whole, for one subject, so that nothing says for whom to "
                "seal it; nothing was merged. Return one of the conflict's values or DELETED, and "
                "set the key with subject= afterwards"
            )
        return self._sealed(key, decided, *ids)

    def _sealed(self, key: str, value: Any, id: bytes) -> Any:
        subjects = self._core.subjects
        name = subjects.name_of(id)
        if name is None:
            raise erased(self._scope, key)
        asked = [Operation("set", key, value, None, name)]
        (operation,) = subjects.sealed(self._scope, asked, self._subjects)
        Kept(name, id).check(self._scope, key, self._subjects.values())
        return operation.value
