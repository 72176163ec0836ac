"""A letter on the async face, by hand: reads of its change are awaited there."""

from __future__ import annotations

from typing import Any, Self

from holdfast.agents import mailbox as blocking
from holdfast.store.names.face import given
from holdfast.store.names.face import taken as blocking_of
from holdfast.store.state_async import ChangePart, State


class Mail:
    """A letter that is being processed; what `change` writes is committed together with that."""

    __blocking__ = blocking.Mail

    def __init__(self, state: State, taken: blocking.Taken) -> None:
        self._blocking = blocking.Mail(blocking_of(state), taken)
        self.letter: blocking.Letter = taken.letter
        self.content: Any = taken.letter.content
        self.change: ChangePart = given(taken.part)
        """Writes to the agent's own state, in the same entry."""

    @classmethod
    def _of(cls, found: blocking.Mail) -> Self:
        return cls(State._of(found._state), found._taken)

    def send(self, to: State, content: Any) -> str:
        """Send a letter to another agent of this store, in the same commit; returns its id."""
        return self._blocking.send(blocking_of(to), content)
