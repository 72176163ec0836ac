"""Objects of a graph's state come back as what they were, or are refused by path."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import functools
import ipaddress
import math
import re
import threading
import typing
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import langchain_core.messages as lc
import msgspec
import numpy as np
import pytest
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.errors import GraphInterrupt
from langgraph.store.base import Item, SearchItem
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr
from pydantic.v1 import BaseModel as OldModel

from holdfast import Typed
from holdfast.errors import (
    InvalidValueError,
    LimitExceededError,
    UnknownTypeError,
)
from holdfast.integrations.langgraph.types import MESSAGE, Types
from holdfast.seal.codec import Codec
from holdfast.seal.registry import Registry

CODEC = Codec(Registry())
HERE = __name__


def stored(value: Any, to: Types | None = None) -> Any:
    """The plain form of a value, as it is read from a store."""
    plain = (to or Types()).plain(value)
    return CODEC.plain_reader.decode(CODEC.encode(CODEC.plain(plain)))


def through(value: Any, to: Types | None = None) -> Any:
    to = to or Types()
    return to.build(stored(value, to))


# ---- classes of a user ---------------------------------------------------------------------


class Colour(enum.Enum):
    RED = (1, 2)
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    HI = "hi"


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Plan:
    goal: str
    steps: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True, frozen=True)
class Fixed:
    x: int
    y: float = 0.0


@dataclasses.dataclass(kw_only=True)
class Counted:
    given: int
    computed: int = dataclasses.field(init=False)
    calls: typing.ClassVar[int] = 0

    def __post_init__(self) -> None:
        type(self).calls += 1
        self.computed = self.given * 2

    @functools.cached_property
    def half(self) -> float:
        return self.given / 2


class Record(msgspec.Struct, frozen=True):
    a: int
    b: list[int] = []


class Open(msgspec.Struct, dict=True):
    a: int


class Point(NamedTuple):
    x: int
    y: Any = None


class Inner(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)
    name: str = Field(alias="theName")
    tags: list[str] = Field(default_factory=list)
    when: Any = None
    _seen: int = PrivateAttr(default=0)


class Model(BaseModel):
    inner: Inner | None = None
    plan: Plan | None = None
    any: Any = None
    ratio: float = 0.0


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    n: int


class Words(RootModel[list[str]]):
    pass


class Note(lc.HumanMessage):
    mood: str = "calm"
    score: float = 0.0


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Bag(dict[Any, Any]):
    pass


class Row(list[Any]):
    pass


class Failure(Exception):
    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"code {code}")
        self.code, self.where = code, where


def inner() -> Inner:
    made = Inner(theName="n", more=[1, (2,)])  # type: ignore[call-arg]
    made._seen = 7
    return made


def counted() -> Counted:
    made = Counted(given=3)
    assert made.half == 1.5
    return made


def nested_model() -> Model:
    return Model(inner=inner(), plan=Plan("g", [Fixed(1)]), any={(1, 2): {3}})


BERLIN = ZoneInfo("Europe/Berlin")
STRUCTURED = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", "U3")])
CALL = {"name": "search", "args": {"q": "x", "n": 1}, "id": "call", "type": "tool_call"}
KEPT: dict[str, Any] = {
    "plain": {"a": [1, 1.5, True, None, "x", b"y", "\ud800", 2**80], 7: {}},
    "human": lc.HumanMessage("hello", id="1"),
    "human with parts": lc.HumanMessage([{"type": "text", "text": "x"}, "y"], name="me"),
    "extra field": lc.HumanMessage("hello", mood="fine", tags=("a",)),
    "ai": lc.AIMessage(
        "x", id="2", tool_calls=[CALL], response_metadata={"model": "m"},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    ),
    "ai chunk": lc.AIMessageChunk("x", tool_call_chunks=[
        {"name": "a", "args": "{}", "id": "i", "index": 0, "type": "tool_call_chunk"}
    ]),
    "tool": lc.ToolMessage("x", tool_call_id="call", artifact={"k": (1, np.arange(3))}),
    "system": lc.SystemMessage("s"),
    "chat": lc.ChatMessage("c", role="judge"),
    "function": lc.FunctionMessage("f", name="fn"),
    "remove": lc.RemoveMessage(id="3"),
    "human chunk": lc.HumanMessageChunk("x"),
    "own message": Note("n", mood="wild", score=-0.0),
    "model": nested_model(),
    "model with private": inner(),
    "frozen model": Frozen(n=1),
    "root model": Words(["a"]),
    "dataclass": Plan("ship", [Plan("inner"), Fixed(1, -0.0)]),
    "computed dataclass": counted(),
    "struct": Record(1, [2]),
    "enum": [Colour.RED, Colour.BLUE, Level.LOW, Word.HI, Bits.A, Bits.A | Bits.B, Bits(0)],
    "named tuple": Point(1, Point(2)),
    "tuples": [(), (1,), ((1, [2]), "x")],
    "sets": [set(), {1, "a", (2, None)}, frozenset({frozenset({1})})],
    "deque": [deque([1, (2,)], 5), deque()],
    "bytearray": bytearray(b"\0x"),
    "complex": [1j, complex(-0.0, math.inf)],
    "decimal": [Decimal("1.10"), Decimal("-0"), Decimal("1E+30"), Decimal("Infinity")],
    "fraction": Fraction(-3, 7),
    "times": [
        dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
        dt.datetime(2026, 10, 25, 2, 30, fold=1),  # noqa: DTZ001
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.date(1, 1, 1),
        dt.time(1, 2, 3, 4, fold=1), dt.time(1, tzinfo=dt.UTC), dt.time(1, tzinfo=BERLIN),
        dt.timedelta(-1, 2, 3), dt.timezone(dt.timedelta(hours=1), "x"), dt.UTC, BERLIN,
    ],
    "uuid": [uuid.UUID(int=5), uuid.uuid1(), uuid.uuid4()],
    "paths": [Path("/a/b"), Path(), PurePosixPath("a"), PureWindowsPath("c:/x")],
    "addresses": [ipaddress.ip_address("::1%3"), ipaddress.ip_address("1.2.3.4"),
                  ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("fe80::1/64"),
                  ipaddress.ip_interface("1.2.3.4/8"), ipaddress.ip_network("fe80::/64")],
    "patterns": [re.compile("a+", re.I | re.X), re.compile(b"b"), re.compile("(?i)c")],
    "ranges": [slice(1, None, -1), slice(None, (1, 2)), range(3, 9, 2), ...],
    "numpy scalars": [np.float64(1.5), np.float32("nan"), np.int8(-3), np.bool_(True),
                      np.str_("a\0"), np.bytes_(b"b\0"), np.datetime64("2026-01-01", "ns"),
                      np.timedelta64(5, "s"), np.complex64(1j), np.longdouble(1) / 3,
                      np.array((1, (2, 3), "x"), STRUCTURED)[()]],
    "arrays": [np.arange(6).reshape(2, 3), np.zeros((0, 4), ">i2"), np.array(1.5),
               np.asfortranarray(np.ones((2, 3), np.float32)), np.array(["a", "bcd"]),
               np.zeros(3, STRUCTURED), np.array(["2026-01-01"], "M8[D]"), np.arange(9)[::3]],
    "interrupt": (Interrupt({"q": (1,)}, id="i"), Interrupt("x", id="j", response_schema={})),
    "send": [Send("node", {"x": (1,)}), Send("n", None, timeout=TimeoutPolicy(run_timeout=1.0))],
    "command": [Command(update={"a": {1}}, goto=Send("n", 1)), Command(resume=1, goto=("a",))],
    "overwrite": Overwrite([1, (2,)]),
    "delta": _DeltaSnapshot([lc.HumanMessage("x")]),
    "document": Document("text", metadata={"page": 1}, id="d"),
    "store items": [Item(value={"a": 1}, key="k", namespace=("n",),
                         created_at=dt.datetime.now(dt.UTC), updated_at=dt.datetime.now(dt.UTC)),
                    SearchItem(("n",), "k", {}, dt.datetime.now(dt.UTC),
                               dt.datetime.now(dt.UTC), 0.5)],
    "secret": SecretStr("hush"),
    "mappings": [OrderedDict(b=1, a=(2,)), Counter("aab"), defaultdict(list, a=[1]),
                 defaultdict(None, {1: 2})],
    "texts that are no Unicode for keys": [{"\ud800": {"\ud83d": 1}}, {"a": 1, "\udfff": 2}],
    "odd keys": {(1, 2): "t", None: 1, True: 2, Colour.RED: 3, Word.HI: 4, 1.5: 5, 2**70: 6,
                 "\ud800": 7, b"x": 8},
    "subclasses": [Text("t"), Number(3), Bag({(1,): 2, "a": Bag()}), Row([1, Row()])],
}  # fmt: skip


def parts_of(value: Any) -> Any:
    """What is compared of an object instead of the object, or None."""
    if isinstance(value, BaseModel):
        return [
            value.__dict__, value.__pydantic_extra__, value.__pydantic_private__,
            sorted(value.__pydantic_fields_set__), list(value.__dict__),
        ]  # fmt: skip
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    if isinstance(value, defaultdict):
        return [value.default_factory, dict(value)]
    if isinstance(value, deque):
        return [value.maxlen, list(value)]
    if isinstance(value, Send):
        return [value.node, value.arg, value.timeout]
    if isinstance(value, SearchItem):
        return [value.dict(), value.score]
    if isinstance(value, uuid.UUID):
        return [value.int, value.is_safe]
    if isinstance(value, (dt.datetime, dt.time)):
        return [value.replace(tzinfo=None).isoformat(), value.fold, value.tzinfo]
    return None


def same(a: Any, b: Any) -> bool:
    """Equal, with the same types all the way down; nan is nan, and 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    parts = parts_of(a)
    if parts is not None:
        return same(parts, parts_of(b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(list(x), list(y)) for x, y in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, np.generic):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, (float, complex, Decimal)):
        return repr(a) == repr(b)
    return bool(a == b)


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    value = KEPT[name]
    assert same(through(value), value)
    around = [value, {"k": (value,)}, Model(any=value), Plan("p", [value])]
    assert same(through(around), around)


def test_what_comes_back_can_be_used() -> None:
    array = through(np.arange(3))
    array[0] = 9
    assert through(PLAIN := {"a": [1]}) is not PLAIN
    made = through(inner())
    made.tags.append("x")
    made._seen += 1
    assert through(inner()).tags == []
    message = through(lc.AIMessage("x"))
    message.additional_kwargs["k"] = 1
    assert through(lc.AIMessage("x")).additional_kwargs == {}
    assert "id" not in stored(message).value
    message.id = "late"
    assert list(stored(message).value)[-1] == "id"


def test_nothing_is_shared() -> None:
    value = {"a": [1, {"b": []}], "m": lc.HumanMessage("x", additional_kwargs={"k": [1]})}
    plain = Types().plain(value)
    before = copy.deepcopy(plain)
    built = Types().build(plain)
    value["a"][1]["b"].append(1)  # type: ignore[index]
    value["m"].additional_kwargs["k"].append(2)  # type: ignore[attr-defined]
    built["a"].append(3)
    built["m"].additional_kwargs["k"].append(4)
    assert plain == before


def test_constructors_are_not_called() -> None:
    value = counted()
    calls = Counted.calls
    made = through(value)
    assert (made.computed, Counted.calls) == (6, calls)


def test_messages_are_compact() -> None:
    assert stored(lc.HumanMessage("hi", id="1")) == Typed(
        "HumanMessage", 1, {"content": "hi", "id": "1"}
    )
    assert list(stored(lc.AIMessage("hi", id="1", name="n")).value) == ["content", "name", "id"]


def test_equal_sets_have_equal_forms() -> None:
    one, other = set(range(0, 800, 8)), set(range(792, -8, -8))
    assert list(one) != list(other)
    assert Types().plain(one) == Types().plain(other)


def test_messages_may_be_replaced() -> None:
    kept = [lc.HumanMessage("a"), lc.AIMessage("b")]
    value = {"list": kept, "in": Model(any=kept[1]), "n": Note("c")}
    plain = Types().plain(value, lambda m: Typed(MESSAGE, 1, kept.index(m)) if m in kept else None)
    assert plain["list"] == [Typed(MESSAGE, 1, 0), Typed(MESSAGE, 1, 1)]
    assert plain["n"].name == f"{HERE}:Note"
    assert same(Types().build(plain, lambda ref: kept[ref.value]), value)
    with pytest.raises(UnknownTypeError, match="through the saver"):
        Types().build(plain)


def test_many_messages_at_once() -> None:
    value = [KEPT[name] for name in ("human", "ai", "tool", "own message", "extra field")] * 50
    build = Types().build
    assert same([build(message) for message in stored(value)], value)


# ---- exceptions ----------------------------------------------------------------------------


def test_exceptions() -> None:
    group = ExceptionGroup("many", [ValueError(1), KeyError("k")])
    for error in (
        ValueError("x", (1,)), KeyError("k"), ConnectionError("I'm not good"), OSError(2, "gone"),
        OSError(2, "gone", "file.txt"), OSError(18, "no", "from", None, "to"), StopIteration(4),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), group, SystemExit(3),
        KeyboardInterrupt(), ImportError("no", name="module", path="path"),
        SyntaxError("s", ("f", 1, 2, "text", 1, 3)), GraphInterrupt([Interrupt("q", id="i")]),
    ):  # fmt: skip
        for types in (Types(), Types(strict=True)):
            made = through({"e": error}, types)["e"]
            assert (type(made), repr(made), str(made)) == (type(error), repr(error), str(error))
            parts = ("filename", "filename2", "name", "path", "value", "end_offset")
            assert [getattr(made, n, 0) for n in parts] == [getattr(error, n, 0) for n in parts]
    failed = Failure(7, where="here")
    failed.add_note("look")
    failed.__cause__ = OSError(2, "gone", "file.txt")
    made = through(failed)
    assert (type(made), made.code, made.where, str(made)) == (Failure, 7, "here", "code 7")
    assert made.__notes__ == ["look"]
    assert (type(made.__cause__), made.__cause__.filename) == (FileNotFoundError, "file.txt")


def test_exceptions_keep_to_the_rule_of_types() -> None:
    class Local(Exception):
        __slots__ = ("own",)

    local = Local("x")
    local.own = 5
    assert through(local).own == 5
    strict = Types(strict=True)
    with pytest.raises(
        InvalidValueError, match=r"strict is on; add saver.types.register\(Failure\)"
    ):
        strict.plain(Failure(1, where="x"))
    with pytest.raises(UnknownTypeError, match="strict is on"):
        strict.build(stored(Failure(1, where="x")))
    strict.register(Failure)
    assert through(Failure(1, where="x"), strict).where == "x"
    with pytest.raises(InvalidValueError, match=r"^\$\.args\[0\]: a _thread.lock"):
        Types().plain(ValueError(threading.Lock()))
    with pytest.raises(Exception, match="validation") as caught:
        Frozen(n="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r"store its text: str\(error\)"):
        Types().plain(caught.value)


# ---- refused -------------------------------------------------------------------------------


class Closing:
    def __init__(self) -> None:
        self.handle = 1


@dataclasses.dataclass
class WithDel:
    n: int

    def __del__(self) -> None: ...


class OldStyle(OldModel):
    n: int = 1


def local_class() -> Any:
    @dataclasses.dataclass
    class Local:
        n: int

    return Local(1)


def with_attribute(value: Any) -> Any:
    value.surplus = 1
    return value


REFUSED: dict[str, tuple[Any, str]] = {
    "function": (lambda: 1, "function would not come back"),
    "class": (Plan, "type would not come back"),
    "lock": (threading.Lock(), "lock would not come back as it was.*keep it out of the state"),
    "object": (Closing(), "Closing would not come back as it was.*dataclasses"),
    "with __del__": (WithDel(1), "__del__"),
    "pydantic.v1": (OldStyle(), "models of pydantic 2"),
    "dataclass with more": (with_attribute(Plan("g")), "'surplus'.*declare it as a field"),
    "struct with more": (with_attribute(Open(1)), "'surplus'.*dataclass"),
    "dataclass with less": (object.__new__(Plan), "lacks a part.*set all fields"),
    "subclass with more": (with_attribute(Bag()), "'surplus'.*dataclass"),
    "object array": (np.array([{}]), "Python objects"),
    "masked array": (np.ma.array([1]), "MaskedArray would not come back"),
    "function of defaults": (defaultdict(lambda: 1), "builtin type such as list"),
    "odd zone": (dt.datetime(2026, 1, 1, tzinfo=type("Z", (dt.tzinfo,), {
        "utcoffset": lambda self, _: dt.timedelta(0)})()), "zone that cannot be kept"),
    "plain form": (Typed("x", 1, 2), "Typed would not come back"),
    "memoryview": (memoryview(b"x"), "memoryview would not come back"),
    "generator": ((n for n in [1]), "generator would not come back"),
    "module": (re, "module would not come back"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_path(name: str) -> None:
    value, text = REFUSED[name]
    with pytest.raises(InvalidValueError, match=text) as caught:
        Types().plain({"a": [0, Model(any=(value,))]})
    assert caught.value.path == "$.a[1].any[0]"
    with pytest.raises(InvalidValueError):
        Types().plain({(1,): value})


def test_private_and_extra_parts_are_refused_by_path() -> None:
    made = inner()
    made._seen = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(InvalidValueError, match=r"private\._seen.*lock"):
        Types().plain([made])
    with pytest.raises(InvalidValueError, match=r"\$\.artifact"):
        Types().plain(lc.ToolMessage("x", tool_call_id="c", artifact=lambda: 1))


def test_cycles_are_refused() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(LimitExceededError, match="contains itself"):
        Types().plain(loop)
    plan = Plan("p")
    plan.steps.append(plan)
    with pytest.raises(LimitExceededError):
        Types().plain(plan)


def test_a_class_made_inside_a_function_is_found_here_and_asked_for_elsewhere() -> None:
    value = local_class()
    types = Types()
    plain = types.plain(value)
    assert type(types.build(plain)) is type(value)
    with pytest.raises(UnknownTypeError, match="register"):
        Types().build(plain)
    with pytest.raises(InvalidValueError, match=r"saver\.types\.register\(Local\)"):
        Types(strict=True).plain(value)
