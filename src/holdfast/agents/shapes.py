"""The shapes of an agent's components, as data.

They are stored as plain mappings without the fields that have their default, so that a program
without these classes reads them, and a field that is added later costs nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from holdfast.agents.keys import task_key

Share = Annotated[float, Meta(ge=0, le=1)]
TaskStatus = Literal["pending", "running", "completed", "failed"]


class Shape(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of shapes: fields are given by name, and one that is unknown is refused."""


class ToolCall(Shape):
    """A call of a tool that a message asks for."""

    id: str
    name: str
    arguments: Any = None


class Message(Shape):
    """One message of a conversation.

    A message with the role `tool` is the result of the call whose id is `tool_call_id`.
    """

    role: Annotated[str, Meta(min_length=1)]
    content: Any = ""
    id: str = ""
    name: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str = ""
    time: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Task(Shape):
    """One task, its status and its progress (0 to 1). A task below another names its parent."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    title: str = ""
    status: TaskStatus = "pending"
    progress: Share = 0.0
    parent: str = ""
    priority: Share = 0.5
    data: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def key(self) -> str:
        """Where it is kept."""
        return task_key(self.id)
