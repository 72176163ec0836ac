"""`--machine`: open transitions are settled by what a program defines."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli

from holdfast import sync

PROGRAM = """
from pathlib import Path
from holdfast.agents import MachineArrow, MachineDefinition, MachineState

def work(step):
    if not Path("repaired").exists():
        raise SystemExit("the process ends here")
    Path("sent").write_text(step.input["to"])

arrow = MachineArrow("sent", work=work, recover="complete")
MAIL = MachineDefinition("written", {"written": MachineState(on={"send": arrow}),
                                     "sent": MachineState()})
"""
NAMED = "--machine post=letters_program:MAIL"


@pytest.fixture
def letters(here: Path, agent: str) -> Iterator[Any]:
    """An agent whose process ended in the work of its machine, and the program that it ran."""
    (here / "letters_program.py").write_text(PROGRAM)
    sys.path.insert(0, str(here))
    program = importlib.import_module("letters_program")
    with sync.open("sqlite:holdfast.db") as store:
        machine = sync.agents.Machine(store.agent("7"), program.MAIL, "post")
        with pytest.raises(SystemExit):
            machine.fire("send", to="Ann")
    (here / "repaired").touch()
    yield program
    sys.path[:] = [one for one in sys.path if one != str(here)]
    del sys.modules["letters_program"]


def state_of(program: Any) -> str:
    """Where the machine is."""
    with sync.open("sqlite:holdfast.db") as store:
        now = sync.agents.Machine(store.agent("7"), program.MAIL, "post").now()
    assert now is not None
    return now.state


def test_recover_settles_a_transition(cli: Cli, letters: Any) -> None:
    done = cli(f"recover agent:7 --failure failed_transition {NAMED} --json")
    assert done.code == 0
    assert done.json["transitions"] == {"post": "complete"}
    assert state_of(letters) == "sent"
    assert Path("sent").read_text() == "Ann"


def test_boot_settles_a_transition(cli: Cli, letters: Any) -> None:
    done = cli(f"recovery boot agent:7 --yes {NAMED}")
    assert done.code == 0
    assert "transition post: completed" in done.out
    assert state_of(letters) == "sent"
    assert cli(f"recovery resume agent:7 {NAMED}").code == 0


@pytest.mark.parametrize("given", ["post", "post=letters_program", "=letters_program:MAIL"])
def test_a_machine_that_is_not_named_so_is_refused(cli: Cli, letters: Any, given: str) -> None:
    done = cli(f"recover agent:7 --failure failed_transition --machine {given}")
    assert done.code == 2
    assert "NAME=MODULE:DEFINITION" in done.err


def test_what_is_no_definition_is_refused(cli: Cli, letters: Any) -> None:
    done = cli("recovery boot agent:7 --yes --machine post=letters_program:work")
    assert done.code == 2
    assert "is no MachineDefinition" in done.err
    assert state_of(letters) == "written"
