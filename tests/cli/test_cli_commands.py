"""Every command: what it does, what it prints, its JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from cli_kit import Cli

from holdfast import Registry, sync
from holdfast.cli.main import HOMES, root
from holdfast.cli.session import bound, moment, point
from holdfast.errors import InvalidInputError


def commands() -> list[str]:
    """Every command with its full name."""
    found = []
    for name in HOMES:
        command = root.get_command(click.Context(root), name)
        verbs = command.commands if isinstance(command, click.Group) else [""]
        found += [f"{name} {verb}".strip() for verb in verbs]
    return found


@pytest.mark.parametrize("command", commands())
def test_help_of_every_command(cli: Cli, command: str) -> None:
    result = cli(f"{command} --help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: holdfast {command}")
    assert "Global options" in result.out
    assert result.err == ""


def test_help_documents_exit_codes_and_settings(cli: Cli) -> None:
    text = cli("--help").out
    for code in (0, 1, 2, 3, 4, 5, 6, 7, 8, 70):
        assert f"\n    {code} " in text
    for word in ("HOLDFAST_STORE", "HOLDFAST_KEY", "--timeline"):
        assert word in text
    assert cli("--version").out.startswith("holdfast ")


# ---- init ----------------------------------------------------------------------------------


def test_init_plain(cli: Cli, here: Path) -> None:
    result = cli("init")
    assert result.code == 0
    assert "identity: holdfast1:" in result.out
    assert "signer: file:holdfast.db.sign" in result.out
    assert "encrypted: no" in result.out
    assert "not encrypted" in result.err
    assert (here / "holdfast.db.sign").exists()


def test_init_encrypted(cli: Cli, here: Path) -> None:
    result = cli("init --store sqlite:a.db --key file:a.key --json")
    assert result.json["encrypted"] is True
    assert result.json["ring"] == "a.db.keys"
    assert result.json["key"] == "file:a.key"
    assert result.json["signer"] == "in the ring"
    assert any("same folder" in text for text in result.json["warnings"])
    assert result.err == ""
    assert (here / "a.db.keys").exists()
    with sync.open("sqlite:a.db", key="file:a.key", create=False) as store:
        assert store.identity() == result.json["identity"]


def test_init_refuses_what_is_there(cli: Cli, here: Path) -> None:
    assert cli("init --key file:k").code == 0
    before = (here / "holdfast.db").read_bytes()
    for words in ("init", "init --key file:k"):
        result = cli(words)
        assert result.code == 2
        assert "already" in result.err
    assert (here / "holdfast.db").read_bytes() == before
    (here / "text.db").write_text("this is something else " * 20)
    assert cli("init --store text.db").code == 2
    (here / "empty.db").touch()
    assert cli("init --store empty.db").code == 0


def test_init_with_a_signer_apart(cli: Cli, here: Path) -> None:
    (here / "safe").mkdir()
    result = cli("init --signer file:safe/signer --json")
    assert result.json["signer"] == "file:safe/signer"
    assert not any("signer" in text for text in result.json["warnings"])
    cli("key set agent:1 a 1")
    assert "not signed" in cli("checkpoint create agent:1 without").out
    signed = cli("checkpoint create agent:1 with --signer file:safe/signer --json")
    assert signed.json["signed_by"]
    assert cli("witness").code == 7
    assert cli("witness --signer file:safe/signer").out.startswith("holdfast-witness1:")


# ---- scopes --------------------------------------------------------------------------------


def test_scope_list(cli: Cli, agent: str) -> None:
    for scope in ("agent:8", "session:1", "agent:a7"):
        cli(f"key set {scope} k 1")
    found = cli("scope list --json").json
    assert [one["scope"] for one in found["scopes"]] == [
        "agent:7",
        "agent:8",
        "agent:a7",
        "session:1",
    ]
    assert found["after"] is None
    assert datetime.fromisoformat(found["scopes"][0]["created"]).tzinfo is not None
    page = cli("scope list --kind agent --limit 2")
    assert [line.split("\t")[0] for line in page.out.splitlines()] == ["agent:7", "agent:8"]
    assert "--after agent:8" in page.err
    rest = cli("scope list --kind agent --limit 2 --after agent:8 --json").json
    assert [one["scope"] for one in rest["scopes"]] == ["agent:a7"]
    assert cli("scope list --prefix a").out.startswith("agent:a7\t")
    assert cli("scope list --kind nothing").code == 2


def test_scope_delete(cli: Cli, agent: str) -> None:
    refused = cli(f"scope delete {agent}")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert cli(f"key get {agent} plan").code == 0
    assert cli(f"scope delete {agent} --yes --json").json == {"deleted": agent}
    assert cli(f"key get {agent} plan").code == 4
    assert cli(f"scope delete {agent} --yes").code == 4


def test_scope_erase(cli: Cli, agent: str) -> None:
    refused = cli(f"scope erase {agent}")
    assert refused.code == 2
    assert "erased: add --yes" in refused.err
    assert cli(f"key get {agent} plan").code == 0
    found = cli(f"scope erase {agent} --yes --json").json
    assert (found["erased"], found["lives"]) == (agent, 1)
    assert found["rows"] > 0
    assert found["open"]
    assert cli(f"key get {agent} plan").code == 4
    again = cli(f"scope erase {agent} --yes")
    assert again.code == 0
    assert "still open" in again.err
    assert cli("scope erase agent:never --yes").code == 4
    assert cli("verify").code == 0


# ---- keys ----------------------------------------------------------------------------------


def test_key_list(cli: Cli, agent: str) -> None:
    for name in ("a/1", "a/2", "a/3"):
        cli(f"key set {agent} {name} 1")
    assert cli(f"key list {agent}").out.split() == ["a/1", "a/2", "a/3", "plan", "talk"]
    page = cli(f"key list {agent} --prefix a/ --limit 2 --json").json
    assert page == {"scope": agent, "keys": ["a/1", "a/2"], "after": "a/2"}
    rest = cli(f"key list {agent} --prefix a/ --limit 2 --after a/2 --json").json
    assert rest == {"scope": agent, "keys": ["a/3"], "after": None}
    assert cli(f"key list {agent} --at safe").out.split() == ["plan", "talk"]


def test_key_get(cli: Cli, agent: str) -> None:
    assert json.loads(cli(f"key get {agent} plan").out) == {"goal": "ship", "step": 2}
    found = cli(f"key get {agent} plan --json").json
    assert found.pop("time")
    assert found == {
        "scope": agent,
        "timeline": "main",
        "key": "plan",
        "value": {"goal": "ship", "step": 2},
        "version": 4,
        "class": "standard",
        "expires": None,
        "cause": {"actor": "tester"},
    }
    now = datetime.now(UTC).isoformat()
    for at, step in (("1", 1), ("main@1", 1), ("safe", 1), ("4", 2), (now, 2)):
        assert cli("key", "get", agent, "plan", "--at", at, "--json").json["value"]["step"] == step


def test_key_get_text(cli: Cli, agent: str) -> None:
    cli("key", "set", agent, "note", "two\nlines", "--text")
    assert cli(f"key get {agent} note").out == '"two\\nlines"\n'
    assert cli(f"key get {agent} note --text").out == "two\nlines"
    cli("key", "set", agent, "raw", '{"$bytes": "aGk="}')
    assert cli(f"key get {agent} raw --text").out == "hi"
    assert cli(f"key get {agent} plan --text").code == 2


def test_key_set(cli: Cli, agent: str) -> None:
    result = cli(f"key set {agent} n -5 --json")
    assert result.json == {"scope": agent, "timeline": "main", "key": "n", "version": 5}
    assert cli(f"key get {agent} n").out == "-5\n"
    cli(f"key set {agent} n -", stdin=b'{"from": "stdin"}')
    assert cli(f"key get {agent} n --json").json["value"] == {"from": "stdin"}
    cli(f"key set {agent} n - --text", stdin="ä\n".encode())
    assert cli(f"key get {agent} n --json").json["value"] == "ä\n"
    assert cli(f"key set {agent} n - --text", stdin=b"\xff").code == 2
    assert cli(f"key set {agent} n 1 --if-version 7").code == 0
    assert cli(f"key set {agent} n 1 --if-version 7").code == 5
    assert cli(f"key set {agent} fresh 1 --if-version 0").code == 0
    bad = cli(f"key set {agent} n hello")
    assert bad.code == 2
    assert "--text" in bad.err
    assert "hello" not in bad.err, "values stay out of errors"


def test_every_kind_of_value_goes_round(cli: Cli, agent: str) -> None:
    values = [
        {"$bytes": "AP8="},
        {"$float": "-inf"},
        {"$int": str(2**70)},
        {"$time": {"at": "2026-11-15T10:00:00+01:00", "zone": "Europe/Berlin"}},
        {"$map": [["$x", 1]]},
        {"$map": [[1, "a"], ["b", None]]},
        {"$text": "7aCA"},
        {"$object": {"name": "Plan", "version": 2, "fields": {"step": 1}}},
        1.0,
        -0.0,
    ]
    cli("key", "set", agent, "all", json.dumps(values))
    shown = cli(f"key get {agent} all").out
    assert json.loads(shown) == values
    assert "1.0" in shown
    assert "-0.0" in shown
    cli(f"key set {agent} copy -", stdin=shown.encode())
    with sync.open("sqlite:holdfast.db", registry=_registry()) as store:
        assert store.scope(agent).get("copy")[0] == b"\x00\xff"
        assert store.scope(agent).get("copy")[7] == Plan(1)


@dataclass
class Plan:
    step: int


def _registry() -> Registry:
    registry = Registry()
    registry.register(Plan, version=2)
    return registry


def test_objects_of_a_program_can_be_looked_at(cli: Cli, agent: str) -> None:
    with sync.open("sqlite:holdfast.db", registry=_registry()) as store:
        store.scope(agent).set("object", Plan(3))
        store.scope(agent).set("object", Plan(4))
    shown = cli(f"key get {agent} object --json").json["value"]
    assert shown == {"$object": {"name": "Plan", "version": 2, "fields": {"step": 4}}}
    assert cli(f"show {agent}").code == 0
    assert cli(f"diff {agent} 5").code == 0
    assert cli("verify").code == 0


def test_key_append(cli: Cli, agent: str) -> None:
    assert cli(f"key append {agent} talk 2 --json").json["version"] == 5
    cli("key", "append", agent, "talk", "-", stdin=b'{"a": []}')
    assert cli(f"key get {agent} talk --json").json["value"] == ["hello", 2, {"a": []}]
    assert cli(f"key append {agent} plan 1").code == 2


def test_what_stdin_holds_is_not_read_without_end(
    cli: Cli, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.commands.key._MOST", 8)
    refused = cli("key", "set", agent, "talk", "-", stdin=b'"1234567"')
    assert refused.code == 2
    assert "key put" in refused.err
    assert cli("key", "set", agent, "talk", "-", stdin=b'"123456"').code == 0


def test_key_delete(cli: Cli, agent: str) -> None:
    assert cli(f"key delete {agent} plan --if-version 1").code == 5
    assert cli(f"key delete {agent} plan --json").json["key"] == "plan"
    assert cli(f"key get {agent} plan").code == 4
    assert cli(f"key get {agent} plan --at safe").code == 0
    assert cli(f"key delete {agent} plan").code == 4
    assert cli("key delete agent:none plan").code == 4
    assert "agent:none" not in cli("scope list").out


# ---- the past ------------------------------------------------------------------------------


def test_show(cli: Cli, agent: str) -> None:
    now = {"plan": {"goal": "ship", "step": 2}, "talk": ["hello"]}
    assert json.loads(cli(f"show {agent}").out) == now
    then = cli(f"show {agent} --at 1 --json").json
    plan = {"plan": {"goal": "ship", "step": 1}}
    assert then == {"scope": agent, "timeline": "main", "entry": 1, "state": plan}
    assert json.loads(cli(f"show {agent} --prefix ta").out) == {"talk": ["hello"]}


def test_log(cli: Cli, agent: str) -> None:
    found = cli(f"log {agent} --json").json["entries"]
    assert [one["entry"] for one in found] == [4, 3, 2, 1]
    first = found[-1]
    assert first["operations"] == [{"kind": "set", "key": "plan"}]
    assert first["cause"] == {"actor": "tester"}
    assert set(first) >= {"scope", "timeline", "time", "hash", "change", "also"}

    def numbers(words: str) -> list[int]:
        lines = cli(f"log {agent} {words}").out.splitlines()
        return [int(line.split("\t")[0]) for line in lines]

    assert numbers("--key plan") == [4, 1]
    assert numbers("--kind checkpoint") == [3]
    assert numbers("--limit 2") == [4, 3]
    assert numbers("--limit 0 --reverse") == [1, 2, 3, 4]
    assert numbers("--since 2 --until 3") == [3, 2]
    assert numbers(f"--until {first['time']}") == [1]
    assert numbers(f"--since {found[1]['time']}") == [4, 3]
    assert numbers("--actor tester --correlation none") == []
    cli(f"key set {agent} x 1 --actor robot")
    assert numbers("--actor robot") == [5]
    assert cli(f"log {agent} --kind nothing").code == 2
    assert cli(f"log {agent} --since soon").code == 2


@pytest.mark.spec("M86", "M97")
def test_diff(cli: Cli, agent: str) -> None:
    text = cli(f"diff {agent} safe").out
    assert text == "--- main@3\n+++ main@4\n~ plan.step: 1 → 2\n"
    found = cli(f"diff {agent} 4 1 --json").json
    assert found["changes"] == [
        {"kind": "changed", "key": "plan", "path": "plan.step", "steps": ["step"]}
        | {"before": 2, "after": 1},
        {"kind": "removed", "key": "talk", "path": "talk", "steps": [], "before": ["hello"]},
    ]
    assert "+ talk" in cli(f"diff {agent} 1").out
    assert cli(f"diff {agent} safe --exit-code").code == 1
    same = cli(f"diff {agent} 2 safe --exit-code")
    assert same.code == 0
    assert "no difference" in same.out


# ---- checkpoints ---------------------------------------------------------------------------


def test_checkpoint_create(cli: Cli, agent: str) -> None:
    words = f"checkpoint create {agent} b --type pre_operation --tag x --tag y --json"
    made = cli(words).json
    assert made["id"] == "main@5"
    assert (made["type"], made["tags"], made["metadata"]) == ("pre_operation", ["x", "y"], {})
    assert made["signed_by"]
    assert cli(f"checkpoint create {agent} c --type nothing").code == 2
    assert cli("checkpoint create agent:none c").code == 4


def test_checkpoint_list_and_show(cli: Cli, agent: str) -> None:
    cli(f"checkpoint create {agent} later --type routine")
    assert [line.split("\t")[:3] for line in cli(f"checkpoint list {agent}").out.splitlines()] == [
        ["main@5", "later", "routine"],
        ["main@3", "safe", "manual"],
    ]
    names = [
        [one["name"] for one in cli(f"checkpoint list {agent} {words} --json").json["checkpoints"]]
        for words in ("--type routine", "--tag release", "--limit 1")
    ]
    assert names == [["later"], ["safe"], ["later"]]
    hash_ = cli(f"checkpoint show {agent} safe --json").json["hash"]
    for which in ("safe", "3", "main@3", hash_):
        shown = cli(f"checkpoint show {agent} {which} --json").json
        assert (shown["id"], shown["description"]) == ("main@3", "all good")
    assert "description: all good" in cli(f"checkpoint show {agent} safe").out
    cli(f"checkpoint create {agent} release@2")
    cli(f"checkpoint create {agent} 2026-01-01")
    for which in ("release@2", "2026-01-01"):
        assert cli(f"checkpoint show {agent} {which} --json").json["name"] == which
    for which in ("nothing", "1", "99", "9" * 5000, "other@3", "0" * 64):
        assert cli(f"checkpoint show {agent} {which}").code == 4


@pytest.mark.spec("M85")
def test_restore(cli: Cli, agent: str) -> None:
    dry = cli(f"restore {agent} safe --dry-run --json").json
    assert (dry["dry_run"], dry["point"], dry["backup"]) == (True, "main@3", None)
    assert dry["diff"]["changes"][0]["after"] == 1
    assert "~ plan.step: 2 → 1" in cli(f"restore {agent} safe --dry-run").out
    assert cli(f"key get {agent} plan --json").json["version"] == 4

    done = cli(f"restore {agent} safe --reason 'a bad turn' --json").json
    assert (done["verified"], done["keys"], done["dry_run"]) == ("full", 2, False)
    assert cli(f"key get {agent} plan --json").json["value"]["step"] == 1
    assert "a bad turn" in cli(f"log {agent} --kind restore").out
    assert cli(f"restore {agent} {done['backup']} --verify references").code == 0
    assert cli(f"key get {agent} plan --json").json["value"]["step"] == 2
    assert "to undo it: holdfast restore agent:7" in cli(f"restore {agent} 1 --verify none").out
    assert cli(f"restore {agent} nothing").code == 4
    assert cli(f"restore {agent} 1 --verify maybe").code == 2


def test_fork_and_timelines(cli: Cli, agent: str) -> None:
    made = cli(f"fork {agent} what-if --at safe --json").json
    assert made == {"scope": agent, "name": "what-if", "parent": "main", "start": 3, "head": 1}
    cli(f"key set {agent} plan 0 --timeline what-if")
    assert cli(f"key get {agent} plan --timeline what-if").out == "0\n"
    assert cli(f"key get {agent} plan --json").json["value"]["step"] == 2
    assert cli(f"timelines {agent}").out == "main\t4\t\nwhat-if\t2\tmain@3\n"
    assert len(cli(f"timelines {agent} --json").json["timelines"]) == 2
    assert cli(f"diff {agent} what-if@2 --json").json["before"] == "what-if@2"
    assert cli(f"fork {agent} what-if").code == 5
    assert cli(f"fork {agent} a@b").code == 2
    assert cli(f"key get {agent} plan --timeline nothing").code == 4


# ---- proof ---------------------------------------------------------------------------------


def test_verify(cli: Cli, agent: str, here: Path) -> None:
    result = cli("verify")
    assert result.code == 0
    assert result.out.endswith("nothing was found\n")
    report = cli("verify --json").json
    assert (report["ok"], report["entries"], report["findings"]) == (True, 4, [])
    assert cli(f"verify {agent} --json").json["scopes"] == 1
    assert cli("verify agent:none").code == 4
    assert cli("verify nonsense").code == 2


def test_verify_with_a_witness_and_an_identity(cli: Cli, agent: str, here: Path) -> None:
    copy = (here / "holdfast.db").read_bytes()
    identity = cli("stats --json").json["identity"]
    (here / "pin").write_text(identity + "\n")
    cli(f"key set {agent} more 1")
    assert cli("witness --out token --json").json["file"] == "token"
    token = (here / "token").read_text()
    for expect in ("token", token):
        assert cli("verify", "--expect", expect, "--identity", "pin").code == 0
    (here / "holdfast.db").write_bytes(copy)
    put_back = cli("verify", "--expect", "token", "--json")
    assert put_back.code == 1
    assert {one["kind"] for one in put_back.json["findings"]} == {"witness"}
    assert "put back" in cli("verify --expect token").out
    other = identity[:10] + ("0" if identity[10] != "0" else "1") + identity[11:]
    assert cli("verify", "--identity", other).code == 1
    for words in ("verify --expect nowhere", "verify --identity nowhere"):
        assert cli(words).code == 2
    assert cli("verify --expect holdfast-witness1:AAAA").code == 2
    assert cli("witness --out missing/folder").code == 2


def test_verify_on_a_budget(cli: Cli, agent: str) -> None:
    stopped = cli("verify --budget 0 --json")
    assert stopped.code == 3
    assert stopped.json["ok"] is True
    assert "--resume" in cli("verify --budget 0").out
    assert cli("verify", "--resume", stopped.json["resume"]).code == 0
    assert cli("verify --resume nonsense").code == 2


def test_stats(cli: Cli, agent: str) -> None:
    found = cli("stats --json").json
    assert (found["scopes"], found["entries"], found["encrypted"]) == (1, 4, False)
    assert "scopes: 1, 1 agent" in cli("stats").out


# ---- global options ------------------------------------------------------------------------


def test_global_options_stand_anywhere(cli: Cli, agent: str) -> None:
    for words in (
        f"--json key get {agent} plan",
        f"key --json get {agent} plan",
        f"key get --json {agent} plan",
        f"key get {agent} plan --json --store holdfast.db",
    ):
        assert cli(words).json["version"] == 4


def test_store_by_path_url_and_environment(
    cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(f"init --store {here}/one.db")
    cli("key set global k 1 --store one.db")
    assert cli("key get global k --store sqlite:one.db").out == "1\n"
    monkeypatch.setenv("HOLDFAST_STORE", "one.db")
    assert cli("key get global k").out == "1\n"
    assert cli("key get global k --store two.db").code == 4
    assert cli("key get global k --store memory:").code == 2
    assert cli("key get global k --store mystery:x").code == 2


def test_a_write_creates_a_store_only_when_told(cli: Cli, here: Path) -> None:
    refused = cli("key set agent:1 a 1")
    assert refused.code == 4
    assert "holdfast init" in refused.err
    assert list(here.iterdir()) == []
    assert cli("key set agent:1 a 1 --create --durability normal").code == 0
    assert cli("key append agent:1 b 1 --create").code == 0
    assert cli("key get agent:1 a").out == "1\n"


def test_reading_changes_no_byte(cli: Cli, agent: str, here: Path) -> None:
    before = (here / "holdfast.db").read_bytes()
    for words in (f"show {agent}", f"log {agent}", f"diff {agent} 1", "stats", "verify", "witness"):
        assert cli(words).code == 0
    assert (here / "holdfast.db").read_bytes() == before


def test_points_and_times() -> None:
    assert point("12") == 12
    assert point("main@3") == "main@3"
    assert point("before deploy") == "before deploy"
    assert point("٣") == "٣", "only plain digits are numbers"
    assert point("2026-11-15T10:00:00+01:00") == datetime(2026, 11, 15, 9, tzinfo=UTC)
    assert moment("2026-11-15").tzinfo is not None
    assert bound("3") == 3
    for text in ("2026-13-01", "2026-11-15Tnoon"):
        with pytest.raises(InvalidInputError, match="time"):
            point(text)
    with pytest.raises(InvalidInputError):
        bound("safe")


def test_the_audit(cli: Cli) -> None:
    with sync.open("sqlite:agents.db") as store:
        for name in ("7", "8"):
            store.agent(name).set("api_token", "hunter2")
        with sync.access.Audit(store), store.acting("ann"):
            store.agent("7").get("api_token")
            store.agent("8").get("api_token")
        store.erase("agent:8")
    shown = cli("--store agents.db audit")
    assert "ann" in shown.out
    assert "api_token" in shown.out
    assert "<erased>" in shown.out
    assert "hunter2" not in shown.out
    (read,) = cli("--store agents.db audit agent:7 --actor ann --json").json["reads"]
    assert (read["scope"], read["keys"], read["entry"]) == ("agent:7", ["api_token"], 1)
    assert read["cause"] == {"actor": "ann"}
    none = cli("--store agents.db audit --since 2100-01-01T00:00:00Z --json")
    assert none.json == {"reads": []}
    assert cli("--store agents.db audit --since soon").code == 2
