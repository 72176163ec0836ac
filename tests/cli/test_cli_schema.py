"""`holdfast schema` and `holdfast migrate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Cli

from holdfast import sync
from holdfast.sync.schemas import Convert, Custom, Number, Schema, Step, Text


@pytest.fixture
def aged(here: Path) -> str:
    """A store with two agents: the values of one can be migrated, one of the other's cannot."""
    with sync.open("sqlite:holdfast.db") as store:
        for name, age in (("1", "7"), ("2", "many")):
            state = store.agent(name)
            state.declare(Schema("p", prefix="p/", fields={"age": Text()}))
            state.set("p/1", {"age": age})
            state.set("p/2", {"age": "2"})
            steps = [Step(1, 2, [Convert("age", "parse_int")])]
            state.declare(Schema("p", 2, prefix="p/", fields={"age": Number()}, steps=steps))
    return "agent:1"


@pytest.mark.spec("L92", "L97")
def test_schemas_are_listed_and_values_migrated(cli: Cli, aged: str) -> None:
    listed = cli("schema list")
    assert listed.code == 0
    assert "2.0.0" in listed.out
    assert "1 to 2" in listed.out
    assert [one["version"] for one in cli("schema list p --json").json["schemas"]] == [1, 2]
    planned = cli("migrate plan agent:* p --json")
    assert planned.code == 1
    assert [one["status"] for one in planned.json["migrations"]] == ["completed", "failed"]
    planned_out = cli("migrate plan agent:* p").out
    assert "would migrate" in planned_out
    assert "completed" not in planned_out
    assert all(one["dry_run"] for one in planned.json["migrations"])
    assert cli("migrate status agent:1 p --json").json["migrations"][0]["status"] == "not_started"
    done = cli("migrate run agent:* p --batch-size 1")
    assert done.code == 1
    assert "completed" in done.out
    assert "agent:2: p/1 (version 1): age cannot be made int" in done.err
    status = cli("migrate status agent:* p --json").json["migrations"]
    assert [(one["status"], one["versions"]) for one in status] == [
        ("completed", {"2": 2}),
        ("failed", {"1": 2}),
    ]
    assert cli("migrate run agent:2 p --only p/2").code == 0
    assert cli("key get agent:2 p/2 --json").json["value"] == {"age": 2}
    assert cli("schema check agent:1 p").code == 0
    assert cli("schema check agent:2 p").code == 1


def test_what_a_program_registers_is_imported(cli: Cli, here: Path, aged: str) -> None:
    (here / "mine_for_cli.py").write_text(
        "from holdfast.schemas import transform\n"
        "@transform('cli: negate')\n"
        "def negate(value):\n    return {'age': -value['age']}\n"
    )
    with sync.open("sqlite:holdfast.db") as store:
        steps = [Step(1, 2, [Convert("age", "parse_int")]), Step(2, 3, [Custom("cli: negate")])]
        store.agent("1").declare(Schema("p", 3, prefix="p/", fields={"age": Number()}, steps=steps))
    without = cli("migrate run agent:1 p")
    assert without.code == 2
    assert "import the module that registers it" in without.err
    assert cli("migrate run agent:1 p --to 3 --module mine_for_cli").code == 0
    assert cli("key get agent:1 p/1 --json").json["value"] == {"age": -7}


def test_slips_are_told(cli: Cli, aged: str) -> None:
    assert "no scope that fits agent:9" in cli("migrate run agent:9 p").err
    assert "declares version 2 of p, not 5" in cli("migrate run agent:1 p --to 5").err
    assert cli("schema list nothing").code == 0
