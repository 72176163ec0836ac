"""Grants: who may read and write what, and nothing beyond that."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.errors import AccessDeniedError, InvalidInputError
from holdfast.store.inner import core_of, cursors
from holdfast.sync.access import Access, Audit, Grant
from holdfast.sync.hooks import Hooks

DENIED = AccessDeniedError
START = holdfast.Position()


def may(call: Callable[[], Any]) -> bool:
    """Whether a call is let through."""
    try:
        call()
    except AccessDeniedError:
        return False
    return True


@pytest.mark.spec("L133", "L134", "L135", "L136", "L137", "L138", "L45")
@pytest.mark.parametrize(
    ("permission", "reads", "writes", "erases"),
    [
        ("read", True, False, False),
        ("write", False, True, False),
        ("read_write", True, True, False),
        ("admin", True, True, True),
        (None, False, False, False),
    ],
)
def test_each_permission_lets_one_do_what_it_says_and_no_more(
    store: sync.Store,
    access: Access,
    permission: str | None,
    reads: bool,
    writes: bool,
    erases: bool,
) -> None:
    store.agent("a").set("plan", 1)
    store.agent("b").set("plan", 2)
    if permission is not None:
        access.grant("ann", "agent:a", permission)
    mine = access.as_("ann").agent("a")
    assert may(lambda: mine.get("plan")) is reads
    assert may(lambda: mine.set("plan", 3)) is writes
    assert may(lambda: mine.append("log", 3)) is writes
    assert may(lambda: mine.delete("draft")) is writes
    assert may(lambda: access.as_("ann").delete("agent:a")) is erases
    assert may(lambda: access.as_("ann").stats()) is False, "admin of a scope is not of the store"
    for one, expected in (("read", reads), ("write", writes), ("admin", erases)):
        assert access.check("ann", "agent:a", one) is expected
        assert not access.check("ann", "agent:b", one)
    assert access.check("ann", "agent:a", "read_write") is (reads and writes)
    assert not may(lambda: access.as_("ann").agent("b").get("plan"))
    assert store.agent("b").get("plan") == 2


@pytest.mark.spec("L139")
def test_what_is_denied_says_who_where_what_and_the_grant_that_is_missing(
    store: sync.Store, access: Access
) -> None:
    store.agent("other").set("draft", 1)
    access.grant("agent_123", "agent:other", "write")
    with pytest.raises(DENIED) as caught:
        access.as_("agent_123").agent("other").get("plan")
    error = caught.value
    assert (error.principal, error.scope, error.permission) == ("agent_123", "agent:other", "read")
    assert "access.grant('agent_123', 'agent:other', 'read')" in str(error)
    assert "agent_123 may write agent:other" in str(error), "and what there is"
    assert isinstance(error, holdfast.errors.RefusedError)
    access.grant("agent_123", "agent:other", "read_write")
    assert access.as_("agent_123").agent("other").get("plan", "none") == "none"
    assert "agent_123 may read agent:other:" in access.explain("agent_123", "agent:other")


@pytest.mark.spec("X49")
def test_global_permission_must_not_imply_every_scope(store: sync.Store, access: Access) -> None:
    for scope in ("global", "agent:a", "workflow:w", "step:w/s", "session:s", "custom:c"):
        store.scope(scope).set("k", scope)
    access.grant("ann", "global", "admin", below=True)
    mine = access.as_("ann")
    assert mine.shared.get("k") == "global"
    assert [str(one.scope) for one in mine.scopes().items] == ["global"]
    for scope in ("agent:a", "workflow:w", "step:w/s", "session:s", "custom:c", "custom:$access"):
        assert not may(partial(mine.scope(scope).get, "k"))
        assert not may(partial(mine.scope(scope).set, "k", 1))
    assert not may(lambda: mine.stats())


@pytest.mark.parametrize(
    ("target", "fitting", "other"),
    [
        ("agent:a", ["agent:a"], ["agent:ab", "agent:a/b", "custom:agent:a", "workflow:a"]),
        ("agent:*", ["agent:a", "agent:x/y"], ["workflow:a", "custom:agent:a", "global"]),
        ("agent:team-*", ["agent:team-1"], ["agent:team", "agent:other"]),
        ("custom:*", ["custom:a", "custom:a/b"], ["custom:$access", "custom:$audit", "agent:a"]),
        ("*", ["agent:a", "global", "custom:$access"], []),
    ],
)
def test_a_pattern_fits_whole_names_and_never_what_is_holdfasts_own(
    access: Access, target: str, fitting: list[str], other: list[str]
) -> None:
    access.grant("ann", target, "read")
    assert [one for one in (*fitting, *other) if access.check("ann", one)] == fitting


def test_a_grant_for_a_prefix_is_for_those_keys_alone(store: sync.Store, access: Access) -> None:
    state = store.agent("a")
    for key in ("notes/1", "notes/2", "notes", "plan"):
        state.set(key, key)
    state.declare(holdfast.Ephemeral("tmp/"))
    state.set("tmp/x", 1)
    access.grant("ann", "agent:a", "read_write", prefix="notes/")
    mine = access.as_("ann").agent("a")
    assert mine.get("notes/1") == "notes/1"
    mine.set("notes/3", 3)
    assert mine.keys() == ["notes/1", "notes/2", "notes/3"], "the others are left out"
    assert dict(mine.items()) == {"notes/1": "notes/1", "notes/2": "notes/2", "notes/3": 3}
    assert mine.keys(limit=2, after="notes/1") == ["notes/2", "notes/3"]
    for key in ("notes", "plan", "tmp/x"):
        assert not may(partial(mine.get, key))
        assert not may(partial(mine.exists, key))
        assert not may(partial(mine.set, key, 1))
    with pytest.raises(DENIED), mine.change() as change:
        change.set("notes/1", 9)
        change.set("plan", 9)
    assert state.get("notes/1") == "notes/1", "all of a change, or nothing"
    # The past, entries and proofs are not told apart by keys.
    for call in (mine.log, mine.checkpoints, lambda: mine.at(1), lambda: mine.prove("notes/1")):
        assert not may(call)


def test_a_grant_ends_at_its_time_also_for_what_is_open(
    timed: sync.Store, hands: Hands, access: Access
) -> None:
    access = Access(timed)
    timed.agent("a").set("file", b"x" * 3_000_000)
    access.grant("ann", "agent:a", "read", until=hands.time(60))
    mine = access.as_("ann").agent("a")
    opened = mine.open_read("file")
    assert opened.read(3) == b"xxx"
    watch = mine.watch(since=START, timeout=0.01)
    hands.move(61)
    assert not may(lambda: mine.get("file"))
    assert not may(lambda: opened.read(3))
    assert list(watch) == []
    assert not access.check("ann", "agent:a")
    with pytest.raises(InvalidInputError, match="never hold"):
        access.grant("ann", "agent:a", "read", until=hands.time(10))


@pytest.mark.spec("L41")
def test_scopes_have_parents_and_a_grant_may_hold_below_one(
    store: sync.Store, access: Access
) -> None:
    below = ("step:w/1", "step:w/1%2F2", "custom:a/b", "custom:a/b/c", "session:s")
    beside = ("step:other/1", "workflow:ww", "custom:ab", "custom:b/a", "session:t", "agent:w")
    access.parent("session:s", "workflow:w")
    for target in ("workflow:w", "custom:a"):
        access.grant("ann", target, "read", below=True)
        access.grant("bob", target, "read")
    for scope in below:
        assert access.check("ann", scope), scope
        assert not access.check("bob", scope), "only a grant that says so holds below"
    for scope in beside:
        assert not access.check("ann", scope), scope
    access.grant("cy", "custom:a/b", "read", below=True)
    assert access.check("cy", "custom:a/b/c")
    assert not access.check("cy", "custom:a"), "nothing holds above"
    assert not access.check("cy", "custom:a/c"), "nor beside"
    store.session("s").set("k", 1)
    assert access.as_("ann").session("s").get("k") == 1
    with pytest.raises(InvalidInputError, match="below of itself"):
        access.parent("session:s", "session:s")
    with pytest.raises(InvalidInputError, match="follows from its name"):
        access.parent("agent:x", "workflow:w")


PROGRAM = """
import sys
from holdfast import sync
from holdfast.sync.access import Access
url, key, signer = sys.argv[1:]
with sync.open(url, key=key or None, signer=signer, durability="normal") as store:
    mine = Access(store).as_("ann").agent("a")
    for line in sys.stdin:
        try:
            print(mine.get("k"), mine.timelines()[0].name, flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
"""


def test_a_grant_and_its_end_hold_in_another_process_with_its_next_call(
    tmp_path: Path,
) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("a").set("k", 1)
    access = Access(store)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, place.url, place.key or "", place.signer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=place.environment(),
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        answers = []
        for granted in (False, True, False, True):
            if granted:
                access.grant("ann", "agent:a", "read")
            else:
                access.revoke("ann", "agent:a")
            for _ in range(2):
                other.stdin.write("\n")
                other.stdin.flush()
                answers.append(other.stdout.readline().strip())
        other.stdin.close()
    place.close()
    denied, let = ["AccessDeniedError"] * 2, ["1 main"] * 2
    assert answers == [*denied, *let, *denied, *let]


def test_a_revocation_holds_at_once_for_every_call(store: sync.Store, access: Access) -> None:
    store.agent("a").set("k", 1)
    access.grant("ann", "agent:a", "read_write")
    mine = access.as_("ann").agent("a")
    calls = (lambda: mine.get("k"), mine.keys, mine.declared, mine.timelines, mine.root, mine.log)
    assert all(may(call) for call in calls)
    assert access.revoke("ann", "agent:a")
    assert not access.revoke("ann", "agent:a"), "it was one"
    assert not any(may(call) for call in calls)
    assert list(access.list()) == []


def test_what_a_slow_call_has_found_is_no_answer_once_the_grant_is_over(
    store: sync.Store, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.agent("a").set("k", 1)
    access.grant("ann", "agent:a", "read")
    mine = access.as_("ann").agent("a")
    inner, found, go = access.applying, threading.Event(), threading.Event()

    def applying(principal: str, scope: str) -> list[Grant]:
        answer = inner(principal, scope)
        if threading.current_thread() is slow:
            found.set()
            go.wait(30)
        return answer

    slow = threading.Thread(target=lambda: may(lambda: mine.get("k")))
    monkeypatch.setattr(access, "applying", applying)
    slow.start()
    assert found.wait(30)
    access.revoke("ann", "agent:a")
    assert not may(lambda: mine.get("k"))
    go.set()
    slow.join()
    assert not may(lambda: mine.get("k"))


def test_lists_leave_out_what_may_not_be_read(store: sync.Store, access: Access) -> None:
    a, b = store.agent("a"), store.agent("b")
    lookup = holdfast.Lookup("by_kind", "n/", ["kind"])
    a.declare(lookup)
    a.set("n/1", {"kind": "x"})
    a.set("n/2", {"kind": "x"})
    with store.change(correlation="run") as change:
        change[a].set("k", 1)
        change[b].set("k", 1)
    access.grant("ann", "agent:b", "read")
    access.grant("ann", "agent:a", "read", prefix="n/1")
    mine = access.as_("ann")
    assert [str(one.scope) for one in mine.scopes().items] == ["agent:a", "agent:b"]
    assert [str(one.scope) for one in mine.feed()] == ["agent:b"]
    assert [str(one.scope) for one in mine.watch(since=START, timeout=0.01)] == ["agent:b"]
    assert [str(one.scope) for one in mine.correlated("run")] == ["agent:b"]
    assert mine.agent("a").find("by_kind", kind="x").items == ["n/1"]
    assert len(store.agent("a").find("by_kind", kind="x").items) == 2
    access.revoke("ann", "agent:a", prefix="n/1")
    [entry] = mine.correlated("run")
    assert [scope for scope, *_ in entry.also] == ["hidden"], "not even its name is told"
    assert [scope for scope, *_ in store.correlated("run")[1].also] == ["agent:a"]


def test_who_has_a_part_of_a_store_gets_no_more_by_what_is_made_from_it(
    store: sync.Store, access: Access, tmp_path: Path
) -> None:
    store.agent("b").set("k", 1)
    access.grant("ann", "custom:*", "admin")
    access.grant("ann", "agent:a", "admin")
    access.grant("bob", "*", "read_write")
    for who in ("ann", "bob"):
        mine = access.as_(who)
        for call in (
            lambda mine=mine, who=who: Access(mine).grant(who, "*", "admin"),
            lambda mine=mine: Access(mine).as_("root"),
            lambda mine=mine: Audit(mine).start(),
            lambda mine=mine: sync.backup.Backups(mine, f"dir:{tmp_path}/b"),
            lambda mine=mine: sync.replicas.Replicas(mine, [tmp_path / "r.db"]),
            lambda mine=mine: sync.checkpoints.Scheduler(mine),
            lambda mine=mine: sync.checkpoints.Policies(mine),
            lambda mine=mine: sync.recovery.Scrubber(mine),
            lambda mine=mine: sync.hooks.Hooks(mine).before("*", scope="*")(lambda *_: None),
        ):
            assert not may(call)
    mine = access.as_("ann")
    assert not may(lambda: sync.checkpoints.Checkpoints(mine.agent("b")).held())
    assert not may(lambda: mine.verify("agent:b"))
    mine.close()  # which is the owner's to do
    assert store.agent("b").get("k") == 1
    mine.custom("x").set("k", 1)
    assert mine.verify("custom:x").findings == []


def test_who_may_not_erase_is_told_of_the_grant_that_helps(
    store: sync.Store, access: Access
) -> None:
    store.agent("a").set("k", 1)
    access.grant("ann", "agent:a", "read_write")
    with pytest.raises(AccessDeniedError, match=r"access\.grant\('ann', 'agent:a', 'admin'\)"):
        access.as_("ann").erase("agent:a")
    access.grant("ann", "agent:a", "admin")
    access.as_("ann").erase("agent:a")


def test_admin_of_some_keys_of_all_scopes_is_none_of_the_store(
    store: sync.Store, access: Access
) -> None:
    access.grant("ann", "*", "admin", prefix="notes/")
    mine = access.as_("ann")
    mine.agent("a").set("notes/1", 1)
    for call in (
        mine.stats,
        lambda: mine.erase_subject("x"),
        lambda: Access(mine).grant("ann", "*", "admin"),
        lambda: Access(mine).as_("root"),
    ):
        assert not may(call)
    assert not access.check("ann", "*", "admin")
    access.grant("ann", "*", "admin")
    assert access.check("ann", "*", "admin")
    assert may(mine.stats)


def test_agents_that_may_not_be_read_are_left_out_of_the_registry(
    store: sync.Store, access: Access
) -> None:
    agents = sync.agents.Agents(store)
    for name in ("a", "b", "c"):
        agents.register(name, kind="clerk")
    access.grant("ann", "agent:a", "read")
    access.grant("ann", "agent:b", "read", prefix="notes/")
    assert [one.id for one in agents.list()] == ["a", "b", "c"]
    assert [one.id for one in sync.agents.Agents(access.as_("ann")).list()] == ["a"]


def test_a_hook_of_who_may_not_make_one_leaves_nothing_behind(
    store: sync.Store, access: Access
) -> None:
    access.grant("ann", "agent:a", "read_write")
    access.grant("ann", "custom:$leases", "write")
    hooks, position, threads = Hooks(access.as_("ann")), store.position(), threading.active_count()
    for kind in (hooks.background, hooks.before):
        with pytest.raises(AccessDeniedError, match=r"ann may not admin \*"):
            kind("*", name="mine")(lambda event, context: None)
    assert (store.position(), threading.active_count()) == (position, threads)
    assert cursors(core_of(store), "") == {}
    assert hooks.metrics() == {}
    hooks.stop()


def test_a_lease_is_taken_by_who_may_write_its_name(store: sync.Store, access: Access) -> None:
    access.grant("ann", "custom:$leases", "write", prefix="jobs/")
    mine = access.as_("ann")
    with mine.lease("jobs/nightly", wait=0) as lease:
        assert lease.held
    with pytest.raises(DENIED), mine.lease("other", wait=0):
        pass
    assert not may(mine.leases)


@pytest.mark.spec("L45")
def test_grants_are_entries_that_say_who_granted_what(store: sync.Store, access: Access) -> None:
    with store.acting("root", correlation="ticket-9"):
        access.grant("ann", "agent:a", "read", prefix="notes/")
        access.revoke("ann", "agent:a", prefix="notes/")
    log = store.custom("$access").log()
    told = [(one.cause.actor, one.cause.correlation, one.cause.reason) for one in log]
    assert ("root", "ticket-9", "grant: ann may read agent:a keys notes/*") in told
    assert ("root", "ticket-9", "revoke: ann agent:a") in told
    before = store.custom("$access").checkpoint("before")
    access.grant("ann", "agent:a", "read")
    assert access.check("ann", "agent:a")
    store.custom("$access").restore(before)
    assert not access.check("ann", "agent:a"), "a restore takes grants along"
    assert store.verify().findings == []


def test_without_access_nothing_more_is_called(store: sync.Store) -> None:
    state = store.agent("a")

    def calls() -> list[int]:
        found = []
        for call in (lambda: state.set("k", 1), lambda: state.get("k"), lambda: state.keys()):
            call()
            count = 0

            def note(_: Any, event: str, __: Any) -> None:
                nonlocal count
                count += event == "call"

            sys.setprofile(note)
            try:
                call()
            finally:
                sys.setprofile(None)
            found.append(count)
        return found

    calls()
    before = calls()
    access = Access(store)
    for number in range(20):
        access.grant(f"ann{number}", "agent:a", "read")
    assert access.as_("ann1").agent("a").get("k") == 1
    calls()
    assert calls() == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("", "agent:a", "read"), "principal"),
        (("ann", "agent", "read"), "no scope"),
        (("ann", "nobody:*", "read"), "begins with a kind"),
        (("ann", "", "read"), "no scope"),
        (("ann", holdfast.Scope("agent", "a*"), "read"), "agent:a\\* as a target is a pattern"),
        (("ann", "agent:a", "own"), "a permission is read, write"),
        ((7, "agent:a", "read"), "principal"),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(
    access: Access, arguments: tuple[Any, ...], told: str
) -> None:
    with pytest.raises(InvalidInputError, match=told):
        access.grant(*arguments)
    assert list(access.list()) == []


def test_another_grant_for_the_same_replaces_it(store: sync.Store, access: Access) -> None:
    access.grant("ann", "agent:a", "admin")
    later = datetime.now(UTC) + timedelta(days=1)
    made = access.grant("ann", "agent:a", "read", until=later)
    assert list(access.list("ann")) == [made]
    assert made == Grant("ann", "agent:a", "read", until=later)
    assert not access.check("ann", "agent:a", "write")
    shown = access.show("agent:a")
    assert shown["grants"] == [str(made)]


def test_ids_with_colons_and_slashes_do_not_collide(store: sync.Store, access: Access) -> None:
    pairs = [("a:b", "c"), ("a", "b:c"), ("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")]
    for number, (workflow, step) in enumerate(pairs):
        store.step(workflow, step).set("k", number)
    assert [store.step(*pair).get("k") for pair in pairs] == [0, 1, 2, 3, 4]
    access.grant("ann", str(store.step("a:b", "c").scope), "read")
    mine = access.as_("ann")
    assert [may(partial(mine.step(*pair).get, "k")) for pair in pairs] == [
        True,
        False,
        False,
        False,
        False,
    ]
    access.grant("bob", "workflow:a/b", "read", below=True)
    assert [access.check("bob", store.step(*pair).scope) for pair in pairs] == [
        False,
        False,
        True,
        False,
        False,
    ], "a step is below its own workflow, whatever its id holds"


def test_in_the_event_loop_it_is_the_same() -> None:
    async def denied(call: Any) -> bool:
        try:
            await call
        except AccessDeniedError:
            return True
        return False

    async def changed(mine: holdfast.Store) -> None:
        async with mine.change() as change:
            change["agent:b"].set("k", 1)

    async def leased(mine: holdfast.Store) -> None:
        async with mine.lease("x", wait=0):
            pass

    async def run() -> None:
        from holdfast.access import Access as Async

        async with holdfast.open("memory:") as store:
            access = Async(store)
            await store.agent("b").set("k", 2)
            await access.grant("ann", "agent:a", "read_write")
            mine = access.as_("ann")
            await mine.agent("a").set("k", 1)
            assert await mine.agent("a").get("k") == 1
            b = mine.agent("b")
            for call in (b.get("k"), b.set("k", 1), b.keys(), mine.stats(), changed(mine)):
                assert await denied(call)
            assert await denied(leased(mine))
            assert [str(one.scope) async for one in mine.feed()] == ["agent:a"]
            await access.revoke("ann", "agent:a")
            assert await denied(mine.agent("a").get("k"))
            assert await store.agent("b").get("k") == 2

    asyncio.run(run())


def test_who_is_below_whom_makes_no_circle(store: sync.Store, access: Access) -> None:
    access.parent("session:a", "session:b")
    with pytest.raises(InvalidInputError, match="below of itself"):
        Access(store).parent("session:b", "session:a")
    access.grant("ann", "session:b", "read", below=True)
    assert access.check("ann", "session:a")
