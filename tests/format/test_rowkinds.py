"""The table of kinds of rows: it says what the page says, what is stored, and what is done."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import features
import golden

import holdfast_verify
from holdfast import sync
from holdfast.errors import HoldfastError, PrunedError
from holdfast.seal.ring import Ring
from holdfast.storage.contract import Batch
from holdfast.storage.memory import MemoryStorage
from holdfast.store.names import rowkinds
from holdfast.store.names.rowkinds import CELLS, ROWS, Kind

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
STORED: dict[str, Any] = json.loads(golden.FILE.read_text())
STRAY = {
    "entry": "the feed knows no such entry",
    "values": "no entry names this pack",
    "index save": "no entry announces this save",
    "index nodes": "no save uses these nodes",
    "signature": "it lies beside no checkpoint",
    "anchor": "no anchor names it",
    "base": "no anchor names it",
}
"""What `verify` says, and people may look for."""
Tables = tuple[Sequence[Kind], Sequence[Kind]]


def layout_of(kind: Kind) -> str:
    """The fields of a kind's keys as the page writes them."""
    text = " ".join(f"{name}({size})" for name, size in kind.layout)
    for short, fields in (("entry", rowkinds.ENTRY), ("line", rowkinds.LINE)):
        text = text.replace(" ".join(f"{name}({size})" for name, size in fields), f"*{short}*")
    return text


def line_of(kind: Kind) -> list[str]:
    letters, name = kind.key[:1].decode(), kind.key[1:].decode()
    begin = f"`{kind.key.decode()}`" if kind in CELLS else f"`{letters}`"
    rest = f"`{name}` {layout_of(kind)}" if name and kind not in CELLS else layout_of(kind)
    more = ["yes" if kind.copied else "no"] if kind in CELLS else [kind.heal]
    return [f"{begin} {rest}".strip(), kind.name, kind.sealed, kind.check, *more]


def documented(heading: str) -> list[list[str]]:
    """The table behind a heading of the page, without what its last column tells."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n\n*line*")[0].partition("\n**")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return [re.split(r" \| ", line.removeprefix("| "))[:-1] for line in lines]


def check_tables(rows: Sequence[Kind], cells: Sequence[Kind]) -> None:
    """All that can be said of the tables."""
    assert [line_of(kind) for kind in rows] == documented("Rows")
    assert [line_of(kind) for kind in cells] == documented("Cells")
    for kind in (*rows, *cells):
        assert kind.stray == STRAY.get(kind.name, "nothing accounts for this row")
        assert kind.copied or kind in cells
        assert kind.heal == rowkinds.NONE or kind in rows


def test_the_table_is_that_of_the_page() -> None:
    check_tables(ROWS, CELLS)
    keys = [(kind.key, kind.length) for kind in (*ROWS, *CELLS)]
    assert len(set(keys)) == len(keys), "a key says of which kind it is"


def mutations() -> list[Any]:
    """Each table without one of its kinds, and with each rule of each kind another."""
    found = []
    for at, table in enumerate((ROWS, CELLS)):
        for number, kind in enumerate(table):
            name = f"{kind.name.replace(' ', '-')}-{number}"
            changed = {f"{name}-dropped": [*table[:number], *table[number + 1 :]]}
            for rule, mine in kind._asdict().items():
                others = [other for one in (*ROWS, *CELLS) if (other := getattr(one, rule)) != mine]
                new = kind._replace(**{rule: others[0]})
                changed[f"{name}-{rule}"] = [*table[:number], new, *table[number + 1 :]]
            for id, one in changed.items():
                found.append(pytest.param((one, CELLS) if at == 0 else (ROWS, one), id=id))
    return found


@pytest.mark.parametrize("tables", mutations())
def test_a_change_of_the_table_is_noticed(tables: Tables) -> None:
    with pytest.raises(AssertionError):
        check_tables(*tables)


@pytest.mark.parametrize("name", ["plain", "encrypted"])
def test_rows_are_sealed_as_the_table_says(name: str) -> None:
    stored, url = STORED[name], golden.fresh_url()
    golden.put_rows(url, stored["records"], stored["cells"])
    if name == "encrypted":
        golden.put_rows(f"{url}.keys", stored["ring"], stored["ring_cells"])
    with sync.open(url, create=False, **golden.options(name == "encrypted")) as store:
        core = store._core
        ledgers = {one.number: one for scope in core.scopes() if (one := core.known(scope[0]))}
        for key, row in (
            (bytes.fromhex(k), bytes.fromhex(v)) for k, v in stored["records"].items()
        ):
            kind = rowkinds.row_kind(key)
            assert kind is not None, key
            ledger = ledgers.get(rowkinds.scope_of(key))
            opened = []
            for whose in (rowkinds.STORE_KEY, rowkinds.SCOPE_KEY):
                try:
                    if whose == rowkinds.STORE_KEY:
                        core.open_row(key, row)
                    elif kind.check == rowkinds.CHAIN and ledger is not None:
                        ledger.open_entry(key, row)
                    elif ledger is not None:
                        ledger.open_row(key, row)
                    else:
                        continue
                    opened.append(whose)
                except PrunedError:  # its envelope alone is there, and it is the entry's
                    opened.append(whose)
                except HoldfastError:
                    pass
            gone = kind.is_scoped and ledger is None
            assert gone or opened == [kind.sealed] or kind.sealed == rowkinds.PLAIN, kind


def test_no_store_writes_what_the_table_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    commit, is_ring = MemoryStorage.commit, Ring.__init__
    written: dict[Any, dict[bytes, Kind | None]] = {}
    rings: list[Any] = []

    def noted(self: MemoryStorage, batch: Batch) -> None:
        commit(self, batch)
        rows = [*batch.drops, *batch.blanks, *(one[0] for one in (*batch.puts, *batch.swaps))]
        found = written.setdefault(self._space, {})
        found |= {key: rowkinds.row_kind(key) for key in rows}
        found |= {key: rowkinds.cell_kind(key) for key, _, _ in batch.cells}

    def ring(self: Ring, storage: Any, *more: Any) -> None:
        rings.append(getattr(storage, "inner", storage)._space)
        is_ring(self, storage, *more)

    monkeypatch.setattr(MemoryStorage, "commit", noted)
    monkeypatch.setattr(Ring, "__init__", ring)
    url = golden.fresh_url()
    with sync.open(url, clock=golden.Hands()) as store:
        features.fill(store)
        state = store.agent("long")
        with state.open_write("file") as file:
            file.write(bytes(range(256)) * 5000)
        hooks = sync.hooks.Hooks(store)
        hooks.background("seen")(lambda event, context: None)
        state.set("seen", 1)
        hooks.stop()
        sync.replicas.Replicas(store, [golden.fresh_url()]).sync()
    golden.make(encrypted=True, compress=False)
    assert rings
    found = {
        key: kind
        for space, keys in written.items()
        if space not in rings
        for key, kind in keys.items()
    }
    assert [key for key, kind in found.items() if kind is None] == []
    assert {kind.name for kind in (*ROWS, *CELLS)} - {
        kind.name for kind in found.values() if kind
    } == {"pruning, of before"}


def test_what_checks_proofs_knows_the_keys_of_entries() -> None:
    entry = rowkinds.ROW[b"E"]
    assert entry.length == holdfast_verify.ENTRY
    assert len(rowkinds.line(entry.key, 0, 0)) == holdfast_verify.LINE


def test_people_are_told_what_a_row_is() -> None:
    entry = rowkinds.entry(rowkinds.line(b"E", 0x1A, 2), 7)
    told = {
        entry: "entry (scope 1a, timeline 2, entry 7)",
        rowkinds.pack(
            rowkinds.line(b"V", 1, 0), 7, 3
        ): "values (scope 1, timeline 0, entry 7, pack 3)",
        rowkinds.pack(rowkinds.line(b"N", 1, rowkinds.UPLOADS), 7, 0): (
            "index nodes (scope 1, upload 7, pack 0)"
        ),
        rowkinds.signature(entry, bytes(8)): "signature (scope 1a, timeline 2, entry 7)",
        rowkinds.line(b"T", 1, 2): "timeline (scope 1, timeline 2)",
        rowkinds.feed(1, 9): "feed row (lane 1, number 9)",
        rowkinds.epoch(1, 2): "key epoch (scope 1, epoch 2)",
        rowkinds.anchor(1, 0, 2): "anchor (scope 1, timeline 0, number 2)",
        rowkinds.change(b"\x11" * 16): f"change row ({'11' * 16})",
        rowkinds.pruner(1): "pruning (scope 1)",
        rowkinds.beat(rowkinds.lease(b"\x11" * 16)): f"lease ({'11' * 16}, beat)",
        rowkinds.SCHEDULES: "count of schedules",
        rowkinds.BESIDE + bytes(6): "count of changes beside the feed (scope 0)",
        rowkinds.rest(entry, entry): (
            "dependency (of (scope 1a, timeline 2, entry 7) on (scope 1a, timeline 2, entry 7))"
        ),
        b"Zoo": "row (5a6f6f)",
        b"E" + bytes(6): "entry (scope 0)",
    }
    assert {key: rowkinds.describe(key) for key in told} == told
