"""What a user meets on the first day: where a store lies, and slips that are answered with a fix."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import holdfast
from holdfast import sync
from holdfast.backup import Backups as AsyncBackups
from holdfast.errors import InvalidInputError
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
