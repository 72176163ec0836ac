"""Subjects: what is sealed for a person, and what is left when that person is erased."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
import holdfast_verify
from holdfast import sync
from holdfast.errors import (
    ChangeIdError,
    Conflict,
    ErasedError,
    GateRefusedError,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    KeyMissingError,
    MissingError,
    OutcomeUnknown,
    ReadOnlyError,
    StateIntegrityError,
    Unavailable,
)
from holdfast.seal.subject_keys import drop_subject, holds_subject, says_erased
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import entry as entries
from holdfast.store.open import open_core

WHO, OTHER = "user:42", "user:43"
SECRET = "the words that nobody may find again"


@pytest.fixture(params=["memory", "sqlite"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    place = Place(request.param, tmp_path, sealed=True)
    yield place
    place.close()


def fill(state: sync.State) -> None:
    """Values for two persons and for nobody, short and long, whole and as items of a list."""
    state.set("open", "for all")
    state.set("short", SECRET, subject=WHO)
    state.set("long", [f"{SECRET} {n}" for n in range(3000)], subject=WHO)
    state.set("text", SECRET * 2000, subject=WHO)
    state.set("other", "of another", subject=OTHER)
    state.append("talk", {"said": "by nobody"})
    state.append("talk", {"said": SECRET}, subject=WHO)
    state.extend("talk", [{"said": n} for n in range(100)], subject=OTHER)


def ring_of(place: Place) -> Storage:
    return open_storage(f"{place.url}.keys", durability="normal")


def test_what_goes_in_comes_out(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    fill(state)
    values = [None, 1, 1 << 80, 1.5, "", b"x" * 40_000, {"a": [1, {"b": 2}]}, [], {}]
    for number, value in enumerate(values):
        state.set(f"v/{number}", value, subject=WHO)
    for view in (
        state,
        sealed.open().agent("a"),
        state.fork("trial"),
        state.at(state._handle.place()[2]),
    ):
        assert [view.get(f"v/{n}") for n in range(len(values))] == values
        assert view.get("short") == SECRET
        assert view.get("long")[-1] == f"{SECRET} 2999"
        assert view.get("text") == SECRET * 2000
        assert view.get("talk")[:2] == [{"said": "by nobody"}, {"said": SECRET}]
        assert view.tail("talk", 1) == [{"said": 99}]
        assert view.tail("long", 1) == [f"{SECRET} 2999"]
        assert (view.length("talk"), view.length("long")) == (102, 3000)
        assert view.get("long", plain=True)[0] == f"{SECRET} 0"
        assert dict(view.items("sh")) == view.get_many(["short"]) == {"short": SECRET}
    assert store.subjects() == [WHO, OTHER]
    assert store.subjects(prefix="user:43") == [OTHER]
    assert store.keyring().subjects == 2
    report = store.verify()
    assert (report.findings, report.subjects, report.subjects_erased) == ([], 2, 0)


def test_the_same_value_is_the_same_record(sealed: Place) -> None:
    state = sealed.open().agent("a")
    state.set("k", SECRET, subject=WHO)
    root = state.root()
    state.set("k", "other", subject=WHO)
    state.set("k", SECRET, subject=WHO)
    assert state.root() == root
    assert not state.diff(1)
    state.set("k", SECRET, subject=OTHER)
    assert state.root() != root


def test_registered_objects(sealed: Place) -> None:
    registry = holdfast.Registry()

    @dataclasses.dataclass
    class Person:
        name: str
        notes: list[str]

    registry.register(Person, name="person")
    state = sealed.open(registry=registry).agent("a")
    person = Person("Ada", ["n" * 30] * 100)
    state.set("p", person, subject=WHO)
    assert state.get("p") == person
    assert state.get("p", plain=True).name == "person"
    with pytest.raises(InvalidInputError, match=r"begin with \$"):
        registry.register(Person, name="$sealed")


def test_after_the_erase(sealed: Place) -> None:
    store, beside = sealed.open(), sealed.open()
    state = store.agent("a")
    fill(state)
    safe = state.checkpoint("safe")
    trial = state.fork("trial")
    assert beside.agent("a").get("short") == SECRET
    result = store.erase_subject(WHO)
    assert result.subject == WHO
    assert result.key_removed
    assert any("rotate_master" in text for text in result.open)
    state.restore(safe)
    state.merge(trial)
    for view in (
        state,
        trial,
        state.at(safe),
        beside.agent("a"),
        sealed.open().agent("a"),
    ):
        for key in ("short", "long", "text"):
            with pytest.raises(ErasedError, match=rf"agent:a: the value of '{key}' .* erased"):
                view.get(key, "default")
        with pytest.raises(ErasedError):
            view.get("short", plain=True)
        assert view.get("other") == "of another"
        assert view.get("talk")[:3] == [{"said": "by nobody"}, holdfast.ERASED, {"said": 0}]
        assert view.slice("talk", 1, 2) == [holdfast.ERASED]
        assert view.keys() == ["long", "open", "other", "short", "talk", "text"]
        assert dict(view.items())["short"] is holdfast.ERASED
        assert view.get_many(["short", "open"]) == {"short": holdfast.ERASED, "open": "for all"}
        item = view.item("short")
        assert item is not None
        assert (item.value, item.version > 0) == (holdfast.ERASED, True)
        assert view.exists("short")
    assert store.subjects() == [OTHER]
    report = store.verify()
    assert (report.findings, report.subjects, report.subjects_erased) == ([], 1, 1)
    with pytest.raises(ErasedError) as told:
        state.get("short")
    assert WHO not in str(told.value)


def test_bytes_read_in_pieces_after_the_erase(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.set("raw", b"secret" * 10, subject=WHO)
    assert state.read_range("raw", 0, 6) == b"secret"
    store.erase_subject(WHO)
    for read in (lambda: state.read_range("raw"), lambda: state.open_read("raw")):
        with pytest.raises(ErasedError, match=r"agent:a: the value of 'raw' .* erased"):
            read()


def test_what_differs_is_told_without_its_content(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.set("k", {"a": 1, "b": SECRET}, subject=WHO)
    state.set("k", {"a": 2, "b": SECRET}, subject=WHO)
    assert [(c.path, c.before, c.after) for c in state.diff(1)] == [("k.a", 1, 2)]
    store.erase_subject(WHO)
    (change,) = state.diff(1)
    assert (change.path, change.kind) == ("k", "changed")
    assert change.before is change.after is holdfast.ERASED
    assert [entry.kinds for entry in state.log()] == [("set",), ("set",)]


def test_the_name_can_be_used_again(sealed: Place) -> None:
    store, beside = sealed.open(), sealed.open()
    for handle in (store, beside):
        handle.agent("a").set("k", SECRET, subject=WHO)
    store.erase_subject(WHO)
    # Also who had the key in memory begins anew, without an error: the erase is over.
    beside.agent("a").set("new", "later", subject=WHO)
    store.agent("a").append("list", "later", subject=WHO)
    for handle in (store, beside, sealed.open()):
        state = handle.agent("a")
        assert (state.get("new"), state.get("list")) == ("later", ["later"])
        with pytest.raises(ErasedError):
            state.get("k")
        with pytest.raises(ErasedError):
            state.at(1).get("k")
        assert handle.subjects() == [WHO]
    store.erase_subject(WHO)
    with pytest.raises(ErasedError):
        beside.agent("a").get("new")
    with pytest.raises(MissingError, match="subjects"):
        store.erase_subject(WHO)
    assert store.verify().findings == []


def test_nobody_writes_under_an_erased_key(sealed: Place, monkeypatch: Any) -> None:
    """A change that was built before the erase is refused when it is committed after it."""
    store, beside = sealed.open(), sealed.open()
    state = beside.agent("a")
    state.set("k", 1, subject=WHO)
    core = beside._core
    run = type(core).run

    def late(self: Any, change: Any) -> Any:
        if self is core:
            monkeypatch.undo()
            store.erase_subject(WHO)
        return run(self, change)

    monkeypatch.setattr(type(core), "run", late)
    with pytest.raises(Conflict, match="erased meanwhile"):
        state.set("k", 2, subject=WHO)
    assert state.item("k").version == 1  # type: ignore[union-attr]
    state.set("k", 3, subject=WHO)
    assert state.get("k") == 3
    monkeypatch.setattr(type(core), "run", late)
    with pytest.raises(Conflict), state.change() as change:
        change.set("k", 4)
        change.append("l", 5, subject=WHO)
    assert (state.keys(), state.get_many(["k"])) == (["k"], {"k": holdfast.ERASED})
    state.set("k", 1, subject=WHO)
    monkeypatch.setattr(type(core), "run", late)
    with pytest.raises(ErasedError):  # it is tried again, on what is there now
        state.update("k", lambda value: value + 1)
    assert beside.verify().findings == []


def test_others_of_the_group_are_not_refused(sealed: Place, monkeypatch: Any) -> None:
    async def work() -> list[Any]:
        async with holdfast.open(sealed.url, **sealed.options()) as store:
            state = store.agent("a")
            await state.set("k", 1, subject=WHO)
            with sync.open(sealed.url, **sealed.options()) as other:
                core = store._core
                turn = core.committer._try

                def late(group: Any, **more: Any) -> bool:
                    monkeypatch.undo()
                    other.erase_subject(WHO)
                    return turn(group, **more)

                monkeypatch.setattr(core.committer, "_try", late)
                return await asyncio.gather(
                    state.set("a", 1),
                    state.set("k", 2, subject=WHO),
                    state.set("b", 1),
                    return_exceptions=True,
                )

    first, second, third = asyncio.run(work())
    assert isinstance(second, Conflict)
    assert isinstance(first, int)
    assert isinstance(third, int)
    assert sealed.open().agent("a").get_many(["a", "b"]) == {"a": 1, "b": 1}


def test_update_keeps_the_subject(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.set("k", {"n": 1}, subject=WHO)
    assert state.update("k", lambda value: {**value, "n": 2}) == {"n": 2}
    state.append("list", "open")
    state.append("list", "closed", subject=WHO)
    with pytest.raises(InvalidInputError, match="write them back open"):
        state.update("list", lambda value: value)
    with pytest.raises(InvalidInputError, match="as a whole"):
        state.append("k", 1)
    state.trim("list", keep_last=1)
    assert state.get("list") == ["closed"]
    store.erase_subject(WHO)
    with pytest.raises(ErasedError):
        state.update("k", lambda value: value)
    assert state.update("new", lambda value: value + 1, 1) == 2
    assert state.get("list") == [holdfast.ERASED]
    state.append("list", "goes on")
    assert state.get("list") == [holdfast.ERASED, "goes on"]
    with pytest.raises(InvalidValueError, match="leave it out"):
        state.set("copy", state.get("list"))


def test_an_update_does_not_bring_back_what_was_erased(sealed: Place) -> None:
    store, beside = sealed.open(), sealed.open()
    state = store.agent("a")
    state.set("k", SECRET, subject=WHO)

    def change(value: str) -> str:
        beside.erase_subject(WHO)
        beside.agent("a").set("new", 1, subject=WHO)
        return value + "!"

    with pytest.raises(ErasedError):
        state.update("k", change)
    assert state.get_many(["k", "new"]) == {"k": holdfast.ERASED, "new": 1}


def plain_rows(store: sync.Store, state: sync.State) -> bytes:
    """All that the rows of a scope hold, and the store's own, once they are opened."""
    core = store._core
    line = core.current(state.scope)
    assert line is not None
    ledger, found = line.ledger, []
    for kind in (b"E", b"V", b"S", b"N", b"T", b"I", b"D"):
        for key, row in rows_of(core.storage, kind):
            if kind == b"E":
                envelope = entries.split_row(row)[0]
                start = len(envelope.data)
                found.append(ledger.seal.open(ledger.ad(key), row, envelope.writer, start))
            else:
                found.append((core if kind in b"ID" else ledger).open_row(key, row))
    return b"".join(found)


def test_who_has_the_key_of_the_scope_finds_no_plain_text(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.declare(holdfast.Lookup("all", "", "said"))
    fill(state)
    state.set("inline", "Ada!", subject=WHO)
    state.set("list", [[SECRET] * 3] * 100, subject=WHO)
    state.set("list", [[SECRET] * 3] * 101, subject=WHO)
    with state.change(id="once") as change:
        change.set("said", {"said": SECRET}, subject=WHO)
    state.update("short", lambda value: value + value)
    trial = state.fork("trial", at=state.checkpoint("safe"))
    trial.append("talk", SECRET, subject=WHO)
    state.merge(trial)
    for number in range(300):
        state.set(f"n/{number % 7}", f"open {number}")
    state.restore("safe")
    assert state.get("inline") == "Ada!"
    held = plain_rows(store, state)
    assert b"for all" in held
    assert b"open 299" in held
    assert b"by nobody" in held
    assert SECRET.encode() not in held
    assert b"Ada!" not in held
    assert b"of another" not in held


def test_changes(sealed: Place) -> None:
    store = sealed.open()
    a, b = store.agent("a"), store.agent("b")
    with store.change(id="once") as change:
        change[a].set("k", SECRET, subject=WHO)
        change[b].extend("list", [1, 2], subject=OTHER)
        assert change[a].get("k") == SECRET
    for _ in range(2):  # the same content, also though it is sealed
        with store.change(id="once") as change:
            change[a].set("k", SECRET, subject=WHO)
            change[b].extend("list", [1, 2], subject=OTHER)
        assert change.entries[0].repeated
    for subject in (None, OTHER):
        with pytest.raises(ChangeIdError), store.change(id="once") as change:
            change[a].set("k", SECRET, subject=subject)
            change[b].extend("list", [1, 2], subject=OTHER)
    store.erase_subject(WHO)
    with a.change() as part:
        with pytest.raises(ErasedError):
            part.get("k")
        assert part.exists("k")


def test_a_change_sent_again_after_the_erase_is_found_and_brings_nobody_back(
    sealed: Place,
) -> None:
    store = sealed.open()
    state = store.agent("a")

    def send(value: str = "Ada") -> bool:
        with state.change(id="c1") as change:
            change.set("customer", value, subject=WHO)
            change.append("log", "done")
        return change.repeated

    assert [send(), send()] == [False, True]
    store.erase_subject(WHO)
    assert send()
    assert send("another value")  # nobody can tell any more
    assert store.subjects() == []
    with pytest.raises(ChangeIdError, match="with other content"), state.change(id="c1") as change:
        change.set("customer", "Ada", subject=WHO)
    assert state.get("log") == ["done"]
    assert store.subjects() == []
    store.erase("agent:a")
    assert not send()  # of the new scope
    assert store.agent("a").get("customer") == "Ada"
    sealed.close()


def test_for_what_is_refused_no_subject_is_made(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")

    class No(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            raise GateRefusedError("no")

    with pytest.raises(InvalidValueError):
        state.set("k", object(), subject=WHO)
    with pytest.raises(InvalidValueError):
        state.extend("k", [1, object()], subject=WHO)
    store.add_gate(No())
    with pytest.raises(GateRefusedError), state.change(id="c1") as change:
        change.set("k", 1, subject=WHO)
    assert store.subjects() == []
    sealed.close()


def test_undoing_copies_what_is_sealed(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.set("k", "first", subject=WHO)
    before = state.root()
    with store.acting("t", correlation="run"):
        state.set("k", "second", subject=WHO)
        state.set("l", "x" * 50_000, subject=OTHER)
    state.revert(correlation="run")
    assert (state.get("k"), state.exists("l"), state.root()) == ("first", False, before)
    trial = state.fork("trial")
    trial.set("k", "third", subject=WHO)
    state.set("m", 1)
    state.merge(trial)
    assert state.get("k") == "third"
    # Read in plain form and without its class, or not at all, it is never written back open.
    store.erase_subject(WHO)
    assert state.get_many(["k", "m"]) == {"k": holdfast.ERASED, "m": 1}
    state.restore(2)
    state.revert(entries=[state._handle.place()[2]])
    with pytest.raises(ErasedError):
        state.get("k")
    assert store.verify().findings == []


def test_lookups_do_not_look_inside(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.declare(holdfast.Lookup("names", "people/", "name"))
    state.set("people/1", {"name": "Ada"})
    state.set("people/2", {"name": "Eve"}, subject=WHO)
    assert state.find("names", name="Ada").items == ["people/1"]
    assert state.find("names", name="Eve").items == []
    assert store.verify().findings == []
    store.erase_subject(WHO)
    state.set("people/1", {"name": "Eve"}, subject=OTHER)
    assert state.find("names", name="Ada").items == []
    assert store.verify().findings == []


def test_a_proof_shows_what_is_sealed(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.set("k", SECRET, subject=WHO)
    state.checkpoint("safe")
    proof = state.prove("k").to_bytes()
    assert SECRET.encode() not in proof
    assert b"$sealed" in proof
    store.erase_subject(WHO)
    assert b"$sealed" in state.prove("k").to_bytes()
    file = sealed.folder / "k.proof"
    file.write_bytes(proof)
    program = [sys.executable, holdfast_verify.__file__, str(file), "--json"]
    checked = subprocess.run(program, capture_output=True, timeout=60, check=False)
    assert b'"valid": true' in checked.stdout
    assert SECRET.encode() not in checked.stdout


class Watching(holdfast.Gate):
    """Sees values as the caller gave them."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.refused = ""

    def before(self, request: holdfast.GateRequest) -> None:
        for operation in request.operations:
            if operation.kind == self.refused:
                raise GateRefusedError("no")
            self.seen.append((operation.kind, operation.value, operation.subject))
            if operation.key == "private":
                operation.subject = WHO


def test_gates(sealed: Place) -> None:
    store = sealed.open()
    gate = Watching()
    store.add_gate(gate)
    state = store.agent("a")
    state.set("k", SECRET, subject=OTHER)
    state.set("private", SECRET)
    gate.refused = "erase subject"
    with pytest.raises(GateRefusedError):
        store.erase_subject(WHO)
    assert state.get("private") == SECRET
    gate.refused = ""
    store.erase_subject(WHO)
    assert state.get_many(["k", "private"]) == {"k": SECRET, "private": holdfast.ERASED}
    assert gate.seen == [
        ("set", SECRET, OTHER),
        ("set", SECRET, None),
        ("erase subject", WHO, None),
    ]


def test_ephemeral_keys(sealed: Place) -> None:
    """They are sealed, too, though nothing is stored: erasing reaches who holds them."""
    store, other = sealed.open(), sealed.open()
    state = store.agent("a")
    state.declare(holdfast.Ephemeral("now/"))
    state.set("now/k", SECRET, subject=WHO)
    state.append("now/l", SECRET, subject=WHO)
    state.append("now/l", 1)
    assert (state.get("now/k"), state.get("now/l")) == (SECRET, [SECRET, 1])
    other.erase_subject(WHO)
    assert state.get("now/l") == [holdfast.ERASED, 1]


def test_a_list_sealed_as_a_whole_says_why_it_cannot_grow(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("1")
    for key, value in (("list", [1, 2]), ("long", ["x" * 100] * 3000), ("fields", {"a": 1})):
        state.set(key, value, subject="user:42")
    for key in ("list", "long"):
        for subject in (None, "user:42"):
            with pytest.raises(InvalidInputError, match=r"as a whole.* use update"):
                state.append(key, 3, subject=subject)
        with pytest.raises(InvalidInputError, match=r"as a whole.* use update"):
            state.trim(key, keep_last=1)
    for value in ([1], ["x" * 100] * 3000):
        with pytest.raises(InvalidInputError, match="as a whole"), state.change() as change:
            change.set("new", value, subject="user:42")
            change.append("new", 3)
    with pytest.raises(InvalidInputError, match="as a whole"):
        state.append("fields", 3)
    state.set("open", {"a": 1})
    with pytest.raises(InvalidInputError, match="is not a list"):
        state.append("open", 3)
    state.update("list", lambda items: [*items, 3])
    assert state.get("list") == [1, 2, 3]
    store.erase_subject("user:42")
    asked: list[Any] = [
        lambda: state.append("list", 4),
        lambda: state.append("long", 4),
        lambda: state.append("fields", 4),
        lambda: state.trim("list", keep_last=1),
        lambda: state.tail("list", 1),
        lambda: state.slice("list", 0, 1),
        lambda: state.length("list"),
    ]
    for ask in asked:
        with pytest.raises(ErasedError):
            ask()
    with pytest.raises(ErasedError), state.change() as change:
        change.tail("list", 1)


def test_a_plain_store_refuses(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    for write in (
        lambda: store.agent("a").set("k", 1, subject=WHO),
        lambda: store.agent("a").append("k", 1, subject=WHO),
        lambda: store.erase_subject(WHO),
    ):
        with pytest.raises(InvalidInputError, match="key="):
            write()
    assert (store.agent("a").keys(), store.subjects()) == ([], [])
    place.close()


@pytest.mark.parametrize("name", ["", "x" * 257, 7, "\ud800"])
def test_names_that_are_refused(sealed: Place, name: Any) -> None:
    store = sealed.open()
    for write in (
        lambda: store.agent("a").set("k", 1, subject=name),
        lambda: store.erase_subject(name),
    ):
        with pytest.raises(InvalidInputError):
            write()
    assert store.subjects() == []


def test_names_are_kept_as_text_is(sealed: Place) -> None:
    store = sealed.open()
    store.agent("a").set("k", 1, subject="Ame\u0301lie")
    assert store.subjects() == ["Am\u00e9lie"]
    store.erase_subject("Am\u00e9lie")
    assert store.subjects() == []


def test_a_reader_only(sealed: Place) -> None:
    fill(sealed.open().agent("a"))
    reader = sealed.reopen(read_only=True)
    assert reader.agent("a").get("short") == SECRET
    assert reader.subjects() == [WHO, OTHER]
    with pytest.raises(ReadOnlyError):
        reader.erase_subject(WHO)


def test_the_placeholder_is_one() -> None:
    assert copy.deepcopy([holdfast.ERASED])[0] is holdfast.ERASED
    assert repr(holdfast.ERASED) == "ERASED"


def test_sealed_parts_of_others_do_not_open(sealed: Place, tmp_path: Path) -> None:
    """A part belongs to one subject of one store, wherever its bytes are put."""
    store = sealed.open()
    state = store.agent("a")
    state.set("k", SECRET, subject=WHO)
    state.set("o", 1, subject=OTHER)
    codec = store._core.codec.plain_reader
    line = store._core.current(state.scope)
    assert line is not None
    parts = [
        line.ledger.value(slot.ref, slot.location, codec)
        for slot in (line.slot("k"), line.slot("o"))
        if slot is not None
    ]
    moved = holdfast.Typed("$sealed", 1, parts[1].value[:16] + parts[0].value[16:])
    state.set("moved", moved)
    with pytest.raises(HoldfastError, match="does not open"):
        state.get("moved")
    state.set("copy", parts[0])  # as it is, it is the person's, under another key too
    assert state.get("copy") == SECRET
    for bad in (b"", "text", b"x" * 20):
        with pytest.raises(InvalidValueError):
            state.set("bad", holdfast.Typed("$sealed", 1, bad))
    with pytest.raises(InvalidValueError):
        state.set("bad", holdfast.Typed("$else", 1, b"x" * 40))
    (tmp_path / "b").mkdir()
    other = Place("memory", tmp_path / "b", sealed=True)
    other.open().agent("a").set("k", parts[0])
    with pytest.raises(KeyMissingError):
        other.open().agent("a").get("k")
    other.close()


# ---- the ring and the files ----------------------------------------------------------------


def test_the_key_follows_the_master(sealed: Place) -> None:
    store = sealed.open()
    fill(store.agent("a"))
    new = f"file:{sealed.folder / 'new.key'}"
    store.begin_rotation(new)
    store.agent("b").set("k", SECRET, subject="user:44")
    store.erase_subject(OTHER)
    store.finish_rotation()
    sealed.key = new
    again = sealed.reopen()
    assert (again.agent("a").get("short"), again.agent("b").get("k")) == (SECRET, SECRET)
    assert again.subjects() == [WHO, "user:44"]
    assert again.keyring().subjects == 2
    assert len(rows_of(ring_of(sealed), b"U")) == 2
    assert again.verify().findings == []


def test_the_raw_files_hold_no_key_and_no_plain_text(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    for number in range(40):
        store.agent(f"{number}").set("k", SECRET, subject=f"user:{number}")
    fill(store.agent("a"))
    wrapped = {key[1:17]: row for key, row in rows_of(ring_of(place), b"U")}
    cells = dict(store._core.subjects.cells())
    key, cell = next((k, c) for k, c in cells.items() if _id(store, WHO) in _opened(store, k, c))
    gone = _id(store, WHO)
    result = store.erase_subject(WHO)
    assert not any("logs" in text for text in result.open)
    held = b"".join(path.read_bytes() for path in place.path.parent.iterdir())
    assert wrapped[gone][-32:] not in held, "also while the store is open"
    place.close()
    raw = b"".join(path.read_bytes() for path in place.path.parent.iterdir())
    assert SECRET.encode() not in raw
    assert wrapped[gone][9:] not in raw
    assert wrapped[gone][-32:] not in raw
    assert key not in raw
    assert cell[-32:] not in raw
    assert sum(row in raw for row in wrapped.values()) == 41
    assert b"user:" not in raw


def _id(store: sync.Store, name: str) -> bytes:
    return store._core.subjects.of(name).seal.id


def _opened(store: sync.Store, key: bytes, cell: bytes) -> bytes:
    return store._core.open_row(key, cell)


def test_a_copy_made_before(tmp_path: Path) -> None:
    """Today's ring closes it, and says why; the ring of then does not help beside today's store."""
    place = Place("sqlite", tmp_path, sealed=True)
    fill(place.open().agent("a"))
    place.close()
    shutil.copytree(place.path.parent, tmp_path / "before")
    place.open().erase_subject(WHO)
    place.close()
    shutil.copytree(place.path.parent, tmp_path / "after")
    ring = f"{place.path.name}.keys"

    shutil.copy(tmp_path / "after" / ring, tmp_path / "before" / ring)
    with sync.open(f"sqlite:{tmp_path / 'before' / place.path.name}", **place.options()) as copied:
        state = copied.agent("a")
        with pytest.raises(ErasedError):
            state.get("short")
        assert state.get("other") == "of another"
        assert copied.subjects() == [OTHER]
        assert [finding.kind for finding in copied.verify().findings] == ["erasure"]
        state.set("new", "later", subject=WHO)
        assert state.get("new") == "later"
        with pytest.raises(ErasedError):
            state.get("long")
        assert copied.verify().findings == []


def test_an_old_ring_beside_todays_store(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    fill(place.open().agent("a"))
    place.close()
    ring = place.path.with_name(f"{place.path.name}.keys")
    shutil.copy(ring, tmp_path / "old")
    place.open().erase_subject(WHO)
    place.close()
    shutil.copy(tmp_path / "old", ring)
    store = place.open()
    with pytest.raises(ErasedError):
        store.agent("a").get("short")
    assert [finding.kind for finding in store.verify().findings] == ["erasure"]
    place.close()


def test_a_missing_key_is_no_erase(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    fill(state)
    assert store._core.ring is not None
    drop_subject(store._core.ring, _id(store, WHO), erased=False)
    again = sealed.reopen()
    with pytest.raises(KeyMissingError, match="use the ring"):
        again.agent("a").get("short")
    with pytest.raises(KeyMissingError):
        again.agent("a").set("k", 1, subject=WHO)
    assert [finding.kind for finding in again.verify().findings] == ["damage"]


@pytest.mark.parametrize("kind", ["cell", "tombstone", "ring"])
def test_damage_is_found(tmp_path: Path, kind: str) -> None:
    """A changed byte of any row of a subject is named by verify, and opens nothing."""
    place = Place("memory", tmp_path, sealed=True)
    store = place.open()
    fill(store.agent("a"))
    store.erase_subject(OTHER)
    storage, ring = place.storage(), ring_of(place)
    ((cell, whole),) = store._core.subjects.cells()
    key, row = rows_of(ring, b"U")[0] if kind == "ring" else rows_of(storage, b"U")[0]
    for at in range(len(whole if kind == "cell" else row)):
        flipped = bytearray(whole if kind == "cell" else row)
        flipped[at] ^= 1
        if kind == "cell":
            storage.commit(Batch(cells=[(cell, whole, bytes(flipped))]))
        else:
            put_row(ring if kind == "ring" else storage, key, bytes(flipped))
        fresh = place.open()
        assert [finding.kind for finding in fresh.verify().findings] == ["damage"]
        assert dict(fresh.agent("a").items("other")) == {"other": holdfast.ERASED}
        if kind != "tombstone":
            with pytest.raises((StateIntegrityError, KeyMissingError)):  # the epoch is a byte, too
                fresh.agent("a").set("k", 1, subject=WHO)
        if kind == "cell":
            storage.commit(Batch(cells=[(cell, bytes(flipped), whole)]))
    put_row(storage, b"U" + b"x" * 15, b"")
    assert "unaccounted" in {finding.kind for finding in place.open().verify().findings}
    place.close()


# ---- failing and stopping ------------------------------------------------------------------


@pytest.mark.parametrize("where", ["store", "ring"])
def test_every_storage_call_fails_once(sealed: Place, where: str) -> None:
    """What was acknowledged is there, an erase that returned holds, and once more finishes."""
    for nth in range(1, 60):
        key = f"k{nth}"
        with sync.open(sealed.url, **sealed.options()) as store:
            store.agent("a").set(key, SECRET, subject=WHO)
        faulty = Faulty(sealed.storage())
        core = open_core(sealed.url, storage=faulty, **sealed.options())
        assert core.ring is not None
        if where == "ring":
            faulty = Faulty(core.ring.storage)
            core.ring.storage = faulty
        faulty.plan = (
            Fault("*", faulty.calls["*"] + nth, ("before", "ambiguous-applied")[nth % 2]),
        )
        store = sync.Store(StoreHandle(core))
        written = done = False
        with suppress(Unavailable, OutcomeUnknown):
            store.agent("a").set("other", nth, subject=f"user:{nth}")
            written = True
            store.erase_subject(WHO)
            done = True
        core.close()
        fresh = sealed.open()
        if written:
            assert fresh.agent("a").get("other") == nth
        held = fresh.agent("a").get_many([key])[key]
        assert held is holdfast.ERASED if done else held in (SECRET, holdfast.ERASED)
        with suppress(MissingError):
            fresh.erase_subject(WHO)
        with pytest.raises(ErasedError):
            fresh.agent("a").get(key)
        assert fresh.verify().findings == []
        sealed.close()
        if not faulty.failed:
            break
    assert not faulty.failed
    assert nth > 5


def test_as_a_model_says(sealed: Place) -> None:
    """Several handles write, erase, fork and restore; each reads what the model has."""
    dice = random.Random(42)
    stores = [sealed.open() for _ in range(3)]
    names = [None, "a", "b", "c"]
    lives = dict.fromkeys(names, 0)
    model: dict[str, Any] = {}
    past: list[tuple[int, dict[str, Any]]] = []

    def expected(part: tuple[Any, str | None, int]) -> Any:
        value, name, life = part
        return value if life == lives[name] else holdfast.ERASED

    for step in range(400):
        state, key, name = dice.choice(stores).agent("m"), f"k{dice.randrange(5)}", None
        name = dice.choice(names)
        what = dice.random()
        if what < 0.5:
            state.set(key, step, subject=name)
            model[key] = (step, name, lives[name])
        elif what < 0.8:
            state.append(f"l{key}", step, subject=name)
            model[f"l{key}"] = [*model.get(f"l{key}", []), (step, name, lives[name])]
        elif what < 0.86 and name is not None:
            with suppress(MissingError):
                dice.choice(stores).erase_subject(name)
                lives[name] += 1
        elif what < 0.92:
            past.append((state._handle.place()[2], dict(model)))
        elif past:
            point, model = dice.choice(past)
            model = dict(model)
            state.restore(point)
        shown = {
            key: [expected(part) for part in held] if type(held) is list else expected(held)
            for key, held in model.items()
        }
        assert dict(dice.choice(stores).agent("m").items()) == shown
    for point, then in past:
        assert stores[0].agent("m").at(point).keys() == sorted(then)
    assert stores[1].verify().findings == []
    assert sum(lives.values()) > 5


def test_who_reads_or_writes_beside_erasing_never_misses_a_key(
    sealed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each commit in the ring, the key is there or the ring says that it is erased."""
    store = sealed.open()
    store.agent("a").set("k", SECRET, subject=WHO)
    core = store._handle.core
    (key, cell), ring = next(core.subjects.cells()), core.ring
    assert ring is not None
    named, commit = core.subjects.read(key, cell), ring.storage.commit
    found: list[tuple[bool, bool]] = []

    def noting(batch: Batch) -> None:
        commit(batch)
        found.append((holds_subject(ring, named.id), says_erased(ring, named.id)))
        # Who has looked at the cell before, and looks into the ring now, is not told of damage.
        with pytest.raises(Conflict):
            core.subjects._found(ring, WHO, key, cell)

    monkeypatch.setattr(ring.storage, "commit", noting)
    assert store.erase_subject(WHO).key_removed
    assert set(found) == {(False, True)}
    with pytest.raises(ErasedError):
        sealed.open().agent("a").get("k")


def test_killed_anywhere_it_resumes(tmp_path: Path) -> None:
    """Killed at each commit of store and ring in turn: closed for all, and finished by the next."""
    place = Place("sqlite", tmp_path, sealed=True)
    script = tmp_path / "kill.py"
    script.write_text(
        "import os, sys\n"
        "from holdfast import sync\n"
        "url, key, signer, count, after = sys.argv[1:]\n"
        "store = sync.open(url, key=key, signer=signer, durability='normal')\n"
        "left = int(count)\n"
        "def dying(commit):\n"
        "    def call(batch):\n"
        "        global left\n"
        "        left -= 1\n"
        "        if left == 0 and after == '0': os._exit(9)\n"
        "        commit(batch)\n"
        "        if left == 0: os._exit(9)\n"
        "    return call\n"
        "core = store._core\n"
        "core.storage.commit = dying(core.storage.commit)\n"
        "core.ring.storage.commit = dying(core.ring.storage.commit)\n"
        "store.erase_subject('user:42')\n"
    )
    seen = set()
    for count in range(1, 9):
        for after in "01":
            with sync.open(place.url, **place.options()) as store:
                store.agent("a").set("k", SECRET, subject=WHO)
            arguments = [place.url, str(place.key), place.signer, str(count), after]
            done = subprocess.run(
                [sys.executable, str(script), *arguments],
                env=place.environment(),
                timeout=60,
                check=False,
            )
            seen.add(done.returncode)
            with sync.open(place.url, **place.options()) as store:
                state = store.agent("a")
                begun = (count, after) != (1, "0")
                if begun:
                    with pytest.raises(ErasedError):
                        state.get("k")
                else:
                    assert state.get("k") == SECRET
                if begun and count % 3 == 1:
                    cut = len(list(store._core.subjects.cells()))
                    report = store.verify()
                    assert (report.findings, report.unswept) == ([], cut)
                    assert store.sweep().erased == cut
                    assert (store.verify().unswept, store.sweep().erased) == (0, 0)
                elif count % 2:
                    with suppress(MissingError):
                        store.erase_subject(WHO)
                else:
                    state.set("other", 1, subject=WHO)
                    assert state.get("other") == 1
                    store.erase_subject(WHO)
                with pytest.raises(ErasedError):
                    state.get("k")
                assert store.subjects() == []
                assert store.verify().findings == []
                assert rows_of(ring_of(place), b"U") == []
    assert seen == {0, 9}


def test_processes_that_write_while_another_erases(tmp_path: Path) -> None:
    """What they were told is written is there, readable or erased; nothing else is."""
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("a").set("go", 1)
    script = tmp_path / "write.py"
    script.write_text(
        "import sys\n"
        "from holdfast import sync\n"
        "from holdfast.errors import Conflict\n"
        "url, key, signer, name = sys.argv[1:]\n"
        "with sync.open(url, key=key, signer=signer, durability='normal') as store:\n"
        "    state, written = store.agent('a'), 0\n"
        "    while not state.exists('stop'):\n"
        "        try:\n"
        "            state.append(name, written, subject='user:42')\n"
        "            written += 1\n"
        "        except Conflict as error:\n"
        "            assert 'erased meanwhile' in str(error)\n"
        "    print(written)\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, str(script), place.url, str(place.key), place.signer, name],
            env=place.environment(),
            stdout=subprocess.PIPE,
        )
        for name in ("x", "y")
    ]
    state, erased = store.agent("a"), 0
    while erased < 12 or not (state.length("x") > 50 and state.length("y") > 50):
        with suppress(MissingError):
            store.erase_subject(WHO)
            erased += 1
        time.sleep(0.02)
    state.set("stop", 1)
    for name, writer in zip("xy", writers, strict=True):
        told = int(writer.communicate(timeout=60)[0])
        found = state.get(name)
        assert writer.returncode == 0
        assert len(found) == told
        assert all(item in (number, holdfast.ERASED) for number, item in enumerate(found))
    assert store.verify().findings == []
    store.erase_subject(WHO)
    assert set(map(repr, state.get("x") + state.get("y"))) == {"ERASED"}
    assert rows_of(ring_of(place), b"U") == []
    place.close()


def test_two_make_one(sealed: Place) -> None:
    """Whoever comes second takes the key of the first, and leaves none of its own."""
    one, two = sealed.open(), sealed.open()
    subjects = two._core.subjects
    make = subjects._make

    def late(*given: Any) -> Any:
        one.agent("a").set("k", 1, subject=WHO)
        return make(*given)

    subjects._make = late  # type: ignore[method-assign]
    two.agent("a").set("l", 2, subject=WHO)
    assert one.agent("a").get_many(["k", "l"]) == {"k": 1, "l": 2}
    assert _id(one, WHO) == _id(two, WHO)
    assert len(rows_of(ring_of(sealed), b"U")) == 1
    assert one._core.ring is not None
    assert holds_subject(one._core.ring, _id(one, WHO))


def test_on_the_async_face(sealed: Place) -> None:
    async def work() -> None:
        async with holdfast.open(sealed.url, **sealed.options()) as store:
            state = store.agent("a")
            await state.set("k", SECRET, subject=WHO)
            await state.append("l", 1, subject=WHO)
            await state.extend("l", [2, 3], subject=OTHER)
            async with state.change() as change:
                change.set("c", 1, subject="user:44")
            async with store.change() as many:
                many[state].append("l", 4, subject="user:45")
            await state.update("k", str.upper)
            assert await state.get("l") == [1, 2, 3, 4]
            assert len(await store.subjects()) == 4
            result = await store.erase_subject(WHO)
            assert isinstance(result, holdfast.store.names.items.ErasedSubject)
            assert await state.get("l") == [holdfast.ERASED, 2, 3, 4]
            with pytest.raises(ErasedError):
                await state.get("k")
            with pytest.raises(MissingError):
                await store.erase_subject(WHO)

    asyncio.run(work())


def test_expiry_and_classes(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.set("k", SECRET, ttl=1000, subject=WHO)
    state.set("password", SECRET, subject=WHO)
    item = state.item("k")
    assert item is not None
    assert (item.value, item.expires is not None) == (SECRET, True)
    state.update("k", lambda value: value + "!")
    assert state.get("k") == SECRET + "!"
    assert state.item("k").expires == item.expires  # type: ignore[union-attr]
    state.set("password", "another", subject=WHO)
    assert [(one.path, str(one.after)) for one in state.diff(3)] == [("password", "<sensitive>")]
    with pytest.raises(InvalidValueError, match="sealed for a subject"):
        state.set("outside", 1, class_="external", subject=WHO)
    with state.change() as change:
        change.set("k", 1, ttl=5, subject=WHO)
    before = state._handle.place()[2]
    state.persist("k")
    assert [(one.path, one.kind) for one in state.diff(before)] == [
        (one.path, one.kind) for one in state.diff(before) if one.before is not holdfast.ERASED
    ]
    store.erase_subject(WHO)
    assert state.get_many(["k", "password"]) == dict.fromkeys(["k", "password"], holdfast.ERASED)
    assert [one.path for one in state.diff(1) if one.before is holdfast.ERASED] == ["k"]
    state.expire("k", 10)
    assert state.diff(state._handle.place()[2] - 1)
    assert store.verify().findings == []
