"""Merges and diffs over what is sealed for subjects, and copies that a merge makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_kit import Place
from test_subjects import plain_rows

import holdfast
from holdfast import DELETED, ERASED, MergeConflict, sync
from holdfast.errors import ErasedError, InvalidInputError, MergeConflictError

WHO, OTHER = "user:42", "user:43"


@pytest.fixture(params=["memory", "sqlite"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    place = Place(request.param, tmp_path, sealed=True)
    yield place
    place.close()


def parted(
    place: Place, ours: str | None = WHO, theirs: str | None = WHO, base: str | None = WHO
) -> tuple[sync.Store, sync.State, sync.State]:
    """A key that both timelines have set, each for a subject."""
    store = place.open()
    main = store.agent("a")
    main.set("k", "was here", subject=base)
    trial = main.fork("trial")
    main.set("k", "in ours", subject=ours)
    trial.set("k", "in theirs", subject=theirs)
    return store, main, trial


# ---- the copy beside ------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["api_token", "auth/token", "openaiApiKey", "own/note", "named"])
def test_a_copy_has_the_class_of_what_it_copies(place: Place, key: str) -> None:
    store = place.open()
    main = store.agent("a")
    main.declare(holdfast.Classed("own/note", "sensitive"))
    class_ = "sensitive" if key == "named" else None
    main.set(key, 1, class_=class_)
    trial = main.fork("trial")
    main.set(key, "s3cr3t", class_=class_)
    trial.set(key, "0ther", class_=class_)
    result = main.merge(trial, strategy="both", dry_run=True)
    assert "0ther" not in str(result.diff) + str(result)
    main.merge(trial, strategy="both")
    beside = f"{key}~theirs"
    assert main.get(beside) == "0ther"
    assert main._handle.reader.class_of(beside) == main._handle.reader.class_of(key) == "sensitive"
    assert "0ther" not in repr(main.item(beside)) + str(main.diff(1))


def test_a_copy_of_what_is_standard_stays_so(place: Place) -> None:
    """Also if what is declared would say otherwise of the name that it gets."""
    main = place.open().agent("a")
    main.declare(holdfast.Classed("k~", "sensitive"))
    main.set("k", 1, ttl=1000)
    trial = main.fork("trial")
    main.set("k", 2)
    trial.set("k", 3)
    main.merge(trial, strategy="both")
    assert (main.get("k~theirs"), main._handle.reader.class_of("k~theirs")) == (3, "standard")


def test_a_copy_is_sealed_for_whom_it_was(sealed: Place) -> None:
    store, main, trial = parted(sealed)
    main.merge(trial, strategy="both")
    assert main.get_many(["k", "k~theirs"]) == {"k": "in ours", "k~theirs": "in theirs"}
    store.erase_subject(WHO)
    assert main.get_many(["k", "k~theirs"]) == {"k": ERASED, "k~theirs": ERASED}


# ---- a function decides ---------------------------------------------------------------------


def joined(conflict: MergeConflict) -> str:
    return f"{conflict.ours} and {conflict.theirs}"


@pytest.mark.parametrize("base", [None, WHO])
def test_it_is_given_open_values_and_its_answer_is_sealed(sealed: Place, base: str | None) -> None:
    store, main, trial = parted(sealed, base=base)
    seen: list[MergeConflict] = []

    def decide(conflict: MergeConflict) -> str:
        seen.append(conflict)
        return joined(conflict)

    dry = main.merge(trial, strategy=decide, dry_run=True)
    assert "~ k: 'in ours' → 'in ours and in theirs'" in str(dry.diff)
    (conflict,) = main.merge(trial, strategy=decide).conflicts
    assert (conflict.base, conflict.ours, conflict.theirs) == ("was here", "in ours", "in theirs")
    assert seen == [conflict, conflict]
    assert main.get("k") == "in ours and in theirs"
    assert b"in ours" not in plain_rows(store, main)
    assert store.verify().findings == []
    store.erase_subject(WHO)
    with pytest.raises(ErasedError):
        main.get("k")


def test_who_is_asked_sees_open_values(sealed: Place) -> None:
    _, main, trial = parted(sealed)
    with pytest.raises(MergeConflictError) as told:
        main.merge(trial)
    (conflict,) = told.value.conflicts
    assert (conflict.ours, conflict.theirs) == ("in ours", "in theirs")


def test_items_are_decided_and_sealed_one_by_one(sealed: Place) -> None:
    store = sealed.open()
    main = store.agent("a")
    main.append("talk", "hello")
    main.append("talk", "first", subject=WHO)
    trial = main.fork("trial")
    for state, text in ((main, "ours"), (trial, "theirs")):
        state.trim("talk", keep_last=0)
        state.append("talk", "hello")
        state.append("talk", text, subject=WHO)
    (conflict,) = main.merge(trial, strategy=joined).conflicts
    assert (conflict.path, conflict.base) == ("talk[1]", "first")
    assert main.get("talk") == ["hello", "ours and theirs"]
    store.erase_subject(WHO)
    assert main.get("talk") == ["hello", ERASED]


@pytest.mark.parametrize("who", [(WHO, OTHER), (WHO, None), (None, WHO), (None, None)])
def test_what_has_no_one_subject_is_chosen_and_not_made(
    sealed: Place, who: tuple[str | None, str | None]
) -> None:
    store, main, trial = parted(sealed, *who)
    with pytest.raises(InvalidInputError, match="subject= afterwards") as told:
        main.merge(trial, strategy=joined)
    assert "in ours" not in str(told.value)
    assert (main.get("k"), main.log()[0].sequence) == ("in ours", 2)
    main.merge(trial, strategy=lambda conflict: conflict.theirs)
    assert main.get("k") == "in theirs"
    for name in store.subjects():
        store.erase_subject(name)
    assert main.get_many(["k"]) == {"k": ERASED if who[1] else "in theirs"}


def test_the_base_is_put_back_as_it_was(sealed: Place) -> None:
    store, main, trial = parted(sealed, None, None)
    main.merge(trial, strategy=lambda conflict: conflict.base)
    assert main.get("k") == "was here"
    store.erase_subject(WHO)
    assert main.get_many(["k"]) == {"k": ERASED}


def test_what_is_erased_is_shown_so(sealed: Place) -> None:
    store, main, trial = parted(sealed, WHO, OTHER)
    store.erase_subject(WHO)
    seen: list[Any] = []
    main.merge(trial, strategy=lambda c: seen.append((c.base, c.ours, c.theirs)) or c.theirs)
    assert seen == [(ERASED, ERASED, "in theirs")]
    assert main.get("k") == "in theirs"


def test_what_is_made_of_erased_values_is_refused(sealed: Place) -> None:
    store, main, trial = parted(sealed)
    store.erase_subject(WHO)
    with pytest.raises(ErasedError):
        main.merge(trial, strategy=lambda conflict: "anew")
    main.merge(trial, strategy=lambda conflict: DELETED)
    assert not main.exists("k")


def test_a_subject_that_is_erased_while_one_decides(sealed: Place) -> None:
    """What was made of its values is not written, also not under a new key of that name."""
    store, main, trial = parted(sealed)

    def decide(conflict: MergeConflict) -> str:
        text = joined(conflict)
        if conflict.ours is not ERASED:
            beside = sealed.open()
            beside.erase_subject(WHO)
            beside.agent("b").set("new", 1, subject=WHO)
        return text

    with pytest.raises(ErasedError):
        main.merge(trial, strategy=decide)
    assert main.get_many(["k"]) == {"k": ERASED}
    assert store.verify().findings == []


def test_a_subject_that_is_erased_before_the_commit(sealed: Place) -> None:
    store, main, trial = parted(sealed)

    class Erasing(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            beside = sealed.open()
            if request.operations[0].kind == "set" and WHO in beside.subjects():
                beside.erase_subject(WHO)

    store.add_gate(Erasing())
    with pytest.raises(ErasedError):
        main.merge(trial, strategy=joined)
    assert main.get_many(["k"]) == {"k": ERASED}
    assert main.log()[0].sequence == 2


# ---- only the subject differs ---------------------------------------------------------------


def test_a_diff_names_the_subject_that_changed(sealed: Place) -> None:
    store = sealed.open()
    state = store.agent("a")
    state.set("i", "x")
    for subject, text in ((WHO, f"+ i (subject): {WHO!r}"), (None, f"- i (subject): {WHO!r}")):
        before = state._handle.place()[2]
        state.set("i", "x", subject=subject)
        assert str(state.diff(before)).splitlines()[2:] == [text]
    state.set("i", "x", subject=WHO)
    before = state._handle.place()[2]
    state.set("i", "x", subject=OTHER)
    assert str(state.diff(before)).splitlines()[2:] == [f"~ i (subject): {WHO!r} → {OTHER!r}"]
    assert state.diff(before).keys == ["i"]


def test_a_diff_of_parts_that_are_sealed(sealed: Place) -> None:
    state = sealed.open().agent("a")
    points = []
    for first, second in ((WHO, None), (WHO, OTHER), (OTHER, WHO)):
        state.delete("l")
        state.append("l", 1, subject=first)
        points.append(state.append("l", 2, subject=second))
    before, both, turned = points
    told = str(state.diff(before, both)).splitlines()[2:]
    assert told == [f"~ l (subject): {WHO!r} → {[WHO, OTHER]!r}"]
    # Who it is for has not changed, and nobody erased it.
    assert [(c.path, c.before, c.after) for c in state.diff(both, turned)] == [
        ("l", [1, 2], [1, 2])
    ]


def test_a_merge_names_the_subject_that_changed(sealed: Place) -> None:
    main = sealed.open().agent("a")
    main.set("k", 1)
    trial = main.fork("trial")
    trial.set("k", 1, subject=WHO)
    dry = main.merge(trial, dry_run=True)
    assert str(dry.diff).splitlines()[2:] == [f"+ k (subject): {WHO!r}"]
