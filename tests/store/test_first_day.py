"""What a user meets on the first day: where a store lies, and slips that are answered with a fix."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.backup import Backups as AsyncBackups
from holdfast.errors import InvalidInputError, StorageReadOnlyError
from holdfast.sync.backup import Backups
from holdfast.sync.recovery import Recovery
from holdfast.sync.replicas import Replicas


def test_urls_of_files_mean_what_they_mean_to_sqlalchemy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    for url, file in (
        ("sqlite:///near.db", "near.db"),
        ("sqlite:///deep/near.db", "deep/near.db"),
        (f"sqlite:///{tmp_path}/far.db", "far.db"),
        (f"sqlite:{tmp_path}/plain.db", "plain.db"),
        ("sqlite:beside.db", "beside.db"),
    ):
        with sync.open(url) as store:
            store.agent("a").set("k", 1)
        assert (tmp_path / file).is_file(), url


@pytest.mark.parametrize("url", ["sqlite://agents.db", "sqlite://tmp/agents.db", "sqlite://"])
def test_two_slashes_are_refused_with_both_forms(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=r"'sqlite:///\w+.*'sqlite:////\w+"):
        sync.open(url)
    assert os.listdir(tmp_path) == []


def test_a_path_is_taken_where_a_store_is_named(tmp_path: Path) -> None:
    file, copy, again, folder = (tmp_path / name for name in ("a.db", "b.db", "c.db", "d"))

    async def keep() -> str:
        async with holdfast.open(file) as store:
            await store.agent("a").set("k", 1)
            made = await AsyncBackups(store, folder).create()
            await AsyncBackups(store, folder).restore(made.id, again)
            return made.id

    made = asyncio.run(keep())
    with sync.open(file) as opened:
        Replicas(opened, [copy]).sync()
        assert Recovery(opened).health(url=file).score > 0
        assert [one.id for one in Backups(opened, folder).list()] == [made]
    for one in (copy, again):
        with sync.open(one, read_only=True) as found:
            assert found.agent("a").get("k") == 1


SLIPS: dict[str, tuple[Callable[[sync.Store], Any], str]] = {
    "an id that is no text": (lambda store: store.agent(7), "is text: '7', not int"),  # type: ignore[arg-type]
    "an engine without its colon": (lambda store: sync.open("memory"), "did you mean 'memory:'"),
    "a change without with": (
        lambda store: store.agent("7").change().set("k", 1),  # type: ignore[attr-defined]
        r"write `with ….change\(…\) as change:`",
    ),
    "a store's change without with": (
        lambda store: store.change()[store.agent("7")],  # type: ignore[index]
        r"write `with ….change\(…\) as change:`",
    ),
    "a pickled store": (pickle.dumps, "hand over its URL"),
    "a pickled state": (lambda store: pickle.dumps(store.agent("7")), "hand over its URL"),
    "a copied state": (lambda store: copy.deepcopy(store.agent("7")), "hand over its URL"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_answered_with_what_to_write(slip: str) -> None:
    make, fix = SLIPS[slip]
    with sync.open("memory:") as store, pytest.raises(Exception, match=fix):
        make(store)


def test_slips_of_the_async_store_are_answered_with_what_to_write() -> None:
    asked: Any = holdfast.open("memory:")
    with pytest.raises(AttributeError, match=r"store = await holdfast\.open"):
        asked.agent("7")
    with pytest.raises(TypeError, match=r"async with holdfast\.open"), asked:
        pass

    async def slip() -> None:
        async with holdfast.open("memory:") as store:
            state: Any = store.agent("7")
            for one in (store, state):
                with pytest.raises(TypeError, match="hand over its URL"):
                    pickle.dumps(one)
            with pytest.raises(AttributeError, match=r"`async with ….change\("):
                state.change().set("k", 1)

    asyncio.run(slip())


def test_a_finding_names_its_place_once(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db") as store:
        store.agent("7").set("long", os.urandom(300_000))
    file = sqlite3.connect(tmp_path / "a.db")
    file.execute("DELETE FROM records WHERE length(v) > 5000")
    file.commit()
    file.close()
    with sync.open(tmp_path / "a.db") as store:
        report = store.verify()
        assert any(one.kind == "damage" for one in report.findings)
        for one in report.findings:
            assert one.place not in one.message
            assert "holdfast verify" not in one.message


def test_where_nothing_can_be_written_reading_is_named(tmp_path: Path) -> None:
    sync.open(tmp_path / "a.db").close()
    (tmp_path / "a.db.lock").unlink(missing_ok=True)
    (tmp_path / "a.db.lock").mkdir()
    with pytest.raises(StorageReadOnlyError, match="read_only=True"):
        sync.open(tmp_path / "a.db")
