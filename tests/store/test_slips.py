"""Slips: every public method called with what it does not take, on both faces.

Each is refused with an error of Holdfast that says what to do, and nothing is written.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Begins, Classed, Lookup, Range, sync
from holdfast.errors import (
    Conflict,
    MissingError,
    PointNotFoundError,
    RefusedError,
    StoreClosedError,
)

NAIVE = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
LATER = datetime(2100, 1, 1, tzinfo=UTC)
BEFORE_ALL = datetime(1980, 1, 1, tzinfo=UTC)
KEYS = (None, 1, 1.5, b"k", ["k"], "", "a//b", "../a", "__a", "a\0b", "a" * 600, "\ud800")
NEW_KEYS = (*KEYS, "$a", "a" * 257)
TEXTS = (None, 1, 1.5, b"x", ["x"])
OPTIONAL_TEXTS = (1, 1.5, b"x", ["x"], "\ud800", "x" * 5000)
COUNTS = (-1, 1.5, "1", True, b"1", [1])
FLAGS = (None, "no", 1, [])
FUNCTIONS = (None, 1, "f")
POINTS = (1.5, True, b"main@1", -1, 10**30, object(), [], "no such checkpoint", "main@99", "@1")
TIMES = ("yesterday", 1.5, NAIVE, True, b"1", [1])
VALUES = ({1, 2}, object(), {"a": [lambda: 1]}, NAIVE, 1j, float, {(1, 2): 3})
IDS = (None, 1, 1.5, b"x", "", "x" * 300, "a\0", "../a", "$x")
KEYRING = {"keyring", "finish_rotation"}
"""Methods for keys that take no arguments."""
Call = Callable[[Any, Any, Any], Any]


def each(call: Callable[[Any, Any, Any], Any], values: Any) -> Iterator[Call]:
    """One call for each value; `call` takes the store, the state and the value."""
    for value in values:
        yield lambda store, state, wrong=value: call(store, state, wrong)


def table() -> dict[str, list[Call]]:
    """Method and argument, and the calls that are slips in it."""
    found: dict[str, list[Call]] = {}

    def slips(name: str, values: Any, call: Callable[[Any, Any, Any], Any]) -> None:
        found[name] = list(each(call, values))

    reads(slips)
    writes(slips)
    looking_back(slips)
    of_the_store(slips)
    return found


def reads(slips: Any) -> None:
    slips("get key", KEYS, lambda _, s, x: s.get(x))
    slips("get as_", (3, "int", [int]), lambda _, s, x: s.get("n", as_=x))
    slips("item key", KEYS, lambda _, s, x: s.item(x))
    slips("exists key", KEYS, lambda _, s, x: s.exists(x))
    slips("class_of key", KEYS, lambda _, s, x: s._handle.reader.class_of(x))
    slips("get_many", (None, 5, "abc", b"abc", [None], [b"k"]), lambda _, s, x: s.get_many(x))
    slips("keys prefix", TEXTS, lambda _, s, x: s.keys(x))
    slips("keys limit", COUNTS, lambda _, s, x: s.keys(limit=x))
    slips("keys after", TEXTS, lambda _, s, x: s.keys(after=x))
    slips("items prefix", TEXTS, lambda _, s, x: s.items(x))
    slips("items limit", COUNTS, lambda _, s, x: s.items(limit=x))
    slips("items after", TEXTS, lambda _, s, x: s.items(after=x))
    slips("tail key", KEYS, lambda _, s, x: s.tail(x, 1))
    slips("tail count", (None, *COUNTS), lambda _, s, x: s.tail("l", x))
    slips("tail of no list", ("n", "m"), lambda _, s, x: s.tail(x, 1))
    slips("slice key", KEYS, lambda _, s, x: s.slice(x))
    slips("slice start", (1.5, "1", True, [1]), lambda _, s, x: s.slice("l", x))
    slips("slice stop", (1.5, "1", True, [1]), lambda _, s, x: s.slice("l", 0, x))
    slips("slice of no list", ("n", "m"), lambda _, s, x: s.slice(x))
    slips("length key", KEYS, lambda _, s, x: s.length(x))
    slips("length of no list", ("n", "m"), lambda _, s, x: s.length(x))


def writes(slips: Any) -> None:
    versions = (-1, 1.5, "1", True, b"1", 10**30, 99)
    slips("set key", NEW_KEYS, lambda _, s, x: s.set(x, 1))
    slips("set_many values", (None, 5, "k", [("k", 1)]), lambda _, s, x: s.set_many(x))
    slips("set value", VALUES, lambda _, s, x: s.set("k", x))
    slips("set if_version", versions, lambda _, s, x: s.set("n", 1, if_version=x))
    lasting(slips)
    slips("delete key", NEW_KEYS, lambda _, s, x: s.delete(x))
    slips("delete if_version", versions, lambda _, s, x: s.delete("n", if_version=x))
    slips("append key", NEW_KEYS, lambda _, s, x: s.append(x, 1))
    slips("append item", VALUES, lambda _, s, x: s.append("l", x))
    slips("append to no list", ("n", "m"), lambda _, s, x: s.append(x, 1))
    slips("extend key", NEW_KEYS, lambda _, s, x: s.extend(x, [1]))
    slips("extend items", (None, 5, "abc", b"ab", {"a": 1}), lambda _, s, x: s.extend("l", x))
    slips("prune before", POINTS, lambda _, s, x: s.prune(x))
    slips("prune keep", (1, "c", [1.5], [None]), lambda _, s, x: s.prune(1, keep=x))
    slips("prune dry_run", FLAGS, lambda _, s, x: s.prune(1, dry_run=x))
    slips("why_kept point", [x for x in POINTS if x is not None], lambda _, s, x: s.why_kept(x))
    slips("trim key", NEW_KEYS, lambda _, s, x: s.trim(x, keep_last=1))
    slips("trim keep_last", (None, *COUNTS), lambda _, s, x: s.trim("l", keep_last=x))
    slips("trim before", (None, *COUNTS), lambda _, s, x: s.trim("l", before=x))
    slips("trim both", (1,), lambda _, s, x: s.trim("l", before=x, keep_last=x))
    slips("trim if_version", versions, lambda _, s, x: s.trim("l", before=0, if_version=x))
    slips("trim of no list", ("n", "m"), lambda _, s, x: s.trim(x, keep_last=1))
    slips("trim in a change", (None, *COUNTS), in_change(lambda c, x: c.trim("l", before=x)))
    slips("declare", (None, 1, "effects/", b"x", holdfast.Sticky), lambda _, s, x: s.declare(x))
    slips("undeclare", (None, 1, "effects/", b"x"), lambda _, s, x: s.undeclare(x))
    slips("Sticky", (*KEYS, "/a"), lambda _, s, x: s.declare(holdfast.Sticky(x)))
    slips("Ephemeral", (*KEYS, "$d", "n"), lambda _, s, x: s.declare(holdfast.Ephemeral(x)))
    slips("update key", NEW_KEYS, lambda _, s, x: s.update(x, lambda _: 1))
    slips("update function", FUNCTIONS, lambda _, s, x: s.update("k", x))
    for name in ("reason", "actor", "correlation", "parent"):
        slips(
            f"change {name}",
            OPTIONAL_TEXTS,
            lambda _, s, x, name=name: inside(s.change(**{name: x}), wrote),
        )
        slips(
            f"store change {name}",
            OPTIONAL_TEXTS,
            lambda t, _, x, name=name: inside(t.change(**{name: x}), lambda c: wrote(c["agent:1"])),
        )
    ids = (1, 1.5, b"x", "", "x" * 300, "\ud800")
    slips("change id", ids, lambda _, s, x: inside(s.change(id=x), wrote))
    slips("change of", (None, 5, "nobody", "agent:", b"agent:1"), in_store_change)
    for method in ("set", "append", "extend", "delete", "get", "exists", "tail", "length"):
        more = {"set": (1,), "append": (1,), "extend": ([1],), "tail": (1,)}.get(method, ())
        keys = NEW_KEYS if method in ("set", "append", "extend", "delete") else KEYS
        slips(
            f"{method} key in a change",
            keys,
            lambda _, s, x, method=method, more=more: inside(
                s.change(), lambda c: getattr(c, method)(x, *more)
            ),
        )
    slips("set value in a change", VALUES, in_change(lambda c, x: c.set("k", x)))
    slips("append item in a change", VALUES, in_change(lambda c, x: c.append("l", x)))
    slips("if_version in a change", versions, in_change(lambda c, x: c.set("n", 1, if_version=x)))
    slips(
        "extend in a change", (None, 5, "abc", {"a": 1}), in_change(lambda c, x: c.extend("l", x))
    )
    slips("tail in a change", (None, *COUNTS), in_change(lambda c, x: c.tail("l", x)))
    slips("keys in a change", TEXTS, in_change(lambda c, x: c.keys(x)))
    slips("as_ in a change", (3, "int"), in_change(lambda c, x: c.get("n", as_=x)))


def looking_back(slips: Any) -> None:
    slips("checkpoint name", (*TEXTS, "x" * 300), lambda _, s, x: s.checkpoint(x))
    slips("checkpoint type", ("nope", None, 1, []), lambda _, s, x: s.checkpoint(type=x))
    slips("checkpoint tags", ("x", 5, None, [1], [None]), lambda _, s, x: s.checkpoint(tags=x))
    slips("checkpoint description", TEXTS, lambda _, s, x: s.checkpoint(description=x))
    slips("checkpoint metadata", ([], "x", {"a": {1}}), lambda _, s, x: s.checkpoint(metadata=x))
    slips("checkpoints type", ("nope", 1, []), lambda _, s, x: s.checkpoints(type=x))
    slips("checkpoints tag", (1, b"x", []), lambda _, s, x: s.checkpoints(tag=x))
    slips("checkpoints name", (1, b"x", []), lambda _, s, x: s.checkpoints(name=x))
    slips("checkpoints limit", COUNTS, lambda _, s, x: s.checkpoints(limit=x))
    points = (None, *POINTS, NAIVE, BEFORE_ALL)
    slips("restore point", points, lambda _, s, x: s.restore(x))
    slips("restore verify", ("all", None, 1, True), lambda _, s, x: s.restore(1, verify=x))
    slips("restore reason", OPTIONAL_TEXTS, lambda _, s, x: s.restore(1, reason=x))
    slips("restore dry_run", FLAGS, lambda _, s, x: s.restore(1, dry_run=x))
    slips("restore past_damage", FLAGS, lambda _, s, x: s.restore(1, past_damage=x))
    slips("restore if_head", (-1, 1.5, "1", True, 99), lambda _, s, x: s.restore(1, if_head=x))
    slips("dry restore point", points, lambda _, s, x: s.restore(x, dry_run=True))
    slips("adopt", (None, 1, b"x", "", "nobody"), lambda _, s, x: s.adopt(x))
    slips("adopt reason", OPTIONAL_TEXTS, lambda _, s, x: s.adopt("trial", reason=x))
    slips("on", (None, 1, b"x", "", "a@b"), lambda _, s, x: s.on(x))
    slips("on nothing", ("nobody",), lambda _, s, x: s.on(x).set("k", 1))
    slips("at", points, lambda _, s, x: s.at(x))
    slips("fork name", (*TEXTS, "", "a@b", "x" * 200, "trial"), lambda _, s, x: s.fork(x))
    slips("fork at", (*POINTS, NAIVE, BEFORE_ALL), lambda _, s, x: s.fork("new", at=x))
    slips("diff since", points, lambda _, s, x: s.diff(x))
    slips("diff until", (*POINTS, NAIVE), lambda _, s, x: s.diff(1, x))
    slips("log key", KEYS[1:], lambda _, s, x: s.log(key=x))
    slips("log kind", ("nope", 1, []), lambda _, s, x: s.log(kind=x))
    slips("log actor", (1, b"x"), lambda _, s, x: s.log(actor=x))
    slips("log correlation", (1, b"x"), lambda _, s, x: s.log(correlation=x))
    slips("log since", (*TIMES, -1), lambda _, s, x: s.log(since=x))
    slips("log until", (*TIMES, -1), lambda _, s, x: s.log(until=x))
    slips("log limit", COUNTS, lambda _, s, x: s.log(limit=x))
    slips("log newest_first", FLAGS, lambda _, s, x: s.log(newest_first=x))
    slips("replay function", FUNCTIONS, lambda _, s, x: s.replay(x))
    slips("replay since", (None, *COUNTS), lambda _, s, x: s.replay(lambda a, _: a, since=x))
    slips("replay until", COUNTS, lambda _, s, x: s.replay(lambda a, _: a, until=x))
    undoing(slips)
    proving(slips)
    looking_up(slips)
    long_values(slips)


def long_values(slips: Any) -> None:
    """Bytes in pieces, and files."""
    no_bytes = (*KEYS, "nothing", "n", "m", "l")
    paths = (None, 5, True, b"x", "", "no/such/folder/x", ".")
    bounds = (1.5, "1", True, [1])
    slips("open_read key", no_bytes, lambda _, s, x: inside(s.open_read(x), lambda _: None))
    slips("read_range key", no_bytes, lambda _, s, x: s.read_range(x))
    slips("read_range start", bounds, lambda _, s, x: s.read_range("b", x))
    slips("read_range stop", bounds, lambda _, s, x: s.read_range("b", 0, x))
    slips("get_file key", no_bytes, lambda _, s, x: s.get_file(x, "out"))
    slips("get_file path", paths, lambda _, s, x: s.get_file("b", x))
    slips("put_file key", NEW_KEYS, lambda _, s, x: s.put_file(x, __file__))
    slips("put_file path", paths, lambda _, s, x: s.put_file("k", x))
    slips("open_write key", NEW_KEYS, lambda _, s, x: inside(s.open_write(x), written))
    versions = (-1, 1.5, "1", True, b"1", 10**30, 99)
    slips(
        "open_write if_version",
        versions,
        lambda _, s, x: inside(s.open_write("n", if_version=x), written),
    )
    slips(
        "open_write data",
        (None, 1, "x", [1], 1.5),
        lambda _, s, x: inside(s.open_write("k"), lambda file: file.write(x)),
    )
    slips("put_file if_version", versions, lambda _, s, x: s.put_file("n", __file__, if_version=x))
    slips("seek", ((-1, 0), (0, 3), ("1", 0), (-99, 2)), in_seek)
    slips("sweep wait", FLAGS, lambda t, _, x: t.sweep(wait=x))


def written(file: Any) -> Any:
    return file.write(b"bytes")


def in_seek(_: Any, state: Any, wrong: Any) -> Any:
    return inside(state.open_read("b"), lambda file: file.seek(*wrong))


def lasting(slips: Any) -> None:
    """Expiry and classes."""
    terms = (0, -1, True, "1", b"1", [1], float("nan"), 1e18)
    slips("set ttl", terms, lambda _, s, x: s.set("n", 1, ttl=x))
    slips("set expires", (*TIMES, 5), lambda _, s, x: s.set("n", 1, expires=x))
    slips("set sliding", FLAGS, lambda _, s, x: s.set("n", 1, ttl=1, sliding=x))
    slips("set class_", (1, "", "secret", b"x"), lambda _, s, x: s.set("n", 1, class_=x))
    slips("expire key", (*NEW_KEYS, "nothing"), lambda _, s, x: s.expire(x, 1))
    slips("expire ttl", (*terms, None), lambda _, s, x: s.expire("n", x))
    slips("expire expires", (*TIMES, 5), lambda _, s, x: s.expire("n", expires=x))
    slips("persist key", (*NEW_KEYS, "nothing"), lambda _, s, x: s.persist(x))
    slips("sweep limit", COUNTS, lambda _, s, x: s.sweep(limit=x))
    slips("sweep everywhere limit", COUNTS, lambda t, _, x: t.sweep(limit=x))
    slips("Classed", (1, "", "ephemeral", b"x"), lambda _, s, x: s.declare(Classed("a/", x)))
    slips("declare", (None, 1, "a/"), lambda _, s, x: s.declare(x))
    slips("undeclare", (None, 1, "a/"), lambda _, s, x: s.undeclare(x))
    slips("diff reveal", FLAGS, lambda _, s, x: s.diff(1, reveal=x))


def undoing(slips: Any) -> None:
    """Revert and merge."""
    texts = (*OPTIONAL_TEXTS, "", "nobody")
    entries = (
        1,
        "1",
        b"1",
        {},
        [],
        [None],
        [1.5],
        [True],
        [0],
        [-1],
        [99],
        ["trial@1"],
        [object()],
    )
    slips("revert correlation", texts, lambda _, s, x: s.revert(correlation=x))
    slips("revert actor", texts, lambda _, s, x: s.revert(actor=x))
    slips("revert entries", entries, lambda _, s, x: s.revert(entries=x))
    slips("revert dry_run", FLAGS, lambda _, s, x: s.revert(entries=[1], dry_run=x))
    slips("revert reason", OPTIONAL_TEXTS, lambda _, s, x: s.revert(entries=[1], reason=x))
    slips(
        "merge",
        (None, 1.5, b"trial", "nothing", "", "trial@99", "@1", []),
        lambda _, s, x: s.merge(x),
    )
    strategies = (None, 1, "mine", "", [], {}, "OURS")
    slips("merge strategy", strategies, lambda _, s, x: s.merge("trial", strategy=x))
    slips("merge dry_run", FLAGS, lambda _, s, x: s.merge("trial", dry_run=x))
    slips("merge reason", OPTIONAL_TEXTS, lambda _, s, x: s.merge("trial", reason=x))
    slips("why_kept point", POINTS, lambda _, s, x: s.why_kept(x))
    slips("history key", KEYS, lambda _, s, x: s.history(x))
    slips("history limit", COUNTS, lambda _, s, x: s.history("m", limit=x))
    slips("blame key", KEYS, lambda _, s, x: s.blame(x))
    slips("blame limit", (*COUNTS, None), lambda _, s, x: s.blame("m", limit=x))
    slips("blame reveal", FLAGS, lambda _, s, x: s.blame("m", reveal=x))
    slips("undo reason", OPTIONAL_TEXTS, lambda _, s, x: s.undo(reason=x))


def looking_up(slips: Any) -> None:
    """Lookups, and asking them."""
    slips("find lookup", (*TEXTS, "", "nothing"), lambda _, s, x: s.find(x))
    slips("find where", (1, "n", [1], {"b": 1}, {1: 1}), lambda _, s, x: s.find("by_a", x))
    terms = ([], {}, object(), NAIVE, 1j, {1})
    slips("find term", terms, lambda _, s, x: s.find("by_a", a=x))
    slips("find order", (1, b"a", "", "b", "--a", ["a"]), lambda _, s, x: s.find("by_a", order=x))
    slips("find limit", COUNTS, lambda _, s, x: s.find("by_a", limit=x))
    slips("find after", (1, b"a", ["a"], "§", "a" * 5), lambda _, s, x: s.find("by_a", after=x))
    slips("find values", FLAGS, lambda _, s, x: s.find("by_a", values=x))
    slips("find plain", FLAGS, lambda _, s, x: s.find("by_a", plain=x))
    slips("rebuild", FLAGS, lambda _, s, x: s.declare(Lookup("by_a", terms="a"), rebuild=x))
    slips("Range", terms, lambda _, s, x: s.find("by_a", a=Range(ge=x)))
    slips("Begins", (None, 1, [], "x" * 257), lambda _, s, x: s.find("by_a", a=Begins(x)))
    names = (*TEXTS, "", "a/b", "a" * 65, "\ud800", "..")
    slips("Lookup", names, lambda _, s, x: s.declare(Lookup(x, terms="a")))
    prefixes = (None, 1, b"k", "a//b", "../a", "__a", "$terms/", "$declared/x")
    slips("Lookup prefix", prefixes, lambda _, s, x: s.declare(Lookup("n", x, "a")))
    paths = (None, 1, [], {}, "", [1], {"a": 1}, {1: "a"}, "a[", "..", "a[b]", "a[][][]", b"a")
    slips("Lookup terms", paths, lambda _, s, x: s.declare(Lookup("n", "", x)))


def proving(slips: Any) -> None:
    """Proofs and chains."""
    slips("prove key", KEYS, lambda _, s, x: s.prove(x))
    slips("prove at", (*POINTS, 1), lambda _, s, x: s.prove("m", at=x))
    paths = (None, 1, b"x", "", "a\0b", "no folder/x")
    slips("export_chain path", paths, lambda _, s, x: s.export_chain(x))
    slips("cosign checkpoint", (*POINTS, 1), lambda _, s, x: s.cosign(x, signer="file:none"))
    signers = (None, 1, b"file:x", "", "file:", "hybrid:x", "file:none", ["file:x"])
    slips("cosign signer", signers, lambda _, s, x: s.cosign("safe", signer=x))
    slips("export_chain feed", FLAGS, lambda _, s, x: s.export_chain("never", feed=x))


def of_the_store(slips: Any) -> None:
    scopes = (None, 1, 1.5, b"agent:1", "nobody", "agent:", ":1", "global:x", "tool:1", "")
    slips("scope", scopes, lambda t, _, x: t.scope(x))
    for kind in ("agent", "workflow", "session"):
        slips(kind, IDS, lambda t, _, x, kind=kind: getattr(t, kind)(x))
    slips("custom", IDS[:-1], lambda t, _, x: t.custom(x))
    slips("step", IDS[:5], lambda t, _, x: t.step(x, "1"))
    slips("step of", IDS[:5], lambda t, _, x: t.step("1", x))
    slips("scopes kind", ("nope", 1, []), lambda t, _, x: t.scopes(kind=x))
    slips("scopes prefix", TEXTS, lambda t, _, x: t.scopes(prefix=x))
    slips("scopes limit", COUNTS, lambda t, _, x: t.scopes(limit=x))
    slips("scopes after", (1, b"x", 1.5), lambda t, _, x: t.scopes(after=x))
    slips("delete scope", (*scopes, "agent:nobody"), lambda t, _, x: t.delete(x))
    slips("revert everywhere", (*TEXTS, "", "nobody"), lambda t, _, x: t.revert(correlation=x))
    slips(
        "revert everywhere dry_run", FLAGS, lambda t, _, x: t.revert(correlation="run", dry_run=x)
    )
    slips(
        "revert everywhere reason",
        OPTIONAL_TEXTS,
        lambda t, _, x: t.revert(correlation="run", reason=x),
    )
    slips("erase scope", (*scopes, "agent:nobody"), lambda t, _, x: t.erase(x))
    for name in ("rotate", "reseal"):
        slips(
            f"{name} scope",
            (*scopes, "agent:nobody"),
            lambda t, _, x, name=name: getattr(t, name)(x),
        )
    slips("erase_subject", ("", 1, b"x", "x" * 257, "nobody"), lambda t, _, x: t.erase_subject(x))
    slips("subjects", (1, b"x", None), lambda t, _, x: t.subjects(prefix=x))
    for name in ("set", "append"):
        slips(
            f"{name} subject",
            ("", 1, b"x", "x" * 257, "\ud800"),
            lambda _, s, x, name=name: getattr(s, name)("new", 1, subject=x),
        )
    slips("extend subject", ("", 1, b"x"), lambda _, s, x: s.extend("new", [1], subject=x))
    sources = (*TEXTS, "", "hush", "file:", "env:", "passphrase:", "env:HOLDFAST_NOT_SET")
    for name in ("rotate_master", "begin_rotation"):
        slips(f"{name} key", sources, lambda t, _, x, name=name: getattr(t, name)(x))
    slips("add_key", sources[:-1], lambda t, _, x: t.add_key(x))
    for name in ("actor", "reason", "correlation", "parent", "component", "operation"):
        slips(
            f"acting {name}",
            OPTIONAL_TEXTS,
            lambda t, _, x, name=name: t.acting(**{name: x}),
        )
    names = (None, 1, b"x", "", "a//b", "__x", "$x", "x" * 257)
    seconds = (-1, "1", True, float("nan"), None, [1])
    slips("lease", names, lambda t, _, x: held(t.lease(x, wait=0)))
    slips(
        "lease duration",
        (*seconds, 0, 1e9),
        lambda t, _, x: held(t.lease("l", duration=x, wait=0)),
    )
    slips("lease wait", (*seconds[:4], [1]), lambda t, _, x: held(t.lease("l", wait=x)))
    slips(
        "lease owner",
        ("", 1, b"x", "x" * 257),
        lambda t, _, x: held(t.lease("l", wait=0, owner=x)),
    )
    slips("break_lease", (*names, "nobody"), lambda t, _, x: t.break_lease(x))
    slips("add_gate", (None, 1, object(), holdfast.Gate), lambda t, _, x: t.add_gate(x))
    slips("remove_gate", (None, 1, object()), lambda t, _, x: t.remove_gate(x))
    positions = (3, "x", [1], {"a": 1}, {1: "x"}, {99: 1}, {1: -1}, {True: 1}, 1.5)
    slips("feed", positions, lambda t, _, x: t.feed(x))
    slips("watch", (7, "x", ["agent:1"], "", True), lambda t, _, x: t.watch(x))
    slips("watch since", positions, lambda t, s, x: s.watch(since=x))
    slips("watch prefix", (None, 7, b"x"), lambda t, s, x: s.watch(prefix=x))
    slips("watch pattern", ("", 7, b"x", ["x"]), lambda t, s, x: s.watch(pattern=x))
    slips("watch timeout", (-1, "1", True, float("nan")), lambda t, s, x: s.watch(timeout=x))
    slips("correlated", (*TEXTS, "\ud800"), lambda t, _, x: t.correlated(x))
    slips("correlated since", (*TIMES, 5), lambda t, _, x: t.correlated("run", since=x))
    slips("correlated until", (*TIMES, 5), lambda t, _, x: t.correlated("run", until=x))
    slips("correlated limit", COUNTS, lambda t, _, x: t.correlated("run", limit=x))
    slips("verify scope", (1, b"x", "nope", "agent:nobody"), lambda t, _, x: t.verify(x))
    texts = (1, b"x", "x", "")
    slips("verify expect", texts, lambda t, _, x: t.verify(expect=x))
    slips("verify identity", texts, lambda t, _, x: t.verify(identity=x))
    slips("verify trust", (1, "ab", ["ab"], [1], b"x"), lambda t, _, x: t.verify(trust=x))
    slips("verify require", (0, 1, -1, "1", True), lambda t, _, x: t.verify(require=x))
    slips("verify resume", texts, lambda t, _, x: t.verify(resume=x))
    slips("verify budget", ("1", -1, True, float("nan")), lambda t, _, x: t.verify(budget=x))
    slips("verify progress", (5, "f"), lambda t, _, x: t.verify(progress=x))


class inside:
    """A block, and what is called in it."""

    def __init__(self, block: Any, call: Callable[[Any], Any]) -> None:
        self.block, self.call = block, call


def held(block: Any) -> inside:
    return inside(block, lambda _: None)


def wrote(change: Any) -> None:
    change.set("k", 1)


def in_store_change(store: Any, _: Any, wrong: Any) -> Any:
    return inside(store.change(), lambda change: wrote(change[wrong]))


def in_change(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda _, state, wrong: inside(state.change(), lambda change: call(change, wrong))


def settle(result: Any) -> None:
    """Run what a call of the blocking face gave."""
    if isinstance(result, inside):
        with result.block as block:
            result.call(block)
    elif hasattr(result, "__enter__"):
        with result:
            pass
    elif inspect.isgenerator(result):
        list(result)


async def settle_async(result: Any) -> None:
    """Run what a call of the async face gave."""
    if isinstance(result, inside):
        async with result.block as block:
            found = result.call(block)
            if inspect.isawaitable(found):
                await found
    elif inspect.isasyncgen(result):
        async for _ in result:
            pass
    elif inspect.isawaitable(result):
        await result
    else:
        settle(result)


def fill(store: sync.Store) -> sync.State:
    """A small history: enough that every call could do something."""
    state = store.agent("1")
    state.set("n", 1)
    state.set("m", {"a": list(range(2000))})
    state.extend("l", range(5))
    state.checkpoint("safe")
    state.fork("trial").set("n", 2)
    with store.acting("somebody", correlation="run"):
        store.agent("2").set("n", 2)
    store.agent("2").checkpoint("theirs")
    state.set("b", b"bytes")
    state.declare(Lookup("by_a", terms="a"))
    return state


TABLE = table()
EXPECTED = (RefusedError, MissingError, Conflict)


def check(name: str, number: int, error: BaseException | None) -> str | None:
    """What is wrong with the answer to a slip."""
    if error is None:
        return f"{name} #{number}: taken"
    if not isinstance(error, EXPECTED):
        return f"{name} #{number}: {type(error).__name__}: {error}"
    if len(str(error)) < 15:
        return f"{name} #{number}: says too little: {error}"
    return None


@pytest.mark.parametrize("name", TABLE)
def test_slips_are_refused(plain: Place, name: str) -> None:
    store = plain.open()
    state = fill(store)
    position, wrong = store.position(), []
    for number, call in enumerate(TABLE[name]):
        error: BaseException | None = None
        try:
            settle(call(store, state))
        except Exception as raised:
            error = raised
        wrong.append(check(name, number, error))
    assert list(filter(None, wrong)) == []
    assert store.position() == position, "nothing was written"


def test_slips_are_refused_by_the_async_face(tmp_path: Any) -> None:
    place = Place("memory", tmp_path, sealed=False)

    async def main() -> list[str | None]:
        wrong = []
        fill(place.open())
        async with holdfast.open(place.url, **place.options()) as store:
            position = await store.position()
            for name, calls in TABLE.items():
                for number, call in enumerate(calls):
                    error: BaseException | None = None
                    try:
                        await settle_async(call(store, store.agent("1")))
                    except Exception as raised:
                        error = raised
                    wrong.append(check(name, number, error))
            assert await store.position() == position, "nothing was written"
        return wrong

    assert list(filter(None, asyncio.run(main()))) == []


OPENING: dict[str, tuple[Any, ...]] = {
    "url": (None, 1, 1.5, b"x", ["x"], "", "nope:x", "file.db", "sqlite:/", "sqlite:a\0b"),
    "key": (1, b"x", "", "nope", "file:", "env:", "env:NOT_SET", "passphrase:", "file:a\0b"),
    "durability": ("x", None, 1, []),
    "create": FLAGS,
    "read_only": FLAGS,
    "signer": (1, b"x", "", "x", "file:", "file:a\0b"),
    "identity": (1, b"x", "", "x"),
    "commit": ("x", 1),
    "registry": (5, "x", holdfast.Registry),
    "limits": (5, {}),
    "clock": (5, "x"),
}


@pytest.mark.parametrize("name", OPENING)
def test_slips_in_opening(tmp_path: Any, monkeypatch: Any, name: str) -> None:
    monkeypatch.chdir(tmp_path)

    async def both(**options: Any) -> None:
        if name != "commit":
            with pytest.raises(RefusedError, match=r".{15}"):
                sync.open(**options)
        with pytest.raises(RefusedError, match=r".{15}"):
            await holdfast.open(**options)

    for wrong in OPENING[name]:
        asyncio.run(both(**{"url": "sqlite:a.db"} | {name: wrong}))
    assert list(tmp_path.iterdir()) == []


def test_points_of_others(plain: Place, tmp_path: Any) -> None:
    store = plain.open()
    state = fill(store)
    (tmp_path / "other").mkdir()
    other = Place("memory", tmp_path / "other", sealed=False)
    theirs = fill(other.open())
    neighbour = store.agent("2")
    points = [neighbour.checkpoints()[0], neighbour.log()[-1], neighbour, neighbour.at(1)]
    points += [theirs.checkpoints()[0], theirs.log()[0]]
    head = state._handle.place()
    for point in points:
        for call in (state.at, state.restore, state.diff, lambda at: state.fork("new", at=at)):
            with pytest.raises(PointNotFoundError, match="agent:1"):
                call(point)
    for entry in (neighbour.log()[-1], theirs.log()[0]):
        with pytest.raises(PointNotFoundError, match="agent:1"):
            state.revert(entries=[entry])
    assert state._handle.place() == head
    other.close()


def test_after_close_everything_is_refused(tmp_path: Any) -> None:
    place = Place("memory", tmp_path, sealed=False)
    calls: dict[str, Call] = {
        **{name: lambda _, s, n=name: getattr(s, n)("n") for name in ("get", "item", "exists")},
        **{name: lambda _, s, n=name: getattr(s, n)() for name in ("keys", "items", "root")},
        **{name: lambda _, s, n=name: getattr(s, n)("l") for name in ("length", "slice")},
        **{name: lambda t, _, n=name: getattr(t, n)() for name in ("position", "scopes", "feed")},
        **{name: lambda t, _, n=name: getattr(t, n)() for name in ("witness", "verify", "stats")},
        "get_many": lambda _, s: s.get_many(["n"]),
        "tail": lambda _, s: s.tail("l", 1),
        "set": lambda _, s: s.set("n", 2),
        "append": lambda _, s: s.append("l", 2),
        "extend": lambda _, s: s.extend("l", [2]),
        "trim": lambda _, s: s.trim("l", keep_last=0),
        "prune": lambda _, s: s.prune(1),
        "declare": lambda _, s: s.declare(holdfast.Sticky("effects/")),
        "undeclare": lambda _, s: s.undeclare(holdfast.Sticky("effects/")),
        "declared": lambda _, s: s.declared(),
        "delete": lambda _, s: s.delete("n"),
        "update": lambda _, s: s.update("n", lambda n: n),
        "change": lambda _, s: inside(s.change(), wrote),
        "store change": lambda t, _: inside(t.change(), lambda c: wrote(c["agent:1"])),
        "checkpoint": lambda _, s: s.checkpoint(),
        "checkpoints": lambda _, s: s.checkpoints(),
        "restore": lambda _, s: s.restore("safe"),
        "dry restore": lambda _, s: s.restore("safe", dry_run=True),
        "adopt": lambda _, s: s.adopt("trial"),
        "at": lambda _, s: s.at("safe"),
        "fork": lambda _, s: s.fork("new"),
        "timelines": lambda _, s: s.timelines(),
        "diff": lambda _, s: s.diff("safe"),
        "class_of": lambda _, s: s._handle.reader.class_of("n"),
        "expire": lambda _, s: s.expire("n", 1),
        "persist": lambda _, s: s.persist("n"),
        "sweep": lambda _, s: s.sweep(),
        "sweep everywhere": lambda t, _: t.sweep(),
        "log": lambda _, s: s.log(),
        "replay": lambda _, s: s.replay(lambda a, _: a),
        "revert": lambda _, s: s.revert(entries=[1]),
        "dry revert": lambda _, s: s.revert(actor="somebody", dry_run=True),
        "revert everywhere": lambda t, _: t.revert(correlation="run"),
        "open_read": lambda _, s: inside(s.open_read("b"), lambda _: None),
        "read_range": lambda _, s: s.read_range("b"),
        "open_write": lambda _, s: inside(s.open_write("b"), written),
        "put_file": lambda _, s: s.put_file("b", __file__),
        "merge": lambda _, s: s.merge("trial"),
        "dry merge": lambda _, s: s.merge("trial", dry_run=True),
        "find": lambda _, s: s.find("by_a"),
        "rebuild": lambda _, s: s.declare(Lookup("by_a", terms="a"), rebuild=True),
        "prove": lambda _, s: s.prove("m"),
        "cosign": lambda _, s: s.cosign("safe", signer="file:none"),
        "export_chain": lambda _, s: s.export_chain("never.chain"),
        "delete scope": lambda t, _: t.delete("agent:1"),
        "erase scope": lambda t, _: t.erase("agent:1"),
        **{name: lambda t, _, n=name: getattr(t, n)("agent:1") for name in ("rotate", "reseal")},
        **{name: lambda t, _, n=name: getattr(t, n)() for name in sorted(KEYRING)},
        "rotate_master": lambda t, _: t.rotate_master("file:new.key"),
        "begin_rotation": lambda t, _: t.begin_rotation("file:new.key"),
        "add_key": lambda t, _: t.add_key("file:new.key"),
        "subjects": lambda t, _: t.subjects(),
        "erase_subject": lambda t, _: t.erase_subject("user:42"),
        "set subject": lambda _, s: s.set("k", 1, subject="user:42"),
        "correlated": lambda t, _: t.correlated("run"),
    }

    async def main() -> None:
        store, closed = place.open(), await holdfast.open(place.url, **place.options())
        state = fill(store)
        store.close()
        await closed.close()
        for name, call in calls.items():
            with pytest.raises(StoreClosedError, match="open it again"):
                settle(call(store, state))
                pytest.fail(name)
            with pytest.raises(StoreClosedError, match="open it again"):
                await settle_async(call(closed, closed.agent("1")))
                pytest.fail(name)

    asyncio.run(main())


def test_the_table_knows_every_public_method() -> None:
    """A method that is new must be put into the table."""
    named = " ".join(TABLE) + " at get_many"
    without_arguments = {"close", "place", "root", "timelines", "position", "identity", "witness"}
    without_arguments |= {"declared"}
    without_arguments |= {"leases", "metrics", "stats"}
    for face in (sync.State, sync.Store, holdfast.State, holdfast.Store):
        for name, _ in inspect.getmembers(face, inspect.isfunction):
            if not name.startswith("_") and name not in without_arguments | KEYRING:
                assert name in named.split(), name
