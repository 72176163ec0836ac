"""The mailbox on the blocking face; `holdfast.sync` exports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.agents.keys import ATTEMPTS
from holdfast.agents.mailbox_keeping import Box, Letter, MailboxStatus, Taken, post
from holdfast.agents.retrying import again
from holdfast.errors import Conflict, InvalidInputError
from holdfast.store.arguments import check_function, check_limit
from holdfast.store.blocking import State
from holdfast.store.writing import ScopedChange


class Mail:
    """A letter that is being processed; what `change` writes is committed together with that."""

    def __init__(self, state: State, taken: Taken) -> None:
        self._state = state
        self._taken = taken
        self.letter: Letter = taken.letter
        self.content: Any = taken.letter.content
        self.change: ScopedChange = taken.part
        """Writes to the agent's own state, in the same entry."""

    def send(self, to: State, content: Any) -> str:
        """Send a letter to another agent of this store, in the same commit; returns its id."""
        if not isinstance(to, State):
            raise InvalidInputError("a letter is sent to a state: store.agent(...)")
        part = self._taken.parts.part(to._handle)
        return post(to._handle, part, content, str(self._state.scope))


class Mailbox:
    """Letters to an agent, each processed once: what was done with it is in the same change.

    A letter that was sent is never lost, whoever crashes; one whose processing was cut short is
    the next one again. Any number of processes may send; several may process, and each letter is
    done by one of them. After a restore the letters that came since are still there, and those that
    were processed since are processed again, because what that wrote was undone: guard effects
    outside by the letter's id. The last `keep` processed ones are kept for that. A letter that has
    failed `attempts` times is set aside, so that those behind it go on; it stays so in a restore.
    """

    def __init__(self, state: State, *, keep: int = 1000, attempts: int = 5) -> None:
        if not isinstance(state, State):
            raise InvalidInputError("Mailbox takes a state of holdfast.sync")
        self._state = state
        self._box = Box(state._handle, keep, attempts)

    def send(self, content: Any, *, sender: str = "", id: str | None = None) -> str:
        """Put a letter into the mailbox; returns its id. With an `id` it is sent once."""
        plan, made = self._box.plan_send(content, sender, id)
        self._state._run(plan)
        return made

    @contextmanager
    def next(self) -> Iterator[Mail | None]:
        """The next letter, or None; it is processed when the block ends without an error.

        If somebody else was faster, or changed what was read, the block ends with `Conflict`, and
        nothing of it was applied. An error in the block counts as a failed attempt.
        """
        taken = self._box.take()
        if taken is None:
            yield None
            return
        try:
            yield Mail(self._state, taken)
        except Exception as error:
            self._failed(taken, error)
            raise
        self._state._run(self._box.plan_done(taken))

    def _failed(self, taken: Taken, error: Exception) -> None:
        def step() -> None:
            plan = self._box.plan_failed(taken, error)
            if plan is not None:
                self._state._run(plan)

        again(step)

    def process(self, function: Callable[[Mail], Any], *, limit: int | None = None) -> int:
        """Process what waits, at most `limit` letters, by `function(mail)`; tells how many.

        The function runs again if somebody else was faster. Its error ends this, after it has been
        counted.
        """
        check_function(function, "what processes letters")
        check_limit(limit)
        count = conflicts = 0
        while limit is None or count < limit:
            try:
                with self.next() as mail:
                    if mail is None:
                        return count
                    function(mail)
            except Conflict:
                conflicts += 1
                if conflicts == ATTEMPTS:
                    raise
            else:
                count, conflicts = count + 1, 0
        return count

    def waiting(self, *, limit: int | None = None) -> list[Letter]:
        """Letters that are not processed yet, the next one first."""
        check_limit(limit)
        return self._box.waiting(limit)

    def set_aside(self) -> list[Letter]:
        """Letters that failed too often, oldest first."""
        return self._box.set_aside()

    def retry(self, number: int) -> str:
        """Put a letter that was set aside behind all others; returns its id."""
        plan, id = self._box.plan_retry(number)
        self._state._run(plan)
        return id

    def status(self) -> MailboxStatus:
        """How many came, are processed, wait, are set aside or were missed."""
        return self._box.status()
