"""Values come back exactly, or are refused by path."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import enum
import math
import struct
import sys
import tracemalloc
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    InvalidValueError,
    LimitExceededError,
    NewerFormatError,
    UnknownTypeError,
)
from holdfast.seal.codec import Codec, Typed, ValueLimits, convert
from holdfast.seal.registry import Registry

BERLIN = ZoneInfo("Europe/Berlin")


@dataclass
class Plan:
    goal: str
    steps: list[Any]


class Colour(enum.Enum):
    RED = (1, 2)
    BLUE = "b"


def make(**limits: int) -> Codec:
    registry = Registry()
    registry.register(Plan, name="plan")
    registry.register(Colour)
    return Codec(registry, ValueLimits(**limits))


CODEC = make()


def same(a: Any, b: Any) -> bool:
    """Equal with equal types all the way down; nan is nan, 0.0 is not -0.0, order counts."""
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return struct.pack(">d", a) == struct.pack(">d", b)
    if type(a) is list:
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is dict:
        return len(a) == len(b) and all(map(same, a, b)) and all(map(same, a.values(), b.values()))
    if type(a) is dt.datetime:
        parts = (a.replace(tzinfo=None), a.fold, a.utcoffset(), str(a.tzinfo), type(a.tzinfo))
        return parts == (
            b.replace(tzinfo=None), b.fold, b.utcoffset(), str(b.tzinfo), type(b.tzinfo)
        )  # fmt: skip
    if type(a) is Plan:
        return same(a.goal, b.goal) and same(a.steps, b.steps)
    return bool(a == b)


def through(value: Any, codec: Codec = CODEC) -> Any:
    return codec.decode(codec.encode(codec.plain(value)))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


any_text = st.text(st.characters(exclude_categories=()))
whole = st.integers() | st.integers(-(2**200), 2**200) | st.sampled_from(
    [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]
)  # fmt: skip
offsets = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))
zones = st.one_of(
    st.builds(dt.timezone, offsets),
    st.builds(dt.timezone, offsets, st.text(max_size=5)),
    st.just(dt.UTC),
    st.sampled_from([BERLIN, ZoneInfo("UTC"), ZoneInfo("Asia/Kathmandu")]),
)
moments = st.builds(
    lambda m, zone, fold: m.replace(tzinfo=zone, fold=fold),
    st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)),  # noqa: DTZ001
    zones,
    st.integers(0, 1),
)
scalars = st.one_of(
    st.none(), st.booleans(), whole, st.floats(), any_text, st.binary(), moments,
    st.sampled_from(Colour),
)  # fmt: skip
keys = st.text() | st.integers(-(2**63), 2**64 - 1)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(keys, inner),
        st.builds(Plan, any_text, st.lists(inner)),
    ),
    max_leaves=25,
)


@given(values)
@settings(max_examples=150)
@example([math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 1e16, 5e-324])
@example([2**70, -(2**70), 2**100_000, "\ud800", "\ud83d\ude00", "a\0b", "", b"", b"\0"])
@example({1: "a", "1": "b", -1: None})
@example([1, 1.0, True, 0, False, None])
@example(dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1))
@example(dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=0))
@example(dt.datetime(1890, 1, 1, tzinfo=BERLIN))
def test_exact(value: Any) -> None:
    assert same(through(value), value)


def test_order_of_a_mapping_counts() -> None:
    assert list(through({"b": 1, "a": 2})) == ["b", "a"]
    assert CODEC.encode({"b": 1, "a": 2}) != CODEC.encode({"a": 2, "b": 1})


def test_nesting_of_200() -> None:
    assert through(nested(200)) == nested(200)


def test_nothing_is_copied_that_need_not_be() -> None:
    value = {"a": [1, "é", {"b": None}], "c": b"x"}
    assert CODEC.plain(value) is value
    odd = {"left": [1], "right": [2**70]}
    plain = CODEC.plain(odd)
    assert plain is not odd
    assert plain["left"] is odd["left"]
    assert odd["right"] == [2**70]


def test_plain_form_of_an_object() -> None:
    plain = CODEC.plain([Plan("g", [Colour.RED])])
    assert plain == [Typed("plan", 1, {"goal": "g", "steps": [Typed("Colour", 1, "RED")]})]
    assert "g" not in repr(plain[0]).replace("plan", "")


def test_an_object_given_in_plain_form_is_stored_like_the_object() -> None:
    given = Typed("plan", 1, {"goal": "g", "steps": [Typed("Colour", 1, "RED"), 2**70]})
    plain = CODEC.plain({"a": [given]})
    assert CODEC.encode(plain) == CODEC.encode(CODEC.plain({"a": [Plan("g", [Colour.RED, 2**70])]}))
    assert CODEC.decode(CODEC.encode(plain)) == {"a": [Plan("g", [Colour.RED, 2**70])]}


def test_objects_are_read_without_their_classes() -> None:
    data = CODEC.encode(CODEC.plain([Plan("g", [Colour.RED, "\ud800", 2**70])]))
    read = CODEC.plain_reader.decode(data)
    fields = {"goal": "g", "steps": [Typed("Colour", 1, "RED"), "\ud800", 2**70]}
    assert read == [Typed("plan", 1, fields)]
    assert CODEC.encode(CODEC.plain(read)) == data


@pytest.mark.parametrize(
    "bad",
    [Typed("", 1, {}), Typed("a\n", 1, {}), Typed("x" * 201, 1, {}), Typed("a", 0, {}),
     Typed("a", True, {}), Typed(1, 1, {}), Typed("a", 1, [(1,)][0])],
    ids=range(7),
)  # fmt: skip
def test_a_plain_form_is_checked_like_everything(bad: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        CODEC.plain({"plan": [0, bad]})
    assert caught.value.path == "$.plan[1]"


def test_limits_hold_inside_a_plain_form() -> None:
    with pytest.raises(LimitExceededError):
        make(depth=4).plain([Typed("a", 1, Typed("a", 1, Typed("a", 1, [])))])
    loop: list[Any] = []
    loop.append(Typed("a", 1, loop))
    with pytest.raises(LimitExceededError):
        CODEC.plain(loop)


class Text(str):
    __slots__ = ()


class Point(tuple[int, int]):
    __slots__ = ()


@dataclass
class Unknown:
    secret: str


REFUSED = [
    (1, 2), {1}, frozenset(), bytearray(b"x"), memoryview(b"x"), 1j, Text("a"), Point((1, 2)),
    OrderedDict(a=1), dt.date(2026, 1, 1), dt.time(1), dt.timedelta(1), decimal.Decimal(1),
    uuid.UUID(int=1), Unknown("hush"), object(), len, int, range(3),
    msgspec.msgpack.Ext(4, b"x"), msgspec.Raw(b"\x01"), enum.IntEnum("E", "A").A,
    dt.datetime(2026, 1, 1),  # noqa: DTZ001
]  # fmt: skip


@pytest.mark.parametrize("bad", REFUSED, ids=lambda bad: type(bad).__name__)
def test_refused_by_path(bad: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        CODEC.plain({"plan": {"steps": [0, 1, 2, bad]}})
    assert caught.value.path == "$.plan.steps[3]"
    text = str(caught.value)
    assert "$.plan.steps[3]" in text
    assert type(bad).__name__ in text
    assert "hush" not in text


def test_what_to_do_is_said() -> None:
    with pytest.raises(InvalidValueError, match=r"registry.register\(Unknown, name='Unknown'\)"):
        CODEC.plain(Unknown("hush"))
    with pytest.raises(InvalidValueError, match=r"use list\(\.\.\.\)"):
        CODEC.plain(())
    with pytest.raises(InvalidValueError, match="subclass of str"):
        CODEC.plain(Text("a"))


@pytest.mark.parametrize("key", [True, None, 1.5, b"a", (1,), Text("a"), 2**64, "\ud800"])
def test_refused_keys(key: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        CODEC.plain({"outer": [{key: 1}]})
    assert caught.value.path.startswith("$.outer[0][")


def test_path_inside_an_object() -> None:
    with pytest.raises(InvalidValueError) as caught:
        CODEC.plain({"odd key": Plan("g", [{}, {"x": ()}])})
    assert caught.value.path == "$['odd key'].steps[1].x"
    assert str(caught.value).startswith("$[...].steps[1].x: ")


def test_other_zones_are_refused() -> None:
    class Mine(dt.tzinfo):
        def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
            return dt.timedelta(0)

    with pytest.raises(InvalidValueError, match="zone"):
        CODEC.plain(dt.datetime(2026, 1, 1, tzinfo=Mine()))


def test_zone_that_changed_keeps_the_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = dt.datetime(2026, 7, 1, 12, tzinfo=BERLIN)
    data = CODEC.encode(CODEC.plain(moment))
    moved = CODEC.decode(data.replace(b"Europe/Berlin", b"Europe/London"))
    assert moved == moment
    assert moved.utcoffset() == dt.timedelta(hours=2)
    missing = CODEC.decode(data.replace(b"Europe/Berlin", b"Europe/Nirgen"))
    assert missing == moment


# --- limits -----------------------------------------------------------------------------------


def test_cycles() -> None:
    ring: list[Any] = [1]
    ring.append({"again": ring})
    with pytest.raises(LimitExceededError, match="contains itself") as caught:
        CODEC.plain(ring)
    assert len(str(caught.value)) < 500


def test_depth() -> None:
    codec = make(depth=5)
    assert through(nested(5), codec) == nested(5)
    with pytest.raises(LimitExceededError) as caught:
        codec.plain({"a": nested(5)})
    assert caught.value.path == "$.a[0][0][0][0]"
    assert "5 levels" in str(caught.value)


def test_the_limit_comes_before_the_end_of_the_stack() -> None:
    with pytest.raises(LimitExceededError, match="400 levels"):
        make(depth=400).plain(nested(50_000))


def test_items() -> None:
    codec = make(items=10)
    assert through([[1] * 4, {"a": 1}, [1]], codec) == [[1] * 4, {"a": 1}, [1]]
    with pytest.raises(LimitExceededError, match="10 items") as caught:
        codec.plain([[1] * 4, {"a": 1}, [1, 2, 3, 4]])
    assert caught.value.path == "$[2]"


def test_size() -> None:
    codec = make(size=1000)
    for value in ("x" * 1001, b"x" * 1001, "é" * 501, 2**9000, "\ud800" * 400):
        with pytest.raises(LimitExceededError, match="1000 bytes"):
            codec.plain({"a": [value]})
    with pytest.raises(LimitExceededError, match="1000 bytes"):
        codec.encode(codec.plain([1.5] * 200))
    # One large text that is referred to often is as large as it would be written.
    with pytest.raises(LimitExceededError):
        codec.plain(["x" * 100] * 20)


def test_what_was_written_with_larger_limits_is_read() -> None:
    value = {"deep": [[[1]]], "many": list(range(50)), "long": "x" * 5000}
    data = CODEC.encode(CODEC.plain(value))
    small = make(depth=2, items=10, size=1000)
    assert small.decode(data) == small.plain_reader.decode(data) == value
    with pytest.raises(LimitExceededError, match=r"more items.*open the store with limits="):
        small.decode(BOMBS["empty arrays"])
    assert make(items=20 * MIB)._to_read.items == 20 * MIB


@given(values, st.integers(3, 30), st.integers(2, 8))
def test_what_may_be_written_may_be_read(value: Any, items: int, depth: int) -> None:
    codec = make(items=items, depth=depth)
    try:
        plain = codec.plain(value)
    except LimitExceededError:
        return
    assert same(codec.decode(codec.encode(plain)), value)


def array(count: int, content: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + content


def ext4(content: bytes) -> bytes:
    return b"\xc9" + len(content).to_bytes(4, "big") + b"\x04" + content


MIB = 1 << 20
BOMBS = {
    "empty arrays": array(16 * MIB, b"\x90" * (16 * MIB)),
    "arrays of arrays": array(16, array(MIB, b"\x90" * MIB) * 16),
    "empty maps": array(16 * MIB, b"\x80" * (16 * MIB)),
    "short texts": array(5 * MIB, b"\xa2ab" * (5 * MIB)),
    "a map": b"\xdf" + (4 * MIB).to_bytes(4, "big") + b"\x01\x90" * (4 * MIB),
    "in objects": array(
        64, ext4(b"\x93\xa4plan\x01" + array(300_000, b"\x90" * 300_000)) * 64
    ),
    "false length": array(0xFFFFFFFF, b"\x90" * (2 * MIB)),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((LimitExceededError, DamagedRecordError)):
            CODEC.decode(BOMBS[name])
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_bombs_in_small_data_are_bounded_by_depth() -> None:
    with pytest.raises((LimitExceededError, DamagedRecordError)):
        CODEC.decode(b"\x91" * 500_000 + b"\x90")
    inner = b"\x90"
    for _ in range(3000):
        inner = ext4(b"\x93\xa4plan\x01" + inner)
    with pytest.raises(HoldfastError):
        CODEC.decode(inner)


def test_large_data_is_read() -> None:
    value = [{"n": i, "text": "x" * 300, "big": 2**70, "blob": b"y" * 300} for i in range(3000)]
    value += [[1.5, 2**40, -5, -(2**20), None, True, "t" * 70_000, b"b" * 70_000, Plan("g", [])]]
    assert same(through(value), value)
    assert len(CODEC.encode(CODEC.plain(value))) > CODEC.limits.items


@given(st.binary(max_size=60))
@settings(max_examples=400)
@example(b"")
@example(b"\xc1")
@example(b"\xd4\x03\x00")
@example(b"\xd4\x04\x90")
@example(b"\x82\x90\x01\x90\x02")
def test_garbage_gives_our_errors(data: bytes) -> None:
    for codec in (CODEC, make(items=1, depth=3)):
        with contextlib.suppress(HoldfastError):
            codec.decode(data)


@given(values, st.data())
def test_damaged_bytes_give_our_errors(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(CODEC.encode(CODEC.plain(value)))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(HoldfastError):
        CODEC.decode(bytes(encoded))


def test_unknown_names_and_extensions() -> None:
    data = CODEC.encode(CODEC.plain(Plan("g", [])))
    with pytest.raises(UnknownTypeError, match=r"'plan'.*register\(YourClass, name='plan'"):
        Codec(Registry()).decode(data)
    with pytest.raises(NewerFormatError, match="extension 77"):
        CODEC.decode(b"\xd4\x4d\x00")


def test_speed_of_the_walk() -> None:
    """Told by its calls, of which there are 17 for each dict: they take the time, and are as many
    on every machine."""
    items = [{"role": "user", "content": f"hello {i}", "n": i, "ok": True} for i in range(1000)]
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        CODEC.plain(items)
    finally:
        sys.setprofile(before)
    assert calls < 40 * len(items)


# --- typed reads ------------------------------------------------------------------------------


class Model(BaseModel):
    goal: str
    step: int = 0


class Record(msgspec.Struct):
    goal: str
    steps: list[int] = []


def test_convert() -> None:
    assert convert({"goal": "g", "steps": [1]}, Plan, "it") == Plan("g", [1])
    assert convert({"goal": "g"}, Record, "it") == Record("g")
    assert convert({"goal": "g"}, Model, "it") == Model(goal="g")
    assert convert("b", Colour, "it") is Colour.BLUE
    assert convert([1, 2], tuple[int, int], "it") == (1, 2)
    assert convert({"a": 1}, dict[str, int], "it") == {"a": 1}
    plan = Plan("g", [])
    assert convert(plan, Plan, "it") is plan


@pytest.mark.parametrize(
    ("value", "kind", "path"),
    [
        ({"goal": "hush", "steps": "hush"}, Plan, "$.steps"),
        ({"goal": "hush", "steps": [1, "hush"]}, Record, "$.steps[1]"),
        ({"goal": "hush", "step": "hush"}, Model, "$.step"),
        ("hush", Colour, "$"),
        ("hush", int, "$"),
        ("hush", Model, "$"),
    ],
)
def test_convert_names_the_place_and_no_value(value: Any, kind: Any, path: str) -> None:
    with pytest.raises(InvalidValueError, match=kind.__name__) as caught:
        convert(value, kind, "agent:a: 'k'")
    assert caught.value.path == path
    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
