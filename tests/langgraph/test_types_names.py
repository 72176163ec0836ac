"""Names in stored data lead to data classes that are loaded, and to nothing else."""

from __future__ import annotations

import builtins
import dataclasses
import sys
import types
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import langchain_core.messages as lc
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr
from test_types import KEPT, Bits, Colour, Fixed, Model, Plan, Point, Record, same, stored

from holdfast import Typed
from holdfast.errors import InvalidInputError, InvalidValueError, UnknownTypeError
from holdfast.integrations.langgraph.types import SHORT, Types


@pytest.mark.parametrize("name", [
    "os:system", "subprocess:Popen", "builtins:eval", "builtins:object", "builtins:type",
    "threading:Thread", "os:path.join", "os:environ", "sys:modules", "os:", ":", "os",
    "test_types:Closing", "test_types:WithDel", "test_types:KEPT", "test_types:Plan.__init__",
    "test_types:Plan.__class__", "test_types:inner", "logging:FileHandler", "io:FileIO",
    "langchain_core.runnables.base:RunnableLambda", "abc:ABC", "typing:Any",
    "tempfile:SpooledTemporaryFile",
])  # fmt: skip
@pytest.mark.parametrize(
    "fields", [["true"], {"args": "true"}, "true"], ids=["list", "dict", "text"]
)
def test_crafted_names_build_nothing(name: str, fields: Any) -> None:
    with pytest.raises((UnknownTypeError, InvalidValueError)):
        Types().build([Typed(name, 1, fields)])


@pytest.mark.parametrize("name", ["antigravity:x", "this:s", "lib2to3.main:main", "turtle:Turtle"])
def test_nothing_is_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = name.partition(":")[0]
    assert module not in sys.modules
    real = builtins.__import__

    def refuse(name: str, *args: Any, **more: Any) -> Any:
        assert not name.startswith(module)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UnknownTypeError, match=f"{module}.*import its module before"):
        Types().build(Typed(name, 1, {}))
    assert module not in sys.modules


def test_namespaces_are_not_run() -> None:
    """A module or class may compute what it is asked for; it is not asked."""
    asked: list[str] = []

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            raise AssertionError

    sys.modules["lazy_one"] = Lazy("lazy_one")
    sys.modules["lazy_two"] = two = types.ModuleType("lazy_two")
    two.__getattr__ = asked.append  # type: ignore[method-assign,assignment]
    try:
        for name in ("lazy_one:Thing", "lazy_two:Thing"):
            with pytest.raises(UnknownTypeError):
                Types().build(Typed(name, 1, {}))
    finally:
        del sys.modules["lazy_one"], sys.modules["lazy_two"]
    assert asked == []


@pytest.mark.parametrize("plain", [
    Typed("set", 1, [[]]), Typed("ndarray", 1, ["|O", [1], b"12345678"]),
    Typed("ndarray", 1, ["<i4", [10**9], b"1234"]), Typed("ndarray", 1, ["<i4", [-1], b""]),
    Typed("range", 1, "x"), Typed("pattern", 1, ["(", 0]), Typed("tuple", 1, 5),
    Typed("defaultdict", 1, ["exec", {}]), Typed("uuid", 1, b"1"), Typed("dict", 1, [[[], 1]]),
    Typed("builtins:ValueError", 1, []),
    Typed("builtins:OSError", 1, {"args": [], "slots": {"": 1}}),
    Typed("datetime", 1, "yesterday"), Typed("zoneinfo", 1, "../x"),
    Typed("HumanMessage", 1, {"nope": 1}), Typed("HumanMessage", 1, 5),
    Typed("HumanMessage", 1, {"content": "x", "$": 5}), Typed("HumanMessage", 2, {"content": ""}),
    Typed("test_types:Plan", 1, {"goal": 1, "x": 2}), Typed("test_types:Plan", 1, [1]),
    Typed("test_types:Colour", 1, "GREEN"), Typed("test_types:Point", 1, {"x": 1, "z": 2}),
    Typed("test_types:Text", 1, 5), Typed("test_types:Record", 1, {}),
    Typed("test_types:Frozen", 1, {"n": 1, "$": {"absent": ["x"]}}),
], ids=str)  # fmt: skip
def test_crafted_data_is_refused(plain: Any) -> None:
    with pytest.raises(InvalidValueError, match="cannot be built"):
        Types().build([plain])


def test_paths_of_the_other_platform_are_pure() -> None:
    here = isinstance(Path(), PosixPath)
    name, other = ("WindowsPath", PureWindowsPath) if here else ("PosixPath", PurePosixPath)
    made = Types().build(Typed(name, 1, "a/b"))
    assert made == other("a/b")


def test_a_later_form_is_not_guessed() -> None:
    with pytest.raises(UnknownTypeError, match="update holdfast"):
        Types().build(Typed("tuple", 2, []))


def test_short_names_lead_somewhere() -> None:
    for name, long in SHORT.items():
        assert Types().named(name).name == name, long


# ---- strict --------------------------------------------------------------------------------


def test_strict_takes_registered_classes_only() -> None:
    strict = Types(strict=True)
    for name in ("human", "ai", "tuples", "arrays", "interrupt", "send", "command", "document"):
        assert same(strict.build(stored(KEPT[name], strict)), KEPT[name])
    with pytest.raises(InvalidValueError, match=r"\$\.p: .*saver\.types\.register\(Plan\)"):
        strict.plain({"p": Plan("x")})
    with pytest.raises(UnknownTypeError, match=r"register\(Plan\)"):
        strict.build(stored(Plan("x")))
    strict.register(Plan)
    assert strict.build(stored(Plan("x"))) == Plan("x")
    with pytest.raises(InvalidValueError):
        strict.plain(Plan("x", [Colour.RED]))


# ---- classes that change -------------------------------------------------------------------


def test_a_local_class_is_registered() -> None:
    @dataclasses.dataclass
    class Local:
        n: int

    known = Types()
    assert known.register(Local) is Local
    assert known.build(stored(Local(1), known)) == Local(1)
    decorated = Types()

    @decorated.register(name="job", version=3)
    class Job(BaseModel):
        n: int

    assert stored(Job(n=1), decorated) == Typed("job", 3, {"n": 1})


def test_a_renamed_class() -> None:
    @dataclasses.dataclass
    class New:
        goal: str
        steps: list[Any]

    old = stored(Plan("x", [1]))
    for name in (old.name, "gone.module:Plan"):
        known = Types()
        known.register(New, also=[name])
        assert known.build(Typed(name, 1, old.value)) == New("x", [1])
    with pytest.raises(UnknownTypeError, match=r"register\(TheClass, also=\['gone.module:Plan'\]"):
        Types().build(Typed("gone.module:Plan", 1, {}))
    with pytest.raises(UnknownTypeError, match="no such class is loaded or registered here"):
        Types().build(Typed("test_types:Gone", 1, {}))


def gained() -> list[Any]:
    @dataclasses.dataclass(slots=True, frozen=True)
    class Data:
        a: int
        b: list[int] = dataclasses.field(default_factory=list)
        c: str = "c"

    class Shape(BaseModel):
        a: int
        b: list[int] = []
        c: str = "c"
        _d: int = PrivateAttr(default=4)

    class Struct(msgspec.Struct):
        a: int
        b: list[int] = []
        c: str = "c"

    class Tup(NamedTuple):
        a: int
        b: Any = ()
        c: str = "c"

    class Said(lc.HumanMessage):
        a: int = 0
        b: list[int] = []  # noqa: RUF012
        c: str = "c"

    return [Data, Shape, Struct, Tup, Said]


@pytest.mark.parametrize("index", range(5))
def test_a_gained_field_has_its_default(index: int) -> None:
    cls = gained()[index]
    known = Types()
    known.register(cls, name="thing")
    said = {"content": "x"} if index == 4 else {}
    made = known.build([Typed("thing", 1, {"a": 1, **said})] * 2)
    assert (made[0].a, list(made[0].b), made[0].c) == (1, [], "c")
    assert made[0].b is not made[1].b or index == 3
    assert known.build(known.plain(made)) == made


def test_a_gained_field_without_a_default_needs_an_upgrade() -> None:
    @dataclasses.dataclass
    class Data:
        a: int
        must: str

    known = Types()
    known.register(Data, name="thing")
    with pytest.raises(InvalidValueError, match=r"'must' is not stored and .*upgrade"):
        known.build(Typed("thing", 1, {"a": 1}))


def test_upgrade() -> None:
    class Shape(BaseModel):
        total: int
        _x: int = 0

    seen: list[Any] = []

    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        seen.append((version, dict(fields)))
        return {"total": fields["a"] + fields["b"]}

    known = Types()
    known.register(Shape, name="shape", version=3, upgrade=upgrade)
    odd = {"set": ["a"], "private": {"_x": 5}}
    made = known.build(Typed("shape", 1, {"a": 1, "b": 2, "$": odd}))
    assert (made.total, made._x, made.__pydantic_fields_set__) == (3, 5, set())
    assert seen == [(1, {"a": 1, "b": 2})]
    assert known.build(known.plain(Shape(total=9))) == Shape(total=9)
    assert len(seen) == 1
    with pytest.raises(InvalidValueError, match="update the program"):
        known.build(Typed("shape", 4, {}))


def test_a_class_made_anew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Types()
    plain = stored(Plan("x"), known)
    again = dataclasses.make_dataclass("Plan", ["goal", "steps"])
    again.__module__ = "test_types"
    monkeypatch.setattr(sys.modules["test_types"], "Plan", again)
    assert type(known.build(plain)) is again


@pytest.mark.parametrize(("cls", "name", "text"), [
    (tuple, None, "need not be registered"), (dict, None, "need not"), (Plan, "set", "another"),
    (Plan, "HumanMessage", "another"), (Plan, "m", "another"), (Plan("x"), "x", "takes a class"),
    (object, None, "cannot be kept"), (Plan, "", "1 to 200"), (Types, None, "cannot be kept"),
])  # fmt: skip
def test_what_cannot_be_registered(cls: Any, name: str | None, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        Types().register(cls, name=name)


# ---- mixtures ------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=()), max_size=5)
atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=5),
    st.complex_numbers(), st.decimals(allow_nan=False), st.fractions(), st.uuids(), st.dates(),
    st.datetimes(), st.times(), st.timedeltas(), st.sampled_from([*Colour, Bits.A | Bits.B]),
    st.builds(Fixed, st.integers(), st.floats()), st.sampled_from([..., range(3)]),
)  # fmt: skip
keys = st.one_of(texts, st.integers(), st.booleans(), st.none(), st.tuples(texts, st.integers()))
mixtures = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.builds(Plan, texts, st.lists(inner, max_size=3)),
        st.builds(Point, st.integers(), inner),
        st.builds(lambda v: Model(any=v), inner),
        st.builds(lambda t, v: lc.ToolMessage(t, tool_call_id=t, artifact=v), texts, inner),
        st.builds(Record, st.integers(), st.lists(st.integers(), max_size=3)),
    ),
    max_leaves=15,
)


@given(mixtures)
@settings(max_examples=150, deadline=None)
def test_mixtures(value: Any) -> None:
    assert same(Types().build(stored(value)), value)
