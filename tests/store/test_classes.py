"""State classes: how they are found, and what each one changes."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import GateRefusedError, InvalidInputError, InvalidValueError
from holdfast.seal.compress import BLOCK
from holdfast.seal.registry import Registry
from holdfast.store.journal.declared import NOTHING, Declared
from holdfast.store.journal.lifetime import CLASSES
from holdfast.store.journal.timeline import DELTA_EVERY
from holdfast.store.names.items import MASK
from holdfast.store.rules import classes

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
SECRET = "hunter2-hunter2-hunter2"


def table(title: str) -> list[list[str]]:
    """The cells of the table under a heading of the page, without its head."""
    rows = re.findall(r"^\|(.*)\|$", PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0], re.M)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def test_the_page_names_the_classes() -> None:
    assert tuple(row[0].strip("`") for row in table("Classes")) == CLASSES


def test_the_page_says_what_a_key_tells() -> None:
    rows = table("What a key tells")
    assert {row[0].strip("`") for row in rows} == {"sensitive", "external", "standard"}
    for class_, words, examples in rows:
        found = re.findall(r"`([^`]+)`", examples)
        assert found
        for key in found:
            assert classes.inferred(key) == class_.strip("`"), key
        if class_ == "`sensitive`":
            ends = {"_".join(end) for end in classes.AT_THE_END}
            assert set(re.findall(r"`([^`]+)`", words)) == classes.ANYWHERE | ends
        if class_ == "`external`":
            assert tuple(re.findall(r"`([^`]+)`", words)) == classes.OUTSIDE


def test_names_below_an_agent_tell_their_class() -> None:
    for key in ("$agent/attached/db%2Fpassword", "$agent/memory/short_term/a/api_token"):
        assert classes.inferred(key) == "sensitive"
    for key in ("$agent/attached/token_count", "$agent/conversation", "$effects/done/password"):
        assert classes.inferred(key) == "standard"


@pytest.mark.parametrize("declared", [NOTHING, Declared([holdfast.Classed("a", "sensitive")])])
def test_many_keys_at_once_tell_what_each_tells(declared: Declared) -> None:
    def one_by_one(keys: list[str]) -> bool:
        return any(classes.class_of(key, b"", declared) == "sensitive" for key in keys)

    harmless = ["a", "Pass/Word", "token_count", "keys", "secretary", "$effects/done/password"]
    telling = [
        "API_TOKEN",
        "db.Password",
        "$agent/attached/db%2Fpassword",
        "x/accessKey",
        "\u212a/secret",
    ]
    for keys in ([], harmless, *([*harmless, key] for key in telling), harmless[1:]):
        leaves = [dict.fromkeys(keys[:3], b""), {}, dict.fromkeys(keys[3:], b"")]
        told = classes.any_sensitive(leaves, lambda: declared)
        assert told == one_by_one(keys), keys


@pytest.mark.spec("L119")
def test_which_class_wins(store: sync.Store) -> None:
    state = store.agent("a")
    assert state._handle.reader.class_of("billing/token_count") == "standard"
    assert state._handle.reader.class_of("billing/api_token") == "sensitive"
    state.declare(holdfast.Classed("billing/", "sensitive"))
    state.declare(holdfast.Classed("billing/open/", "standard"))
    state.set("billing/x", 1)
    assert state.item("billing/x").class_ == "sensitive"  # type: ignore[union-attr]
    assert state._handle.reader.class_of("billing/open/api_token") == "standard"
    state.set("billing/x", 1, class_="standard")
    assert state._handle.reader.class_of("billing/x") == "standard"
    state.append("list", 1)
    state.set("list", [1], class_="sensitive", ttl=60)
    state.append("list", 2)
    state.update("list", lambda value: [*value, 3])
    state.persist("list")
    assert state._handle.reader.class_of("list") == "sensitive"
    state.set("list", [1])
    assert state._handle.reader.class_of("list") == "standard"
    state.undeclare(holdfast.Classed("billing/", "sensitive"))
    assert state._handle.reader.class_of("billing/y") == "standard"
    assert store.agent("none")._handle.reader.class_of("api_token") == "sensitive"
    assert store.verify().ok


@pytest.mark.parametrize("class_", ["secret", "", 1, "ephemeral"])
def test_what_is_no_class_is_refused(store: sync.Store, class_: Any) -> None:
    with pytest.raises(InvalidInputError):
        store.agent("a").set("k", 1, class_=class_)
    with pytest.raises(InvalidInputError):
        holdfast.Classed("k/", class_)


def test_a_name_never_makes_a_key_less_durable(place: Place) -> None:
    place.open().agent("a").set("temp:x", 1)
    place.open().agent("a").set("cache:x", 1)
    assert place.reopen().agent("a").keys() == ["cache:x", "temp:x"]


# trusted


class Noting(holdfast.Gate):
    """A gate that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.read: list[holdfast.GateReading] = []

    def before(self, request: holdfast.GateRequest) -> None:
        self.asked += [one.key for one in request.operations]

    def reading(self, reading: holdfast.GateReading) -> None:
        self.read.append(reading)


class Guard(Noting):
    access = True


@pytest.mark.spec("L121", "L122", "L125")
def test_trusted_passes_no_gate_but_access(store: sync.Store) -> None:
    state = store.agent("a")
    gate, guard = Noting(), Guard()
    store.add_gate(gate)
    store.add_gate(guard)
    state.declare(holdfast.Classed("internal/", "trusted"))
    gate.asked.clear()
    guard.asked.clear()
    state.set("counter", 42, class_="trusted")
    state.append("internal/log", 1)
    state.delete("internal/log")
    assert gate.asked == []
    assert guard.asked == ["counter", "internal/log", "internal/log"]
    with state.change() as change:
        change.set("counter", 43, class_="trusted")
        change.set("other", 1)
    assert gate.asked == ["counter", "other"], "a change is asked about whole, or not at all"


def test_trusted_holds_for_long_values(place: Place, tmp_path: Path) -> None:
    store = place.open()
    state = store.agent("a")
    state.declare(holdfast.Classed("internal/", "trusted"))
    gate, guard = Noting(), Guard()
    store.add_gate(gate)
    store.add_gate(guard)
    path = tmp_path / "long"
    path.write_bytes(b"y" * 2_000_000)
    state.set("internal/whole", b"x" * 2_000_000)
    with state.open_write("internal/pieces") as file:
        file.write(b"x" * 2_000_000)
    state.put_file("internal/file", path)
    assert gate.asked == []
    assert set(guard.asked) == {"internal/whole", "internal/pieces", "internal/file"}
    state.put_file("other", path)
    assert set(gate.asked) == {"other"}


def test_trusted_holds_for_what_keeps_the_value(place: Place) -> None:
    store = place.open()
    state, gate = store.agent("a"), Noting()
    state.set("log", [1], class_="trusted")
    state.set("told", 1)
    store.add_gate(gate)
    state.append("log", 2)
    state.extend("log", [3])
    state.update("log", lambda items: [*items, 4])
    state.trim("log", keep_last=3)
    state.expire("log", ttl=60)
    with state.change() as change:
        change.append("log", 5)
        change.persist("log")
    assert state.get("log") == [2, 3, 4, 5]
    assert state._handle.reader.class_of("log") == "trusted"
    state.delete("log")
    assert gate.asked == []
    state.delete("told")
    assert gate.asked == ["told"]


def test_trusted_ends_with_the_value_that_was_given_it(place: Place) -> None:
    hands = Hands()
    store = place.open(clock=hands.clock)
    state, gate = store.agent("a"), Noting()
    for key in ("deleted", "expired", "set", "beside"):
        state.set(key, [1], class_="trusted", ttl=60 if key == "expired" else None)
    store.add_gate(gate)
    with state.change() as change:
        change.delete("deleted")
        change.append("deleted", 2)
    assert gate.asked == ["deleted", "deleted"]
    gate.asked.clear()
    hands.move(61)
    state.append("expired", 2)
    state.set("set", [2])
    state.append("set", 3)
    assert gate.asked == ["expired", "set", "set"]
    gate.asked.clear()
    with state.change() as change:
        change.append("beside", 2)
        change.append("none", 2)
    assert gate.asked == ["beside", "none"]
    assert {
        state._handle.reader.class_of(key) for key in ("deleted", "expired", "set", "none")
    } == {"standard"}


# external


@dataclass
class Plan:
    goal: str


def nested(depth: int) -> Any:
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


@pytest.mark.spec("L124")
def test_external_takes_plain_data_of_bounded_size(place: Place) -> None:
    registry = Registry()
    registry.register(Plan, name="plan")
    state = place.open(registry=registry).agent("a")
    state.declare(holdfast.Classed("web/", "external"))
    good = [nested(32), "x" * 1_000_000, [{"n": n} for n in range(5000)], None]
    for key in ("web/page", "user_input:7", "external/x"):
        for value in good:
            state.set(key, value)
            assert state.get(key) == value
    bad = [
        nested(33),
        [["x" * 2000], nested(32)],
        "x" * 1_100_000,
        ["x" * 100] * 12_000,
        Plan("ship"),
        {"plans": [Plan("ship")]},
        [["x" * 2000], Plan("y" * 2000)],
    ]
    state.set("web/page", ["before"])
    for value in bad:
        with pytest.raises(InvalidValueError, match="is external"):
            state.set("web/page", value)
        with pytest.raises(InvalidValueError, match="is external"):
            state.set("other", value, class_="external")
        state.set("other", value, class_="standard")
    with pytest.raises(InvalidValueError, match="is external"):
        state.append("web/page", Plan("ship"))
    with pytest.raises(InvalidValueError, match="is external"):
        state.extend("web/page", ["x" * 200_000] * 6)
    for items in ([nested(32)], [1, nested(32)], [["x" * 5000, nested(31)]]):
        with pytest.raises(InvalidValueError, match="nested 33 deep"):
            state.extend("web/page", items)
        with pytest.raises(InvalidValueError, match="nested 33 deep"):
            state.append("web/new", items[-1])
    assert state.get("web/page") == ["before"]
    state.append("web/new", nested(31))
    state.extend("web/new", [nested(31)])
    state.set("web/new", state.get("web/new"))
    state.set("web/page", ["after"], class_="standard")
    state.append("web/page", Plan("ship"))


# sensitive


@pytest.fixture
def secrets(store: sync.Store) -> sync.State:
    """A state with a secret that was changed, and what is none."""
    state = store.agent("a")
    state.set("api_token", {"value": SECRET, "n": 1})
    state.set("plan", {"step": 1})
    state.checkpoint("safe")
    with store.acting("bot", correlation="run"):
        state.set("api_token", {"value": SECRET + "!", "n": 1})
        state.set("note", SECRET, class_="sensitive")
        state.set("plan", {"step": 2})
    return state


@pytest.mark.spec("L123")
def test_sensitive_is_masked_where_it_is_shown(secrets: sync.State) -> None:
    state = secrets
    shown = [
        state.diff("safe"),
        state.diff("safe", state._handle.place()[2]),
        state.restore("safe", dry_run=True),
        state.restore("safe", dry_run=True).diff,
        state.revert(correlation="run", dry_run=True),
        state.revert(correlation="run", dry_run=True).diff,
        state.item("note"),
        state.item("api_token"),
        state.log(),
        holdfast.Operation("set", "api_token", SECRET),
    ]
    for one in shown:
        assert SECRET[:7] not in repr(one), one
        assert SECRET[:7] not in str(one), one
    found = [(c.path, c.kind, c.before, c.after) for c in state.diff("safe")]
    assert found == [
        ("api_token", "changed", MASK, MASK),
        ("note", "added", None, MASK),
        ("plan.step", "changed", 1, 2),
    ]
    assert "<sensitive>" in repr(state.item("note"))


def test_what_gates_are_told_of_shows_no_value(store: sync.Store) -> None:
    """Declared, named or inferred: a gate that logs what it is given tells nobody."""
    told: list[str] = []

    class Log(holdfast.Gate):
        def after(self, change: Any, written: Any) -> None:
            atoms = [op[2:] for target in change.targets for op in target.ops]
            told.extend(map(repr, (change, written, atoms)))
            told.append(str(change))

    state = store.agent("1")
    state.declare(holdfast.Classed("vault/", "sensitive"))
    store.add_gate(Log())
    state.set("api_token", SECRET)
    state.set("vault/long", {SECRET + str(n): [SECRET] * 20 for n in range(200)})
    state.append("vault/list", SECRET)
    with store.change() as change:
        change[state].set("note", SECRET, class_="sensitive")
    assert len(told) == 16
    assert "('set', 'api_token')" in told[0]
    assert [one for one in told if SECRET[:7] in one] == []


def test_what_is_asked_for_is_shown(secrets: sync.State) -> None:
    state = secrets
    assert state.get("note") == SECRET
    assert state.item("note").value == SECRET  # type: ignore[union-attr]
    paths = [(c.path, c.after) for c in state.diff("safe", reveal=True)]
    assert paths[0] == ("api_token.value", SECRET + "!")
    with pytest.raises(InvalidInputError):
        state.diff("safe", reveal=1)  # type: ignore[arg-type]


def test_a_key_that_was_sensitive_on_one_side_is_masked(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("k", SECRET, class_="sensitive")
    first = state._handle.place()[2]
    state.set("k", "open")
    assert SECRET not in str(state.diff(first))
    assert SECRET not in str(state.diff(state._handle.place()[2], first))


def test_each_read_is_told_to_gates(store: sync.Store, secrets: sync.State) -> None:
    state, gate = secrets, Noting()
    store.add_gate(gate)
    state.set("token", [SECRET])
    reads = [
        lambda: state.get("token"),
        lambda: state.get_many(["token", "plan"]),
        lambda: state.item("token"),
        lambda: state.items("t"),
        lambda: state.tail("token", 1),
        lambda: state.slice("token", 0, 1),
        lambda: state.at(state._handle.place()[2]).get("token"),
        lambda: state.update("token", lambda value: value),
        lambda: state.diff("safe", reveal=True),
    ]
    with store.acting("ann"):
        for number, read in enumerate(reads):
            gate.read.clear()
            read()
            assert gate.read, number
            assert {key for one in gate.read for key in one.keys} >= {"token"}, number
            assert {one.cause.actor for one in gate.read} == {"ann"}
            assert "plan" not in gate.read[0].keys
        gate.read.clear()
        with state.change() as change:
            change.get("token")
            change.set("x", 1)
        assert [one.keys for one in gate.read] == [("token",)]
    gate.read.clear()
    state.exists("token")
    state.keys()
    state.diff("safe")
    state.get("plan")
    assert gate.read == []
    store.remove_gate(gate)


def test_a_gate_can_refuse_a_read(store: sync.Store, secrets: sync.State) -> None:
    class Closed(holdfast.Gate):
        def reading(self, reading: holdfast.GateReading) -> None:
            raise ValueError("no")

    store.add_gate(Closed())
    with pytest.raises(GateRefusedError, match="nothing was read"):
        secrets.get("note")
    assert secrets.get("plan") == {"step": 2}


class Adding(holdfast.Gate):
    """Tells what it is given, then writes something secret besides."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def before(self, request: holdfast.GateRequest) -> None:
        self.told.append(repr(request))
        if not any(one.key == "vault/more" for one in request.operations):
            request.operations.append(holdfast.Operation("set", "vault/more", SECRET))


def test_what_gates_in_front_are_asked_shows_no_value(place: Place) -> None:
    """Also of keys that are sensitive by what is declared, or by the value that is kept."""
    store = place.open()
    state, first, second = store.agent("1"), Adding(), Adding()
    state.declare(holdfast.Classed("vault/", "sensitive"))
    state.declare(holdfast.Classed("open_token", "standard"))
    state.set("note", [], class_="sensitive")
    for gate in (first, second):
        store.add_gate(gate)
    state.set("vault/a", SECRET)
    state.append("vault/list", SECRET)
    state.append("note", SECRET)
    state.update("note", lambda items: [*items, SECRET])
    with state.change() as change:
        change.set("fresh", [SECRET], class_="sensitive")
        change.append("fresh", SECRET)
    with state.open_write("vault/long") as file:
        file.write(SECRET.encode())
    assert len(first.told) == len(second.told) == 6
    assert [one for one in first.told + second.told if SECRET[:7] in one] == []
    assert all("vault/more" in one for one in second.told)

    state.set("open_token", SECRET)
    state.set("api_token", SECRET, class_="standard")
    state.set("note", SECRET)
    for told in first.told[-3:]:
        assert SECRET in told, "these are not sensitive"


class Renaming(holdfast.Gate):
    """Gives operations other keys, in place or by a copy that takes the verdict along."""

    access = True

    def __init__(self, key: str, *, in_place: bool) -> None:
        self.key, self.in_place = key, in_place

    def before(self, request: holdfast.GateRequest) -> holdfast.GateRequest | None:
        if not self.in_place:
            renamed = [replace(one, key=self.key) for one in request.operations]
            return replace(request, operations=renamed)
        for one in request.operations:
            one.key = self.key
        return None


@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_gate_renames_is_judged_by_its_new_key(store: sync.Store, in_place: bool) -> None:
    state, log = store.agent("1"), Adding()
    state.declare(holdfast.Classed("known/", "trusted"))
    store.add_gate(Renaming("password", in_place=in_place))
    store.add_gate(log)
    state.set("note", SECRET)
    state.set("known/note", SECRET)  # of which only gates of access would be asked
    assert ["'password'" in one for one in log.told] == [True, True]
    assert [one for one in log.told if SECRET[:7] in one] == []


@pytest.mark.parametrize("declared", [False, True])
def test_sensitive_is_padded_and_not_compressed(tmp_path: Path, declared: bool) -> None:
    """The length of what is stored does not follow that of the value, nor how it compresses."""
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state = store.agent("a")
    key = "k" if declared else "api_token"
    if declared:
        state.declare(holdfast.Classed("k", "sensitive"))

    def stored(value: Any) -> list[int]:
        known = {k for kind in (b"E", b"V") for k, _ in rows_of(place.storage(), kind)}
        state.set(key, value)
        found = [r for kind in (b"E", b"V") for r in rows_of(place.storage(), kind)]
        return [len(row) for k, row in found if k not in known]

    assert stored("a" * 30) == stored("a" * 90) == stored("b")
    assert stored("a" * 600) == stored(noise(600))
    assert sum(stored(["a" * 900] * 20)) > 18_000
    for number in range(2 * DELTA_EVERY):
        state.set(key, "x" * (number % 50))
    state.checkpoint()
    for kind in (b"S", b"N"):
        methods = {row[0] >> 1 & 3 for _, row in rows_of(place.storage(), kind)}
        assert methods == {3}, "what is saved of it is padded, too"
    other = store.agent("b")
    for number in range(2 * DELTA_EVERY):
        other.set(f"plain/{number}", "x" * 50)
    assert {row[0] >> 1 & 3 for _, row in rows_of(place.storage(), b"S")} > {3}
    assert BLOCK > 90
    store.rotate("agent:a")
    store.reseal("agent:a")
    number = store._core.ledger(state.scope).number.to_bytes(6, "big")
    mine = [row for key, row in rows_of(place.storage(), b"N") if key[1:7] == number]
    assert {row[0] >> 1 & 3 for row in mine} == {3}, "so they stay"
    report = store.verify()
    assert report.ok, report
    assert place.reopen().agent("a").get(key) == "x" * (511 % 50)
    place.close()


@pytest.mark.parametrize("how", ["prune", "keep", "lookup"])
def test_what_pruning_saves_of_sensitive_is_padded(tmp_path: Path, how: str) -> None:
    """Pruning writes whole indexes: what they hold of a secret tells no more than its entry."""
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state = store.agent("a")
    if how == "lookup":  # its terms alone tell of the secret
        state.declare(holdfast.Classed("k", "sensitive"))
        state.declare(holdfast.Lookup("l", "k", {"x": "x"}))
        state.set("k1", {"x": "a" * 60})
    else:
        state.set("api_token", "a" * 60)
    state.set("other", 1)
    if how == "keep":
        state.declare(holdfast.Keep(count=0))
        sync.checkpoints.Retention(store).run(state)
    else:
        state.prune(state.checkpoint("c"))

    def methods() -> set[int]:
        return {
            row[0] >> 1 & 3 for kind in (b"B", b"N") for _, row in rows_of(place.storage(), kind)
        }

    assert methods() == {3}
    store.rotate("agent:a")
    store.reseal("agent:a")
    assert methods() == {3}, "so they stay"
    report = store.verify()
    assert report.ok, report
    place.close()


def noise(length: int) -> str:
    import random

    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


def test_classes_in_an_event_loop(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, durability="normal") as store:
            state = store.agent("a")
            await state.declare(holdfast.Classed("in/", "sensitive"))
            await state.set("in/x", SECRET)
            first = state._handle.place()[2]
            async with state.change() as change:
                change.set("y", SECRET, class_="sensitive")
            assert state._handle.reader.class_of("y") == "sensitive"
            assert SECRET not in str(await state.diff(first))
            assert SECRET in str(await state.diff(first, reveal=True))

    asyncio.run(main())


def test_a_function_that_merges_shows_values_only_if_it_means_to(plain: Place) -> None:
    state = plain.open().agent("a")
    state.set("api_token", {"in": f"{SECRET} before"})
    fork = state.fork("f")
    fork.set("api_token", {"in": f"{SECRET} theirs"})
    state.set("api_token", {"in": f"{SECRET} ours"})
    asked: list[holdfast.MergeConflict] = []

    def decide(conflict: holdfast.MergeConflict) -> Any:
        asked.append(conflict)
        assert conflict.sensitive
        return conflict.theirs

    merged = state.merge(fork, strategy=decide)
    assert [one.theirs for one in asked] == [f"{SECRET} theirs"]
    for shown in (*asked, *merged.conflicts):
        assert SECRET not in f"{shown} {shown!r}"
        assert "api_token" in str(shown)
        assert "['in']" not in repr(shown)
        assert ".in" not in str(shown)


@pytest.mark.parametrize("how", ["name", "prefix", "write", "kept", "subject", "id"])
def test_refused_value_of_a_sensitive_key_shows_nothing_of_its_path(place: Place, how: str) -> None:
    if how == "subject" and not place.sealed:
        pytest.skip("subjects need a key")
    store = place.open()
    state = store.agent("a")
    state.declare(holdfast.Classed("billing/", "sensitive"))
    state.set("note", [], class_="sensitive")
    wrong = {"HUSH": [{"HUSH2": object()}]}
    with pytest.raises(InvalidValueError) as caught:
        if how == "name":
            state.set("password", wrong)
        elif how == "prefix":
            state.set("billing/1", wrong)
        elif how == "write":
            state.set("plain", wrong, class_="sensitive")
        elif how == "kept":
            state.append("note", wrong)
        elif how == "subject":
            state.set("plain", wrong, subject="user:42")
        else:
            with store.change(id="once") as change:
                change[state].set("password", wrong)
    told = f"{caught.value}{caught.value!r}{caught.value.path}"
    assert "HUSH" not in told
    assert "agent:a: '" in told
    assert "object would not come back" in told
    with pytest.raises(InvalidValueError, match="HUSH2") as shown:
        state.set("plain", wrong)
    assert shown.value.path == "$.HUSH[0].HUSH2"
