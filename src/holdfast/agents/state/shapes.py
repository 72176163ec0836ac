"""The shapes of an agent's components, as data.

They are stored as plain mappings without the fields that have their default, so that a program
without these classes reads them, and a field that is added later costs nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Share = Annotated[float, Meta(ge=0, le=1)]
TaskStatus = Literal["pending", "running", "completed", "failed"]
TASK_PLACES = ("pending", "running", "completed", "failed")
"""Fields of a `TaskStack` with tasks of that status."""


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


class TaskEvent(Shape):
    """What became of a task: it was added, or its status changed."""

    task_id: str
    status: TaskStatus
    was: TaskStatus | None = None
    time: datetime | None = None


class TaskStack(Shape):
    """The tasks of an agent, each in exactly one place.

    Stored as a key each, so that one is read and changed alone; `history` is a list.
    """

    current: Task | None = None
    pending: list[Task] = field(default_factory=list)
    completed: list[Task] = field(default_factory=list)
    failed: list[Task] = field(default_factory=list)
    running: list[Task] = field(default_factory=list)
    """At work beside the current one."""
    history: list[TaskEvent] = field(default_factory=list)

    def tasks(self) -> list[Task]:
        """All of them."""
        current = [self.current] if self.current is not None else []
        return [*current, *self.running, *self.pending, *self.completed, *self.failed]


class ContextWindow(Shape):
    """The messages that the agent has in view, and how the window moves.

    `sliding`: the oldest goes when a message comes into a full window. `fixed`: a full window
    takes no more. `adaptive`: it may grow; from `compression_threshold` (a share of `max_size`)
    on, `due` says that it should be compressed, by whoever can summarise.
    """

    messages: list[Message] = field(default_factory=list)
    max_size: Annotated[int, Meta(ge=1)] = 100
    window_type: Literal["sliding", "fixed", "adaptive"] = "sliding"
    compression_threshold: Share = 0.8

    @property
    def current_size(self) -> int:
        """Messages in it."""
        return len(self.messages)

    @property
    def due(self) -> bool:
        """Whether it should be compressed."""
        return len(self.messages) >= self.compression_threshold * self.max_size


class Episode(Shape):
    """Something that the agent lived through."""

    id: Annotated[str, Meta(min_length=1)]
    summary: str = ""
    messages: list[Message] = field(default_factory=list)
    importance: Share = 0.5
    tags: list[str] = field(default_factory=list)
    time: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Summary(Shape):
    """What several episodes come down to."""

    text: str
    episodes: list[str] = field(default_factory=list)
    time: datetime | None = None


class Link(Shape):
    """An edge of the graph of what is remembered: two episodes or names, and how they belong."""

    source: str
    target: str
    kind: str = ""
    weight: float = 1.0


class EpisodicMemory(Shape):
    """What the agent has lived through; `max_retention` in days is for whoever tidies it."""

    episodes: list[Episode] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    relationships: list[Link] = field(default_factory=list)
    max_retention: Annotated[float, Meta(gt=0)] | None = None


class Decision(Shape):
    """What was decided, and why."""

    what: str
    why: str = ""
    options: list[str] = field(default_factory=list)
    task_id: str = ""
    time: datetime | None = None


class Command(Shape):
    """Something that the agent did for a task, which must exist."""

    id: Annotated[str, Meta(min_length=1)]
    task_id: str
    name: str = ""
    arguments: Any = None
    time: datetime | None = None


class CommandResult(Shape):
    """What came of a command."""

    command_id: str
    success: bool = True
    value: Any = None
    time: datetime | None = None


class TraceError(Shape):
    """Something that went wrong."""

    message: str
    kind: str = ""
    command_id: str = ""
    task_id: str = ""
    time: datetime | None = None


class ExecutionTrace(Shape):
    """What the agent decided and did. Every command's task exists."""

    decisions: list[Decision] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    results: list[CommandResult] = field(default_factory=list)
    errors: list[TraceError] = field(default_factory=list)
    performance: dict[str, float] = field(default_factory=dict)


class Emotion(Shape):
    """A mood that was."""

    emotion: str
    intensity: Share = 0.0
    time: datetime | None = None


class EmotionalState(Shape):
    """The mood of an agent that has one."""

    primary_emotion: str
    intensity: Share = 0.0
    adaptation_level: Share = 0.0
    history: list[Emotion] = field(default_factory=list)


class Goal(Shape):
    """Something that the agent wants, after the goals that it depends on."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    description: str = ""
    type: Literal["short-term", "long-term", "user-defined", "self-generated"] = "short-term"
    priority: Share = 0.5
    progress: Share = 0.0
    status: Literal["active", "paused", "completed", "abandoned"] = "active"
    deadline: datetime | None = None
    dependencies: list[str] = field(default_factory=list)


class Capabilities(Shape):
    """What the agent can do: its tools and skills, and limits that are set to it."""

    tools: list[str] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)


class Relationship(Shape):
    """What the agent has to do with another agent or a person."""

    kind: str = ""
    """spawned, observes, trusts: any word."""
    strength: Share = 0.5
    notes: str = ""
    since: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class ToolUsage(Shape):
    """How a tool was used."""

    calls: Annotated[int, Meta(ge=0)] = 0
    errors: Annotated[int, Meta(ge=0)] = 0
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    last_used: datetime | None = None


class OperationalContext(Shape):
    """What the agent works towards, within what bounds, and what it has settled."""

    goals: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


class Situation(Shape):
    """The name of the state that the agent is in, and the data of that state."""

    name: str
    data: Any = None


Status = Literal["created", "running", "paused", "stopped", "failed"]


class ExecutionState(Shape):
    """Where an agent is in its life; written by `start`, `pause`, `resume` and `stop`."""

    status: Status = "created"
    since: datetime | None = None
    starts: Annotated[int, Meta(ge=0)] = 0
    recoveries: Annotated[int, Meta(ge=0)] = 0
    """Starts that found it running, or failed: the run before did not end in order."""
    error: str = ""
    """The kind of error that ended the last run."""


class Identity(Shape):
    """Who an agent is, whether it runs or not."""

    name: str = ""
    kind: str = ""
    """What it is made by when it is spawned."""
    version: str = ""
    """Of the agent, not of its state."""
    description: str = ""
    created_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
