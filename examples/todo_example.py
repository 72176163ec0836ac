"""A feature of your own: a to-do list that survives going back, and comes together when you merge.

python examples/todo_example.py
"""

from __future__ import annotations

import msgspec

from holdfast import Owned, sync

TODOS = Owned("todos/", restore=Owned.STAY, merge=Owned.UNION)


class Todo(msgspec.Struct):
    """What is kept of one."""

    text: str
    done: bool = False


class Todos:
    """The to-do list of an agent."""

    def __init__(self, state: sync.State) -> None:
        self._book = sync.Book(state, TODOS, Todo)

    def add(self, id: str, text: str) -> None:
        self._book.step(lambda page: page.put(id, Todo(text)), reason=f"to do: {text}")

    def finish(self, id: str) -> None:
        """Say that it is done; read and written in one change, again if somebody was faster."""

        def tick(page: sync.BookPage[Todo]) -> None:
            found = page.get(id)
            page.put(id, Todo(found.text if found else id, done=True))

        self._book.step(tick)

    def open(self) -> list[str]:
        return [one.text for one in self._book.all().values() if not one.done]


def main() -> None:
    """Go back, and take over what another timeline noted."""
    with sync.open("memory:") as store:
        state = store.agent("clerk")
        todos = Todos(state)
        before = state.checkpoint("before")
        todos.add("milk", "buy milk")
        state.restore(before)
        assert todos.open() == ["buy milk"], "going back does not buy milk"
        Todos(state.fork("idea")).add("bread", "bake bread")
        todos.finish("milk")
        state.merge("idea")
        print(todos.open())


if __name__ == "__main__":
    main()
