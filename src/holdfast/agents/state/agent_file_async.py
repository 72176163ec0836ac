"""A checkpoint of an agent as a file for people: the async face, the same on a thread."""

from __future__ import annotations

import os
from typing import Any

from holdfast.agents.state.agent_file import export_file
from holdfast.checkpoints.export.write import line_of
from holdfast.store.names.threads import to_the_end
from holdfast.store.state_async import State


async def export_agent(
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
    return await to_the_end(export_file, line_of(state), folder, at=at, plain=plain, reveal=reveal)
