"""Protection: fields sealed or hashed inside values, and what people are not shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import (
    GateRefusedError,
    InvalidInputError,
    InvalidValueError,
    MergeConflictError,
)
from holdfast.seal.codec import Typed
from holdfast.seal.subject_keys import ERASED, SEALED
from holdfast.sync.access import CARD, SSN, Access, Protection
from holdfast.sync.checkpoints import export_checkpoint

PROFILE = {
    "user_id": "u-17",
    "password": "hunter2",
    "deep": [{"api_key": {"id": 1, "key": "k"}}, {"other": 1}],
    "note": "ssn 123-45-6789, card 4111111111111111.",
}


@pytest.fixture(params=["memory", "sqlite"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for an encrypted store."""
    made = Place(request.param, tmp_path, sealed=True)
    yield made
    made.close()


@pytest.fixture
def opened(sealed: Place) -> sync.Store:
    """An encrypted store."""
    return sealed.open()


def protect(store: sync.Store) -> Protection:
    """Protection as the guide has it."""
    return Protection(store, redact=[SSN, CARD], encrypt=["password", "api_key"], hash=["user_id"])


def stored(state: sync.State, key: str) -> Any:
    """A value as it lies there, sealed parts closed."""
    handle = state._handle
    line = handle.reader.now()
    slot = line.slot(key)
    return line.ledger.value(slot.ref, slot.location, handle.core.codec.plain_reader)


@pytest.mark.spec("L9", "L140", "L141", "L144", "L145")
def test_fields_are_sealed_and_hashed_inside_the_value_and_read_back_whole(
    opened: sync.Store,
) -> None:
    protect(opened)
    state = opened.agent("a")
    state.set("profile", PROFILE)
    state.append("people", PROFILE)
    state.set_many({"one": PROFILE})
    with opened.change() as change:
        change[state].set("two", {"in": {"in": [PROFILE]}})
    found = state.get("profile")
    assert found == {**PROFILE, "user_id": found["user_id"]}, "who may read it gets it whole"
    assert list(found) == list(PROFILE), "in order"
    assert state.tail("people", 1)[0]["password"] == "hunter2"
    assert state.get("two")["in"]["in"][0]["deep"] == PROFILE["deep"]
    inside = stored(state, "profile")
    for part in (inside["password"], inside["deep"][0]["api_key"]):
        assert (type(part), part.name) == (Typed, SEALED)
    assert inside["note"] == PROFILE["note"], "redacting is never done on the way in"
    assert inside["user_id"].startswith("hashed:")
    assert "u-17" not in inside["user_id"]
    opened.erase_subject("protected/agent:a")
    left = state.get("profile")
    assert left["password"] is ERASED, "sealed under a key of its own"
    assert left["note"] == PROFILE["note"]
    assert opened.verify().findings == []


@pytest.mark.spec("L145")
def test_a_hash_is_equal_within_a_scope_and_in_no_other(plain: Place) -> None:
    store = plain.open()
    protection = Protection(store, hash=["user_id"])
    a, b = store.agent("a"), store.agent("b")
    for state in (a, b):
        state.set("x", {"user_id": "u-17"})
        state.set("y", {"user_id": "u-17", "z": 1})
        state.set("other", {"user_id": "u-18"})
        state.set("number", {"user_id": 17, "none": {"user_id": None}})
    hashed = a.get("x")["user_id"]
    assert a.get("y")["user_id"] == hashed == protection.hashed("u-17", "agent:a")
    assert a.get("other")["user_id"] != hashed
    assert b.get("x")["user_id"] != hashed
    assert a.get("number")["user_id"] != protection.hashed("17", "agent:a")
    assert a.get("number")["none"] == {"user_id": None}
    # What is read and written back stays what it was.
    a.update("y", lambda value: {**value, "z": 2})
    a.set("copy", a.get("y"))
    assert a.get("y") == {"user_id": hashed, "z": 2} == a.get("copy")
    assert plain.reopen().agent("a").get("x") == {"user_id": hashed}


@pytest.mark.spec("L142", "L143", "X49")
def test_redaction_must_not_destroy_data_the_owner_needs(
    opened: sync.Store, tmp_path: Path
) -> None:
    assert SSN == r"\b\d{3}-\d{2}-\d{4}\b"
    assert CARD == r"\b\d{16}\b"
    protection = protect(opened)
    state = opened.agent("a")
    state.set("profile", {**PROFILE, "note": ""})
    before = state.checkpoint("before")
    with opened.acting(reason="asked by 123-45-6789"):
        state.set("profile", PROFILE)
        state.set("number", 4111111111111111)
    assert state.get("profile")["note"] == PROFILE["note"]
    assert state.get("number") == 4111111111111111
    assert state.at(state.log()[0]).get("profile")["note"] == PROFILE["note"]
    shown = "ssn [redacted], card [redacted]."
    changes = {one.path: one.after for one in state.diff(before)}
    assert changes == {"profile.note": shown, "number": "[redacted]"}
    assert PROFILE["note"] in {one.after for one in state.diff(before, reveal=True)}
    state.update("profile", lambda value: {**value, "password": "hunter3"})
    told = str(state.diff(before))
    assert "hunter" not in told
    assert "profile.password" in told, "that it changed is told"
    assert {one.path: one.value for one in state.blame("profile")}["profile.note"] == shown
    assert "hunter" not in str(state.blame("profile"))
    assert "123-45" not in str(state.log())
    assert "asked by [redacted]" in str(state.log())
    safe = state.checkpoint("of 123-45-6789", description="4111111111111111", metadata=PROFILE)
    export_checkpoint(state, tmp_path / "out.json", at=safe, format="json", plain=True)
    document = (tmp_path / "out.json").read_text()
    assert "of [redacted]" in document
    assert "123-45" not in document
    assert "4111" not in document
    assert "hunter" not in document
    assert "[redacted]" in document
    fork = state.fork("other", at=safe)
    fork.update("profile", lambda value: {**value, "password": "theirs", "note": "321-54-9876"})
    state.update("profile", lambda value: {**value, "password": "hunter4", "note": "ours"})
    dry = state.merge("other", strategy="theirs", dry_run=True)
    with pytest.raises(MergeConflictError) as refused:
        state.merge("other")
    for told in (str(dry), str(dry.diff), *map(repr, refused.value.conflicts)):
        assert "hunter" not in told
        assert "theirs'" not in told
        assert "321-54" not in told
    sides: list[Any] = []
    state.merge("other", strategy=lambda one: sides.append(one.theirs) or one.ours)
    assert {"theirs", "321-54-9876"} <= set(sides), "who decides sees what it is about"
    state.restore(safe)
    protection.stop()
    assert PROFILE["note"] in {one.after for one in state.diff(before)}
    state.restore(before)
    state.restore(safe)
    assert state.get("profile")["note"] == PROFILE["note"], "the owner's data is whole"


@pytest.mark.spec("L146")
@pytest.mark.parametrize("name", ["api key", "2fa", "db.password", "it's", "a[0]"])
def test_a_conflict_hides_a_field_whatever_its_name(opened: sync.Store, name: str) -> None:
    Protection(opened, encrypt=[name])
    state = opened.agent("a")

    def put(there: sync.State, text: str) -> None:
        there.set("profile", {"in": [{name: {"id": f"secret {text}"}}], "open": text})

    put(state, "base")
    fork = state.fork("other")
    put(state, "ours")
    put(fork, "theirs")
    with pytest.raises(MergeConflictError) as refused:
        state.merge("other")
    dry = state.merge("other", strategy="theirs", dry_run=True)
    for conflicts in (refused.value.conflicts, dry.conflicts):
        assert [one.ours for one in conflicts] == ["[redacted]", "ours"]
        assert "secret" not in str([(one.base, one.ours, one.theirs) for one in conflicts])
    assert "secret" not in f"{dry} {dry.diff}"


def test_protect_value_protects_one_value(opened: sync.Store) -> None:
    protection = protect(opened)
    made = protection.protect_value(PROFILE, "agent:a")
    assert made["password"].name == SEALED
    assert made["user_id"] == protection.hashed("u-17", "agent:a")
    assert made["note"] == PROFILE["note"]
    assert PROFILE["password"] == "hunter2", "what was given is not changed"
    protection.stop()
    opened.agent("a").set("later", made)
    assert opened.agent("a").get("later")["password"] == "hunter2"
    assert protection.redacted(PROFILE) == {
        "user_id": "u-17",
        "password": "[redacted]",
        "deep": [{"api_key": "[redacted]"}, {"other": 1}],
        "note": "ssn [redacted], card [redacted].",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("123-45-6789", "[redacted]"),
        ("a 123-45-6789 b", "a [redacted] b"),
        ("1123-45-6789", "1123-45-6789"),
        ("123-45-67890", "123-45-67890"),
        ("4111111111111111", "[redacted]"),
        ("41111111111111111", "41111111111111111"),
        ("4111 1111 1111 1111", "4111 1111 1111 1111"),
        ("x" * 5000 + " 123-45-6789 " + "y" * 9000, "x" * 5000 + " [redacted] " + "y" * 9000),
    ],
)
def test_patterns_fit_what_they_say_in_texts_of_any_length(
    store: sync.Store, text: str, shown: str
) -> None:
    assert Protection(store, redact=[SSN, CARD]).redacted({"in": [text]}) == {"in": [shown]}


@holdfast.register(name="test_protection.Account")
@dataclass
class Account:
    """A class of a user's."""

    name: str
    password: str


def test_fields_of_objects_are_fields(opened: sync.Store) -> None:
    protect(opened)
    state = opened.agent("a")
    state.set("account", Account("ann", "hunter2"))
    assert state.get("account") == Account("ann", "hunter2")
    assert stored(state, "account").value["password"].name == SEALED


def test_a_value_that_cannot_be_stored_is_refused_with_its_place(opened: sync.Store) -> None:
    protect(opened)
    with pytest.raises(InvalidValueError, match=r"agent:a.*bad"):
        opened.agent("a").set("bad", {"password": object()})


def test_in_a_plain_store_nothing_is_sealed_and_the_way_is_told(plain: Place) -> None:
    store = plain.open()
    with pytest.raises(InvalidInputError, match="create one with key="):
        Protection(store, encrypt=["password"])
    store.agent("a").set("k", {"password": 1})
    assert store.agent("a").get("k") == {"password": 1}, "and nothing was put in front"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"redact": ["("]}, "no regular expression"),
        ({"redact": ["(a+)+$"]}, "too many ways"),
        ({"redact": SSN}, "a list"),
        ({"hash": [""]}, "hash"),
        ({"hash": ["x"], "encrypt": ["x"]}, "not both"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    opened: sync.Store, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInputError, match=told):
        Protection(opened, **given)
    opened.agent("a").set("k", {"x": 1})
    assert opened.agent("a").get("k") == {"x": 1}


def test_who_has_a_part_of_a_store_neither_protects_nor_stops_it(opened: sync.Store) -> None:
    protection = protect(opened)
    access = Access(opened)
    access.grant("ann", "agent:a", "admin")
    mine = access.as_("ann")
    for given in ({"hash": ["x"]}, {"redact": [SSN]}):
        with pytest.raises(holdfast.errors.AccessDeniedError):
            Protection(mine, **given)
    mine.agent("a").set("profile", PROFILE)
    assert stored(opened.agent("a"), "profile")["password"].name == SEALED
    assert mine.agent("a").get("profile")["password"] == "hunter2"
    protection.stop()
    mine.agent("a").set("after", PROFILE)
    assert opened.agent("a").get("after") == PROFILE


def test_one_that_redacts_alone_takes_nothing_from_one_that_seals(opened: sync.Store) -> None:
    first = Protection(opened, encrypt=["password"])
    state = opened.agent("a")
    state.set("profile", PROFILE)
    Protection(opened, redact=[SSN]).stop()
    state.update("profile", lambda value: {**value, "note": ""})
    assert stored(state, "profile")["password"].name == SEALED
    assert state.get("profile")["password"] == "hunter2"
    first.stop()


def test_scopes_with_long_names_are_sealed_for_a_subject_each(opened: sync.Store) -> None:
    Protection(opened, encrypt=["password"])
    for end in "ab":
        opened.agent("x" * 255 + end).set("profile", PROFILE)
    assert len(opened.subjects()) == 2


def test_a_gate_behind_sees_no_open_field(opened: sync.Store) -> None:
    protect(opened)

    class Looking(holdfast.Gate):
        def before(self, request: Any) -> None:
            if "hunter2" in repr([one.value for one in request.operations]):
                raise GateRefusedError("it is open")

    opened.add_gate(Looking())
    opened.agent("a").set("profile", PROFILE)


def test_in_the_event_loop_it_is_the_same() -> None:
    async def run() -> None:
        from holdfast.access import Protection as Async

        async with holdfast.open("memory:", key="passphrase:correct horse battery") as store:
            protection = Async(store, redact=[SSN], encrypt=["password"], hash=["user_id"])
            state = store.agent("a")
            await state.set("profile", PROFILE)
            found = await state.get("profile")
            assert found["password"] == "hunter2"
            assert found["user_id"] == await protection.hashed("u-17", "agent:a")
            await state.update("profile", lambda value: {**value, "password": "other"})
            assert (await state.get("profile"))["password"] == "other"
            await protection.stop()

    asyncio.run(run())


@pytest.mark.spec("X42")
@pytest.mark.parametrize(
    ("key", "class_"),
    [
        ("temp:draft", "ephemeral"),
        ("cache:page", "ephemeral"),
        ("my_secret", "sensitive"),
        ("api_token", "sensitive"),
        ("credential/aws", "sensitive"),
        ("tokenizer_settings", "standard"),
        ("external:feed", "external"),
        ("user_input:1", "external"),
        ("plan", "standard"),
    ],
)
def test_the_class_of_a_key_follows_from_whole_words_of_its_name(
    store: sync.Store, key: str, class_: str
) -> None:
    state = store.agent("a")
    state.set(key, 1)
    if class_ == "ephemeral":  # a name alone never lowers what a write survives
        assert state.item(key).class_ == "standard"  # type: ignore[union-attr]
        state.delete(key)
        state.declare(holdfast.Ephemeral("temp:"), holdfast.Ephemeral("cache:"))
        state.set(key, 1)
    item = state.item(key)
    assert item is not None
    assert item.class_ == class_
