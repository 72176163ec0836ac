"""The promises of docs/guarantees.md, and the limits beside them, each by name.

Short forms: `make prove` shows the same at length. A `limit` shows what is *not* promised; if
it ever fails, the page has become too modest and must be changed.
"""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast.errors
from holdfast import sync
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidKeyError,
    InvalidValueError,
    StateIntegrityError,
    Unavailable,
)
from holdfast.seal.sealer import PlainSeal
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.journal import entry as entries

ROOT = Path(__file__).parent.parent
_numbers = itertools.count()


@pytest.fixture(params=["plain", "encrypted"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "plain":
        return {}
    return {"key": f"file:{tmp_path / 'agents.key'}"}


@pytest.fixture
def url() -> str:
    return f"memory:guarantees-{next(_numbers)}"


def rows(url: str, kinds: bytes = b"DEFIMNRSTV") -> dict[bytes, bytes]:
    found = open_storage(url).scan(b"", b"\xff" * 64, limit=100_000)
    return {key: row for key, row in found if key[:1] in kinds}


def put(url: str, key: bytes, row: bytes | None) -> None:
    """Change or remove a stored row behind the store's back."""
    storage = open_storage(url)
    storage.commit(Batch(drops=[key]))
    if row is not None:
        storage.commit(Batch(puts=[(key, row)]))


def flipped(row: bytes, at: int = -20) -> bytes:
    changed = bytearray(row)
    changed[at if len(row) > -at else 0] ^= 1
    return bytes(changed)


def fill(store: sync.Store) -> dict[str, Any]:
    """Values of several kinds, then a restore, which saves the index."""
    state = store.agent("a")
    for number in range(8):
        state.set(f"key/{number}", f"value {number} " * 20)
    state.extend("list", [f"item {number} " * 10 for number in range(60)])
    state.restore(state.checkpoint("safe"))
    return dict(state.items())


# ---- 1: a write that returned is there -----------------------------------------------------

WRITER = """
import sys
from holdfast import sync
with sync.open(sys.argv[1], durability=sys.argv[2]) as store:
    state = store.agent("a")
    for number in range(1_000_000):
        state.append("log", number)
        print(number, flush=True)
"""


@pytest.mark.spec("M73", "M99", "M1", "M14", "S12")
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_1_write_survives_kill(tmp_path: Path, durability: str) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    command = [sys.executable, "-c", WRITER, url, durability]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = [int(line) for line in itertools.islice(process.stdout, 50)]
    process.send_signal(signal.SIGKILL)
    told += [int(line) for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    assert process.wait(30) == -signal.SIGKILL
    with sync.open(url, create=False) as store:
        found = store.agent("a").get("log")
        assert found[: len(told)] == told
        assert len(found) <= len(told) + 1
        assert store.verify().ok


@pytest.mark.spec("L27")
def test_1_limit_memory_is_gone_with_the_process() -> None:
    code = "from holdfast import sync; print(sync.open('memory:x').agent('a').get('k', 'nothing'))"
    sync.open("memory:x").agent("a").set("k", 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "nothing"


# ---- 2: one line of history ----------------------------------------------------------------


@pytest.mark.spec("M75", "L127")
def test_2_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    stores = [sync.open(url, durability="normal") for _ in range(2)]

    def work(name: int) -> None:
        state = stores[name % 2].agent("a")
        for number in range(25):
            state.append("list", [name, number])
            state.update("count", lambda count: count + 1, 0)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = stores[0].agent("a")
    assert state.get("count") == 100
    items = state.get("list")
    assert sorted(items) == [[name, number] for name in range(4) for number in range(25)]
    for name in range(4):
        assert [n for who, n in items if who == name] == list(range(25))
    assert stores[0].verify().ok
    for store in stores:
        store.close()


def change_what_was_read(state: sync.State) -> None:
    with state.change() as change:
        change.set("other", change.get("k"))
        state.set("k", 4)


@pytest.mark.spec("M110")
def test_2_stale_change_gets_conflict(url: str, options: dict[str, Any]) -> None:
    with sync.open(url, **options) as store:
        state = store.agent("a")
        version = state.set("k", 1)
        state.set("k", 2)
        with pytest.raises(Conflict) as caught:
            state.set("k", 3, if_version=version)
        assert caught.value.keys == ("k",)
        with pytest.raises(Conflict):
            change_what_was_read(state)
        assert dict(state.items()) == {"k": 4}


@pytest.mark.spec("M109", "S8")
@pytest.mark.parametrize("mode", ["before", "ambiguous-applied", "ambiguous-lost"])
def test_2_change_over_scopes_is_in_all_or_none(url: str, mode: str) -> None:
    sync.open(url).agent("a").set("task", "t")
    storage = Faulty(open_storage(url))
    with sync.open(url, storage=storage) as store:
        a, b = store.agent("a"), store.agent("b")
        storage.plan = (Fault("commit", storage.calls["commit"] + 1, mode),)
        try:
            with store.change(id="handover") as change:
                change[b].set("task", change[a].get("task"))
                change[a].delete("task")
        except Unavailable:
            assert mode == "before"
        assert storage.failed
        there = (a.get("task"), b.get("task"))
        assert there == (("t", None) if mode == "before" else (None, "t"))
        assert store.verify().ok


# ---- 3: restore ----------------------------------------------------------------------------


@pytest.mark.spec("K93", "K100", "K101", "M52", "M70")
def test_3_restore_is_exact_and_can_be_undone(url: str, options: dict[str, Any]) -> None:
    with sync.open(url, **options) as store:
        before, state = fill(store), store.agent("a")
        safe, root = state.checkpoint("safe"), state.root()
        state.set("key/0", "other")
        state.delete("key/1")
        state.append("list", "more")
        after = dict(state.items())
        result = state.restore(safe)
        assert (dict(state.items()), state.root()) == (before, root)
        assert result.verified == "full"
        assert result.backup.sequence == result.sequence - 1
        state.restore(result.backup)
        assert dict(state.items()) == after


def test_3_restore_that_fails_leaves_the_state_before(url: str, options: dict[str, Any]) -> None:
    storage = Faulty(open_storage(url))
    with sync.open(url, storage=storage, **options) as store:
        fill(store)
        state = store.agent("a")
        state.set("key/0", "other")
        before, head = dict(state.items()), state._handle.place()[2]
        storage.plan = (Fault("commit", storage.calls["commit"] + 1),)
        with pytest.raises(Unavailable):
            state.restore("safe")
        assert storage.failed
        assert dict(state.items()) == before
        assert state._handle.place()[2] == head  # and no backup without its restore


@pytest.mark.spec("K98", "K99")
def test_3_damaged_point_is_refused_and_nothing_is_changed(url: str) -> None:
    with sync.open(url) as store:
        fill(store)
        point = store.agent("a").checkpoint("with damage")
        store.agent("a").set("key/3", "whole again")
    put(url, (row := entry(url, 4))[0], flipped(row[1]))
    with sync.open(url) as store:
        state = store.agent("a")
        before, head = state.get("key/3"), state._handle.place()[2]
        with pytest.raises(StateIntegrityError):
            state.restore(point)
        assert (state.get("key/3"), state._handle.place()[2]) == (before, head)


# ---- 4: damage and tampering ---------------------------------------------------------------


def entry(url: str, sequence: int) -> tuple[bytes, bytes]:
    found = rows(url, b"E")
    key = next(k for k in found if k[-7:] == bytes(2) + sequence.to_bytes(5, "big"))
    return key, found[key]


def reads(store: sync.Store) -> dict[str, Any]:
    """Every key, or nothing where that is refused."""
    state, found = store.agent("a"), {}
    for key in [f"key/{number}" for number in range(8)] + ["list"]:
        try:
            found[key] = state.get(key)
        except StateIntegrityError:
            continue
    return found


@pytest.mark.spec("K56")
@pytest.mark.parametrize("how", ["changed", "missing", "swapped"])
def test_4_a_damaged_row_is_never_read_as_a_value(
    url: str, options: dict[str, Any], how: str
) -> None:
    with sync.open(url, **options) as store:
        good = fill(store)
    stored = rows(url, b"ENSTV")
    for key, row in stored.items():
        other = next((r for k, r in stored.items() if k[:1] == key[:1] and k != key), None)
        bad = {"changed": flipped(row), "missing": None, "swapped": other}[how]
        if bad is None and how == "swapped":
            continue  # the only one of its kind
        put(url, key, bad)
        with sync.open(url, **options) as store:
            for name, value in reads(store).items():
                assert value == good[name], f"{name} was read wrongly"
            assert store.verify().findings, f"{how} row {key[:1]!r} was not found"
        put(url, key, row)
    with sync.open(url, **options) as store:
        assert reads(store) == good
        assert store.verify().ok


def test_4_a_dropped_or_reordered_entry_is_found(url: str, options: dict[str, Any]) -> None:
    with sync.open(url, **options) as store:
        fill(store)
    (key, row), (next_key, next_row) = entry(url, 5), entry(url, 6)
    put(url, key, None)
    with sync.open(url, **options) as store:
        assert "chain" in {finding.kind for finding in store.verify().findings}
    put(url, key, next_row)
    put(url, next_key, row)
    with sync.open(url, **options) as store:
        assert store.verify().findings


def test_4_a_removed_row_of_any_kind_is_found(url: str, options: dict[str, Any]) -> None:
    with sync.open(url, **options) as store:
        fill(store)
        a, b = store.agent("a"), store.agent("b")
        with store.acting(correlation="run"), store.change(id="both") as change:
            change[a].set("k", 1)
            change[b].set("long", "x" * 5000)
        a.fork("trial")
        b.delete("long")
        store.delete("agent:b")
    stored = rows(url)
    assert {key[:1] for key in stored} == {bytes([kind]) for kind in b"DEFIMNRSTV"}
    for key, row in stored.items():
        put(url, key, None)
        try:
            with sync.open(url, create=False, **options) as store:
                assert store.verify().findings, f"row {key[:1]!r} is missing unnoticed"
        except StateIntegrityError:
            assert key == b"Mstore"
        put(url, key, row)
    with sync.open(url, **options) as store:
        assert store.verify().ok


def copy(url: str) -> dict[bytes, bytes]:
    return rows(url)


def put_back(url: str, older: dict[bytes, bytes]) -> None:
    """Make the storage what it was."""
    for key in rows(url).keys() - older.keys():
        put(url, key, None)


def test_4_a_store_put_back_is_found_with_a_witness(url: str, options: dict[str, Any]) -> None:
    with sync.open(url, **options) as store:
        fill(store)
        older = copy(url)
        store.agent("a").set("key/0", "newer")
        witness = store.witness()
    put_back(url, older)
    with sync.open(url, **options) as store:
        assert store.agent("a").get("key/0") != "newer"
        report = store.verify(expect=witness)
        assert {finding.kind for finding in report.findings} == {"witness"}


def test_4_limit_a_store_put_back_is_not_found_without_a_witness(
    url: str, options: dict[str, Any]
) -> None:
    with sync.open(url, **options) as store:
        fill(store)
        older = copy(url)
        store.agent("a").set("key/0", "newer")
    put_back(url, older)
    with sync.open(url, **options) as store:
        assert store.verify().ok


def test_4_limit_a_forged_tombstone_hides_an_agent_until_verify(
    url: str, options: dict[str, Any]
) -> None:
    with sync.open(url, **options) as store:
        fill(store)
        tombstone = store._core.ledger(store.agent("a").scope).tombstone
    storage = open_storage(url)
    storage.commit(Batch(puts=[(tombstone, b"anything")]))
    storage.close()
    with sync.open(url, **options) as store:
        assert store.agent("a").keys() == []
        assert tombstone.hex() in {one.row for one in store.verify().findings}


def forge_newest(url: str, lanes: Any, prefix: bytes, ledger: Any) -> None:
    """Replace the newest value, and all that names it, as a writer without keys could."""
    newest = max(rows(url, b"E"))
    envelope, sealed = entries.split_row(rows(url, b"E")[newest])
    seal = PlainSeal(envelope.writer)
    body = entries.decode_body(seal.open(ledger.ad(newest) + envelope.data, sealed))
    body.atoms = [b"\xa6forged"]
    plain = entries.encode_body(body)
    made = entries.make_envelope(
        envelope.writer, envelope.epoch, envelope.before, ledger.commit_body(plain)
    )
    put(url, newest, made + seal.seal(ledger.ad(newest) + made, plain, bytes(32)))
    key = max(rows(url, b"F"))
    lane, number = key[1], int.from_bytes(key[2:], "big")
    row = rows(url, b"F")[key]
    items = row[:-64] + ledger.entry_hash(newest, made)
    before = rows(url, b"F")[key[:2] + (number - 1).to_bytes(6, "big")][-32:]
    put(url, key, items + lanes.tag_of(lane, number, before, items))


def test_4_limit_a_plain_store_can_be_forged_after_its_last_checkpoint(url: str) -> None:
    with sync.open(url) as store:
        fill(store)
        store.agent("a").set("key/0", "genuine")
        core = store._core
        ledger = core.ledger(store.agent("a").scope)
        forge_newest(url, core.lanes, ledger.prefix, ledger)
    with sync.open(url) as store:
        assert store.agent("a").get("key/0") == "forged"
        assert store.verify().ok


def test_4_the_same_forgery_is_found_if_a_checkpoint_follows(url: str) -> None:
    with sync.open(url) as store:
        fill(store)
        store.agent("a").set("key/0", "genuine")
        core = store._core
        ledger = core.ledger(store.agent("a").scope)
        older = copy(url)
        store.agent("a").checkpoint("signed")
        newer = {key: row for key, row in copy(url).items() if key not in older}
        put_back(url, older)
        forge_newest(url, core.lanes, ledger.prefix, ledger)
    for key, row in newer.items():
        put(url, key, row)
    with sync.open(url) as store:
        assert store.verify().findings


def test_4_limit_without_its_signer_a_plain_store_can_be_made_anew_unsigned(
    tmp_path: Path, url: str
) -> None:
    signer = f"file:{tmp_path / 'signer'}"
    with sync.open(url, signer=signer) as store:
        fill(store)
        identity, witness = store.identity(), store.witness()
        assert store.verify(identity=identity).signed > 0
    for key in rows(url).keys() - {b"Mstore"}:
        put(url, key, None)
    with sync.open(url) as store:  # by somebody who has not the signer
        store.agent("a").set("key/0", "forged")
        store.agent("a").checkpoint("safe")
    with sync.open(url) as store:
        report = store.verify(identity=identity)
        assert report.ok
        assert (report.checkpoints, report.signed) == (1, 0)  # this is what tells
        assert not store.verify(expect=witness).ok


# ---- 5: damage is confined -----------------------------------------------------------------


@pytest.mark.spec("M84", "M111")
def test_5_damage_is_confined_to_the_keys_that_use_it(url: str, options: dict[str, Any]) -> None:
    with sync.open(url, **options) as store:
        good = fill(store)
    for sequence in (4, 9):
        key, row = entry(url, sequence)
        put(url, key, flipped(row))
    with sync.open(url, **options) as store:
        found = reads(store)
        spoiled = {"key/3", "list"}
        assert found == {name: value for name, value in good.items() if name not in spoiled}
        named = {name for finding in store.verify().findings for name in finding.keys}
        assert named == spoiled
        store.agent("a").set("key/3", "whole again")  # it does not block the work
        assert store.agent("a").get("key/3") == "whole again"
    for changed in (["one more"], ["and another"]):  # unread, and once more with what is known
        with sync.open(url, **options) as store:
            store.agent("a").set("list", good["list"] + changed)  # of a long value what is whole
    with sync.open(url, **options) as store:
        assert store.agent("a").get("list") == good["list"] + changed
        store.agent("a").restore(2)  # nor going back behind it
        assert store.agent("a").keys() == ["key/0", "key/1"]


def test_5_damage_behind_the_newest_save_is_left_behind_on_demand(url: str) -> None:
    with sync.open(url) as store:
        fill(store)
        store.agent("a").set("key/5", "newer")
        store.agent("a").set("key/6", "newer")
        store.agent("b").set("k", 1)
    newest = store_head(url)
    key, row = entry(url, newest - 1)
    put(url, key, flipped(row))
    with sync.open(url) as store:
        state = store.agent("a")
        assert reads(store) == {}  # what the newest state is, cannot be known
        assert store.agent("b").get("k") == 1  # other scopes go on
        safe = state.checkpoints()[0]
        assert state.at(safe).get("key/5") != "newer"  # neither is the past touched
        with pytest.raises(StateIntegrityError, match="past_damage"):
            state.restore(safe)
        result = state.restore(safe, past_damage=True)
        assert result.backup is None
        assert str(newest - 1) in result.passed_over
        assert reads(store)
        state.set("key/7", "after")
    with sync.open(url) as store:
        assert store.agent("a").get("key/7") == "after"
        assert any(str(newest - 1) in finding.place for finding in store.verify().findings)


def store_head(url: str) -> int:
    with sync.open(url) as store:
        return store.agent("a")._handle.place()[2]


def test_5_a_transient_error_is_not_damage(url: str) -> None:
    with sync.open(url) as store:
        good = fill(store)
    storage = Faulty(open_storage(url))
    with sync.open(url, storage=storage) as store:
        state = store.agent("a")
        storage.plan = (Fault("*", storage.calls["*"] + 1),)
        with pytest.raises(Unavailable):
            state.get("key/1")
        assert storage.failed
        assert dict(state.items()) == good


# ---- 7: what fails says so -----------------------------------------------------------------


def test_7_errors_name_what_failed_and_never_a_value(url: str) -> None:
    secret = "hunter2-hunter2"
    with sync.open(url) as store:
        state = store.agent("a")
        state.set("password", secret)
        calls = {
            InvalidValueError: lambda: state.set("k", {"deep": [secret, {1, 2}]}),
            InvalidKeyError: lambda: state.set("../x", secret),
            Conflict: lambda: state.set("password", secret, if_version=99),
            holdfast.errors.CheckpointNotFoundError: lambda: state.restore("no such name"),
            holdfast.errors.PointNotFoundError: lambda: state.at(77),
            holdfast.errors.ScopeNotFoundError: lambda: store.delete("agent:nobody"),
            holdfast.errors.InvalidInputError: lambda: state.append("password", secret),
        }
        named = ["$.deep[1]", "../x", "agent:a: 'password'", "'no such name'", "77"]
        named += ["agent:nobody", "agent:a: the value of 'password'"]
        for (kind, call), name in zip(calls.items(), named, strict=True):
            with pytest.raises(kind) as caught:
                call()
            assert isinstance(caught.value, HoldfastError)
            assert name in str(caught.value)
            assert secret not in str(caught.value)


# ---- the page ------------------------------------------------------------------------------


def test_every_test_that_the_page_names_is_there() -> None:
    """A promise whose proof was renamed or removed is no promise."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    named = re.findall(r"`((?:tests|prove)/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 15
    for file, function in named:
        source = (ROOT / file).read_text()
        assert f"def {function}(" in source if function else source, f"{file}::{function}"
    here = set(re.findall(r"^def (test_\d\w+)", Path(__file__).read_text(), re.MULTILINE))
    assert here - {function for _, function in named} == set()
