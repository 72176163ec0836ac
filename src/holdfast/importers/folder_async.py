"""An agent of a folder of files: the async face, the same on a thread."""

from __future__ import annotations

from holdfast.checkpoints.export.write import line_of
from holdfast.importers.folder import ImportedAgent, import_line
from holdfast.store.names.threads import to_the_end
from holdfast.store.names.whole_files import Path
from holdfast.store.state_async import State


async def import_folder(state: State, folder: Path, *, agent: str | None = None) -> ImportedAgent:
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
    return await to_the_end(import_line, line_of(state), folder, agent)
