"""The optimizer on the async face: each call runs on a thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.checkpoints.policy import optimizer as blocking
from holdfast.checkpoints.policy.activity import Recording
from holdfast.checkpoints.policy.optimizer import Cost, Costs, Proposal
from holdfast.checkpoints.policy.policy import DEFAULTS, Policy
from holdfast.store.names.threads import read_away, to_the_end


class Optimizer:
    """Says which policies cost most and what would save; see `holdfast.sync.Optimizer`."""

    def __init__(self, store: Any, *, defaults: Iterable[Policy] = DEFAULTS) -> None:
        self._blocking = blocking.Optimizer(store, defaults=defaults)

    async def record(self, agent: Any) -> Recording:
        """What an agent did, without the values: times, keys and sizes; memory grows with it."""
        return await read_away(self._blocking.record, agent)

    async def costs(self, agent: Any) -> Costs:
        """What policies have cost, the dearest first, by the checkpoints in the history.

        Damaged entries are passed over, and named in `unread`.
        """
        return await read_away(self._blocking.costs, agent)

    async def predict(self, agent: Any, policies: Sequence[Policy] | None = None) -> list[Cost]:
        """What policies (those that the agent has) would have cost, the dearest first."""
        return await read_away(self._blocking.predict, agent, policies)

    async def propose(
        self, agent: Any, bounds: Mapping[str, tuple[float, float]] | None = None
    ) -> list[Proposal]:
        """For each policy the shortest longer interval that is worth it, the best first.

        `bounds` are the least and the most interval, in milliseconds, by the policies' ids; then
        no others are touched.
        """
        return await read_away(self._blocking.propose, agent, bounds)

    async def adapt(self, agent: Any, bounds: Mapping[str, tuple[float, float]]) -> list[Proposal]:
        """Set the best of the intervals that are proposed within the bounds, one policy at a time.

        Gives what was set; empty if nothing would be saved. The one that is set in place of a
        default policy demands no encryption of exports either.
        """
        return await to_the_end(self._blocking.adapt, agent, bounds)
