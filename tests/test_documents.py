"""What the five source documents ask for, in their own examples; docs/names.md maps the names.

Only what the core does is here. A mark claims an item of their checklist.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors, sync
from holdfast.errors import Conflict, HoldfastError, InvalidInputError
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Counting, Fault, Faulty

TALK = [
    {"role": "user", "content": "write the report"},
    {"role": "assistant", "content": "which quarter?"},
    {"role": "user", "content": "the third"},
]
AGENT = {
    "conversation": TALK,
    "context": {"window": 100, "topic": "report", "summary": None},
    "configuration": {"model": "large", "temperature": 0.2},
    "tool_usage": {"search": {"calls": 3, "errors": 0}},
    "execution": {"state": "paused", "step": 4},
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in a file, which can be opened again."""
    return f"sqlite:{tmp_path / 'agents.db'}"


@pytest.fixture
def store(store_url: str) -> Iterator[sync.Store]:
    """A store on each engine."""
    with sync.open(store_url, durability="normal") as opened:
        yield opened


def write(state: sync.State, values: dict[str, Any] = AGENT) -> None:
    """Save an agent as one change."""
    with state.change(reason="saved") as change:
        for key, value in values.items():
            change.set(key, value)


# ---- persistence ---------------------------------------------------------------------------


@pytest.mark.spec("M4", "M5", "M9", "M43", "M69")
def test_states_are_there_after_a_restart(url: str) -> None:
    for number in range(3):
        with sync.open(url) as store:
            for name in ("git", "haiku", "greeter"):
                state = store.agent(name)
                assert state.get("n") == (number - 1 if number else None)
                state.set("n", number)


@pytest.mark.spec("M2", "M3", "M13", "L4")
def test_conversation_and_context_come_back_whole(url: str) -> None:
    with sync.open(url) as store:
        write(store.agent("writer"))
        for number in range(400):
            store.agent("writer").append("conversation", {"role": "user", "content": str(number)})
    with sync.open(url) as store:
        found = dict(store.agent("writer").items())
        more = [{"role": "user", "content": str(number)} for number in range(400)]
        assert found == AGENT | {"conversation": TALK + more}
        assert store.agent("writer").tail("conversation", 1) == more[-1:]


@pytest.mark.spec("S2", "S10", "S144")
def test_the_first_opening_makes_the_store_and_later_ones_load_it(tmp_path: Path) -> None:
    path = tmp_path / "var" / "db" / "state.db"
    path.parent.mkdir(parents=True)
    with sync.open(f"sqlite:{path}") as store:
        assert store.scopes().items == []
        assert store.agent("a").get("k", "initial") == "initial"
        store.agent("a").set("k", 1)
    assert path.read_bytes().startswith(b"SQLite format 3")
    with sync.open(f"sqlite:{path}", create=False) as store:
        assert store.agent("a").get("k") == 1


@pytest.mark.spec("L14")
def test_one_program_on_each_backend(tmp_path: Path) -> None:
    found = []
    for backend in ("memory:", f"sqlite:{tmp_path / 'a.db'}"):
        for durability in ("full", "normal"):
            with sync.open(backend, durability=durability) as store:
                store.agent("a").set("k", {"n": 1})
                found.append((store.stats()["engine"], store.agent("a").get("k")))
    assert found == [("memory", {"n": 1})] * 2 + [("sqlite", {"n": 1})] * 2


@pytest.mark.spec("L186")
def test_the_first_example(store: sync.Store) -> None:
    store.shared.set("welcome_message", "Hello, state!")
    assert store.shared.get("welcome_message") == "Hello, state!"


@pytest.mark.spec("L147", "L148")
def test_encryption_is_an_option(tmp_path: Path) -> None:
    for name, options in (("plain", {}), ("sealed", {"key": f"file:{tmp_path / 'k' / 'key'}"})):
        (tmp_path / "k").mkdir(exist_ok=True)
        path = tmp_path / f"{name}.db"
        with sync.open(f"sqlite:{path}", **options) as store:
            store.agent("secret-agent").set("secret-key", "secret-value")
        content = b"".join(p.read_bytes() for p in tmp_path.glob(f"{name}.db*"))
        for word in (b"secret-value", b"secret-key", b"secret-agent"):
            assert (word in content) == (name == "plain")
    with pytest.raises(errors.KeyMissingError):
        sync.open(f"sqlite:{tmp_path / 'sealed.db'}")


@pytest.mark.spec("K5", "M106")
def test_stored_smaller_than_its_json(url: str) -> None:
    messages = [
        {"role": "user", "content": f"message {n} of a long talk", "tokens": n * 7, "pinned": False}
        for n in range(2000)
    ]
    counting = Counting(open_storage(url))
    with sync.open(url, storage=counting) as store:
        counting.reset()
        store.agent("a").set("conversation", messages)
        first = counting.bytes_written
        assert first < len(json.dumps(messages)) / 2
        counting.reset()
        store.agent("a").append("conversation", messages[0])
        assert counting.bytes_written < 1000, "an item more is not the list once more"


@pytest.mark.spec("M120")
def test_classes_are_stored_and_come_back(url: str) -> None:
    @dataclass
    class Plan:
        goal: str
        due: datetime
        steps: list[str]

    registry = holdfast.Registry()
    registry.register(Plan, name="plan")
    plan = Plan("ship", datetime(2026, 5, 1, tzinfo=UTC), ["build", "test"])
    with sync.open(url, registry=registry) as store:
        store.agent("a").set("plan", plan)
        store.agent("a").set("fields", dataclasses.asdict(plan))
    with sync.open(url, registry=registry) as store:
        assert store.agent("a").get("plan") == plan
        assert store.agent("a").get("fields", as_=Plan) == plan


@pytest.mark.spec("L98")
def test_old_versions_of_a_class_are_brought_up_to_date(url: str) -> None:
    @dataclass
    class Old:
        name: str

    @dataclass
    class New:
        name: str
        language: str

    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        assert version == 1
        return fields | {"language": "en"}

    old, new = holdfast.Registry(), holdfast.Registry()
    old.register(Old, name="settings", version=1)
    new.register(New, name="settings", version=2, upgrade=upgrade)
    with sync.open(url, registry=old) as store:
        store.agent("a").set("settings", Old("ada"))
    with sync.open(url, registry=new) as store:
        assert store.agent("a").get("settings") == New("ada", "en")
        store.agent("a").update("settings", lambda settings: settings)
    with sync.open(url, registry=new) as store:
        assert store.agent("a").get("settings") == New("ada", "en")


@pytest.mark.spec("L61")
def test_every_error_is_of_one_family() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    mine = [kind for kind in kinds if issubclass(kind, Exception)]
    assert len(mine) > 30
    assert all(issubclass(kind, HoldfastError) for kind in mine)


# ---- versions and times --------------------------------------------------------------------


@pytest.mark.spec("M24", "M25", "M26", "M46", "X22")
def test_versions_and_times(store: sync.Store) -> None:
    state = store.agent("a")
    items = []
    for number in range(1, 4):
        assert state.set("state", {"n": number}) == number, "the first version is 1"
        items.append(state.item("state"))
        time.sleep(0.002)
    assert [item.version for item in items] == [1, 2, 3]
    assert items[0].time < items[1].time < items[2].time
    created = store.scopes().items[0].created
    assert created <= items[0].time
    for item in items:
        assert state.at(item.version).get("state") == item.value, "every version is kept"
    assert store.scopes().items[0].created == created


@pytest.mark.spec("S7")
def test_times_are_stored_as_numbers_and_shown_as_iso(url: str) -> None:
    from click.testing import CliRunner

    from holdfast.cli.main import main

    with sync.open(url) as store:
        store.agent("a").set("k", 1)
        entry = store.agent("a").log()[0]
        assert entry.time.utcoffset() is not None
    with CliRunner().isolation() as streams:
        assert main(["--store", url, "log", "agent:a", "--json"]) == 0
        shown = json.loads(streams[0].getvalue())["entries"][0]["time"]
    assert datetime.fromisoformat(shown) == entry.time
    with sync.open(url) as store:
        # Numbers compare: a later time is found as later, whatever its zone is written as.
        assert len(store.agent("a").log(since=entry.time)) == 1
        assert store.agent("a").at(entry.time).get("k") == 1


# ---- must-fix lines ------------------------------------------------------------------------


@pytest.mark.spec("X28")
def test_a_rollback_is_what_everybody_sees(url: str) -> None:
    with sync.open(url) as store, sync.open(url) as other:
        state, created = store.agent("a"), None
        for number in range(5):
            state.set("state", {"n": number, "data": AGENT})
            created = created or store.scopes().items[0].created
        state.restore(2)
        for seen in (state, other.agent("a")):
            assert seen.get("state") == {"n": 1, "data": AGENT}, "and no data is dropped"
            assert seen.item("state").version > 5, "it is the newest version now"
        assert store.scopes().items[0].created == created


@pytest.mark.spec("X28")
def test_versions_are_given_out_once(url: str) -> None:
    def work(mine: list[int]) -> None:
        with sync.open(url, durability="normal") as store:
            mine += [store.agent("a").set(f"k{n % 3}", n) for n in range(40)]

    sync.open(url).close()
    lists: list[list[int]] = [[], [], []]
    threads = [threading.Thread(target=work, args=(mine,)) for mine in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(n for mine in lists for n in mine) == list(range(1, 121))
    with sync.open(url) as store:
        version = store.agent("a").item("k0").version
        store.agent("a").set("k0", 1, if_version=version)
        with pytest.raises(Conflict):
            store.agent("a").set("k0", 2, if_version=version)


@pytest.mark.spec("X28")
def test_times_compare_and_replay_is_whole(store: sync.Store) -> None:
    state = store.agent("a")
    for number in range(1500):
        state.append("steps", number)
    middle = state.log(since=700, until=700)[0].time
    later = state.log(since=middle, limit=None)
    assert {entry.sequence for entry in later} >= set(range(701, 1501))
    assert state.replay(lambda count, _: count + 1, 0) == 1500
    first = state.log(since=1, until=1)[0]
    assert [e.sequence for e in state.log(until=first.time)] == [1]


@pytest.mark.spec("X28")
def test_a_transfer_takes_the_conversation_along(store: sync.Store) -> None:
    first, second = store.agent("first"), store.agent("second")
    write(first)
    with pytest.raises(InvalidInputError), store.change(reason="transfer") as change:
        for key in AGENT:
            change[second].set(key, change[first].get(key))
            change[first].delete(key)
        change[second].set("broken", {1, 2})
    assert (dict(first.items()), dict(second.items())) == (AGENT, {}), "it is whole or not at all"
    with store.change(reason="transfer") as change:
        for key in AGENT:
            change[second].set(key, change[first].get(key))
            change[first].delete(key)
    assert (dict(first.items()), dict(second.items())) == ({}, AGENT)
    assert second.log()[0].also == (("agent:first", "main", 2),)


# ---- checkpoints ---------------------------------------------------------------------------


@pytest.mark.spec("K81", "K84", "K85", "K86", "K87")
def test_a_checkpoint_holds_the_state_of_its_moment(url: str) -> None:
    with sync.open(url) as store:
        state = store.agent("a")
        write(state)
        made, root = state.checkpoint("safe"), state.root()
        for key in AGENT:
            state.delete(key)
        state.set("other", 1)
    with sync.open(url) as store:
        state = store.agent("a")
        kept = state.checkpoints()[0]
        assert kept == made
        assert dict(state.at(kept).items()) == AGENT
        assert state.at(kept).root() == root == kept.root != state.root()
        report = store.verify(identity=store.identity())
        assert (report.findings, report.signed) == ([], 1)


@pytest.mark.spec("K21", "K22", "K24", "K26", "K27")
def test_what_identifies_a_saved_state(store: sync.Store) -> None:
    before = datetime.now(UTC)
    made = [
        store.agent(name).checkpoint("c", metadata={"build": name, "n": number})
        for name in ("a", "b")
        for number in range(3)
    ]
    assert len({one.hash for one in made}) == len(made), "ids are unique, also of equal states"
    assert [str(one.scope) for one in made] == ["agent:a"] * 3 + ["agent:b"] * 3
    assert all(before <= one.time <= datetime.now(UTC) for one in made)
    assert made[-1].metadata == {"build": "b", "n": 2}
    assert all(len(one.root) == 64 and one.signed_by for one in made)


@pytest.mark.spec("K4", "K42", "K71", "K90", "K105")
def test_the_audit_trail_is_complete_and_cannot_be_changed(url: str) -> None:
    with sync.open(url) as store:
        state = store.agent("a")
        with store.acting("planner", reason="deploy began", correlation="run-1"):
            state.set("k", 1)
            state.append("l", 1)
            state.delete("k")
            safe = state.checkpoint("safe")
            state.restore(safe)
        trail = state.log(limit=None, newest_first=False)
        kinds = [kind for entry in trail for kind in entry.kinds]
        assert kinds == ["set", "append", "delete", "checkpoint", "checkpoint", "restore"]
        assert {(e.cause.actor, e.cause.reason) for e in trail} == {("planner", "deploy began")}
        assert safe.cause.reason == "deploy began"
        assert store.verify().ok
    storage = open_storage(url)
    for key, row in storage.scan(b"E", b"F"):
        for wrong in (
            None,
            row[:-1] + bytes([row[-1] ^ 1]),
            row[:50] + bytes([row[50] ^ 1]) + row[51:],
        ):
            storage.commit(Batch(drops=[key]))
            if wrong is not None:
                storage.commit(Batch(puts=[(key, wrong)]))
            with sync.open(url) as store:
                assert store.verify().findings, (key, wrong)
            storage.commit(Batch(drops=[key]))
            storage.commit(Batch(puts=[(key, row)]))
    storage.close()
    with sync.open(url) as store:
        assert store.verify().ok


@pytest.mark.spec("D7", "D12", "D13", "D23", "D27")
def test_snapshots_of_each_type(store: sync.Store) -> None:
    manager = store.agent("agent-1")
    manager.set("task", {"id": 7, "progress": 40})
    for kind in ("routine", "pre_operation", "recovery"):
        made = manager.checkpoint(type=kind)
        assert (made.type, str(made.scope)) == (kind, "agent:agent-1")
        assert manager.at(made).get("task") == {"id": 7, "progress": 40}
    with pytest.raises(InvalidInputError, match="routine"):
        manager.checkpoint(type="rutine")


@pytest.mark.spec("D8", "D9", "D14", "D15", "D30")
def test_the_latest_of_a_type_is_found_and_restored(store: sync.Store) -> None:
    manager, other = store.agent("agent-1"), store.agent("agent-10")
    other.set("n", "other")
    for number in range(4):
        manager.set("n", number)
        manager.checkpoint(type="routine" if number < 3 else "recovery")
        other.checkpoint(type="routine")
    assert manager.checkpoints(type="pre_operation", limit=1) == []
    for kind, number in (("routine", 2), ("recovery", 3)):
        latest = manager.checkpoints(type=kind, limit=1)[0]
        manager.restore(latest)
        assert manager.get("n") == number
    assert other.get("n") == "other"


@pytest.mark.spec("D39", "D40", "D41", "D42")
def test_the_manual_recovery_procedure(url: str, tmp_path: Path) -> None:
    with sync.open(url) as store:
        state = store.agent("agent-1")
        state.set("context", "before")
        state.checkpoint("older", type="routine")
        write(state)
        state.checkpoint("latest", type="routine")
        state.set("context", "drifted")
        state.delete("conversation")
        state.checkpoint("not this one", type="manual")
    with sync.open(url) as store:
        state = store.agent("agent-1")
        latest = state.checkpoints(type="routine", limit=1)[0]
        assert latest.name == "latest"
        file = tmp_path / "latest.json"
        sync.checkpoints.export_checkpoint(state, file, at=latest, format="json", plain=True)
        assert json.loads(file.read_text())["state"] == AGENT, "readable without Holdfast"
        assert dict(state.at(latest).items()) == AGENT, "looked into before anything is changed"
        assert state.restore(latest, dry_run=True).diff
        assert state.get("context") == "drifted"
        state.restore(latest)
        assert not state.diff(latest)
        assert dict(state.items()) == AGENT
        state.append("conversation", "it goes on")
    with sync.open(url) as store:
        assert store.agent("agent-1").tail("conversation", 1) == ["it goes on"]


@pytest.mark.spec("M53", "S71", "S73", "D52")
def test_recovery_from_the_newest_good_snapshot(url: str) -> None:
    with sync.open(url) as store:
        state = store.agent("a")
        state.set("k", "x" * 300)
        good = state.checkpoint("good", type="manual")
        state.set("k", "y" * 300)
        bad = state.checkpoint("bad")
        place = state.log(key="k", limit=1)[0].sequence
        state.set("k", "now")
    storage = open_storage(url)
    key, row = next(pair for pair in storage.scan(b"E", b"F") if pair[0][-1] == place)
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row[:-1] + bytes([row[-1] ^ 1]))]))
    storage.close()
    with sync.open(url) as store:
        state = store.agent("a")
        with pytest.raises(errors.StateIntegrityError):
            state.restore(bad, past_damage=True)
        state.restore(good, past_damage=True)
        assert state.get("k") == "x" * 300


STATUSES = ("development", "testing", "staging", "production", "deprecated", "archived")
LEVELS = ("experimental", "alpha", "beta", "stable", "mature")


@pytest.mark.spec("X19")
def test_versions_and_rollbacks_of_others_by_our_names(url: str) -> None:
    """docs/names.md, "Words of others": each row of it does what it says.

    Catches: a checkpoint that copies the state; tags that are not kept or looked for; a rollback of
    some keys or of one entry that takes others along; an emergency that takes what is damaged; an
    error of another kind, or none.
    """
    with sync.open(url) as store:
        state = store.agent("a")
        with state.change() as change:
            for number in range(200):
                change.set(f"k{number:03}", os.urandom(300))

        def size() -> int:
            return sum(len(row) for _, row in store._core.storage.scan(b"", b"\xff"))

        whole = size()
        versions = [
            state.checkpoint(f"1.{n}", tags=[STATUSES[n % 6], LEVELS[n % 5]]) for n in range(30)
        ]
        # full, yet incremental, differential, layered, copy on write: all of it, and none copied
        assert {len(state.at(one).keys()) for one in versions} == {200}
        assert size() - whole < whole / 2
        for number, word in [*enumerate(STATUSES), *enumerate(LEVELS)]:
            many = len(STATUSES) if word in STATUSES else len(LEVELS)
            assert state.checkpoints(tag=word) == versions[number::many][::-1]
        before = dict(state.items())
        # selective and partial
        with state.change() as change:
            change.set("k000", 0)
            change.set("k001", 1)
        state.set("k002", 2)
        sync.checkpoints.Checkpoints(state).restore("1.0", keys=["k000"])
        assert dict(state.items()) == before | {"k001": 1, "k002": 2}
        state.revert(entries=[state.log(key="k002", limit=1)[0].sequence])
        assert dict(state.items()) == before | {"k001": 1}
        # version and snapshot
        changed = state.checkpoint("2.0")
        state.restore("1.0")
        assert dict(state.items()) == before
        state.restore(changed)
        assert dict(state.items()) == before | {"k001": 1}
        # E101, E103
        for unknown in ("9.9", 10_000, "f" * 64):
            with pytest.raises(errors.MissingError):
                state.restore(unknown)
        with pytest.raises(Conflict):
            state.restore("1.0", if_head=1)
        state.set("k001", "lost" * 100)
        bad = state.checkpoint("2.1")
    storage = open_storage(url)
    place = bad.sequence - 1
    key, row = next(pair for pair in storage.scan(b"E", b"F") if pair[0][-1] == place)
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row[:-1] + bytes([row[-1] ^ 1]))]))
    storage.close()
    with sync.open(url) as store:
        state = store.agent("a")
        with pytest.raises(errors.StateIntegrityError):  # E102
            state.restore("2.1", past_damage=True)
        emergency = sync.checkpoints.Checkpoints(state).recover()
        assert emergency.restored_from == changed.id
        assert dict(state.items()) == before | {"k001": 1}


@pytest.mark.spec("K1")
def test_a_state_lies_in_layers_with_whole_checkpoints_and_all_its_versions(tmp_path: Path) -> None:
    """Catches: a change or a checkpoint that is there by half after a commit that failed; a version
    that goes with the next one; a layer that has another state than the store."""
    faulty = Faulty(open_storage(f"sqlite:{tmp_path / 'store.db'}"))
    copy, again = f"sqlite:{tmp_path / 'copy.db'}", f"sqlite:{tmp_path / 'again.db'}"
    with sync.open(f"sqlite:{tmp_path / 'store.db'}", storage=faulty) as store:
        state = store.agent("a")
        for number in range(5):
            for nth in (1, 2):  # the change fails, then the checkpoint does; then neither
                faulty.plan = (Fault("commit", nth=faulty.calls["commit"] + nth),)
                with suppress(errors.Unavailable), state.change() as change:
                    change.set("plan", number)
                    change.set("done", number)
                    change.append("all", number)
                with suppress(errors.Unavailable):
                    state.checkpoint(f"{number}/{nth}")
                assert state.get("plan") == state.get("done")
            faulty.plan = ()
            state.checkpoint(f"{number}")
        made = state.checkpoints()
        assert {one.name for one in made} == {*map(str, range(5)), *(f"{n}/1" for n in range(5))}
        versions = {
            one.name: (state.at(one).get("plan"), state.at(one).get("done")) for one in made
        }
        assert all(versions[str(n)] == (n, n) for n in range(5))
        assert versions["3/1"] == (2, 2)
        assert sync.replicas.Replicas(store, [copy]).sync().ok
        backups = sync.backup.Backups(store, f"dir:{tmp_path / 'backups'}")
        backups.restore(backups.create(unsigned=True).id, again, untrusted=True)
        for url in (copy, again):
            with sync.open(url, read_only=True) as other:
                there = other.agent("a")
                assert there.get("all") == [0, 1, 2, 3, 4]
                assert there.checkpoints() == made
                assert {
                    one.name: (there.at(one).get("plan"), there.at(one).get("done")) for one in made
                } == versions


@pytest.mark.spec("X8")
def test_all_that_an_adapter_of_others_does(url: str) -> None:
    """load, save, checkpoint, listCheckpoints, loadCheckpoint, diff, validate, repair, cleanup,
    compress.

    Catches: any of them that does nothing, or does it to more than was meant.
    """
    with sync.open(url) as store:
        state = store.agent("a")
        write(state)  # save
        state.checkpoint("first")
        state.set("notes", ["a line that repeats itself"] * 10_000)
        state.set("context", {"window": 5})
        state.checkpoint("second")
        assert [one.name for one in state.checkpoints()] == ["second", "first"]
        assert dict(state.at("first").items()) == AGENT  # loadCheckpoint
        compared = state.diff("first", "second")
        assert set(compared.keys) == {"context", "notes"}
        assert set(state.diff("second", "first").keys) == {"context", "notes"}
        stored = sum(len(row) for _, row in store._core.storage.scan(b"", b"\xff"))
        assert stored < 30_000 < len(json.dumps(state.get("notes"))) / 5  # compress
        assert store.verify().ok  # validate
        state.set("context", {"window": 6})
    with sync.open(url) as store:
        assert store.agent("a").get("context") == {"window": 6}  # load
    storage = open_storage(url)
    key, row = storage.scan(b"E", b"F")[-1]
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row[:-1] + bytes([row[-1] ^ 1]))]))
    storage.close()
    with sync.open(url) as store:
        state = store.agent("a")
        assert not store.verify().ok
        assert sync.recovery.Recovery(store).recover(state, "corruption_detected").success  # repair
        assert state.get("context") == {"window": 5}
        rules = {"manual": sync.checkpoints.RetentionRule(max_count=1)}
        sync.checkpoints.Retention(store, rules=rules).run(state, confirm=True)  # cleanup
        assert [one.name for one in state.checkpoints(type="manual")] == ["second"]
        assert state.get("notes") == ["a line that repeats itself"] * 10_000


# ---- fast ----------------------------------------------------------------------------------


@pytest.mark.spec("L8", "L126")
def test_nobody_waits_for_a_writer_and_what_is_known_is_not_read_again(url: str) -> None:
    """Catches: a read that asks the storage for what the process has read or written; a read, or the
    function of an update, that holds a lock for which others wait; an update that hands out what is
    stored in place of a copy."""
    held = Held(open_storage(url))
    with sync.open(url, storage=held) as store:
        one, other = store.agent("one"), store.agent("other")
        for state in (one, other):
            state.set("seen", {"messages": 0})
        one.set("long", long := os.urandom(5000))
        assert one.get("long") == long
        held.reset()
        for _ in range(100):
            assert one.get("seen") == {"messages": 0}
            assert one.get("long") == long
        assert set(held.calls) == {"version"}, "whether another wrote is all that is asked"
        inside, outside = threading.Event(), threading.Event()

        def slowly(seen: dict[str, int]) -> dict[str, int]:
            seen["messages"] += 1  # a copy of its own
            inside.set()
            assert outside.wait(60)
            return seen

        thread = threading.Thread(target=one.update, args=("seen", slowly))
        thread.start()
        assert inside.wait(60)
        assert one.get("seen") == {"messages": 0}
        for state in (one, other):  # meanwhile others write, the same key too
            state.update("seen", lambda seen: {"messages": seen["messages"] + 10})
        outside.set()
        thread.join(60)
        assert [one.get("seen"), other.get("seen")] == [{"messages": 11}, {"messages": 10}]
        held.go_on.clear()  # a disk that stands
        thread = threading.Thread(target=one.set, args=("seen", {"messages": 0}))
        thread.start()
        assert one.get("seen") == {"messages": 11}
        assert one.at(1).get("seen") == {"messages": 0}
        held.go_on.set()
        thread.join(60)
        assert one.get("seen") == {"messages": 0}


@pytest.mark.spec("S129")
def test_what_lives_in_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message bus, the agents at work, a cache of a conversation: fast, gone, and made again.

    Catches: ephemeral keys that reach a file, outlive the process, or are not seen by all of it; a
    store in memory that leaves anything on the disk.
    """
    monkeypatch.chdir(tmp_path)
    kept, alone = "kept on the disk, too", "only in the memory"
    counting = Counting(open_storage("sqlite:agents.db"))
    with sync.open("sqlite:agents.db", storage=counting) as store:
        bus = store.custom("bus")
        bus.declare(holdfast.Ephemeral("live/"))
        bus.set("subscriptions", [kept])
        counting.reset()
        for number in range(50):
            bus.append("live/messages", alone)
            store.custom("bus").set(f"live/agents/{number % 5}", {"talk": alone})
        assert bus.length("live/messages") == 50
        assert len(store.custom("bus").keys("live/agents/")) == 5
        assert counting.calls["commit"] == 0
        bus.checkpoint("now")
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (kept.encode() in content, alone.encode() in content) == (True, False)
    with sync.open("sqlite:agents.db") as store:
        bus = store.custom("bus")
        assert (bus.keys("live/"), bus.get("subscriptions")) == ([], [kept])
        bus.append("live/messages", "again")  # it is declared, and begins anew
        assert bus.get("live/messages") == ["again"]
    before = {path.name for path in tmp_path.iterdir()}
    with sync.open("memory:bus") as one, sync.open("memory:bus") as other:
        one.agent("a").set("k", 1)
        assert other.agent("a").get("k") == 1
    assert {path.name for path in tmp_path.iterdir()} == before


# ---- the async face ------------------------------------------------------------------------


class Held(Counting):
    """A disk that is slow: commits wait until they may go on."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.go_on = threading.Event()
        self.go_on.set()

    def commit(self, batch: Batch) -> None:
        """Commit, when it is time."""
        assert self.go_on.wait(60)
        super().commit(batch)


@pytest.mark.spec("M108")
def test_changes_that_wait_share_a_commit(url: str) -> None:
    held = Held(open_storage(url))

    async def main() -> None:
        async with holdfast.open(url, storage=held) as store:
            held.reset()
            held.go_on.clear()
            submit, given = store._core.committer.submit, []

            def noted(ticket: Any) -> None:
                given.append(ticket)
                submit(ticket)
                if len(given) == 200:  # however slowly they came
                    held.go_on.set()

            store._core.committer.submit = noted  # type: ignore[method-assign]
            await asyncio.gather(*(store.agent(str(n)).set("k", n) for n in range(200)))
            assert held.calls["commit"] <= 20
            assert await store.agent("199").get("k") == 199

    asyncio.run(main())


@pytest.mark.spec("S84")
def test_the_loop_goes_on_while_the_disk_is_slow(url: str) -> None:
    async def main() -> None:
        held = Held(open_storage(url))
        async with holdfast.open(url, storage=held) as store:
            held.go_on.clear()
            saving = asyncio.ensure_future(store.agent("a").checkpoint("c"))
            for _ in range(10):
                await asyncio.sleep(0.005)
            assert not saving.done()
            held.go_on.set()
            assert (await saving).name == "c"

    asyncio.run(main())


# ---- recovery and figures ------------------------------------------------------------------


@pytest.mark.spec("S86")
def test_what_a_restore_after_startup_asks_for_does_not_grow_with_the_past(tmp_path: Path) -> None:
    asked: list[int] = []
    for count in (300, 3000):
        url = f"sqlite:{tmp_path / str(count)}.db"
        with sync.open(url, durability="normal") as store:
            state = store.agent("a")
            state.set("context", "safe")
            state.checkpoint("safe")
            for n in range(count):
                state.set("context", n)
        counting = Counting(open_storage(url))
        with sync.open(url, storage=counting) as store:
            store.agent("a").restore("safe")
            assert store.agent("a").get("context") == "safe"
        asked.append(sum(counting.calls.values()))
    assert asked[1] <= asked[0] + 10


def test_several_ways_back(store: sync.Store) -> None:
    state = store.agent("a")
    write(state)
    safe = state.checkpoint("safe")

    def spoil() -> None:
        state.set("context", "spoiled")
        state.delete("conversation")

    def undo() -> None:
        result = state.restore(0)
        state.restore(result.backup)
        state.restore(safe)

    ways = {
        "a checkpoint": lambda: state.restore(safe),
        "its name": lambda: state.restore("safe"),
        "a moment": lambda: state.restore(safe.time),
        "an entry": lambda: state.restore(1),
        "a fork": lambda: state.adopt(state.fork(f"trial {time.monotonic_ns()}", at=safe)),
        "a restore undone": undo,
    }
    for name, way in ways.items():
        spoil()
        way()
        assert dict(state.items()) == AGENT, name


@pytest.mark.spec("L197")
def test_how_often_the_cache_helps(url: str) -> None:
    with sync.open(url) as store:
        for number in range(50):
            store.agent("a").set(f"k{number}", "x" * 200)
    with sync.open(url) as store:
        rates = [store.stats()["cache_hit_rate"]]
        for _ in range(3):
            for number in range(50):
                store.agent("a").get(f"k{number}")
            rates.append(store.stats()["cache_hit_rate"])
        assert rates == sorted(rates)
        assert rates[0] < 0.1
        assert rates[-1] > 0.5
