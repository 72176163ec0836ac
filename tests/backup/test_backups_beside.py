"""A backup is of one moment, on every engine, while others write."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from backup_kit import fill, open_at, restored, values
from store_kit import Place

from holdfast import sync
from holdfast.backup import backup_restore as restoring
from holdfast.errors import InvalidInputError, RefusedError, Unavailable

WRITERS = 3


def write(place: Place, number: int, written: list[int], end: threading.Event) -> None:
    """Move numbers between two agents: their sum is always the same, and each step is logged."""
    with sync.open(place.url, **place.options()) as store:
        step = 0
        while not end.is_set():
            step += 1
            with store.change(id=f"step-{number}-{step}") as change:
                change[f"agent:left-{number}"].set("n", step)
                change[f"agent:right-{number}"].set("n", -step)
                change[f"agent:right-{number}"].append("log", step)
            written[number] = step
            if step % 7 == 0:
                store.agent(f"left-{number}").checkpoint(f"at {step}")
            if step % 20 == 0:
                store.agent(f"left-{number}").prune(step - 10)


def test_no_change_is_half_in_a_backup(place: Place, store: sync.Store, tmp_path: Path) -> None:
    store.agent("first").set("k", list(range(3000)))
    written, end = [0] * WRITERS, threading.Event()
    writers = [
        threading.Thread(target=write, args=(place, number, written, end))
        for number in range(WRITERS)
    ]

    def wait_for_more() -> None:
        before = sum(written)
        while sum(written) == before:
            assert any(writer.is_alive() for writer in writers)
            time.sleep(0.001)

    for writer in writers:
        writer.start()
    try:
        backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
        made = []
        for _ in range(3):
            wait_for_more()
            made.append(backups.create(keys=place.sealed))
        wait_for_more()  # they still write when the last one is made
    finally:
        end.set()
        for writer in writers:
            writer.join()
    steps = []
    for number, one in enumerate(made):
        again = restored(backups, one.id, place, f"again-{number}")
        for writer_ in range(WRITERS):
            left = again.agent(f"left-{writer_}").get("n", default=0)
            assert left == -again.agent(f"right-{writer_}").get("n", default=0)
            assert again.agent(f"right-{writer_}").get("log", default=[]) == list(
                range(1, left + 1)
            )
            steps.append(left)
        again.close()
    assert any(steps)


def test_a_store_is_made_on_the_same_engine(
    place: Place, store: sync.Store, tmp_path: Path
) -> None:
    fill(store, 2, 5)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made = backups.create(keys=place.sealed)
    url = re.sub(r"(test[-_]\d+[-_]\d+)", r"\1_again", place.url).replace("store.db", "again.db")
    backups.restore(made.id, url)
    again = open_at(url, place)
    assert values(again) == values(store)
    assert again.verify().findings == []
    again.agent("agent-0").set("goes", "on")
    if place.sealed and "ring=" in url:
        with pytest.raises(InvalidInputError, match="ring="):
            backups.restore(made.id, url.partition("&ring=")[0])


@pytest.mark.parametrize("order", ["at once", "one after the other"])
@pytest.mark.parametrize("sealed", [False, True])
def test_of_two_who_restore_to_one_place_one_is_refused(
    tmp_path: Path, sealed: bool, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that nothing is there; who is refused drops nothing of the other's."""
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    fill(store)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made, before = backups.create(keys=sealed), values(store)
    url, both, found = f"sqlite:{tmp_path}/again.db", threading.Barrier(2), []
    done = threading.Event()
    look = restoring._Turn.begin

    def begin(turn: Any, url: str) -> None:
        if both.wait(60) == 0 and order == "one after the other":
            assert done.wait(60)
        look(turn, url)

    def restore() -> None:
        try:
            found.append(backups.restore(made.id, url))
        except RefusedError as error:
            found.append(error)
        done.set()

    monkeypatch.setattr(restoring._Turn, "begin", begin)
    threads = [threading.Thread(target=restore) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (refused,) = [one for one in found if isinstance(one, RefusedError)]
    assert "somebody else restores" in str(refused)
    with sync.open(url, key=place.key, create=False) as again:
        assert values(again) == before
        assert again.verify().findings == []
    place.close()


def test_a_file_that_was_put_in_place_of_the_store_is_not_backed_up(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path}/other.db") as other:
        other.agent("other").set("k", 1)
    store = sync.open(f"sqlite:{tmp_path}/mine.db")
    store.agent("mine").set("k", 1)
    (tmp_path / "mine.db-wal").unlink()
    (tmp_path / "mine.db-shm").unlink()
    (tmp_path / "other.db").replace(tmp_path / "mine.db")
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    with pytest.raises(Unavailable, match="replaced or removed"):
        backups.create()
    assert backups.list() == []
    store.close()
