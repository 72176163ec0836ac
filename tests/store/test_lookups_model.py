"""Lookups against a plain model: every way a state changes, every kind of question, any point."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from store_kit import Place

from holdfast import Begins, Lookup, Range, sync
from holdfast.errors import LookupNotFoundError
from holdfast.store.journal import timeline as timeline_module
from holdfast.store.read import lookup_terms
from holdfast.store.rules.lookup import LONG

FLAT = Lookup("flat", prefix="v/", terms={"kind": "kind", "rank": "at.rank"})
EACH = Lookup("each", prefix="v/", terms={"name": "names[]", "kind": "kind"})
ITEMS = Lookup("items", terms={"role": "[].role"})
PATHS: dict[str, list[tuple[str, ...]]] = {
    "flat": [("kind",), ("at", "rank")],
    "each": [("names", "[]"), ("kind",)],
    "items": [("[]", "role")],
}
START = datetime(2026, 1, 1, tzinfo=UTC)
SCALARS: list[Any] = [
    None, True, False, 0, 1, -1, 2**80, -(2**80), 0.0, 1.0, -1.5, math.inf, math.nan, "", "1", "a",
    "ab", "a\0b", "é", "a" * 300, "a" * 300 + "b", b"", b"a", b"a" * 300, START,
    START.astimezone(timezone(timedelta(hours=2))), START + timedelta(microseconds=1),
]  # fmt: skip
FILLER = {f"field {n}": "text " * 9 for n in range(40)}
Values = dict[str, Any]


def order(term: Any) -> tuple[Any, ...]:
    """What a term sorts by: its type, then itself; of long texts only the beginning."""
    if term is MISSING:
        return (0,)
    if term is None:
        return (1,)
    if type(term) is float and term != term:
        return (5,)
    rank = {bool: 2, int: 3, float: 4, datetime: 6, str: 7, bytes: 8}[type(term)]
    if isinstance(term, str | bytes) and len(term) > LONG:
        return rank, term[:LONG], 1
    return rank, term, 0


MISSING: Any = object()


def parts(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        if type(value) not in (dict, list):
            yield value
    elif path[0] == "[]":
        for item in value if type(value) is list else []:
            yield from parts(item, path[1:])
    elif type(value) is dict and path[0] in value:
        yield from parts(value[path[0]], path[1:])


def rows(values: Values, lookup: str) -> list[tuple[str, tuple[Any, ...]]]:
    """(key, terms) of every combination."""
    found = []
    for key, value in values.items():
        if lookup != "items" and not key.startswith("v/"):
            continue
        each = [list(parts(value, path)) for path in PATHS[lookup]]
        if not any(each):
            continue
        combined: list[tuple[Any, ...]] = [()]
        for terms in each:
            combined = [(*row, term) for row in combined for term in terms or [MISSING]]
        found += [(key, row) for row in combined]
    return found


def equal(a: Any, b: Any) -> bool:
    if a is MISSING or type(a) is not type(b):
        return False
    return bool(a == b) or (type(a) is float and a != a and b != b)


def fits(term: Any, condition: Any) -> bool:
    if type(condition) is not tuple:
        return equal(term, condition)
    side, bound = condition
    if term is MISSING or type(term) is not type(bound) or term != term:
        return False
    if side == "begins":
        return bool(term.startswith(bound))
    return bool(
        {"gt": term > bound, "ge": term >= bound, "lt": term < bound, "le": term <= bound}[side]
    )


def asked(condition: Any) -> Any:
    if type(condition) is not tuple:
        return condition
    side, bound = condition
    return Begins(bound) if side == "begins" else Range(**{side: bound})


class Model:
    """Two handles on one store, the plain values after every entry of every timeline."""

    def __init__(self, place: Place, seed: int) -> None:
        self.choose = random.Random(seed)
        self.handles = [place.open(), place.open()]
        self.past: dict[str, dict[int, Values]] = {"main": {0: {}}}
        self.known: dict[str, dict[int, set[str]]] = {"main": {0: set()}}

    def state(self, line: str) -> sync.State:
        return self.choose.choice(self.handles).agent("m").on(line)

    def line(self) -> str:
        return self.choose.choice(sorted(self.past))

    def now(self, line: str) -> Values:
        newest = self.past[line][max(self.past[line])]
        return dict(newest)

    def note(self, line: str, values: Values) -> None:
        state = self.state(line)
        at = state._handle.place()[2]
        self.past[line][at] = values
        self.known[line][at] = {one.name for one in state.declared()}

    def value(self) -> Any:
        pick, scalar = self.choose.random(), lambda: self.choose.choice(SCALARS)
        value: dict[str, Any] = {
            "kind": scalar(),
            "names": [scalar() for _ in range(self.choose.randrange(4))],
        }
        if pick < 0.7:
            value["at"] = {"rank": scalar()}
        if pick < 0.3:
            value |= FILLER
        if 0.7 < pick < 0.8:
            return scalar()
        if 0.8 < pick < 0.9:
            return {"kind": [1], "at": 7, "names": {"a": 1}}
        if pick > 0.9:
            value["names"] = [f"n{n}" for n in range(self.choose.choice([5, 300]))]
        return value

    def items(self) -> list[Any]:
        count = self.choose.choice([1, 2, 40])
        return [{"role": self.choose.choice(SCALARS), "text": "w" * 40} for _ in range(count)]

    # steps

    def set(self, line: str) -> None:
        values, key = self.now(line), f"v/{self.choose.randrange(8)}"
        values[key] = self.value()
        self.state(line).set(key, values[key])
        self.note(line, values)

    def patch(self, line: str) -> None:
        """Change one field of whatever is there."""
        values = self.now(line)
        keys = [key for key, value in values.items() if type(value) is dict]
        if keys:
            key = self.choose.choice(keys)
            values[key] = values[key] | {"kind": self.choose.choice(SCALARS)}
            self.state(line).update(key, lambda _: values[key])
            self.note(line, values)

    def append(self, line: str) -> None:
        values, key, items = self.now(line), f"l/{self.choose.randrange(3)}", self.items()
        values[key] = [*values.get(key, []), *items]
        self.state(line).extend(key, items)
        self.note(line, values)

    def trim(self, line: str) -> None:
        values, key = self.now(line), f"l/{self.choose.randrange(3)}"
        if values.get(key):
            keep = self.choose.choice([0, 1, 30])
            values[key] = values[key][-keep:] if keep else []
            self.state(line).trim(key, keep_last=keep)
            self.note(line, values)

    def delete(self, line: str) -> None:
        values = self.now(line)
        key = self.choose.choice([*values, "v/absent"])
        values.pop(key, None)
        self.state(line).delete(key)
        self.note(line, values)

    def change(self, line: str) -> None:
        values = self.now(line)
        with self.state(line).change() as change:
            for _ in range(self.choose.randrange(1, 6)):
                key = f"v/{self.choose.randrange(3)}"
                if self.choose.random() < 0.3:
                    change.delete(key)
                    values.pop(key, None)
                else:
                    values[key] = self.value()
                    change.set(key, values[key])
            items = self.items()
            change.extend("l/0", items)
            values["l/0"] = [*values.get("l/0", []), *items]
            if self.choose.random() < 0.3:
                values["l/0"] = items
                change.set("l/0", items)
        self.note(line, values)

    def restore(self, line: str) -> None:
        other = self.line()
        at = self.choose.choice([n for n in self.past[other] if n or other == "main"])
        self.state(line).restore(f"{other}@{at}", verify="none")
        self.note(line, dict(self.past[other][at]))

    def adopt(self, line: str) -> None:
        other = self.line()
        self.state(line).adopt(other)
        self.note(line, self.now(other))

    def fork(self, line: str) -> None:
        if len(self.past) < 4:
            name = f"fork {len(self.past)}"
            at = self.choose.choice([n for n in self.past[line] if n or line == "main"])
            self.state(line).fork(name, at=at)
            self.past[name], self.known[name] = {}, {}
            self.note(name, dict(self.past[line][at]))

    def revert(self, line: str) -> None:
        state = self.state(line)
        entry = state.log(limit=1)[0]
        if len(entry.keys) == 1 and not entry.keys[0].startswith("$"):
            before = [n for n in self.past[line] if n < entry.sequence]
            if before and entry.sequence in self.past[line]:
                done = state.revert(entries=[entry])
                if done.entry is not None:
                    self.note(line, dict(self.past[line][max(before)]))

    def declare(self, line: str) -> None:
        one = self.choose.choice([FLAT, EACH, ITEMS])
        state = self.state(line)
        if self.choose.random() < 0.7:
            state.declare(one)
        else:
            state.undeclare(one)
        self.note(line, self.now(line))

    # questions

    def condition(self) -> Any:
        bound = self.choose.choice(SCALARS)
        how = self.choose.choice(["equal", "gt", "ge", "lt", "le", "begins"])
        if isinstance(bound, str | bytes):
            bound = bound[:LONG] if how != "equal" else bound
        elif how == "begins":
            return bound
        return bound if how == "equal" or bound is None or bound != bound else (how, bound)

    def ask(self, line: str) -> None:
        state: Any = self.state(line)
        at = self.choose.choice(sorted(self.past[line]))
        newest = max(self.past[line])
        if self.choose.random() < 0.5 and (at or line == "main"):
            state = state.at(at)
        else:
            at = newest
        lookup = self.choose.choice([FLAT, EACH, ITEMS])
        if lookup.name not in self.known[line][at]:
            with pytest.raises(LookupNotFoundError):
                state.find(lookup.name)
            return
        names = list(lookup.terms)
        where = {name: self.condition() for name in names if self.choose.random() < 0.6}
        matching = [
            (key, terms)
            for key, terms in rows(self.past[line][at], lookup.name)
            if all(fits(terms[names.index(name)], where[name]) for name in where)
        ]
        loose = [n for n in names if n not in where or type(where[n]) is tuple]
        by = self.choose.choice([None, "", "-"])
        sort = None if by is None else by + (loose or names)[0]
        descending = by == "-"
        ordered = sorted(
            ((tuple(map(order, terms)), key) for key, terms in matching), reverse=descending
        )
        expected = list(dict.fromkeys(key for _, key in ordered))
        found: list[str] = []
        after = None
        limit = self.choose.choice([None, 1, 3])
        while True:
            page = state.find(
                lookup.name,
                {name: asked(one) for name, one in where.items()},
                order=sort, limit=limit, after=after,
            )  # fmt: skip
            found += page.items
            after = page.after
            if after is None:
                break
        if any(term[-1:] == (1,) for terms, _ in ordered for term in terms):
            assert sorted(found) == sorted(expected)  # cut: their order is not theirs
        else:
            assert found == expected, (lookup.name, where, sort)


@pytest.mark.parametrize("seed", range(3))
def test_lookups_are_what_a_plain_search_finds(
    place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("DELTA_EVERY", 7), ("DELTAS", 3), ("TAIL", 6)):
        monkeypatch.setattr(timeline_module, name, number)
    monkeypatch.setattr(lookup_terms, "KEYS", 3)
    model = Model(place, seed)
    steps = [
        model.set, model.set, model.set, model.patch, model.patch, model.append, model.append,
        model.trim, model.delete, model.change, model.change, model.restore, model.adopt,
        model.fork, model.revert, model.declare, model.declare,
    ]  # fmt: skip
    model.set("main")
    model.state("main").declare(FLAT, EACH, ITEMS)
    model.note("main", model.now("main"))
    for number in range(60):
        model.choose.choice(steps)(model.line())
        for _ in range(3):
            model.ask(model.line())
        if number % 30 == 29:
            assert model.handles[0].verify().findings == []
