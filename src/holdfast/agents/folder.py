"""An agent that lived in a folder of files becomes a typed agent of a store: one change.

What was taken up is noted under `$import/`: a digest of each part, and which tasks and things
remembered came from which agent's files; letters by their ids under `$mailbox/inbox/imported`,
which no restore undoes, as it undoes no letter. So a second import of the same files changes
nothing, whatever the agent did meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.agents.agent_keys import AGENT, CURRENT_TASK, DRIFT
from holdfast.agents.mailbox_numbers import CLEARED, DONE, FIRST, INBOX, MESSAGES, Stretches
from holdfast.agents.state.agent_state import AgentState
from holdfast.checkpoints.export import line_of
from holdfast.errors import AgentValidationError, InvalidInputError, InvalidKeyError
from holdfast.seal.codec import Codec
from holdfast.store.inner import Operation, again, run_parts
from holdfast.store.names.face import writes
from holdfast.store.names.scope import check_key, escape
from holdfast.store.names.whole_files import Path, check_path

if TYPE_CHECKING:
    from holdfast.agents.state.draft import Draft
    from holdfast.store.inner import ScopedChange
    from holdfast.store.state import State


TAKEN, ITEMS = "$import/folder", "$import/items"
LETTERS = INBOX + "imported"
STATUS = DRIFT + "status"


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


@writes
def import_folder(state: State, folder: Path, *, agent: str | None = None) -> ImportedAgent:
    """Take up an agent from a folder of files, as `docs/agents.md` lists them, in one change.

    `agent` is its name there, if it is another than the id of the state. Every file is read and
    checked first; if one is bad, `AgentValidationError` lists all that are, and nothing is
    written. An agent is taken up once: of the same files, only letters that are new are added, and
    files whose tasks, context, memory or status have changed since are refused. The folder must not
    be written to meanwhile; it is not changed. At most 64 MiB at once.
    """
    handle = line_of(state)
    if handle.scope.kind != "agent":
        raise InvalidInputError(f"{handle.scope} is no agent; import into store.agent(...)")
    handle.core.check_writable()
    found = _Reader(folder, handle.scope.id if agent is None else agent, handle.core.codec).read()

    def step() -> ImportedAgent:
        draft, parts = AgentState(state)._draft(reason="import of a folder")
        part = parts.part(handle)
        made = _parts(draft, part, found)
        waiting, processed = _letters(part, found.letters)
        draft.finish()
        told = ImportedAgent(handle.scope.id, waiting=waiting, processed=processed, **made)
        if told.changed:
            run_parts(parts)
        return told

    return again(step)


def _parts(draft: Draft, part: ScopedChange, found: FoundAgent) -> dict[str, Any]:
    """Note all but the letters in a change, unless that was taken up before; what it is."""
    parts = {
        "tasks": found.tasks,
        "context": found.context,
        "memory": [found.short_term, found.session] if found.session is not None else None,
        "cycles": found.cycles,
        "drift_threshold": found.drift_threshold,
    }
    here = {name: _digest(one) for name, one in parts.items() if one is not None}
    taken: dict[str, str] = part.get(TAKEN, {})
    if changed := [name for name, one in here.items() if taken.get(name, one) != one]:
        raise InvalidInputError(
            f"agent:{found.name} was taken up before, and its {', '.join(changed)} changed in the "
            "files since: what it has here counts; import into an agent of another id to compare"
        )
    made: dict[str, Any] = {}
    new = {name for name in here if name not in taken}
    if "tasks" in new and found.tasks is not None:
        made["tasks"] = _put(draft, "tasks", found.tasks)
        if found.current is not None and part.get(CURRENT_TASK) is None:
            part.set(CURRENT_TASK, found.current)
    if "context" in new:
        draft.set("operational_context", found.context)
        made["context"] = True
    if "memory" in new:
        short, session = found.short_term or {}, found.session or {}
        made["memory"] = _put(draft, "short_term_memory", short)
        made["memory"] += _put(draft, "session_memory", session)
    status = part.get(STATUS, {})
    if "cycles" in new and (found.cycles or 0) > status.get("cycles", 0):
        part.set(STATUS, {**status, "cycles": found.cycles})
        made["cycles"] = found.cycles
    if "drift_threshold" in new:
        known = draft.get("configuration")
        draft.set("configuration", {**known, "drift_threshold": found.drift_threshold})
        made["drift_threshold"] = found.drift_threshold
    if new:
        brought = {"tasks": found.tasks, "short_term_memory": found.short_term}
        brought["session_memory"] = found.session
        names = {name: list(items) for name, items in brought.items() if items is not None}
        part.set(TAKEN, taken | here)
        part.set(ITEMS, {**part.get(ITEMS, {}), found.name: names})
    return made


def _put(draft: Draft, name: str, items: dict[str, Any]) -> int:
    for id, item in items.items():
        draft.put(name, id, item)
    return len(items)


def _letters(part: ScopedChange, letters: list[FoundLetter]) -> tuple[int, int]:
    """Note letters that were not taken up before; how many wait, and how many were processed."""
    # Earlier versions kept a digest beside the id.
    noted = (one[0] if isinstance(one, list) else one for one in part.get(LETTERS, []))
    known = set(noted)
    new = [letter for letter in letters if letter.item["id"] not in known]
    if not new:
        return 0, 0
    note = part.operations
    first = part.get(FIRST, 0) + part.length(MESSAGES)
    note.append(Operation("append", MESSAGES, [letter.item for letter in new]))
    note.append(Operation("append", LETTERS, [letter.item["id"] for letter in new]))
    done = [letter for letter in new if letter.processed]
    if done:  # not here: no restore makes them new ones
        cleared = Stretches(part.get(CLEARED, []))
        note.append(Operation("set", CLEARED, cleared.added(first, first + len(done)).kept))
    if done and first == 0:  # then they are the first of all
        note.append(Operation("set", DONE, {"number": len(done), "id": done[-1].item["id"]}))
    return len(new) - len(done), len(done)


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

    def __init__(self, folder: Path, agent: str, codec: Codec) -> None:
        place = os.fspath(check_path(folder))
        if not isinstance(agent, str) or agent in ("", ".", "..") or set(agent) & set("/\\\0"):
            raise InvalidInputError("an agent of a folder is named by a text without slashes")
        if not os.path.isdir(place):
            raise InvalidInputError(f"there is no folder {place!r}")
        below = os.path.join(place, "runtime")
        self._root = below if os.path.isdir(below) else place
        self._agent = agent
        self._codec = codec
        self._wrong: list[str] = []
        self._bytes = 0
        self._any = False
        self.found = FoundAgent(agent)

    def read(self) -> FoundAgent:
        """All that the folder has of an agent; `AgentValidationError` lists every file that is bad,
        or holds what cannot be stored by this codec."""
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
        if not self._any:
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
