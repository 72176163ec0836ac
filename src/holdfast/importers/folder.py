"""An agent that lived in a folder of files becomes a typed agent of a store: one change.

What was taken up is noted under `$import/`: digests, part by part, and which tasks and things
remembered came from which agent's files. Letters are noted under `$mailbox/inbox/imported`, by id
and digest, which no restore undoes, as it undoes no letter. So a second import of the same files
changes nothing, whatever the agent did meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.again import again
from holdfast.agents.agent_keys import CURRENT_TASK, DRIFT, TASKS, sticky
from holdfast.agents.drift_cycles import STATUS
from holdfast.agents.handover_package import COMMANDS
from holdfast.agents.handover_records import OUT, PACKAGES, STANDINGS, record_of, standing_of
from holdfast.agents.mailbox_book import CLEARED, DONE, FIRST, INBOX, MESSAGES
from holdfast.agents.mailbox_ranges import Stretches
from holdfast.agents.state.component_reader import Reading
from holdfast.agents.state.components import table
from holdfast.checkpoints.export.write import line_of
from holdfast.errors import AgentValidationError, DamagedRecordError, InvalidInputError
from holdfast.importers.folder_files import FoundAgent, FoundLetter, read_folder
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.scope import Scope
from holdfast.store.names.whole_files import Path
from holdfast.store.rules.gates import Operation

if TYPE_CHECKING:
    from holdfast.agents.state.draft import Draft
    from holdfast.store.commit.request import ScopedChange
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.state import State

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
    kept: int = 0
    """Tasks that were left as they are, whatever the files say: offered or handed to another agent,
    or gone from the files while what the agent has here names them, as its parent or in a command.
    """

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
    brought and they no longer have is removed, what the agent has of its own stays. Tasks that are
    offered or handed to another agent are left alone, and those that such own things name. A letter
    that waits under the name of another one is refused, too. The folder must not be written to
    meanwhile; it is not changed. At most 64 MiB at once.
    """
    return import_line(line_of(state), folder, agent)


def import_line(handle: LineHandle, folder: Path, agent: str | None) -> ImportedAgent:
    """The same, of a timeline of either face."""
    if handle.scope.kind != "agent":
        raise InvalidInputError(f"{handle.scope} is no agent; import into store.agent(...)")
    handle.core.check_writable()
    name = handle.scope.id if agent is None else agent
    known = name in handle.reader.get(ITEMS, {})
    found = read_folder(folder, name, handle.core.codec, known=known)

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
        self._removed = self._kept = 0

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
        made["kept"] = self._kept
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
        away = self._away()
        count = self._put("tasks", tasks, away)
        current = self._found.current
        if current is not None and current not in away and self._part.get(CURRENT_TASK) is None:
            self._part.set(CURRENT_TASK, current)
        return count

    def _put(self, name: str, items: dict[str, Any], away: Set[str] = frozenset()) -> int:
        """Set items of a component; those that these files had before, and nobody else's, go.

        Of tasks, those that are away are left as they are.
        """
        before = self._items.setdefault(self._found.name, {}).pop(name, [])
        others = {id for brought in self._items.values() for id in brought.get(name, [])}
        gone = {id for id in before if id not in items and id not in others}
        gone = {id for id in gone if self._draft.item(name, id) is not None}
        here = {id: item for id, item in items.items() if id not in away}
        stay = self._needed(gone, here, away) if name == "tasks" else set()
        for id in sorted(gone - stay):
            self._draft.remove(name, id)
        for id, item in here.items():
            self._draft.put(name, id, item)
        self._items[self._found.name][name] = [*items, *sorted(stay)]
        self._removed += len(gone - stay)
        self._kept += len(items) - len(here) + len(stay)
        return len(here)

    def _away(self) -> set[str]:
        """Tasks of which a handover has a say: one that is offered, or handed over with those
        below it. Another agent has it, or may have it any moment."""
        found: set[str] = set()
        for key in self._part.keys(STANDINGS):
            task, standing = key.removeprefix(STANDINGS), standing_of(self._part.get(key))
            if standing.away:
                known = self._part.get(OUT + standing.handover)
                if known is None:  # which tasks are below it, the taker has under that record
                    raise DamagedRecordError(
                        f"{self._handle.scope}: the record of the handover {standing.handover}, "
                        f"by which another agent has the task {task!r}, is lost; recover the agent"
                    )
                record = record_of(known)
                taker = StoreHandle(self._handle.core).line(Scope.parse(record.taker))
                package = taker.reader.get(PACKAGES + record.id) or {}
                found |= {task, *package.get("subtasks", ())}
            elif standing.offer:
                found.add(task)
        return found

    def _needed(self, gone: set[str], items: dict[str, Any], away: Set[str]) -> set[str]:
        """Those of the tasks to be removed that must stay, for what stays names them."""
        keys = self._part.keys(TASKS)
        tasks = {key.removeprefix(TASKS): self._part.get(key) for key in keys} | items
        named = {one["task_id"] for one in self._part.get(COMMANDS, [])}
        stay = gone & (named | away)
        while True:
            left = [task for id, task in tasks.items() if id not in gone or id in stay]
            more = {task.get("parent") for task in left} & gone - stay
            if not more:
                return stay
            stay |= more

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
