"""What the tests of backups share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from store_kit import Place

from holdfast import sync
from holdfast.errors import Unavailable

CALLS = ("put", "create", "get", "has", "objects", "folders", "drop")


def fill(store: sync.Store, agents: int = 3, keys: int = 40) -> None:
    """Some agents with state, history, a long value and a checkpoint."""
    for number in range(agents):
        state = store.agent(f"agent-{number}")
        for key in range(keys):
            state.set(f"facts/{key}", {"text": f"secret fact {number} {key}", "n": key})
        state.append("log", "begun")
        state.checkpoint("filled")
    store.agent("agent-0").set("long", list(range(20_000)))


def values(store: sync.Store) -> dict[str, dict[str, Any]]:
    """All that a store holds now."""
    return {str(info.scope): dict(store.scope(info.scope).items()) for info in store.scopes().items}


def restored(backups: sync.backup.Backups, id: str, place: Place, name: str) -> sync.Store:
    """A store made of a backup, opened with the place's key; it verifies clean."""
    url = f"sqlite:{place.folder / name}.db"
    backups.restore(id, url)
    store = open_at(url, place)
    assert store.verify().findings == []
    return store


def open_at(url: str, place: Place) -> sync.Store:
    """A store at another URL, with the same key and signer."""
    store = sync.open(url, create=False, **place.options())
    place._open.append(store)
    return store


def there(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by their names."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


class Failing:
    """A place whose nth call fails, and with `onward` each one behind it; or of those of a name."""

    def __init__(
        self,
        inner: Any,
        nth: int,
        *,
        onward: bool = True,
        fail: Callable[[], object] | None = None,
        calls: tuple[str, ...] = CALLS,
    ) -> None:
        self._calls = calls
        self._inner = inner
        self._nth = nth
        self._onward = onward
        self._fail = fail
        self.calls: Counter[str] = Counter()

    @property
    def failed(self) -> bool:
        """Whether there were so many calls."""
        return self.calls.total() >= self._nth

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._calls:
            return found

        def call(*args: Any, **more: Any) -> Any:
            self.calls[name] += 1
            number = self.calls.total()
            if number == self._nth or (self._onward and number > self._nth):
                if self._fail is not None:
                    self._fail()
                else:
                    raise Unavailable("injected fault: the place does not answer; try again")
            return found(*args, **more)

        return call
