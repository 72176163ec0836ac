"""An operator with a file whose own structure is damaged: three commands, and what they say."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from cli_kit import PROGRAM, Cli, Result

from holdfast import sync
from holdfast.errors import ChangeIdError, DamagedStorageError
from holdfast.storage.sqlite.files import PAGE
from holdfast.store.inner import core_of
from holdfast.store.open import META

STORE = Path("store.db")
LEAF_TABLE, LEAF_INDEX = 13, 10


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def store(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A store in a file, and a copy of it."""
    monkeypatch.setenv("HOLDFAST_STORE", str(STORE))
    key = None
    if request.param:
        file = tmp_path_factory.mktemp("elsewhere") / "key"
        file.write_text("holdfast-key-1 MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
        file.chmod(0o600)
        monkeypatch.setenv("HOLDFAST_KEY", key := f"file:{file}")
    with sync.open(f"sqlite:{STORE}", key=key, durability="normal") as opened:
        for number in range(40):
            for name in ("one", "two", "three"):
                opened.agent(name).set("count", number)
                opened.agent(name).set("text", f"{number} " * 300)
    for path in Path().glob("store.db*"):
        shutil.copy(path, path.name.replace("store", "copy"))
    return STORE


def pages(kind: int) -> list[int]:
    data = STORE.read_bytes()
    return [page for page in range(6 * PAGE, len(data), PAGE) if data[page] == kind]


def change(at: int, new: bytes) -> None:
    data = bytearray(STORE.read_bytes())
    data[at : at + len(new)] = new
    STORE.write_bytes(data)


def whole(cli: Cli) -> None:
    """Everything is there, and can be written to."""
    assert cli("verify").code == 0
    for name in ("one", "two", "three"):
        assert cli(f"key get agent:{name} count").out == "39\n"
        assert cli(f"key set agent:{name} count 40").code == 0


def test_a_damaged_schema_has_a_way_out(store: Path, cli: Cli) -> None:
    at = STORE.read_bytes().index(b"CREATE TABLE records")
    change(at, b"CREATE TABLF")
    assert cli("verify").code != 0
    assert cli("repair").code == 2, "it is not done unasked"
    looked = cli("repair --dry-run")
    assert looked.code == 1
    assert "the file itself is damaged" in looked.out
    done = cli("repair --yes")
    assert done.code == 0, done
    assert f"kept as {store.resolve()}.damaged" in done.out
    assert "lost: nothing" in done.out
    whole(cli)
    assert Path("store.db.damaged").exists()
    assert cli("repair --confirm").code == 0
    assert not Path("store.db.damaged").exists()


def test_a_damaged_index_is_mended_in_place(store: Path, cli: Cli) -> None:
    change(pages(LEAF_INDEX)[0] + 3, b"\0\3")
    assert cli("key set agent:one count 7").code == 6
    done = cli("repair --yes --json")
    assert done.code == 0, done
    told = json.loads(done.out)
    assert told["files"] == [{"path": str(store.resolve()), "kept": ""}]
    assert told["lost"] == []
    whole(cli)


@pytest.mark.parametrize(("byte", "bit"), [(12, 64), (9, 128)], ids=["near", "far"])
@pytest.mark.parametrize("rebuilt", [False, True], ids=["index", "with a copy"])
def test_a_key_that_is_damaged_in_the_table_is_the_one_that_the_row_is_sealed_under(
    store: Path, cli: Cli, rebuilt: bool, byte: int, bit: int
) -> None:
    """Also if a copy has given the row under the right key before; a number that is damaged may be
    two billion further on."""
    data, page = STORE.read_bytes(), pages(LEAF_TABLE)[1]
    places = (at for at in range(page + 2000, page + PAGE) if data[at : at + 1] == b"E")
    at = next(at for at in places if data[at + 7 : at + 12] == bytes(5))
    change(at + byte, bytes([data[at + byte] ^ bit]))
    if rebuilt:
        change(data.index(b"CREATE TABLE records"), b"CREATE TABLF")
    assert cli("verify").code != 0
    done = cli("repair --yes" + (" --copy copy.db" if rebuilt else ""))
    assert done.code == 0, done
    assert "lost: nothing" in done.out
    whole(cli)


def test_rows_that_are_gone_come_from_a_copy_or_are_named(store: Path, cli: Cli) -> None:
    change(pages(LEAF_TABLE)[3], bytes(PAGE))
    saved = STORE.read_bytes()
    alone = cli("repair --yes")
    assert "lost: agent:" in alone.out
    assert "nothing" not in alone.out.partition("lost:")[2].splitlines()[0]
    Path("store.db.damaged").unlink()
    STORE.write_bytes(saved)
    healed = cli("repair --yes --copy copy.db")
    assert healed.code == 0, healed
    assert "lost: nothing" in healed.out
    whole(cli)


def rows_of_table(path: str = str(STORE)) -> dict[bytes, bytes]:
    connection = apsw.Connection(path)
    try:
        return dict(connection.execute("SELECT k, v FROM records NOT INDEXED"))
    finally:
        connection.close()


def test_of_two_rows_of_a_key_the_one_that_is_whole_is_kept(cli: Cli, store: Path) -> None:
    """The newer of the two is a row that was moved there: only its seal tells."""
    truth = rows_of_table()
    keys = sorted(key for key in truth if key[:1] == b"E")
    older, newer = keys[0], keys[3]
    data = STORE.read_bytes()
    assert data.count(newer + truth[newer]) == 1
    STORE.write_bytes(data.replace(newer + truth[newer], older + truth[newer]))
    done = cli("repair --yes")
    assert "one of two" in done.out
    assert rows_of_table()[older] == truth[older]
    assert cli("repair --yes --copy sqlite:copy.db").code == 0
    assert truth.items() <= rows_of_table().items()
    whole(cli)


def test_rows_of_the_feed_come_from_a_copy(cli: Cli, store: Path) -> None:
    """Nothing seals them; they are right if those around them fit."""
    truth = rows_of_table()
    rows = sorted(key for key in truth if key[:1] == b"F")
    for key in (rows[len(rows) // 2], rows[-1]):
        row = truth[key]
        data = STORE.read_bytes()
        at = data.index(key + row) + len(key) + len(row) - 3
        change(at, bytes([data[at] ^ 4]))
        left = cli("repair --yes")
        assert left.code == 1
        assert "only a whole copy of the store helps (--copy)" in left.err
        done = cli("repair --yes --copy sqlite:copy.db")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("store: healed from a copy: feed row (")
    assert truth.items() <= rows_of_table().items()
    whole(cli)


@pytest.mark.parametrize("which", [-1, 60], ids=["newest", "older"])
@pytest.mark.parametrize("byte", [3, 7, 12, 15, 20, -3])
def test_rows_of_the_feed_that_no_copy_has_are_stated_as_lost(
    cli: Cli, store: Path, byte: int, which: int
) -> None:
    """Whatever is another in it: the scope, the timeline, the entries, their hash, its own tag."""
    rows = rows_of_table()
    feed = sorted(key for key in rows if key[:1] == b"F")
    key = feed[which]
    data = STORE.read_bytes()
    at = data.index(key + rows[key]) + len(key) + byte % len(rows[key])
    change(at, bytes([data[at] ^ 4]))
    assert "--accept-loss states it as lost" in cli("repair --yes").err
    done = cli("repair --yes --accept-loss")
    assert (done.code, done.err) == (0, "")
    assert "states as lost: feed row" in done.out
    assert "known to be lost: feed row" in cli("verify").out
    whole(cli)
    data = STORE.read_bytes()
    at = data.index(feed[3] + rows[feed[3]]) + len(key) + 20
    change(at, bytes([data[at] ^ 4]))  # another one is found
    assert cli("verify").code == 1


def flip_change_row() -> bytes:
    """Change one bit of the only row that keeps what became of a change with an id."""
    [(key, row)] = [(key, row) for key, row in rows_of_table().items() if key[:1] == b"I"]
    data = STORE.read_bytes()
    at = data.index(key + row) + len(key) + len(row) - 3
    change(at, bytes([data[at] ^ 4]))
    return key


def opened() -> sync.Store:
    return sync.open(f"sqlite:{STORE}", key=os.environ.get("HOLDFAST_KEY"))


def pay(amount: int) -> bool:
    """Send a change of two agents under the same id as ever; whether it was applied before."""
    with opened() as store, store.change(id="pay") as change:
        change[store.agent("one")].set("paid", amount)
        change[store.agent("two")].set("got", amount)
    return all(one.repeated for one in change.entries)


def test_what_became_of_a_change_is_made_again_from_its_entries(cli: Cli, store: Path) -> None:
    assert not pay(1)
    shutil.copy(STORE, "copy.db")
    flip_change_row()
    assert cli("verify").code == 1
    assert "store: 1 rows would be healed" in cli("repair --dry-run").out
    done = cli("repair --yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("store: made again: change row (")
    whole(cli)
    assert pay(2), "its id is still used up"
    assert cli("key get agent:one paid").out == "1\n"
    flip_change_row()
    done = cli("repair --yes --copy sqlite:copy.db")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("store: healed from a copy: change row (")
    with pytest.raises(ChangeIdError, match="other content"):
        pay(2)


def test_a_change_row_whose_entry_is_pruned_is_removed_if_that_is_accepted(
    cli: Cli, store: Path
) -> None:
    with opened() as made:
        state = made.agent("one")
        with state.change(id="once") as change:
            change.set("k", 1)
        state.set("k", 2)
        state.prune(state.checkpoint("newest"))
    key = flip_change_row()
    told = cli("repair --yes")
    assert told.code == 1
    assert "--accept-loss removes it: a change with that id would be applied again" in told.err
    assert "would be removed" in cli("repair --dry-run --accept-loss").out
    done = cli("repair --yes --accept-loss")
    assert (done.code, done.err) == (0, "")
    assert "store: removed: change row (" in done.out
    assert key not in rows_of_table()
    whole(cli)


@pytest.mark.parametrize("size", [0, 50, 2 * PAGE, 8 * PAGE, 12 * PAGE])
def test_of_a_file_that_was_cut_off_a_copy_gives_back_all(size: int, cli: Cli, store: Path) -> None:
    """The index, which names what is lost, has lost as much as the table."""
    truth = rows_of_table()
    os.truncate(STORE, size)
    assert cli("repair --dry-run --copy copy.db").code == 1
    done = cli("repair --yes --copy copy.db")
    assert done.code == 0, done
    assert truth.items() <= rows_of_table().items()
    whole(cli)


KILLED = """
import os, signal, sys
from holdfast.cli.main import main
from holdfast.storage.sqlite.engine import SqliteStorage
real = SqliteStorage.commit

def commit(self, batch):
    real(self, batch)
    if len(batch.puts) == 100:  # some rows of the copy are there
        print(os.system(sys.argv.pop()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

SqliteStorage.commit = commit
main(["repair", "--yes", "--copy", "copy.db"])
"""


def test_nobody_opens_a_file_before_copies_have_given_their_rows(cli: Cli, store: Path) -> None:
    """Neither as long as that lasts, nor after it was killed: agents would go on in an older state,
    and what they write would stand in the place of what the copy has."""
    truth = rows_of_table()
    os.truncate(STORE, 12 * PAGE)
    write = shlex.join([*PROGRAM, "key", "set", "agent:one", "count", "7"]) + " 2>refused"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, write], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (-9, f"{6 << 8}\n"), done.stderr
    for words in ("key get agent:one count", "key set agent:one count 7", "verify", "doctor"):
        refused = cli(words)
        assert refused.code == 6
        assert "its repair goes on or was cut short" in refused.err
        assert f"run `holdfast --store {store.resolve()} repair`" in refused.err
    assert refused.err == Path("refused").read_text()
    with pytest.raises(DamagedStorageError):
        sync.open(f"sqlite:{STORE}", key=os.environ.get("HOLDFAST_KEY"), read_only=True)
    assert cli("repair --dry-run").code == 1
    again = cli("repair --yes --copy copy.db")
    assert again.code == 0, again
    assert "lost: nothing" not in again.out, "the copy may be older than what stood there"
    assert "pages were cut off" in cli("repair --json").json["untold"]
    older = "what they did later may be lost: agent:one, agent:three, agent:two"
    assert f"as new as the copy, and {older}" in again.out
    assert truth.items() <= rows_of_table().items()
    whole(cli)


def test_what_was_cut_off_is_told_until_the_old_file_goes(cli: Cli, store: Path) -> None:
    truth = rows_of_table()
    pages_before = os.path.getsize(STORE) // PAGE
    os.truncate(STORE, 12 * PAGE)
    first = cli("repair --yes --accept-loss")
    cut = f"{pages_before - 12} pages were cut off"
    assert cut in first.out
    assert "lost: nothing" not in first.out
    again = cli("repair --yes --accept-loss")  # whoever did the first may have been killed
    assert again.code == 0
    assert cut in again.out
    lost = [line for line in first.out.splitlines() if line.startswith("lost: ")]
    assert set(lost) <= set(again.out.splitlines())
    filled = cli("repair --yes --copy copy.db")
    assert "rows that the file had lost are taken from a copy" in filled.out
    rows = rows_of_table()
    assert {key for key in truth if key[:1] == b"E"} <= rows.keys()


def lose(*keys: bytes) -> None:
    """Take rows out of the pages of their table, but not of its index."""
    rows, data = rows_of_table(), bytearray(STORE.read_bytes())
    for key in keys:
        at = data.index(key + rows[key])
        data[at - 3 : at + len(key) + len(rows[key])] = bytes(3 + len(key) + len(rows[key]))
    STORE.write_bytes(data)


def newest_lost() -> None:
    """Lose the newest entries of an agent, the whole of another one, and what the feed says."""
    rows = rows_of_table()
    with opened() as store:
        core = core_of(store)
        ledgers = [core.ledger(store.agent(name).scope) for name in ("two", "three")]
        two, three = (ledger.number.to_bytes(6, "big") for ledger in ledgers)
        tag = core.tag(b"directory", "agent:two")
    entries = sorted(key for key in rows if key[:7] == b"E" + three)[-5:]
    gone = [key for key in rows if key[:7] in (b"E" + two, b"T" + two) or key[1:17] == tag]
    lose(*entries, *gone, *sorted(key for key in rows if key[:1] == b"F")[-12:])


def test_what_is_lost_is_not_written_over_and_a_copy_still_has_it(cli: Cli, store: Path) -> None:
    truth = rows_of_table()
    newest_lost()
    told = cli("repair --yes")
    assert told.code == 1
    assert "its newest entries are lost, and nothing is written to it" in told.err
    for name in ("two", "three"):
        assert cli(f"key set agent:{name} count 40").code == 6, "nothing takes a lost number"
        assert cli(f"key get agent:{name} count").code == 6, "nor is an older state given"
    assert cli("key set agent:one more 1").code == 0
    assert cli("verify").code == 1
    assert cli("repair --confirm --yes").code == 1
    assert Path("store.db.damaged").exists(), "it is the only one that names what is lost"
    # What agent:one wrote may stand behind a gap in the feed, in which something may have been.
    done = cli("repair --yes --copy copy.db --accept-loss")
    assert done.code == 0, done
    rows = rows_of_table()
    assert truth.items() <= rows.items()
    assert all(row or key[:1] == b"F" for key, row in rows.items())
    whole(cli)


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_loss_that_was_stated_is_known_and_a_copy_still_heals_it(
    cli: Cli, store: Path, confirmed: bool
) -> None:
    truth = rows_of_table()
    newest_lost()
    stated = cli("repair --yes --accept-loss")
    assert (stated.code, stated.err) == (0, "")
    known = cli("verify")
    assert known.code == 0
    assert "known to be lost: agent:three: entry" in known.out
    assert "known to be lost: directory row" in known.out
    assert cli("repair --yes").code == 0
    if confirmed:
        assert cli("repair --confirm").code == 0
        assert not Path("store.db.damaged").exists()
        assert cli("verify").out.count("known to be lost") == known.out.count("known to be lost")
    assert cli("key set agent:three count 40").code == 0
    healed = cli("repair --yes --copy copy.db")
    assert healed.code == 0, healed
    assert truth.items() <= rows_of_table().items()
    assert cli("key get agent:two count").out == "39\n"
    assert cli("verify").code == 0


def test_the_name_of_an_agent_that_is_stated_as_lost_can_be_given_again(
    cli: Cli, store: Path
) -> None:
    newest_lost()
    assert cli("repair --yes --accept-loss").code == 0
    assert cli("key set agent:two count 40").code == 0
    assert cli("verify").code == 0
    assert cli("repair --yes --copy copy.db").code == 0
    assert cli("key get agent:two count").out == "40\n"
    assert cli("verify").code == 0


@pytest.mark.parametrize("beside", [True, False], ids=["used here", "copied here"])
@pytest.mark.parametrize("first", [bytes(PAGE), random.Random(1).randbytes(PAGE)])
def test_the_first_page_costs_nothing(first: bytes, beside: bool, cli: Cli, store: Path) -> None:
    """It holds the schema alone, which is known."""
    truth = rows_of_table()
    change(0, first)
    for end in (".lock", ".sign") if not beside else ():
        Path(f"store.db{end}").unlink(missing_ok=True)
    if beside:
        assert "repair" in cli("verify").err
        assert "repair" in cli("doctor").err
    done = cli("repair --yes")
    assert done.code == 0, done
    assert "lost: nothing" in done.out
    assert rows_of_table() == truth
    whole(cli)


def test_a_database_of_another_program_is_left_alone(cli: Cli, store: Path) -> None:
    """Also in the place of a store."""
    STORE.unlink()
    connection = apsw.Connection(str(STORE))
    connection.execute(f"PRAGMA page_size={PAGE}")
    connection.execute("CREATE TABLE notes(k BLOB, v BLOB)")
    connection.execute("INSERT INTO notes VALUES (x'01', zeroblob(100))")
    connection.close()
    before = STORE.read_bytes()
    for words in ("repair --dry-run", "repair --yes", "repair --yes --copy copy.db"):
        refused = cli(words)
        assert (refused.code, refused.out) == (2, "")
        assert "is not a store" in refused.err
    assert STORE.read_bytes() == before


@pytest.mark.parametrize("left", [None, b"", b"S"], ids=["gone", "empty", "a byte"])
def test_of_a_file_that_is_gone_a_copy_gives_back_all(
    left: bytes | None, cli: Cli, store: Path
) -> None:
    truth = rows_of_table()
    STORE.unlink()
    Path("store.db.lock").unlink()  # what says that a store was here is its signer, or its ring
    if left is not None:
        STORE.write_bytes(left)
    for words in ("verify", "repair --yes", "key get agent:one count"):
        assert "--copy" in cli(words).err
    assert "lost unless a copy has it: all rows" in cli("repair --dry-run --copy copy.db").out
    done = cli("repair --yes --copy copy.db")
    assert done.code == 0, done
    assert left is not None or STORE.stat().st_mode & 0o77 == 0
    assert truth.items() <= rows_of_table().items()
    whole(cli)


def test_a_path_where_nothing_was_is_not_filled_from_a_copy(cli: Cli, store: Path) -> None:
    assert cli("--store", "stoer.db", "repair", "--yes", "--copy", "copy.db").code == 4
    assert not Path("stoer.db").exists()


def test_without_its_first_row_a_store_needs_a_copy_then_or_later(cli: Cli, store: Path) -> None:
    truth = rows_of_table()
    page = next(at for at in pages(LEAF_TABLE) if truth[META] in STORE.read_bytes()[at : at + PAGE])
    change(page, bytes(PAGE))
    for _ in range(2):
        refused = cli("repair --yes")
        assert (refused.code, refused.out) == (6, "")
        assert "the row that says what a store is" in refused.err
        assert "repair it with a copy of the store (--copy)" in refused.err
        assert not Path("store.db.damaged").exists()
    done = cli("repair --yes --copy copy.db")
    assert (done.code, done.err) == (0, "")
    assert truth.items() <= rows_of_table().items()
    whole(cli)


def test_health_of_a_damaged_file_is_no_success(cli: Cli, store: Path) -> None:
    change(pages(LEAF_INDEX)[0] + 3, b"\0\3")
    found = cli("doctor")
    assert "the file itself is damaged" in found.out
    assert found.code == 1


def test_what_was_done_is_told_as_it_was(cli: Cli, store: Path) -> None:
    change(pages(LEAF_TABLE)[3], bytes(PAGE))
    before = STORE.read_bytes()
    planned = cli("repair --dry-run")
    assert planned.code == 1
    assert "in no page of it, so lost unless a copy has it: entry (" in planned.out
    assert STORE.read_bytes() == before
    other = f"sqlite:{Path('other.db').resolve()}"
    sync.open(other, key=os.environ.get("HOLDFAST_KEY")).close()
    done = cli(f"repair --yes --copy copy.db --copy {other}")
    assert f"{other} is no copy of this store" in done.err
    assert "rebuilt from" in done.out
    again = cli("repair --yes")
    assert "rebuilt before; the old file is kept as" in again.out
    ended = cli("repair --confirm")
    assert f"the old file, {store.resolve()}.damaged, is removed" in ended.out
    assert not Path("store.db.damaged").exists()


def test_a_replica_is_mended_from_its_store(cli: Cli, store: Path) -> None:
    truth = rows_of_table()
    assert cli("replica sync sqlite:replica.db").code == 0
    if Path("store.db.keys").exists():
        shutil.copy("store.db.keys", "replica.db.keys")
    data = Path("replica.db").read_bytes()
    starts = [at for at in range(6 * PAGE, len(data), PAGE) if data[at] == LEAF_TABLE]
    Path("replica.db").write_bytes(data[: starts[3]] + bytes(PAGE) + data[starts[3] + PAGE :])
    done = cli("--store replica.db repair --yes")
    assert done.code == 1
    assert "rebuilt from" in done.out
    assert "replica sync --full sqlite:replica.db" in done.err
    assert cli("replica sync --full sqlite:replica.db").code == 0
    assert truth.items() <= rows_of_table("replica.db").items()
    assert cli("--store replica.db repair --confirm").code == 0
    assert not Path("replica.db.damaged").exists()


def test_a_file_of_which_nothing_is_left_says_what_helps(cli: Cli, store: Path) -> None:
    os.truncate(STORE, 2 * PAGE)
    refused = cli("repair --yes")
    assert refused.code == 6
    assert "no row is left in the file" in refused.err
    assert "--copy" in refused.err
    assert Path("copy.db").exists()


@pytest.mark.parametrize("frames", [0, 3])
def test_a_damaged_log_is_kept_and_all_of_it_that_is_whole_is_taken(
    cli: Cli, store: Path, frames: int
) -> None:
    """The log is that of a process that was killed; SQLite would drop all behind the damage: of one
    bit, or of some frames, the pages of which are in a copy alone."""
    wal, kept = Path("store.db-wal"), Path("store.db-wal.damaged")
    with sync.open(f"sqlite:{STORE}", key=os.environ.get("HOLDFAST_KEY")) as opened:
        for number in range(20):
            opened.agent("one").append("log", number)
        left = {path: path.read_bytes() for path in Path().glob("store.db*")}
    for path in Path().glob("store.db*"):
        shutil.copy(path, path.name.replace("store", "copy"))
    log, size = left[wal], 24 + PAGE
    middle = 32 + len(log) // size // 2 * size
    zeroes = max(1, frames * size)
    damage = bytes(zeroes) if frames else bytes([log[middle + 2000] ^ 1])
    at = middle if frames else middle + 2000
    left[wal] = log[:at] + damage + log[at + zeroes :]
    for path, data in left.items():
        path.write_bytes(data)
    Path("store.db-shm").unlink()
    for command in ("verify", "doctor", "key get agent:one count", "key set agent:one count 1"):
        refused = cli(command)
        assert refused.code == 6
        assert "commits in it" in refused.err
    assert cli("repair --dry-run --yes").code == 6
    assert cli("repair").code == 6
    assert wal.read_bytes() == left[wal]
    done = cli("repair --yes" + (" --copy copy.db" if frames else ""))
    assert done.code == 0, done
    assert "commits in it" in done.err
    assert ("lost: nothing" in done.out) is (frames == 0)
    assert (f"{frames} pages were cut off, or damaged in the log" in done.out) is bool(frames)
    assert kept.read_bytes() == left[wal]
    assert json.loads(cli("key get agent:one log --json").out)["value"] == list(range(20))
    whole(cli)
    assert cli("repair --confirm").code == 0
    assert not kept.exists()


def test_a_ring_that_lost_its_cell_alone_is_mended(cli: Cli, store: Path) -> None:
    if not Path("store.db.keys").exists():
        pytest.skip("a plain store has no ring")
    connection = apsw.Connection("store.db.keys")
    connection.execute("DELETE FROM cells")
    connection.close()
    for command in ("verify", "repair"):
        refused = cli(command)
        assert refused.code == 6
        assert "holdfast repair --yes" in refused.err
    done = cli("repair --yes")
    assert done.code == 0, done
    assert "made again from other rows" in done.err
    whole(cli)


def test_what_only_a_ring_or_a_key_helps_with_is_said(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older ring, and the key of another store beside a copy that has no ring."""
    if not Path("store.db.keys").exists():
        pytest.skip("a plain store has no ring")
    assert cli("key set agent:four count 1").code == 0
    newest = Path("store.db.keys").read_bytes()
    shutil.copy("copy.db.keys", "store.db.keys")
    told = cli("repair --yes --copy copy.db").err
    assert "the ring holds no key for agent:four" in told
    assert "only the newest ring (PATH.keys) helps" in told
    assert "a whole copy of the store" not in told
    Path("store.db.keys").write_bytes(newest)
    Path("copy.db.keys").unlink()
    assert "copy.db.keys" in cli("repair --yes --copy copy.db").err
    monkeypatch.setenv("HOLDFAST_KEY", "passphrase:of another store")
    assert "opened with file:PATH" in cli("repair --yes --copy copy.db").err


def test_a_copy_gives_nothing_back_that_was_erased_or_pruned(cli: Cli, store: Path) -> None:
    assert cli("scope erase agent:two --yes").code == 0
    with sync.open(f"sqlite:{STORE}", key=os.environ.get("HOLDFAST_KEY")) as opened:
        assert opened.agent("three").prune(60).entries
    before = rows_of_table()
    gone = sorted(before.keys() & rows_of_table("copy.db").keys())[::3]
    connection = apsw.Connection(str(STORE))
    connection.execute("PRAGMA secure_delete=ON")
    connection.executemany("DELETE FROM records WHERE k=?", [(key,) for key in gone])
    connection.close()
    change(STORE.read_bytes().index(b"CREATE TABLE records"), b"CREATE TABLF")  # so it is rebuilt
    done = cli("repair --yes --copy copy.db")
    assert done.code == 0, done
    after = rows_of_table()
    assert before.keys() == after.keys(), "nothing pruned or erased comes back, nothing is lost"
    bodies = {key for key in after if len(after[key]) > len(before[key])}
    assert all(key[:1] == b"E" for key in bodies), "which a kept state may need"
    assert {key: after[key] for key in before if key not in bodies}.items() <= before.items()
    with sync.open(f"sqlite:{STORE}", key=os.environ.get("HOLDFAST_KEY")) as opened:
        opened.agent("three").prune(62)
    assert not {key for key in bodies if len(rows_of_table()[key]) > len(before[key])}
    assert cli("verify").code == 0
    assert cli("key get agent:two count").code == 4


def talked() -> None:
    """An agent with a list, whose index is saved at entry 256, and what it is compared with."""
    with opened() as store:
        state = store.agent("four")
        for number in range(120):
            state.set("plan", number)
            state.append("talk", {"content": f"message {number} " * 8})
            if number % 30 == 0:
                state.checkpoint(f"at {number}")
        for number in range(20):
            state.set("plan", 1000 + number)


def rows_of_four(kind: bytes) -> list[bytes]:
    """Keys of the newest agent's rows, in order."""
    with opened() as store:
        number = core_of(store).ledger(store.agent("four").scope).number
    return sorted(k for k in rows_of_table() if k[:7] == kind + number.to_bytes(6, "big"))


def spoil(key: bytes, at: int | None = -3) -> None:
    """Change one bit of a row, or let it be gone."""
    row = bytearray(rows_of_table()[key])
    connection = apsw.Connection(str(STORE))
    connection.execute("PRAGMA secure_delete=ON")
    if at is None:
        connection.execute("DELETE FROM records WHERE k = ?", (key,))
    else:
        row[at] ^= 8
        connection.execute("UPDATE records SET v = ? WHERE k = ?", (bytes(row), key))
    connection.close()


def ends_well(cli: Cli, count: int) -> Result:
    """What no copy has is stated as lost once, and all else stays."""
    done = cli("repair --yes --accept-loss")
    assert (done.code, done.err) == (0, "")
    assert cli("verify").code == 0
    assert cli("repair --yes").out.startswith("nothing is damaged")
    found = cli("show agent:four --json").json["state"]
    assert (len(found["talk"]), found["plan"]) == (count, 1019)
    assert cli("key set agent:four plan 1").code == 0
    return done


def test_a_damaged_saved_index_costs_no_state(cli: Cli, store: Path) -> None:
    talked()
    spoil(rows_of_four(b"N")[0])
    assert "its newest state can be read" in cli("repair --yes").err
    assert "served" not in ends_well(cli, 120).out
    assert cli("restore agent:four 264").code == 0


@pytest.mark.parametrize("at", [-3, 25, None], ids=["body", "envelope", "gone"])
@pytest.mark.parametrize("index", [False, True], ids=["entry", "entry and index"])
def test_damage_of_a_list_costs_its_item(
    cli: Cli, store: Path, at: int | None, index: bool
) -> None:
    talked()
    spoil(rows_of_four(b"E")[207], at)
    if index:
        spoil(rows_of_four(b"N")[0])
    assert "lost: what entry 208 did" in cli("repair --dry-run").out
    assert "lost: what entry 208 did" in ends_well(cli, 119).out


@pytest.mark.parametrize("also", [False, True], ids=["", "and an entry"])
def test_the_newest_rows_of_the_feed_are_gone(cli: Cli, store: Path, also: bool) -> None:
    """Nothing in the feed shows it: it names too few entries of the newest scope."""
    talked()
    rows = rows_of_table()
    for key in sorted(key for key in rows if key[:1] == b"F")[-4:]:
        spoil(key, None)
    if also:
        spoil(rows_of_four(b"E")[39])  # that set the plan
    assert cli("verify").code == 1
    ends_well(cli, 120)


def test_a_file_that_was_copied_while_others_wrote_is_not_read_as_an_older_one(
    cli: Cli, store: Path
) -> None:
    """Its beginning, and so its header, is older than its end: SQLite does not look behind that."""
    older = STORE.read_bytes()
    with opened() as later:
        for number in range(40):
            later.agent("one").set("text", f"{number + 40} " * 3000)
    truth = rows_of_table()
    STORE.write_bytes(older + STORE.read_bytes()[len(older) :])
    for words in ("key get agent:one count", "key set agent:one count 7", "verify"):
        assert cli(words).code == 6
    assert "pages lie behind the end that its header names" in cli("repair --dry-run").out
    there = cli("repair --yes --accept-loss")
    assert there.code == 0, there
    assert "rebuilt from" in there.out
    kept = rows_of_table().keys() & truth.keys()
    assert len(kept) > 370, "also rows of pages behind that end"
    assert cli("verify").code == 0


@pytest.mark.parametrize("left", [b"", None], ids=["empty", "gone"])
def test_another_stores_copy_is_not_taken_for_one_of_a_file_that_is_gone(
    cli: Cli, store: Path, left: bytes | None
) -> None:
    """Who signs, or the ring, tells; and of two kinds of copies none is believed."""
    with sync.open("sqlite:other.db", key=os.environ.get("HOLDFAST_KEY")) as other:
        other.agent("two").set("count", 1)
    STORE.unlink()
    if left is not None:
        STORE.write_bytes(left)
    refused = cli("repair --yes --copy other.db")
    assert refused.code != 0
    assert "a copy is of another store" in refused.err
    done = cli("repair --yes --copy other.db --copy copy.db")
    assert done.code == 0, done
    assert "no row of the file was left" in done.out
    assert "lost: nothing" not in done.out
    whole(cli)


@pytest.mark.parametrize("found", [True, False], ids=["a copy", "none"])
@pytest.mark.parametrize("named", [True, False], ids=["its row", "its entries"])
def test_the_place_of_a_lost_timeline_is_held(
    cli: Cli, store: Path, found: bool, named: bool
) -> None:
    """Else a new one, such as a recovery makes, would stand in its place; a copy still has it.
    The index may name its entries alone."""
    with opened() as made:
        made.agent("one").fork("aside").set("count", 100)
    for path in Path().glob("store.db*"):
        shutil.copy(path, path.name.replace("store", "copy"))
    rows = rows_of_table()
    line = next(key for key in rows if key[:1] == b"T" and key[7:9] == b"\0\1")
    if not named:
        connection = apsw.Connection(str(STORE))
        connection.execute("DELETE FROM records WHERE k=?", (line,))
        connection.close()
    lose(*(key for key in rows_of_table() if key[:1] in b"TEVNSC" and key[1:9] == line[1:9]))
    lose(*sorted(key for key in rows if key[:1] == b"F")[-3:])
    lose(sorted(key for key in rows if key[:9] == b"E" + line[1:7] + bytes(2))[-1])
    done = cli("repair --yes --accept-loss")
    assert done.code == 0, done
    if found:
        healed = cli("repair --yes --copy copy.db --accept-loss")
        assert healed.code == 0, healed
        assert cli("restore agent:one aside@2 --timeline aside").code == 0
        assert cli("key get agent:one count --timeline aside").out == "100\n"
    else:
        assert "timeline timeline-1 lost all of it" in done.out
        assert cli("timelines agent:one").out.splitlines()[1].startswith("timeline-1\t")
        assert cli("fork agent:one another").code == 0
    assert cli("verify").code == 0
    assert cli("key set agent:one count 40").code == 0


@pytest.mark.parametrize("saved", [True, False])
def test_a_damaged_value_of_another_timeline_costs_that_value(
    cli: Cli, store: Path, saved: bool
) -> None:
    """Or, as long as no index of it is saved, what came with it and later; the rest stays, and the
    way back that a restore names is one of the same timeline."""
    with opened() as made:
        fork = made.agent("one").fork("aside")
        fork.set("plan", "mine")
        fork.set("count", " ".join(map(str, range(9000))))
        for number in range(300 if saved else 0):
            fork.set("more", number)
    rows = rows_of_table()
    line = next(key for key in rows if key[:1] == b"T" and key[7:9] == b"\0\1")
    values = b"V" + line[1:9] + (3).to_bytes(5, "big")
    spoil(max(key for key in rows if key.startswith(values)))
    done = cli("repair --yes --accept-loss")
    assert done.code == 0, done
    assert f"timeline aside lost {'count' if saved else 'what it did behind entry 2'}: " in done.out
    assert cli("verify").code == 0
    assert cli("key get agent:one plan --timeline aside").out == '"mine"\n'
    assert cli("key get agent:one count --timeline aside").out == "39\n"
    assert cli("key get agent:one more --timeline aside").code == (0 if saved else 4)
    back = cli("restore agent:one aside@1 --timeline aside").out.partition("to undo it: holdfast ")
    assert cli("key get agent:one plan --timeline aside").code == 4
    assert cli(back[2].partition("\n")[0]).code == 0
    assert cli("key get agent:one plan --timeline aside").out == '"mine"\n'
    assert cli("key get agent:one plan").code == 4, "main is as it was"


def test_a_copy_with_commits_that_a_store_lacks_is_named(cli: Cli, store: Path) -> None:
    """Nothing in a store that was put back to an older state shows that."""
    older = STORE.read_bytes()
    with opened() as later:
        for number in range(5):
            later.agent("one").set("count", number)
    shutil.copy(STORE, "copy.db")
    assert "copy.db has" not in cli("repair --yes --copy copy.db").err
    STORE.write_bytes(older)
    for words in ("repair --dry-run --copy copy.db", "repair --yes --copy copy.db"):
        told = cli(words)
        assert (told.code, told.out) == (0, "nothing is damaged\n")
        assert "copy.db has 5 commits that this store has not" in told.err


def test_damage_of_a_file_is_none_of_its_log(cli: Cli, store: Path) -> None:
    """The index of the file is read in vain, with the log or without: all of the log is taken."""
    with opened() as left:
        for number in range(20):
            left.agent("one").append("log", number)
        files = {path: path.read_bytes() for path in Path().glob("store.db*")}
    for path, data in files.items():
        path.write_bytes(data)
    Path("store.db-shm").unlink()
    change(3 * PAGE, b"\7")  # the root of the index, which the log does not have
    assert cli("verify").code == 6
    done = cli("repair --yes")
    assert done.code == 0, done
    assert "lost: nothing" in done.out
    assert json.loads(cli("key get agent:one log --json").out)["value"] == list(range(20))
    whole(cli)
