"""A checkpoint as one file, taken over again: what a user relies on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Hands, Place, same

import holdfast
from holdfast import Classed, Ephemeral, Lookup, Sticky, Typed, sync
from holdfast.checkpoints import Condition, Policy, PolicyFrequency, PolicySetting
from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    ErasedError,
    GateRefusedError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    LimitExceededError,
    ReadOnlyError,
    ScopeErasedError,
    Unavailable,
    UntrustedSignerError,
    WrongKeyError,
)
from holdfast.seal.codec import Unbuilt
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.sync.checkpoints import export_checkpoint, import_checkpoint, inspect_export

EXACT: dict[str, Any] = {
    "none": None,
    "whole": [0, -1, 2**63, -(2**63), 2**200, True],
    "floats": [0.0, -0.0, 1e16, float("inf"), float("nan"), 5e-324],
    "order": {"b": 1, "a": {7: "seven", "7": "text"}, "": []},
    "texts": ["", "é", "\ud800 lone", "x" * 20_000],
    "bytes": b"\0" * 70_000,
    "time": datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "utc": datetime(2026, 1, 1, tzinfo=UTC),
    "mapping": {f"field {n}": [n, str(n)] for n in range(900)},
    "list": [{"n": n} for n in range(900)],
}


def public_key(store: sync.Store) -> str:
    return store.identity().rsplit(":", 1)[1]


def filled(store: sync.Store, scope: str = "agent:1") -> sync.State:
    """A state with a checkpoint, and something that came later."""
    state = store.scope(scope)
    for key, value in EXACT.items():
        state.set(key, value)
    state.checkpoint("good", tags=["a", "b"], description="all is well", metadata={"n": 1})
    state.set("none", "later")
    return state


def everything(state: sync.State | sync.View) -> dict[str, Any]:
    return dict(state.items())


@pytest.fixture
def other(tmp_path: Path) -> Any:
    """Another store, encrypted, with a signer of its own."""
    (tmp_path / "other").mkdir()
    made = Place("memory", tmp_path / "other", sealed=True)
    yield made.open()
    made.close()


@pytest.mark.parametrize("key", [None, "file", "passphrase:correct horse"])
def test_what_goes_out_comes_in_exactly(
    place: Place, other: sync.Store, tmp_path: Path, key: str | None
) -> None:
    """Into another scope of another store, under other keys: the same values, types and order."""
    store = place.open()
    state = filled(store)
    key = f"file:{tmp_path / 'export.key'}" if key == "file" else key
    path = tmp_path / "out.hfx"
    made = export_checkpoint(state, path, key=key, plain=key is None)
    assert (str(made.scope), made.name, made.keys) == ("agent:1", "good", len(EXACT))
    assert (made.tags, made.description, made.metadata) == (("a", "b"), "all is well", {"n": 1})
    assert made.encrypted == (key is not None)
    assert (b"correct horse" in path.read_bytes()) is False
    assert (b"field 899" in path.read_bytes()) <= (key is None)
    assert inspect_export(path, key=key, trust=[public_key(store)]) == made

    there = other.agent("another")
    done = import_checkpoint(there, path, key=key, trust=[public_key(store)])
    assert (done.scope, done.export, done.left) == (there.scope, made, ())
    assert list(everything(there)) == sorted(EXACT)
    assert all(same(value, EXACT[name]) for name, value in everything(there).items())
    assert same(everything(state.at("good")), everything(there))
    there.checkpoint("again")
    again = export_checkpoint(there, tmp_path / "again.hfx", plain=True)
    assert (again.digest, again.bytes) == (made.digest, made.bytes)
    assert other.verify().findings == []
    assert store.verify().findings == []


def test_into_its_own_scope_it_is_the_same_root_and_can_be_undone(
    place: Place, tmp_path: Path
) -> None:
    store = place.open()
    state = filled(store)
    good = state.checkpoints(name="good")[0]
    export_checkpoint(state, tmp_path / "x", at="good", plain=True)
    state.set("more", 1)
    state.delete("list")
    before = everything(state)
    done = import_checkpoint(state, tmp_path / "x", reason="as it was")
    assert done.root == good.root == state.root()
    newest = state.log(limit=1)[0]
    assert (newest.kinds, newest.sequence) == (("restore",), done.sequence)
    assert newest.cause.reason == "as it was"
    assert newest.point.startswith(done.staged)
    assert done.backup is not None
    state.restore(done.backup)
    assert same(everything(state), before)
    assert place.reopen().verify().findings == []


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.binary(max_size=90)
    | st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Asia/Kathmandu")]))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text("abc$", max_size=3) | st.integers(-9, 9), inner, max_size=5)
        | st.builds(Typed, st.sampled_from(["Plan", "Task"]), st.integers(1, 3), inner)
    ),
    max_leaves=12,
)


@given(
    states=st.lists(
        st.dictionaries(st.text("abcé/", min_size=1, max_size=4), values, max_size=6),
        min_size=1,
        max_size=3,
    ),
    times=st.integers(1, 60),
)
def test_any_state_comes_back(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, Any]], times: int
) -> None:
    """A plain model: a list of states, each exported at its checkpoint and taken over anywhere."""
    folder = tmp_path_factory.mktemp("any")
    with sync.open("memory:", registry=Unbuilt()) as store:
        source, target = store.agent("source"), store.agent("target")
        kept = []
        for number, wanted in enumerate(states):
            for key in everything(source):
                source.delete(key)
            for key, value in wanted.items():
                try:
                    source.set(key, [value] * times)
                except InvalidInputError:
                    continue
            point = source.checkpoint(f"{number}")
            export_checkpoint(source, folder / str(number))
            kept.append((everything(source), point.root))
        for number, (wanted, root) in enumerate(kept):
            import_checkpoint(target, folder / str(number))
            assert same(everything(target), wanted)
            assert import_checkpoint(source, folder / str(number)).root == root
        assert store.verify().findings == []


def test_who_vouches(place: Place, other: sync.Store, tmp_path: Path) -> None:
    """Only files of signers that are trusted are taken; by default the store's own."""
    store = place.open()
    state, there = filled(store), other.agent("1")
    path = tmp_path / "x"
    export_checkpoint(state, path, plain=True)
    there.set("mine", 1)
    for trust in (None, [], [public_key(other)]):
        with pytest.raises(UntrustedSignerError, match="not trusted"):
            import_checkpoint(there, path, trust=trust)
    with pytest.raises(UntrustedSignerError):
        inspect_export(path, trust=[public_key(other)])
    with pytest.raises(InvalidInputError, match="hexadecimal"):
        import_checkpoint(there, path, trust=["nonsense"])
    assert [line.name for line in there.timelines()] == ["main"]
    assert everything(there) == {"mine": 1}
    import_checkpoint(there, path, untrusted=True)
    import_checkpoint(there, path, trust=[public_key(other), public_key(store)])

    unsigned = export_checkpoint(state, path, plain=True, unsigned=True)
    assert (unsigned.signer, inspect_export(path).signer) == ("", "")
    with pytest.raises(UntrustedSignerError, match="not signed"):
        import_checkpoint(state, path)
    import_checkpoint(state, path, untrusted=True)
    assert everything(state).keys() == EXACT.keys()


def test_without_the_signer_nobody_can_vouch(tmp_path: Path) -> None:
    signer = tmp_path / "signer"
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", signer=f"file:{signer}") as store:
        store.agent("1").checkpoint("empty")
    signer.rename(tmp_path / "elsewhere")
    with sync.open(f"sqlite:{tmp_path / 'a.db'}") as store:
        with pytest.raises(InvalidInputError, match="signer is not here"):
            export_checkpoint(store.agent("1"), tmp_path / "x")
        assert not (tmp_path / "x").exists()
        export_checkpoint(store.agent("1"), tmp_path / "x", unsigned=True)


def test_what_was_erased_stays_erased(place: Place, other: sync.Store, tmp_path: Path) -> None:
    store = place.open()
    state = filled(store)
    export_checkpoint(state, tmp_path / "x", plain=True)
    store.delete("agent:1")
    import_checkpoint(store.agent("copy"), tmp_path / "x")  # deleting is no erasing
    store.erase("agent:1")
    for name in ("1", "2", "copy"):
        with pytest.raises(ScopeErasedError, match="stays erased"):
            import_checkpoint(store.agent(name), tmp_path / "x", untrusted=True)
    assert [str(one.scope) for one in store.scopes().items] == ["agent:copy"]
    import_checkpoint(other.agent("1"), tmp_path / "x", untrusted=True)  # erased there, not here


def test_what_is_sealed_for_a_subject_stays_so(tmp_path: Path, other: sync.Store) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state = store.agent("1")
    state.set("who", {"mail": "ann@example.org"}, subject="user:42")
    state.append("talk", "hello from Ann", subject="user:42")
    point = state.checkpoint("x")
    export_checkpoint(state, tmp_path / "x", plain=True)
    assert b"ann@" not in (tmp_path / "x").read_bytes()
    assert b"from Ann" not in (tmp_path / "x").read_bytes()
    assert import_checkpoint(state, tmp_path / "x").root == point.root
    assert state.get("who") == {"mail": "ann@example.org"}
    with pytest.raises(InvalidInputError, match="no other store"):
        import_checkpoint(other.agent("1"), tmp_path / "x", untrusted=True)
    store.erase_subject("user:42")
    import_checkpoint(state, tmp_path / "x")
    with pytest.raises(ErasedError):
        state.get("who")
    assert store.verify().findings == []
    place.close()


def test_keys_of_files(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = filled(store)
    path = tmp_path / "x"
    if place.sealed:
        with pytest.raises(InvalidInputError, match="this file would not be"):
            export_checkpoint(state, path)
        with pytest.raises(InvalidInputError, match="this file would not be"):
            export_checkpoint(state, path, format="json")
        assert not path.exists()
    export_checkpoint(state, path, key=f"file:{tmp_path / 'one.key'}")
    (tmp_path / "two.key").write_text("")
    with pytest.raises(KeyMissingError, match="encrypted"):
        import_checkpoint(state, path)
    with pytest.raises(WrongKeyError):
        import_checkpoint(state, path, key="passphrase:guess")
    export_checkpoint(state, tmp_path / "y", key="passphrase:é")
    with pytest.raises(WrongKeyError, match="does not open this export"):
        inspect_export(tmp_path / "y", key="passphrase:e")
    inspect_export(tmp_path / "y", key="passphrase:e\u0301")
    export_checkpoint(state, path, plain=True)
    with pytest.raises(KeyNotNeededError):
        inspect_export(path, key="passphrase:é")
    with pytest.raises(InvalidInputError, match="not both"):
        export_checkpoint(state, path, plain=True, key="passphrase:é")


def test_rules_of_a_scope(store: sync.Store, other: sync.Store, tmp_path: Path) -> None:
    """A scope without rules gets those of the file; one that has some keeps them, and its keys."""
    state = store.agent("1")
    state.declare(Sticky("done/"), Ephemeral("now/"), Lookup("by status", "task/", "status"))
    state.set("done/mail", "sent")
    state.set("now/typing", True)
    for number in range(30):
        state.set(f"task/{number}", {"status": "open" if number % 3 else "closed"})
    state.checkpoint("x")
    made = export_checkpoint(state, tmp_path / "x", plain=True)
    assert made.keys == 31

    new = other.agent("new")
    done = import_checkpoint(new, tmp_path / "x", untrusted=True)
    assert (done.left, done.declarations) == ((), 3)
    assert new.declared() == state.declared()
    assert new.get("done/mail") == "sent"
    assert len(new.find("by status", status="closed").items) == 10
    new.set("done/mail", "read")
    done = import_checkpoint(new, tmp_path / "x", untrusted=True)
    assert (done.left, done.declarations) == (("done/mail",), 0)
    assert new.get("done/mail") == "read"
    state.delete("task/0")
    import_checkpoint(state, tmp_path / "x")
    assert len(state.find("by status", status="closed").items) == 10
    assert other.verify().findings == store.verify().findings == []


def test_expiry_and_classes_come_along(timed: sync.Store, hands: Hands, tmp_path: Path) -> None:
    """Also of keys that have expired since, and of long values; not of what had expired before."""
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Place("memory", tmp_path / "elsewhere", sealed=True)
    other = elsewhere.open(clock=hands.clock)
    state = timed.agent("1")
    state.declare(Classed("billing/", "sensitive"))
    state.set("billing/card", "4111")
    end = datetime(2999, 1, 1, tzinfo=UTC)
    state.set("offer", 1, expires=end, class_="trusted")
    state.set("login", 2, ttl=3600, sliding=True)
    state.set("list", ["x" * 1000] * 2000, expires=end, class_="sensitive")
    state.set("classed bytes", bytes(2 << 20), class_="sensitive")
    state.set("bytes", bytes(2 << 20), expires=end)
    state.set("before", "gone", ttl=0.001)
    hands.move(0.002)
    state.set("short", 3, ttl=0.5)
    state.set("short list", ["y" * 1000] * 2000, ttl=0.5)
    point = state.checkpoint("x")
    made = export_checkpoint(state, tmp_path / "x", plain=True)
    assert made.keys == 8
    hands.move(1)
    there = other.agent("2")
    done = import_checkpoint(there, tmp_path / "x", untrusted=True)
    assert there.keys() == ["billing/card", "bytes", "classed bytes", "list", "login", "offer"]
    assert there.at(done.sequence).get("short") is None
    for key in there.keys():  # noqa: SIM118
        mine, its = state.at(point).item(key), there.item(key)
        assert mine is not None
        assert its is not None
        assert (its.value, its.expires, its.class_) == (mine.value, mine.expires, mine.class_)
    state.sweep()
    state.checkpoint("y")
    export_checkpoint(state, tmp_path / "y", plain=True)
    root = state.root()
    assert import_checkpoint(state, tmp_path / "y").root == root
    assert other.verify().findings == timed.verify().findings == []
    elsewhere.close()


def test_long_values_go_through_in_pieces(tmp_path: Path) -> None:
    """Bytes and lists of any length, in bounded memory; a copy is the same value."""
    size = 24 << 20
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", durability="normal") as store:
        state, copy = store.agent("1"), store.agent("2")
        with state.open_write("file") as file:
            for number in range(size >> 16):
                file.write(bytes([number % 251]) * (1 << 16))
        for number in range(10):
            state.extend("list", [f"{number} {n} {'x' * 200}" for n in range(1000)])
        point = state.checkpoint("x")
        tracemalloc.start()
        try:
            export_checkpoint(state, tmp_path / "x")
            import_checkpoint(copy, tmp_path / "x")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < size * 0.75
        assert copy.length("list") == 10_000
        assert copy.get("list") == state.get("list")
        assert copy.read_range("file", -1) == state.read_range("file", -1)
        assert import_checkpoint(state, tmp_path / "x").root == point.root
        assert store.verify().findings == []


def test_a_limit_is_kept(store: sync.Store, tmp_path: Path) -> None:
    state = filled(store)
    made = export_checkpoint(state, tmp_path / "x", plain=True)
    before = everything(state)
    with pytest.raises(LimitExceededError, match="limit="):
        import_checkpoint(state, tmp_path / "x", limit=made.bytes - 1)
    with pytest.raises(InvalidInputError):
        import_checkpoint(state, tmp_path / "x", limit=-1)
    assert same(everything(state), before)
    import_checkpoint(state, tmp_path / "x", limit=made.bytes)


def test_what_cannot_be_asked_for(store: sync.Store, place: Place, tmp_path: Path) -> None:
    empty = store.agent("empty")
    empty.set("k", 1)
    path = tmp_path / "x"
    with pytest.raises(CheckpointNotFoundError):
        export_checkpoint(empty, path, plain=True)
    state = filled(store)
    with pytest.raises(CheckpointNotFoundError):
        export_checkpoint(state, path, at=1, plain=True)
    with pytest.raises(InvalidInputError, match="unknown format"):
        export_checkpoint(state, path, format="xml", plain=True)
    with pytest.raises(InvalidInputError, match="leave out key"):
        export_checkpoint(state, path, format="json", key="passphrase:x")
    with pytest.raises(InvalidInputError, match="reveal="):
        export_checkpoint(state, path, reveal=True, plain=True)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        export_checkpoint(state, tmp_path / "no" / "folder", plain=True)
    with pytest.raises(InvalidInputError, match="cannot read"):
        import_checkpoint(state, tmp_path / "nothing")
    for nothing in (tmp_path, 0, "", "a\0b"):
        with pytest.raises(InvalidInputError):
            inspect_export(nothing)  # type: ignore[arg-type]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="no regular file"):
        inspect_export(tmp_path / "pipe")
    assert not path.exists()
    export_checkpoint(state, path, plain=True)
    with pytest.raises(InvalidInputError):
        import_checkpoint(state, path, reason=7)  # type: ignore[arg-type]
    assert len(state.timelines()) == 1
    reading = place.open(read_only=True)
    inspect_export(path)
    export_checkpoint(reading.agent("1"), path, plain=True)
    with pytest.raises(ReadOnlyError):
        import_checkpoint(reading.agent("1"), path)
    with pytest.raises(ReadOnlyError):
        import_checkpoint(state.at("good"), path)  # type: ignore[arg-type]


class NoBytes(holdfast.Gate):
    """Lets no bytes in."""

    def before(self, request: holdfast.GateRequest) -> None:
        if any(operation.key == "bytes" for operation in request.operations):
            raise GateRefusedError("no bytes here")


def test_gates_are_asked(store: sync.Store, tmp_path: Path) -> None:
    export_checkpoint(filled(store), tmp_path / "x", plain=True)
    store.add_gate(NoBytes())
    state = store.agent("2")
    state.set("mine", 1)
    with pytest.raises(GateRefusedError):
        import_checkpoint(state, tmp_path / "x")
    assert everything(state) == {"mine": 1}


def test_whatever_fails_it_is_all_or_nothing(place: Place, tmp_path: Path) -> None:
    """A fault at each call to the storage in turn: the state is that of before, or the file's."""
    store = place.open()
    export_checkpoint(filled(store), tmp_path / "x", plain=True)
    store.agent("2").set("mine", 1)
    wanted = everything(store.agent("1").at("good"))
    failed = done = 0
    for nth in range(1, 400, 7):
        faulty = Faulty(place.storage())
        options = place.options()
        broken = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **options)))
        faulty.plan = (Fault("*", faulty.calls["*"] + nth),)
        before = everything(store.agent("2"))
        try:
            import_checkpoint(broken.agent("2"), tmp_path / "x")
            done += 1
        except (Unavailable, Conflict):
            failed += 1
        now = everything(store.agent("2"))
        assert same(now, before) or same(now, wanted)
        store.agent("2").restore(1)
        faulty.plan = ()
        broken.close()
        if not faulty.failed:
            break
    assert failed > 3
    assert done
    assert place.open().verify().findings == []


IMPORT = """
import sys
from holdfast import sync
store = sync.open(sys.argv[1], key=sys.argv[3] or None, signer=sys.argv[4], durability="normal")
print("open", flush=True)
while True:
    sync.checkpoints.import_checkpoint(store.agent("2"), sys.argv[2])
    store.agent("2").restore(1)
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_killed_anywhere_it_is_all_or_nothing(tmp_path: Path, sealed: bool) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    export_checkpoint(filled(store), tmp_path / "x", plain=True)
    store.agent("2").set("mine", 1)
    wanted = everything(store.agent("1").at("good"))
    arguments = [place.url, str(tmp_path / "x"), place.key or "", place.signer]
    for number in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", IMPORT, *arguments],
            env=place.environment(),
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            time.sleep(0.03 + number * 0.021)
            process.kill()
        now = everything(store.agent("2"))
        assert now == {"mine": 1} or same(now, wanted)
    assert store.verify().findings == []
    import_checkpoint(store.agent("2"), tmp_path / "x")
    assert same(everything(store.agent("2")), wanted)
    place.close()


def test_beside_a_writer_nothing_is_lost(place: Place, tmp_path: Path) -> None:
    """What others write before the restore is in its backup, what they write after it stays."""
    store = place.open()
    export_checkpoint(filled(store), tmp_path / "x", plain=True)
    state, writer, written = store.agent("2"), place.open().agent("2"), dict[int, int]()
    writer.set("n", -1)
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            written[writer.set("n", len(written))] = len(written)
            time.sleep(0.001)  # in memory nobody else would ever come to the end of what is written

    thread = threading.Thread(target=write)
    thread.start()
    try:
        done = import_checkpoint(state, tmp_path / "x")
    finally:
        over.set()
        thread.join()
    assert done.backup is not None
    before = [n for version, n in written.items() if version < done.sequence]
    after = [n for version, n in written.items() if version > done.sequence]
    assert state.at(done.backup).get("n") == (before[-1] if before else -1)
    assert state.get("n") == (after[-1] if after else None)
    assert state.keys() == sorted([*EXACT, *(["n"] if after else [])])
    assert store.verify().findings == []


def test_other_timelines_and_states_of_the_past(store: sync.Store, tmp_path: Path) -> None:
    state = filled(store)
    trial = state.fork("trial", at="good")
    trial.set("tried", True)
    trial.checkpoint("tried it")
    made = export_checkpoint(trial, tmp_path / "x", plain=True)
    assert made.checkpoint.startswith("trial@")
    by_id = export_checkpoint(state, tmp_path / "y", at=made.checkpoint, plain=True)
    assert by_id.digest == made.digest
    import_checkpoint(state, tmp_path / "x")
    assert state.get("tried") is True
    done = import_checkpoint(trial, tmp_path / "y")
    assert done.timeline == "trial"
    empty = store.agent("empty")
    empty.checkpoint("nothing")
    assert export_checkpoint(empty, tmp_path / "z", plain=True).keys == 0
    import_checkpoint(state, tmp_path / "z")
    assert state.keys() == []


def test_the_async_face(place: Place, tmp_path: Path) -> None:
    async def run() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.set("k", {"n": 1})
            await state.checkpoint("x")
            made = await holdfast.checkpoints.export_checkpoint(state, tmp_path / "x", plain=True)
            assert await holdfast.checkpoints.inspect_export(tmp_path / "x") == made
            await state.set("k", 2)
            done = await holdfast.checkpoints.import_checkpoint(state, tmp_path / "x")
            assert await state.get("k") == {"n": 1}
            await state.restore(done.backup)
            assert await state.get("k") == 2
            with pytest.raises(HoldfastError):
                await holdfast.checkpoints.inspect_export(tmp_path / "nothing")

    asyncio.run(run())


@pytest.mark.spec("K125")
def test_a_policy_says_how_its_checkpoints_are_compressed(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = store.agent("1")
    sizes = []
    for method in ("none", "lz4", "zstd"):
        setting = PolicySetting(method != "none", method if method != "none" else "zstd")
        met = Condition("operation_count", "operation_count", "greater_than", 0)
        policy = Policy("each", (met,), compression=setting)
        with sync.checkpoints.Policies(store, defaults=(policy,)) as policies:
            state.set("text", "the same words again, " * 5_000)
            state.set("method", method)
            assert policies.wait(60)
            told = policies.explain(state)[0].effective["exports"]
            assert told.startswith(
                "not compressed" if method == "none" else f"compressed with {method}"
            )
        newest = state.checkpoints()[0]
        assert newest.metadata["compression"] == method
        path = tmp_path / f"{method}.hfx"
        export_checkpoint(state, path, plain=place.sealed)
        sizes.append(path.stat().st_size)
        other = store.agent(f"of {method}")
        import_checkpoint(other, path)
        assert other.get("text") == state.get("text")
    assert sizes[0] > 100_000 > 10_000 > sizes[1] != sizes[2] < 10_000


@pytest.mark.spec("K126")
@pytest.mark.parametrize("id_", ["p", "cafe\u0301"])  # the second as no key holds it
def test_a_policy_that_demands_encryption_lets_nothing_out_plain(
    place: Place, tmp_path: Path, id_: str
) -> None:
    if not place.sealed:
        pytest.skip("such a policy is refused in a plain store")
    store = place.open()
    state = store.agent("1")
    met = Condition("operation_count", "operation_count", "greater_than", 0)
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        policies.set(state, Policy(id_, (met,), encryption=PolicySetting(True, "AES-256-GCM")))
        state.set("plan", "secret")
        assert policies.wait(60)
        assert policies.explain(state)[0].effective["exports"] == "only with a key"
    path = tmp_path / "out"
    for format in ("holdfast", "json", "protobuf"):
        with pytest.raises(InvalidInputError, match=r"the policy .*, which demands encryption"):
            export_checkpoint(state, path, format=format, plain=True)
    assert not path.exists()
    export_checkpoint(state, path, key="passphrase:long enough")
    assert b"secret" not in path.read_bytes()
    state.checkpoint("by hand")
    export_checkpoint(state, tmp_path / "by hand", plain=True)


def counted(id_: str, threshold: int, interval: int = 0) -> Policy:
    met = Condition("operation_count", "operation_count", "greater_than", threshold)
    return Policy(id_, (met,), frequency=PolicyFrequency(interval=interval))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_policies_of_one_agent_never_touch_anothers(
    place: Place, other: sync.Store, tmp_path: Path, elsewhere: bool
) -> None:
    """Neither those that it has nor its schedules, pins and holds; and a new one gets none."""
    store = place.open()
    there = other if elsewhere else store
    source, path = store.agent("1"), tmp_path / "one"
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        policies.set(source, counted("mine", 1_000_000, interval=3_600_000))
        policies.set(source, counted("each", 1_000_001))
        source.set("plan", "of 1")
        export_checkpoint(source, path, at=source.checkpoint("c"), plain=place.sealed)
    with sync.checkpoints.Policies(there, defaults=()) as policies:
        target, new = there.agent("2"), there.agent("3")
        target.set("plan", "of 2")
        own = [counted("each", 2_000_000), counted("hourly", 2_000_001, interval=7_200_000)]
        for one in own:
            policies.set(target, one)
        sync.checkpoints.Retention(there).hold(target.checkpoint("h"), "case 7")
        marks = sync.checkpoints.Retention(there).marked(target)
        schedules = sync.checkpoints.Scheduler(there).schedules()
        for state in (target, new):
            import_checkpoint(state, path, trust=[store.identity().rsplit(":", 1)[1]])
            assert state.get("plan") == "of 1"
        assert policies.wait(60)
        assert policies.list(target) == own
        assert policies.list(new) == []
        assert sync.checkpoints.Retention(there).marked(target) == marks
        assert sync.checkpoints.Scheduler(there).schedules() == schedules
    with sync.checkpoints.Policies(store, defaults=()) as policies:  # its own come back
        policies.remove(source, "mine")
        import_checkpoint(source, path)
        assert [one.id for one in policies.list(source)] == ["each", "mine"]
    assert there.verify().findings == []


def test_what_is_no_state_or_path(store: sync.Store, tmp_path: Path) -> None:
    state = store.agent("1")
    state.set("k", 1)
    state.checkpoint("c")
    for wrong in (store, "agent:1", None):
        with pytest.raises(InvalidInputError, match="of a state"):
            sync.checkpoints.export_checkpoint(wrong, tmp_path / "x")  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="of a state"):
            sync.checkpoints.import_checkpoint(wrong, tmp_path / "x")  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="of a state"):
            asyncio.run(holdfast.checkpoints.import_checkpoint(wrong, tmp_path / "x"))  # type: ignore[arg-type]
    for path in ("a\0b", "", 5, b"x"):
        with pytest.raises(InvalidInputError, match="path"):
            sync.checkpoints.export_checkpoint(state, path, plain=True)  # type: ignore[arg-type]
