"""Values: what goes in comes out, at every size, and belongs to whoever got it."""

from __future__ import annotations

import asyncio
import inspect
import math
import random
import string
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kit import Place, same

import holdfast
from holdfast import Registry, Typed, ValueLimits, sync
from holdfast.errors import (
    InvalidInputError,
    InvalidValueError,
    LimitExceededError,
    UnknownTypeError,
)

LETTERS = string.ascii_letters + string.digits
WIDE = "aé€😀\0\n"


def nested(depth: int) -> Any:
    value: Any = "core"
    for number in range(depth):
        value = [value] if number % 2 else {"k": value}
    return value


EXACT: dict[str, Any] = {
    "floats": [0.0, -0.0, 1e16, 1e-7, 1.0, math.inf, -math.inf, math.nan, 5e-324],
    "ints": [0, -1, 2**63, 2**64, -(2**63) - 1, 10**400],
    "true is not 1 is not 1.0": [True, 1, 1.0, False, 0],
    "texts": ["", "\0", "a\0b", "\ud800", "x\udfff", "😀", "é" * 300],
    "bytes": [b"", b"\0\xff" * 50, bytes(70)],
    "times": [
        datetime(2024, 2, 29, 1, 2, 3, 456789, UTC),
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    ],
    "order": {"b": 1, "a": 2, "c": {"z": 1, "y": 2}},
    "int keys": {1: "a", "1": "b", -5: None, 2**63: []},
    "200 deep": nested(200),
    "list of 1000": [{"n": n, "t": "x" * (n % 70)} for n in range(1000)],
    "list of small ints": list(range(1500)),
    "list of lists": [[n] * (n % 40) for n in range(150)],
    "wide mapping": {f"key {n}": n for n in range(1000)},
    "mapping with int keys": {n * 7 - 3000: str(n) for n in range(1000)},
    "mapping of mappings": {f"k{n}": {f"i{m}": "v" * 9 for m in range(n % 60)} for n in range(120)},
    "tree in tree in tree": {"a": [{"b": [{"c": list(range(500))} for _ in range(4)]}, 1]},
    "long ascii": "abcdefghij" * 5_000,
    "long text of wide characters": WIDE * 9_000,
    "long text that never ends a chunk": "a" * 100_000,
    "long bytes": bytes(range(256)) * 500,
    "long zeros": bytes(100_000),
    "long parts in parts": {"t": [WIDE * 5_000, bytes(40_000)], "u": {"v": "w" * 20_000}},
    "mapping with long keys": {f"k{n}-" * 3_000: n for n in range(20)},
    "empty containers": [[], {}, [[]], {"": {}}],
}


@pytest.mark.spec("L26")
@pytest.mark.parametrize("name", EXACT)
def test_exact(place: Place, name: str) -> None:
    value = EXACT[name]
    store = place.open()
    store.agent("1").set("k", value)
    store.agent("1").append("l", value)
    store.agent("1").set("in", {"side": value})
    assert same(store.agent("1").get("k"), value)
    fresh = place.reopen().agent("1")
    assert same(fresh.get("k"), value)
    assert same(fresh.get("l"), [value])
    assert same(fresh.get("in"), {"side": value})


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1023, 1024, 1025, 16_384, 16_385])
def test_exact_at_every_edge(plain: Place, size: int) -> None:
    values = [
        "x" * size,
        "é" * (size // 2),
        bytes(size),
        [None] * (size // 4),
        ["x" * size],
        {"x" * min(size, 1000): "y" * size},
        ["ab"] * (size // 8),
        {str(n): n for n in range(size // 20)},
    ]
    state = plain.open().agent("1")
    for number, value in enumerate(values):
        state.set(f"k{number}", value)
    fresh = plain.reopen().agent("1")
    for number, value in enumerate(values):
        assert same(fresh.get(f"k{number}"), value)
        assert same(state_again(fresh, f"k{number}", value), value)


def state_again(state: sync.State, key: str, value: Any) -> Any:
    """Set it once more, on top of itself."""
    state.set(key, value)
    return state.get(key)


@given(
    texts=st.lists(st.text(max_size=40), min_size=1, max_size=12),
    repeat=st.integers(200, 900),
    cut=st.integers(0, 4),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_long_texts_cut_anywhere(texts: list[str], repeat: int, cut: int) -> None:
    text = ("".join(texts) + "é€😀") * repeat
    text = text[cut : len(text) - cut]
    with sync.open("memory:") as store:
        state = store.agent("1")
        state.set("k", text)
        assert state.get("k") == text
        changed = text[: len(text) // 2] + "€" + text[len(text) // 2 :]
        state.set("k", changed)
        assert state.get("k") == changed


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.binary(max_size=90),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.integers(-9, 9),
            inner,
            max_size=6,
        )
    ),
    max_leaves=60,
)


@given(values=st.lists(json, min_size=1, max_size=3), times=st.integers(1, 50))
def test_any_value_on_top_of_any_other(values: list[Any], times: int) -> None:
    with sync.open("memory:") as store:
        state = store.agent("1")
        for value in values:
            for made in (value, [value] * times, {"a": [value, {"b": [value] * times}]}):
                state.set("k", made)
                assert same(state.get("k"), made)


@dataclass
class Report:
    title: str
    rows: list[dict[str, Any]]
    inner: Any = None
    notes: dict[str, str] = field(default_factory=dict)


def test_objects_with_long_parts(place: Place) -> None:
    registry = Registry()
    registry.register(Report, name="Report")
    rows = [{"n": n, "text": "x" * 60} for n in range(400)]
    value = Report("outer", rows, Report("inner", rows[:50], None, {"k": "v" * 2000}))
    state = place.open(registry=registry).agent("1")
    state.set("k", value)
    state.set("deep", {"reports": [value, {"again": value}]})
    rows[200] = {"n": -1, "text": "changed"}
    value.inner.notes["k"] = "w"
    state.set("k", value)
    state.append("l", value)
    fresh = place.reopen(registry=registry).agent("1")
    assert fresh.get("k") == value
    assert type(fresh.get("k").inner) is Report
    assert fresh.get("deep")["reports"][1]["again"].rows[200]["n"] == 200
    assert fresh.tail("l", 1) == [value]


# ---- whose it is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["order", "list of 1000", "mapping of mappings", "tree in tree in tree"]
)
def test_what_get_returns_belongs_to_the_caller(place: Place, name: str) -> None:
    state = place.open().agent("1")
    state.set("k", EXACT[name])
    state.set("l", [EXACT[name]])

    def spoil(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                spoil(item)
            value.append("spoiled")
        elif isinstance(value, dict):
            for item in list(value.values()):
                spoil(item)
            value["spoiled"] = True

    for _ in range(2):
        item = state.item("k")
        assert item is not None
        for found in (
            state.get("k"),
            state.get_many(["k"]),
            state.items(),
            state.tail("l", 1),
            state.slice("l"),
            item.value,
            state.at(1).get("k"),
        ):
            spoil(found)
        assert same(state.get("k"), EXACT[name])
        assert same(state.tail("l", 1)[0], EXACT[name])
    state.update("k", lambda value: spoil(value))
    assert state.get("k", "default") is None
    assert same(state.at(1).get("k"), EXACT[name])


def test_the_caller_s_object_stays_the_caller_s(place: Place) -> None:
    state = place.open().agent("1")
    value = {"rows": [{"n": n, "text": "x" * 40} for n in range(200)], "small": [1]}
    for _ in range(3):  # set again and again, so that what is remembered is used
        state.set("k", value)
        value["rows"][100]["n"] = -1
        value["small"].append(2)
        assert state.get("k")["rows"][100]["n"] == 100
        assert state.get("k")["small"] == [1]
        value["rows"][100]["n"] = 100
        value["small"] = [1]


def test_one_object_in_several_places(store: sync.Store) -> None:
    part = {"a": [1]}
    state = store.agent("1")
    state.set("k", [part, part, {"p": part}])
    found = state.get("k")
    found[0]["a"].append(2)
    assert found == [{"a": [1, 2]}, {"a": [1]}, {"p": {"a": [1]}}]


# ---- what is refused -----------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "tuple": ({"a": [1, (2, 3)]}, "$.a[1]"),
    "set": ([{1}], "$[0]"),
    "naive datetime": ({"t": datetime(2024, 1, 1)}, "$.t"),  # noqa: DTZ001
    "object": ({"o": object()}, "$.o"),
    "bytearray": ([bytearray(b"x")], "$[0]"),
    "float key": ({1.5: 1}, "$"),
    "None key": ({None: 1}, "$"),
    "bool key": ({True: 1}, "$"),
    "subclass": ([type("Text", (str,), {})("x")], "$[0]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_path(store: sync.Store, name: str) -> None:
    value, path = REFUSED[name]
    state = store.agent("1")
    rows = [{"n": n, "text": "x" * 40} for n in range(100)]
    state.set("rows", rows)
    state.set("rows", [*rows, {"n": 100, "text": "y"}])
    for key, made, where in (
        ("k", value, "$"),
        ("rows", [*rows, value], "$[100]"),
        ("rows", [value, *rows], "$[0]"),
        ("rows", {"rows": rows, "more": value}, "$.more"),
    ):
        with pytest.raises(InvalidValueError) as caught:
            state.set(key, made)
        assert caught.value.path.startswith(where + path[1:])
    with pytest.raises(InvalidValueError):
        state.append("k", value)
    assert state.keys() == ["rows"]
    assert len(state.get("rows")) == 101


def test_a_value_that_contains_itself(store: sync.Store) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(LimitExceededError):
        store.agent("1").set("k", loop)
    assert store.scopes().items == []


SMALL = ValueLimits(depth=10, items=200, size=20_000)


@pytest.mark.parametrize(
    "value",
    [nested(11), list(range(201)), {"a": [[0] * 150, [0] * 150]}, "x" * 20_001, bytes(20_001)],
    ids=["deep", "items", "items in all", "text", "bytes"],
)
def test_limits(place: Place, value: Any) -> None:
    state = place.open(limits=SMALL).agent("1")
    with pytest.raises(LimitExceededError) as caught:
        state.set("k", value)
    assert len(str(caught.value)) < 300
    state.set("k", nested(10))
    with pytest.raises(LimitExceededError):
        state.set("k", value)
    assert state.get("k") == nested(10)


def test_limits_are_for_writing(place: Place) -> None:
    """What is stored is read, whatever they are; a list is as deep with an item as set whole."""
    values = {"deep": nested(12), "items": list(range(300)), "text": "x" * 30_000}
    for key, value in values.items():
        place.open().agent("1").set(key, value)
    state = place.open(limits=SMALL).agent("1")
    assert {key: state.get(key) for key in values} == dict(state.items()) == values
    assert state.tail("items", 2) == [298, 299]
    subjects = [None, "ann"] if place.sealed else [None]
    for subject in subjects:
        state.append("list", nested(9), subject=subject)
        for add in (state.append, lambda key, item, **rest: state.extend(key, [item], **rest)):
            with pytest.raises(LimitExceededError, match=r"'list'.*deeper than 10"):
                add("list", nested(10), subject=subject)
    with pytest.raises(LimitExceededError), state.change() as change:
        change.append("new", nested(10))
    assert state.get("list") == [nested(9)] * len(subjects)


def test_depth_is_limited_by_what_can_be_kept(place: Place) -> None:
    with pytest.raises(InvalidInputError, match="at most 400"):
        ValueLimits(depth=401)
    lists: Any = "core"
    for _ in range(400):
        lists = [lists]
    for value in (nested(400), lists):
        place.open(limits=ValueLimits(depth=400)).agent("1").set("k", value)
        state = place.open().agent("1")
        assert state.get("k") == value, "levels are read however many there are"
    with pytest.raises(LimitExceededError, match="deeper than 256 levels"):
        state.set("k", nested(257))


def test_where_the_caller_has_used_up_the_stack_the_error_says_so(place: Place) -> None:
    state = place.open().agent("1")
    state.set("k", nested(250))
    reader = place.reopen().agent("1")
    reader.get("other")

    def deep(left: int, call: Callable[[], Any]) -> Any:
        return call() if left == 0 else deep(left - 1, call)

    left = sys.getrecursionlimit() - len(inspect.stack()) - 120
    with pytest.raises(LimitExceededError, match=r"'k'.*Python's stack"):
        deep(left, lambda: reader.set("k", nested(250)))
    with pytest.raises(LimitExceededError, match=r"'k'.*Python's stack"):
        deep(left, lambda: reader.get("k"))
    assert place.reopen().agent("1").get("k") == nested(250)


def test_a_list_that_grows_too_long_is_named(place: Place) -> None:
    state = place.open(limits=SMALL).agent("1")
    for key, items in (("short", range(200)), ("long", ["x" * 80] * 200)):
        state.extend(key, items)
        with pytest.raises(LimitExceededError, match=f"agent:1: the list '{key}' would be longer"):
            state.append(key, 1)
    with pytest.raises(LimitExceededError, match="the list 'new' would be longer"):
        state.extend("new", list(range(201)))


def test_limits_hold_also_for_what_was_stored_before(plain: Place) -> None:
    """Parts that are recognised are not checked again, but they are counted."""
    state = plain.open(limits=SMALL).agent("1")
    rows = ["x" * 90 + str(n) for n in range(100)]
    state.set("k", rows)
    state.set("k", [*rows, "y"])
    state.set("k", rows)
    with pytest.raises(LimitExceededError):
        state.set("k", rows * 3)
    with pytest.raises(LimitExceededError):
        state.set("k", {"a": rows * 2, "b": rows})
    assert state.get("k") == rows


def test_a_value_of_a_gigabyte_is_refused_at_once(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("k", 1)
    # Zeros that nobody touches take no memory until they are copied, which must not happen.
    huge = bytes(1 << 30)
    for value in (huge, {"a": [huge]}):
        with pytest.raises(LimitExceededError, match="larger than"):
            state.set("k", value)
        with pytest.raises(LimitExceededError, match="larger than"):
            state.append("l", value)
    assert state.items() == [("k", 1)]


def test_a_part_that_cannot_be_divided_is_refused(store: sync.Store) -> None:
    """A number of a million digits, or odd text of that length, has no tree."""
    state = store.agent("1")
    for value in (1 << 6_000_000, "\ud800" + "x" * 600_000):
        with pytest.raises(InvalidInputError, match="takes"):
            state.set("k", value)
    state.set("k", 1 << 3_000_000)
    assert state.get("k") == 1 << 3_000_000


def test_names_in_a_mapping_that_are_long(plain: Place) -> None:
    """The names of a mapping are no values, and yet may be as long and as many."""
    values = [
        {("😀" * 20_000) + str(n): n for n in range(40)},
        {f"{n:060}": n for n in range(6_000)},
    ]
    state = plain.open().agent("1")
    for number, value in enumerate(values):
        state.set(f"k{number}", value)
        state.set(f"k{number}", value | {"one more": 1})
    state = plain.reopen().agent("1")
    for number, value in enumerate(values):
        assert state.get(f"k{number}") == value | {"one more": 1}


def test_a_name_in_a_mapping_has_a_limit(plain: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be written can be saved: no name makes a node that fits into no record."""
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 2)
    state = plain.open().agent("1")
    fill = {f"{n}" + "😀" * 1000: n for n in range(60)}
    with pytest.raises(LimitExceededError, match="key of a mapping"):
        state.set("k", {"😀" * 65_537: 1} | fill)
    value = {"😀" * 65_536: 1} | fill
    for number in range(8):
        state.set("k", value | {"n": number})
    assert plain.reopen().agent("1").get("k") == value | {"n": 7}


def test_more_names_than_an_entry_takes(place: Place) -> None:
    state = place.open().agent("1")
    state.set("k", 1)
    names = {"".join(random.choices(LETTERS, k=200)): n for n in range(9_000)}
    with pytest.raises(LimitExceededError, match="agent:1"):
        state.set("k", names)
    with pytest.raises(LimitExceededError, match="agent:1"), state.change() as change:
        for name in names:
            change.set(name, 1)
    assert state.set("k", 2) == 2
    assert place.reopen().agent("1").items() == [("k", 2)]


@pytest.mark.parametrize("size", [1, 5_000])
def test_objects_are_written_and_read_without_their_classes(place: Place, size: int) -> None:
    """Short ones are atoms, long ones trees; a list goes from one to the other by appending."""
    note = Typed("note", 2, {"text": "x" * 50, "lines": ["y" * 30] * (size // 30), "n": 1})
    state = place.open().agent("1")
    state.set("one", {"deep": [note]})
    for _ in range(40):
        state.append("many", note)
    state = place.reopen().agent("1")
    assert state.get("one", plain=True) == {"deep": [note]}
    assert state.get("many", plain=True) == [note] * 40
    assert state.get_many(["one"], plain=True) == {"one": {"deep": [note]}}
    assert dict(state.items(plain=True))["many"] == [note] * 40
    assert state.tail("many", 3, plain=True) == [note] * 3
    assert state.slice("many", 1, 3, plain=True) == [note] * 2
    assert state.length("many") == 40
    with pytest.raises(UnknownTypeError, match="'note'"):
        state.get("one")
    with pytest.raises(InvalidInputError, match="not both"):
        state.get("one", plain=True, as_=dict)


def test_what_was_written_in_plain_form_is_the_object(plain: Place) -> None:
    @dataclass
    class Note:
        text: str
        lines: list[str]

    registry = Registry()
    registry.register(Note, name="note")
    state = plain.open(registry=registry).agent("1")
    for lines in ([], ["y" * 30] * 200):
        state.set("a", Note("x", lines))
        root = state.root()
        state.set("a", Typed("note", 1, {"text": "x", "lines": lines}))
        assert state.root() == root
        assert state.get("a") == Note("x", lines)


def test_plain_reads_of_the_async_face() -> None:
    note = Typed("note", 1, {"text": "x"})

    async def read() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("1")
            await state.append("many", note)
            assert await state.get("many", plain=True) == [note]
            assert await state.get_many(["many"], plain=True) == {"many": [note]}
            assert await state.items(plain=True) == [("many", [note])]
            assert await state.tail("many", 1, plain=True) == [note]
            assert await state.slice("many", plain=True) == [note]

    asyncio.run(read())


TOO_LONG: dict[str, tuple[Any, str]] = {
    "an int": (1 << 5_000_000, "$.a[1]"),
    "text with lone surrogates": ("\ud800" + "x" * 600_000, "$.a[1]"),
    "a key": ({"k" * 300_000: 1}, "$.a[1]['kkk"),
    "a key in many bytes": ({"é" * 200_000: 1}, "$.a[1]['"),
}


@pytest.mark.parametrize("what", TOO_LONG)
def test_parts_that_are_kept_whole_have_a_limit(store: sync.Store, what: str) -> None:
    state, (part, path) = store.agent("1"), TOO_LONG[what]
    state.set("k", {"a": [0, "x" * 100_000]})
    for write in (
        lambda: state.set("k", {"a": [0, part]}),
        lambda: state.set("new", {"a": [0, part]}),
        lambda: state.append("l", {"a": [0, part]}),
    ):
        with pytest.raises(LimitExceededError) as caught:
            write()
        assert caught.value.path.startswith(path)
        assert str(caught.value).startswith("agent:1: ")
        assert len(str(caught.value)) < 300
    assert state.get("k") == {"a": [0, "x" * 100_000]}


def test_parts_at_that_limit_come_back(store: sync.Store) -> None:
    for part in ((1 << 4_194_303) - 1, "\ud800" + "x" * 524_285, {"k" * 262_144: 1}):
        store.agent("1").set("k", [part])
        assert (store.agent("1").get("k") == [part]) is True


@pytest.mark.parametrize("options", [{}, {"id": "once"}])
def test_the_error_names_scope_and_key(store: sync.Store, options: dict[str, Any]) -> None:
    state = store.agent("1")
    told = r"agent:1: 'bad' .*\$\.x\[1\]: a tuple"
    with pytest.raises(InvalidValueError, match=told) as caught, state.change(**options) as change:
        change.set("good", 1)
        change.set("bad", {"x": [1, (2, 3)]})
    assert caught.value.path == "$.x[1]"
    assert state.keys() == []


def test_the_error_of_a_sealed_value_names_scope_and_key(tmp_path: Path) -> None:
    store = Place("memory", tmp_path, sealed=True).open()
    with pytest.raises(InvalidValueError, match=r"agent:1: 'bad' .*\$: a tuple"):
        store.agent("1").set("bad", (1,), subject="user:1")


def test_a_value_of_a_class_that_is_not_known_is_told_by_scope_and_key(place: Place) -> None:
    """So is one of a class that has changed; what it was registered as is not to be upgraded."""

    class Point(msgspec.Struct):
        x: int

    class Other(msgspec.Struct):
        y: int

    known, changed = Registry(), Registry()
    known.register(Point)
    changed.register(Other, name="Point")
    state = place.open(registry=known).agent("a")
    state.set("p", Point(1))
    state.extend("l", [{"at": Point(n)} for n in range(3000)])
    for registry, kind, hint in (
        (Registry(), UnknownTypeError, "register its class"),
        (changed, InvalidValueError, "higher version="),
    ):
        seen = place.open(registry=registry).agent("a")
        for key, read, *asked in (
            ("p", seen.get, "p"),
            ("p", seen.get_many, ["p"]),
            ("p", seen.items, "p"),
            ("p", seen.item, "p"),
            ("l", seen.get, "l"),
            ("l", seen.tail, "l", 1),
            ("l", seen.slice, "l", 5, 9),
        ):
            with pytest.raises(kind, match=rf"^agent:a: the value of '{key}' cannot.*{hint}"):
                read(*asked)  # type: ignore[operator]
