"""`holdfast retention`."""

from __future__ import annotations

from cli_kit import Cli


def test_plan_and_run(cli: Cli) -> None:
    cli("init")
    for number in range(5):
        cli(f"key set agent:7 plan {number}")
        cli(f"checkpoint create agent:7 c{number} --type routine")
    cli("key set agent:7 plan done")
    said = cli("retention plan agent:7")
    assert said.code == 0
    assert "2 of 5 checkpoints go" in said.out
    planned = cli("retention plan agent:7 --json").json
    gone = [one["name"] for one in planned["timelines"][0]["checkpoints"] if not one["stays"]]
    assert gone == ["c1", "c0"]
    done = cli("retention run agent:7 --json")
    assert done.code == 0
    assert done.json["pruned"][0]["floor"] == planned["timelines"][0]["floor"]
    assert "nothing goes" in cli("retention run agent:7").err
    assert cli("show agent:7 --at 1").code != 0
    assert "pruned" in cli("show agent:7 --at 1").err
    count = cli("verify --json").json["pruned"]
    assert count > 0
    assert f"{count} entries are pruned, as anchors say" in cli("verify").out
    assert cli("verify").code == 0
    assert cli("retention plan agent:nobody").code != 0


def test_clear(cli: Cli) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    cli("checkpoint create agent:7 bad --type recovery")
    cli("key set agent:7 plan 2")
    assert "nothing goes" in cli("retention run agent:7").err
    said = cli("retention clear agent:7 bad")
    assert said.out == "main@2: goes with the next `holdfast retention run`\n"
    assert cli("retention clear agent:7 nobody").code == 4
    assert cli("retention clear agent:7 main@2 --json").json["checkpoint"] == "main@2"
    assert "bad" in cli("retention plan agent:7").out
    cli("retention run agent:7")
    assert cli("checkpoint list agent:7 --json").json["checkpoints"] == []


def test_pins_and_holds(cli: Cli) -> None:
    """Whoever is refused because of one can take it back here, too."""
    cli("init")
    cli("key set agent:7 plan 1")
    cli("checkpoint create agent:7 shipped --type routine")
    cli("key set agent:7 plan 2")
    assert cli("retention unpin agent:7 shipped").err == "it was not pinned\n"
    assert cli("retention pin agent:7 shipped --reason shipped").out == "main@2: pinned\n"
    assert cli("retention hold agent:7 shipped").code == 2
    held = cli("retention hold agent:7 shipped --reason case-7 --json").json
    assert held == {"scope": "agent:7", "checkpoint": "main@2", "done": True}
    why = cli("checkpoint why agent:7 shipped --json").json["why"]
    assert [one["reason"] for one in why] == ["hold", "pin"]
    assert "`holdfast retention lift`" in cli("checkpoint why agent:7 shipped").out
    refused = cli("scope delete agent:7 --yes")
    assert (refused.code != 0, "on hold" in refused.err) == (True, True)
    assert cli("retention lift agent:7 shipped").out == "main@2: lifted\n"
    assert cli("retention unpin agent:7 shipped").out == "main@2: unpinned\n"
    assert cli("scope delete agent:7 --yes").code == 0


def test_it_is_of_all_timelines(cli: Cli) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    for words in ("plan agent:7", "run agent:7", "end agent:7 main"):
        refused = cli(f"--timeline nope retention {words}")
        assert (refused.code, "leave --timeline out" in refused.err) == (2, True)


def test_end(cli: Cli) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    cli("fork agent:7 what-if")
    assert cli("timelines agent:7 --json").code == 0
    said = cli("retention end agent:7 what-if --reason over")
    assert said.code == 0
    assert "what-if is ended" in said.out
    assert "what-if" not in cli("timelines agent:7").out
    assert cli("retention end agent:7 what-if").code == 4
    assert cli("retention end agent:7 main").code == 2
    assert cli("verify").code == 0
