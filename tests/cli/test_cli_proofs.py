"""`holdfast prove`, `export-chain`, `witness` and what `holdfast-verify` says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Cli

import holdfast_verify
from holdfast import sync
from holdfast.seal.signer import Signer


@pytest.fixture
def agent(cli: Cli) -> str:
    """A store with two checkpoints."""
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        state.set("plan", {"goal": "ship"})
        state.checkpoint("old")
        state.set("plan", {"goal": "wait"})
        state.checkpoint("new")
    return "agent:7"


def test_prove(cli: Cli, agent: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = cli(f"prove {agent} plan --at old -o plan.proof")
    assert "has its value at entry 2" in done.out
    told = cli(f"prove {agent} nothing --out absent.proof --json").json
    assert (told["absent"], told["entry"], told["reveals"]) == (True, 4, ["plan"])
    assert told["bytes"] == (here / "absent.proof").stat().st_size
    assert holdfast_verify.main(["plan.proof", "absent.proof"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert '"goal": "ship"' in lines[0]
    assert "is absent" in lines[1]
    assert cli(f"prove {agent} plan --at 1 -o x").code == 4
    assert cli(f"prove {agent} plan").code == 2
    assert cli(f"prove {agent} plan -o no/folder").code == 2


def test_witness_goes_to_a_file_or_is_printed(cli: Cli, agent: str, here: Path) -> None:
    (here / "kept").write_text(cli("witness").out)
    assert cli("verify --expect kept").code == 0
    assert cli("witness -o token").code == 0
    assert cli(f"export-chain {agent} --feed -o a.chain --json").json["entries"] == 4
    assert holdfast_verify.main(["token", "a.chain", "kept"]) == 0
    assert "4 entries" in cli(f"export-chain {agent} -o b.chain").out


def test_checkpoint_cosign(cli: Cli, agent: str, here: Path) -> None:
    keys = [Signer.create(here / name).public.hex() for name in ("ann", "ben")]
    trust = " ".join(f"--trust {key}" for key in keys)
    assert cli(f"verify {trust}").code == 1
    for name in ("ann", "ben"):
        for point in ("old", "main@4"):
            done = cli(f"checkpoint cosign {agent} {point} --with file:{name}")
            assert "is co-signed" in done.out
    assert cli(f"verify {trust} --require 2").code == 0
    assert cli(f"checkpoint cosign {agent} old --with file:ann").code == 5
    assert cli(f"checkpoint cosign {agent} 1 --with file:ann").code == 4
    assert cli(f"checkpoint cosign {agent} old --with nonsense").code == 2
    assert cli(f"verify {trust} --require 3").code == 2
    assert cli("verify --trust nonsense").code == 2
    assert cli(f"prove {agent} plan -o p").code == 0
    pins = [word for key in keys for word in ("--pin", key)]
    assert holdfast_verify.main(["p", "--require", "2", *pins]) == 0


def test_a_hybrid_signer(cli: Cli, here: Path) -> None:
    assert cli("init --store both.db --signer hybrid:both.sign").code == 0
    words = "--store both.db --signer file:both.sign"
    assert cli(f"key set agent:7 plan 1 {words}").code == 0
    assert cli(f"checkpoint create agent:7 safe {words}").code == 0
    assert cli(f"verify {words}").code == 0
    assert cli(f"prove agent:7 plan -o p {words}").code == 0
    assert holdfast_verify.main(["p"]) == 0
