"""`recover`, `recovery`, `doctor`, `repair` and `quarantine` from the command line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli

from holdfast import Scope, sync
from holdfast.errors import RecoveryFailedError
from holdfast.recovery.run import recovering_lease
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names import rowkinds as rows
from holdfast.store.proof.verify_report import Finding

URL = "sqlite:holdfast.db"


def damage(kind: bytes, number: int, url: str = URL) -> None:
    """Flip a bit of a row behind the store's back."""
    storage = open_storage(url, durability="normal")
    key, row = storage.scan(kind, bytes([kind[0] + 1]))[number]
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])]))
    storage.close()


def plan_of(agent: str = "7") -> object:
    with sync.open(URL, read_only=True) as store:
        return store.agent(agent).get("plan")


@pytest.fixture
def many(here: Path) -> Path:
    """An agent whose index is saved, and whose newest long value can be damaged alone."""
    with sync.open(URL) as store:
        state = store.agent("7")
        state.set("plan", "old " * 5000)
        state.checkpoint("good")
        state.set("plan", os.urandom(20_000))
        with state.change() as change:
            for number in range(400):
                change.set(f"k{number}", number)
        for number in range(300):
            state.set("count", number)
    return here


def damage_plan() -> None:
    """Of the entry that set the newest plan, the longest row: a few bytes at the end of the plan
    may also lie in the index, and then their row is not needed."""
    storage = open_storage(URL, durability="normal")
    found = enumerate(storage.scan(b"V", b"W"))
    rows = {n: len(row) for n, (key, row) in found if key[9:14] == bytes([0, 0, 0, 0, 3])}
    storage.close()
    damage(b"V", max(rows, key=rows.__getitem__))


# recover


def test_recover_a_number_is_that_of_an_entry(cli: Cli, here: Path) -> None:
    with sync.open(URL) as store:
        for n in range(1, 6):
            store.agent("7").set("plan", n)
        store.agent("7").checkpoint("3")
    for option in ("--point", "--at"):
        assert cli(f"recover agent:7 {option} 3 --dry-run --json").json["point"] == "main@3"
    assert cli("recover agent:7 --point 3").code == 0
    assert plan_of() == 3


def test_recover_a_dry_run_for_which_nothing_serves_says_so(cli: Cli, here: Path) -> None:
    with sync.open(URL) as store:
        store.agent("7").set("plan", 1)
    done = cli("recover agent:7 --strategy named --dry-run --json")
    assert done.code == 9
    assert (done.json["strategy"], done.json["lost"]) == (None, None)
    done = cli("recover agent:7 --strategy named --dry-run")
    assert "none serves" in done.out
    assert "lost" not in done.out
    assert cli("recover agent:7").code == 0


def test_recover_an_agent_that_only_a_copy_has(cli: Cli, here: Path) -> None:
    with sync.open(URL) as store, sync.open("sqlite:copy.db") as copy:
        store.agent("other").set("plan", 1)
        copy.agent("7").set("plan", 2)
    planned = cli("recover agent:7 --copy sqlite:copy.db --dry-run --json").json
    done = cli("recover agent:7 --copy sqlite:copy.db --json").json
    assert planned["strategy"] == done["strategy"] == "copy"
    assert plan_of() == 2


@pytest.mark.spec("M85", "M114")
def test_an_agent_returns_to_what_was_asked_for_with_a_report(cli: Cli, agent: str) -> None:
    planned = cli("recover agent:7 --point safe --dry-run --json").json
    assert (planned["strategy"], planned["point"]) == ("named", "main@3")
    assert plan_of() == {"goal": "ship", "step": 2}
    done = cli("recover agent:7 --point safe --message 'a bad turn' --report r.txt --json").json
    assert (done["status"], done["lost"]) == ("succeeded", "1 entries after it")
    assert plan_of() == {"goal": "ship", "step": 1}
    assert "a bad turn" in Path("r.txt").read_text()
    listed = cli("recovery list --json").json["recoveries"]
    assert [one["id"] for one in listed] == [done["id"]]
    assert cli("recovery show agent:7 --json").json == done
    shown = cli(f"recovery show agent:7 {done['id']}").out
    assert shown.startswith("Recovery of agent:7: succeeded")
    cli("recovery show agent:7 -o page.txt")
    assert Path("page.txt").read_text() == shown
    assert cli("recovery stats --json").json["succeeded"] == 1
    assert "success rate: 1.0" in cli("recovery stats agent:7").out


def test_procedures_are_kept_shown_and_removed(cli: Cli, agent: str) -> None:
    """Catches: one that no other process uses; one agent's for another; a bad file half kept."""
    steps = "[{type: locate_checkpoint, timeout: 5s}, {type: restore_state}]"
    Path("p.yaml").write_text(f"[{{id: quick, triggers: [agent_crash], steps: {steps}}}]")
    assert cli("procedure set p.yaml agent:7 --json").json == {
        "for": "agent:7",
        "procedures": ["quick"],
    }
    kept = cli("procedure list agent:7 --json").json["procedures"][0]
    assert (kept["for"], kept["id"], kept["triggers"]) == ("agent:7", "quick", ["agent_crash"])
    others = cli("procedure list agent:8 --json").json["procedures"]
    assert {one["for"] for one in others} == {"built-in"}
    shown = cli("procedure show quick agent:7").out
    assert cli("recover agent:7 --failure agent_crash --json").json["procedure"] == "quick"
    assert cli("procedure show quick").code == 4
    Path("shown.yaml").write_text(shown)
    assert cli("procedure set shown.yaml").code == 0
    assert cli("procedure show quick").out == shown
    Path("two.yaml").write_text(f"[{{id: a, steps: {steps}}}, {{id: b, steps: [{{type: x}}]}}]")
    assert cli("procedure set two.yaml").code == 2
    assert cli("procedure show a").code == 4
    assert cli("procedure remove quick agent:7").code == 0
    again = cli("procedure remove quick agent:7")
    assert (again.code, "no procedure 'quick' is kept for agent:7" in again.err) == (4, True)
    assert cli("recover agent:7 --failure agent_crash --json").json["procedure"] == "quick"


def test_by_time_by_hash_and_by_what_is_known_of_a_checkpoint(cli: Cli, agent: str) -> None:
    found = cli("checkpoint show agent:7 safe --json").json
    for words in (f"--at {found['time']}", "--tag release", "--type manual", "--name safe"):
        cli("key set agent:7 plan 0")
        assert cli(f"recover agent:7 {words} --json").json["status"] == "succeeded"
        assert plan_of() == {"goal": "ship", "step": 1}
    cli("key set agent:7 plan 0")
    assert cli(f"recover agent:7 --point {found['hash']}").code == 0
    assert plan_of() == {"goal": "ship", "step": 1}
    cli("key set agent:7 plan 0")
    assert cli(f"restore agent:7 {found['hash']}").code == 0
    assert plan_of() == {"goal": "ship", "step": 1}


@pytest.mark.spec("X17")
def test_restoring_from_a_time_or_hash_rolling_back_to_a_version_and_trying_one(
    cli: Cli, agent: str
) -> None:
    """Catches: a time, a hash or a name that leads to another checkpoint, or to the newest; a trial
    that changes something, or tells of something else than what is done then."""
    made = {}
    for number, version in enumerate(("v1.0.0", "v1.1.0", "v2.0.0"), 1):
        cli(f"key set agent:7 plan {number}")
        made[version] = cli(f"checkpoint create agent:7 {version} --json").json
    cli("key set agent:7 plan 0")
    for number, (version, about) in enumerate(made.items(), 1):
        for source in (about["time"], about["hash"], version):
            tried = cli(f"restore agent:7 {source} --dry-run --json").json
            changes = [(one["before"], one["after"]) for one in tried["diff"]["changes"]]
            assert changes == [(0, number)]
            assert plan_of() == 0, "it was tried, not done"
            assert cli(f"restore agent:7 {source}").code == 0
            assert plan_of() == number
            cli("key set agent:7 plan 0")
    for unknown in ("f" * 64, "v3.0.0", "2001-01-01"):
        assert cli(f"restore agent:7 {unknown}").code == 4
    assert plan_of() == 0


@pytest.mark.spec("X16")
def test_two_checkpoints_compared_a_restore_tried_entries_replayed_health_told(
    cli: Cli, agent: str
) -> None:
    cli("checkpoint create agent:7 later")
    compared = cli("diff agent:7 safe later --json").json["changes"]
    assert [(one["path"], one["before"], one["after"]) for one in compared] == [("plan.step", 1, 2)]
    tried = cli("restore agent:7 safe --dry-run --json").json
    assert tried["dry_run"]
    assert [one["after"] for one in tried["diff"]["changes"]] == [1]
    with sync.open(URL) as store:
        trial = sync.checkpoints.Checkpoints(store.agent("7")).simulate(
            lambda state: state.set("plan", "tried"), "safe"
        )
        assert trial.diff
    assert plan_of() == {"goal": "ship", "step": 2}
    replayed = cli("debug", "agent:7", "--at", "safe", "-c", "replay later", "--json").out
    documents = [json.loads(line) for line in replayed.splitlines()]
    assert [one["entry"] for one in documents[::2]] == [4, 5]
    assert [len(one["changes"]) for one in documents[1::2]] == [1, 0]
    assert 0 <= cli("doctor --json").json["score"] <= 100


def test_without_anything_else_a_whole_state_is_left_as_it_is(cli: Cli, agent: str) -> None:
    done = cli("recover agent:7 --failure agent_crash").out
    assert "served: as_it_is" in done
    assert "lost: nothing" in done
    assert plan_of() == {"goal": "ship", "step": 2}
    done = cli("recover agent:7 --strategy newest_valid --json").json
    assert done["strategy"] == "newest_valid"
    assert plan_of() == {"goal": "ship", "step": 1}


def test_a_recovery_that_fails_is_undone_says_so_and_leaves_its_report(
    cli: Cli, agent: str
) -> None:
    Path("p.yaml").write_text(
        "id: strict\nsteps: [{type: backup_current}, {type: locate_checkpoint}, "
        "{type: restore_state}, {type: validate_state, action: {keys: [none]}}]\n"
    )
    words = "recover agent:7 --point safe --procedures p.yaml --procedure strict --report r.json"
    failed = cli(words)
    assert failed.code == 9
    assert "missing keys: none" in failed.err
    assert plan_of() == {"goal": "ship", "step": 2}
    assert json.loads(Path("r.json").read_text())["status"] == "rolled_back"
    assert cli("doctor --json").json["concerns"][0]["kind"] == "failed_recovery"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("recover agent:7 --point safe --at 2026-01-01", 2, "one of them"),
        ("recover agent:7 --point safe --tag x", 2, "one of them"),
        ("recover agent:7 --report r.html", 2, ".txt or .json"),
        ("recover agent:7 --report nowhere/r.txt", 2, "folder"),
        ("recover agent:7 --report folder.txt", 2, "over a folder"),
        ("recover agent:7 --point ''", 2, "empty"),
        ("recover agent:7 --procedure none", 4, "standard_recovery"),
        ("recover agent:7 --strategy none", 2, "no strategy"),
        ("recover agent:7 --tag none", 4, "checkpoint"),
        ("recover agent:9", 4, "scope list"),
        ("recover agent:7 --copy nowhere.db", 4, "no store"),
        ("recover agent:7 --timeline other", 4, "timeline"),
        ("recovery show agent:7", 4, "no recovery"),
        ("recovery show agent:7 x", 4, "holdfast recovery list"),
        ("repair agent:9", 4, "scope list"),
        ("doctor agent:9", 4, "scope list"),
        ("quarantine list agent:9", 4, "scope list"),
        ("quarantine show agent:7 00", 4, "holdfast quarantine list"),
        ("quarantine release agent:7 00", 4, "nothing was set aside"),
    ],
)
def test_slips(cli: Cli, agent: str, words: str, code: int, said: str) -> None:
    Path("folder.txt").mkdir()
    failed = cli(words)
    assert failed.code == code, failed.err
    assert said in failed.err


def test_a_page_holds_nothing_that_steers_a_terminal(cli: Cli, agent: str) -> None:
    def boom(context: object, action: object) -> None:
        raise ValueError("\x1b[31mred\x07")

    procedure = {
        "id": "p",
        "triggers": [],
        "steps": [{"type": "boom", "critical": False}, {"type": "cleanup"}],
    }
    with sync.open(URL) as store:
        sync.recovery.Recovery(store, steps={"boom": boom}, procedures=[procedure]).recover(
            "agent:7", procedure="p"
        )
    for form in ("", "--json"):
        out = cli(f"recovery show agent:7 {form}").out
        assert "[31mred" in out
        assert not {"\x1b", "\x07"} & set(out)


def test_resuming_where_nothing_was_left(cli: Cli, agent: str) -> None:
    assert "no recovery was left unfinished" in cli("recovery resume agent:7").out
    assert cli("recovery resume agent:7 --json").json == {"recoveries": []}


class Killed(BaseException):
    """The process ended here."""


# doctor


def test_health_with_reasons_and_an_exit_code(cli: Cli, agent: str) -> None:
    well = cli("doctor --json").json
    assert well["score"] > 80
    assert well["complete"]
    assert cli("doctor").out.startswith(f"health: {well['score']} of 100\n")
    assert cli("doctor --at-least 100").code == 1
    damage(b"E", 3)
    ill = cli("doctor agent:7 --json")
    assert ill.code == 1
    assert ill.json["score"] < 50
    assert ill.json["concerns"][0]["next"] == "holdfast repair agent:7"


# repair, quarantine


def test_repair_goes_on_beside_one_that_another_recovers(cli: Cli, agent: str) -> None:
    with sync.open(URL) as store:
        for n in range(4):
            store.agent("9").set("plan", n)
    storage = open_storage(URL, durability="normal")
    first: dict[bytes, int] = {}
    for number, (key, _) in enumerate(storage.scan(b"E", b"F")):
        first.setdefault(key[:7], number)
    storage.close()
    for number in first.values():
        damage(b"E", number + 2)
    with sync.open(URL) as store, store.lease(recovering_lease(Scope("agent", "7")), duration=60):
        done = cli("repair --yes")
        assert done.code == 1
        assert "not mended: agent:7: " in done.err
        assert cli("repair agent:7 --yes").code not in (0, 1)
    assert cli("key get agent:9 plan").code == 0
    assert cli("key get agent:7 plan").code == 6


@pytest.mark.spec("M83", "M84", "M85")
def test_repair_shows_its_plan_then_mends_and_sets_aside(cli: Cli, agent: str) -> None:
    assert cli("repair").out == "nothing is damaged\n"
    damage(b"E", 3)
    assert cli("key get agent:7 plan").code == 6
    refused = cli("repair")
    assert refused.code == 2
    assert "--yes" in refused.err
    planned = cli("repair --dry-run --json").json
    assert [(one["agent"], one["strategy"]) for one in planned["plans"]] == [("agent:7", "journal")]
    assert cli("key get agent:7 plan").code == 6
    mended = cli("repair --yes --json")
    done = mended.json["repaired"]
    assert done[0]["lost"] == "what entry 4 did"
    assert mended.code == 1  # as the next one, and `verify`, which see what is left
    assert "its newest state can be read, its past cannot" in mended.json["left"][0]
    assert plan_of() == {"goal": "ship", "step": 1}
    (row,) = cli("quarantine list --json").json["quarantine"]
    assert "entry 4" in row["place"]
    assert "entry 4" in cli("quarantine list agent:7").out
    shown = cli(f"quarantine show agent:7 {row['id']} -o row.bin --json").json
    assert Path("row.bin").stat().st_size == shown["bytes"] > 0
    assert cli(f"quarantine release agent:7 {row['id']} --reason seen").code == 0
    again = cli(f"quarantine release agent:7 {row['id']} --reason other")
    assert again.code == 0
    assert again.out.endswith(": seen\n")  # the first stands
    assert cli("quarantine list --json").json == {"quarantine": []}
    released = cli("quarantine list --all --json").json["quarantine"]
    assert (released[0]["reason"], released[0]["bytes"]) == ("seen", None)
    again = cli("repair")
    assert again.code == 1
    assert "its newest state can be read, its past cannot" in again.err


def test_doctor_says_what_can_be_done_about_a_damaged_past(cli: Cli, agent: str) -> None:
    damage(b"E", 3)
    cli("repair --yes")

    def concerns() -> dict[str, Any]:
        return {one["kind"]: one for one in cli("doctor --json").json["concerns"]}

    past = concerns()["damaged_past"]
    assert past["points"] > 0
    assert "holdfast repair agent:7 --accept-loss" in past["next"]
    (row,) = cli("quarantine list --json").json["quarantine"]
    assert cli(f"quarantine release agent:7 {row['id']} --reason seen").code == 0
    known = concerns()
    assert "damaged_past" not in known
    assert known["known_damage"]["points"] == 0
    assert cli("quarantine list agent:7 --all").code == 0  # what it names as the next step


def test_what_no_copy_has_is_stated_as_lost(cli: Cli, agent: str) -> None:
    damage(b"E", 3)
    left = cli("repair --yes")
    assert left.code == 1
    assert "--accept-loss" in left.err
    planned = cli("repair --accept-loss --dry-run")
    assert "agent:7: its damage would be stated as lost" in planned.out
    assert cli("verify").code == 1
    refused = cli("repair --accept-loss")
    assert refused.code == 2
    done = cli("repair --accept-loss --yes")
    assert (done.code, done.err) == (0, "")
    assert "states as lost: entry" in done.out
    known = cli("verify")
    assert known.code == 0
    assert "known to be lost: agent:7: entry" in known.out
    numbers = [int(row.partition("\t")[0]) for row in cli("log agent:7").out.splitlines()]
    assert numbers == [number for number in range(numbers[0], 0, -1) if number != 4]
    assert plan_of() == {"goal": "ship", "step": 1}
    told = "nothing is damaged but what is stated as lost (rows: 1, see `holdfast verify`)\n"
    assert cli("repair").out == told
    concerns = {one["kind"] for one in cli("doctor --json").json["concerns"]}
    assert "known_loss" in concerns
    assert "damaged_past" not in concerns


def test_a_copy_heals_what_was_stated_as_lost_and_the_way_back_is_named(
    cli: Cli, agent: str
) -> None:
    before = plan_of()
    for path in Path().glob("holdfast.db*"):
        shutil.copy(path, path.name.replace("holdfast", "later"))
    damage(b"E", 3)
    assert cli("repair --yes --accept-loss").code == 0
    assert plan_of() != before
    done = cli("repair --yes --copy sqlite:later.db")
    assert done.code == 0, done
    assert "agent:7: healed from a copy: entry" in done.out
    assert "known to be lost" not in cli("verify").out
    way = done.out.partition("what it had before its recovery is whole: holdfast ")[2]
    assert cli(way.splitlines()[0]).code == 0
    assert plan_of() == before


def test_without_the_signer_no_statement_of_loss_is_proposed(cli: Cli, agent: str) -> None:
    damage(b"E", 3)
    Path("holdfast.db.sign").unlink()
    left = cli("repair --yes")
    assert left.code == 1
    assert "--accept-loss states" not in left.err
    assert "put its file back from a copy of the store's files" in left.err
    assert "once the signer is here" in cli("doctor").out


def test_a_timeline_that_a_stated_loss_leaves_unreadable_goes_on(cli: Cli, agent: str) -> None:
    with sync.open(URL) as store:
        store.agent("7").fork("trial").set("plan", "tried")
    storage = open_storage(URL, durability="normal")
    (key,) = [key for key, _ in storage.scan(b"E", b"F") if key[7:14] == b"\0\1\0\0\0\0\2"]
    number = [one for one, _ in storage.scan(b"E", b"F")].index(key)
    storage.close()
    damage(b"E", number)
    done = cli("repair --yes --accept-loss")
    assert done.code == 0
    gone = "timeline trial lost what it did behind entry 1: it goes on as trial@1 has that"
    assert f"agent:7: {gone}" in done.out
    assert cli("show agent:7 --timeline trial").code == 0


def test_a_repair_without_the_time_to_look_at_all_says_so(cli: Cli, agent: str) -> None:
    with sync.open(URL) as store:
        for number in range(5):
            store.agent(f"more-{number}").set("plan", number)
    stopped = cli("repair --budget 0 --yes")
    assert stopped.code == cli("verify --budget 0").code == 3
    assert stopped.out == "nothing damaged was found so far\n"
    assert "not all was looked at" in stopped.err
    assert "without --budget" in stopped.err
    for words in ("repair --budget 0 --dry-run --json", "repair --budget 0 --yes --json"):
        found = cli(words)
        assert (found.code, found.json["complete"], found.json["left"]) == (3, False, [])
    whole = cli("repair --json")
    assert (whole.code, whole.json["complete"]) == (0, True)


def test_repair_gives_a_timeline_a_name_again(cli: Cli, agent: str) -> None:
    with sync.open(URL) as store:
        store.agent("7").fork("side").set("plan", "other")
    damage(b"T", 1)
    planned = cli("repair --dry-run")
    assert (planned.code, planned.out) == (1, "agent:7: 1 rows would be healed\n")
    done = cli("repair --yes")
    assert done.code == 0
    assert "the name of timeline 1, which is called 'timeline-1' now" in done.out
    assert cli("verify").code == 0
    assert cli("key get agent:7 plan --timeline timeline-1").out == '"other"\n'


def test_what_is_damaged_in_its_turn_hides_nothing_else_that_was_set_aside(
    cli: Cli, agent: str
) -> None:
    with sync.open(URL) as store:
        for scope in ("agent:7", "agent:9"):
            store.scope(scope).set("plan", 1)
            row = f"45{'00' * 13}"
            damaged = Finding("damage", "an entry", "it was changed", scope, row=row)
            sync.recovery.Recovery(store).quarantine(scope).add([damaged])
        kept = StoreHandle(store._core).line("custom:$recovery/agent:7")
        line = kept.history.points.line()
        key = rows.entry(line.prefix, line.sequence)
    storage = open_storage(URL, durability="normal")
    number = [one for one, _ in storage.scan(b"E", b"F")].index(key)
    storage.close()
    damage(b"E", number)
    listed = cli("quarantine list --json")
    assert listed.code == 0
    assert [one["scope"] for one in listed.json["quarantine"]] == ["agent:9"]
    assert cli("quarantine list agent:7").code == 6


def test_a_damaged_key_alone_comes_from_the_newest_whole_checkpoint(cli: Cli, many: Path) -> None:
    damage_plan()
    planned = cli("repair agent:7 --dry-run --json").json["plans"][0]
    assert (planned["strategy"], planned["keys"]) == ("keys", ["plan"])
    assert "keys: plan" in cli("repair agent:7 --dry-run").out
    assert cli("repair agent:7 --yes").code == 1  # its past stays as it is
    assert cli("recovery show agent:7 -o r.txt").code == 0
    assert plan_of() == "old " * 5000
    with sync.open(URL, read_only=True) as store:
        assert store.agent("7").get("count") == 299
    assert "what entry 3 did to plan" in Path("r.txt").read_text()


@pytest.fixture
def copied(here: Path) -> Path:
    """A store with one entry, and a copy of it."""
    with sync.open(URL) as store:
        store.agent("7").set("plan", "the only version")
    Path("copy").mkdir()
    for file in here.glob("holdfast.db*"):
        shutil.copy2(file, "copy")
    return here


def test_rows_that_a_copy_still_has_are_healed_and_nothing_is_lost(cli: Cli, copied: Path) -> None:
    damage(b"E", 0)
    failed = cli("repair --yes")
    assert failed.code == 1
    assert "--copy" in failed.err
    done = cli("repair --yes --copy copy/holdfast.db --json")
    assert done.code == 0
    assert [one["scope"] for one in done.json["healed"]] == ["agent:7"]
    assert done.json["repaired"] == []
    assert plan_of() == "the only version"
    assert cli("verify").code == 0
    assert len(cli("quarantine list --json").json["quarantine"]) == 1


def test_a_copy_that_went_its_own_way_gives_its_state_by_recovery(cli: Cli, here: Path) -> None:
    with sync.open("sqlite:other.db") as store:
        store.agent("7").set("plan", "of another store")
    with sync.open(URL) as store:
        store.agent("7").set("plan", "the only version")
    damage(b"E", 0)
    done = cli("repair --yes --copy other.db --json")
    assert (done.code, len(done.json["left"])) == (1, 1)  # the old past stays as it is
    assert done.json["repaired"][0]["strategy"] == "copy"
    assert plan_of() == "of another store"


def test_repair_of_an_encrypted_store_from_a_copy(cli: Cli, here: Path) -> None:
    Path("keys").mkdir()
    key = f"file:{here / 'keys' / 'master.key'}"
    Path("data").mkdir()
    with sync.open("sqlite:data/a.db", key=key) as store:
        store.agent("7").set("plan", "the only version")
    shutil.copytree("data", "copy")
    damage(b"E", 0, "sqlite:data/a.db")
    words = ("--store", "data/a.db", "--key", key)
    assert cli(*words, "key", "get", "agent:7", "plan").code == 6
    assert cli(*words, "doctor").code == 1
    assert cli(*words, "repair", "--yes", "--copy", "copy/a.db").code == 0
    assert cli(*words, "key", "get", "agent:7", "plan").out == '"the only version"\n'
    row = cli(*words, "quarantine", "list", "--json").json["quarantine"][0]
    cli(*words, "quarantine", "show", "agent:7", row["id"], "-o", "row.bin")
    assert b"only version" not in Path("row.bin").read_bytes()


# what was unfinished, and what nobody has read for long


def test_boot_settles_what_was_unfinished_and_names_what_is_left(cli: Cli, agent: str) -> None:
    with (
        sync.open(URL) as store,
        pytest.raises(KeyError),
        sync.agents.Effects(store.agent("7")).once("mail") as effect,
    ):
        assert effect.due
        raise KeyError
    refused = cli("recovery boot")
    assert refused.code == 2
    assert "--yes" in refused.err
    damage(b"E", 3)
    done = cli("recovery boot --yes --json")
    assert done.code == 1
    assert {(one["kind"], one["outcome"]) for one in done.json["items"]} == {
        ("state", "completed"),
        ("effect", "left"),
    }
    assert plan_of() == {"goal": "ship", "step": 1}
    assert "effect mail: left" in cli("recovery boot agent:7 --yes --no-check").out
    assert cli("recovery boot agent:9 --yes").code == 4


def test_scrubbing_goes_on_where_it_ended_and_heals(cli: Cli, copied: Path) -> None:
    damage(b"E", 0)  # before scrubbing keeps how far it is
    found = cli("recovery scrub")
    assert found.code == 1
    assert "damaged: agent:7" in found.out
    healed = cli("recovery scrub --copy copy/holdfast.db --json").json
    assert [one["scope"] for one in healed["healed"]] == ["agent:7"]
    assert plan_of() == "the only version"
    well = cli("recovery scrub --json")
    assert (well.code, well.json["finished"], well.json["passes"]) == (0, True, 3)
    assert "all of the store, 4 times" in cli("recovery scrub").out


def test_what_is_asked_for_and_not_there_changes_nothing_and_fails(cli: Cli, many: Path) -> None:
    before = plan_of()
    assert cli("recover agent:7 --point nope").code == 4
    assert cli("recover agent:7 --at 1990-01-01T00:00:00Z").code == 4
    assert cli("recover agent:7 --point nope --dry-run").code == 4
    assert plan_of() == before
    assert cli("recovery list --json").json == {"recoveries": []}


def test_repair_heals_a_lost_newest_entry_or_says_what_is_lost(cli: Cli, here: Path) -> None:
    with sync.open(URL) as store:
        store.agent("7").set("plan", "old")
        store.agent("7").set("plan", "new")
    for name in ("holdfast.db", "holdfast.db.sign"):
        shutil.copy(name, name.replace("holdfast", "copy"))
    storage = open_storage(URL, durability="normal")
    newest = storage.scan(b"E", b"F")[-1][0]
    storage.close()
    for copy, plan, lost in (
        ("--copy sqlite:copy.db", "new", None),
        ("", "old", "entry 2, which the feed names"),
    ):
        storage = open_storage(URL, durability="normal")
        storage.commit(Batch(drops=[newest]))
        storage.close()
        would = cli(f"repair agent:7 --dry-run --json {copy}").json
        assert would["healing"] == ({"agent:7": 1} if copy else {})
        assert [one["lost"] for one in would["plans"]] == ([lost] if lost else [])
        done = cli(f"repair agent:7 --yes --json {copy}").json
        assert [one["lost"] for one in done["repaired"]] == ([lost] if lost else [])
        assert plan_of() == plan
    well = cli("verify")  # what is lost is known now
    assert well.code == 0
    assert "known to be lost: agent:7: entry 2, which the feed names" in well.out
    assert [one["scope"] for one in cli("verify --json").json["losses"]] == ["agent:7"]
    assert "entry 2, which the feed names" in cli("doctor agent:7 --at-least 80").out
    assert "nothing is damaged" in cli("repair agent:7 --yes").out


def test_at_takes_a_checkpoints_name_as_elsewhere(cli: Cli, here: Path) -> None:
    with sync.open(URL) as store:
        store.agent("7").set("plan", "good")
        made = store.agent("7").checkpoint("safe")
        store.agent("7").set("plan", "odd")
    time = made.time.isoformat()
    for at, strategy in (("safe", "named"), (made.id, "named"), (time, "point_in_time")):
        would = cli(f"recover agent:7 --at {at} --dry-run --json").json
        assert (would["strategy"], would["point"]) == (strategy, made.id)
    assert "no checkpoint is named 'lunch'" in cli("recover agent:7 --at lunch").err
    assert cli("recover agent:7 --at safe").code == 0
    assert plan_of() == "good"


def test_the_recovery_of_a_group_is_one_of_each_of_its_agents(cli: Cli, here: Path) -> None:
    team = ["agent:a", "agent:b"]
    with sync.open(URL) as store:
        for one in team:
            store.scope(one).set("k", 1)
        with pytest.raises(RecoveryFailedError):
            sync.recovery.Recovery(store).recover_group(team, "drift")
    found = cli("recovery list --json").json["recoveries"]
    assert [(one["agent"], one["status"]) for one in found] == [(one, "failed") for one in team]
    concerns = cli("doctor --json --at-least 0").json["concerns"]
    steps = [one["next"] for one in concerns if one["kind"] == "failed_recovery"]
    assert len(steps) == 2
    for step in steps:
        assert found[0]["id"] in cli(step.rpartition("holdfast ")[2]).out
