"""The format of exports: golden files that are read for ever, also by a second reader.

`python tests/format/test_export_format.py` makes the files anew, for a new format only.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import golden
import reader
from export_reader import read_export

from holdfast import Sticky, sync
from holdfast.seal.keys import key_line
from holdfast.seal.signer import Signer
from holdfast.sync.checkpoints import export_checkpoint, import_checkpoint, inspect_export

FOLDER = Path(__file__).parent
END = datetime(2999, 1, 1, tzinfo=UTC)
KEY = bytes(range(32))
SIGNER = Signer.from_seed(bytes(range(100, 132)))
FILES = {"plain": FOLDER / "golden-plain.hfx", "encrypted": FOLDER / "golden-encrypted.hfx"}
SMALL = {"plan": {"goal": "ship", "steps": [1, 2.5, None]}, "token": b"\0\1"}
LONG = {"blob": bytes(1 << 21), "list": ["x" * 1000] * 2000}
PAGE = (FOLDER.parents[1] / "docs" / "format.md").read_text()


def values(name: str) -> dict[str, Any]:
    return SMALL | (LONG if name == "plain" else {})


def key_of(name: str, folder: Path) -> str | None:
    if name == "plain":
        return None
    path = folder / "golden.key"
    path.write_text(key_line(KEY))
    path.chmod(0o600)
    return f"file:{path}"


@pytest.mark.parametrize("name", FILES)
def test_golden_files_are_taken_over(name: str, tmp_path: Path) -> None:
    key, trust = key_of(name, tmp_path), [SIGNER.public.hex()]
    found = inspect_export(FILES[name], key=key, trust=trust)
    assert (str(found.scope), found.name, found.tags) == ("agent:golden", "golden", ("a",))
    assert (found.keys, found.encrypted) == (len(values(name)), key is not None)
    with sync.open("memory:") as store:
        done = import_checkpoint(store.agent("1"), FILES[name], key=key, trust=trust)
        assert dict(store.agent("1").items()) == values(name)
        assert done.declarations == 1
        item = store.agent("1").item("token")
        assert item is not None
        assert (item.expires, item.class_) == (END, "sensitive")
        assert store.agent("1").declared() == [Sticky("done/")]
        store.agent("1").checkpoint("again")
        again = export_checkpoint(store.agent("1"), tmp_path / "again")
        assert (again.digest, again.bytes) == (found.digest, found.bytes)


@pytest.mark.parametrize("name", FILES)
def test_a_second_reader_reads_them(name: str) -> None:
    found = read_export(FILES[name].read_bytes(), KEY if name == "encrypted" else None)
    documented = re.findall(r"^\| (\d+) \|", PAGE.partition("## Exports")[2], re.MULTILINE)
    assert [int(number) for number in documented] == list(range(len(found.said)))
    assert (found.said[2], found.said[5], found.said[15]) == (
        "agent:golden",
        "golden",
        len(values(name)),
    )
    assert [key for key, _ in found.said[18]] == ["$declared/sticky/done/*"]
    kinds = {key: kind for key, (kind, _) in found.records.items()}
    assert list(kinds) == sorted(kinds)
    if name == "plain":
        assert kinds == {"blob": 1, "list": 2, "plan": 0, "token": 0}
        assert found.records["blob"][1] == LONG["blob"]
        assert [reader.unpack(item) for item in found.records["list"][1]] == LONG["list"]
    for key, value in SMALL.items():
        assert reader.unpack(found.records[key][1]) == value
    assert found.metas["token"] == [32472144000000000, 0, "sensitive"]
    assert not any(meta for key, meta in found.metas.items() if key != "token")


def make() -> None:
    """Write the files."""
    with tempfile.TemporaryDirectory() as folder:
        signer = Path(folder) / "signer"
        line = base64.b64encode(SIGNER.seed()).decode()
        signer.write_text(f"holdfast-signer-1 {line}\n")
        signer.chmod(0o600)
        for name, path in FILES.items():
            with sync.open(golden.fresh_url(), signer=f"file:{signer}") as store:
                state = store.agent("golden")
                state.declare(Sticky("done/"))
                for key, value in values(name).items():
                    expires, class_ = (END, "sensitive") if key == "token" else (None, None)
                    state.set(key, value, expires=expires, class_=class_)
                state.checkpoint("golden", tags=["a"], metadata={"n": 1})
                export_checkpoint(state, path, key=key_of(name, Path(folder)))


if __name__ == "__main__":
    make()
