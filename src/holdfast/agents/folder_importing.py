"""An agent that lived in a folder of files becomes a typed agent of a store: one change.

What was taken up is noted under `$import/`: digests, part by part, and which tasks and things
remembered came from which agent's files. Letters are noted under `$mailbox/inbox/imported`, by id
and digest, which no restore undoes, as it undoes no letter. So a second import of the same files
changes nothing, whatever the agent did meanwhile.
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
from holdfast.agents.mailbox_keeping import CLEARED, DONE, FIRST, INBOX, MESSAGES
from holdfast.agents.mailbox_stretches import Stretches
from holdfast.agents.reading import Reading
from holdfast.agents.retrying import again
from holdfast.checkpoints.exporting import line_of
from holdfast.errors import AgentValidationError, InvalidInputError
from holdfast.store.files import Path
from holdfast.store.gates import Operation

if TYPE_CHECKING:
    from holdfast.agents.draft import Draft
    from holdfast.store.blocking import State
    from holdfast.store.handles import LineHandle
    from holdfast.store.writing import ScopedChange

TAKEN, ITEMS = "$import/folder", "$import/items"
LETTERS = INBOX + "imported"


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
    removed: int = 0
    """Tasks and things remembered that an import brought, and the files no longer have."""

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return self != ImportedAgent(self.agent)


def import_folder(state: State, folder: Path, *, agent: str | None = None) -> ImportedAgent:
    """Take up an agent from a folder of files, as `docs/agents.md` lists them, in one change.

    `agent` is its name there, if it is another than the id of the state. Every file is read and
    checked first; if one is bad, `AgentValidationError` lists all that are, and nothing is
    written. The same files are taken up once. Of files that have changed since, letters that are
    new are added, and context, tasks and memory are set to what the files say: what an import
    brought and they no longer have is removed, what the agent has of its own stays. A letter that
    waits under the name of another one is refused, too. The folder must not be written to
    meanwhile; it is not changed. At most 64 MiB at once.
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
        self._items: dict[str, dict[str, list[str]]] = part.get(ITEMS, {})
        self._removed = 0

    def run(self) -> ImportedAgent:
        found, before = self._found, dict(self._taken)
        made: dict[str, Any] = {}
        if found.tasks is not None and self._is_new("tasks", found.tasks):
            made["tasks"] = self._tasks(found.tasks)
        if found.context is not None and self._is_new("context", found.context):
            self._draft.set("operational_context", found.context)
            made["context"] = True
        memory = {"short_term_memory": found.short_term, "session_memory": found.session}
        if found.session is not None and self._is_new("memory", list(memory.values())):
            made["memory"] = sum(self._put(name, items or {}) for name, items in memory.items())
        if found.cycles is not None and self._is_new("cycles", found.cycles):
            made["cycles"] = self._cycles(found.cycles)
        threshold = found.drift_threshold
        if threshold is not None and self._is_new("drift_threshold", threshold):
            known = self._draft.get("configuration")
            self._draft.set("configuration", {**known, "drift_threshold": threshold})
            made["drift_threshold"] = threshold
        waiting, processed = self._letters()
        made |= {"waiting": waiting, "processed": processed, "removed": self._removed}
        if self._taken != before:
            self._part.set(TAKEN, self._taken)
            self._part.set(ITEMS, self._items)
        return ImportedAgent(self._handle.scope.id, **made)

    def _is_new(self, part: str, data: Any) -> bool:
        """Whether a part is not what was taken up last; if so, it is from now on."""
        digest = _digest(data)
        if self._taken.get(part) == digest:
            return False
        self._taken[part] = digest
        return True

    def _tasks(self, tasks: dict[str, Any]) -> int:
        count = self._put("tasks", tasks)
        if self._found.current is not None and self._part.get(CURRENT_TASK) is None:
            self._part.set(CURRENT_TASK, self._found.current)
        return count

    def _put(self, name: str, items: dict[str, Any]) -> int:
        """Set items of a component; those that these files had before, and nobody else's, go."""
        before = self._items.setdefault(self._found.name, {}).pop(name, [])
        others = {id for brought in self._items.values() for id in brought.get(name, [])}
        for id in before:
            if id not in items and id not in others and self._draft.item(name, id) is not None:
                self._draft.remove(name, id)
                self._removed += 1
        for id, item in items.items():
            self._draft.put(name, id, item)
        self._items[self._found.name][name] = list(items)
        return len(items)

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
        new = self._unknown()
        if not new:
            return 0, 0
        note = self._part.operations
        note += sticky(self._handle, INBOX)
        first = self._part.get(FIRST, 0) + self._part.length(MESSAGES)
        note.append(Operation("append", MESSAGES, [_item(letter) for letter in new]))
        names = [[letter.id, self._letter_digest(letter)] for letter in new]
        note.append(Operation("append", LETTERS, names))
        done = [letter for letter in new if letter.processed]
        if done:  # not here: no restore makes them new ones
            cleared = Stretches(self._part.get(CLEARED, []))
            note.append(Operation("set", CLEARED, cleared.added(first, first + len(done)).kept))
        if done and first == 0:  # then they are the first of all
            note.append(Operation("set", DONE, {"number": len(done), "id": done[-1].id}))
        return len(new) - len(done), len(done)

    def _unknown(self) -> list[FoundLetter]:
        """Letters that were not taken up before; refused, if one waits under a name of those."""
        # Of what was taken up before digests were kept, only the id is known.
        noted = (
            one if isinstance(one, list) else [one, None] for one in self._part.get(LETTERS, [])
        )
        known = dict(noted)
        wrong = [
            f"{letter.path}: another message was taken up under this name; give it another one"
            for letter in self._found.letters
            if not letter.processed
            and known.get(letter.id) is not None
            and known[letter.id] != self._letter_digest(letter)
        ]
        if wrong:
            raise AgentValidationError("nothing was imported: rename these files", wrong)
        return [letter for letter in self._found.letters if letter.id not in known]

    def _letter_digest(self, letter: FoundLetter) -> str:
        return _digest([self._found.name, type(letter.content).__name__, letter.content])


def _digest(data: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()


def _item(letter: FoundLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "content": letter.content,
        "sender": letter.sender,
        "time": letter.time,
    }
