"""Entities: properties by name and type, relationships that never dangle."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from store_kit import Between, Hands, Place

import holdfast
from holdfast import Begins, Range, sync
from holdfast.errors import (
    EntityExistsError,
    EntityNotFoundError,
    HoldfastError,
    InvalidInputError,
    LimitExceededError,
    ReadOnlyError,
    StillNeededError,
)
from holdfast.runtime import entities as module
from holdfast.store.inner import handle_of
from holdfast.store.state import plan_declare, run_plan, stands
from holdfast.sync.runtime import Entities


@pytest.fixture
def entities(store: sync.Store) -> Entities:
    return Entities(store.custom("fleet"))


def ids(page: Any) -> list[str]:
    return [one.id for one in page.items]


def edges(found: Any) -> set[tuple[str, str, str]]:
    return {(one.from_id, one.type, one.to_id) for one in found}


def test_what_finds_entities_is_built_by_the_next_who_makes_one(store: sync.Store) -> None:
    """Who declared it was killed before it was built: a fleet could never be started again."""
    state = store.custom("fleet")
    handle = handle_of(state)
    plan = plan_declare(handle, (module.PAIRS, module.ENDS))
    assert plan is not None
    run_plan(handle.core, plan)
    assert not stands(handle, module.PAIRS)
    entities = Entities(state)
    assert entities.relationships() == []
    assert ids(entities.query("agent")) == []
    entities.create("agent", id="a")
    entities.create("agent", id="b")
    assert stands(handle, module.PAIRS, module.ENDS)
    entities.relate("a", "observes", "b")
    assert ids(entities.query("agent")) == ["a", "b"]
    assert edges(entities.relationships(from_id="a")) == {("a", "observes", "b")}
    assert store.verify().ok


# ---- made, changed, deleted ---------------------------------------------------------------------


@pytest.mark.spec("X29", "S3", "S5")
def test_an_entity_has_a_type_properties_and_an_id_of_its_own(entities: Entities) -> None:
    made = entities.create("agent", {"name": "planner", "load": 0.7, "gone": None})
    assert re.fullmatch(r"agent_[0-9a-f]{8}", made.id)
    assert (made.type, made.properties) == ("agent", {"name": "planner", "load": 0.7})
    assert entities.get(made.id) == entities.get(made) == made
    named = entities.create("agent", id="writer")
    assert (named.id, named.properties) == ("writer", {})
    assert entities.exists("writer")
    assert not entities.exists("agent_00000000")
    with pytest.raises(EntityNotFoundError, match="custom:fleet has no entity agent_00000000"):
        entities.get("agent_00000000")


@pytest.mark.spec("X29")
def test_an_update_merges_and_none_deletes(entities: Entities) -> None:
    entities.create("agent", {"a": 1, "b": 2}, id="x")
    after = entities.update("x", {"b": None, "c": 3})
    assert after.properties == entities.get("x").properties == {"a": 1, "c": 3}
    assert ids(entities.query("agent", where={"b": 2})) == []
    assert ids(entities.query("agent", where={"c": 3, "a": 1})) == ["x"]
    assert entities.update("x", {}).properties == {"a": 1, "c": 3}
    with pytest.raises(EntityNotFoundError):
        entities.update("y", {"a": 1})
    assert not entities.exists("y")


@pytest.mark.spec("X38")
def test_create_of_an_existing_id_must_not_silently_wipe_properties(entities: Entities) -> None:
    entities.create("agent", {"a": 1}, id="x")
    with pytest.raises(EntityExistsError, match="the entity x is there; update"):
        entities.create("tool", {"b": 1}, id="x")
    assert (entities.get("x").type, entities.get("x").properties) == ("agent", {"a": 1})


def test_an_id_that_is_drawn_and_taken_is_drawn_again(
    entities: Entities, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        monkeypatch.setattr("holdfast.runtime.entities._random", random.Random(7))
        entities.create("agent")
    assert entities.count("agent") == 2


@pytest.mark.spec("X29")
def test_a_bulk_is_one_change_all_or_none(store: sync.Store, entities: Entities) -> None:
    entities.create("agent", id="taken")
    state = store.custom("fleet")
    before = state._handle.place()[2]
    some = [{"type": "t", "id": f"n{n}", "properties": {"n": n}} for n in range(5)]
    made = entities.bulk_create([*some, {"type": "t"}])
    assert [one.id for one in made][:5] == ["n0", "n1", "n2", "n3", "n4"]
    assert state._handle.place()[2] == before + 1
    with pytest.raises(EntityExistsError):
        entities.bulk_create([{"type": "t", "id": "new"}, {"type": "t", "id": "taken"}])
    with pytest.raises(EntityExistsError, match="new is there"):
        entities.bulk_create([{"type": "t", "id": "new"}, {"type": "t", "id": "new"}])
    assert not entities.exists("new")
    for wrong in ([{"id": "a"}], [{"type": "t", "colour": 1}], ["t"], "t"):
        with pytest.raises(InvalidInputError):
            entities.bulk_create(wrong)


@pytest.mark.spec("X38")
def test_a_recreated_entity_must_not_inherit_deleted_properties(
    store: sync.Store, entities: Entities
) -> None:
    for id in ("a", "x", "b"):
        entities.create("agent", {"old": id}, id=id)
    entities.relate("x", "knows", "b")
    entities.relate("a", "knows", "x")
    before = store.custom("fleet")._handle.place()[2]
    assert entities.delete("x") is True
    assert store.custom("fleet")._handle.place()[2] == before + 1, "one entry"
    assert entities.relationships() == []
    assert entities.delete("x") is False
    made = entities.create("agent", {"new": 1}, id="x")
    found = entities.get("x", include=["relationships", "properties"])
    assert (found.properties, found.relationships) == ({"new": 1}, ())
    assert found == made
    assert ids(entities.query(where={"old": "x"})) == []


@pytest.mark.spec("X30", "S7")
def test_times_are_numbers_and_iso_text(timed: sync.Store, hands: Hands) -> None:
    entities = Entities(timed.custom("fleet"))
    entities.create("agent", id="a")
    entities.create("agent", id="b")
    hands.move(90)
    entities.update("a", {"x": 1})
    edge = entities.relate("a", "knows", "b")
    hands.move(90)
    again = entities.relate("a", "knows", "b", {"since": 1})
    found = entities.get("a")
    assert found.updated_at - found.created_at == pytest.approx(90, abs=0.01)
    assert (found.created_at_iso, found.updated_at_iso) == (
        hands.time(0).isoformat(),
        hands.time(90).isoformat(),
    )
    assert edge.created_at_iso == hands.time(90).isoformat()
    assert again.created_at == edge.created_at, "it is the same one"


VALUES = {
    "text": "é\x00",
    "int": 2**70,
    "float": 0.1,
    "bool": True,
    "list": [1, [None]],
    "json": {"a": {"b": None}},
}


@pytest.mark.spec("X30", "S7")
def test_all_types_of_values_come_back_as_they_were(entities: Entities) -> None:
    entities.create("t", VALUES, id="x")
    found = entities.get("x").properties
    assert found == VALUES
    assert [type(one) for one in found.values()] == [type(one) for one in VALUES.values()]


@pytest.mark.spec("X38", "X30")
@pytest.mark.parametrize("value", [1e16, 1e-7, math.inf, -math.inf, math.nan, -0.0])
def test_floats_like_1e16_1e_7_inf_nan_must_round_trip(place: Place, value: float) -> None:
    Entities(place.open().custom("fleet")).create("t", {"x": value}, id="x")
    entities = Entities(place.reopen().custom("fleet"))
    found = entities.get("x").properties["x"]
    assert type(found) is float
    assert math.copysign(1, found) == math.copysign(1, value)
    assert found == value or (math.isnan(found) and math.isnan(value))
    if not math.isnan(value):
        assert ids(entities.query("t", where={"x": value})) == ["x"]


# ---- questions ----------------------------------------------------------------------------------

ODD: list[Any] = [
    *(1, "1", True, "true", 1.0, "", 0, False, {"a": 1}, {"a": 1.0}, {"a": 1, "b": [0]}),
    *([1], [1.0], [True], [1, 1], ["1"], [{"a": True}], [{"a": 1}], [math.nan], [b"1"], []),
]


@pytest.mark.spec("X38")
def test_where_must_respect_type_1_vs_text_True_vs_true_and_None(entities: Entities) -> None:
    for number, value in enumerate(ODD):
        entities.create("t", {"x": value}, id=f"e{number}")
    entities.create("t", {"y": 1}, id="without")
    for number, value in enumerate(ODD):
        assert ids(entities.query("t", where={"x": value})) == [f"e{number}"], value
    assert ids(entities.query("t", where={"x": None})) == ["without"]
    assert ids(entities.query("t", where={"x": None, "y": 1})) == ["without"]
    assert ids(entities.query("t", where={"x": None, "y": None})) == []
    entities.index("x")
    for number, value in enumerate(ODD):
        assert ids(entities.query("t", where={"x": value})) == [f"e{number}"], value
    assert ids(entities.query("t", where={"x": [1]}, order="x")) == []
    assert ids(entities.query("t", where={"x": {"b": [0], "a": 1}})) == ["e10"], "in any order"


@pytest.mark.spec("X38")
@pytest.mark.parametrize(
    "asked",
    [
        {"order": "x; DROP TABLE entities"},
        {"order": "x/y"},
        {"order": 3},
        {"order": ""},
        {"limit": "1; DROP"},
        {"limit": -1},
        {"where": "x = 1"},
        {"where": {"x'--/": 1}},
        {"where": {"": 1}},
        {"include": ["everything"]},
        {"type": "a/b"},
        {"type": 5},
    ],
)
def test_no_sql_through_order_by_limit_where(entities: Entities, asked: dict[str, Any]) -> None:
    """Whatever is given is a name or a value, and never a part of a statement."""
    entities.create("t", {"x": 1}, id="a")
    with pytest.raises(InvalidInputError):
        entities.query(**asked)
    text = "1' OR '1'='1"
    assert ids(entities.query("t", where={"x": text})) == []
    entities.create("t", {"x": text}, id="b")
    assert ids(entities.query("t", where={"x": text})) == ["b"]


@pytest.mark.spec("X29", "S14")
def test_ranges_and_orders_are_the_same_with_and_without_an_index(entities: Entities) -> None:
    for n in range(30):
        entities.create("t", {"n": n, "half": n / 2, "name": f"n{n % 3}"}, id=f"e{n:02}")
    entities.create("other", {"n": 25}, id="z")
    entities.create("t", {}, id="none")

    def asked() -> list[list[str]]:
        return [
            ids(entities.query("t", where={"n": Range(ge=10, lt=13)})),
            ids(entities.query("t", where={"n": Range(gt=10), "name": "n0"}, order="-n", limit=3)),
            ids(entities.query("t", where={"name": Begins("n1")}, order="n", limit=2)),
            ids(entities.query("t", where={"half": Range(le=0.5)}, order="half")),
            ids(entities.query("t", order="-half", limit=1)),
        ]

    expected = [
        ["e10", "e11", "e12"],
        ["e27", "e24", "e21"],
        ["e01", "e04"],
        ["e00", "e01"],
        ["e29"],
    ]
    assert asked() == expected
    for name in ("n", "half", "name"):
        entities.index(name)
    assert asked() == expected
    entities.create("t", {"n": 11.5, "half": 100.0}, id="late")
    assert ids(entities.query("t", order="-half", limit=1)) == ["late"]


def test_pages_reach_every_entity_once(entities: Entities) -> None:
    entities.bulk_create(
        {"type": "t", "id": f"e{n:03}", "properties": {"n": -n, "odd": n % 2 == 1}}
        for n in range(57)
    )
    entities.index("n")
    for order in (None, "n", "-n"):
        found, after, pages = [], None, 0
        while True:
            page = entities.query("t", where={"odd": True}, order=order, limit=5, after=after)
            found += ids(page)
            pages += 1
            if (after := page.after) is None:
                break
        want = [f"e{n:03}" for n in range(57) if n % 2]
        assert found == (want[::-1] if order == "n" else want)
        assert pages >= 6
    assert len(entities.query("t").items) == 57
    with pytest.raises(InvalidInputError, match=r"entities.index\('odd'\)"):
        entities.query("t", order="odd", after="e001", limit=2)


def test_a_question_that_reads_too_much_says_what_to_add(
    entities: Entities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SCANNED", 20)
    entities.bulk_create({"type": "t", "properties": {"n": n}} for n in range(25))
    for asked in ({"where": {"n": Range(gt=24)}}, {"order": "n"}):
        with pytest.raises(LimitExceededError, match=r"say once: entities.index\('n'\)"):
            entities.query("t", **asked)
    assert len(entities.query("t", where={"n": 3}).items) == 1
    entities.index("n")
    assert len(entities.query("t", where={"n": Range(gt=22)}).items) == 2
    assert len(entities.query("t", order="n", limit=None).items) == 25
    assert entities.count("t", where={"n": Range(gt=20)}) == 4


@pytest.mark.spec("S14", "S4")
def test_a_question_reads_what_it_finds_and_not_all(
    entities: Entities, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is a lookup: of 500 entities those are read that are found, and no other."""
    read: list[str] = []
    fits = module.fits

    def noted(properties: Any, name: str, condition: Any) -> bool:
        read.append(name)
        return fits(properties, name, condition)

    monkeypatch.setattr(module, "fits", noted)
    entities.bulk_create(
        {"type": "t", "id": f"e{n:03}", "properties": {"n": n, "group": n // 10}}
        for n in range(500)
    )
    assert len(entities.query("t", where={"group": 3}).items) == len(read) == 10
    read.clear()
    entities.index("n")
    assert ids(entities.query("t", where={"n": Range(gt=496)})) == ["e497", "e498", "e499"]
    assert ids(entities.query("t", where={"n": Range(gt=1)}, order="-n", limit=1)) == ["e499"]
    assert len(read) == 4


@pytest.mark.spec("X29")
def test_counts_by_type_and_by_property(entities: Entities) -> None:
    entities.bulk_create({"type": "a", "id": f"a{n}", "properties": {"x": n % 2}} for n in range(5))
    entities.create("b", {"x": 1}, id="b0")
    entities.create("b", {"x": [1]}, id="b1")
    entities.relate("a0", "knows", "b0")
    entities.relate("a1", "knows", "b0")
    entities.relate("a1", "made", "b1")
    assert entities.count() == 7
    assert entities.count("a") == 5
    assert entities.count(where={"x": 1}) == 3
    assert entities.count("a", where={"x": 1}) == 2
    assert entities.count(group_by="type") == {"a": 5, "b": 2}
    assert entities.count("a", group_by="x") == {0: 3, 1: 2}
    assert entities.count("b", group_by="x") == {1: 1, "[1]": 1}
    assert entities.count(target="relationships") == 3
    assert entities.count(target="relationships", group_by="type") == {"knows": 2, "made": 1}
    assert entities.count("made", target="relationships") == 1
    for wrong in ({"target": "tables"}, {"group_by": "a/b"}):
        with pytest.raises(InvalidInputError):
            entities.count(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="without where"):
        entities.count(target="relationships", where={"x": 1})


# ---- relationships ------------------------------------------------------------------------------


def family(entities: Entities) -> None:
    """a -> b -> c -> d -> e -> f -> g, and h -> b of another type."""
    entities.bulk_create({"type": "t", "id": id} for id in "abcdefgh")
    for one, other in zip("abcdef", "bcdefg", strict=True):
        entities.relate(one, "next", other)
    entities.relate("h", "sees", "b")


@pytest.mark.spec("X29", "S6")
def test_traversal_by_direction_type_and_depth(entities: Entities) -> None:
    family(entities)
    assert entities.traverse("b").ids == ("b", "c")
    assert set(entities.traverse("b", direction="incoming").ids) == {"b", "a", "h"}
    assert set(entities.traverse("b", direction="both").ids) == {"a", "b", "c", "h"}
    assert entities.traverse("b", direction="both", types=["sees"]).ids == ("b", "h")
    assert entities.traverse("a", depth=5).ids == ("a", "b", "c", "d", "e", "f")
    deep = entities.traverse("h", depth=2, include_entities=True)
    assert edges(deep.relationships) == {("h", "sees", "b"), ("b", "next", "c")}
    assert list(deep.entities) == list(deep.ids) == ["h", "b", "c"]
    assert deep.entities["c"].type == "t"
    assert entities.traverse("a").entities == {}
    entities.relate("c", "next", "a")
    assert entities.traverse("a", depth=5).ids[:4] == ("a", "b", "c", "d"), "a circle ends"


@pytest.mark.parametrize(
    "asked",
    [{"depth": 6}, {"depth": 0}, {"depth": True}, {"depth": "2"}, {"direction": "up"}],
)
@pytest.mark.spec("X29")
def test_traversal_refuses(entities: Entities, asked: dict[str, Any]) -> None:
    family(entities)
    with pytest.raises(InvalidInputError):
        entities.traverse("a", **asked)
    with pytest.raises(EntityNotFoundError):
        entities.traverse("nobody")


@pytest.mark.spec("X29")
def test_relationships_by_end_and_type(entities: Entities) -> None:
    family(entities)
    entities.relate("a", "sees", "b", {"since": 3})
    found = entities.relationships
    assert edges(found(from_id="a")) == {("a", "next", "b"), ("a", "sees", "b")}
    assert edges(found(to_id="b", type="sees")) == {("a", "sees", "b"), ("h", "sees", "b")}
    assert edges(found(type="sees")) == {("a", "sees", "b"), ("h", "sees", "b")}
    assert edges(found(from_id="a", to_id="b", type="sees")) == {("a", "sees", "b")}
    assert found(from_id="a", type="sees")[0].metadata == {"since": 3}
    assert len(found()) == 8
    assert len(found(limit=3)) == 3
    assert entities.unrelate("a", "sees", "b") is True
    assert entities.unrelate("a", "sees", "b") is False
    assert edges(found(from_id="a")) == {("a", "next", "b")}


@pytest.mark.spec("S13")
def test_a_name_is_the_same_however_its_accents_are_written(entities: Entities) -> None:
    """Keys are in normal form: what is said of an id beside its key must be, too."""
    one, other = "\u00e9", "e\u0301"
    entities.create(other, id=other)
    entities.create("t", id="a")
    assert ids(entities.query(one)) == [one]
    entities.relate("a", other, other)
    for text in (one, other):
        assert edges(entities.relationships(to_id=text, type=text)) == {("a", one, one)}
        assert edges(entities.relationships(type=text)) == {("a", one, one)}
        assert entities.traverse("a", types=[text]).ids == ("a", one)
    entities.delete(one)
    assert entities.relationships() == []


@pytest.mark.spec("X38")
def test_no_duplicate_relationships_when_properties_are_included(entities: Entities) -> None:
    for id in "ab":
        entities.create("t", {"one": 1, "two": 2, "three": 3}, id=id)
    entities.relate("a", "knows", "b", {"n": 1})
    entities.relate("a", "knows", "b", {"n": 2})
    for id in "ab":
        found = entities.get(id, include=["properties", "relationships"])
        assert [one.metadata for one in found.relationships] == [{"n": 2}]
        assert len(found.properties) == 3
    page = entities.query("t", include=["properties", "relationships"])
    assert [len(one.relationships) for one in page.items] == [1, 1]
    assert len(entities.relationships(type="knows")) == 1


@pytest.mark.spec("X38", "S13")
def test_reject_dangling_relationships(entities: Entities) -> None:
    entities.create("t", id="a")
    for one, other in (("a", "b"), ("b", "a")):
        with pytest.raises(EntityNotFoundError, match="has no entity b"):
            entities.relate(one, "knows", other)
    with pytest.raises(InvalidInputError, match="to itself"):
        entities.relate("a", "knows", "a")
    assert entities.relationships() == []


@pytest.mark.spec("X38", "S13")
def test_enable_foreign_keys(entities: Entities) -> None:
    """What refers to an entity goes with it, or keeps it: as a foreign key that is enforced."""
    family(entities)
    with pytest.raises(StillNeededError, match="a next b"):
        entities.delete("b", restrict=True)
    assert entities.get("b").id == "b"
    assert len(entities.relationships(to_id="b")) == 2
    assert entities.delete("h", restrict=True), "it refers, nobody refers to it"
    assert entities.delete("b")
    left = entities.relationships()
    assert {one.from_id for one in left} | {one.to_id for one in left} == set("cdefg")


@pytest.mark.spec("S13", "X38")
def test_a_revert_takes_no_entity_from_under_a_relationship_and_brings_none_back(
    store: sync.Store,
) -> None:
    state = store.custom("fleet")
    entities = Entities(state)
    for id in ("b", "c"):
        entities.create("agent", {"load": 1}, id=id)
    with store.acting("planner", correlation="run-1"):
        entities.create("agent", id="a")
        entities.update("b", {"load": 2})
        entities.relate("b", "knows", "c")
    entities.relate("a", "knows", "b", {"since": 1})
    before = edges(entities.relationships())
    done = state.revert(correlation="run-1")
    assert done.done == ["$entity/b"]
    assert entities.get("b").properties == {"load": 1}
    assert {"$entity/a", "$relation/b/knows/c"} <= {one.key for one in done.left}
    assert "by `Entities` alone" in done.left[0].why
    assert edges(entities.relationships()) == before
    with store.acting("planner", correlation="run-2"):
        entities.unrelate("a", "knows", "b")
        entities.delete("c")
    entities.delete("b")
    entities.create("agent", id="b")
    assert store.revert(correlation="run-2")[0].done == []
    assert entities.relationships() == [], "one made again inherits nothing"


def _whole(entities: Entities) -> None:
    for one in entities.relationships():
        assert entities.exists(one.from_id), one
        assert entities.exists(one.to_id), one


@pytest.mark.spec("S13", "X38")
def test_no_relationship_dangles_while_its_ends_are_deleted(place: Place) -> None:
    """Two threads, each with a handle of its own: one relates, one deletes and makes anew."""
    first, second = (Entities(place.open().custom("fleet")) for _ in range(2))
    first.bulk_create({"type": "t", "id": f"e{n}"} for n in range(4))
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        return run

    def relate() -> None:
        for n in range(60):
            with contextlib.suppress(EntityNotFoundError):
                first.relate(f"e{n % 4}", "knows", f"e{(n + 1) % 4}")

    def delete() -> None:
        for n in range(30):
            second.delete(f"e{n % 4}")
            _whole(second)
            second.create("t", id=f"e{n % 4}")

    threads = [threading.Thread(target=guarded(one)) for one in (relate, delete)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert not failed
    _whole(first)
    assert first.count() == 4


@pytest.mark.spec("S13", "X38")
def test_a_relationship_made_just_before_an_end_is_deleted_goes_with_it(plain: Place) -> None:
    other = Entities(plain.open().custom("fleet"))
    other.bulk_create({"type": "t", "id": f"e{n}"} for n in range(3))
    other.relate("e0", "knows", "e2")
    between = Between(plain.storage())
    with sync.open(plain.url, storage=between, **plain.options()) as store:  # type: ignore[arg-type]
        entities = Entities(store.custom("fleet"))
        assert entities.count() == 3
        between.before = lambda: other.relate("e0", "knows", "e1")
        assert entities.delete("e1")
    assert between.before is None
    _whole(other)


RACE = """
import sys
from holdfast import sync
from holdfast.errors import EntityNotFoundError
from holdfast.sync.runtime import Entities
url, key, signer, role = sys.argv[1:]
with sync.open(url, key=key or None, signer=signer, durability="normal") as store:
    entities = Entities(store.custom("fleet"))
    for n in range(60):
        try:
            if role == "relate":
                entities.relate(f"e{n % 3}", "knows", f"e{(n + 1) % 3}")
            else:
                entities.delete(f"e{n % 3}")
                entities.create("t", id=f"e{n % 3}")
        except EntityNotFoundError:
            pass
"""


@pytest.mark.spec("S13")
@pytest.mark.parametrize("sealed", [False, True])
def test_no_relationship_dangles_between_two_processes(tmp_path: Path, sealed: bool) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    entities = Entities(place.open().custom("fleet"))
    entities.bulk_create({"type": "t", "id": f"e{n}"} for n in range(3))
    arguments = [place.url, place.key or "", place.signer]
    others = [
        subprocess.Popen([sys.executable, "-c", RACE, *arguments, role], env=place.environment())
        for role in ("relate", "delete")
    ]
    assert [one.wait(60) for one in others] == [0, 0]
    _whole(entities)
    assert entities.count() == 3
    place.close()


# ---- the state they are in ----------------------------------------------------------------------


@pytest.mark.spec("S9", "S11", "S15")
def test_the_first_write_makes_all_that_is_needed_and_nothing_is_migrated(place: Place) -> None:
    store = place.open()
    entities = Entities(store.custom("fleet"))
    assert store.custom("fleet")._handle.place()[2] == 0, "making one touches nothing"
    assert entities.query("agent").items == []
    assert entities.relationships() == []
    assert entities.count() == 0
    assert store.custom("fleet")._handle.place()[2] == 0, "neither does reading"
    entities.create("agent", {"x": 1}, id="a")
    declared = store.custom("fleet")._handle.place()[2]
    entities.create("agent", {"x": 1}, id="b")
    assert store.custom("fleet")._handle.place()[2] == declared + 1, "one entry each, at once"
    again = place.reopen()
    entities = Entities(again.custom("fleet"))
    assert ids(entities.query("agent", where={"x": 1})) == ["a", "b"]
    assert again.custom("fleet")._handle.place()[2] == declared + 1, "opened again, none is added"
    assert again.verify().ok


@pytest.mark.spec("S13", "S3")
def test_checkpoint_fork_and_the_past_take_them_along(store: sync.Store) -> None:
    state = store.custom("fleet")
    entities = Entities(state)
    family(entities)
    before = state.checkpoint("before")
    entities.delete("b")
    entities.update("a", {"x": 1})
    past = Entities(state.at(before))
    assert edges(past.relationships(to_id="b")) == {("a", "next", "b"), ("h", "sees", "b")}
    assert ids(past.query(where={"x": 1})) == []
    trial = Entities(state.fork("trial"))
    trial.create("t", id="new")
    assert not entities.exists("new")
    state.restore(before)
    assert entities.exists("b")
    assert len(entities.relationships(to_id="b")) == 2
    assert ids(entities.query("t", where={"x": 1})) == []
    for write in (lambda: past.create("t", id="never"), lambda: past.index("x")):
        with pytest.raises(ReadOnlyError):
            write()


@pytest.mark.spec("S16")
def test_updates_beside_many_writers_all_arrive(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            entities = holdfast.runtime.Entities(store.custom("fleet"))
            await entities.create("agent", {"n": 0}, id="a")

            async def writer(number: int) -> None:
                for n in range(5):
                    await store.agent(f"w{number}").set("n", n)

            async def updates() -> None:
                for n in range(100):
                    await entities.update("a", {f"p{n}": n})

            await asyncio.gather(updates(), *(writer(n) for n in range(64)))
            assert len((await entities.get("a")).properties) == 101
            made = await asyncio.gather(*(entities.create("t", {"n": n}) for n in range(64)))
            assert await entities.count("t") == len({one.id for one in made}) == 64

    asyncio.run(main())


@pytest.mark.parametrize("id", ["a/b", "", "x" * 201, 5, None, "a\n", "..", "a\\b"])
def test_ids_that_cannot_be(store: sync.Store, entities: Entities, id: Any) -> None:
    for call in (entities.get, entities.delete, entities.exists, entities.traverse):
        with pytest.raises(InvalidInputError, match="the id of an entity"):
            call(id)
    with pytest.raises(InvalidInputError, match="Entities takes a state"):
        Entities(store)  # type: ignore[arg-type]
    if id is not None:
        with pytest.raises(InvalidInputError):
            entities.create("t", id=id)
    for type in ("a/b", "", 5, "x" * 101):
        with pytest.raises(InvalidInputError):
            entities.create(type)  # type: ignore[arg-type]
    for properties in ([1], {"a/b": 1}, {5: 1}):
        with pytest.raises(InvalidInputError):
            entities.create("t", properties)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="x"):
        entities.create("t", {"x": object()})
    with pytest.raises(InvalidInputError, match="cannot be indexed"):
        entities.index("a.b")
    assert entities.count() == 0


# ---- against a plain model ----------------------------------------------------------------------

IDS = st.sampled_from("abcd")
NAMES = st.sampled_from(["p", "q"])
SOME = st.sampled_from([None, 0, 1, "1", True, 1.5, [1]])
KINDS = st.sampled_from(["r", "s"])


class Model(RuleBasedStateMachine):
    """The same questions to dictionaries and to entities, through two handles of one store."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = [sync.open(f"memory:entities-{id(self)}") for _ in range(2)]
        self.both = [Entities(one.custom("fleet")) for one in self.stores]
        self.known: dict[str, dict[str, Any]] = {}
        self.edges: set[tuple[str, str, str]] = set()
        self.turn = 0

    @property
    def entities(self) -> Entities:
        self.turn += 1
        return self.both[self.turn % 2]

    @rule(id=IDS, name=NAMES, value=SOME)
    def create(self, id: str, name: str, value: Any) -> None:
        if id in self.known:
            with pytest.raises(EntityExistsError):
                self.entities.create("t", {name: value}, id=id)
        else:
            self.entities.create("t", {name: value}, id=id)
            self.known[id] = {} if value is None else {name: value}

    @rule(id=IDS, name=NAMES, value=SOME)
    def update(self, id: str, name: str, value: Any) -> None:
        if id not in self.known:
            with pytest.raises(EntityNotFoundError):
                self.entities.update(id, {name: value})
            return
        self.entities.update(id, {name: value})
        self.known[id].pop(name, None)
        if value is not None:
            self.known[id][name] = value

    @rule(id=IDS, restrict=st.booleans())
    def delete(self, id: str, restrict: bool) -> None:
        if restrict and any(edge[2] == id for edge in self.edges):
            with pytest.raises(StillNeededError):
                self.entities.delete(id, restrict=True)
            return
        assert self.entities.delete(id, restrict=restrict) is (id in self.known)
        self.known.pop(id, None)
        self.edges = {edge for edge in self.edges if id not in (edge[0], edge[2])}

    @rule(one=IDS, kind=KINDS, other=IDS)
    def relate(self, one: str, kind: str, other: str) -> None:
        if one == other:
            return
        if one in self.known and other in self.known:
            self.entities.relate(one, kind, other)
            self.edges.add((one, kind, other))
        else:
            with pytest.raises(EntityNotFoundError):
                self.entities.relate(one, kind, other)

    @rule(one=IDS, kind=KINDS, other=IDS)
    def unrelate(self, one: str, kind: str, other: str) -> None:
        assert self.entities.unrelate(one, kind, other) is ((one, kind, other) in self.edges)
        self.edges.discard((one, kind, other))

    @invariant()
    def same(self) -> None:
        entities = self.entities
        found = {one.id: one.properties for one in entities.query().items}
        assert repr(sorted(found.items())) == repr(sorted(self.known.items()))
        assert edges(entities.relationships()) == self.edges
        for value in (1, "1", True, None):
            want = [
                id
                for id, one in sorted(self.known.items())
                if type(one.get("p")) is type(value) and one.get("p") == value
            ]
            assert ids(entities.query("t", where={"p": value})) == want
        for id in self.known:
            want_in = {edge for edge in self.edges if edge[2] == id}
            assert edges(entities.relationships(to_id=id)) == want_in

    def teardown(self) -> None:
        assert self.stores[0].verify().ok
        for one in self.stores:
            one.close()


Model.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestModel = pytest.mark.spec("S3", "S5", "S6", "S13")(Model.TestCase)
