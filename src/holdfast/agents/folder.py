"""An agent that lived in a folder of files becomes a typed agent of a store: one change.

What was taken up is noted under `$import/`: which parts, and which tasks and things remembered came
from which agent's files; letters by their ids under
`$mailbox/inbox/imported`, which no restore undoes, as it undoes no letter. So a second import adds
letters that are new, and changes nothing else, whatever the agent did meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.agents.agent_keys import AGENT, CURRENT_TASK, DRIFT, IMPORTED
from holdfast.agents.mailbox_records import CLEARED, DONE, FIRST, INBOX, MESSAGES, with_cleared
from holdfast.agents.state.agent_state import AgentState
from holdfast.checkpoints.export import line_of
from holdfast.errors import AgentValidationError, InvalidInputError, InvalidKeyError
from holdfast.seal.codec import Codec
from holdfast.storage.rows import again
from holdfast.store.inner import Operation, run_parts
from holdfast.store.names.face import writes
from holdfast.store.names.scope import check_key, escape
from holdfast.store.names.whole_files import Path, check_path

if TYPE_CHECKING:
    from holdfast.agents.state.draft import Draft
    from holdfast.store.inner import ScopedChange
    from holdfast.store.state import State


TAKEN, ITEMS = IMPORTED.prefix + "folder", IMPORTED.prefix + "items"
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
    written. An agent is taken up once: imported again, only letters that are new are added. The
    folder must not be written to meanwhile; it is not changed. At most 64 MiB at once.
    """
    handle = line_of(state)
    if handle.scope.kind != "agent":
        raise InvalidInputError(f"{handle.scope} is no agent; import into store.agent(...)")
    handle.core.check_writable()
    name = handle.scope.id if agent is None else agent
    found = _Files(folder, name, handle.core.codec).read()

    def step() -> ImportedAgent:
        draft, parts = AgentState(state)._draft(reason="import of a folder")
        part = parts.part(handle)
        made = _parts(draft, part, found)
        waiting, processed = _letters(part, found)
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
        "memory": found.session,
        "cycles": found.cycles,
        "drift_threshold": found.drift_threshold,
    }
    taken = part.get(TAKEN, {})  # earlier versions kept a digest of each
    made: dict[str, Any] = {}
    new = {name: True for name, one in parts.items() if one is not None and name not in taken}
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
        part.set(TAKEN, taken | new)
        part.set(ITEMS, {**part.get(ITEMS, {}), found.name: names})
    return made


def _put(draft: Draft, name: str, items: dict[str, Any]) -> int:
    for id, item in items.items():
        draft.put(name, id, item)
    return len(items)


def _letters(part: ScopedChange, found: FoundAgent) -> tuple[int, int]:
    """Note letters that were not taken up before; how many wait, and how many were processed."""
    # Earlier versions kept a digest beside the id.
    known = {one[0] if isinstance(one, list) else one for one in part.get(LETTERS, [])}
    done = [one for one in found.processed if one["id"] not in known]
    new = done + [one for one in found.waiting if one["id"] not in known]
    if not new:
        return 0, 0
    note = part.operations
    first = part.get(FIRST, 0) + part.length(MESSAGES)
    note.append(Operation("append", MESSAGES, new))
    note.append(Operation("append", LETTERS, [one["id"] for one in new]))
    if done:  # not here: no restore makes them new ones
        cleared = with_cleared(part.get(CLEARED, []), first, first + len(done))
        note.append(Operation("set", CLEARED, cleared))
    if done and first == 0:  # then they are the first of all
        note.append(Operation("set", DONE, {"number": len(done), "id": done[-1]["id"]}))
    return len(new) - len(done), len(done)


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
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Words = dict[str, Any]


@dataclass(slots=True)
class FoundAgent:
    """What the folder has of an agent; None where a file is not there."""

    name: str
    """Of the agent, there."""
    tasks: dict[str, _Words] | None = None
    current: str | None = None
    processed: list[_Words] = field(default_factory=list)
    waiting: list[_Words] = field(default_factory=list)
    """Letters as the mailbox keeps them, each in the order of their names, which are their ids."""
    context: _Words | None = None
    short_term: _Words | None = None
    session: _Words | None = None
    cycles: int | None = None
    drift_threshold: int | None = None


class _Bad(Exception):
    """A file is not as it should be; the text says why."""


class _Files:
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
        self._found = FoundAgent(agent)

    def read(self) -> FoundAgent:
        """All that the folder has of an agent; `AgentValidationError` lists every file that is bad,
        or holds what cannot be stored by this codec."""
        data = os.path.join("agent_data", self._agent)
        self._file("working_tasks.json", self._tasks)
        self._file(os.path.join(data, "context.json"), self._context)
        self._file(os.path.join(data, "memory.json"), self._memory)
        self._file("agent_status.json", self._status)
        inbox = os.path.join(self._root, "agent_comms", "agent_mailboxes", self._agent, "inbox")
        self._letters(os.path.join(inbox, "processed"), self._found.processed)
        self._letters(inbox, self._found.waiting)
        if self._wrong:
            raise AgentValidationError(
                f"nothing was imported from {self._root!r}: mend these files, or take them away",
                self._wrong,
            )
        if self._found in (FoundAgent(self._agent), FoundAgent(self._agent, tasks={})):
            raise InvalidInputError(
                f"{self._root!r} holds nothing of the agent {self._agent!r}: name the folder that "
                "has `runtime`, and the agent as its files do"
            )
        return self._found

    # files

    def _file(self, name: str, take: Callable[[Any], None]) -> None:
        path = os.path.join(self._root, name)
        if os.path.lexists(path):
            self._tried(path, lambda: take(self._decoded(self._content(path))))

    def _tried(self, path: str, step: Callable[[], None]) -> None:
        try:
            step()
        except _Bad as error:
            self._wrong.append(f"{path}: {error}")
        except msgspec.ValidationError as error:
            self._wrong.append(f"{path}: is not as it should be: {error}")
        except OSError as error:
            self._wrong.append(f"{path}: cannot be read: {error.strerror}")

    def _content(self, path: str) -> bytes:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
        self._bytes += len(content)
        if len(content) > LARGEST or self._bytes > MOST_BYTES:
            most = f"{LARGEST >> 20} MiB, or all together more than {MOST_BYTES >> 20} MiB"
            raise _Bad(f"is larger than {most}")
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

    def _letters(self, folder: str, into: list[_Words]) -> None:
        known = {letter["id"] for letter in self._found.processed}

        def take(name: str) -> None:
            if name in known:
                raise _Bad("lies in processed, too: which of them counts?")
            _key(name, "the name of a message")
            path = os.path.join(folder, name)
            content: Any = self._content(path)
            if name.endswith(".json"):
                content = self._decoded(content)
            else:
                with suppress(UnicodeDecodeError):  # bytes are a content, too
                    content = content.decode()
            said = content if isinstance(content, dict) else {}
            by = (one for one in (said.get("sender"), said.get("from")) if isinstance(one, str))
            mtime = datetime.fromtimestamp(os.path.getmtime(path), UTC)
            made = {"id": name, "content": content, "sender": next(by, "")[:256]}
            into.append(made | {"time": _time(said.get("timestamp")) or mtime})

        if not os.path.isdir(folder):
            return
        names: list[str] = []
        self._tried(folder, lambda: names.extend(sorted(os.listdir(folder))))
        for name in names:
            path = os.path.join(folder, name)
            if not name.startswith(".") and not os.path.isdir(path):
                self._tried(path, lambda name=name: take(name))  # type: ignore[misc]

    # parts

    def _tasks(self, data: Any) -> None:
        items = data.get("tasks") if isinstance(data, dict) else data
        tasks = self._found.tasks = {}
        for item in msgspec.convert(items, list[_Words]):
            if self._agent not in (item.get(name) for name in _ASSIGNED):
                continue
            id = _key(item.get("task_id") or item.get("id"), "a task_id")
            if id in tasks:
                raise _Bad(f"the task {id!r} stands in it twice")
            tasks[id] = task = _task(id, item)
            if self._found.current is None and task["status"] in ("pending", "running"):
                self._found.current = id

    def _context(self, data: Any) -> None:
        context = msgspec.convert(data, _Words)
        names = ("goals", "constraints", "decisions")
        whole = {name: msgspec.convert(context.get(name) or [], list[Any]) for name in names}
        made: _Words = {name: list(map(_text, whole[name])) for name in names[:2]}
        made["decisions"] = decisions = []
        for item in whole["decisions"]:
            said, about = {"what": _text(item)}, item if isinstance(item, dict) else {}
            why = next((about[one] for one in ("why", "reason", "rationale") if about.get(one)), 0)
            time = _time(about.get("time") or about.get("timestamp"))
            said |= {"why": why} if isinstance(why, str) else {}
            decisions.append(said | ({"time": time} if time is not None else {}))
        notes = {name: one for name, one in context.items() if name not in made}
        # What is not said in full by the fields above stays as it was.
        kept = {n: items for n, items in whole.items() if any(type(i) is not str for i in items)}
        self._found.context = made | {"notes": notes | ({"as_it_was": kept} if kept else {})}

    def _memory(self, data: Any) -> None:
        memory = dict(msgspec.convert(data, _Words))
        self._found.short_term = dict(_items(memory.pop("short_term", {}), "short_term"))
        session = self._found.session = dict(_items(memory.pop("session", {}), "session"))
        for name, item in _items(memory, "memory"):
            if name in session:
                raise _Bad(f"{name!r} stands beside session, and in it")
            session[name] = item

    def _status(self, data: Any) -> None:
        status = msgspec.convert(data, _Words)
        agents = msgspec.convert(status.get("agents", {}), _Words)
        if self._agent not in agents:
            return
        system = msgspec.convert(status.get("system", {}), _Words)
        own = msgspec.convert(agents[self._agent], _Words)
        self._found.cycles = msgspec.convert(own.get("cycle_count", 0), _Count)
        threshold = msgspec.convert(system.get("drift_threshold", DRIFT_THRESHOLD), _Count)
        self._found.drift_threshold = max(threshold, 1)


def _key(name: Any, what: str) -> str:
    """A name as part of a key, as that is stored."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        raise _Bad(f"{what} is text of 1 to 200 characters")
    try:
        return check_key(f"{AGENT}{name}", owner=True).removeprefix(AGENT)
    except InvalidKeyError as error:
        raise _Bad(f"{what} can be no key: {error}") from None


def _items(data: Any, what: str) -> Iterator[tuple[str, Any]]:
    """What is remembered, by names: those of a mapping, of a list their places."""
    if isinstance(data, list):
        data = {f"{number:06}": item for number, item in enumerate(data, 1)}
    seen: set[str] = set()
    for name, item in msgspec.convert(data, _Words).items():
        key = _key(escape(name), f"a name in {what}")
        if key in seen:
            raise _Bad(f"{key!r} stands twice in {what}, spelled differently")
        seen.add(key)
        yield key, item


def _task(id: str, item: _Words) -> _Words:
    """A task as a typed agent has it; all that the file says of it is its data."""
    status = _STATUS.get(str(item.get("status", "")).lower(), "pending")
    made: _Words = {"id": id, "status": status, "data": item}
    title = next((item[one] for one in ("title", "name", "description") if item.get(one)), "")
    if isinstance(title, str):
        made["title"] = title
    share = Annotated[float, msgspec.Meta(ge=0, le=100)]
    made["progress"] = msgspec.convert(item.get("progress_percentage", 0), share) / 100
    times = {name: _time(item.get(name)) for name in ("created_at", "updated_at")}
    return made | {name: time for name, time in times.items() if time is not None}


def _text(item: Any) -> str:
    """A goal, a constraint or a decision in words; what has none, as JSON."""
    words = ("what", "decision", "description", "goal", "constraint", "title", "name")
    said = (item.get(one) for one in words) if isinstance(item, dict) else [item]
    return next((one for one in said if isinstance(one, str)), msgspec.json.encode(item).decode())


def _time(text: Any) -> datetime | None:
    """A moment with its zone (UTC, where none is said); None for anything else.

    One that has no year in UTC is refused: it could be stored, but not shown.
    """
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        time.astimezone(UTC)
    except (TypeError, ValueError):
        return None
    except OverflowError:
        raise _Bad(f"the time {text} is not within the years 1 to 9999 of UTC") from None
    return time
