"""Merges and diffs over what is sealed for subjects, and copies that a merge makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

from holdfast import DELETED, ERASED, MergeConflict, sync
from holdfast.errors import InvalidInputError, MergeConflictError

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


# ---- a function decides ---------------------------------------------------------------------


def joined(conflict: MergeConflict) -> str:
    return f"{conflict.ours} and {conflict.theirs}"


def test_who_is_asked_sees_open_values(sealed: Place) -> None:
    _, main, trial = parted(sealed)
    with pytest.raises(MergeConflictError) as told:
        main.merge(trial)
    (conflict,) = told.value.conflicts
    assert (conflict.ours, conflict.theirs) == ("in ours", "in theirs")


@pytest.mark.parametrize("who", [(WHO, WHO), (WHO, OTHER), (WHO, None), (None, WHO), (None, None)])
def test_what_is_sealed_is_chosen_and_not_made(
    sealed: Place, who: tuple[str | None, str | None]
) -> None:
    store, main, trial = parted(sealed, *who)
    with pytest.raises(InvalidInputError, match="set the key afterwards") as told:
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
    with pytest.raises(InvalidInputError):
        main.merge(trial, strategy=lambda conflict: "anew")
    main.merge(trial, strategy=lambda conflict: DELETED)
    assert not main.exists("k")


# ---- only the subject differs ---------------------------------------------------------------


def test_a_diff_tells_that_only_the_subject_changed(sealed: Place) -> None:
    state = sealed.open().agent("a")
    state.set("i", "x")
    for subject in (WHO, None, WHO, OTHER):
        before = state._handle.place()[2]
        state.set("i", "x", subject=subject)
        (change,) = state.diff(before)
        assert (change.key, change.kind, change.before, change.after) == ("i", "changed", "x", "x")


def test_a_merge_tells_that_only_the_subject_changed(sealed: Place) -> None:
    main = sealed.open().agent("a")
    main.set("k", 1)
    trial = main.fork("trial")
    trial.set("k", 1, subject=WHO)
    assert main.merge(trial, dry_run=True).diff.keys == ["k"]
