"""Genuine rows of a later copy of a store, put into the older one: nothing there calls for them."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from store_kit import put_row, rows_of

from holdfast import sync
from holdfast.storage import open_storage

KINDS = {b"I": "change row", b"R": "correlation", b"T": "timeline"}


def opened(folder: Path, sealed: bool) -> Any:
    key = f"file:{folder.parent / 'master.key'}" if sealed else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a key in the same folder
        return sync.open(f"sqlite:{folder / 'store.db'}", key=key, durability="normal")


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("erased", [False, True], ids=["nothing erased", "another erased"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_of_a_later_copy_are_found(
    tmp_path: Path, kind: bytes, erased: bool, sealed: bool
) -> None:
    now, later = tmp_path / "now", tmp_path / "later"
    now.mkdir()
    with opened(now, sealed) as store:
        store.agent("a").set("k", 1)
        store.agent("other").set("k", 1)
        if erased:
            store.erase("agent:other")
        witness = store.witness()
    shutil.copytree(now, later)
    with opened(later, sealed) as store:
        state = store.agent("a")
        with store.acting("somebody", correlation="run"), state.change(id="pay") as change:
            change.set("paid", 1)
        state.fork("trial")
    here, there = (open_storage(f"sqlite:{it / 'store.db'}") for it in (now, later))
    known = dict(rows_of(here, kind))
    more = [(key, row) for key, row in rows_of(there, kind) if key not in known]
    assert more
    for key, row in more:
        put_row(here, key, row)
    here.close()
    there.close()
    with opened(now, sealed) as store:
        found = store.verify(expect=witness).findings
        assert [one.kind for one in found] == ["unaccounted"]
        assert KINDS[kind] in found[0].place
