"""Opening: what does not fit is refused with an error of its own, and stays as it was."""

from __future__ import annotations

import base64
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_kit import Place, put_row

from holdfast import sync
from holdfast.errors import (
    DamagedRecordError,
    ForeignSchemaError,
    FormatError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    NewerFormatError,
    NotAStoreError,
    ReadOnlyError,
    StateIntegrityError,
    StoreClosedError,
    StoreLockedError,
    StoreNotFoundError,
    WitnessError,
    WrongKeyError,
)
from holdfast.seal.keys import parse_key
from holdfast.seal.ring import Ring
from holdfast.seal.sealer import PlainSeal
from holdfast.seal.signer import Signer
from holdfast.storage import open_storage
from holdfast.storage.sqlite.engine import SqliteStorage
from holdfast.storage.wrappers import Counting
from holdfast.store.open import _AD, META


def snapshot(folder: Path) -> dict[str, bytes]:
    """Files and what is in them, but for what a lock notes of who opened the file last."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {one.name: b"" if one.suffix == ".lock" else one.read_bytes() for one in found}


def key_text(byte: int) -> str:
    return base64.b64encode(bytes([byte]) * 32).decode()


@pytest.fixture
def encrypted(tmp_path: Path) -> Path:
    """A store that was made with a key, closed again."""
    path = tmp_path / "data" / "sealed.db"
    path.parent.mkdir()
    with sync.open(f"sqlite:{path}", key=f"file:{tmp_path / 'key'}", durability="normal") as store:
        store.agent("1").set("k", "secret words")
    return path


@pytest.fixture
def unencrypted(tmp_path: Path) -> Path:
    """A plain store, closed again."""
    path = tmp_path / "data" / "plain.db"
    path.parent.mkdir()
    with sync.open(f"sqlite:{path}", durability="normal") as store:
        store.agent("1").set("k", "plain words")
    return path


def test_an_engine_of_ones_own_with_a_key_needs_a_place_for_the_ring(tmp_path: Path) -> None:
    for url in ("memory:", "memory:engine"):
        own = SqliteStorage(str(tmp_path / "own.db"), durability="normal")
        with pytest.raises(InvalidInputError, match=r"PATH\.keys"):
            sync.open(url, storage=own, key="passphrase:words")
        assert own.scan(b"A", b"[") == []
        own.close()
    for value in (None, 1):
        own = SqliteStorage(str(tmp_path / "own.db"), durability="normal")
        options: Any = {"storage": own, "key": "passphrase:words", "durability": "normal"}
        with sync.open(f"sqlite:{tmp_path / 'place'}", **options) as store:
            assert store.agent("1").get("k", None) == value
            store.agent("1").set("k", 1)
    assert (tmp_path / "place.keys").exists()
    assert not (tmp_path / "place").exists()
    with sync.open("memory:", storage=open_storage("memory:"), key="passphrase:words") as store:
        store.agent("1").set("k", 1)


def test_files_are_their_owners_alone_from_their_first_moment(tmp_path: Path) -> None:
    """With its log, which holds the wrapped key until it is moved."""
    before = os.umask(0o022)
    try:
        with sync.open(f"sqlite:{tmp_path / 'store.db'}", key="passphrase:words") as store:
            store.agent("1").set("k", 1)
            files = [*tmp_path.glob("store.db*")]
            names = {"store.db", "store.db-wal", "store.db.keys", "store.db.keys-wal"}
            assert {path.name for path in files} > names
            assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    finally:
        os.umask(before)


# ---- places --------------------------------------------------------------------------------


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="nowhere"):
        sync.open(f"sqlite:{tmp_path / 'nowhere' / 'store.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secret", ["key", "signer"])
def test_a_missing_folder_of_a_secret(tmp_path: Path, secret: str) -> None:
    place: dict[str, Any] = {secret: f"file:{tmp_path / 'nowhere' / 'secret'}"}
    with pytest.raises(KeyMissingError, match="create the folder"):
        sync.open(f"sqlite:{tmp_path / 'store.db'}", **place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["file", "hybrid"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_signer_that_is_refused_makes_no_store(tmp_path: Path, how: str, sealed: bool) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "open to all").write_text("x")
    (tmp_path / "open to all").chmod(0o644)
    (tmp_path / "no signer").write_text("x")
    (tmp_path / "no signer").chmod(0o600)
    (tmp_path / "to nowhere").symlink_to(tmp_path / "nowhere" / "signer")
    before = sorted(tmp_path.rglob("*"))
    key = f"file:{tmp_path / 'key'}" if sealed else None
    for name in ("folder", "open to all", "no signer", "to nowhere"):
        with pytest.raises(HoldfastError, match="signer file"):
            sync.open(f"sqlite:{tmp_path / 's.db'}", signer=f"{how}:{tmp_path / name}", key=key)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_signer_that_is_not_hybrid_makes_no_store(tmp_path: Path) -> None:
    Signer.create(tmp_path / "signer")
    with pytest.raises(InvalidInputError, match="not a hybrid one"):
        sync.open(f"sqlite:{tmp_path / 's.db'}", signer=f"hybrid:{tmp_path / 'signer'}")
    assert [path.name for path in tmp_path.iterdir()] == ["signer"]


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    with pytest.raises(NotAStoreError, match="leads to itself"):
        sync.open(f"sqlite:{tmp_path / 'loop.db'}")
    assert [path.name for path in tmp_path.iterdir()] == ["loop.db"]


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_nothing_is_created_if_nothing_may_be(tmp_path: Path, engine: str) -> None:
    url = "memory:not-made" if engine == "memory" else f"sqlite:{tmp_path / 'store.db'}"
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreNotFoundError):
            sync.open(url, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"hello", b"\0" * 5000, b"SQLite format 3\0" + b"x" * 5000])
def test_a_file_that_is_no_store(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises((FormatError, StateIntegrityError)):
        sync.open(f"sqlite:{path}")
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("statement", ["create table mine(a)", "create view mine as select 1 as a"])
def test_somebody_else_s_database(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()
    before = snapshot(tmp_path)
    with pytest.raises((NotAStoreError, ForeignSchemaError)):
        sync.open(f"sqlite:{path}")
    assert snapshot(tmp_path) == before


def test_a_store_with_a_trigger(unencrypted: Path) -> None:
    with sqlite3.connect(unencrypted) as other:
        table = other.execute("select name from sqlite_master where type='table'").fetchone()[0]
        other.execute(f"create trigger mine after insert on {table} begin select 1; end")
    other.close()
    with pytest.raises(ForeignSchemaError):
        sync.open(f"sqlite:{unencrypted}")


def test_a_truncated_file(unencrypted: Path) -> None:
    content = unencrypted.read_bytes()
    unencrypted.write_bytes(content[: len(content) // 2])
    with pytest.raises(HoldfastError) as caught, sync.open(f"sqlite:{unencrypted}") as store:
        store.agent("1").get("k")
        assert store.verify().findings == []
    assert isinstance(caught.value, FormatError | StateIntegrityError)


def test_a_store_that_another_program_holds(
    unencrypted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.storage.sqlite.guard.BUSY_SECONDS", 0.1)
    with sync.open(f"sqlite:{unencrypted}", durability="normal") as store:
        code = (
            "import sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "db.execute('begin immediate')\n"
            "print('held', flush=True)\n"
            "sys.stdin.readline()\n"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", code, str(unencrypted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        assert store.agent("1").get("k") == "plain words"
        with pytest.raises(StoreLockedError):
            store.agent("1").set("k", "new")
        holder.stdin.write("\n")
        holder.stdin.close()
        holder.wait(60)
        holder.stdout.close()
        assert store.agent("1").get("k") == "plain words"
        store.agent("1").set("k", "after")
        assert store.agent("1").get("k") == "after"


@pytest.mark.parametrize("bad", ["store.db", "nonsense:x", "", "/tmp/x.db", "c:\\x"])
def test_urls(bad: str) -> None:
    with pytest.raises(InvalidInputError):
        sync.open(bad)


@pytest.mark.parametrize(
    "options",
    [
        {"durability": "nonsense"},
        {"signer": "nonsense"},
        {"signer": "file:"},
        {"identity": "nonsense"},
        {"key": "nonsense"},
        {"key": ""},
        {"key": "file:"},
    ],
    ids=repr,
)
def test_arguments(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        sync.open(f"sqlite:{tmp_path / 'store.db'}", **options)
    assert "nonsense" not in str(caught.value) or "key" not in options
    assert list(tmp_path.iterdir()) == []


# ---- keys ----------------------------------------------------------------------------------


def test_a_missing_key(encrypted: Path) -> None:
    before = snapshot(encrypted.parent)
    with pytest.raises(KeyMissingError, match="encrypted"):
        sync.open(f"sqlite:{encrypted}")
    with pytest.raises(KeyMissingError):
        sync.open(f"sqlite:{encrypted}", key=f"file:{encrypted.parent / 'no.key'}")
    with pytest.raises(KeyMissingError, match="NO_SUCH_VARIABLE"):
        sync.open(f"sqlite:{encrypted}", key="env:NO_SUCH_VARIABLE")
    assert snapshot(encrypted.parent) == before


def test_a_wrong_key(encrypted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(encrypted.parent)
    monkeypatch.setenv("OTHER", key_text(7))
    with pytest.raises(WrongKeyError) as caught:
        sync.open(f"sqlite:{encrypted}", key="env:OTHER")
    assert key_text(7) not in str(caught.value)
    assert snapshot(encrypted.parent) == before


def test_an_open_for_reading_that_fails_leaves_nothing_behind(encrypted: Path) -> None:
    before = snapshot(encrypted.parent)
    for more in ({}, {"key": "passphrase:wrong"}):
        with pytest.raises((KeyMissingError, WrongKeyError)):
            sync.open(f"sqlite:{encrypted}", read_only=True, **more)
        assert snapshot(encrypted.parent) == before
    with sqlite3.connect(encrypted) as database:
        database.execute("CREATE TABLE more(a)")
    database.close()
    before = snapshot(encrypted.parent)
    for read_only in (True, False):
        with pytest.raises(ForeignSchemaError, match="nothing was touched"):
            sync.open(f"sqlite:{encrypted}", read_only=read_only)
        assert snapshot(encrypted.parent) == before


def test_a_reader_leaves_no_log_behind_and_none_of_others_away(encrypted: Path) -> None:
    url, key = f"sqlite:{encrypted}", f"file:{encrypted.parents[1] / 'key'}"
    before = snapshot(encrypted.parent)
    with sync.open(url, key=key, read_only=True) as store:
        assert store.agent("1").get("k") == "secret words"
    assert snapshot(encrypted.parent) == before
    with sync.open(url, key=key, read_only=True) as reader:
        with sync.open(url, key=key) as writer:
            writer.agent("1").set("k", 2)
            reader.close()
            writer.agent("1").set("k", 3)
        with sync.open(url, key=key, read_only=True) as store:
            assert store.agent("1").get("k") == 3


def test_a_key_of_the_environment_is_used_up_by_what_succeeds(
    encrypted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening, rotating, exporting; a second try after a failure finds it again."""
    monkeypatch.setenv("SECRET", (tmp_path / "key").read_text())
    monkeypatch.setenv("HOLDFAST_KEY", "env:SECRET")
    pinned = "holdfast1:" + "00" * 16 + ":encrypted:" + "00" * 32
    with pytest.raises(WitnessError):
        sync.open(f"sqlite:{encrypted}", identity=pinned)
    with sync.open(f"sqlite:{encrypted}") as store:
        assert "SECRET" not in os.environ
        with pytest.raises(KeyMissingError, match="SECRET"):
            sync.open(f"sqlite:{encrypted}")
        store.agent("1").checkpoint("here")
        monkeypatch.setenv("NEW", "no key")
        with pytest.raises(WrongKeyError):
            sync.checkpoints.export_checkpoint(store.agent("1"), tmp_path / "export", key="env:NEW")
        assert os.environ["NEW"] == "no key"
        monkeypatch.setenv("NEW", key_text(9))
        sync.checkpoints.export_checkpoint(store.agent("1"), tmp_path / "export", key="env:NEW")
        assert "NEW" not in os.environ
        monkeypatch.setenv("NEW", key_text(8))
        with pytest.raises(WrongKeyError):
            sync.checkpoints.inspect_export(tmp_path / "export", key="env:NEW")
        assert os.environ["NEW"] == key_text(8)
        store.rotate_master("env:NEW")
        assert "NEW" not in os.environ


def test_a_superfluous_key(unencrypted: Path, tmp_path: Path) -> None:
    before = snapshot(unencrypted.parent)
    with pytest.raises(KeyNotNeededError, match="not encrypted"):
        sync.open(f"sqlite:{unencrypted}", key=f"file:{tmp_path / 'new.key'}")
    assert not (tmp_path / "new.key").exists()
    assert snapshot(unencrypted.parent) == before


def test_a_missing_ring(encrypted: Path, tmp_path: Path) -> None:
    ring = encrypted.with_name(encrypted.name + ".keys")
    ring.rename(tmp_path / "elsewhere")
    before = snapshot(encrypted.parent)
    with pytest.raises(KeyMissingError, match=r"ring .* missing"):
        sync.open(f"sqlite:{encrypted}", key=f"file:{tmp_path / 'key'}")
    assert snapshot(encrypted.parent) == before
    (tmp_path / "elsewhere").rename(ring)
    with sync.open(f"sqlite:{encrypted}", key=f"file:{tmp_path / 'key'}") as store:
        assert store.agent("1").get("k") == "secret words"


def test_a_creation_that_was_cut_short_behind_its_ring(tmp_path: Path) -> None:
    """The next one waits for a process that may only be slow, then finishes the work."""
    url, key = f"sqlite:{tmp_path / 'cut.db'}", "passphrase:the first long passphrase"
    ring = open_storage(f"{url}.keys")
    Ring.create(ring, parse_key(key), bytes(16))
    ring.close()
    with pytest.raises(WrongKeyError, match=r"cut\.db\.keys.*two seconds.*cut short"):
        sync.open(url, key="passphrase:another long passphrase")
    with sync.open(url, key=key) as store:
        store.agent("1").set("k", 1)
    with sync.open(url, key=key) as store:
        assert store.agent("1").get("k") == 1
    (tmp_path / "cut.db").unlink()
    with pytest.raises(DamagedRecordError, match=r"cut\.db\.keys.*put the store's file back"):
        sync.open(url, key=key)


def test_a_store_that_another_process_makes_while_it_is_looked_for(place: Place) -> None:
    """The first look finds nothing, the second finds rows: that is no damage."""

    class Overtaken(Counting):
        def scan(self, *args: Any, **more: Any) -> list[tuple[bytes, bytes]]:
            if not self.calls["scan"]:
                place.open().agent("1").set("k", 1)
            return super().scan(*args, **more)

    storage = Overtaken(place.storage())
    with sync.open(place.url, storage=storage, **place.options()) as store:
        assert store.agent("1").get("k") == 1


def test_the_ring_of_another_store(encrypted: Path, tmp_path: Path) -> None:
    other = tmp_path / "data" / "other.db"
    key = f"file:{tmp_path / 'key'}"
    with sync.open(f"sqlite:{other}", key=key, durability="normal") as store:
        store.agent("1").set("k", 1)
    ring = encrypted.with_name(encrypted.name + ".keys")
    ring.write_bytes(other.with_name("other.db.keys").read_bytes())
    with pytest.raises(HoldfastError) as caught:
        sync.open(f"sqlite:{encrypted}", key=key)
    assert "ring" in str(caught.value)


def test_the_key_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOLDFAST_KEY makes a store encrypted on either face; silently plain would be a betrayal."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    (tmp_path / "keys").mkdir()
    monkeypatch.setenv("HOLDFAST_KEY", f"file:{tmp_path / 'keys' / 'key'}")
    with sync.open(url, durability="normal") as store:
        assert store.stats()["encrypted"]
        store.agent("1").set("k", "very secret words")
    assert b"very secret words" not in b"".join(snapshot(tmp_path).values())
    with sync.open(url, durability="normal") as store:
        assert store.agent("1").get("k") == "very secret words"
    monkeypatch.delenv("HOLDFAST_KEY")
    with pytest.raises(KeyMissingError):
        sync.open(url)


def test_nothing_leaks_into_the_files(encrypted: Path) -> None:
    content = b"".join(snapshot(encrypted.parent).values())
    for word in (b"secret words", b"agent:1"):
        assert word not in content


def test_a_passphrase(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    with sync.open(url, key="passphrase:correct horse", durability="normal") as store:
        store.agent("1").set("k", 1)
    with pytest.raises(WrongKeyError) as caught:
        sync.open(url, key="passphrase:wrong horse")
    assert "horse" not in str(caught.value)
    with sync.open(url, key="passphrase:correct horse") as store:
        assert store.agent("1").get("k") == 1


def test_a_signer_of_another_store(unencrypted: Path, tmp_path: Path) -> None:
    sync.open("memory:", signer=f"file:{tmp_path / 'other.sign'}").close()
    with pytest.raises(WitnessError, match="signer"):
        sync.open(f"sqlite:{unencrypted}", signer=f"file:{tmp_path / 'other.sign'}")


# ---- formats -------------------------------------------------------------------------------


def meta_with(place: Place, **changed: int) -> None:
    storage = place.storage()
    seal = PlainSeal(bytes(16))
    row = storage.get([META])[0]
    assert row is not None
    fields = msgspec.msgpack.decode(seal.open(_AD, row))
    for name, value in changed.items():
        fields[["format", "oldest_reader", "oldest_writer"].index(name)] = value
    plain = msgspec.msgpack.encode(fields)
    put_row(storage, META, seal.seal(_AD, plain, bytes(32), compress=False))
    storage.close()


@pytest.mark.spec("X57")
def test_newer_formats(place: Place) -> None:
    place.open().agent("1").set("k", 1)
    place.close()
    meta_with(place, format=2, oldest_reader=1, oldest_writer=1)
    assert place.open().agent("1").get("k") == 1, "a newer one that says that we may"
    place.close()
    meta_with(place, oldest_writer=2)
    with pytest.raises(NewerFormatError, match="read_only"):
        place.open()
    assert place.open(read_only=True).agent("1").get("k") == 1
    place.close()
    meta_with(place, oldest_reader=2)
    for options in ({}, {"read_only": True}):
        with pytest.raises(NewerFormatError, match="newer"):
            place.open(**options)


def test_a_damaged_row_of_the_store(place: Place) -> None:
    place.open().agent("1").set("k", 1)
    place.close()
    storage = place.storage()
    row = storage.get([META])[0]
    assert row is not None
    for bad in (None, b"", row[:-1], row[:-1] + bytes([row[-1] ^ 1])):
        put_row(storage, META, bad)
        with pytest.raises(DamagedRecordError, match="store"):
            place.open()
    put_row(storage, META, row)
    assert place.open().agent("1").get("k") == 1


# ---- open for reading, and closed ----------------------------------------------------------


def calls_that_write(store: sync.Store) -> dict[str, Any]:
    state = store.agent("1")

    def change() -> None:
        with store.change() as made:
            made[state].set("k", 2)

    return {
        "set": lambda: state.set("k", 2),
        "new scope": lambda: store.agent("2").set("k", 2),
        "append": lambda: state.append("l", 2),
        "extend": lambda: state.extend("l", [2]),
        "delete": lambda: state.delete("k"),
        "update": lambda: state.update("k", lambda _: 2),
        "change": change,
        "checkpoint": lambda: state.checkpoint("c"),
        "restore": lambda: state.restore(1),
        "fork": lambda: state.fork("f"),
        "adopt": lambda: state.adopt("trial"),
        "delete scope": lambda: store.delete("agent:1"),
    }


def calls_that_read(store: sync.Store) -> dict[str, Any]:
    state = store.agent("1")
    return {
        "get": lambda: state.get("k"),
        "get_many": lambda: state.get_many(["k"]),
        "item": lambda: state.item("k"),
        "exists": lambda: state.exists("k"),
        "keys": lambda: state.keys(),
        "items": lambda: state.items(),
        "tail": lambda: state.tail("l", 1),
        "slice": lambda: state.slice("l"),
        "length": lambda: state.length("l"),
        "root": lambda: state.root(),
        "place": lambda: state._handle.place(),
        "log": lambda: state.log(),
        "checkpoints": lambda: state.checkpoints(),
        "at": lambda: state.at(1),
        "diff": lambda: state.diff(1),
        "timelines": lambda: state.timelines(),
        "dry run": lambda: state.restore(1, dry_run=True),
        "replay": lambda: state.replay(lambda _, entry: entry),
        "scopes": lambda: store.scopes(),
        "feed": lambda: list(store.feed()),
        "position": lambda: store.position(),
        "correlated": lambda: store.correlated("x"),
        "verify": lambda: store.verify(),
        "stats": lambda: store.stats(),
        "witness": lambda: store.witness(),
    }


def test_opened_for_reading(place: Place) -> None:
    store = place.open()
    store.agent("1").set("k", 1)
    store.agent("1").append("l", 1)
    store.agent("1").fork("trial")
    reader = place.open(read_only=True)
    for name, call in calls_that_write(reader).items():
        with pytest.raises(ReadOnlyError):
            call()
            pytest.fail(name)
    for call in calls_that_read(reader).values():
        call()
    store.agent("1").set("k", 5)
    assert reader.agent("1").get("k") == 5
    assert reader.agent("1")._handle.place()[2] == 3


def test_a_closed_store(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("k", 1)
    state.append("l", 1)
    state.fork("trial")
    view = state.at(1)
    store.close()
    store.close()
    calls = calls_that_write(store) | calls_that_read(store) | {"view": lambda: view.get("k")}
    for name, call in calls.items():
        with pytest.raises(StoreClosedError, match="open it again"):
            call()
            pytest.fail(name)
    assert place.open().agent("1").get("k") == 1


def test_with_closes_also_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), sync.open(f"sqlite:{tmp_path / 's.db'}") as store:
        store.agent("1").set("k", 1)
        raise KeyError
    with pytest.raises(StoreClosedError):
        store.agent("1").get("k")


def test_repr_and_stats(place: Place) -> None:
    store = place.open()
    store.agent("1").set("k", "words")
    assert place.engine in repr(store)
    assert repr(store.agent("1")) == "<State agent:1 main>"
    stats = store.stats()
    assert stats["encrypted"] is place.sealed
    assert stats["scopes"] == stats["entries"] == 1
    assert stats["identity"] == store.identity()


@pytest.mark.spec("M82")
def test_storage_usage_is_what_is_stored_now(place: Place) -> None:
    """Catches: `size` of an engine that is a constant, counts rows, or leaves out its log."""
    store = place.open()
    state = store.agent("1")
    state.set("k", 1)
    before = store.stats()["bytes"]
    for number in range(4):
        state.set("k", os.urandom(200_000))
        grown = store.stats()["bytes"] - before
        assert number * 200_000 < grown < 3 * (number + 1) * 200_000
    if place.engine == "sqlite":
        parts = [place.path, place.path.with_name(place.path.name + "-wal")]
        assert store.stats()["bytes"] == sum(part.stat().st_size for part in parts)
    state.prune(state.log(limit=1)[0].sequence)
    store.erase("agent:1")
    if place.engine == "memory":  # a file does not shrink by itself, what is in it is used again
        assert store.stats()["bytes"] < before + 100_000
    else:
        full = store.stats()["bytes"]
        store.agent("2").set("k", os.urandom(200_000))
        assert store.stats()["bytes"] < full + 400_000


# ---- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [False, True])
def test_through_a_symbolic_link_it_is_the_same_store(tmp_path: Path, sealed: bool) -> None:
    """Lock, ring and signer lie beside the file, wherever links to it lie."""
    place = Place("sqlite", tmp_path, sealed=sealed)
    place.open().agent("a").checkpoint("one")
    place.close()
    links = tmp_path / "links"
    new = tmp_path / "of a new one" / "new.db"
    links.mkdir()
    new.parent.mkdir()
    (links / "to it.db").symlink_to(place.path)
    (links / "to be made.db").symlink_to(new)
    with sync.open(f"sqlite:{links / 'to it.db'}", **place.options()) as store:
        store.agent("a").checkpoint("two")
        report = store.verify()
        assert (report.checkpoints, report.signed, report.findings) == (2, 2, [])
    for url in (f"sqlite:{links / 'to be made.db'}", f"sqlite:{new}"):
        with sync.open(url, **place.options()) as store:
            store.agent("a").checkpoint()
            assert store.verify().signed == store.verify().checkpoints
    assert {path.name for path in links.iterdir()} == {"to it.db", "to be made.db"}


@pytest.mark.parametrize(
    "given",
    [
        {"url": "sqlite:DIR/\udcff.db"},
        {"url": "sqlite:DIR/x.db", "key": "file:DIR/\udcff"},
        {"url": "sqlite:DIR/x.db", "signer": "file:DIR/\udcff"},
        {"url": "sqlite:DIR/link/x.db"},
        {"url": "sqlite:DIR/new/"},
        {"url": "sqlite:DIR/"},
        {"url": "sqlite:DIR/new/."},
        {"url": "sqlite:DIR/x.db", "key": "file:DIR/new/"},
        {"url": "sqlite:DIR/x.db", "signer": "file:DIR/new/"},
        {"url": "sqlite:DIR/x.db", "signer": "hybrid:DIR/new/."},
        {"url": f"sqlite:DIR/{'n' * 240}"},
    ],
)
def test_paths_that_cannot_be_used_make_nothing(tmp_path: Path, given: dict[str, str]) -> None:
    (tmp_path / "\udcff folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "\udcff folder")
    before = sorted(tmp_path.rglob("*"))
    asked = {name: text.replace("DIR", str(tmp_path)) for name, text in given.items()}
    with pytest.raises(InvalidInputError, match=r"UTF-8|names a folder|too long"):
        sync.open(**asked)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("given", [5, "memory:", object(), [b"rows"]])
def test_what_is_no_engine(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="storage is an engine"):
        sync.open("memory:", storage=given)


def test_a_blocking_program_loads_no_event_loop_and_no_driver() -> None:
    program = """
import sys
from holdfast import sync
with sync.open("memory:") as store:
    store.agent("1").set("k", 1)
print(sorted({"asyncio", "redis", "psycopg", "pymongo"} & set(sys.modules)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"
