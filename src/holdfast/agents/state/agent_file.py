"""A checkpoint of an agent as a file for people: its task, mailbox, context and memory.

One JSON document, named `<agent id>_<YYYYMMDDHHMMSS>_<type>.checkpoint` (UTC), of what other
systems keep of an agent:

    {"agent_id": "7", "timestamp": "…", "checkpoint_type": "routine", "version": "1.0",
     "checkpoint": "main@12", "state": {"current_task": {…}, "mailbox": {…},
     "operational_context": {…}, "memory": {…}}}

It is for reading, as `export_checkpoint(format="json")` is, whose rules hold here: not signed, not
encrypted, not imported, and what is of class sensitive is masked. Checkpoints themselves lie in
the store.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import chain, count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from holdfast.agents.agent_keys import AGENT, CURRENT_TASK
from holdfast.agents.mailbox import status_of
from holdfast.agents.state.components import table
from holdfast.checkpoints.export import export_state, line_of
from holdfast.checkpoints.export_file import public_export
from holdfast.errors import InvalidInputError
from holdfast.store.inner import checkpoint_view, tagged, write
from holdfast.store.names.face import writes
from holdfast.store.names.items import MASK
from holdfast.store.names.whole_files import check_path

if TYPE_CHECKING:
    from holdfast.checkpoints.export import Source
    from holdfast.checkpoints.export_file import Description
    from holdfast.store.state import State

VERSION = "1.0"
"""Of the document."""
LONGEST = 80
"""Characters of an id, and of a timeline's name, in the name of a file."""


@writes
def export_agent(
    state: State,
    folder: str | os.PathLike[str],
    *,
    at: Any = None,
    plain: bool = False,
    reveal: bool = False,
) -> str:
    """Write a checkpoint of an agent (default: the newest) to a file for people; returns its path.

    The folder is there. A checkpoint that is exported again replaces its file; another one of the
    same second and type has its timeline and the number of its entry behind the type. Of a long id
    the beginning and a digest stand in the name. From an encrypted store only with `plain=True`.
    All of the state is read and checked; the components are held whole.
    """
    handle = line_of(state)
    if handle.scope.kind != "agent":
        raise InvalidInputError(f"{handle.scope} is no agent; export_checkpoint takes any scope")
    if not os.path.isdir(check_path(folder)):
        raise InvalidInputError(f"cannot write to {folder!r}: there is no such folder")
    _, checkpoint = checkpoint_view(handle, at)
    name = f"{_part(handle.scope.id)}_{checkpoint.time:%Y%m%d%H%M%S}_{checkpoint.type}"
    more = f"{name}_{_part(checkpoint.timeline)}_{checkpoint.sequence}"
    names = chain((name, more), (f"{more}_{number}" for number in count(2)))
    paths = (os.path.join(os.fspath(folder), f"{one}.checkpoint") for one in names)
    own = handle.scope.id, checkpoint.id  # not where that of another checkpoint is already
    path = next(one for one in paths if _held(one) in (None, own))

    def parts(said: Description, source: Source, reveal: bool) -> Iterator[bytes]:
        about = public_export(said, encrypted=False)
        box = status_of(handle.view(checkpoint.id))
        document = {
            "agent_id": handle.scope.id,
            "timestamp": about.time.isoformat(),
            "checkpoint_type": said.type,
            "version": VERSION,
            "checkpoint": about.checkpoint,
            "state": {
                "current_task": None,
                "mailbox": {
                    "last_processed_id": box.last_processed_id,
                    "pending_count": box.waiting,
                },
                **_components(source, reveal),
            },
        }
        yield write(document, indent=2).encode() + b"\n"

    export_state(
        handle,
        path,
        at=checkpoint.id,
        format="json",
        key=None,
        plain=plain,
        unsigned=False,
        reveal=reveal,
        readable=parts,
    )
    return path


class _Values(dict[str, Any]):
    """What was read, for components to look into."""

    def keys(self, prefix: str = "") -> list[str]:  # type: ignore[override]
        """Keys that begin with a text, in order."""
        return sorted(key for key in self if key.startswith(prefix))


def _components(source: Source, reveal: bool) -> dict[str, Any]:
    """What an agent is at work on, what it knows of that, and what it remembers."""
    found = source.values(reveal)
    values = _Values((key, value) for key, _, value in found if key.startswith(AGENT))
    known = table()
    parts = {
        name: known[name].stored(values) or {}
        for name in ("tasks", "operational_context", "short_term_memory", "session_memory")
    }
    context = parts["operational_context"]
    if isinstance(context, dict):  # else it is masked as a whole
        context = {name: context.get(name, []) for name in ("goals", "constraints", "decisions")}
    memory = {"short_term": parts["short_term_memory"], "session": parts["session_memory"]}
    shown: dict[str, Any] = tagged({"operational_context": context, "memory": memory})
    # Which task it is may be sensitive, too: then there is one, and more is not said.
    task = MASK if values.get(CURRENT_TASK) is MASK else parts["tasks"].get("current")
    if isinstance(task, dict):
        shown["current_task"] = {
            "id": task["id"],
            "status": task.get("status", "pending"),
            "progress_percentage": round(100 * task.get("progress", 0.0), 2),
            "context": tagged(task.get("data", {})),
        }
    elif task is not None:
        shown["current_task"] = tagged(task)
    return shown


def _part(text: str) -> str:
    """A text as part of a file's name, which has 255 bytes at most on common file systems."""
    quoted = quote(text, safe=" ")
    if len(quoted) <= LONGEST:
        return quoted
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{quoted[: LONGEST - 17]}~{digest}"


def _held(path: str) -> tuple[str, str] | None:
    """The agent and checkpoint that a file is of; empty if that is not known, None if there is no
    file."""
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read())
            return str(found["agent_id"]), str(found["checkpoint"])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return "", ""
