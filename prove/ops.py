"""Operations as plain data, what they mean for a plain model, and how a store carries them out.

An operation is a tuple of JSON-like parts:

    ("set", scope, line, key, value)          ("append", scope, line, key, item)
    ("write", scope, line, key, bytes)        (in pieces: if they are long, ahead of the entry)
    ("delete", scope, line, key)              ("checkpoint", scope, line, name)
    ("change", id or None, [(scope, line, [("set", key, value) | ...]), ...])
    ("restore", scope, line, name)            ("fork", scope, line, name)
    ("adopt", scope, line, other line)        ("drop", scope)
    ("reopen",)
"""

from __future__ import annotations

import copy
import random
from typing import Any

from holdfast.errors import ScopeNotFoundError
from holdfast.sync import State, Store

Op = tuple[Any, ...]
Dump = dict[str, dict[str, Any]]
"""Scope -> timeline -> [newest entry, keys and values, names of checkpoints]."""

SCOPES = ("agent:a", "agent:b", "session:s:1", "global")


class Line:
    """One timeline of the model."""

    def __init__(self, keys: dict[str, Any], head: int) -> None:
        self.keys = keys
        self.head = head
        self.checkpoints: list[tuple[str, dict[str, Any]]] = []


class Plain:
    """What a store should hold, as plain dictionaries."""

    def __init__(self) -> None:
        self.scopes: dict[str, dict[str, Line]] = {}
        self.ended: dict[str, int] = {}
        """Where the numbers of a deleted scope ended: those of the next one go on."""
        self.ids: set[str] = set()

    def line(self, scope: str, name: str = "main") -> Line:
        """A timeline; `main` is made where it is missing."""
        lines = self.scopes.setdefault(scope, {})
        if name == "main" and name not in lines:
            lines[name] = Line({}, self.ended.get(scope, 0))
        return lines[name]

    def apply(self, op: Op) -> None:
        """Do what the operation says."""
        getattr(self, "_" + op[0])(*op[1:])

    def after(self, op: Op) -> Plain:
        """A copy in which the operation is done."""
        made = copy.deepcopy(self)
        made.apply(op)
        return made

    def dump(self) -> Dump:
        """All of it, in the form that `dump_store` gives."""
        return {
            scope: {
                name: [line.head, dict(line.keys), [n for n, _ in line.checkpoints]]
                for name, line in lines.items()
            }
            for scope, lines in self.scopes.items()
        }

    def _set(self, scope: str, name: str, key: str, value: Any) -> None:
        self._edit(scope, name, [("set", key, value)])

    _write = _set

    def _append(self, scope: str, name: str, key: str, item: Any) -> None:
        self._edit(scope, name, [("append", key, item)])

    def _delete(self, scope: str, name: str, key: str) -> None:
        self._edit(scope, name, [("delete", key)])

    def _edit(self, scope: str, name: str, edits: list[Any]) -> None:
        line = self.line(scope, name)
        for kind, key, *value in edits:
            if kind == "set":
                line.keys[key] = copy.deepcopy(value[0])
            elif kind == "append":
                line.keys[key] = [*line.keys.get(key, []), copy.deepcopy(value[0])]
            else:
                line.keys.pop(key, None)
        line.head += 1

    def _change(self, id: str | None, parts: list[Any]) -> None:
        if id in self.ids:
            return
        for scope, name, edits in parts:
            self._edit(scope, name, edits)
        if id is not None:
            self.ids.add(id)

    def _checkpoint(self, scope: str, name: str, label: str) -> None:
        line = self.line(scope, name)
        line.head += 1
        line.checkpoints.append((label, dict(line.keys)))

    def _restore(self, scope: str, name: str, label: str) -> None:
        line = self.line(scope, name)
        kept = next(keys for n, keys in reversed(line.checkpoints) if n == label)
        self._become(line, kept)

    def _adopt(self, scope: str, name: str, other: str) -> None:
        self._become(self.line(scope, name), self.line(scope, other).keys)

    def _become(self, line: Line, keys: dict[str, Any]) -> None:
        line.head += 2  # the backup, then the restore
        line.keys = copy.deepcopy(keys)

    def _fork(self, scope: str, name: str, new: str) -> None:
        source = self.line(scope, name)
        self.scopes[scope][new] = Line(copy.deepcopy(source.keys), self.ended.get(scope, 0) + 1)

    def _drop(self, scope: str) -> None:
        self.ended[scope] = 1 + max(line.head for line in self.scopes[scope].values())
        del self.scopes[scope]

    def _reopen(self) -> None:
        pass


# --- on a store -----------------------------------------------------------------------------


def carry_out(store: Store, op: Op) -> None:
    """Do what the operation says on a store; "reopen" is the caller's business."""
    kind = op[0]
    if kind == "change":
        with store.change(id=op[1], correlation="run", actor="prover") as change:
            for scope, name, edits in op[2]:
                part = change[store.scope(scope).on(name)]
                for edit in edits:
                    getattr(part, edit[0])(*edit[1:])
    elif kind == "drop":
        store.delete(op[1])
    else:
        state: State = store.scope(op[1]).on(op[2])
        if kind == "write":
            with state.open_write(op[3]) as file:
                file.write(op[4])
            return
        getattr(state, kind)(*op[3:])


def dump_store(store: Store) -> Dump:
    """Everything that a store shows to a reader, in the model's form."""
    found: Dump = {}
    for info in store.scopes().items:
        scope = str(info.scope)
        found[scope] = {}
        for line in store.scope(scope).timelines():
            state = store.scope(scope).on(line.name)
            names = [c.name for c in reversed(state.checkpoints()) if c.type != "recovery"]
            found[scope][line.name] = [line.head, dict(state.items()), names]
    return found


def past_differs(store: Store, model: Plain) -> str:
    """Compare the state at every checkpoint; "" if all are as the model has them."""
    for scope, lines in model.scopes.items():
        for name, line in lines.items():
            newest = dict(line.checkpoints)
            for label, keys in newest.items():
                try:
                    seen = dict(store.scope(scope).on(name).at(label).items())
                except ScopeNotFoundError:
                    return f"{scope} is not there"
                if seen != keys:
                    return f"{scope} {name} at {label!r}"
    return ""


# --- random operations ----------------------------------------------------------------------


class Generator:
    """Draws operations that make sense in the model's present state."""

    def __init__(self, seed: int, *, scopes: tuple[str, ...] = SCOPES) -> None:
        self.random = random.Random(seed)
        self.scopes = scopes
        self.model = Plain()
        self.number = 0

    def next(self) -> Op:
        """One more operation; the model has it done already."""
        self.number += 1
        op = self._draw()
        self.model.apply(op)
        return op

    def _draw(self) -> Op:
        draw = self.random
        scope = draw.choice(self.scopes)
        lines = self.model.scopes.get(scope)
        name = draw.choice(sorted(lines)) if lines else "main"
        roll = draw.random()
        if roll < 0.06:
            return ("set", scope, name, "log", self.items())
        if not lines or roll < 0.30:
            return ("set", scope, name, f"k{draw.randrange(5)}", self.value())
        if roll < 0.48:
            return ("append", scope, name, draw.choice(["log", "trace"]), self.item())
        if roll < 0.54:
            return ("delete", scope, name, f"k{draw.randrange(5)}")
        if roll < 0.68:
            return self.change()
        return self._rare(roll, scope, name)

    def _rare(self, roll: float, scope: str, name: str) -> Op:
        draw = self.random
        lines = self.model.scopes[scope]
        if roll < 0.80 or not lines[name].checkpoints:
            return ("checkpoint", scope, name, f"c{self.number}")
        if roll < 0.88:
            return ("restore", scope, name, draw.choice(lines[name].checkpoints)[0])
        if roll < 0.92 and len(lines) < 4:
            return ("fork", scope, name, f"f{self.number}")
        others = sorted(set(lines) - {name})
        if roll < 0.96 and others:
            return ("adopt", scope, name, draw.choice(others))
        return ("drop", scope) if roll > 0.98 else ("reopen",)

    def change(self) -> Op:
        """A change over one to three scopes, mostly with an id."""
        draw = self.random
        parts = []
        for scope in draw.sample(self.scopes, draw.randint(1, min(3, len(self.scopes)))):
            edits: list[Any] = [("set", f"k{draw.randrange(5)}", self.value())]
            edits.append(("append", "trace", self.item()))
            parts.append((scope, "main", edits))
        return ("change", f"id-{self.number}" if draw.random() < 0.7 else None, parts)

    def value(self) -> Any:
        """A value of any size: inline, an atom, or long enough for a tree."""
        draw = self.random
        roll = draw.random()
        if roll < 0.6:
            return {"n": self.number, "text": "x" * draw.randrange(60)}
        if roll < 0.8:
            return "long " * draw.randrange(50, 400)
        return self.items()

    def items(self) -> list[Any]:
        """A list so long that it is kept as a tree."""
        count = self.random.randrange(30, 80)
        return [{"i": i, "text": f"{self.number}/{i} " * 12} for i in range(count)]

    def item(self) -> Any:
        """An item of a list."""
        return {"n": self.number, "text": "y" * self.random.randrange(300)}
