"""Three agents at work: a visitor is greeted, a haiku is written, and committed to a repository.

    python examples/agents_example.py

Each of them could be killed at any moment and started again; tests/testing/test_three_agents.py
does so.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agents.colleague import work_together
from agents.git_assistant import GitAssistant, Repository
from agents.greeter import GreeterAgent
from agents.haiku import HaikuAgent

from holdfast import sync


def main() -> None:
    """Let a visitor come, and show what becomes of it."""
    with tempfile.TemporaryDirectory() as folder, sync.open("memory:") as store:
        repository = Repository(Path(folder))
        repository.git("init", "--quiet", "--initial-branch=main")
        repository.git("commit", "--quiet", "--allow-empty", "--message=Begin")

        sync.agents.Mailbox(store.agent("greeter")).send(
            {"name": "Ann", "topic": "rain"}, id="visit-1"
        )
        work_together(
            store, GreeterAgent, HaikuAgent, lambda store: GitAssistant(store, repository.path)
        )

        greeter = store.agent("greeter")
        for message in sync.agents.AgentState(greeter).get("conversation"):
            print(f"{message.name}: {message.content}")
        for one in sync.agents.Handovers(store).chain(greeter, "visit-1"):
            print(f"  {one.giver.id} → {one.taker.id}: {one.reason}")
        assert repository.git("show", "poem/visit-1:visit-1.txt").startswith("rain in the morning")
        assert sync.agents.AgentState(greeter).item("tasks", "visit-1").status == "completed"


main()
