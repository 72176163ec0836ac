"""GitAssistant: looks after a git repository, and publishes on branches what others hand to it.

Files, index and current branch of whoever works there are never touched: a commit is made from
objects, and a branch is set to it in one step.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.colleague import NOTHING, Colleague
from holdfast import sync
from holdfast.agents import HandoverPackage, StepResult

AUTHOR = {
    "GIT_AUTHOR_NAME": "Git Assistant",
    "GIT_AUTHOR_EMAIL": "git@example.invalid",
    "GIT_COMMITTER_NAME": "Git Assistant",
    "GIT_COMMITTER_EMAIL": "git@example.invalid",
}
KEY = "Idempotency-Key"


class Repository:
    """A git repository, through the program `git`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *arguments: str, given: str = "", ok: bool = True) -> str:
        """Run a command; what it prints."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env={**os.environ, **AUTHOR, "GIT_CONFIG_GLOBAL": os.devnull},
            input=given,
            capture_output=True,
            text=True,
            check=ok,
        )
        return done.stdout.strip()

    def look(self) -> dict[str, Any]:
        """The current branch, what is changed in it and not committed, and its last commits."""
        return {
            "branch": self.git("branch", "--show-current"),
            "changed": self.git("status", "--porcelain").splitlines(),
            "log": self.git("log", "--format=%s", "-5").splitlines(),
        }

    def has(self, commit: str) -> bool:
        """Whether there is such a commit."""
        return self.git("cat-file", "-t", commit, ok=False) == "commit"

    def made(self, key: str) -> str:
        """The commit that was made under a key; empty if there is none."""
        told = f"--format=%H %(trailers:key={KEY},valueonly,separator=%x20)"
        found = self.git("log", "--branches", "--fixed-strings", f"--grep={KEY}: {key}", told)
        # What is searched for may be the beginning of another key.
        made = (line.partition(" ") for line in found.splitlines())
        return next((commit for commit, _, known in made if known == key), "")

    def commit(self, branch: str, file: str, text: str, message: str, key: str) -> str:
        """Add a file to the tree of HEAD as a commit on a branch of its own, once for each key."""
        known = self.made(key)
        if known:
            return known
        blob = self.git("hash-object", "-w", "--stdin", given=f"{text}\n")
        tree = self.git("ls-tree", "HEAD").splitlines()
        rest = [line for line in tree if line.partition("\t")[2] != file]
        made = self.git("mktree", given="\n".join([*rest, f"100644 blob {blob}\t{file}"]) + "\n")
        full = f"{message}\n\n{KEY}: {key}\n"
        commit = self.git("commit-tree", made, "-p", "HEAD", given=full)
        self.git("update-ref", f"refs/heads/{branch}", commit)
        return commit


def headline(text: str) -> str:
    """Stands for a model: the first line of a commit's message."""
    return f"Add a poem: {text.splitlines()[0]}"


class GitAssistant(Colleague):
    """Keeps which commits it made. They must be in the repository, or it does not start."""

    role = "git"
    persistent = ("commits",)
    commits: dict[str, str]

    def __init__(
        self, store: sync.Store, path: Path, model: Callable[[str], str] = headline
    ) -> None:
        self.repository = Repository(path)
        self.commits = {}
        self.model = model
        super().__init__(store)

    def validate_state(self) -> list[str]:
        lost = [task for task, one in self.commits.items() if not self.repository.has(one)]
        return [f"commits.{task}: is not in the repository" for task in lost]

    def handle_recovery(self) -> None:
        """What was cut short may have been done: here, that can be looked up."""
        for effect in self.effects.unfinished():
            found = self.repository.made(effect.key or "")
            if effect.name == "commit" and effect.status == "unknown" and found:
                self.effects.settle("commit", "done", key=effect.key, result=found)

    def check_tasks(self) -> None:
        """Called before each step: know the repository as it is now."""
        self.typed.put("short_term_memory", "repository", self.repository.look())

    def step(self) -> StepResult:
        task = self.task()
        if task is None:
            return self.take_offer(self._can_publish) or NOTHING
        branch = f"poem/{task.id}"
        with self.effects.once("commit", key=task.id, about={"branch": branch}) as effect:
            if effect.due:
                poem = task.data["poem"]
                effect.result = self.repository.commit(
                    branch, f"{task.id}.txt", poem, self.model(poem), effect.key
                )
        self.commits[task.id] = effect.result
        text = f"It is on the branch {branch}."
        self.say(task.id, text, result=text, progress=0.9)
        last = self.last(task.id)
        if last is not None and last.status == "offered":
            return NOTHING  # it is given back, and waits to be taken
        self.handovers.give_back(self.state, task.id, reason="it is published")
        return StepResult("publish", task=task.id, progress=0.9)

    def _can_publish(self, state: sync.State, package: HandoverPackage) -> str | None:
        if not re.fullmatch(r"[\w-]+", package.task["id"]):
            return "its id is no name for a branch"
        return None if package.task.get("data", {}).get("poem") else "there is no poem in it"
