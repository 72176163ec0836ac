"""The guide to recovering by hand, followed step by step: each step shows what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, Result

GUIDE = Path(__file__).parents[2] / "docs" / "recovery.md"
SCOPE = "agent:planner"


class Guide:
    """The sections of the page, run one after the other in this folder."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._names: dict[str, Any] = {"__name__": "guide"}
        guide = GUIDE.read_text().partition("\n## By hand\n")[2].partition("\n## ")[0]
        texts = re.split(r"^### (.*)$", guide, flags=re.MULTILINE)
        self._sections = {"": texts[0], **dict(zip(texts[1::2], texts[2::2], strict=True))}

    def follow(self, title: str) -> list[Result]:
        """Do what a section says; what its commands gave."""
        found = []
        fences = re.findall(r"^```(\w+)\n(.*?)^```", self._sections[title], re.M | re.S)
        for language, text in fences:
            if language == "python":
                exec(compile(text, str(GUIDE), "exec"), self._names)
            for line in text.splitlines() if language == "console" else []:
                found.append(self._cli(line.removeprefix("$ holdfast ")))
                assert found[-1].code == 0, (line, found[-1].err)
        return found


@pytest.mark.spec("D39", "D40", "D41", "D42", "D43")
def test_the_guide_leads_from_a_bad_turn_back_to_work(cli: Cli) -> None:
    guide = Guide(cli)
    guide.follow("")
    doctor, log, _, replay, stepping = guide.follow("Before you begin")
    assert "health: " in doctor.out
    assert "planner" in log.out
    assert "sure of itself" in replay.out
    then = stepping.out.partition("{")[2]
    assert "ann" in then
    assert "mood" not in then

    (listed,) = guide.follow("1. Find a checkpoint")
    checkpoint = listed.out.split("\t")[0]
    assert listed.out.split("\t")[1:3] == ["half past nine", "routine"]

    about, state, diff, planned = guide.follow("2. Look at it")
    assert "valid: yes" in about.out
    assert "ask for dates" in state.out
    assert "everybody" in diff.out
    assert "everybody" in planned.out
    assert "everybody" in cli(f"agent state {SCOPE}").out  # nothing has changed so far

    (restored,) = guide.follow("3. Restore it")
    assert f"{SCOPE}: restored {checkpoint}" in restored.out
    assert "to undo it: holdfast restore" in restored.out

    tasks, context, memory, check, same, held = guide.follow("4. See that it is right")
    assert '"status": "running"' in tasks.out
    assert "a free friday" in context.out
    assert "ann" in memory.out
    assert "everybody" not in memory.out
    assert check.code == same.code == 0
    backup = held.out.split("\t")[0]
    assert cli(f"checkpoint confirm {SCOPE} {backup}").code == 0

    guide.follow("5. Let it work again")
    assert '"status": "completed"' in cli(f"agent state {SCOPE} tasks").out
