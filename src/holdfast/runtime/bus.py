"""A message bus in memory: topics, subscribers with bounded queues, requests and replies.

bus = Bus()
async with bus.subscribe("agent:*") as messages:
    await bus.publish("agent:spawned", {"agent": "planner"})
    async for message in messages: ...

Nothing is kept: who starts again subscribes again. It belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from holdfast.errors import InvalidInputError, MissingError
from holdfast.store.names.arguments import check_count, check_seconds, check_text
from holdfast.store.names.patterns import Patterns

FULL = WAIT, DROP_OLDEST, DROP_NEWEST = "wait", "drop_oldest", "drop_newest"


@dataclass(frozen=True, slots=True)
class Message:
    """What was published under a topic."""

    topic: str
    content: Any
    sender: str = ""
    reply_to: asyncio.Future[Any] | None = None

    def reply(self, content: Any) -> bool:
        """Answer a request; whether it was the first answer, and somebody waits for it."""
        if self.reply_to is None or self.reply_to.done():
            return False
        self.reply_to.set_result(content)
        return True


@dataclass(eq=False)
class BusSubscription:
    """What one subscriber gets, oldest first; iterate over it, or take what is there."""

    name: str
    _beside: dict[BusSubscription, None]
    _patterns: Patterns
    _size: int
    _full: str
    dropped: int = 0
    """Messages that did not fit, and were left out."""
    _queue: deque[Message] = field(default_factory=deque)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _over: bool = False

    async def __aenter__(self) -> Self:
        self._beside[self] = None
        return self

    async def __aexit__(self, *error: object) -> None:
        self._beside.pop(self, None)
        async with self._changed:
            self._over = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._queue)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.get()) is not None:
            yield message

    async def get(self) -> Message | None:
        """The next message, which is waited for; None once the subscription is over."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._queue or self._over)
            if not self._queue:
                return None
            message = self._queue.popleft()
            self._changed.notify_all()
            return message

    async def _put(self, message: Message) -> bool:
        """Give it a message; whether it has it."""
        async with self._changed:
            if self._full == WAIT:
                await self._changed.wait_for(lambda: len(self._queue) < self._size or self._over)
            if self._over:
                return False
            if len(self._queue) >= self._size:
                self.dropped += 1
                if self._full == DROP_NEWEST:
                    return False
                self._queue.popleft()
            self._queue.append(message)
            self._changed.notify_all()
            return True


class Bus:
    """Topics in the memory of one event loop. A subscriber is served what fits its patterns."""

    def __init__(self) -> None:
        self._subscriptions: dict[BusSubscription, None] = {}

    def subscribe(
        self, topics: str | Iterable[str], *, name: str = "", size: int = 1000, full: str = WAIT
    ) -> BusSubscription:
        """A block in which messages of topics are received.

        Patterns are topics with `*` for any text: `agent:*`. A queue holds `size` messages; when it
        is full, who publishes waits (`wait`), the oldest goes (`drop_oldest`), or the new one is
        left out (`drop_newest`); what goes is counted.
        """
        check_text(name, "the name of a subscriber", 200)
        check_count(size, "size", 1)
        if full not in FULL:
            raise InvalidInputError(f"full is {', '.join(FULL)}")
        return BusSubscription(name, self._subscriptions, Patterns(topics), size, full)

    async def publish(self, topic: str, content: Any = None, *, sender: str = "") -> int:
        """Give a message to all who subscribed to its topic; how many have it."""
        return await self._send(Message(topic, content, sender))

    async def _send(self, message: Message) -> int:
        check_text(message.topic, "a topic", 200, least=1)
        known = [one for one in self._subscriptions if one._patterns.fit(message.topic)]
        return sum([await one._put(message) for one in known])

    async def request(
        self, topic: str, content: Any = None, *, sender: str = "", timeout: float | None = 30.0
    ) -> Any:
        """Publish a message and wait for the first `reply` to it; `TimeoutError` after `timeout`.

        Refused with `MissingError` if nobody subscribed to the topic.
        """
        check_seconds(timeout, "timeout")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(timeout):
            if not await self._send(Message(topic, content, sender, answer)):
                raise MissingError(f"nobody subscribes to {topic}")
            return await answer

    def topics(self) -> dict[str, list[str]]:
        """The patterns that are subscribed to, and by whom."""
        found: dict[str, list[str]] = {}
        for one in self._subscriptions:
            for text in one._patterns.texts:
                found.setdefault(text, []).append(one.name)
        return found

    def queues(self) -> list[tuple[str, int, int]]:
        """Of each subscriber its name, how many messages wait, and how many were dropped."""
        return [(one.name, len(one), one.dropped) for one in self._subscriptions]
