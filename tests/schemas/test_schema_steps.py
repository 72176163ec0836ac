"""Transforms, and what one version of a schema may be after another."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import sync
from holdfast.errors import InvalidInputError, InvalidSchemaError, TransformError
from holdfast.sync.schemas import (
    Convert,
    Copy,
    Custom,
    Default,
    Flag,
    ListOf,
    Mapping,
    Merge,
    Migrations,
    Move,
    Number,
    Remove,
    Schema,
    Split,
    Step,
    Text,
    check_migration,
    transform,
)


@transform("test: upper")
def upper(value: dict[str, Any]) -> Any:
    return {name: one.upper() for name, one in value.items()}


@transform("test: nothing")
def nothing(value: dict[str, Any]) -> Any:
    return None


@pytest.mark.spec("L88", "L89", "L90", "X45")
@pytest.mark.parametrize(
    ("one", "before", "after"),
    [
        (Copy("lang", "preferences.language"), {"lang": "de"},
         {"lang": "de", "preferences": {"language": "de"}}),
        (Copy("a.b", "c"), {"a": {"b": [1]}}, {"a": {"b": [1]}, "c": [1]}),
        (Move("a", "b.c.d"), {"a": 1, "b": {"x": 2}}, {"b": {"x": 2, "c": {"d": 1}}}),
        (Convert("a", "parse_int"), {"a": "42"}, {"a": 42}),
        (Convert("a.b", "parse_float"), {"a": {"b": "1.5"}}, {"a": {"b": 1.5}}),
        (Convert("a", "to_string"), {"a": True}, {"a": "true"}),
        (Convert("a", "to_string"), {"a": None}, {"a": "null"}),
        (Convert("a", "to_string"), {"a": 1.5}, {"a": "1.5"}),
        (Default("a.b", [1]), {}, {"a": {"b": [1]}}),
        (Default("a", 1), {"a": None}, {"a": None}),
        (Remove("a.b"), {"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}),
        (Remove("a.b.c"), {"a": 1}, {"a": 1}),
        (Split("a", "b"), {"a": "x, y,z"}, {"a": "x, y,z", "b": ["x", "y", "z"]}),
        (Split("a", ["b.c", "d"]), {"a": "x,y"}, {"a": "x,y", "b": {"c": "x"}, "d": "y"}),
        (Merge(["a", "b"], "c", "concat_strings"), {"a": "x", "b": "y"},
         {"a": "x", "b": "y", "c": "x y"}),
        (Merge(["a", "b.x"], "c", "sum_numbers"), {"a": 1, "b": {"x": 2.5}},
         {"a": 1, "b": {"x": 2.5}, "c": 3.5}),
        (Merge(["a", "b"], "a", "first_non_null"), {"a": None, "b": 0}, {"a": 0, "b": 0}),
        (Custom("test: upper"), {"a": "x"}, {"a": "X"}),
        (Convert("a", "parse_float"), {"a": 2**60}, {"a": 2.0**60}),
        (Merge(["a", "b"], "c", "first_non_null"), {"d": 1}, {"d": 1}),
        (Merge(["a", "b"], "c", "concat_strings"), {"a": None}, {"a": None}),
        (Merge(["a", "b"], "c", "sum_numbers"), {}, {}),
        (Copy("a", "b"), {}, {}),
        (Move("a.b", "c"), {"a": 1}, {"a": 1}),
        (Convert("a.b", "parse_int"), {"a": {}}, {"a": {}}),
        (Split("a", ["b.c", "d"]), {"d": 1}, {"d": 1}),
    ],
)  # fmt: skip
def test_transforms(one: Any, before: dict[str, Any], after: dict[str, Any]) -> None:
    given = copy.deepcopy(before)
    assert Step(1, 2, [one]).apply(given) == after
    assert given == before, "what is given is not touched"
    step = Step(1, 2, [one])
    assert msgspec.convert(msgspec.to_builtins(step), Step) == step


@pytest.mark.spec("L89", "X45")
@pytest.mark.parametrize(
    ("one", "value", "said"),
    [
        (Copy("a", "b.c"), {"a": 1, "b": 2}, "leads through b"),
        (Convert("a", "parse_int"), {"a": "x"}, "cannot be made int"),
        (Convert("a", "parse_int"), {"a": float("inf")}, "cannot be made int"),
        (Convert("a", "parse_float"), {"a": True}, "cannot be made float"),
        (Convert("a", "parse_float"), {"a": 2**60 + 1}, "cannot be made float without rounding it"),
        (Convert("a", "parse_float"), {"a": str(2**60 + 1)}, "without rounding it"),
        (Convert("a", "to_string"), {"a": []}, "become text"),
        (Default("a.b", 1), {"a": 1}, "leads through a"),
        (Split("a", "b"), {"a": 1}, "no text"),
        (Split("a", ["b", "c"]), {"a": "x"}, "has 1 parts, not 2"),
        (Merge(["a", "b"], "c", "concat_strings"), {"a": "x", "b": 1}, "not all texts"),
        (Merge(["a", "b"], "c", "sum_numbers"), {"a": 1, "b": True}, "not all numbers"),
        (Custom("test: upper"), {"a": 1}, "failed: AttributeError"),
        (Custom("test: nothing"), {"a": 1}, "gave no mapping"),
        (Custom("test: not there"), {"a": 1}, "import the module"),
    ],
)
def test_values_that_do_not_fit_are_told(one: Any, value: Any, said: str) -> None:
    with pytest.raises(TransformError, match=said):
        Step(1, 2, [one]).apply(value)


def said(*transforms: dict[str, Any]) -> Schema:
    step = {"from": 1, "to": 2, "do": transforms}
    return Schema.of_document({"name": "a", "version": 2, "document": {}, "steps": [step]})


def test_steps_that_cannot_be_are_refused() -> None:
    async def later(value: dict[str, Any]) -> dict[str, Any]:
        return value

    with pytest.raises(InvalidInputError, match="async def"):
        transform("test: later")(later)
    assert said({"transform": "Remove", "field": "a"}).steps == (Step(1, 2, [Remove("a")]),)
    for make in (
        lambda: Step(1, 2, [Convert("a", "parse_date")]),  # type: ignore[arg-type]
        lambda: Step(1, 2, [Merge(["a"], "b", "average")]),  # type: ignore[arg-type]
        lambda: Step(1, 2, [Split("a", "b", "by_tabs")]),  # type: ignore[arg-type]
        lambda: Step(1, 2, [Copy("a", 7)]),  # type: ignore[arg-type]
        lambda: Step(1, 2, [Default("a", object())]),
        lambda: Step(2, 2),
        lambda: Step(0, 1),
        lambda: Step(1, 2, ["copy"]),  # type: ignore[list-item]
        lambda: said({"transform": "Explode"}),
        lambda: said({"transform": "Copy", "from": "a"}),
    ):
        with pytest.raises(InvalidSchemaError):
            make()
    with pytest.raises(TransformError, match="only mappings"):
        Step(1, 2).apply([1])


# ---- a plain model: a value is a mapping from whole paths to leaves ---------------------------


names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=2).map(".".join)
leaves = st.one_of(st.integers(-9, 9), st.sampled_from(["1", "x", "x,y"]), st.none())
values = st.dictionaries(names, st.one_of(leaves, st.dictionaries(names, leaves, max_size=2)))
some = st.one_of(
    st.builds(Copy, paths, paths),
    st.builds(Move, paths, paths),
    st.builds(Convert, paths, st.sampled_from(["parse_int", "parse_float", "to_string"])),
    st.builds(Default, paths, leaves),
    st.builds(Remove, paths),
    st.builds(Merge, st.tuples(paths, paths), paths, st.just("first_non_null")),
)


def flat(value: Any, before: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict):
        return {before: value}
    made: dict[tuple[str, ...], Any] = {before: dict}
    for name, one in value.items():
        made |= flat(one, (*before, name))
    return made


def modelled(known: dict[tuple[str, ...], Any], one: Any) -> None:
    def at(path: str) -> tuple[str, ...]:
        return tuple(path.split("."))

    def part(path: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
        return {key[len(path) :]: v for key, v in known.items() if key[: len(path)] == path}

    def drop(path: tuple[str, ...]) -> None:
        for key in [key for key in known if key[: len(path)] == path]:
            del known[key]

    def put(path: tuple[str, ...], what: dict[tuple[str, ...], Any]) -> None:
        for size in range(len(path)):
            if known.setdefault(path[:size], dict) is not dict:
                raise LookupError
        drop(path)
        known.update({path + key: v for key, v in what.items()})

    if isinstance(one, Copy):  # and Move
        found = part(at(one.from_field))
        if not found:
            return
        if isinstance(one, Move):
            drop(at(one.from_field))
        put(at(one.to_field), found)
    elif isinstance(one, Convert):
        found = part(at(one.field))
        if not found:
            return
        leaf = found.get((), dict)
        if leaf is dict or (leaf is None and one.how != "to_string"):
            raise LookupError
        if one.how == "to_string":
            put(at(one.field), {(): "null" if leaf is None else str(leaf)})
        elif str(leaf).lstrip("-").isdigit():
            put(at(one.field), {(): int(leaf) if one.how == "parse_int" else float(leaf)})
        else:
            raise LookupError
    elif isinstance(one, Default):
        if not part(at(one.field)):
            put(at(one.field), {(): one.value})
    elif isinstance(one, Remove):
        drop(at(one.field))
    else:
        found_some = [part(at(path)) for path in one.fields]
        there = [some for some in found_some if some.get(()) is not None]
        if there:
            put(at(one.into), there[0])


@pytest.mark.spec("X45", "X49")
@given(values, st.lists(some, min_size=1, max_size=5))
def test_migration_must_support_dotted_paths_as_a_plain_model_does(
    value: dict[str, Any], done: list[Any]
) -> None:
    known = flat(value)
    failed = False
    try:
        for one in done:
            modelled(known, one)
    except LookupError:
        failed = True
    if failed:
        with pytest.raises(TransformError):
            Step(1, 2, done).apply(value)
    else:
        assert flat(Step(1, 2, done).apply(value)) == known


# ---- compatibility ----------------------------------------------------------------------------


BASE = {"name": Text(max_length=10), "age": Number(optional=True)}


def schema(version: int, fields: dict[str, Any], **more: Any) -> Schema:
    return Schema("p", version, prefix="p/", fields=fields, **more)


GONE = [Remove("age"), Remove("more")]
WIDER = {**BASE, "name": Text(max_length=20)}
NARROWER = {**BASE, "name": Text(max_length=5)}
OTHER = {"title": Text()}


@pytest.mark.spec("L86", "L87")
@pytest.mark.parametrize(
    ("level", "accepted", "refused", "said"),
    [
        ("backward", WIDER, NARROWER, "name: maxLength is 5 now"),
        ("forward", NARROWER, WIDER, "name: maxLength is 10 now.*older readers"),
        ("full", BASE, WIDER, "older readers"),
        ("full", BASE, NARROWER, "maxLength is 5 now"),
        ("none", OTHER, None, ""),
    ],
)
def test_what_may_follow(
    store: sync.Store, level: str, accepted: Any, refused: Any, said: str
) -> None:
    state = store.agent("1")
    state.declare(schema(1, BASE, compatible=level))
    if refused is not None:
        with pytest.raises(InvalidSchemaError, match=f"not {level} compatible.*{said}"):
            state.declare(schema(2, refused))
        assert [one.version for one in state.declared() if hasattr(one, "version")] == [1]
    state.declare(schema(2, accepted, compatible=level))
    with pytest.raises(InvalidSchemaError, match="version 2 of p is declared"):
        state.declare(schema(1, {**BASE, "more": Flag()}))


@pytest.mark.spec("L86", "L87")
@pytest.mark.parametrize(
    ("newer", "path"),
    [
        ({**BASE, "more": Text()}, "more: is required"),
        ({"name": Text(max_length=10), "age": Number()}, "age: is required, and was optional"),
        ({"name": Text(max_length=10)}, "age: is no field of it any more"),
        ({**BASE, "name": Flag()}, "name: its type is boolean now"),
        ({**BASE, "name": Text(max_length=10, choices=["a"])}, "name: fewer choices"),
        ({**BASE, "name": Text(max_length=10, min_length=1)}, "name: minLength is 1"),
    ],
)
def test_a_break_is_named_by_its_field(newer: Any, path: str) -> None:
    report = check_migration(schema(1, BASE).document, schema(2, newer).document, [], "strict")
    assert any(one.startswith(path) for one in report.errors), report.errors
    assert not report.is_valid
    assert report.risk == "critical"


@pytest.mark.spec("L86", "L89")
@pytest.mark.parametrize(
    ("kind", "fits"),
    [({"type": "string"}, True), ({"type": ["string", "null"]}, False), ({}, False)],
)
def test_what_a_merge_makes_is_sure_where_one_of_its_fields_is(kind: Any, fits: bool) -> None:
    old = {"type": "object", "properties": {"a": kind, "b": {}}, "required": ["a"]}
    new = {"type": "object", "required": ["c"]}
    done = [Step(1, 2, [Merge(["a", "b"], "c", "first_non_null")])]
    new["properties"] = {"c": {}}
    assert check_migration(old, new, done, "strict").is_valid is fits
    assert not check_migration({**old, "required": []}, new, done, "strict").is_valid
    sure = [Step(1, 2, [Default("b", 1), *done[0].transformations])]
    assert check_migration({**old, "required": []}, new, sure, "strict").is_valid


@pytest.mark.spec("L86")
def test_parts_of_parts_lists_and_classes_are_compared() -> None:
    def broken(old: Any, new: Any) -> list[str]:
        documents = [Schema("p", **{k: v}).document for k, v in (old, new)]
        return list(check_migration(*documents, [], "strict").errors)

    inner = {"in": Mapping(required={"a": Text()}, optional={"b": Text()})}
    assert broken(("fields", inner), ("fields", {"in": Mapping(required={"a": Text()})})) == [
        "in.b: is no field of it any more"
    ]
    texts, numbers = {"l": ListOf(Text())}, {"l": ListOf(Number())}
    assert broken(("fields", texts), ("fields", numbers)) == [
        "l[]: its type is integer or number now"
    ]

    @dataclasses.dataclass
    class Old:
        name: str

    @dataclasses.dataclass
    class New:
        name: int

    assert broken(("of", Old), ("of", New)) == ["name: its type is integer now"]
    opened = {"type": "object", "properties": {"name": {"type": "string"}}}
    closed = {**opened, "additionalProperties": False}
    assert broken(("document", opened), ("document", closed)) == [
        "the value: other fields are refused now"
    ]
    for wide, narrow, said in (
        ({"type": "array"}, {"type": "array", "maxItems": 3}, "maxItems is 3 now"),
        ({}, {"type": "string"}, "its type is string now"),
        ({}, {"pattern": "^a"}, "pattern is ^a now"),
        ({}, {"format": "date-time"}, "format is date-time now"),
        ({}, {"uniqueItems": True}, "uniqueItems is True now"),
        ({"exclusiveMinimum": 1}, {"exclusiveMinimum": 2}, "exclusiveMinimum is 2 now"),
        ({"maxProperties": 3}, {"maxProperties": 2}, "maxProperties is 2 now"),
    ):
        assert broken(("document", wide), ("document", narrow)) == [f"the value: {said}"]
        assert broken(("document", narrow), ("document", wide)) == []
    tree = {"type": "object", "properties": {"in": {"$ref": "#"}}}
    assert broken(("document", tree), ("document", tree)) == []


@pytest.mark.spec("L86", "L88")
def test_steps_make_up_for_a_break_or_cause_one(store: sync.Store) -> None:
    state = store.agent("1")
    state.declare(schema(1, BASE))
    steps = [Step(1, 2, [Default("more", "")])]
    for wrong, said in (
        ([Step(1, 2, [Remove("name")])], "name: is required"),
        ([Step(1, 2, [Default("name", ""), Remove("name")])], "name: is required"),
        ([Step(1, 2, [Copy("name", "nowhere")])], "nowhere: is no field"),
        ([Step(1, 2, [Remove("name"), Copy("age", "name")])], "name: is required, and was opt"),
        ([Step(2, 3, [Default("more", "")])], "no step from version 1 towards 3"),
    ):
        version = wrong[0].to_version
        with pytest.raises(InvalidSchemaError, match=said):
            state.declare(schema(version, BASE, steps=wrong))
    with pytest.raises(InvalidSchemaError, match="more: is required"):
        state.declare(schema(2, {**BASE, "more": Text()}))
    state.declare(schema(2, {**BASE, "more": Text()}, steps=steps))
    inside = {"in": Mapping(required={"name": Text()})}
    moved = schema(3, inside, steps=[Step(2, 3, [Move("name", "in.name"), *GONE])])
    state.declare(moved)
    whole = [*moved.steps, Step(3, 4, [Move("in", "out")])]
    state.declare(schema(4, {"out": inside["in"]}, steps=whole))


@pytest.mark.spec("L86", "L96")
def test_what_is_optional_may_be_moved_where_it_need_not_be(store: sync.Store) -> None:
    state = store.agent("1")
    old = schema(1, BASE)
    state.declare(old)
    state.set("p/1", {"name": "x"})
    state.set("p/2", {"name": "x", "age": 2})
    move, years = Move("age", "in.years"), {"years": Number()}
    for done, inside, said in (
        ([move], Mapping(optional=years), "in: is required, and was optional"),
        ([Default("in", {}), move], Mapping(years), "in.years: is required, and was optional"),
        ([move, Default("in.years", 0)], Mapping(years), ""),
    ):
        steps = [Step(1, 2, done)]
        newer = schema(2, {"name": BASE["name"], "in": inside}, steps=steps, auto_migrate=True)
        problems = Migrations(store).validate(old, newer).errors
        assert problems == ((said,) if said else ())
        if said:
            with pytest.raises(InvalidSchemaError, match=said):
                state.declare(newer)
    state.declare(newer)
    led = [("p/1", {"name": "x", "in": {"years": 0}}), ("p/2", {"name": "x", "in": {"years": 2}})]
    assert state.items("p/") == led
    assert Migrations(store).run("*", "p")[0].status == "completed"


# ---- validation -------------------------------------------------------------------------------


@pytest.mark.spec("L95", "L96", "X45")
@pytest.mark.parametrize(
    ("level", "accepted", "only_here"),
    [
        ("none", [Copy("nowhere", "age")], None),
        ("basic", [Copy("age", "nowhere")], [Copy("nowhere", "age")]),
        ("strict", [Custom("test: upper")], [Copy("age", "nowhere")]),
        ("paranoid", [Copy("age", "age")], [Custom("test: upper")]),
    ],
)
def test_each_level_refuses_what_the_one_before_does_not(
    store: sync.Store, level: str, accepted: Any, only_here: Any
) -> None:
    levels = ["none", "basic", "strict", "paranoid"]
    migrations = Migrations(store)

    def valid(done: Any, level: str) -> bool:
        newer = schema(2, BASE, steps=[Step(1, 2, done)])
        return migrations.validate(schema(1, BASE), newer, level).is_valid

    assert valid(accepted, level)
    if only_here is not None:
        assert not valid(only_here, level)
        assert valid(only_here, levels[levels.index(level) - 1])


@pytest.mark.spec("L95", "X45")
def test_risks_and_their_reasons(store: sync.Store) -> None:
    migrations = Migrations(store)
    for done, fields, risk, why in (
        ([Default("age", 1)], BASE, "low", ""),
        ([Convert("name", "to_string")], BASE, "medium", "medium: Convert(field='name'"),
        ([Remove("age")], {"name": BASE["name"]}, "high", "high: Remove(field='age')"),
        ([Custom("test: upper")], BASE, "high", "high: Custom(name='test: upper'"),
        ([Remove("name")], BASE, "critical", "critical: name: is required"),
    ):
        newer = schema(2, fields, steps=[Step(1, 2, done)])
        found = migrations.validate(schema(1, BASE), newer)
        assert found.risk == risk, (done, found)
        assert any(one.startswith(why) for one in found.reasons) or not why
    lost = migrations.validate(
        schema(1, {**BASE, "old": Text(optional=True)}, extra=True),
        schema(2, BASE, extra=True),
        "paranoid",
    )
    assert "old would be lost" in lost.errors
    for done, over in (
        ([Copy("name", "age")], True),
        ([Move("age", "x"), Copy("x", "age")], False),
    ):
        newer = schema(2, BASE, steps=[Step(1, 2, done)], extra=True)
        found = migrations.validate(schema(1, BASE), newer, "paranoid")
        assert ("age would be written over" in found.errors) is over
    gap = migrations.validate(schema(1, BASE), schema(3, BASE, steps=[Step(2, 3)]))
    assert gap.errors == ("there is no step from version 1 towards 3",)
    with pytest.raises(InvalidInputError, match="none, basic, strict, paranoid"):
        migrations.validate(schema(1, BASE), schema(2, BASE), "careful")
