"""The format: golden rows compared byte by byte, read back, and read by a second reader."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import Ext

sys.path.insert(0, str(Path(__file__).parent))

import golden
import reader

import holdfast_verify
from holdfast import ERASED, sync
from holdfast.store.names import rowkinds as row_keys

STORES: dict[str, Any] = json.loads(golden.FILE.read_text())
NAMES = ["plain", "encrypted"]
OWN = ["$declared/", "$retention/", "$shutdown/"]
"""What is sticky in every scope."""
PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()


def raw(rows: dict[str, str]) -> dict[bytes, bytes]:
    return {bytes.fromhex(key): bytes.fromhex(value) for key, value in rows.items()}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(name: str, records: dict[str, str], cells: dict[str, str] | None = None) -> sync.Store:
    """A store on nothing but stored rows."""
    url, stored = golden.fresh_url(), STORES[name]
    golden.put_rows(url, records, cells or {})
    if name == "encrypted":
        golden.put_rows(f"{url}.keys", stored["ring"], stored["ring_cells"])
    return sync.open(url, create=False, **golden.options(name == "encrypted"))


def second(name: str, master: bytes = golden.MASTER) -> reader.Store:
    stored = STORES[name]
    ring = raw(stored["ring"]) if name == "encrypted" else None
    return reader.Store(raw(stored["records"]), ring, master)


# ---- writing -------------------------------------------------------------------------------


def test_the_same_bytes_are_written(name: str) -> None:
    made, stored = golden.make(encrypted=name == "encrypted", compress=False), STORES[name]
    assert made["records"].keys() == stored["records"].keys()
    for key, row in stored["records"].items():
        assert made["records"][key] == row, row_keys.describe(bytes.fromhex(key))
    assert made["facts"] == stored["facts"]
    assert made["files"] == stored["files"]
    assert made["cells"] == stored["cells"]
    assert made.get("ring") == stored.get("ring")
    assert made.get("ring_cells") == stored.get("ring_cells")


def test_every_kind_of_row_is_there(name: str) -> None:
    table = PAGE.partition("## Rows")[2].partition("Contents")[0]
    documented = re.findall(r"^\| `([A-Z])` ", table, re.MULTILINE)
    kinds = {bytes.fromhex(key)[:1].decode() for key in STORES[name]["records"]}
    kinds |= {"K", "U"} if name == "plain" else set()  # it has no keys to rotate or erase
    assert kinds == set(documented)
    assert {kind.key[:1].decode() for kind in row_keys.ROWS} == kinds


def test_every_operation_and_save_is_there(name: str) -> None:
    scopes = list(second(name).scopes())
    bodies = [e.body for s in scopes for line in (0, 1) for e in s.entries(line) if e.body]
    known = set(range(1, 13)) - ({9} if name == "plain" else set())
    assert {op[0] for body in bodies for op in body[1]} == known
    assert {body[4][1] for body in bodies if len(body) > 4 and body[4]} == {0, 1, 2}
    for field in range(10):
        assert any(len(body) > field and body[field] for body in bodies), f"field {field}"


# ---- reading -------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
def test_stored_rows_are_read(name: str, compressed: bool) -> None:
    stored = STORES[name]
    records = stored["records"] | (stored["compressed"] if compressed else {})
    with opened(name, records) as store:
        assert golden.facts(store) == stored["facts"]
        report = store.verify(identity=stored["facts"]["identity"])
        assert report.findings == []
        assert report.signed == report.checkpoints > 1
        plan = store.agent("golden").get("plan")
        assert (type(plan), plan.goal, len(plan.steps)) == (golden.Plan, "ship", 150)
        # And it goes on from there.
        store.agent("golden").set("after", 1)
        assert store.verify().ok


def test_what_is_sensitive_is_padded_or_left_as_it_is(name: str) -> None:
    agent = next(scope for scope in second(name).scopes() if scope.name == "agent:golden")
    named = [11, "note", reader.pack([0, 0, "sensitive"])]
    entry = next(entry for entry in agent.entries(0) if entry.body[1][-1] == named)
    key = agent.key(b"E", 0, (entry.sequence, 5))
    row = bytes.fromhex((STORES[name]["records"] | STORES[name]["compressed"])[key.hex()])
    assert row[83] >> 1 & 3 == (3 if name == "encrypted" else 0)


def test_keys_of_a_store_whose_master_is_being_rotated() -> None:
    old, new = second("encrypted"), second("encrypted", golden.NEXT)
    assert old.ring is not None
    assert new.ring is not None
    assert (old.ring.generations, new.ring.generations) == ([2, 0], [0, 3])
    assert old.key == new.key
    assert new.ring.unwrap(b"O") == golden.MASTER
    for mine, theirs in zip(old.scopes(), new.scopes(), strict=True):
        assert mine.data_keys == theirs.data_keys
    cells = raw(STORES["encrypted"]["ring_cells"])
    assert cells == {b"G": (2).to_bytes(4, "big") + (3).to_bytes(4, "big")}
    ring = raw(STORES["encrypted"]["ring"])
    assert {key[:1] for key in ring} == {b"M", b"R", b"S", b"K", b"P", b"O", b"U", b"X"}
    past = reader.Ring.__new__(reader.Ring)
    past.rows, past.master, past.lineage = ring, golden.FIRST, old.lineage
    assert past.fits(b"R\0\0\0\1") == 1
    table = PAGE.partition("## Keys and the ring")[2]
    assert set(re.findall(r"^\| `([A-Z])`", table, re.MULTILINE)) == {*"MRGSKPOUX"}


def test_data_keys_that_were_rotated() -> None:
    store = second("encrypted")
    scopes = {(scope.name, scope.before): scope for scope in store.scopes()}
    agent, session = scopes["agent:golden", 0], scopes["session:gone", 2]
    assert agent.data_keys is not None
    assert session.data_keys is not None
    assert (set(agent.data_keys), set(session.data_keys)) == ({1, 2}, {2})
    for scope in (agent, session):
        announced = b"K" + scope.number.to_bytes(6, "big") + (2).to_bytes(4, "big")
        assert type(reader.unpack(scope.open(announced))) is int
        lines = [[e.body[1] for e in scope.entries(line)] for line in (0, 1)]
        assert all([[9, 2]] in line for line in lines if line)
    first = store.rows[session.key(b"E", 0, (3, 5))]
    assert (first[18], first[84]) == (1, 2), "written under the first key, sealed under the second"


def test_compressed_rows_are_smaller(name: str) -> None:
    stored = STORES[name]
    assert stored["compressed"]
    for key, row in stored["compressed"].items():
        assert len(row) < len(stored["records"][key])
        assert bytes.fromhex(key)[:1] in b"EVSN"


@pytest.mark.parametrize("length", golden.LENGTHS)
def test_sealed_records(length: int) -> None:
    """Not compressed, lz4 and zstd: what is stored opens."""
    rows = STORES["seals"][str(length)]
    content = b"a" * length
    plain, keyed = golden.seals()
    for seal, row in zip((plain, keyed), map(bytes.fromhex, rows), strict=True):
        assert seal.open(golden.PLACE, row) == content
        keys = golden.DATA_KEYS if seal is keyed else None
        assert reader.open_record(golden.PLACE, row, keys, b"") == content
    if length < 200:  # other versions of the compressors may write other bytes
        assert golden.sealed(length) == rows


def test_files_that_left_are_checked(name: str) -> None:
    """By holdfast-verify, which is made from the page, too."""
    public = STORES[name]["facts"]["identity"].rsplit(":", 1)[1]
    options = argparse.Namespace(pin={bytes.fromhex(public)}, require=1)
    found: dict[str, Any] = {}
    for file in ("chain", "proof", "absent", "witness"):
        data = bytes.fromhex(STORES[name]["files"][file])
        chains = [found["chain"]] if found else []
        found[file] = holdfast_verify.verdict(file, data, options, chains)
        assert found[file]["valid"], found[file]["told"]
    assert found["proof"]["value"]["$object"]["fields"]["goal"] == "ship"
    assert found["absent"]["absent"]
    assert found["proof"]["hash"] == STORES[name]["facts"]["checkpoint"][3]


# ---- a second reader -----------------------------------------------------------------------


@pytest.mark.spec("K13", "X14")
def test_chains_and_feed(name: str) -> None:
    store = second(name)
    heads = {}
    for scope in store.scopes():
        for timeline in (0, 1):
            for entry in scope.entries(timeline):
                heads[scope.number, timeline, entry.sequence] = entry.hash
    named = set()
    for number, timeline, first, entries, hash_ in store.feed():
        if not entries:  # a link: to what others wrote, and did so before
            assert not any(hash_)
            assert number in store.erased() or (number, timeline, first - 1) in heads
            continue
        if number in store.erased():
            assert first + entries - 1 <= store.erased()[number][1]
            continue
        assert heads[number, timeline, first + entries - 1] == hash_
        named |= {(number, timeline, first + offset) for offset in range(entries)}
    assert named == heads.keys()


def test_what_is_left_of_pruned_entries(name: str) -> None:
    (scope,) = [scope for scope in second(name).scopes() if scope.name == "custom:pruned"]
    pruned = [entry.sequence for entry in scope.entries(0) if not entry.body]
    floor, kept = scope.floor(0)
    assert (floor, list(kept), max(pruned)) == (28, [10, 28], 24)
    states = [scope.index(save[8], save[7]) for save in kept.values()]
    assert [state["k1"] for state in states] == STORES[name]["facts"]["pruned"]
    assert scope.entry(scope.key(b"E", 0, (10, 5))).statement[1:33] == kept[10][7]


@pytest.mark.spec("K14", "K53")
def test_signatures_and_roots(name: str) -> None:
    stored, checked, others = STORES[name]["facts"], 0, []
    for scope in second(name).scopes():
        for entry in scope.entries(0):
            if entry.statement:
                scope.check_signature(entry)
                others += scope.cosigners(entry)
                checked += 1
                here = scope.name == "agent:golden"
                if here and f"main@{entry.sequence}" == stored["checkpoint"][0]:
                    assert entry.statement[1:33].hex() == stored["checkpoint"][2]
                    assert entry.hash.hex() == stored["checkpoint"][3]
    assert checked == 6
    assert len(others) == 1


@pytest.mark.spec("K12")
def test_saves_give_the_state(name: str) -> None:
    agent = next(scope for scope in second(name).scopes() if scope.name == "agent:golden")
    seen = []
    with opened(name, STORES[name]["records"]) as store:
        for entry in agent.entries(0):
            if len(entry.body) <= 4 or not entry.body[4]:
                continue
            at, kind, commitment = entry.body[4]
            plain = agent.open(agent.key(b"S", 0, (at, 5)))
            assert agent.commit(b"save", plain) == commitment
            save = reader.unpack(plain)
            seen.append((at, kind))
            assert save[0] == kind
            if kind == 1:
                assert save[9]
                assert save[8] == 0
                continue
            state = store.agent("golden").at(at)
            assert save[7].hex() == state.root()
            found = agent.index(save[8], save[7])
            assert found.keys() == set(state.keys())
            times = {key: state.item(key).expires for key in found}  # type: ignore[union-attr]
            assert {key: terms[0] for key, terms in agent.terms.items()} == {
                key: int(time.timestamp() * 1_000_000) for key, time in times.items() if time
            }
            assert {key: plain_form(value) for key, value in found.items()} == {
                key: comparable(value) for key, value in state.items()
            }
    assert {kind for _, kind in seen} == {0, 1, 2}


def test_long_values_are_written_ahead(name: str) -> None:
    """An entry names the root and how many packs there are; both readers find the value."""
    store = second(name)
    agent = next(scope for scope in store.scopes() if scope.name == "agent:golden")
    shapes = [op[2] for e in agent.entries(0) for op in e.body[1] if op[0] == 1 and op[1] == "long"]
    assert len(shapes) == 2
    for (kind, ref, place, upload, packs, nodes), end in zip(
        shapes, (b"first", b"first and more"), strict=True
    ):
        assert kind == 6
        assert place[:2] == [65535, upload]
        assert agent.value(ref, place) == golden.noise(24_000, b"long") + end
        for row_kind, first, count in ((b"V", 1, packs), (b"N", 0, nodes)):
            prefix = agent.key(row_kind, 65535, (upload, 5))
            found = sorted(key for key in store.rows if key.startswith(prefix))
            assert found == [prefix + n.to_bytes(3, "big") for n in range(first, first + count)]


def plain_form(value: Any) -> Any:
    """What the second reader found, with extension parts resolved as the page says."""
    if isinstance(value, Ext):
        data = bytes(value.data)
        if value.code == 1:
            return int.from_bytes(data, "big", signed=True)
        if value.code == 2:
            return data.decode("utf-8", "surrogatepass")
        assert value.code == 3
        return tuple(reader.unpack(data)[:9])
    if isinstance(value, list):
        return [plain_form(item) for item in value]
    return value


def comparable(value: Any) -> Any:
    """What Holdfast gave, in the same form."""
    if isinstance(value, golden.Plan):
        return ("plan", 3, {"goal": value.goal, "steps": value.steps})
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if hasattr(value, "timetuple"):
        return (*value.timetuple()[:6], value.microsecond, value.fold, 0)
    return value


def test_merges(name: str) -> None:
    """A merge binds the entry that it merged and names the merge before; saves know the newest."""
    agent = next(scope for scope in second(name).scopes() if scope.name == "agent:golden")
    hashes = {entry.sequence: entry.hash for entry in agent.entries(1)}
    newest, merged = 0, []
    for entry in agent.entries(0):
        if len(entry.body) > 4 and entry.body[4] and entry.body[4][1] != 2:
            save = reader.unpack(agent.open(agent.key(b"S", 0, (entry.body[4][0], 5))))
            assert save[12] == newest
        op = entry.body[1][0]
        if op[0] == 6:
            newest = 0
        if op[0] == 10:
            assert (op[1], op[3], op[4]) == (1, hashes[op[2]], newest)
            assert [rest[:2] for rest in entry.body[1][1:]] == [[1, "only here"]]
            newest = entry.sequence
            merged.append(op[2])
    assert merged == [2, 3]


def test_a_restore_leaves_sticky_keys_alone(name: str) -> None:
    """The state that its save gives is that of the point, but for what the prefixes cover."""
    rules = next(scope for scope in second(name).scopes() if scope.name == "workflow:rules")
    bodies = {entry.sequence: entry.body for entry in rules.entries(0)}
    code, timeline, sequence, root, prefixes = bodies[max(bodies)][1][0]
    assert (code, timeline, sequence, prefixes) == (6, 0, 4, [*OWN, "done/"])
    at, kind, _ = bodies[max(bodies)][4]
    save = reader.unpack(rules.open(rules.key(b"S", 0, (at, 5))))
    assert (at, kind, save[7]) == (max(bodies), 2, root)
    found = rules.index(save[8], root)
    assert found.keys() == {"$declared/sticky/done/*", "done/2", "list"}
    assert found["$declared/sticky/done/*"] == {"prefix": "done/"}
    assert (found["done/2"], len(found["list"])) == ("since", 60)


def test_trims(name: str) -> None:
    """A long list is patched at its front, a short one is set anew; both say that it is a trim."""
    rules = next(scope for scope in second(name).scopes() if scope.name == "workflow:rules")
    ops = [entry.body[1][0] for entry in rules.entries(0)]
    trims = [op for op in ops if op[0] < 4 and op[3:] == [2]]
    assert trims == [[3, "list", [[0, 20, None, []]], 2], [1, "list", 1, 2]]


def test_leases(name: str) -> None:
    store = second(name)
    store.rows |= raw(STORES[name]["cells"])
    keys = {lease: b"CL" + store.tag(b"lease", lease) for lease in ("free", "job")}
    free, job = (reader.unpack(store.open(keys[lease] + b"\0")) for lease in keys)
    assert (free[:4], job[:4]) == (["free", 1, None, 0.0], ["job", 1, "tester", 30.0])
    assert len(free[4]) == len(job[4]) == 16
    assert reader.unpack(store.open(keys["job"] + b"\1")) == [job[4], 1]
    assert keys["free"] + b"\1" not in store.rows
    with opened(name, STORES[name]["records"], STORES[name]["cells"]) as again:
        told = [(info.name, info.owner, info.term, info.beats) for info in again.leases()]
        assert told == [("free", None, 1, 0), ("job", "tester", 1, 1)]
        assert again.verify().findings == []


def test_schedules(name: str) -> None:
    store = second(name)
    store.rows |= raw(STORES[name]["cells"])
    interval, calendar = (
        reader.unpack(store.open(b"CT" + store.tag(b"schedule", schedule)))
        for schedule in ("agent:golden", "report")
    )
    now = interval[7]
    wanted = [
        "agent:golden",
        ["every", 300.0, 30.0],
        "agent:golden",
        "main",
        None,
        0,
        now,
        [],
        None,
        None,
        False,
    ]
    assert [interval[0], *interval[2:]] == wanted
    when = ["cron", "0 3 * * *", "Europe/Berlin", 0.0]
    seconds = now // 1_000_000
    wanted = ["report", when, None, "main", "report", 0, now, [[seconds, seconds]]]
    wanted += [None, None, False]
    assert [calendar[0], *calendar[2:]] == wanted
    assert len(interval[1]) == len(calendar[1]) == 16
    assert reader.unpack(store.open(b"CT")) == [2]
    with opened(name, STORES[name]["records"], STORES[name]["cells"]) as again:
        told = [(one.name, str(one.when)) for one in sync.checkpoints.Scheduler(again).schedules()]
        assert told == [
            ("agent:golden", "every 300 s, jitter 30 s"),
            ("report", "0 3 * * * Europe/Berlin"),
        ]


def test_subjects() -> None:
    """The second reader opens what was sealed for a person, and not what an erased one's was."""
    store = second("encrypted")
    store.rows |= raw(STORES["encrypted"]["cells"])
    assert store.ring is not None
    cell = b"CS" + store.tag(b"subject", "ada")
    assert [key for key in store.rows if key[:2] == b"CS"] == [cell]
    id, erasing = reader.unpack(store.open(cell))
    assert erasing is False
    assert store.ring.subject(id)[0] == "ada"
    people = next(scope for scope in store.scopes() if scope.name == "custom:people")
    bodies = [entry.body for entry in people.entries(0)]
    ops = [op for body in bodies for op in body[1] if op[0] < 4]
    assert [(op[0], op[1]) for op in ops] == [(1, "short"), (1, "long"), (1, "both"), (1, "both")]
    assert ops[1][2][:3] == [5, "$sealed", 1]
    short = reader.unpack(bodies[0][2][0])
    assert reader.unpack(store.unseal(short)) == "of Ada"
    chunks = [reader.unpack(atom) for atom in people.atoms_of(0, 2)]
    long = reader.unpack(store.unseal(("$sealed", 1, b"".join(chunks))))
    assert long == golden.noise(16_500, b"sealed")
    ada, eve = reader.unpack(bodies[3][2][0])
    assert reader.unpack(store.unseal(ada)) == {"said": "by Ada"}
    gone = reader.object_of(eve)[2][:16]
    assert gone != id
    assert type(reader.unpack(store.open(b"U" + gone))) is int
    assert store.ring.rows[b"X" + gone] == b""
    assert not [key for key in store.ring.rows if key[:1] == b"U" and key[1:17] == gone]
    with opened("encrypted", STORES["encrypted"]["records"], STORES["encrypted"]["cells"]) as again:
        told = again.custom("people").get_many(["short", "both"])
        assert told == {"short": "of Ada", "both": [{"said": "by Ada"}, ERASED]}
        assert again.subjects() == ["ada"]


def test_correlations_changes_and_timelines(name: str) -> None:
    store = second(name)
    scopes = {scope.name: scope for scope in store.scopes()}
    agent = scopes["agent:golden"]
    tag = store.tag(b"correlation", "run-1")
    block = (9 // 256).to_bytes(4, "big")
    place = agent.number.to_bytes(6, "big") + bytes(2)
    assert store.rows[b"R" + tag + place + block] == b""
    outcome = reader.unpack(store.open(b"I" + store.tag(b"change", "\0change-1")))
    content, places, unwritten = outcome
    assert unwritten == []
    assert [row[:3] for row in places] == [["agent:golden", "main", 11], ["global", "main", 1]]
    asked = hashlib.sha256()
    for scope, kind, key, value in (
        ("agent:golden", "delete", "small", None),
        ("global", "set", "flag", True),
    ):
        data = reader.pack(value)
        asked.update(reader.pack([scope, "main", [[kind, key]]]))
        asked.update(len(data).to_bytes(8, "big") + data)
    assert content == store.tag(b"content", asked.hexdigest())
    assert reader.unpack(agent.open(agent.key(b"T", 1))) == ["trial", 0, 9]
    gone = sorted(key for key in store.rows if key[1:17] == store.tag(b"directory", "session:gone"))
    assert [(key[17:21], key[21]) for key in gone] == [
        (b"\0\0\0\1", 0),
        (b"\0\0\0\1", 1),
        (b"\0\0\0\2", 0),
    ]
    assert reader.unpack(store.open(gone[1]))[0] == reader.unpack(store.open(gone[0]))[1]
    ((number, (tag_of, last, scope_id)),) = store.erased().items()
    assert (tag_of, last) == (store.tag(b"directory", "session:erased").hex(), 2)
    assert not [k for k in store.rows if k[:1] in b"TEVSNK" and k[1:7] == number.to_bytes(6, "big")]
    if store.ring is not None:
        assert [k for k in store.ring.rows if k[1:17] == scope_id] == [b"X" + scope_id]
    lives = [scope for scope in store.scopes() if scope.name == "session:gone"]
    numbers = [
        [entry.sequence for entry in scope.entries(0) if entry.body[1] != [[9, 2]]]
        for scope in lives
    ]
    assert sorted(numbers) == [[1, 2], [3]], "they go on after a deletion"
    assert reader.unpack(store.open(gone[1]))[2] == reader.unpack(store.open(gone[2]))[5] == 2
