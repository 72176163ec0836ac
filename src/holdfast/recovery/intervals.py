"""Intervals of policies that follow what happens: longer where checkpoints cost, shorter where
recoveries lost what lay between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from holdfast.checkpoints.policy.optimizer import Optimizer
from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.policy.policy import Policy
from holdfast.recovery.report import RecoveryReport
from holdfast.store.inner import core_of, moment
from holdfast.store.names.scope import Scope
from holdfast.store.store import Store

Bounds = Mapping[str, tuple[float, float]]
"""By the ids of policies, the least and the most interval in milliseconds."""


def adapt_intervals(
    store: Store,
    policies: Policies,
    scope: Scope,
    bounds: Bounds,
    recent: Sequence[RecoveryReport],
    since: float,
) -> list[Policy]:
    """Set the intervals of an agent's policies, within the bounds; which were set.

    If a recovery of the last `since` seconds lost entries, those that lie between checkpoints are
    too many: each interval is halved. Else the one policy is given a longer interval by which most
    is saved, if anything is. Policies that no bounds name are left.
    """
    now = moment(core_of(store).clock.claimed())
    lost = any(
        _lost(one)
        for one in recent
        if one.finished_at is not None and now - one.finished_at <= timedelta(seconds=since)
    )
    mine = {one.id: one for one in policies.list(scope) if one.enabled and one.id in bounds}
    if lost:
        found = [_with(one, one.frequency.interval / 2) for one in mine.values()]
    else:
        proposed = (one.policy for one in Optimizer(store).propose(scope))
        found = [one for one in proposed if one.id in mine][:1]
    made = []
    for one in found:
        least, most = bounds[one.id]
        wanted = _with(one, min(max(one.frequency.interval, least), most))
        if wanted.frequency.interval != mine[one.id].frequency.interval:
            if core_of(store).ring is None:  # a default one demands what a plain store has not
                wanted = replace(wanted, encryption=None)
            made.append(policies.set(scope, wanted))
    return made


def _with(policy: Policy, interval: float) -> Policy:
    return replace(policy, frequency=replace(policy.frequency, interval=interval))


def _lost(one: RecoveryReport) -> bool:
    """Whether a recovery went back behind entries, as its report says."""
    return re.match(r"\d", one.lost) is not None
