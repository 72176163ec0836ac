"""What is stored of a thread is read as it was written, or not at all.

Every store here is a file that is opened anew to be read, as a process just started does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest
from graph_kit import compiled, said, thread
from langgraph.checkpoint.base import empty_checkpoint

import holdfast
from holdfast.errors import HoldfastError, StateIntegrityError, UnknownTypeError
from holdfast.integrations.langgraph import HoldfastSaver


@dataclass
class Threads:
    """A store with two threads, and what a reader finds in it."""

    file: Path
    key: str | None

    def open(self) -> Any:
        return HoldfastSaver.open(f"sqlite:{self.file}", key=self.key)

    def read(self, id: str) -> str:
        """All that can be read of a thread; raises what a reader would get."""
        with self.open() as saver:
            found = [saver.get_tuple(thread(id)), *saver.list(thread(id))]
            return repr(
                [(f.config, dict(f.checkpoint), f.metadata, f.pending_writes) for f in found]
            )

    def rows(self, kind: str = "") -> dict[bytes, bytes]:
        database = apsw.Connection(str(self.file))
        found = dict(database.execute("SELECT k, v FROM records ORDER BY k"))
        database.close()
        return {k: v for k, v in found.items() if chr(k[0]) == kind or not kind}

    def replace(self, key: bytes, value: bytes | None) -> None:
        """Behind the store's back."""
        database = apsw.Connection(str(self.file))
        database.execute("DELETE FROM records WHERE k = ?", (key,))
        if value is not None:
            database.execute("INSERT INTO records VALUES(?, ?)", (key, value))
        database.close()


def threads(folder: Path, *, sealed: bool) -> Threads:
    (folder / "keys").mkdir(parents=True)
    key = f"file:{folder / 'keys' / 'key'}" if sealed else None
    made = Threads(folder / "threads.db", key)
    with made.open() as saver:
        graph = compiled(saver)
        for id in ("one", "two"):
            graph.invoke(said(f"{id}: a long one " + os.urandom(3000).hex()), thread(id))
            for number in range(6):
                graph.invoke(said(f"{id} {number} " + "x" * 200), thread(id))
    return made


@pytest.fixture(params=["plain", "encrypted"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Threads:
    return threads(tmp_path / "store", sealed=request.param == "encrypted")


def some(rows: dict[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Rows of each kind, not all of them: a test must not take minutes."""
    for kind in {key[:1] for key in rows}:
        of_kind = [(key, value) for key, value in rows.items() if key[:1] == kind]
        yield from of_kind[:: max(1, len(of_kind) // 4)]


def outcome(store: Threads, id: str, good: str) -> str:
    try:
        return "same" if store.read(id) == good else "other"
    except HoldfastError:
        return "error"


def test_a_changed_row_is_never_read_as_other_data(two: Threads) -> None:
    good = {id: two.read(id) for id in ("one", "two")}
    errors = 0
    for key, value in some(two.rows()):
        changed = bytearray(value)
        changed[len(value) // 2] ^= 0x10
        two.replace(key, bytes(changed))
        found = {outcome(two, id, good[id]) for id in good}
        assert "other" not in found, f"row {key.hex()}"
        errors += "error" in found
        two.replace(key, value)
    assert errors >= 6, "hardly anything that was changed is looked at"
    assert {id: two.read(id) for id in good} == good


def test_a_deleted_row_is_never_read_as_other_data(two: Threads) -> None:
    good = {id: two.read(id) for id in ("one", "two")}
    entries = list(two.rows("E"))
    newest = {max(key for key in entries if key[:7] == entry[:7]) for entry in entries}
    for key, value in some(two.rows()):
        if key in newest or key[:1] == b"D":
            continue  # See the next test.
        two.replace(key, None)
        assert "other" not in {outcome(two, id, good[id]) for id in good}, f"row {key.hex()}"
        two.replace(key, value)


def test_a_thread_put_back_by_its_newest_row_is_found_by_verify(two: Threads) -> None:
    """Not by reading: an older state is a state too. What else was committed betrays it."""
    newest = max(two.rows("E"))
    two.replace(newest, None)
    with holdfast.sync.open(f"sqlite:{two.file}", key=two.key) as store:
        assert not store.verify().ok


@pytest.mark.parametrize("kind", ["E", "V", "D"])
def test_rows_swapped_between_two_threads_are_refused(two: Threads, kind: str) -> None:
    rows = two.rows(kind)
    scopes = sorted({key[1:7] if kind != "D" else key[1:17] for key in rows})
    assert len(scopes) == 2, "both threads have such rows"
    first, second = (max(key for key in rows if key[1:].startswith(scope)) for scope in scopes)
    two.replace(first, rows[second])
    two.replace(second, rows[first])
    for id in ("one", "two"):
        with pytest.raises(StateIntegrityError):
            two.read(id)


def test_an_encrypted_row_replaced_by_a_plain_one_is_refused(tmp_path: Path) -> None:
    sealed = threads(tmp_path / "sealed", sealed=True)
    plain = threads(tmp_path / "plain", sealed=False)
    for kind in ("E", "V"):
        values = iter(plain.rows(kind).values())
        for key, value in sealed.rows(kind).items():
            sealed.replace(key, next(values))
            assert {outcome(sealed, id, "") for id in ("one", "two")} == {"error", "other"}, (
                "the thread that has the row is refused, the other one is read"
            )
            sealed.replace(key, value)
            break


def test_an_encrypted_thread_is_not_opened_without_its_key(tmp_path: Path) -> None:
    sealed = threads(tmp_path / "sealed", sealed=True)
    assert b"a long one" not in sealed.file.read_bytes()
    for key in (None, f"file:{tmp_path / 'another key'}"):
        with pytest.raises(HoldfastError):
            Threads(sealed.file, key).read("one")


CRAFTED = ("os:system", "subprocess:Popen", "builtins:eval", "trap:Trap", "trap.inner:Trap")


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_class_name_imports_and_runs_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported from data')")
    monkeypatch.syspath_prepend(str(tmp_path))

    @dataclass
    class Harmless:
        args: str = f"touch {tmp_path / 'ran'}"

    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url) as saver:
        saver.types.register(Harmless, name=name)
        put(saver, {"value": Harmless()})
    with HoldfastSaver.open(url) as saver, pytest.raises(UnknownTypeError):
        saver.get_tuple(thread())
    assert "trap" not in sys.modules
    assert not (tmp_path / "ran").exists()


def put(saver: HoldfastSaver, values: dict[str, Any]) -> None:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = dict.fromkeys(values, 1)
    config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
    saver.put(config, checkpoint, {"source": "input", "step": -1, "parents": {}}, {})
