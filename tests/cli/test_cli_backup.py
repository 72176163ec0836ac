"""`holdfast backup`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Cli


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"dir:{tmp_path}/backups"


def test_a_store_is_backed_up_and_made_again(cli: Cli, place: str, tmp_path: Path) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    first = cli(f"backup create {place} --name first --json").json
    assert (first["name"], first["type"], first["encrypted"]) == ("first", "full", False)
    cli("key set agent:7 plan 2")
    said = cli(f"backup create {place}")
    assert said.code == 0
    assert "backup: 2" in said.out
    listed = cli(f"backup list {place} --json").json
    assert [one["name"] for one in listed["backups"]] == ["", "first"]
    assert listed["damaged"] == []
    assert cli(f"backup list {place}").out.count("\n") == 2
    id = first["id"]
    newest = cli(f"backup verify {place} newest --json").json
    assert newest["id"] == listed["backups"][0]["id"]
    assert "whole" in cli(f"backup verify {place} {id}").out
    url = f"{tmp_path}/again.db"
    done = cli(f"backup restore {place} {id} {url} --json")
    assert done.code == 0
    assert done.json["rows"] == first["rows"]
    assert done.json["erased"] == 0
    assert cli(f"--store {url} key get agent:7 plan").out == "1\n"
    assert cli(f"--store {url} verify").code == 0
    refused = cli(f"backup restore {place} {id} {url}")
    assert refused.code == 2
    assert "already" in refused.err
    deleted = cli(f"backup prune {place} --keep 1 --json").json
    assert deleted["deleted"] == [id]
    assert cli(f"backup verify {place} {id}").code == 4
    last = listed["backups"][0]["id"]
    assert f"{last} is deleted" in cli(f"backup delete {place} {last}").out
    assert cli(f"backup list {place}").out == ""
    assert cli(f"backup verify {place} newest").code == 4


@pytest.mark.parametrize("verb", ["list", "verify", "restore", "delete", "prune"])
def test_a_folder_that_is_not_there_is_refused_and_not_made(
    cli: Cli, tmp_path: Path, verb: str
) -> None:
    cli("init")
    more = {"list": "", "verify": "newest", "restore": "newest again.db"}
    more["delete"] = "20260101T000000000000Z-00000000"
    for at in (f"{tmp_path}/typo", f"{tmp_path}/file"):
        (tmp_path / "file").touch()
        done = cli(f"backup {verb} dir:{at} {more.get(verb, '--keep 1')}")
        assert (done.code, done.out) == (4, "")
        assert f"there is no folder {at}" in done.err
    assert not (tmp_path / "typo").exists()
    assert cli(f"backup create dir:{tmp_path}/file").code == 4


def test_deleting_says_why_objects_stay(cli: Cli, place: str, tmp_path: Path) -> None:
    cli("init")
    ids = [cli(f"backup create {place} --full --json").json["id"] for _ in range(3)]
    (tmp_path / "backups" / "backups" / f"{ids[0]}.json").write_bytes(b"{}")
    done = cli(f"backup delete {place} {ids[1]} --json")
    assert (done.code, done.json["deleted"], done.json["objects"]) == (0, [ids[1]], 0)
    assert ids[0] in done.json["notes"][0]
    assert "no object was deleted" in cli(f"backup delete {place} {ids[2]}").err


def test_where_the_store_is_lost(cli: Cli, place: str, tmp_path: Path) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    made = cli(f"backup create {place} --json").json
    (tmp_path / "lost").mkdir()
    id, lost = made["id"], f"--store {tmp_path}/lost/none.db"
    assert cli(f"{lost} backup verify {place} {id}").code == 4
    untrusted = cli(f"{lost} backup verify {place} {id} --no-store")
    assert untrusted.code == 1
    assert "not trusted" in untrusted.out
    assert "give it with --trust" in untrusted.out
    asked = cli(f"{lost} backup verify {place} {id} --no-store --json").json
    assert "give it with --trust" in asked["findings"][0]
    trust = f"--no-store --trust {made['signer']}"
    assert cli(f"{lost} backup verify {place} {id} {trust}").code == 0
    assert cli(f"{lost} backup restore {place} {id} {tmp_path}/a.db --no-store").code == 2
    done = cli(f"{lost} backup restore {place} {id} {tmp_path}/a.db {trust}")
    assert done.code == 0
    assert "not at hand" in done.out
    assert cli(f"--store {tmp_path}/a.db key get agent:7 plan").out == "1\n"


def test_damage_has_an_exit_code(cli: Cli, place: str, tmp_path: Path) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    made = cli(f"backup create {place} --json").json
    part = next(path for path in (tmp_path / "backups" / "objects").rglob("*") if path.is_file())
    part.write_bytes(b"other")
    found = cli(f"backup verify {place} {made['id']} --json")
    assert found.code == 1
    assert part.name in found.json["findings"][0]
    assert cli(f"backup restore {place} {made['id']} {tmp_path}/again.db").code == 6
    manifest = tmp_path / "backups" / "backups" / f"{made['id']}.json"
    manifest.write_bytes(b"{}")
    assert "is damaged" in cli(f"backup list {place}").err
    assert cli(f"backup create {place} --encryption").code == 2
    assert cli("backup list nowhere").code == 2


def test_newest_is_never_an_older_one_because_that_is_damaged(
    cli: Cli, place: str, tmp_path: Path
) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    old = cli(f"backup create {place} --json").json["id"]
    cli("key set agent:7 plan 2")
    new = cli(f"backup create {place} --json").json["id"]
    (tmp_path / "backups" / "backups" / f"{new}.json").write_bytes(b"{}")
    url = f"{tmp_path}/again.db"
    for words in (f"verify {place} newest", f"restore {place} newest {url}"):
        for more in ("", " --no-store"):
            refused = cli(f"backup {words}{more}")
            assert (refused.code, refused.out) == (6, "")
            assert new in refused.err
    assert cli(f"backup verify {place} {new}").code == 1
    assert cli(f"backup restore {place} {old} {url}").code == 0, "it is named"
    (tmp_path / "backups" / "backups" / f"{new}.json").unlink()
    (tmp_path / "backups" / "backups" / f"{old}.json").write_bytes(b"{}")
    cli(f"backup create {place}")
    assert cli(f"backup verify {place} newest").code == 0, (
        "a damaged one that is older is no matter"
    )


def test_newest_is_of_this_store_at_a_place_of_several(
    cli: Cli, place: str, tmp_path: Path
) -> None:
    other = f"--store {tmp_path}/other.db"
    for which, value in (("", 1), (other, 2)):
        cli(f"{which} init --signer file:{tmp_path}/signer")
        cli(f"{which} key set agent:7 plan {value}")
    signer = f"--signer file:{tmp_path}/signer"
    mine = cli(f"backup create {place} {signer} --json").json
    theirs = cli(f"{other} backup create {place} {signer} --json").json
    assert mine["signer"] == theirs["signer"]
    assert cli(f"backup verify {place} newest --json").json["id"] == mine["id"]
    url = f"{tmp_path}/again.db"
    assert cli(f"backup restore {place} newest {url}").code == 0
    assert cli(f"--store {url} key get agent:7 plan").out == "1\n"
    for words in (f"verify {place} newest", f"restore {place} newest {tmp_path}/more.db"):
        refused = cli(f"backup {words} --no-store --trust {mine['signer']}")
        assert refused.code == 2
        assert "several stores" in refused.err
    refused = cli(f"backup delete {place} newest")
    assert refused.code == 2
    assert "by its id, as `holdfast backup list` shows it" in refused.err
    assert len(cli(f"backup list {place} --json").json["backups"]) == 2
    cli(f"backup delete {place} {mine['id']}")
    none = cli(f"backup verify {place} newest")
    assert (none.code, "of this store" in none.err) == (4, True)


@pytest.mark.parametrize("days", ["nan", "1e12", "-inf"])
def test_days_are_a_number_of_them(cli: Cli, place: str, days: str) -> None:
    cli("init")
    refused = cli(f"backup prune {place} --keep 1 --days={days}")
    assert refused.code == 2
    assert "--days" in refused.err
