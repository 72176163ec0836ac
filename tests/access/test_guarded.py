"""Every public method of store, state and view is checked in a way that is written down here, and
of what reads a store by itself: schemas, and what LangGraph keeps.

A new method makes these tests fail until somebody has said how it is checked: what has no line
here could be a way around all grants.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

import holdfast
from holdfast import sync
from holdfast.errors import AccessDeniedError
from holdfast.integrations.langgraph import HoldfastSaver, HoldfastStore
from holdfast.sync.access import Access
from holdfast.sync.schemas import Convert, Migrations, Number, Schema, Schemas, Step, Text

Call = Callable[[Any, Path], Any]

KEY = "reads the key it names"
LIST = "leaves out what may not be read"
SCOPE = "needs to read all of the scope"
WRITE = "needs to write each key, or all of the scope"
BOTH = "looks at the key first: needs to read and to write it"
ADMIN = "needs admin of the scope"
REACH = "needs any grant for the scope"
STORE = "needs admin of *"
HARMLESS = "touches nothing, or tells nothing of anybody's"


def _entered(block: Any) -> None:
    with block:
        pass


def _change(block: Any) -> None:
    with block as change:
        change.set("secret", 1)


def _change_there(block: Any) -> None:
    with block as change:
        change["agent:a"].set("secret", 1)


def _written(state: Any) -> None:
    with state.open_write("secret") as file:
        file.write(b"x")


STATE: dict[str, tuple[str, Call]] = {
    "get": (KEY, lambda s, _: s.get("secret")),
    "get_many": (KEY, lambda s, _: s.get_many(["secret"])),
    "item": (KEY, lambda s, _: s.item("secret")),
    "exists": (KEY, lambda s, _: s.exists("secret")),
    "tail": (KEY, lambda s, _: s.tail("list", 1)),
    "slice": (KEY, lambda s, _: s.slice("list")),
    "length": (KEY, lambda s, _: s.length("list")),
    "open_read": (KEY, lambda s, _: s.open_read("bytes")),
    "read_range": (KEY, lambda s, _: s.read_range("bytes", 0, 1)),
    "get_file": (KEY, lambda s, path: s.get_file("bytes", path / "out")),
    "keys": (LIST, lambda s, _: s.keys()),
    "items": (LIST, lambda s, _: s.items()),
    "find": (LIST, lambda s, _: s.find("by_n", n=1).items),
    "root": (SCOPE, lambda s, _: s.root()),
    "checkpoints": (SCOPE, lambda s, _: s.checkpoints()),
    "at": (SCOPE, lambda s, _: s.at(1)),
    "diff": (SCOPE, lambda s, _: s.diff(1)),
    "log": (SCOPE, lambda s, _: s.log()),
    "replay": (SCOPE, lambda s, _: s.replay(lambda a, _: a, None)),
    "history": (SCOPE, lambda s, _: s.history("secret")),
    "blame": (SCOPE, lambda s, _: s.blame("secret")),
    "why_kept": (SCOPE, lambda s, _: s.why_kept(1)),
    "prove": (SCOPE, lambda s, _: s.prove("secret")),
    "export_chain": (SCOPE, lambda s, path: s.export_chain(path / "chain")),
    "watch": (SCOPE, lambda s, _: s.watch(timeout=0.01)),
    "set": (WRITE, lambda s, _: s.set("secret", 1)),
    "set_many": (WRITE, lambda s, _: s.set_many({"secret": 1})),
    "delete": (WRITE, lambda s, _: s.delete("secret")),
    "append": (WRITE, lambda s, _: s.append("list", 1)),
    "extend": (WRITE, lambda s, _: s.extend("list", [1])),
    "change": (WRITE, lambda s, _: _change(s.change())),
    "open_write": (WRITE, lambda s, _: _written(s)),
    "put_file": (WRITE, lambda s, path: s.put_file("secret", path / "in")),
    "declare": (WRITE, lambda s, _: s.declare(holdfast.Sticky("x/"))),
    "undeclare": (WRITE, lambda s, _: s.undeclare(holdfast.Lookup("by_n", "n/", ["n"]))),
    "checkpoint": (WRITE, lambda s, _: s.checkpoint("c")),
    "update": (BOTH, lambda s, _: s.update("secret", lambda v: v)),
    "expire": (BOTH, lambda s, _: s.expire("secret", ttl=1)),
    "persist": (BOTH, lambda s, _: s.persist("secret")),
    "trim": (BOTH, lambda s, _: s.trim("list", keep_last=1)),
    "restore": (BOTH, lambda s, _: s.restore("one")),
    "adopt": (BOTH, lambda s, _: s.adopt("f")),
    "fork": (BOTH, lambda s, _: s.fork("g")),
    "merge": (BOTH, lambda s, _: s.merge("f")),
    "revert": (BOTH, lambda s, _: s.revert(correlation="run")),
    "undo": (BOTH, lambda s, _: s.undo()),
    "cosign": (BOTH, lambda s, path: s.cosign("one", signer=f"file:{path}/signer.key")),
    "prune": (ADMIN, lambda s, _: s.prune(before=2)),
    "sweep": (ADMIN, lambda s, _: s.sweep()),
    "declared": (REACH, lambda s, _: s.declared()),
    "timelines": (REACH, lambda s, _: s.timelines()),
    "on": (HARMLESS, lambda s, _: s.on("f")),
    "scope": (HARMLESS, lambda s, _: s.scope),
    "timeline": (HARMLESS, lambda s, _: s.timeline),
}
STORE_METHODS: dict[str, tuple[str, Call]] = {
    "feed": (LIST, lambda s, _: list(s.feed())),
    "watch": (LIST, lambda s, _: list(s.watch(since={}, timeout=0.01))),
    "correlated": (LIST, lambda s, _: s.correlated("run")),
    "scopes": (LIST, lambda s, _: s.scopes().items),
    "change": (WRITE, lambda s, _: _change_there(s.change())),
    "revert": (BOTH, lambda s, _: s.revert(correlation="run")),
    "lease": (WRITE, lambda s, _: _entered(s.lease("n", wait=0))),
    "delete": (ADMIN, lambda s, _: s.delete("agent:a")),
    "erase": (ADMIN, lambda s, _: s.erase("agent:a")),
    "verify": (STORE, lambda s, _: s.verify()),
    "add_gate": (STORE, lambda s, _: s.add_gate(holdfast.Gate())),
    "remove_gate": (STORE, lambda s, _: s.remove_gate(holdfast.Gate())),
    "add_key": (STORE, lambda s, _: s.add_key("passphrase:x")),
    "begin_rotation": (STORE, lambda s, _: s.begin_rotation("passphrase:x")),
    "finish_rotation": (STORE, lambda s, _: s.finish_rotation()),
    "rotate_master": (STORE, lambda s, _: s.rotate_master("passphrase:x")),
    "rotate": (STORE, lambda s, _: s.rotate("agent:a")),
    "reseal": (STORE, lambda s, _: s.reseal("agent:a")),
    "keyring": (STORE, lambda s, _: s.keyring()),
    "subjects": (STORE, lambda s, _: s.subjects()),
    "erase_subject": (STORE, lambda s, _: s.erase_subject("x")),
    "leases": (STORE, lambda s, _: s.leases()),
    "break_lease": (STORE, lambda s, _: s.break_lease("n")),
    "sweep": (STORE, lambda s, _: s.sweep()),
    "witness": (STORE, lambda s, _: s.witness()),
    "stats": (STORE, lambda s, _: s.stats()),
    "close": (HARMLESS, lambda s, _: s.close()),
    "scope": (HARMLESS, lambda s, _: s.scope("agent:a")),
    "agent": (HARMLESS, lambda s, _: s.agent("a")),
    "workflow": (HARMLESS, lambda s, _: s.workflow("a")),
    "step": (HARMLESS, lambda s, _: s.step("a", "b")),
    "session": (HARMLESS, lambda s, _: s.session("a")),
    "custom": (HARMLESS, lambda s, _: s.custom("a")),
    "shared": (HARMLESS, lambda s, _: s.shared),
    "acting": (HARMLESS, lambda s, _: s.acting("x")),
    "position": (HARMLESS, lambda s, _: s.position()),
    "identity": (HARMLESS, lambda s, _: s.identity()),
    "metrics": (HARMLESS, lambda s, _: s.metrics()),
}
LETS = {
    # What lets each of them through; with one thing less it is refused.
    KEY: "read",
    SCOPE: "read",
    WRITE: "write",
    BOTH: "read_write",
    ADMIN: "admin",
}


def public(kind: type) -> set[str]:
    """The public names of a class."""
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (sync.Store, STORE_METHODS),
        (holdfast.Store, STORE_METHODS),
        (sync.State, STATE),
        (holdfast.State, STATE),
    ],
)
def test_every_public_method_has_a_line(kind: type, table: dict[str, Any]) -> None:
    unknown = public(kind) - set(table)
    assert not unknown, f"say in this file how these are checked: {sorted(unknown)}"
    assert not set(table) - public(kind), "gone"
    for view in (sync.View, holdfast.View):
        assert public(view) <= set(STATE)


@pytest.fixture
def filled(store: sync.Store, tmp_path: Path) -> sync.Store:
    """A scope with something of everything."""
    state = store.agent("a")
    state.declare(holdfast.Lookup("by_n", "n/", ["n"]))
    with store.acting(correlation="run"):
        state.set("secret", 1)
    state.append("list", 1)
    state.set("n/1", {"n": 1})
    state.set("bytes", b"x" * 100_000)
    state.checkpoint("one")
    state.fork("f")
    (tmp_path / "in").write_bytes(b"x")
    return store


def _denied(call: Callable[[], Any]) -> bool:
    try:
        call()
    except AccessDeniedError:
        return True
    except holdfast.HoldfastError:
        return False
    return False


@pytest.mark.parametrize("name", sorted(STATE))
@pytest.mark.parametrize("grant", [None, "n/", "write", "read"])
def test_a_method_of_a_state_is_refused_to_who_may_not(
    filled: sync.Store, tmp_path: Path, name: str, grant: str | None
) -> None:
    how, call = STATE[name]
    access = Access(filled)
    if grant == "n/":
        access.grant("ann", "agent:a", "admin", prefix="n/")
    elif grant is not None:
        access.grant("ann", "agent:a", grant)
    access.grant("ann", "agent:b", "admin", below=True)
    head = filled.agent("a").log(limit=1)[0].sequence
    enough = {"write": (WRITE,), "read": (KEY, SCOPE)}.get(grant or "", ())
    for _ in range(2):  # what is refused once is refused again
        state = access.as_("ann").agent("a")
        if how == HARMLESS or (grant is not None and how in (LIST, REACH)):
            found = call(state, tmp_path)
            if how == LIST and grant != "read":
                assert str(found).replace("n/1", "") in ("[]", "['']", "[('', {'n': 1})]")
        else:
            assert _denied(partial(call, state, tmp_path)) is (how not in enough)
    if how not in enough:
        assert filled.agent("a").log(limit=1)[0].sequence == head, "nothing was written"


@pytest.mark.parametrize("name", sorted(STORE_METHODS))
def test_a_method_of_a_store_is_refused_to_who_may_not(
    filled: sync.Store, tmp_path: Path, name: str
) -> None:
    how, call = STORE_METHODS[name]
    access = Access(filled)
    access.grant("ann", "agent:b", "admin", below=True)
    access.grant("ann", "global", "admin", below=True)
    mine = access.as_("ann")
    position = filled.position()
    if how == LIST:
        assert call(mine, tmp_path) == []
    elif how == HARMLESS:
        call(mine, tmp_path)
    elif name == "revert":
        with pytest.raises(holdfast.HoldfastError):  # of what is not seen there is nothing
            call(mine, tmp_path)
    else:
        assert _denied(lambda: call(mine, tmp_path))
    assert filled.position() == position, "nothing was written"
    if how == STORE:
        access.grant("ann", "*", "read_write")
        assert _denied(lambda: call(mine, tmp_path)), "writing everything is not enough"
        access.grant("ann", "*", "admin")
        assert not _denied(lambda: call(mine, tmp_path))


@pytest.mark.parametrize("name", sorted(name for name in STATE if STATE[name][0] in LETS))
def test_a_method_of_a_state_is_let_through_by_what_it_needs(
    filled: sync.Store, tmp_path: Path, name: str
) -> None:
    how, call = STATE[name]
    access = Access(filled)
    access.grant("ann", "agent:a", LETS[how])
    assert not _denied(lambda: call(access.as_("ann").agent("a"), tmp_path))


# ---- what reads a store by itself ---------------------------------------------------------------

ONE = Schema("p", 1, prefix="p/", fields={"a": Text()}, compatible="none")
STEPS = [Step(1, 2, [Convert("a", "parse_int")])]
TWO = Schema("p", 2, prefix="p/", fields={"a": Number()}, compatible="none", steps=STEPS)
THREAD = {"configurable": {"thread_id": "7", "checkpoint_ns": ""}}
PLACE = ("users", "ada")


def _put(saver: HoldfastSaver) -> Any:
    return saver.put(THREAD, empty_checkpoint(), {}, {})


def _put_writes(saver: HoldfastSaver) -> None:
    there = {**THREAD["configurable"], "checkpoint_id": _first[0]}
    saver.put_writes({"configurable": there}, [("v", 1)], "task")


_first: list[str] = []
FEATURES: dict[type, dict[str, tuple[str, Callable[[Any], Any]]]] = {
    Schemas: {
        "get": (LIST, lambda s: s.get("p")),
        "history": (LIST, lambda s: s.history("p")),
        "list": (LIST, lambda s: s.list()),
    },
    Migrations: {
        "run": (BOTH, lambda m: m.run("agent:a", "p")),
        "status": (SCOPE, lambda m: m.status("agent:a", "p")),
        "validate": (HARMLESS, lambda m: m.validate(ONE, TWO)),
    },
    HoldfastStore: {
        "get": (KEY, lambda s: s.get(PLACE, "secret")),
        "batch": (LIST, lambda s: s.batch([])),
        "search": (LIST, lambda s: s.search(())),
        "list_namespaces": (LIST, lambda s: s.list_namespaces()),
        "sweep_ttl": (LIST, lambda s: s.sweep_ttl() or []),
        "put": (BOTH, lambda s: s.put(PLACE, "secret", {"v": 2})),
        "delete": (WRITE, lambda s: s.delete(PLACE, "secret")),
        "start_ttl_sweeper": (HARMLESS, lambda s: s.start_ttl_sweeper()),
        "stop_ttl_sweeper": (HARMLESS, lambda s: s.stop_ttl_sweeper()),
        "supports_ttl": (HARMLESS, lambda s: s.supports_ttl),
        "ttl_config": (HARMLESS, lambda s: s.ttl_config),
        "open": (HARMLESS, lambda _: None),
    },
    HoldfastSaver: {
        "get": (SCOPE, lambda s: s.get(THREAD)),
        "get_tuple": (SCOPE, lambda s: s.get_tuple(THREAD)),
        "get_delta_channel_history": (
            SCOPE,
            lambda s: s.get_delta_channel_history(config=THREAD, channels=["v"]),
        ),
        "may_have_run": (SCOPE, lambda s: s.may_have_run(THREAD)),
        "list": (SCOPE, lambda s: list(s.list(THREAD))),
        "thread_ids": (REACH, lambda s: list(s.thread_ids())),
        "put": (BOTH, _put),
        "put_writes": (BOTH, _put_writes),
        "prune": (LIST, lambda s: s.prune(["7"]) or []),
        "copy_thread": (LIST, lambda s: s.copy_thread("7", "8") or []),
        "delete_for_runs": (LIST, lambda s: s.delete_for_runs(["run"]) or []),
        "delete_thread": (ADMIN, lambda s: s.delete_thread("7")),
        "get_next_version": (HARMLESS, lambda s: s.get_next_version(1, None)),
        "config_specs": (HARMLESS, lambda s: s.config_specs),
        "serde": (HARMLESS, lambda s: s.serde),
        "with_allowlist": (HARMLESS, lambda _: None),
        "open": (HARMLESS, lambda _: None),
    },
}
CALLS = [(kind, name) for kind, table in FEATURES.items() for name in table]


@pytest.mark.parametrize("kind", FEATURES)
def test_every_method_of_what_reads_a_store_has_a_line(kind: type) -> None:
    names = public(kind)
    alone = {name for name in names if not (name[0] == "a" and name[1:] in names)}
    assert alone == set(FEATURES[kind])


@pytest.fixture
def featured(store: sync.Store) -> sync.Store:
    """Values of a schema, items of a memory and a thread."""
    state = store.agent("a")
    state.declare(ONE)
    state.set("p/secret", {"a": "secret"})
    state.declare(TWO)
    HoldfastStore(store).put(PLACE, "secret", {"v": "secret"})
    made = empty_checkpoint()
    made["channel_values"]["v"], made["channel_versions"]["v"] = "secret", 1
    HoldfastSaver(store).put(THREAD, made, {}, {"v": 1})
    _first[:] = [made["id"]]
    return store


@pytest.mark.parametrize(("kind", "name"), CALLS)
@pytest.mark.parametrize("grant", [None, "n/", "write"])
def test_what_reads_a_store_tells_nobody_what_may_not_be_read(
    featured: sync.Store, kind: type, name: str, grant: str | None
) -> None:
    how, call = FEATURES[kind][name]
    access = Access(featured)
    for scope in ("agent:a", "custom:langgraph/7", "custom:langgraph-store"):
        if grant == "n/":
            access.grant("ann", scope, "admin", prefix="n/")
        elif grant is not None:
            access.grant("ann", scope, grant)
    access.grant("ann", "custom:langgraph/8", "admin")
    access.grant("ann", "custom:$leases", "write")
    position = featured.position()
    told: Any = []
    denied = False
    try:
        told = call(kind(access.as_("ann")))
    except AccessDeniedError:
        denied = True
    except holdfast.errors.MissingError:  # of what is not seen there is nothing
        assert kind is Schemas or grant is None
    assert "secret" not in str(told)
    if how in (KEY, SCOPE, BOTH, ADMIN):
        assert denied or (kind is Migrations and grant is None)
    elif how == LIST:
        assert told == []
        assert not denied or grant is None
    if (how, grant) != (WRITE, "write"):
        assert featured.position() == position, "nothing was written"


@pytest.mark.parametrize(("kind", "name"), CALLS)
def test_what_reads_a_store_is_let_through_by_what_it_needs(
    featured: sync.Store, kind: type, name: str
) -> None:
    how, call = FEATURES[kind][name]
    access = Access(featured)
    for scope in ("agent:a", "custom:langgraph/7", "custom:langgraph-store"):
        access.grant("ann", scope, LETS.get(how, "read"))
    access.grant("ann", "custom:langgraph/8", "admin")
    access.grant("ann", "custom:$leases", "write")
    assert not _denied(lambda: call(kind(access.as_("ann"))))


def test_a_migration_is_told_of_to_who_may_read_all_that_it_is_about(
    featured: sync.Store,
) -> None:
    access = Access(featured)
    access.grant("ann", "agent:a", "write")
    access.grant("ann", "agent:a", "read", prefix="p/")
    with pytest.raises(AccessDeniedError, match="ann may not read agent:a;"):
        Migrations(access.as_("ann")).run("agent:a", "p", dry_run=True)
    access.grant("ann", "agent:a", "read")
    (report,) = Migrations(access.as_("ann")).run("agent:a", "p", dry_run=True)
    assert report.failures == ("p/secret (version 1): a cannot be made int",)


def test_a_search_follows_writes_of_others_and_grants(featured: sync.Store) -> None:
    access, theirs = Access(featured), HoldfastStore(featured)
    theirs.put(("users", "bob"), "b", {"v": "bob"})
    scope, ada = "custom:langgraph-store", "items/users/ada"
    access.grant("ann", scope, "read", prefix=ada)
    mine = HoldfastStore(access.as_("ann"))

    def found() -> list[str]:
        assert mine.list_namespaces() == sorted({one.namespace for one in mine.search(())})
        return [one.key for one in mine.search(())]

    assert found() == ["secret"]
    theirs.put(PLACE, "later", {"v": 1})
    theirs.put(("users", "bob"), "c", {"v": 1})
    assert found() == ["later", "secret"]
    theirs.delete(PLACE, "secret")
    assert found() == ["later"]
    access.grant("ann", scope, "read")
    assert found() == ["c", "later", "b"]
    theirs.delete(PLACE, "later")
    assert found() == ["c", "b"]
    access.revoke("ann", scope)
    assert found() == []
    access.revoke("ann", scope, prefix=ada)
    with pytest.raises(AccessDeniedError):
        mine.search(())


def test_a_refusal_names_no_key_that_may_not_be_read(filled: sync.Store) -> None:
    access = Access(filled)
    access.grant("ann", "agent:a", "write")
    with pytest.raises(holdfast.errors.InvalidInputError, match="'sec' are stored") as told:
        access.as_("ann").agent("a").declare(holdfast.Ephemeral("sec"))
    assert "secret" not in str(told.value)
