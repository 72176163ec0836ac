"""The checkpoint that signs how a recovery ended, made in the commit that ends it."""

from __future__ import annotations

from holdfast.store.commit.change import Change
from holdfast.store.commit.stage import Stage
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.entry import Body


def signed_as(recovery: str) -> str:
    """The name of the checkpoint that signs how a recovery ended, which its tag says."""
    return f"recovery {recovery}"


def sign_along(handle: LineHandle, change: Change, sign: Plan) -> None:
    """Let the entry that a change makes in a scope be followed by a checkpoint, in its commit."""
    target = next(one for one in change.targets if one.scope == handle.scope)
    signs = sign[0].targets[0].special
    assert signs is not None

    def special(stage: Stage, body: Body) -> None:
        stage.add(handle.core.prepared(stage.ledger, target), body)
        signs(stage, Body(body.time, [], [], body.cause))

    target.special = special
