"""An agent that lived in a folder of files becomes a typed agent of a store: one change.

What was taken up is noted under `$import/`: digests, part by part, and which tasks and things
remembered came from which agent's files. Letters are noted under `$mailbox/inbox/imported`, by id
and digest, which no restore undoes, as it undoes no letter. So a second import of the same files
changes nothing, whatever the agent did meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.agents.agent_keys import AGENT, CURRENT_TASK, TASKS, again, run_parts
from holdfast.agents.drift import STATUS
from holdfast.agents.handover_package import (
    COMMANDS,
    OUT,
    PACKAGES,
    STANDINGS,
    record_of,
    standing_of,
)
from holdfast.agents.mailbox_numbers import CLEARED, DONE, FIRST, INBOX, MESSAGES, Stretches
from holdfast.agents.state.agent_state import AgentState
from holdfast.checkpoints.export import line_of
from holdfast.errors import (
    AgentValidationError,
    DamagedRecordError,
    InvalidInputError,
    InvalidKeyError,
)
from holdfast.seal.codec import Codec
from holdfast.store.inner import Operation, StoreHandle
from holdfast.store.names.face import writes
from holdfast.store.names.scope import Scope, check_key, escape
from holdfast.store.names.whole_files import Path, check_path

if TYPE_CHECKING:
    from holdfast.agents.state.draft import Draft
    from holdfast.store.inner import LineHandle, ScopedChange
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


@writes
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
    handle = line_of(state)
    if handle.scope.kind != "agent":
        raise InvalidInputError(f"{handle.scope} is no agent; import into store.agent(...)")
    handle.core.check_writable()
    name = handle.scope.id if agent is None else agent
    known = name in handle.reader.get(ITEMS, {})
    found = _Reader(folder, name, handle.core.codec, known).read()

    def step() -> ImportedAgent:
        draft, parts = AgentState(state)._draft(reason="import of a folder")
        made = _Import(handle, draft, parts.part(handle), found).run()
        draft.finish()
        if made.changed:
            run_parts(parts)
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
        self._part.set(STATUS, {**status, "cycles": count})
        return count

    # letters

    def _letters(self) -> tuple[int, int]:
        new = self._unknown()
        if not new:
            return 0, 0
        note = self._part.operations
        first = self._part.get(FIRST, 0) + self._part.length(MESSAGES)
        note.append(Operation("append", MESSAGES, [letter.item for letter in new]))
        names = [[letter.item["id"], self._letter_digest(letter)] for letter in new]
        note.append(Operation("append", LETTERS, names))
        done = [letter for letter in new if letter.processed]
        if done:  # not here: no restore makes them new ones
            cleared = Stretches(self._part.get(CLEARED, []))
            note.append(Operation("set", CLEARED, cleared.added(first, first + len(done)).kept))
        if done and first == 0:  # then they are the first of all
            note.append(Operation("set", DONE, {"number": len(done), "id": done[-1].item["id"]}))
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
            and (digest := known.get(letter.item["id"])) is not None
            and digest != self._letter_digest(letter)
        ]
        if wrong:
            raise AgentValidationError("nothing was imported: rename these files", wrong)
        return [letter for letter in self._found.letters if letter.item["id"] not in known]

    def _letter_digest(self, letter: FoundLetter) -> str:
        content = letter.item["content"]
        return _digest([self._found.name, type(content).__name__, content])


def _digest(data: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()


# ---- folder files -------------------------------------------------------------------------------
# What a folder of agents' files says of one agent, as the parts of a typed agent; nothing is
# written here.
#
#     working_tasks.json                               a list of tasks; those assigned to the agent
#     agent_comms/agent_mailboxes/<id>/inbox/          a file for each message that waits
#     agent_comms/agent_mailboxes/<id>/inbox/processed/   those that were processed
#     agent_data/<id>/context.json                     goals, constraints, decisions, and more
#     agent_data/<id>/memory.json                      short_term and session, lists or mappings
#     agent_status.json                                cycle_count of agents.<id>, and
#                                                      system.drift_threshold
#
# All of it lies in a folder `runtime`. Each may be missing. All that is wrong is collected, with
# the path and the reason.


DRIFT_THRESHOLD = 300
"""Cycles, where the folder does not say how many."""
LARGEST = 16 << 20
MOST_BYTES = 64 << 20
"""Of one file, and of all that are read: an import is one change, which is held whole."""
ROOM = 6
"""How deep a file's content may come to stand in what is stored."""
_ASSIGNED = ("assigned_agent", "assigned_to", "agent_id", "claimed_by")
_STATUS = {
    **dict.fromkeys(("running", "in_progress", "active", "working", "claimed"), "running"),
    **dict.fromkeys(("completed", "complete", "done", "closed"), "completed"),
    **dict.fromkeys(("failed", "error", "cancelled", "abandoned"), "failed"),
}
"""Words of others for a task's status; any other is `pending`, and stays in the task's data."""


class FoundLetter(NamedTuple):
    """A message that lies in a file, whose name is its id."""

    path: str
    processed: bool
    item: dict[str, Any]
    """As the mailbox keeps it: id, content, sender, time."""


@dataclass(slots=True)
class FoundAgent:
    """What the folder has of an agent; None where a file is not there."""

    name: str
    """Of the agent, there."""
    tasks: dict[str, dict[str, Any]] | None = None
    current: str | None = None
    letters: list[FoundLetter] = field(default_factory=list)
    """Those that were processed first, each in the order of their names."""
    context: dict[str, Any] | None = None
    short_term: dict[str, Any] | None = None
    session: dict[str, Any] | None = None
    cycles: int | None = None
    drift_threshold: int | None = None


class _Bad(Exception):
    """A file is not as it should be; the text says why."""


class _Reader:
    """One look at one folder."""

    def __init__(self, folder: Path, agent: str, codec: Codec, known: bool) -> None:
        place = os.fspath(check_path(folder))
        if not isinstance(agent, str) or agent in ("", ".", "..") or set(agent) & set("/\\\0"):
            raise InvalidInputError("an agent of a folder is named by a text without slashes")
        if not os.path.isdir(place):
            raise InvalidInputError(f"there is no folder {place!r}")
        below = os.path.join(place, "runtime")
        self._root = below if os.path.isdir(below) else place
        self._agent = agent
        self._codec = codec
        self._known = known
        self._wrong: list[str] = []
        self._bytes = 0
        self._any = False
        self.found = FoundAgent(agent)

    def read(self) -> FoundAgent:
        """All that the folder has of an agent; `AgentValidationError` lists every file that is bad,
        or holds what cannot be stored by this codec. Of one that is known, tasks may be all gone.
        """
        for path, take in (
            (("working_tasks.json",), self._tasks),
            (("agent_data", self._agent, "context.json"), self._context),
            (("agent_data", self._agent, "memory.json"), self._memory),
            (("agent_status.json",), self._status),
        ):
            self._file(os.path.join(self._root, *path), take)
        inbox = os.path.join(self._root, "agent_comms", "agent_mailboxes", self._agent, "inbox")
        self._letters(os.path.join(inbox, "processed"), processed=True)
        self._letters(inbox, processed=False)
        if self._wrong:
            raise AgentValidationError(
                f"nothing was imported from {self._root!r}: mend these files, or take them away",
                self._wrong,
            )
        if not self._any and not (self._known and self.found.tasks is not None):
            raise InvalidInputError(
                f"{self._root!r} holds nothing of the agent {self._agent!r}: name the folder that "
                "has `runtime`, and the agent as its files do"
            )
        return self.found

    # files

    def _file(self, path: str, take: Any) -> None:
        if not os.path.lexists(path):
            return
        try:
            take(self._decoded(self._content(path)))
        except _Bad as error:
            self._wrong.append(f"{path}: {error}")

    def _content(self, path: str) -> bytes:
        if not os.path.isfile(path):
            raise _Bad("is no file")
        try:
            with open(path, "rb") as file:
                content = file.read(LARGEST + 1)
        except OSError as error:
            raise _Bad(f"cannot be read: {error.strerror}") from None
        if len(content) > LARGEST:
            raise _Bad(f"is larger than {LARGEST >> 20} MiB")
        self._bytes += len(content)
        if self._bytes > MOST_BYTES:
            most = f"{MOST_BYTES >> 20} MiB"
            raise _Bad(f"is one too many: more than {most} are not imported at once")
        return content

    def _decoded(self, content: bytes) -> Any:
        try:
            data = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
            self._codec.plain(data, ROOM)
        except InvalidInputError as error:
            raise _Bad(f"holds what cannot be stored: {error}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _Bad(f"is no JSON: {error}") from None
        return data

    def _letters(self, folder: str, *, processed: bool) -> None:
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._wrong.append(f"{folder}: cannot be read: {error.strerror}")
            return
        known = {letter.item["id"] for letter in self.found.letters}
        for name in names:
            path = os.path.join(folder, name)
            if name.startswith(".") or os.path.isdir(path):
                continue
            self._any = True
            try:
                if name in known:
                    raise _Bad("lies in processed, too: which of them counts?")
                self.found.letters.append(self._letter(path, name, processed))
            except _Bad as error:
                self._wrong.append(f"{path}: {error}")

    def _letter(self, path: str, name: str, processed: bool) -> FoundLetter:
        if not 1 <= len(name) <= 200 or not _is_text(name):
            raise _Bad("the name of a message is text of up to 200 characters")
        content: Any = self._content(path)
        if name.endswith(".json"):
            content = self._decoded(content)
        else:
            with suppress(UnicodeDecodeError):  # bytes are a content, too
                content = content.decode()
        said = content if isinstance(content, dict) else {}
        names = (said.get(one) for one in ("sender", "from"))
        sender = next((one for one in names if isinstance(one, str)), "")
        time = _time(said.get("timestamp")) or datetime.fromtimestamp(os.path.getmtime(path), UTC)
        item = {"id": name, "content": content, "sender": sender[:256], "time": time}
        return FoundLetter(path, processed, item)

    # parts

    def _tasks(self, data: Any) -> None:
        items = data.get("tasks") if isinstance(data, dict) else data
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
            raise _Bad("is no list of tasks")
        tasks = self.found.tasks = {}
        for item in items:
            if self._agent not in (item.get(name) for name in _ASSIGNED):
                continue
            self._any = True
            id = item.get("task_id") or item.get("id")
            if not isinstance(id, str):
                raise _Bad("a task has no task_id")
            id = _key(id, "a task_id")
            if id in tasks:
                raise _Bad(f"the task {id!r} stands in it twice")
            tasks[id] = task = _task(id, item)
            if self.found.current is None and task["status"] in ("pending", "running"):
                self.found.current = id

    def _context(self, data: Any) -> None:
        context = _mapping(data)
        self._any = True
        plain = {name: _listed(context.get(name), name) for name in ("goals", "constraints")}
        decisions = _listed(context.get("decisions"), "decisions")
        made: dict[str, Any] = {name: list(map(_text, items)) for name, items in plain.items()}
        made["decisions"] = [_decision(one) for one in decisions]
        notes = {name: one for name, one in context.items() if name not in made}
        # What is not said in full by the fields above stays as it was.
        whole = {**plain, "decisions": decisions}
        kept = {n: items for n, items in whole.items() if any(type(i) is not str for i in items)}
        self.found.context = made | {"notes": notes | ({"as_it_was": kept} if kept else {})}

    def _memory(self, data: Any) -> None:
        memory = dict(_mapping(data))
        self._any = True
        self.found.short_term = dict(_items(memory.pop("short_term", {}), "short_term"))
        session = self.found.session = dict(_items(memory.pop("session", {}), "session"))
        for name, item in _items(memory, "memory"):
            if name in session:
                raise _Bad(f"{name!r} stands beside session, and in it")
            session[name] = item

    def _status(self, data: Any) -> None:
        status = _mapping(data)
        agents = _mapping(status.get("agents", {}), "agents")
        if self._agent not in agents:
            return
        self._any = True
        own = _mapping(agents[self._agent], f"agents.{self._agent}")
        system = _mapping(status.get("system", {}), "system")
        self.found.cycles = _number(own.get("cycle_count", 0), "cycle_count", 0)
        threshold = system.get("drift_threshold", DRIFT_THRESHOLD)
        self.found.drift_threshold = _number(threshold, "system.drift_threshold", 1)


def _key(name: str, what: str) -> str:
    """A name as part of a key, as that is stored."""
    if not 1 <= len(name) <= 200:
        raise _Bad(f"{what} is text of 1 to 200 characters")
    try:
        return check_key(f"{AGENT}{name}", owner=True).removeprefix(AGENT)
    except InvalidKeyError as error:
        raise _Bad(f"{what} can be no key: {error}") from None


def _mapping(data: Any, what: str = "it") -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _Bad(f"{what} is no mapping")
    return data


def _listed(data: Any, what: str) -> list[Any]:
    if data is None:
        return []
    if not isinstance(data, list):
        raise _Bad(f"{what} is no list")
    return data


def _number(data: Any, what: str, least: int) -> int:
    if type(data) is not int or not least <= data < 1 << 53:
        raise _Bad(f"{what} is no whole number from {least} on")
    return data


def _items(data: Any, what: str) -> Iterator[tuple[str, Any]]:
    """What is remembered, by names: those of a mapping, of a list their places."""
    named: Iterable[tuple[str, Any]]
    if isinstance(data, list):
        named = ((f"{number:06}", item) for number, item in enumerate(data, 1))
    elif isinstance(data, dict):
        named = ((escape(name), item) for name, item in data.items())
    else:
        raise _Bad(f"{what} is no list or mapping")
    seen: set[str] = set()
    for name, item in named:
        key = _key(name, f"a name in {what}")
        if key in seen:
            raise _Bad(f"{key!r} stands twice in {what}, spelled differently")
        seen.add(key)
        yield key, item


def _task(id: str, item: dict[str, Any]) -> dict[str, Any]:
    """A task as a typed agent has it; all that the file says of it is its data."""
    status = _STATUS.get(str(item.get("status", "")).lower(), "pending")
    made: dict[str, Any] = {"id": id, "status": status, "data": item}
    title = next((item[one] for one in ("title", "name", "description") if item.get(one)), "")
    if isinstance(title, str):
        made["title"] = title
    progress = item.get("progress_percentage", 0)
    if type(progress) not in (int, float) or not 0 <= progress <= 100:
        raise _Bad(f"the progress_percentage of the task {id!r} is no number from 0 to 100")
    made["progress"] = progress / 100
    for name in ("created_at", "updated_at"):
        if (time := _time(item.get(name))) is not None:
            made[name] = time
    return made


def _decision(item: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"what": _text(item)}
    if isinstance(item, dict):
        why = next((item[one] for one in ("why", "reason", "rationale") if item.get(one)), None)
        made |= {"why": why} if isinstance(why, str) else {}
        time = _time(item.get("time") or item.get("timestamp"))
        made |= {"time": time} if time is not None else {}
    return made


def _text(item: Any) -> str:
    """A goal, a constraint or a decision in words; what has none, as JSON."""
    if isinstance(item, str):
        return item
    if isinstance(item, dict):
        words = ("what", "decision", "description", "goal", "constraint", "title", "name")
        for word in words:
            if isinstance(item.get(word), str):
                return str(item[word])
    return msgspec.json.encode(item).decode()


def _time(text: Any) -> datetime | None:
    """A moment with its zone (UTC, where none is said); None for anything else.

    One that has no year in UTC is refused: it could be stored, but not shown.
    """
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        time.astimezone(UTC)
    except ValueError:
        return None
    except OverflowError:
        raise _Bad(f"the time {text} is not within the years 1 to 9999 of UTC") from None
    return time


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
