"""An agent that lived in a folder of files becomes a typed agent of a store: one change.

What was taken up is noted by digests, part by part, under `$import/`, and the ids of letters under
`$mailbox/inbox/imported`, which no restore undoes, as it undoes no letter. So a second import of
the same files changes nothing, whatever the agent did meanwhile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.components import table
from holdfast.agents.drift_keeping import STATUS
from holdfast.agents.folder_reading import FoundAgent, FoundLetter, read_folder
from holdfast.agents.keys import CURRENT_TASK, DRIFT, sticky
from holdfast.agents.mailbox_keeping import DONE, FIRST, INBOX, MESSAGES, SKIPPED
from holdfast.agents.reading import Reading
from holdfast.agents.retrying import again
from holdfast.checkpoints.exporting import line_of
from holdfast.errors import InvalidInputError
from holdfast.store.files import Path
from holdfast.store.gates import Operation

if TYPE_CHECKING:
    from holdfast.agents.draft import Draft
    from holdfast.store.blocking import State
    from holdfast.store.handles import LineHandle
    from holdfast.store.writing import ScopedChange

TAKEN, LETTERS = "$import/folder", INBOX + "imported"


@dataclass(frozen=True, slots=True)
class ImportedAgent:
    """What an import has changed: all of it 0, if all was taken up before."""

    agent: str
    tasks: int = 0
    waiting: int = 0
    """Letters that wait."""
    processed: int = 0
    """Letters that were processed before."""
    context: bool = False
    memory: int = 0
    """Things remembered, of both kinds."""
    cycles: int | None = None
    """Cycles that the agent counts from now on; None if that is as it was."""
    drift_threshold: int | None = None
    """Cycles after which it counts as astray, of `configuration`; None if that is as it was."""

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return self != ImportedAgent(self.agent)


def import_folder(state: State, folder: Path, *, agent: str | None = None) -> ImportedAgent:
    """Take up an agent from a folder of files, as `docs/agents.md` lists them, in one change.

    `agent` is its name there, if it is another than the id of the state. Every file is read and
    checked first; if one is bad, `AgentValidationError` lists all that are, and nothing is
    written. The same files are taken up once. Of files that have changed since, letters that are
    new are added, and tasks, context and memory are set to what the files say. The folder must
    not be written to meanwhile; it is not changed. At most 64 MiB at once.
    """
    return import_line(line_of(state), folder, agent)


def import_line(handle: LineHandle, folder: Path, agent: str | None) -> ImportedAgent:
    """The same, of a timeline of either face."""
    if handle.scope.kind != "agent":
        raise InvalidInputError(f"{handle.scope} is no agent; import into store.agent(...)")
    handle.core.check_writable()
    found = read_folder(folder, handle.scope.id if agent is None else agent, handle.core.codec)

    def step() -> ImportedAgent:
        draft, parts = Reading(handle, table()).draft(reason="import of a folder")
        made = _Import(handle, draft, parts.part(handle), found).run()
        draft.finish()
        plan = parts.plan() if made.changed else None
        if plan is not None:
            handle.core.run(plan[0])
        return made

    return again(step)


class _Import:
    """One import, noted in a change."""

    def __init__(
        self, handle: LineHandle, draft: Draft, part: ScopedChange, found: FoundAgent
    ) -> None:
        self._handle = handle
        self._draft = draft
        self._part = part
        self._found = found
        self._taken: dict[str, str] = part.get(TAKEN, {})

    def run(self) -> ImportedAgent:
        found, before = self._found, dict(self._taken)
        made: dict[str, Any] = {}
        if found.tasks and self._is_new("tasks", found.tasks):
            made["tasks"] = self._tasks()
        if found.context is not None and self._is_new("context", found.context):
            self._draft.set("operational_context", found.context)
            made["context"] = True
        memory = (found.short_term, found.session)
        if any(memory) and self._is_new("memory", memory):
            made["memory"] = self._memory()
        if found.cycles is not None and self._is_new("cycles", found.cycles):
            made["cycles"] = self._cycles(found.cycles)
        threshold = found.drift_threshold
        if threshold is not None and self._is_new("drift_threshold", threshold):
            known = self._draft.get("configuration")
            self._draft.set("configuration", {**known, "drift_threshold": threshold})
            made["drift_threshold"] = threshold
        waiting, processed = self._letters()
        made |= {"waiting": waiting, "processed": processed}
        if self._taken != before:
            self._part.set(TAKEN, self._taken)
        return ImportedAgent(self._handle.scope.id, **made)

    def _is_new(self, part: str, data: Any) -> bool:
        """Whether a part is not what was taken up last; if so, it is from now on."""
        digest = hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()
        if self._taken.get(part) == digest:
            return False
        self._taken[part] = digest
        return True

    def _tasks(self) -> int:
        for id, task in self._found.tasks.items():
            self._draft.put("tasks", id, task)
        if self._found.current is not None and self._part.get(CURRENT_TASK) is None:
            self._part.set(CURRENT_TASK, self._found.current)
        return len(self._found.tasks)

    def _memory(self) -> int:
        parts = {"short_term_memory": self._found.short_term, "session_memory": self._found.session}
        for name, items in parts.items():
            for id, item in items.items():
                self._draft.put(name, id, item)
        return sum(map(len, parts.values()))

    def _cycles(self, count: int) -> int | None:
        """Count on from there; cycles that were counted here are not forgotten."""
        status = self._part.get(STATUS, {})
        if count <= status.get("cycles", 0):
            return None
        self._part.operations += sticky(self._handle, DRIFT)
        self._part.set(STATUS, {**status, "cycles": count})
        return count

    # letters

    def _letters(self) -> tuple[int, int]:
        known = self._part.get(LETTERS, [])
        there = set(known)
        new = [letter for letter in self._found.letters if letter.id not in there]
        if not new:
            return 0, 0
        note = self._part.operations
        note += sticky(self._handle, INBOX)
        first = self._part.get(FIRST, 0) + self._part.length(MESSAGES)
        note.append(Operation("append", MESSAGES, [_item(letter) for letter in new]))
        note.append(Operation("append", LETTERS, [letter.id for letter in new]))
        done = [letter for letter in new if letter.processed]
        if done and first == 0:  # then they are the first of all
            note.append(Operation("set", DONE, {"number": len(done), "id": done[-1].id}))
        else:
            numbers = range(first + 1, first + 1 + len(done))
            note += [Operation("set", SKIPPED + str(number), True) for number in numbers]
        return len(new) - len(done), len(done)


def _item(letter: FoundLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "content": letter.content,
        "sender": letter.sender,
        "time": letter.time,
    }
