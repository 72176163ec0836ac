"""Migrations: all values of a scope or none, beside writers, and after a kill."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place

import holdfast
from holdfast import Lookup, Sticky, sync
from holdfast.errors import InvalidSchemaError, LeaseHeldError, MissingError, TransformError
from holdfast.schemas import Migrations as AsyncMigrations
from holdfast.schemas import schema as schemas
from holdfast.schemas.transforms import CUSTOM
from holdfast.sync.schemas import (
    Convert,
    Copy,
    Custom,
    Default,
    MigrationReport,
    Migrations,
    Move,
    Number,
    Schema,
    Schemas,
    Step,
    Text,
    transform,
)

ONE = {"name": Text(), "age": Text(optional=True)}
TWO = {"title": Text(), "age": Number(optional=True), "in": sync.schemas.AnyValue(optional=True)}
THREE = {**TWO, "level": Number()}
TO_TWO = Step(1, 2, [Move("name", "title"), Copy("title", "in.title"), Default("age", "0")])
TO_TWO = Step(1, 2, [*TO_TWO.transformations, Convert("age", "parse_int")])
TO_THREE = Step(2, 3, [Default("level", 1)])


def one(**more: Any) -> Schema:
    return Schema("p", 1, prefix="p/", fields=ONE, **more)


def two(**more: Any) -> Schema:
    return Schema("p", 2, prefix="p/", fields=TWO, steps=[TO_TWO], **more)


def three(**more: Any) -> Schema:
    return Schema("p", 3, prefix="p/", fields=THREE, steps=[TO_TWO, TO_THREE], **more)


def led(name: str, age: int = 0) -> dict[str, Any]:
    return {"age": age, "title": name, "in": {"title": name}}


def stamped(state: sync.State) -> dict[int, int]:
    """How many values there are of each version."""
    found: dict[int, int] = {}
    for line in [holdfast.store.inner.handle_of(state).reader.now()]:
        assert line is not None
        for _, slot in line.scan("p/"):
            version = holdfast.store.inner.read_meta(slot.meta).schema
            found[version] = found.get(version, 0) + 1
    return found


def run(store: sync.Store, scope: str = "*", **more: Any) -> MigrationReport:
    (report,) = Migrations(store).run(scope, "p", **more)
    return report


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    made = store.agent("1")
    made.declare(one())
    for n in range(7):
        made.set(f"p/{n}", {"name": f"n{n}", "age": str(n)})
    return made


@pytest.mark.spec("L91", "L94", "L97", "X45", "X49")
def test_migration_must_run_the_declared_transforms_in_one_entry(
    store: sync.Store, state: sync.State
) -> None:
    state.declare(two())
    report = run(store, "agent:1", to=2, batch_size=3)
    assert (report.status, report.migrated, report.failures) == ("completed", 7, ())
    assert report.versions == {1: 7}
    assert state.items("p/") == [(f"p/{n}", led(f"n{n}", n)) for n in range(7)]
    assert stamped(state) == {2: 7}
    changed = [one for one in state.log() if "p/3" in one.keys]
    assert len(changed) == 1, "its set, and nothing else on main"
    assert report.checkpoint is not None
    assert report.checkpoint.type == "migration"
    assert state.at(report.checkpoint).get("p/3") == {"name": "n3", "age": "3"}
    assert run(store).migrated == 0
    assert store.verify().ok


@pytest.mark.spec("L6", "X49")
def test_migration_must_check_each_items_own_version(store: sync.Store, state: sync.State) -> None:
    state.set("p/old", {"name": "old"})
    state.declare(two())
    state.set("p/0", {"title": "new"})
    assert stamped(state) == {1: 7, 2: 1}
    state.declare(three())
    state.set("p/1", {"title": "newest", "level": 9})
    report = run(store)
    assert report.versions == {1: 6, 2: 1, 3: 1}
    assert report.migrated == 7
    assert state.get("p/0") == {"title": "new", "level": 1}
    assert state.get("p/1") == {"title": "newest", "level": 9}
    assert state.get("p/old") == {**led("old"), "level": 1}


@pytest.mark.spec("X49")
def test_migration_must_refresh_caches_of_every_handle(place: Place) -> None:
    here, other = place.open(), place.open()
    state, same = here.agent("1"), other.agent("1")
    state.declare(one())
    state.set("p/0", {"name": "n0"})
    assert same.get("p/0") == {"name": "n0"}, "which other now knows"
    state.declare(two())
    assert run(here).status == "completed"
    assert same.get("p/0") == state.get("p/0") == led("n0")
    assert stamped(same) == {2: 1}


@pytest.mark.spec("L93")
def test_one_key_alone(store: sync.Store, state: sync.State) -> None:
    state.declare(two())
    assert run(store, "agent:1", key="p/3").migrated == 1
    assert stamped(state) == {1: 6, 2: 1}
    assert state.get("p/3") == led("n3", 3)
    assert Migrations(store).status("agent:1", "p")[0].status == "not_started"
    assert run(store, "agent:1").migrated == 6


@pytest.mark.spec("L94")
def test_all_scopes_that_fit_a_pattern(store: sync.Store) -> None:
    for name in ("agent:1", "agent:2", "session:1"):
        store.scope(name).declare(one())
        store.scope(name).set("p/1", {"name": name})
        store.scope(name).declare(two())
    store.agent("3").set("p/1", {"name": "no schema"})
    reports = Migrations(store).run("agent:*", "p")
    assert [str(found.scope) for found in reports] == ["agent:1", "agent:2"]
    assert store.session("1").get("p/1") == {"name": "session:1"}
    assert store.agent("3").get("p/1") == {"name": "no schema"}
    states = {str(found.scope): found.status for found in Migrations(store).status("*", "p")}
    assert states == {"agent:1": "completed", "agent:2": "completed", "session:1": "not_started"}
    with pytest.raises(MissingError, match="no scope that fits"):
        Migrations(store).run("agent:3", "p")
    with pytest.raises(InvalidSchemaError, match="declares version 2 of p, not 3"):
        Migrations(store).run("agent:1", "p", to=3)


@pytest.mark.spec("X45")
def test_a_dry_run_says_what_would_be_and_writes_nothing(
    store: sync.Store, state: sync.State
) -> None:
    state.set("p/bad", {"name": "bad", "age": "many"})
    state.declare(two())
    head = state.log(limit=1)[0].sequence
    report = run(store, dry_run=True)
    assert report.dry_run
    assert report.status == "failed"
    assert report.migrated == 7
    assert report.failures == ("p/bad (version 1): age cannot be made int",)
    state.delete("p/bad")
    report = run(store, dry_run=True)
    assert report.status == "completed"
    assert report.migrated == 7
    assert state.log(limit=1)[0].sequence == head + 1
    assert [line.name for line in state.timelines()] == ["main"]
    assert Migrations(store).status("*", "p")[0].status == "not_started"


@pytest.mark.spec("X45", "X49")
def test_migration_must_report_failures_and_take_nothing_over(
    store: sync.Store, state: sync.State
) -> None:
    state.set("p/5", {"name": "x", "age": "many"})
    state.set("p/6", {"name": "x", "age": "-"})
    state.declare(two())
    report = run(store, batch_size=2)
    assert report.status == "failed"
    assert len(report.failures) == 2
    assert report.failures[0].startswith("p/5 (version 1): ")
    assert state.get("p/0") == {"name": "n0", "age": "0"}
    assert stamped(state) == {1: 7}
    assert Migrations(store).status("*", "p")[0].status == "failed"
    assert [line.name for line in state.timelines()] == ["main"], "what was done is ended"
    state.set("p/5", {"title": "x", "age": 5})
    state.delete("p/6")
    assert run(store).status == "completed"
    assert stamped(state) == {2: 6}


@pytest.mark.spec("X49")
def test_what_does_not_fit_after_its_steps_is_named_with_its_path(
    store: sync.Store, state: sync.State
) -> None:
    newer = {**TWO, "age": Number(maximum=3, optional=True)}
    state.declare(Schema("p", 2, prefix="p/", fields=newer, steps=[TO_TWO]))
    report = run(store)
    assert [said.partition(":")[0] for said in report.failures] == [
        f"p/{n} (version 1)" for n in (4, 5, 6)
    ]
    assert all("age: it is greater than the maximum of 3" in said for said in report.failures)


@pytest.mark.spec("X45", "X49")
def test_migration_must_roll_back_and_can_run_again(store: sync.Store, state: sync.State) -> None:
    state.declare(two())
    report = run(store)
    state.restore(report.checkpoint)
    assert state.get("p/1") == {"name": "n1", "age": "1"}
    found = Migrations(store).status("*", "p")[0]
    assert found.status == "rolled_back"
    assert found.checkpoint == report.checkpoint
    assert run(store).status == "completed"
    assert state.get("p/1") == led("n1", 1)


@pytest.mark.spec("L6", "L98", "X49")
def test_older_values_are_led_on_when_read_and_stored_anew_when_written(
    place: Place, store: sync.Store, state: sync.State
) -> None:
    other = place.open().agent("1")
    assert other.get("p/1") == {"name": "n1", "age": "1"}  # in the cache of another handle
    state.declare(Lookup("by_age", "p/", {"age": "age"}))
    before = state.checkpoint("before")
    state.declare(two(auto_migrate=True))
    schemas._known.clear()
    assert other.get("p/1") == led("n1", 1)
    assert other.items("p/")[1] == ("p/1", led("n1", 1))
    assert other.get_many(["p/1"]) == {"p/1": led("n1", 1)}
    assert other.item("p/1").value == led("n1", 1)
    with other.change() as change:
        assert change.get("p/1") == led("n1", 1)
    assert state.at(before).get("p/1") == {"name": "n1", "age": "1"}
    assert stamped(state) == {1: 7}, "reading writes nothing"
    other.update("p/1", lambda old: {**old, "title": "changed"})
    assert stamped(state) == {1: 6, 2: 1}
    assert state.get("p/1") == {**led("n1", 1), "title": "changed"}
    assert run(store).migrated == 6
    assert other.get("p/2") == led("n2", 2)
    assert stamped(other) == {2: 7}


@pytest.mark.spec("L6")
def test_an_older_value_that_cannot_be_led_says_so(store: sync.Store, state: sync.State) -> None:
    state.set("p/1", {"name": "x", "age": "many"})
    state.declare(two(auto_migrate=True))
    with pytest.raises(TransformError, match=r"'p/1' is of p 1 and cannot be led to 2.*set it"):
        state.get("p/1")
    state.set("p/1", {"title": "x"})
    assert state.get("p/1") == {"title": "x"}


@dataclass
class Person:
    title: str
    age: int = 0


@pytest.mark.spec("L6")
def test_objects_are_migrated_as_what_they_hold(place: Place) -> None:
    registry = holdfast.Registry()
    registry.register(Person)
    store = place.open(registry=registry)
    state = store.agent("1")
    old = Schema("p", 1, prefix="p/", fields={"title": Text(), "age": Text()})
    state.declare(old)
    state.set("p/1", holdfast.Typed("Person", 1, {"title": "x", "age": "7"}))
    steps = [Step(1, 2, [Convert("age", "parse_int")])]
    state.declare(Schema("p", 2, prefix="p/", of=Person, steps=steps, auto_migrate=True))
    assert state.get("p/1") == Person("x", 7)
    assert run(store).status == "completed"
    assert state.get("p/1") == Person("x", 7)
    assert stamped(state) == {2: 1}


@pytest.mark.spec("L6")
def test_values_from_before_there_was_a_schema(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("p/good", {"name": "x"})
    state.set("p/bad", {"names": "x"})
    state.declare(one())
    assert state.get("p/bad") == {"names": "x"}, "what is there is not looked at"
    report = run(store)
    assert report.versions == {0: 2}
    assert report.status == "failed"
    assert '"name" is a required property' in report.failures[0]
    state.delete("p/bad")
    state.declare(two(auto_migrate=True))
    assert state.get("p/good") == {"name": "x"}, "nobody knows of which version it is"
    assert run(store).status == "completed"
    assert state.get("p/good") == led("x")


@pytest.mark.spec("L6")
def test_expiry_and_class_survive_and_what_has_expired_stays_gone(
    timed: sync.Store, hands: Hands
) -> None:
    state = timed.agent("1")
    state.declare(one())
    state.set("p/short", {"name": "x"}, ttl=10)
    state.set("p/long", {"name": "x"}, ttl=100, class_="sensitive")
    state.declare(two())
    hands.move(20)
    assert run(timed).migrated == 1
    item = state.item("p/long")
    assert item is not None
    assert item.value == led("x")
    assert item.class_ == "sensitive"
    hands.move(50)
    assert state.keys("p/") == ["p/long"]
    hands.move(50)
    assert state.keys("p/") == []


@pytest.mark.spec("X49")
def test_what_restores_leave_alone_is_migrated_too(store: sync.Store, state: sync.State) -> None:
    state.declare(Sticky("p"), two())
    state.set("plain", "sticky, and of no schema")
    report = run(store, batch_size=2)
    assert report.status == "completed"
    assert stamped(state) == {2: 7}
    state.declare(three())
    state.restore(report.checkpoint)
    assert stamped(state) == {2: 7}
    assert run(store).status == "completed"
    assert stamped(state) == {3: 7}
    assert store.verify().ok


@pytest.mark.spec("L6")
def test_lookups_find_what_was_migrated(store: sync.Store, state: sync.State) -> None:
    state.declare(Lookup("titles", "p/", {"title": "title"}))
    assert state.find("titles", title="n3").items == []
    state.declare(two())
    run(store)
    assert state.find("titles", title="n3").items == ["p/3"]
    assert store.verify().ok


@pytest.fixture
def meddling() -> Iterator[dict[str, Any]]:
    """A transform that does something in the middle of a migration."""
    done: dict[str, Any] = {"at": 3, "do": lambda: None}

    @transform("test: meddle")
    def meddle(value: dict[str, Any]) -> dict[str, Any]:
        done["at"] -= 1
        if done["at"] == 0:
            done["do"]()
        return value

    yield done
    del CUSTOM["test: meddle"]


def meddled() -> Schema:
    steps = [Step(1, 2, [Custom("test: meddle"), *TO_TWO.transformations])]
    return Schema("p", 2, prefix="p/", fields=TWO, steps=steps)


@pytest.mark.spec("L6", "X49")
def test_what_others_write_meanwhile_is_brought_along(
    place: Place, store: sync.Store, state: sync.State, meddling: dict[str, Any]
) -> None:
    other = place.open().agent("1")
    state.declare(meddled())

    def do() -> None:
        other.set("p/0", {"title": "theirs"})
        other.set("p/new", {"title": "new"})
        other.delete("p/5")
        other.append("talk", "hello")

    meddling["do"] = do
    report = run(store, batch_size=2)
    assert report.status == "completed"
    assert stamped(state) == {2: 7}
    assert state.get("p/0") == {"title": "theirs"}
    assert state.get("p/new") == {"title": "new"}
    assert not state.exists("p/5")
    assert state.get("talk") == ["hello"]
    assert state.get("p/6") == led("n6", 6)


@pytest.mark.spec("X49")
def test_older_values_that_come_back_meanwhile_are_migrated(
    place: Place, store: sync.Store, state: sync.State, meddling: dict[str, Any]
) -> None:
    before = state.checkpoint("before")
    state.set("p/0", {"name": "later", "age": "8"})
    state.declare(meddled())
    meddling["do"] = lambda: place.open().agent("1").restore(before)
    assert run(store).status == "completed"
    assert stamped(state) == {2: 7}
    assert state.get("p/0") == led("n0", 0)


@pytest.mark.spec("X49")
def test_beside_writers_that_do_not_stop(place: Place, store: sync.Store) -> None:
    state = store.agent("1")
    state.declare(one())
    for n in range(300):
        state.set(f"p/{n}", {"name": f"n{n}"})
    state.declare(two())
    other, stop, written = place.open().agent("1"), threading.Event(), [0]

    def write() -> None:
        while not stop.wait(0.02):
            other.set(f"p/{written[0] % 300}", {"title": f"w{written[0]}"})
            written[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        report = run(store, batch_size=50)
    finally:
        stop.set()
        thread.join()
    assert report.status == "completed"
    assert stamped(state) == {2: 300}
    for n in range(300):
        newest = [w for w in range(written[0]) if w % 300 == n]
        title = f"w{newest[-1]}" if newest else f"n{n}"
        assert state.get(f"p/{n}")["title"] == title


@pytest.mark.spec("X49")
def test_of_two_runs_at_once_one_waits_and_finds_it_done(
    place: Place, store: sync.Store, state: sync.State, meddling: dict[str, Any]
) -> None:
    other = place.open()
    state.declare(meddled())
    found: list[MigrationReport] = []
    second = threading.Thread(target=lambda: found.append(run(other, batch_size=2)))

    def do() -> None:
        second.start()
        with pytest.raises(LeaseHeldError):
            run(other, timeout=0.1)
        assert run(other, dry_run=True).migrated == 7, "who only looks waits for nobody"
        other.agent("1").set("p/0", {"title": "later"})

    meddling["do"] = do
    first = run(store, batch_size=2)
    second.join()
    assert [(one.status, one.migrated) for one in (first, *found)] == [
        ("completed", 7),
        ("completed", 0),
    ]
    assert stamped(state) == {2: 7}
    assert state.get("p/0") == {"title": "later"}
    assert state.get("p/6") == led("n6", 6)
    assert store.verify().ok


@pytest.mark.spec("X49")
def test_a_scope_that_is_erased_meanwhile(
    store: sync.Store, state: sync.State, meddling: dict[str, Any]
) -> None:
    state.declare(meddled())
    store.agent("2").declare(one())
    store.agent("2").set("p/1", {"name": "x"})
    store.agent("2").declare(two())
    meddling["do"] = lambda: store.erase("agent:1")
    first, second = Migrations(store).run("agent:*", "p")
    assert (first.status, first.failures) == ("failed", ("the scope was deleted meanwhile",))
    assert second.status == "completed"
    assert [str(one.scope) for one in store.scopes().items] == ["agent:2"]


@pytest.mark.spec("X45")
def test_after_its_time_it_stops_and_goes_on_when_run_again(
    store: sync.Store, state: sync.State, meddling: dict[str, Any]
) -> None:
    state.declare(meddled())
    report = run(store, timeout=1e-9)
    assert (report.status, report.migrated) == ("in_progress", 0)
    assert stamped(state) == {1: 7}
    found = Migrations(store).status("*", "p")[0]
    assert found.status == "in_progress"
    assert found.checkpoint == report.checkpoint
    (line,) = [one.name for one in state.timelines() if one.name != "main"]
    fork = state.on(line)
    assert run(store, dry_run=True).status == "completed", "it leaves what is under way alone"
    done = run(store)
    assert done.status == "completed"
    assert done.checkpoint == report.checkpoint
    assert stamped(fork) == stamped(state) == {2: 7}
    assert len(state.checkpoints(type="migration")) == 1


@pytest.mark.spec("X45")
def test_a_transform_that_is_not_registered_is_told_before_anything_is_done(
    store: sync.Store, state: sync.State, meddling: dict[str, Any]
) -> None:
    state.declare(meddled())
    assert run(store, timeout=1e-9).status == "in_progress"
    kept, before = CUSTOM.pop("test: meddle"), [line.name for line in state.timelines()]
    for dry in (True, False):
        with pytest.raises(TransformError, match=r"no transform 'test: meddle' here.*--module"):
            run(store, dry_run=dry)
    assert [line.name for line in state.timelines()] == before, "what was done is kept"
    CUSTOM["test: meddle"] = kept
    assert run(store).status == "completed"
    del CUSTOM["test: meddle"]
    assert run(store).status == "completed", "nothing is left that needs it"
    CUSTOM["test: meddle"] = kept


def test_the_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.declare(one())
            await state.set("p/1", {"name": "x"})
            await state.declare(two())
            (report,) = await AsyncMigrations(store).run("agent:1", "p")
            assert report.status == "completed"
            assert await state.get("p/1") == led("x")
            assert (await holdfast.schemas.Schemas(store).get("p", 1)).version == 1

    asyncio.run(main())


def test_what_cannot_be_run_is_refused(store: sync.Store, state: sync.State) -> None:
    for wrong in ({"batch_size": 0}, {"timeout": -1}, {"dry_run": 1}):
        with pytest.raises(holdfast.errors.InvalidInputError):
            run(store, **wrong)
    with pytest.raises(holdfast.errors.InvalidInputError, match="to is a number of 1 or more"):
        run(store, to="1")
    with pytest.raises(MissingError, match="no scope that fits \\* has a key 'p/nope' of p"):
        run(store, key="p/nope")
    for kind in (Migrations, Schemas):
        with pytest.raises(holdfast.errors.InvalidInputError):
            kind(state)  # type: ignore[arg-type]


KILLED = """
import os, sys
from holdfast import sync
from holdfast.storage.sqlite import engine as sqlite
commits, commit = int(sys.argv[2]), sqlite.SqliteStorage.commit
store = sync.open("sqlite:" + sys.argv[1], durability="normal")
def counted(self, batch):
    global commits
    commits -= 1
    if commits < 0:
        os.kill(os.getpid(), 9)
    commit(self, batch)
sqlite.SqliteStorage.commit = counted
def others():
    state = store.agent("1")
    state.set("note", "second")
    state.set("p/new", {"title": "new"})
    state.set("p/03", {"title": "theirs"})
    state.delete("p/04")
if sys.argv[3:]:
    from holdfast.schemas.migrations import _Work
    migrate, meanwhile = _Work._migrate, [others]
    def meddled(self, state):
        migrate(self, state)
        if meanwhile:
            meanwhile.pop()()
    _Work._migrate = meddled
sync.schemas.Migrations(store).run("agent:1", "p", batch_size=5)
"""


def killed(place: Place, *more: str) -> Iterator[tuple[sync.Store, int]]:
    """The same store after a migration that was killed at its first commit, at its second …, each
    time as it was before; and what ended it."""
    place.close()
    whole = {file: file.read_bytes() for file in place.path.parent.iterdir() if file.is_file()}
    for commits in range(40):
        for file in place.path.parent.iterdir():
            file.unlink()
        for file, data in whole.items():
            file.write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(place.path), str(commits), *more],
            env=place.environment(),
            check=False,
            timeout=60,
        )
        yield place.open(), done.returncode
        place.close()
        if done.returncode == 0:
            return
        assert done.returncode == -9


@pytest.fixture
def twenty(tmp_path: Path) -> Place:
    """A file with twenty older values."""
    place = Place("sqlite", tmp_path, sealed=False)
    state = place.open().agent("1")
    state.declare(one())
    for n in range(20):
        state.set(f"p/{n:02}", {"name": f"n{n}"})
    state.declare(two())
    return place


@pytest.mark.spec("L6", "X49")
def test_killed_at_each_of_its_commits_it_goes_on(twenty: Place) -> None:
    seen = []
    for store, _ in killed(twenty):
        state = store.agent("1")
        seen.append(stamped(state))
        assert seen[-1] in ({1: 20}, {2: 20}), "all or none"
        report = run(store)
        assert report.status == "completed"
        assert report.migrated == (20 if seen[-1] == {1: 20} else 0), "with what was done before"
        assert state.items("p/") == [(f"p/{n:02}", led(f"n{n}")) for n in range(20)]
        lines = [line.name for line in state.timelines() if line.name != "main"]
        assert len(lines) == 1, "it went on with the fork that there was"
        assert Migrations(store).status("*", "p")[0].status == "completed"
        assert store.verify().ok
    assert seen[0] == {1: 20}
    assert seen[-1] == {2: 20}
    assert len(seen) > 7


@pytest.mark.spec("L6", "X49")
def test_killed_beside_a_writer_it_brings_back_nothing_that_went_since(twenty: Place) -> None:
    state = twenty.open().agent("1")
    state.set("note", "first")
    state.checkpoint("before")
    ends = []
    for store, end in killed(twenty, "beside a writer"):
        ends.append(end)
        state = store.agent("1")
        state.restore("before")  # the fork may have what was written since
        assert run(store).status == "completed"
        assert state.items("p/") == [(f"p/{n:02}", led(f"n{n}")) for n in range(20)]
        assert state.get("note") == "first"
        assert store.verify().ok
    assert len(ends) > 15


def test_what_was_brought_and_went_since_does_not_come_back(
    store: sync.Store, state: sync.State
) -> None:
    state.set("note", "first")
    before = state.checkpoint("before")
    state.declare(two())
    assert run(store, timeout=0).status == "in_progress"
    state.set_many({"note": "second", "other": 1, "p/0": {"title": "x"}, "p/new": {"title": "x"}})
    state.delete("p/1")
    for _ in range(2):  # what was brought twice, too
        assert run(store, timeout=0).status == "in_progress"
    state.restore(before)
    assert run(store).status == "completed"
    assert state.items("p/") == [(f"p/{n}", led(f"n{n}", n)) for n in range(7)]
    assert (state.get("note"), state.exists("other")) == ("first", False)
