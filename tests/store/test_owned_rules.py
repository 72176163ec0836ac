"""Each entry of the table of owned prefixes is looked at by what it does, and so is each change of
it: one that is dropped, or has another rule, shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.checkpoints import RestoreRequest
from holdfast.checkpoints.restore_request import Bringing
from holdfast.errors import HoldfastError
from holdfast.store.inner import handle_of, own_change, run_parts
from holdfast.store.journal.declared import OWN
from holdfast.store.rules.classes import inferred
from holdfast.store.rules.owned import TABLE, Owned
from holdfast.store.upkeep.past_needs import PastNeeds

KEYS = {
    "$retention/": "$retention/pin/main@1",
    "$retention/restart/": "$retention/restart/main@1",
    "$shutdown/": "$shutdown/collected",
    "$policy/": "$policy/often",
    "$agent/": "$agent/memory/api_token",
    "$agent/tasks/": "$agent/tasks/t1",
    "$agent/attached/": "$agent/attached/count",
    "$effects/": "$effects/done/send",
    "$handover/": "$handover/x",
    "$handover/log/": "$handover/log/in/1",
    "$mailbox/": "$mailbox/done",
    "$mailbox/inbox/": "$mailbox/inbox/first",
    "$drift/": "$drift/status",
    "$loop/": "$loop/restart",
    "$machine/*/": "$machine/m/data",
    "$machine/*/now": "$machine/m/now",
    "$machine/*/log/": "$machine/m/log/intent",
    "$needs/": "$needs/deltas",
    "$recovery/": "$recovery/x",
    "$recovery/last": "$recovery/last",
    "$access/grants/": "$access/grants/1",
    "$access/parents/": "$access/parents/1",
    "$access/protection/": "$access/protection/1",
    "$reads/": "$reads/1",
    "$import/": "$import/folder",
    "$hooks/": "$hooks/results/a",
    "$told/": "$told/backup.completed",
    "$recovery/alerts/": "$recovery/alerts/a",
    "$recovery/procedures/": "$recovery/procedures/a",
    "$entity/": "$entity/a",
    "$relation/": "$relation/a/b/c",
    "$linked/": "$linked/a",
    "$queue/": "$queue/a/popped",
    "$events/": "$events/1",
    "$request/": "$request/done/1",
    "$schema/": "$schema/a/1",
    "$migrations/": "$migrations/1",
}
"""A key of each entry."""
PLAIN = {
    "restored": "back",
    "merged": ({"ours": 1, "theirs": 1}, True),
    "adopted": (False, True),
    "reverted": (True, True),
    "copied": True,
    "rescued": True,
    "moved": True,
}
"""What becomes of any key."""
STAYS = PLAIN | {
    "restored": "stays, as declared",
    "merged": ({"ours": 1}, False),
    "adopted": (True, False),
}
TIED = {"reverted": (False, False), "value goes back": True}
ALWAYS = STAYS | {"restored": "stays", "copied": False}
EXPECTED: dict[str, dict[str, Any]] = {
    "$retention/": ALWAYS | {"reverted": (False, False), "moved": False, "marks": True},
    "$retention/restart/": ALWAYS | {"rescued": False, "moved": False, "marks": True},
    "$shutdown/": ALWAYS,
    "$policy/": PLAIN | {"copied": False, "rescued": False},
    "$agent/": PLAIN | {"class": "sensitive"},
    "$agent/tasks/": PLAIN | {"class": "sensitive", "along": "$handover/seen/t1"},
    "$agent/attached/": PLAIN | {"class": "sensitive", "signal": True},
    "$effects/": STAYS
    | {
        "merged": ({"ours": 1}, True),
        "adopted": (True, True),
        "reverted": (False, False),
        "later": "$effects/done/a",
        "unreadable": True,
    },
    "$handover/": PLAIN,
    "$handover/log/": STAYS | {"reverted": (False, True)},
    "$mailbox/": PLAIN,
    "$mailbox/inbox/": STAYS,
    "$drift/": STAYS,
    "$loop/": STAYS | {"copied": False, "rescued": False, "moved": False},
    "$machine/*/": PLAIN,
    "$machine/*/now": PLAIN | {"merged": ({"theirs": 1}, True), "along": "$machine/m/data"},
    "$machine/*/log/": STAYS | {"reverted": (False, False)},
    "$needs/": PLAIN | {"needs": True},
    "$recovery/": PLAIN | {"beside": True},
    "$recovery/last": STAYS | {"merged": (1, True), "adopted": (True, True), "beside": True},
    "$access/grants/": PLAIN,
    "$access/parents/": PLAIN,
    "$access/protection/": PLAIN,
    "$reads/": PLAIN,
    "$import/": PLAIN,
    "$hooks/": PLAIN,
    "$told/": PLAIN,
    "$recovery/alerts/": PLAIN | {"beside": True},
    "$recovery/procedures/": PLAIN | {"beside": True},
    "$entity/": PLAIN | TIED,
    "$relation/": PLAIN | TIED,
    "$linked/": PLAIN | TIED | {"merged": ({"theirs": 1}, True)},
    "$queue/": PLAIN | {"merged": ({"theirs": 1}, True)},
    "$events/": PLAIN | {"merged": ({"theirs": 1}, True)},
    "$request/": STAYS,
    "$schema/": STAYS | {"merged": ({"ours": 1}, True), "adopted": (True, True)},
    "$migrations/": STAYS | {"copied": False, "rescued": False, "moved": False},
}
OTHER: dict[str, list[Any]] = {
    "restore": [Owned.BACK, Owned.STAY, Owned.ALWAYS],
    "merge": [Owned.THREE_WAY, Owned.UNION, Owned.WHOLE],
    "revert": [Owned.BACK, Owned.NEVER, Owned.TOGETHER, Owned.VALUE],
    "copy": [Owned.ANYWHERE, Owned.SCOPE, Owned.NOWHERE],
    "phases": [("",)],
    "along": [""],
    "signal": [""],
    "unreadable": [None],
    "needs": [False],
    "marks": [False],
    "named": [False, True],
    "beside": [False, True],
}


def write(state: sync.State, values: dict[str, Any], **cause: Any) -> int:
    """Keys of a feature, in one entry."""
    parts = own_change(state, **cause)
    for key, value in values.items():
        parts.part(handle_of(state)).set(key, value)
    run_parts(parts)
    return state.log(limit=1)[0].sequence


def restored(store: sync.Store, key: str) -> str:
    state = store.agent("restored")
    before = state.checkpoint("before")
    write(state, {key: {"a": 1}})
    state.restore(before)
    if not state.exists(key):
        return "back"
    return "stays, as declared" if state.keys("$declared/sticky/") else "stays"


def forked(store: sync.Store, key: str, name: str) -> tuple[sync.State, sync.State, str, str]:
    """A state and a fork that have both changed the key, and have one more each of their own."""
    state = store.agent(name)
    write(state, {key: {"was": 1}})
    write(state, {key: {}})
    fork = state.fork("other")
    ours, theirs = key + "1", key + "2"
    if TABLE.index.rule(ours) != TABLE.index.rule(key):  # an entry of a single key
        ours, theirs = (key.replace("/m/", f"/{one}/") for one in ("o", "t"))
    write(state, {key: {"ours": 1}, ours: 1})
    write(fork, {key: {"theirs": 1}, theirs: 1})
    return state, fork, ours, theirs


def merged(store: sync.Store, key: str) -> tuple[Any, bool]:
    state, _, _, theirs = forked(store, key, "merged")
    state.merge("other", strategy="theirs")
    return state.get(key), state.exists(theirs)


def adopted(store: sync.Store, key: str) -> tuple[bool, bool]:
    state, fork, ours, theirs = forked(store, key, "adopted")
    state.restore(fork.checkpoint("there"))
    return state.exists(ours), state.exists(theirs)


def reverted(store: sync.Store, key: str) -> tuple[bool, bool]:
    """Whether it is undone alone, and with all that was written with it."""
    alone, both = store.agent("alone"), store.agent("both")
    alone.revert(entries=[write(alone, {key: 1})])
    write(both, {key: 1}, correlation="c")
    store.revert(correlation="c")
    return not alone.exists(key), not both.exists(key)


def value_goes_back(store: sync.Store, key: str) -> bool:
    """Whether what it says is undone, where it was there before."""
    state = store.agent("value")
    write(state, {key: 1})
    state.revert(entries=[write(state, {key: 2})])
    return bool(state.get(key) == 1)


def copied(store: sync.Store, key: str) -> bool:
    """Whether it comes with the state of another scope."""
    source, state = store.agent("source"), store.agent("copied")
    write(source, {key: 1})
    made = source.checkpoint("there")
    sync.checkpoints.Checkpoints(state).restore(RestoreRequest(made, source=source.scope))
    return state.exists(key)


def rescued(store: sync.Store, key: str) -> bool:
    """Whether it comes with the state of another scope where nothing is left of its own: then what
    is sticky comes along, as in a recovery from a copy."""
    source, state = store.agent("saved"), store.agent("rescued")
    write(source, {key: 1})
    there = handle_of(source).history.points.line()
    Bringing(handle_of(state), there, "there", None, None, None, sticky=True).run(None)
    return state.exists(key)


def moved(store: sync.Store, key: str, folder: Path) -> bool:
    """Whether it comes with the scope to another store."""
    source = store.agent("moved")
    write(source, {key: 1})
    file = folder / "moved.hfx"
    file.unlink(missing_ok=True)
    sync.checkpoints.export_checkpoint(source, file, at=source.checkpoint("it"), plain=True)
    with sync.open("memory:") as other:
        state = other.agent("moved")
        sync.checkpoints.import_checkpoint(state, file, untrusted=True)
        return state.exists(key)


def erased(store: sync.Store, key: str) -> bool:
    """Whether what is kept of it beside a scope is erased with that."""
    state, ends = store.agent("erased"), [at for at, one in enumerate(key) if one == "/"]
    kept = [store.scope(f"custom:{key[:end]}/{state.scope}") for end in ends]
    state.set("a", 1)
    for one in kept:
        write(one, {key: 1})
    store.erase(state.scope)
    return not all(one.exists(key) for one in kept)


def told(key: str) -> dict[str, Any]:
    """What else is read from the table of a key."""
    index, found = TABLE.index, {}
    secret = key.rpartition("/")[0] + "/api_token"
    if inferred.__wrapped__(secret) != "standard":
        found["class"] = inferred.__wrapped__(secret)
    if index.along(key):
        assert index.leader(index.along(key) or "") == key
        found["along"] = index.along(key)
    rule = index.rule(key)
    if rule is not None:
        first = rule.prefix + rule.phases[0] + "a"
        later = rule.in_phase(first, len(rule.phases) - 1) if "*" not in first else first
        found |= {"later": later} if later != first else {}
        found |= {"unreadable": True} if rule.unreadable is not None else {}
    with suppress(IndexError):
        found |= {"marks": True} if key.startswith(index.marks) else {}
    return found


def signals(store: sync.Store, key: str) -> bool:
    state = store.agent("signals")
    write(state, {"$agent/attached": {"n": 1}, key: 1})
    before = state.checkpoint("before")
    write(state, {key: 2})
    sync.checkpoints.Checkpoints(state).restore(RestoreRequest(before, keys=[key]))
    return "$agent/attached" in state.log(limit=1)[0].keys


def needed(store: sync.Store, key: str) -> bool:
    state = store.agent("needs")
    state.set("a", 1)
    write(state, {key: 1})
    line = handle_of(state).history.points.line()
    return PastNeeds(line).of(line) == [1]


def observed(store: sync.Store, key: str, folder: Path) -> dict[str, Any]:
    """All of it."""
    found: dict[str, Any] = {
        "restored": restored(store, key),
        "merged": merged(store, key),
        "adopted": adopted(store, key),
        "reverted": reverted(store, key),
        "copied": copied(store, key),
        "rescued": rescued(store, key),
        "moved": moved(store, key, folder),
        **told(key),
    }
    if key != "$agent/attached" and signals(store, key):
        found["signal"] = True
    if found["reverted"] == (False, False) and value_goes_back(store, key):
        found["value goes back"] = True
    found |= {"beside": True} if erased(store, key) else {}
    return found | ({"needs": True} if needed(store, key) else {})


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Owned]]:
    """The entries, which a test may change."""
    assert TABLE.index
    entries = {prefix: one for prefix, one in TABLE.entries.items() if prefix[0] == "$"}
    monkeypatch.setattr(TABLE, "entries", entries)
    TABLE.forget()
    yield entries
    TABLE.forget()


def test_all_entries_are_looked_at(table: dict[str, Owned]) -> None:
    assert set(table) == set(EXPECTED) == set(KEYS)
    assert {one.name for one in fields(Owned)} == {*OTHER, "prefix", "whole", "why"}


@pytest.mark.parametrize("prefix", KEYS)
def test_what_becomes_of_keys(prefix: str, table: dict[str, Owned], tmp_path: Path) -> None:
    with sync.open("memory:") as store:
        assert observed(store, KEYS[prefix], tmp_path) == EXPECTED[prefix]


NO_KEYS = ("$migration/", "$runtime/")
"""How a timeline and a scope begin."""


def test_all_keys_that_features_name_are_declared() -> None:
    source = Path(holdfast.__file__).parent
    files = [file for file in source.rglob("*.py") if source / "store" not in file.parents]
    named = {key for file in files for key in re.findall(r"""["'`](\$[a-z]+/)""", file.read_text())}
    known = (*(one.prefix for one in TABLE.index.entries), *OWN, *NO_KEYS)
    assert "$effects/" in named
    assert [key for key in named if not any(one.startswith(key) for one in known)] == []


CLAIMS = (
    *("$handover/", "$mailbox/", "$machine/*/"),
    *("$access/grants/", "$access/parents/", "$access/protection/", "$reads/", "$import/"),
    *("$hooks/", "$told/"),
    *("$recovery/alerts/", "$recovery/procedures/"),
)
"""They have the rules of all keys, and only say whose keys these are: see test_owned."""


@pytest.mark.parametrize("prefix", [one for one in KEYS if one not in CLAIMS])
def test_an_entry_that_is_dropped_shows(
    prefix: str, table: dict[str, Owned], tmp_path: Path
) -> None:
    del table[prefix]
    TABLE.forget()
    assert differs(prefix, tmp_path)


def _entry(prefix: str) -> Owned:
    return next(one for one in TABLE.index.entries if one.prefix == prefix)


def swaps() -> Iterator[Any]:
    """(prefix, rule, other value) of what can be told from the rule that there is."""
    for prefix, one in ((prefix, _entry(prefix)) for prefix in KEYS):
        for name, values in OTHER.items():
            for value in values:
                own, whole = getattr(one, name), getattr(one.whole, name, None)
                # Marks stay whatever they are merged with, and move to no other store.
                far = name == "copy" and Owned.ANYWHERE not in (own, value)
                always = one.marks and (name == "merge" or far)
                left = name == "merge" and one.restore != Owned.BACK and value != Owned.UNION != own
                # What a whole says of its prefix counts for its parts; a star takes no such rule.
                along = name in ("restore", "marks") and own == whole != Owned.BACK
                along = along or (name == "beside" and whole is not None)
                star = "*" in prefix and (value == Owned.ALWAYS or name in ("copy", "beside"))
                one_key = prefix[-1] != "/" and (name == "named" or value == Owned.UNION)
                if value != own and not (always or left or along or star or one_key):
                    yield pytest.param(prefix, name, value, id=f"{prefix}-{name}-{value}")


@pytest.mark.parametrize(("prefix", "name", "value"), list(swaps()))
def test_another_rule_shows(
    prefix: str, name: str, value: Any, table: dict[str, Owned], tmp_path: Path
) -> None:
    other = copy(table[prefix])
    object.__setattr__(other, name, value)
    if name == "revert":
        object.__setattr__(other, "why", "so" if value != Owned.BACK else "")
    table[prefix] = other
    TABLE.forget()
    assert differs(prefix, tmp_path)


def differs(prefix: str, folder: Path) -> bool:
    """Whether something becomes of keys that should not."""
    with sync.open("memory:") as store:
        try:
            return observed(store, KEYS[prefix], folder) != EXPECTED[prefix]
        except (HoldfastError, AssertionError):
            return True
