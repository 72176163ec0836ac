"""Policies on the async face: what reads or writes runs on a thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.checkpoints.policy import policies as blocking
from holdfast.checkpoints.policy.explain import Explained
from holdfast.checkpoints.policy.policy import DEFAULTS, Policy
from holdfast.checkpoints.policy.policy_engine import Sampler, Triggered
from holdfast.checkpoints.policy.tracker import ASKED, Event
from holdfast.checkpoints.schedule.schedule import ScheduleInfo
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import read_away, surely, to_the_end


class Policies:
    """The checkpoint policies of a store's agents; see `holdfast.sync.Policies`."""

    def __init__(
        self,
        store: Any,
        *,
        defaults: Iterable[Policy] = DEFAULTS,
        metrics: Mapping[str, Sampler | None] | None = None,
        watch: bool = True,
    ) -> None:
        self._blocking = blocking.Policies(store, defaults=defaults, metrics=metrics, watch=watch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Make the checkpoints that are on their way, and watch no longer.

        Closing the store does the same.
        """
        await surely(self._blocking.close)

    async def set(self, agent: Any, policy: Policy | Mapping[str, Any]) -> Policy:
        """Give an agent a policy, in place of the one of its id, its own or a default one.

        Refused with `PolicyValidationError`, which lists everything that is wrong.
        """
        return await to_the_end(self._blocking.set, agent, policy)

    async def get(self, agent: Any, id: str) -> Policy | None:
        """The policy that an agent has under an id, its own or a default one."""
        return await read_away(self._blocking.get, agent, id)

    async def list(self, agent: Any) -> list[Policy]:
        """All policies of an agent, the highest priority first; also those that are off."""
        return await read_away(self._blocking.list, agent)

    async def remove(self, agent: Any, id: str) -> None:
        """Take a policy of its own from an agent; a default one of that id is in force again."""
        await to_the_end(self._blocking.remove, agent, id)

    async def schedule(self, agent: Any) -> Sequence[ScheduleInfo]:
        """Store a schedule for each policy of an agent that has an interval, default ones too.

        An agent's own policies have theirs from the moment they are set. A `Scheduler` of any
        process then makes their checkpoints in time, also if the process that wrote is gone.
        """
        return await to_the_end(self._blocking.schedule, agent)

    async def report(self, agent: Any, kind: str, name: str = "") -> None:
        """Tell of an `error`, a `user_action` or a `system_event`, which may have a name."""
        await to_the_end(self._blocking.report, agent, kind, name)

    async def record(self, agent: Any, metric: str, value: float) -> None:
        """Give the newest value of a metric of your own."""
        await to_the_end(self._blocking.record, agent, metric, value)

    async def evaluate(self, agent: Any, event: Event = ASKED) -> Triggered:
        """Whether a policy would fire now, which, and why; nothing is done.

        With an event of your own: if this happened now, with the metrics that it brings along.
        """
        return await read_away(self._blocking.evaluate, agent, event)

    async def explain(self, agent: Any) -> tuple[Explained, ...]:
        """For each policy what each condition reads now, and why it does or does not fire."""
        return await read_away(self._blocking.explain, agent)

    def fired(self) -> tuple[tuple[Scope, Triggered], ...]:
        """The last hundred checkpoints that policies made in this process, oldest first."""
        return self._blocking.fired()

    def errors(self) -> tuple[str, ...]:
        """The last hundred things that went wrong; a policy never fails a write."""
        return self._blocking.errors()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until all that is due is done; False if it took longer than `timeout` seconds."""
        return await read_away(self._blocking.wait, timeout)
