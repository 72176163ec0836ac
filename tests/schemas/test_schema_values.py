"""What a schema says, and that no writer gets round it."""

from __future__ import annotations

import argparse
import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from store_kit import Place

import holdfast
import holdfast_verify
from holdfast import Ephemeral, Lookup, sync
from holdfast.errors import (
    DamagedRecordError,
    ErasedError,
    InvalidInputError,
    InvalidSchemaError,
    MissingError,
    SchemaViolationError,
)
from holdfast.schemas import schema as schemas
from holdfast.sync.checkpoints import export_checkpoint, import_checkpoint
from holdfast.sync.schemas import (
    AnyValue,
    Flag,
    ListOf,
    Mapping,
    Migrations,
    Number,
    Schema,
    Schemas,
    SemanticVersion,
    Step,
    Text,
    Timestamp,
)

PROFILE = Schema(
    "profile",
    version=1,
    semantic="1.2.0",
    prefix="profiles/",
    fields={
        "user_id": Text(max_length=36),
        "preferences": Mapping(required=["theme"], optional=["language"]),
        "created_at": Timestamp(),
    },
)
GOOD = {"user_id": "u1", "preferences": {"theme": "dark"}, "created_at": "2026-01-02T03:04:05Z"}


@pytest.mark.spec("L80", "L81")
def test_a_schema_says_what_it_was_given_and_can_be_had_again(store: sync.Store) -> None:
    state = store.agent("1")
    step = Step(1, 2, [])
    state.declare(PROFILE)
    newer = Schema(
        "profile", 2, prefix="profiles/", of=None, document=PROFILE.document, compatible="full",
        semantic=SemanticVersion(2, 1), steps=[step], auto_migrate=True,
    )  # fmt: skip
    state.declare(newer)
    schemas._known.clear()
    found = Schemas(store).get("profile")
    assert (found.version, found.compatible, found.auto_migrate) == (2, "full", True)
    assert (found.steps, str(found.semantic), found.prefix) == ((step,), "2.1.0", "profiles/")
    assert found.document == PROFILE.document
    assert SemanticVersion.parse("2.10.0") > SemanticVersion.parse("2.9.9")
    for wrong in ("2.1", "v2.1.0", "2.1.0-a", "02.1.0", ""):
        with pytest.raises(InvalidSchemaError):
            SemanticVersion.parse(wrong)


@pytest.mark.spec("L82", "L83", "L84", "L85")
@pytest.mark.parametrize(
    ("field", "good", "bad", "said"),
    [
        (Text(max_length=3, min_length=1), ["a", "äöü"], ["", "abcd", 1, None], "x:"),
        (Text(choices=["a", "b"]), ["a", "b"], ["c", ""], "x: it is not one of"),
        (Number(minimum=0, maximum=5), [0, 5, 2.5], [-1, 5.1, "1", True], "x:"),
        (Number(whole=True), [0, -3, 10**9], [0.5, "1"], 'x: it is not of type "integer"'),
        (Flag(), [True, False], [0, "true", None], 'x: it is not of type "boolean"'),
        (
            Timestamp(),
            ["2026-01-02T03:04:05Z", datetime(2026, 1, 2, tzinfo=UTC)],
            ["yesterday", "2026-01-02", 5],
            "x: it is",
        ),
        (ListOf(Number(), max_items=2), [[], [1, 2]], [[1, 2, 3], ["a"], 1], "x"),
        (
            Mapping(required={"a": Text()}, optional={"b": Flag()}),
            [{"a": ""}, {"a": "", "b": True}],
            [{}, {"a": 1}, {"a": "", "b": 1}, {"a": "", "c": 1}, []],
            "x",
        ),
        (
            Mapping(required=["a"], extra=True),
            [{"a": None, "z": 1}],
            [{"z": 1}],
            'x: "a" is a required property',
        ),
        (AnyValue(), [None, {}, [], b"bytes", float("nan")], [], ""),
    ],
)
def test_fields(field: Any, good: list[Any], bad: list[Any], said: str) -> None:
    checker = Schema("one", fields={"x": field}).checker
    for value in good:
        assert checker.problems({"x": value}) == [], value
    for value in bad:
        problems = checker.problems({"x": value})
        assert [one for one in problems if one.startswith(said)], (value, problems)
    assert checker.problems({}) == ['the value: "x" is a required property']
    optional = (
        msgspec.structs.replace(field, optional=True) if not isinstance(field, Mapping) else None
    )
    if optional is not None:
        assert Schema("one", fields={"x": optional}).checker.problems({}) == []


@pytest.mark.spec("L6", "L82")
def test_a_write_that_breaks_it_is_refused_with_all_problems(store: sync.Store) -> None:
    state = store.agent("1")
    state.declare(PROFILE)
    state.set("profiles/1", GOOD)
    broken = {"user_id": "u" * 37, "preferences": {"language": "de"}, "more": "a secret"}
    with pytest.raises(SchemaViolationError) as told:
        state.set("profiles/1", broken)
    assert sorted(told.value.problems) == [
        'preferences: "theme" is a required property',
        'the value: "created_at" is a required property',
        "the value: Additional properties are not allowed ('more' was unexpected)",
        "user_id: it is longer than 36 characters",
    ]
    assert "agent:1" in str(told.value)
    assert "profiles/1" in str(told.value)
    assert "a secret" not in str(told.value)
    assert state.get("profiles/1") == GOOD
    state.set("elsewhere", broken)


@pytest.mark.spec("L6")
def test_every_way_to_write_keeps_to_it(store: sync.Store) -> None:
    state, other = store.agent("1"), store.agent("2")
    state.declare(PROFILE)
    state.set("profiles/1", GOOD)
    with pytest.raises(SchemaViolationError):
        state.update("profiles/1", lambda old: {**old, "user_id": 7})
    with pytest.raises(SchemaViolationError), state.change() as change:
        change.set("free", 1)
        change.set("profiles/2", {})
    with pytest.raises(SchemaViolationError), store.change() as several:
        several[other].set("free", 1)
        several[state].set("profiles/2", {})
    with pytest.raises(SchemaViolationError, match='it is not of type "object"'):
        state.append("profiles/list", GOOD)
    with pytest.raises(SchemaViolationError), state.open_write("profiles/bytes") as writer:
        writer.write(b"x" * 100_000)
    with pytest.raises(SchemaViolationError):
        state.set("profiles/long", {**GOOD, "user_id": ["x" * 200_000]})
    assert state.keys() == ["profiles/1"]
    assert other.keys() == []
    state.update("profiles/1", lambda old: {**old, "user_id": "u2"})
    assert state.get("profiles/1")["user_id"] == "u2"
    assert store.verify().ok


@pytest.mark.spec("L6")
def test_every_process_forks_and_restored_states_keep_to_it(place: Place) -> None:
    mine, theirs = place.open().agent("1"), place.open().agent("1")
    mine.set("profiles/0", GOOD)
    before = mine.checkpoint("before")
    theirs.set("free", 1)
    mine.declare(PROFILE)
    schemas._known.clear()  # as in a process that has never seen it
    with pytest.raises(SchemaViolationError):
        theirs.set("profiles/1", {})
    with pytest.raises(SchemaViolationError):
        mine.fork("trial").set("profiles/1", {})
    mine.restore(before)
    schemas._known.clear()
    with pytest.raises(SchemaViolationError):
        theirs.set("profiles/1", {})
    again = place.reopen()
    assert Schemas(again).get("profile", 1) == PROFILE
    with pytest.raises(SchemaViolationError):
        again.agent("1").on("trial").set("profiles/1", {})
    again.agent("1").declare(PROFILE)  # a program declares it each time that it starts


@pytest.mark.spec("L92")
def test_all_versions_of_all_scopes_can_be_had(store: sync.Store) -> None:
    for n in range(120):
        store.agent(f"{n:03}").declare(PROFILE)
    two = Schema("profile", 2, prefix="profiles/", document=PROFILE.document)
    store.agent("060").declare(two)
    store.agent("119").declare(Schema("last", prefix="last/", fields={}))
    known = Schemas(store)
    assert [(one.name, one.version) for one in known.list()] == [("last", 1), ("profile", 2)]
    assert known.history("profile") == [PROFILE, two]
    assert known.get("profile", 1) == PROFILE
    assert known.get("profile") == two
    for name, version in (("profile", 3), ("none", None)):
        with pytest.raises(MissingError):
            known.get(name, version)


@dataclasses.dataclass
class Plan:
    goal: str
    steps: list[int] = dataclasses.field(default_factory=list)


class Node(msgspec.Struct):
    name: str
    inner: list[Node] = []


class Model(pydantic.BaseModel):
    name: str
    size: int | None = None


@pytest.mark.spec("L80")
def test_classes_give_schemas(store: sync.Store) -> None:
    state = store.agent("1")
    state.declare(*(Schema(f"{n}", prefix=f"{n}/", of=one) for n, one in enumerate(KINDS)))
    state.set("0/a", {"goal": "ship", "steps": [1]})
    state.set("1/a", {"name": "a", "inner": [{"name": "b"}]})
    state.set("2/a", {"name": "a", "size": None})
    for key, value, problem in (
        ("0/b", {"goal": "ship", "steps": ["x"]}, 'steps[0]: it is not of type "integer"'),
        ("1/b", {"name": "a", "inner": [{"name": 1}]}, 'inner[0].name: it is not of type "string"'),
        ("2/b", {"size": 1}, 'the value: "name" is a required property'),
    ):
        with pytest.raises(SchemaViolationError) as told:
            state.set(key, value)
        assert told.value.problems == (problem,)
    state.declare(Schema("nodes", prefix="nodes/", of=list[Node]))
    state.append("nodes/a", {"name": "a"})
    with pytest.raises(SchemaViolationError, match='name: it is not of type "string"'):
        state.append("nodes/a", {"name": 1})
    with pytest.raises(InvalidSchemaError, match="complex has no schema"):
        Schema("c", of=complex)


KINDS = (Plan, Node, Model)


@pytest.mark.spec("L80")
def test_lists_keep_to_it_when_they_grow_and_to_bounds_when_they_are_set(store: sync.Store) -> None:
    state = store.agent("1")
    numbers = {"type": "array", "items": {"type": "integer"}}
    state.declare(Schema("numbers", prefix="n/", document=numbers))
    state.extend("n/1", [1, 2])
    assert Migrations(store).status("agent:1", "numbers")[0].versions == {1: 1}
    for size in (3, 800):  # short, and as a tree
        state.set("n/1", list(range(size)))
        state.extend("n/1", [1, 2])
        with pytest.raises(SchemaViolationError) as told:
            state.extend("n/1", [1, "x"])
        assert told.value.problems == ('[1]: it is not of type "integer"',)
        state.trim("n/1", keep_last=2)
        assert state.get("n/1") == [1, 2]
    for rule, limit in (("uniqueItems", True), ("minItems", 2), ("maxItems", 2)):
        document = {"type": "array", "items": {"type": "integer"}, rule: limit}
        state.declare(Schema(rule, prefix=f"{rule}/", document=document))
        with pytest.raises(SchemaViolationError, match=f"{rule} is checked by set alone"):
            state.append(f"{rule}/1", 1)
        state.set(f"{rule}/1", [1, 2])
        with pytest.raises(SchemaViolationError):
            state.set(f"{rule}/1", {"minItems": [1], "maxItems": [1, 2, 3]}.get(rule, [1, 1]))
        with pytest.raises(SchemaViolationError, match=f"{rule} is checked by set alone"):
            state.trim(f"{rule}/1", keep_last=1)
        assert state.get(f"{rule}/1") == [1, 2]
    apart = {"$ref": "#/$defs/all", "$defs": {"all": {"anyOf": [True, {"maxItems": 1}]}}}
    state.declare(Schema("apart", prefix="apart/", document=apart))
    with pytest.raises(SchemaViolationError, match="maxItems is checked by set alone"):
        state.append("apart/1", 1)


ROUND = {"a/b": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a~1b"}}


@pytest.mark.spec("L6")
def test_what_cannot_be_a_schema_is_refused_when_it_is_made() -> None:
    itself: dict[str, Any] = {"type": "object"}
    itself["properties"] = {"a": itself}
    for document, said in (
        (itself, "not part of itself"),
        ({"type": "strange"}, "no JSON Schema"),
        ({"pattern": "("}, "no JSON Schema"),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        ({"$ref": "#"}, "'#' leads back to itself"),
        ({"properties": {"a": {"$ref": "#/$defs/a~1b"}}, "$defs": ROUND}, "leads back to itself"),
        ({"items": {"pattern": "a" * 201}}, "a pattern has at most 200 characters"),
        ({"patternProperties": {"a" * 201: {}}}, "a pattern has at most 200 characters"),
        ({"$ref": "https://schemas.invalid/a"}, "Retrieval is disabled"),
        ({"$ref": "file:///etc/hostname"}, "Retrieval is disabled"),
    ):
        with pytest.raises(InvalidSchemaError, match=said.replace("$", r"\$")):
            Schema("a", document=document)
    for given, said in (
        ({"fields": {}, "document": {}}, "one of them"),
        ({}, "one of them"),
        ({"fields": {}, "version": 0}, "1 or more"),
        ({"fields": {}, "version": True}, "1 or more"),
        ({"fields": {}, "compatible": "sideways"}, "none, backward"),
        ({"fields": {"a": "text"}}, "a field is Text"),
        ({"fields": {}, "steps": ["x"]}, "steps are made like"),
        ({"fields": {}, "version": 3, "steps": [Step(1, 2)]}, "no step from version 2 towards 3"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            Schema("a", **given)
    with pytest.raises(InvalidSchemaError, match="no slash"):
        Schema("a/b", fields={})
    tree = {"type": "object", "properties": {"in": {"$ref": "#"}}, "required": ["name"]}
    assert Schema("t", document=tree).checker.problems({"name": 1, "in": {}}) == [
        'in: "name" is a required property'
    ]


@pytest.mark.spec("L6")
def test_the_longest_prefix_counts_and_what_is_not_asked_for_is_free(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a/old", 1)
    state.declare(
        Schema("all", prefix="", document={"type": "integer"}),
        Schema("texts", prefix="a/", document={"type": "string"}),
        Ephemeral("tmp/"),
    )
    state.set("b", 1)
    state.set("a/b", "x")
    state.set("tmp/x", [])  # lives in this process only
    for key, value in (("b", "x"), ("a/b", 1)):
        with pytest.raises(SchemaViolationError):
            state.set(key, value)
    assert state.get("a/old") == 1, "what was there before is left as it is"
    assert Migrations(store).status("*", "all")[0].versions == {1: 1}
    assert Migrations(store).status("*", "texts")[0].versions == {0: 1, 1: 1}
    state.undeclare(Schema("texts", prefix="a/", document={"type": "string"}))
    state.set("a/b", 5)


@pytest.mark.spec("L6")
def test_an_older_program_may_declare_its_version_again_and_the_newer_one_stays(
    place: Place,
) -> None:
    first, newer = (
        Schema("profile", version, prefix="p/", fields={"a": Text(optional=True), **more})
        for version, more in ((1, {}), (2, {"b": Text(optional=True)}))
    )
    state = place.open().agent("1")
    for one in (first, newer):
        state.declare(one)
    schemas._known.clear()
    older = place.open().agent("1")
    head = len(older.log(limit=None))
    older.declare(first)
    assert len(older.log(limit=None)) == head
    older.declare(first, Lookup("by_a", "p/", {"a": "a"}))
    assert {"by_a", "profile"} <= {one.name for one in older.declared()}
    older.set("p/1", {"b": "the newer one counts"})
    with pytest.raises(InvalidSchemaError, match="version 2 of profile is declared"):
        older.declare(Schema("profile", 1, prefix="p/", fields={}))


def test_a_document_that_is_lost_is_told_and_declared_again(store: sync.Store) -> None:
    state = store.agent("1")
    state.declare(PROFILE)
    line = holdfast.store.inner.handle_of(state)
    parts = holdfast.store.inner.own_change(state)
    parts.part(line).delete("$schema/profile/1")
    holdfast.store.inner.run_parts(parts)
    schemas._known.clear()
    with pytest.raises(DamagedRecordError, match="declare it again"):
        state.set("profiles/1", GOOD)
    state.declare(PROFILE)
    schemas._known.clear()
    state.set("profiles/1", GOOD)


@pytest.mark.spec("L6")
def test_exports_backups_and_reverts_take_versions_along(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("profiles/old", 1)  # older than the schema
    state.declare(PROFILE, Schema("list", prefix="l/", of=list[int]))
    state.set("profiles/1", GOOD, ttl=1000)
    state.extend("l/1", range(2000))
    state.declare(Schema("profile", 2, prefix="profiles/", document=PROFILE.document))
    entry = state.set("profiles/1", {**GOOD, "user_id": "u2"})
    state.revert(entries=[entry])
    versions = Migrations(store).status("agent:1", "profile")[0].versions
    assert versions == {0: 1, 1: 1}, "what was put back is of the version that it was of"
    state.checkpoint("all")
    export_checkpoint(state, tmp_path / "file", plain=True)
    import_checkpoint(store.agent("2"), tmp_path / "file")
    import_checkpoint(state, tmp_path / "file")
    folder = tmp_path / "backups"
    backups = sync.backup.Backups(store, folder)
    kept = backups.create()
    target = f"sqlite:{tmp_path / 'restored.db'}"
    backups.restore(kept.id, target)
    schemas._known.clear()
    options = {"key": place.key, "signer": place.signer}
    with sync.open(target, **options) as restored:
        for owner, copy in ((store, "agent:2"), (store, "agent:1"), (restored, "agent:1")):
            found = Migrations(owner)
            assert found.status(copy, "profile")[0].versions == versions
            assert found.status(copy, "list")[0].versions == {1: 1}
            with pytest.raises(SchemaViolationError):
                owner.scope(copy).set("profiles/1", {})
        assert restored.verify().ok
    assert store.verify().ok


@pytest.mark.spec("L6")
def test_what_is_sealed_for_a_subject_is_checked_and_migrated_sealed(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state = store.agent("1")
    state.declare(Schema("p", prefix="p/", fields={"a": Text()}))
    state.set("p/1", {"a": "x"}, subject="user:1")
    with pytest.raises(SchemaViolationError, match='a: it is not of type "string"'):
        state.set("p/1", {"a": 1}, subject="user:1")
    step = Step(1, 2, [sync.schemas.Move("a", "b")])
    state.declare(Schema("p", 2, prefix="p/", fields={"b": Text()}, steps=[step]))
    assert Migrations(store).run("*", "p")[0].status == "completed"
    assert state.get("p/1") == {"b": "x"}
    store.erase_subject("user:1")
    with pytest.raises(ErasedError):
        state.get("p/1")
    place.close()


@pytest.mark.spec("L6")
def test_a_value_of_a_schema_is_proven_and_replicated(plain: Place, tmp_path: Path) -> None:
    store = plain.open()
    state = store.agent("1")
    state.declare(PROFILE)
    state.set("profiles/1", GOOD)
    state.checkpoint("safe")
    options = argparse.Namespace(pin=set(), require=1)
    proof = state.prove("profiles/1").to_bytes()
    assert holdfast_verify.verdict("file", proof, options, [])["value"] == GOOD
    url = f"sqlite:{tmp_path / 'replica.db'}"
    sync.replicas.Replicas(store, [url]).sync()
    schemas._known.clear()
    with sync.open(url, read_only=True) as copy:
        assert Schemas(copy).list() == [PROFILE]
        assert Migrations(copy).run("*", "profile", dry_run=True)[0].versions == {1: 1}


@pytest.mark.spec("L6")
def test_what_a_merge_makes_of_two_sides_is_checked(store: sync.Store) -> None:
    state = store.agent("1")
    three = {"type": "object", "maxProperties": 3, "required": ["a"]}
    state.declare(Schema("p", prefix="p/", document=three))
    state.set("p/1", {"a": 1, "b": 1}, ttl=1000)
    trial, other = state.fork("trial"), state.fork("other")
    state.set("p/1", {"a": 1, "b": 1, "c": 1}, ttl=1000)
    trial.set("p/1", {"a": 1, "b": 1, "d": 1}, ttl=2000)
    other.set("p/1", {"a": 1, "b": 2}, ttl=1000)
    with pytest.raises(SchemaViolationError, match="more than 3 properties"):
        state.merge("trial")
    state.declare(Schema("p", 2, prefix="p/", document={**three, "maxProperties": 4}))
    other.set("p/2", {"a": 1})
    state.merge("other")
    assert state.get("p/1") == {"a": 1, "b": 2, "c": 1}
    versions = Migrations(store).status("*", "p")[0].versions
    assert versions == {1: 1, 2: 1}, "what was made of both is new, what came along is as it was"
