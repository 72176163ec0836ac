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
from holdfast.errors import (
    InvalidInputError,
    InvalidValueError,
    PointNotFoundError,
    StorageReadOnlyError,
)
from holdfast.sync.agents import Effects, Mailbox
from holdfast.sync.backup import Backups
from holdfast.sync.checkpoints import Checkpoints
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
        lambda store: store.agent("7").change().set("k", 1),
        r"write `with ….change\(…\) as change:`",
    ),
    "a store's change without with": (
        lambda store: store.change()[store.agent("7")],
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


def test_history_tells_the_versions_of_a_key() -> None:
    with sync.open("memory:") as store:
        state = store.agent("7")
        first = state.set("plan", "think")
        state.set("other", 1)
        with store.acting("ann"), state.change(reason="better") as change:
            change.set("plan", "ship")
        state.delete("plan")
        state.restore(first)
        found = state.history("plan")
        assert [one.value for one in found] == ["think", holdfast.DELETED, "ship", "think"]
        assert [one.version for one in found][1:] == [4, 3, 1]
        assert (found[2].cause.actor, found[2].cause.reason) == ("ann", "better")
        assert [one.time for one in found] == sorted((one.time for one in found), reverse=True)
        assert [one.value for one in state.history("plan", limit=1)] == ["think"]
        assert state.history("nothing") == []


def test_undo_takes_back_the_newest_change_of_whatever_kind() -> None:
    with sync.open("memory:") as store:
        state = store.agent("7")
        with pytest.raises(PointNotFoundError, match="no change to undo"):
            state.undo()
        state.set_many({"a": 1, "b": [1]})
        state.set_many({"a": 2, "c": 3})
        state.checkpoint("kept")  # changes nothing, so that it is passed over
        undone = state.undo()
        assert sorted(undone.done) == ["a", "c"]
        assert state.get_many(["a", "b", "c"]) == {"a": 1, "b": [1]}
        state.undo()
        assert state.get("a") == 2
        state.restore(1)
        assert state.undo().done
        assert state.get("c") == 3
        fork = state.fork("trial")
        with pytest.raises(PointNotFoundError, match="trial: there is no change to undo"):
            fork.undo()
        fork.set("a", 9)
        state.merge(fork)
        state.undo()
        assert state.get("a") == 2


def test_undo_passes_over_effects_and_declarations() -> None:
    with sync.open("memory:") as store:
        state = store.agent("7")
        effects = sync.agents.Effects(state)
        with effects.once("mail", id="0") as effect:
            if effect.due:
                effect.result = "sent"
        with pytest.raises(PointNotFoundError, match="no change to undo, of keys that are yours"):
            state.undo()
        state.set("first", 1)
        state.set("plan", "ship")
        with effects.once("mail", id="1") as effect:
            if effect.due:
                effect.result = "sent"
        state.declare(holdfast.Keep(count=10))
        state.checkpoint("kept")
        assert state.undo().done == ["plan"]
        assert state.get_many(["first", "plan"]) == {"first": 1}
        assert [one.status for one in effects.all()] == ["done", "done"]
        assert state.undo().done == ["plan"], "an undo of an undo has it back"
        assert state.get("plan") == "ship"
        state.restore("kept")
        state.set("plan", "rest")
        state.restore("kept")
        with effects.once("mail", id="2") as effect:
            if effect.due:
                effect.result = "sent"
        assert state.undo().done == ["plan"], "a restore, with an effect behind it"
        assert state.get("plan") == "rest"
        assert len(effects.all()) == 3


def test_undo_passes_over_what_a_loop_notes_for_itself() -> None:
    class Clerk:
        count = 0

        def get_persistent_state(self) -> dict[str, int]:
            return {"count": self.count}

        def apply_persistent_state(self, values: dict[str, int]) -> None:
            vars(self).update(values)

        def step(self) -> holdfast.agents.StepResult:
            self.count += 1
            return holdfast.agents.StepResult(f"count {self.count}", done=self.count >= 3)

    with sync.open("memory:") as store:
        state = store.agent("7")
        state.set("plan", "think")
        state.set("plan", "ship")
        sync.agents.Mailbox(state).send("a letter")
        clerk = Clerk()
        assert sync.agents.run(clerk, state).outcome == "done"
        noted = {key for entry in state.log(limit=None) for key in entry.keys} - {"plan"}
        assert {key.partition("/")[0] for key in noted} >= {"$agent", "$mailbox"}
        assert state.undo().done == ["plan"]
        assert state.get("plan") == "think"
        again = Clerk()
        sync.agents.attach(again, state).restore()
        assert again.count == 3, "what the loop saved is as it was"


def test_set_many_is_one_entry_on_both_faces() -> None:
    with sync.open("memory:both") as store:
        state = store.agent("7")
        assert state.set_many({"a": 1, "b": 2}) == 1
        with pytest.raises(InvalidValueError, match="tuple would not come back"):
            state.set_many({"a": 5, "b": (1, 2)})
        assert state.get_many(["a", "b"]) == {"a": 1, "b": 2}

        async def other() -> None:
            async with holdfast.open("memory:both") as same:
                mine = same.agent("7")
                assert await mine.set_many({"a": 3}) == 2
                assert [one.value for one in await mine.history("a")] == [3, 1]
                assert (await mine.undo()).done == ["a"]

        asyncio.run(other())
        assert state.get("a") == 1


@pytest.mark.parametrize("value", [(1, 2), {1, 2}])
def test_tuples_and_sets_are_refused_with_the_same_words(value: Any) -> None:
    with sync.open("memory:") as store:
        state, effects = store.agent("7"), Effects(store.agent("7"))
        with state.change() as change:
            change.set("l", [])
        for put in (
            lambda: state.set("k", {"deep": [value]}),
            lambda: state.append("l", value),
            lambda: state.set_many({"k": value}),
            lambda: state.update("k", lambda _: value),
            lambda: state.checkpoint("c", metadata={"m": value}),
            lambda: effects.plan("mail", id="1", about=value),
            lambda: Mailbox(state).send({"x": value}),
        ):
            with pytest.raises(
                InvalidValueError, match=r"would not come back as it was; use .*list"
            ):
                put()


def test_a_signer_that_is_gone_is_told_on_opening_and_with_each_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sync.open(tmp_path / "a.db") as store:
        assert store.agent("7").checkpoint("signed").warning == ""
    assert not caplog.records
    (tmp_path / "a.db.sign").unlink()
    with sync.open(tmp_path / "a.db") as store:
        assert "a.db.sign' is missing" in caplog.text
        assert "signer=file:PATH" in store.agent("7").checkpoint("unsigned").warning
        assert "signer=file:PATH" in Checkpoints(store.agent("7")).create("again").warning
