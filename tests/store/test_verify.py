"""Verify and witnesses: what was changed behind the store's back is found and named."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from store_kit import PLACES, Place, put_row, rows_of

from holdfast import Report, sync
from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    ScopeNotFoundError,
    StateIntegrityError,
    Unavailable,
    WitnessError,
)
from holdfast.seal.signer import Signer
from holdfast.storage import open_storage
from holdfast.storage.contract import Storage

ROWS = [{"n": n, "text": f"{n} " * 30} for n in range(300)]


def fill(store: sync.Store) -> None:
    """A store with every kind of row."""
    a, b = store.agent("a"), store.agent("b")
    a.set("long", ROWS)
    a.set("small", 1)
    with store.acting("x", correlation="run"):
        for number in range(40):
            a.append("log", {"n": number, "text": "x" * 80})
            b.set(f"k{number}", number)
    point = a.checkpoint("safe")
    with store.change(id="both") as change:
        change[a].set("small", 2)
        change[b].set("small", 2)
    a.restore(point)
    a.fork("trial").set("small", 3)
    store.session("gone").set("k", 1)
    store.delete("session:gone")
    a.set("end", 1)


@pytest.fixture
def filled(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 10)
    fill(place.open())
    place.close()
    return place


@pytest.fixture(scope="module", params=PLACES)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """The same, for tests that put everything back as it was."""
    engine, _, mode = request.param.partition("-")
    made = Place(engine, tmp_path_factory.mktemp("shared"), sealed=mode == "sealed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 10)
        fill(made.open())
    made.close()
    yield made
    made.close()


def test_nothing_is_found_in_what_nobody_touched(filled: Place) -> None:
    store = filled.open()
    seen: list[tuple[str, int]] = []
    report = store.verify(progress=lambda scope, entries: seen.append((scope, entries)))
    assert report.findings == []
    assert report.ok
    assert report.exit_code == 0
    assert report.resume is None
    assert (report.scopes, report.timelines) == (3, 4)
    assert report.entries == len(rows_of(filled.storage(), b"E"))
    assert report.checkpoints == report.signed == 2
    assert report.saves > 5
    assert "nothing was found" in str(report)
    assert {scope for scope, _ in seen} == {"agent:a", "agent:b", "session:gone"}
    assert store.verify("agent:b").entries == 41
    with pytest.raises(ScopeNotFoundError):
        store.verify("agent:nobody")


# ---- tampering -----------------------------------------------------------------------------


def flip(row: bytes) -> bytes:
    return row[:-1] + bytes([row[-1] ^ 1]) if row else b"\1"


def middle(storage: Storage, kind: bytes) -> tuple[bytes, bytes]:
    found = rows_of(storage, kind)
    return found[len(found) // 2]


KINDS = {
    b"E": "entry",
    b"V": "values",
    b"S": "index save",
    b"N": "index nodes",
    b"T": "timeline",
    b"D": "directory row",
    b"F": "feed row",
    b"I": "change row",
    b"R": "correlation row",
}


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_each_kind_of_row(shared: Place, kind: bytes) -> None:
    storage = shared.storage()
    store = shared.open()
    key, row = middle(storage, kind)
    named = {KINDS[kind]}
    changed = {"changed": flip(row), "cut": row[:-1], "emptied": b"", "removed": None}
    for how, new in changed.items():
        if new == row:
            continue  # a correlation's row has no bytes
        put_row(storage, key, new)
        report = store.verify()
        assert report.exit_code == 1, how
        assert all(f.kind in str(report) and f.message for f in report.findings)
        if how == "removed":
            named |= {"scope", "feed", "timeline"}  # what led to it names it
        assert any(word in f.place for f in report.findings for word in named), (how, report)
    put_row(storage, key, row)
    assert store.verify().findings == []


@pytest.mark.parametrize("kind", [b"E", b"V", b"S", b"N", b"T", b"D", b"F"], ids=KINDS.get)
def test_rows_that_changed_places(shared: Place, kind: bytes) -> None:
    storage = shared.storage()
    store = shared.open()
    found = rows_of(storage, kind)
    for one, two in [(found[0], found[1]), (found[0], found[-1]), (found[-2], found[-1])]:
        put_row(storage, one[0], two[1])
        put_row(storage, two[0], one[1])
        assert store.verify().findings, (one[0], two[0])
        put_row(storage, one[0], one[1])
        put_row(storage, two[0], two[1])
    assert store.verify().findings == []


OF_TIMELINE = (b"E", b"V", b"S", b"N", b"C", b"A", b"B")


@pytest.mark.parametrize("kind", OF_TIMELINE)
def test_rows_of_no_timeline(shared: Place, kind: bytes) -> None:
    """Such a row would keep the next fork from being made."""
    storage = shared.storage()
    key, row = middle(storage, b"E")
    end = {b"E": 14, b"S": 14, b"V": 17, b"N": 17, b"C": 22, b"A": 13, b"B": 14}[kind]
    elsewhere = (kind + key[1:7] + b"\0\7" + key[9:14] + bytes(8))[:end]
    here = (kind + key[1:] + bytes(8))[:end]
    short = [kind + key[1 : length + 1] for length in (6, 8, 10, 12)]
    zeros = [(kind + key[1:9] + bytes(20))[:length] for length in (13, end, end + 1)]
    for extra in [elsewhere, here + b"\0", *short, *zeros]:
        if storage.get([extra])[0] is None:
            put_row(storage, extra, row)
            report = shared.open().verify()
            put_row(storage, extra, None)
            assert report.findings, extra.hex()
    assert shared.open().verify().ok


def test_rows_of_no_feed(shared: Place) -> None:
    storage = shared.storage()
    key, row = middle(storage, b"F")
    for extra in (key[:2], key[:-1], key + b"\0", key[:2] + bytes(5)):
        put_row(storage, extra, row)
        assert shared.open().verify().findings, extra.hex()
        put_row(storage, extra, None)
    assert shared.open().verify().ok


@pytest.mark.parametrize("kind", [*KINDS, b"A", b"Z", b"M"])
def test_rows_that_nothing_accounts_for(shared: Place, kind: bytes) -> None:
    storage = shared.storage()
    if kind in KINDS:
        key, row = middle(storage, kind)
        extra = key[:-1] + bytes([key[-1] ^ 0x55])
    else:
        extra, row = kind + b"foreign", b"x"
    put_row(storage, extra, row)
    report = shared.open().verify()
    put_row(storage, extra, None)
    assert report.findings


def test_the_keys_that_are_hit_are_named(filled: Place) -> None:
    """Damage is confined to the keys that use the damaged record; all others can be read."""
    storage = filled.storage()
    packs = [key for key, _ in rows_of(storage, b"V")]
    put_row(storage, packs[0], None)
    store = filled.open()
    report = store.verify()
    assert {key for finding in report.findings for key in finding.keys} == {"long"}
    assert any("long" in finding.message for finding in report.findings)
    state = store.agent("a")
    with pytest.raises(DamagedRecordError, match="values") as caught:
        state.get("long")
    assert caught.value.place
    assert "verify" in str(caught.value)
    assert state.get("small") == 1
    assert len(state.get("log")) == 40
    assert store.agent("b").get("k39") == 39
    state.set("long", "repaired")
    assert state.get("long") == "repaired"


@pytest.mark.spec("K98")
@pytest.mark.parametrize(
    ("verify", "way"), [("full", "removed"), ("full", "changed"), ("references", "removed")]
)
def test_a_damaged_point_is_not_restored(filled: Place, verify: str, way: str) -> None:
    storage = filled.storage()
    key, row = rows_of(storage, b"V")[0]
    put_row(storage, key, None if way == "removed" else row[:-1] + bytes([row[-1] ^ 1]))
    state = filled.open().agent("a")
    before = state._handle.place()
    for dry in (True, False):
        with pytest.raises(StateIntegrityError):
            state.restore("safe", verify=verify, dry_run=dry)
    assert state._handle.place() == before
    assert state.get("end") == 1
    put_row(storage, key, row)
    assert filled.reopen().agent("a").restore("safe", verify=verify).verified == verify


def test_a_forged_entry_is_refused(place: Place) -> None:
    """An entry of one's own at the end: no key, no entry; in a plain store the feed tells."""
    store = place.open()
    state = store.agent("a")
    state.set("k", 1)
    state.set("k", 2)
    storage = place.storage()
    key, row = rows_of(storage, b"E")[-1]
    forged = key[:-1] + bytes([key[-1] + 1])
    put_row(storage, forged, row)
    assert place.open().verify().findings
    with pytest.raises(StateIntegrityError):
        place.open().agent("a").get("k")


def test_a_deletion_that_was_undone(place: Place) -> None:
    """Without its row in the directory a deleted scope is damage, not a scope, and no loop."""
    store = place.open()
    store.agent("a").set("k", 1)
    store.delete("agent:a")
    storage = place.storage()
    [gone] = [key for key, _ in rows_of(storage, b"D") if key[21]]
    put_row(storage, gone, None)
    fresh = place.open()
    for call in (
        lambda: fresh.agent("a").get("k"),
        lambda: fresh.agent("a").set("k", 2),
        lambda: fresh.agent("a").timelines(),
    ):
        with pytest.raises(DamagedRecordError, match="deleted"):
            call()
    assert fresh.verify().findings


# ---- in portions ---------------------------------------------------------------------------


def in_portions(store: sync.Store) -> tuple[list[Report], list[Any]]:
    reports: list[Report] = []
    findings: list[Any] = []
    resume: str | None = None
    while True:
        report = store.verify(budget=0, resume=resume)
        reports.append(report)
        findings += report.findings
        resume = report.resume
        if resume is None:
            return reports, findings
        assert report.exit_code == (1 if report.findings else 3)
        assert "resume" in str(report)


def test_a_budget(plain: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 40)
    monkeypatch.setattr("holdfast.store.proof.verify_line.PAGE", 50)
    store = plain.open()
    fill(store)
    for number in range(300):
        store.agent("a").set(f"k{number % 70}", number)
    whole = store.verify()
    reports, findings = in_portions(store)
    assert findings == []
    assert len(reports) > 8
    for name in ("entries", "checkpoints", "values", "saves"):
        assert sum(getattr(report, name) for report in reports) == getattr(whole, name), name


@pytest.mark.parametrize("kind", [b"E", b"V", b"S", b"N", b"T", b"D", b"F"], ids=KINDS.get)
def test_a_budget_passes_nothing_over(
    plain: Place, monkeypatch: pytest.MonkeyPatch, kind: bytes
) -> None:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 10)
    monkeypatch.setattr("holdfast.store.proof.verify_line.PAGE", 20)
    fill(plain.open())
    storage = plain.storage()
    found = rows_of(storage, kind)
    for key, row in found[:: max(1, len(found) // 4)]:
        for new in (flip(row), None):
            put_row(storage, key, new)
            assert in_portions(plain.open())[1], (key, new)
        put_row(storage, key, row)
        extra = key[:-1] + bytes([key[-1] ^ 0x01])
        if storage.get([extra]) == [None] and kind in (b"S", b"N", b"V"):
            put_row(storage, extra, row)
            assert in_portions(plain.open())[1], extra
            put_row(storage, extra, None)
    assert in_portions(plain.open())[1] == []


def test_a_resume_that_is_none(store: sync.Store) -> None:
    store.agent("a").set("k", 1)
    elsewhere = ["ffffffffffff/0/0/agent:a", "1/-5/9/agent:a", "1/0/0/agent:zz"]
    for bad in ("", "nonsense", "1/2", "x/1/1/agent:a", *elsewhere):
        with pytest.raises(InvalidInputError, match="what a report gave"):
            store.verify(resume=bad)


def test_a_resume_of_a_store_that_was_put_back(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.proof.verify_line.PAGE", 10)
    store = plain.open()
    state = store.agent("a")
    for number in range(40):
        state.set("k", number)
    resume = store.verify(budget=0).resume
    assert resume is not None
    _, _, entry, _ = resume.split("/", 3)
    beyond = resume.replace(f"/{entry}/", "/900/")
    assert store.verify(resume=resume).ok
    assert [one.kind for one in store.verify(resume=beyond).findings] == ["feed"]
    with pytest.raises(InvalidInputError, match="the same store and scope"):
        store.agent("b").set("k", 1)
        store.verify("agent:b", resume=resume)


# ---- identity and witnesses ----------------------------------------------------------------


def test_identity(place: Place, tmp_path: Path) -> None:
    store = place.open()
    fill(store)
    identity = store.identity()
    assert identity == place.open().identity()
    assert store.verify(identity=identity).findings == []
    assert place.open(identity=identity).agent("a").get("small") == 1
    with sync.open("memory:", signer=f"file:{tmp_path / 'other.sign'}") as other:
        other.agent("a").set("k", 1)
        other.agent("a").checkpoint()
        report = other.verify(identity=identity)
        assert {finding.kind for finding in report.findings} == {"identity", "signature"}
        with pytest.raises(InvalidInputError):
            other.verify(identity="nonsense")
        report = other.verify(expect=store.witness(), identity=other.identity())
        assert [finding.kind for finding in report.findings] == ["witness"]
        foreign = other.identity()
    with pytest.raises(WitnessError):
        place.open(identity=foreign)
    with pytest.raises(InvalidInputError):
        place.open(identity="nonsense")


def test_an_identity_creates_nothing(tmp_path: Path) -> None:
    with sync.open("memory:") as other:
        identity = other.identity()
    with pytest.raises(HoldfastError):
        sync.open(f"sqlite:{tmp_path / 'new.db'}", identity=identity)
    assert list(tmp_path.iterdir()) == []


def test_self_signed_is_said(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", durability="normal") as store:
        store.agent("a").set("k", 1)
        assert "self-signed" in store.verify().trust
    with sync.open("memory:", signer=f"file:{tmp_path / 's.key'}") as store:
        assert "self-signed" not in store.verify().trust


@pytest.mark.spec("K53")
def test_a_signature_that_does_not_fit_is_found(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by somebody who can write the store, and has not its signer."""
    store = place.open()
    state = store.agent("a")
    state.set("k", 1)
    assert state.checkpoint("signed").signed_by
    report = store.verify()
    assert (report.findings, report.checkpoints, report.signed) == ([], 1, 1)
    sign = Signer.sign
    with monkeypatch.context() as patch:
        patch.setattr(Signer, "sign", lambda self, text: sign(self, b"another text"))
        state.checkpoint("forged")
    store = place.reopen()
    state = store.agent("a")
    assert [(one.kind, one.message) for one in store.verify().findings] == [
        ("signature", "the signature does not fit")
    ]
    for verify in ("full", "references"):
        with pytest.raises(StateIntegrityError, match="the signature does not fit"):
            state.restore("forged", verify=verify)
    assert state.restore("signed").verified == "full"


@pytest.mark.spec("K53")
def test_without_its_signer(place: Place) -> None:
    place.open().agent("a").set("k", 1)
    store = place.reopen(signer=None)
    made = store.agent("a").checkpoint("unsigned")
    assert made.signed_by == ""
    with pytest.raises(Unavailable, match="signer"):
        store.witness()
    report = store.verify()
    assert (report.findings, report.checkpoints, report.signed) == ([], 1, 0)
    assert store.agent("a").restore(made).verified == "full"


class Copy:
    """All rows of a store, to put back later."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.rows = dict(self._all())

    def _all(self) -> list[tuple[bytes, bytes]]:
        return [
            row
            for kind in range(ord("A"), ord("Z") + 1)
            for row in rows_of(self.storage, bytes([kind]))
        ]

    def put_back(self, fits: Callable[[bytes], bool] = lambda _: True) -> None:
        for key, row in self._all():
            if fits(key) and self.rows.get(key) != row:
                put_row(self.storage, key, self.rows.get(key))
        for key, row in self.rows.items():
            if fits(key) and self.storage.get([key]) == [None]:
                put_row(self.storage, key, row)


def test_a_store_that_was_put_back(place: Place) -> None:
    """The honest limit: alone, an older state of the whole store is as good as the newest."""
    store = place.open()
    fill(store)
    copy = Copy(place.storage())
    early = store.witness()
    store.agent("a").set("k", "paid")
    late = store.witness()
    place.close()
    copy.put_back()
    again = place.open()
    assert again.agent("a").get("k") is None
    assert again.verify().findings == [], "not detected without a witness, and said so"
    assert again.verify(expect=early).findings == []
    found = again.verify(expect=late).findings
    assert {finding.kind for finding in found} == {"witness"}
    assert "put back" in found[0].message


def test_put_back_and_written_on(place: Place) -> None:
    store = place.open()
    fill(store)
    copy = Copy(place.storage())
    lane = store._core.lanes._lane
    store.agent("a").set("k", "paid")
    late = store.witness()
    place.close()
    copy.put_back()
    again = place.open()
    again._core.lanes.move()
    while again._core.lanes._lane != lane:  # the same lane, so that the number is reached again
        again._core.lanes.move()
    for number in range(3):
        again.agent("a").set("k", number)
    assert again.verify().findings == []
    assert {f.kind for f in again.verify(expect=late).findings} == {"witness"}


@pytest.mark.parametrize("witnessed", [False, True])
def test_a_scope_that_was_put_back(place: Place, witnessed: bool) -> None:
    """A single scope is found without a witness: the feed knows better."""
    store = place.open()
    fill(store)
    number = store._core.ledger(store.agent("a").scope).number.to_bytes(6, "big")
    copy = Copy(place.storage())
    store.agent("a").set("k", "paid")
    store.agent("b").set("k", "other")
    witness = store.witness() if witnessed else None
    place.close()
    copy.put_back(lambda key: key[:1] in b"EVSNT" and key[1:7] == number)
    again = place.open()
    assert again.agent("a").get("k") is None
    report = again.verify(expect=witness)
    assert any(f.scope == "agent:a" and "put back" in f.message for f in report.findings)
    assert all(f.scope != "agent:b" for f in report.findings)


def test_newest_entries_that_were_dropped(place: Place) -> None:
    """With their rows of the feed, too: then only a witness tells."""
    store = place.open()
    for number in range(5):
        store.agent("a").set("k", number)
    witness = store.witness()
    place.close()
    storage = place.storage()
    entries, feed = rows_of(storage, b"E"), rows_of(storage, b"F")
    put_row(storage, entries[-1][0], None)
    assert place.open().verify().findings, "the feed names what is not there"
    put_row(storage, feed[-1][0], None)
    again = place.open()
    assert again.agent("a").get("k") == 3
    assert again.verify().findings == [], "the honest limit"
    assert {f.kind for f in again.verify(expect=witness).findings} == {"witness"}


def test_witnesses_that_are_none(store: sync.Store) -> None:
    store.agent("a").set("k", 1)
    witness = store.witness()
    assert store.verify(expect=f"  {witness}\n").findings == []
    changed = witness[:60] + ("A" if witness[60] != "A" else "B") + witness[61:]
    for bad in ("", "nonsense", witness[:-9], changed):
        with pytest.raises(InvalidInputError):
            store.verify(expect=bad)


def test_a_scope_removed_whole(filled: Place) -> None:
    storage = filled.storage()
    store = filled.open()
    number = store._core.ledger(store.agent("b").scope).number
    tag = store._core.tag(b"directory", "agent:b")
    filled.close()
    for kind in b"EVSNT":
        for key, _ in rows_of(storage, bytes([kind])):
            if int.from_bytes(key[1:7], "big") == number:
                put_row(storage, key, None)
    for key, _ in rows_of(storage, b"D"):
        if key[1:17] == tag:
            put_row(storage, key, None)
    report = filled.open().verify()
    assert any(f.kind == "feed" and f"{number:x}" in f.place for f in report.findings)


def test_rows_of_one_store_in_another(tmp_path: Path) -> None:
    """Two stores under one key: nothing of the one opens in the other."""
    key = f"file:{tmp_path / 'master.key'}"
    urls = [f"sqlite:{tmp_path / name}" for name in ("one.db", "two.db")]
    for url in urls:
        with (
            pytest.warns(UserWarning, match="same folder"),
            sync.open(url, key=key, durability="normal") as store,
        ):
            store.agent("a").set("k", url)
    source, target = (open_storage(url, durability="normal") for url in urls)
    for kind in (b"D", b"T", b"E"):
        for row_key, row in rows_of(source, kind):
            put_row(target, row_key, row)
    source.close()
    target.close()
    with sync.open(urls[1], key=key, durability="normal") as store:
        assert store.agent("a").get("k") == urls[1]
        assert store.verify().findings
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_beside_running_writers_nothing_is_found(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is newer than what is looked at is neither damage nor unaccounted for."""
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 8)
    monkeypatch.setattr("holdfast.store.long.SHORT", 20_000)
    place = Place(engine, tmp_path, sealed=True)
    place.open().agent("0").set("k", 0)
    over = threading.Event()

    def work(number: int) -> None:
        store, draw = place.open(), random.Random(number)
        state, turn = store.agent("0"), 0
        while not over.is_set() and turn < 300:  # bounded, as it is what is to be verified
            turn += 1
            state.set(f"k{draw.randrange(50)}", {"n": turn})
            state.set("big", [{"i": n, "x": draw.random()} for n in range(100)])
            with store.change(id=f"{number} {turn}", correlation="run") as change:
                change[state].append("list", turn)
                change[store.agent("1")].set("n", turn)
            store.agent(f"new {number} {turn}").set("n", 1)
            if turn % 3 == 0:
                state.restore(state.checkpoint())
                state.fork(f"fork {number} {turn}").set("n", 1)
                with state.open_write("file") as file:
                    file.write(draw.randbytes(60_000))

    with ThreadPoolExecutor(3) as pool:
        work_done = [pool.submit(work, number) for number in range(2)]
        found = [place.open().verify().findings for _ in range(6)]
        over.set()
    assert [done.result() for done in work_done] == [None, None]
    assert found == [[]] * 6
    assert place.open().verify().findings == []
    place.close()


def test_a_scope_is_named_by_its_state(place: Place) -> None:
    store = place.open()
    fill(store)
    a = store.agent("a")
    assert store.verify(a).entries == store.verify("agent:a").entries
    with pytest.raises(InvalidInputError, match="another store"):
        store.verify(sync.open("memory:").agent("a"))
