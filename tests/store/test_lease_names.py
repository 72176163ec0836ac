"""Leases that stand for something: each has one name, which no other has."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import Scope
from holdfast.errors import InvalidScopeError
from holdfast.store.lease import lease_name, lease_parts, running_lease
from holdfast.store.names.scope import check_key

texts = st.one_of(
    st.text(alphabet="a/%2F5~.", min_size=1, max_size=6),
    st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8),
    st.sampled_from(["x" * 256, "x" * 255 + "y", "..", "/\u0307", "%~" + "0" * 64]),
)
several = st.lists(texts, max_size=3).map(lambda parts: ["agent", *parts])


@given(several, several)
@example(["agent", "a/side"], ["agent", "a", "side"])
@example(["agent", "/a"], ["agent", "%2Fa"])
@example(["agent", "x" * 300], ["agent", "x" * 301])
def test_names_are_legal_and_each_is_of_one_thing(one: list[str], other: list[str]) -> None:
    name = lease_name(*one)
    assert check_key(name) == name
    assert (name == lease_name(*other)) == (one == other)
    assert lease_parts(name) in (one, None)


def test_a_plain_name_is_read_back() -> None:
    assert lease_name("agent", "a/b%", "c") == "agent/a%2Fb%25/c"
    assert lease_parts("agent/a%2Fb%25/c") == ["agent", "a/b%", "c"]


@given(texts, texts)
def test_no_two_timelines_are_run_under_one_lease(id: str, timeline: str) -> None:
    found = {}
    for kind, own in (("agent", id), ("agent", f"{id}/{timeline}"), ("session", id)):
        try:
            scope = Scope(kind, own)
        except InvalidScopeError:
            continue
        for line in {"main", timeline}:
            found.setdefault(running_lease(scope, line), set()).add((scope, line))
    assert all(len(those) == 1 for those in found.values())
