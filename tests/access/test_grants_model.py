"""Grants against a plain model: a list of what was granted, gone through at every question."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast import sync
from holdfast.errors import AccessDeniedError
from holdfast.sync.access import Access

WHO = ("ann", "bob")
SCOPES = ("global", "agent:a", "agent:ab", "workflow:w", "step:w/1", "custom:c", "custom:c/d")
ABOVE = {"step:w/1": "workflow:w", "custom:c/d": "custom:c"}
TARGETS = (*SCOPES, "agent:*", "custom:c*", "*")
KEYS = ("n/1", "n/2", "m")
DOES = {
    "read": {"read"},
    "write": {"write"},
    "read_write": {"read", "write"},
    "admin": {"read", "write", "admin"},
}

who = st.sampled_from(WHO)
target = st.sampled_from(TARGETS)
prefix = st.sampled_from(("", "n/", "n/1"))


def fits(target: str, scope: str) -> bool:
    """Whether a scope is one of a target's, in the plainest words."""
    return target == scope or (target.endswith("*") and scope.startswith(target[:-1]))


class Grants(RuleBasedStateMachine):
    """Whoever asks is let through exactly if the model says so."""

    def __init__(self) -> None:
        super().__init__()
        self.store = sync.open("memory:")
        self.model: dict[tuple[str, str, str], tuple[str, bool]] = {}

    @initialize()
    def fill(self) -> None:
        for scope in SCOPES:
            self.store.scope(scope).set_many(dict.fromkeys(KEYS, scope))
        self.access = Access(self.store)
        self.mine = {one: self.access.as_(one) for one in WHO}

    @rule(
        who=who,
        what_for=target,
        prefix=prefix,
        what=st.sampled_from(sorted(DOES)),
        below=st.booleans(),
    )
    def grant(self, who: str, what_for: str, prefix: str, what: str, below: bool) -> None:
        self.access.grant(who, what_for, what, prefix=prefix, below=below)
        self.model[who, what_for, prefix] = what, below

    @rule(who=who, what_for=target, prefix=prefix)
    def revoke(self, who: str, what_for: str, prefix: str) -> None:
        there = self.model.pop((who, what_for, prefix), None) is not None
        assert self.access.revoke(who, what_for, prefix=prefix) is there

    @rule(data=st.data())
    def revoke_one(self, data: Any) -> None:
        if self.model:
            self.revoke(*data.draw(st.sampled_from(sorted(self.model))))

    def may(self, who: str, scope: str, what: str, key: str = "") -> bool:
        for (one, target, prefix), (permission, below) in self.model.items():
            meant = fits(target, scope) or (below and fits(target, ABOVE.get(scope, "-")))
            named = not prefix or (key and key.startswith(prefix))
            if one == who and meant and named and what in DOES[permission]:
                return True
        return False

    @invariant()
    def all_is_as_granted(self) -> None:
        for who in WHO if hasattr(self, "mine") else ():
            for scope in SCOPES:
                state = self.mine[who].scope(scope)
                readable = [key for key in sorted(KEYS) if self.may(who, scope, "read", key)]
                for key in KEYS:
                    assert self.let(state.get, key) is (key in readable)
                    assert self.access.check(who, scope, key=key) is (key in readable)
                for key in KEYS[:2]:
                    change = self.let(state.set, key, scope)
                    assert change is self.may(who, scope, "write", key)
                assert self.let(state.log) is self.may(who, scope, "read")
                if self.seen(who, scope):
                    assert state.keys() == readable
            told = {str(one.scope) for one in self.mine[who].scopes().items}
            assert told & set(SCOPES) == {one for one in SCOPES if self.seen(who, one)}

    def seen(self, who: str, scope: str) -> bool:
        return any(
            self.may(who, scope, what, key) for what in ("read", "write") for key in (*KEYS, "")
        )

    def let(self, call: Any, *arguments: Any) -> bool:
        try:
            call(*arguments)
        except AccessDeniedError:
            return False
        return True

    def teardown(self) -> None:
        self.store.close()


Grants.TestCase.settings = settings(max_examples=15, stateful_step_count=12)
TestGrants = Grants.TestCase
