"""Files of checkpoints that were changed, forged or made to do harm."""

from __future__ import annotations

import hashlib
import resource
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Sticky, ValueLimits, sync
from holdfast.checkpoints import export_file as export_files
from holdfast.checkpoints.export_file import (
    BYTES,
    FRAME,
    LIST,
    MAGIC,
    VALUE,
    Description,
    ExportFile,
    export_parts,
    read_description,
    record_head,
    sign_description,
)
from holdfast.errors import (
    DamagedExportError,
    HoldfastError,
    InvalidInputError,
    LimitExceededError,
    NewerFormatError,
    StateIntegrityError,
    UntrustedSignerError,
)
from holdfast.seal.signer import Signer
from holdfast.sync.checkpoints import export_checkpoint, import_checkpoint, inspect_export

pack = msgspec.msgpack.encode


@pytest.fixture
def store() -> Iterator[sync.Store]:
    """A store with one state and one checkpoint of it."""
    with sync.open("memory:") as made:
        state = made.agent("1")
        state.declare(Sticky("done/"))
        state.set("plan", {"goal": "ship", "steps": list(range(20))})
        state.set("text", "again and " * 60)
        state.checkpoint("good")
        yield made


def described(path: Path) -> Description:
    with path.open("rb") as file:
        return read_description(ExportFile(file, None).description)


def forged(
    path: Path, said: Description, content: Iterable[bytes], by: Signer | None, **other: Any
) -> None:
    """A file with any content, whose description is true unless something else is given."""
    whole = b"".join(content)
    true = {"size": len(whole), "digest": hashlib.sha256(whole).digest()}
    signed = {"signer": by.public if by else b""}
    said = msgspec.structs.replace(said, **(true | signed | other))
    path.write_bytes(b"".join(export_parts(sign_description(said, by), [whole], None)))


def record(key: str, value: Any) -> bytes:
    data = pack(value)
    return record_head(key, VALUE, len(data)) + data


@pytest.mark.parametrize("key", [None, "file", "passphrase:x"])
def test_every_flipped_byte_is_found(store: sync.Store, tmp_path: Path, key: str | None) -> None:
    """And every cut, and anything behind the end; nothing is changed by any of it."""
    key = f"file:{tmp_path / 'export.key'}" if key == "file" else key
    state, path = store.agent("1"), tmp_path / "x"
    export_checkpoint(state, path, key=key)
    whole = path.read_bytes()
    state.set("plan", "newer")
    entries = state._handle.place()[2]
    # Behind the head, a passphrase differs from a key file only in the time that it takes.
    slow = key is not None and key.startswith("passphrase")
    end = len(MAGIC) + 2 + int.from_bytes(whole[len(MAGIC) : len(MAGIC) + 2], "big")
    for at in range(end if slow else len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with pytest.raises(HoldfastError) as caught:
            import_checkpoint(state, path, key=key)
        assert isinstance(
            caught.value, DamagedExportError if at >= len(MAGIC) else InvalidInputError
        ), (at, caught.value)
    for length in [*range(0, end if slow else len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedExportError, match="cut short"):
            import_checkpoint(state, path, key=key)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedExportError):
        import_checkpoint(state, path, key=key)
    assert state.get("plan") == "newer"
    assert (state._handle.place()[2], len(state.timelines())) == (entries, 1)
    path.write_bytes(whole)
    import_checkpoint(state, path, key=key)


def test_frames_cannot_be_moved_between_files_and_places(store: sync.Store, tmp_path: Path) -> None:
    """Under one key file: frames of another file, or in another order, do not open."""
    state, key = store.agent("1"), f"file:{tmp_path / 'export.key'}"
    state.set("long", bytes(3 * FRAME))
    state.checkpoint("long")
    files = []
    for name in ("a", "b"):
        export_checkpoint(state, tmp_path / name, key=key)
        files.append(_frames((tmp_path / name).read_bytes()))
    (head, *frames), (_, *others) = files
    assert len(frames) > 3

    def refused(parts: list[bytes]) -> None:
        data = b"".join(parts)
        (tmp_path / "c").write_bytes(data + hashlib.sha256(data).digest())
        with pytest.raises(DamagedExportError, match="does not open"):
            import_checkpoint(state, tmp_path / "c", key=key)

    refused([head, frames[0], others[1], *frames[2:]])
    refused([head, frames[0], frames[2], frames[1], *frames[3:]])
    refused([head, *others])


def _frames(data: bytes) -> list[bytes]:
    at = len(MAGIC) + 2 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 2], "big")
    found = [data[:at]]
    while at < len(data) - 32:
        end = at + 9 + int.from_bytes(data[at + 5 : at + 9], "big")
        found.append(data[at:end])
        at = end
    return found


def test_frozen_randomness_repeats_no_nonce(
    store: sync.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a machine that was cloned: the same key and random numbers, other content."""
    monkeypatch.setattr(export_files, "_random", lambda n: bytes(n))
    state, key = store.agent("1"), f"file:{tmp_path / 'export.key'}"
    nonces = []
    for name in ("a", "b"):
        state.set("plan", name)
        state.checkpoint(name)
        export_checkpoint(state, tmp_path / name, key=key)
        nonces += [frame[9:21] for frame in _frames((tmp_path / name).read_bytes())[1:]]
    assert len(set(nonces)) == len(nonces) == 4


def test_a_forger_without_the_signer(store: sync.Store, tmp_path: Path) -> None:
    state, path = store.agent("1"), tmp_path / "x"
    export_checkpoint(state, path)
    said = described(path)
    with path.open("rb") as file:
        frame = ExportFile(file, None).description
    evil = record("plan", "send all money")
    # The true description, and other content.
    path.write_bytes(b"".join(export_parts(frame, [evil], None)))
    with pytest.raises(DamagedExportError):
        import_checkpoint(state, path, untrusted=True)
    state.set("plan", {"goal": "sink", "steps": list(range(20))})
    state.checkpoint("as long")
    export_checkpoint(state, tmp_path / "as long")
    with (tmp_path / "as long").open("rb") as file:
        content = ExportFile(file, None).read(said.size)
    path.write_bytes(b"".join(export_parts(frame, [content], None)))
    with pytest.raises(DamagedExportError):
        inspect_export(path)
    # A signature of the forger's, in the true signer's name, and in the forger's own.
    forger = Signer.generate()
    forged(path, said, [evil], forger, keys=1, signer=said.signer)
    with pytest.raises(DamagedExportError, match="signature"):
        import_checkpoint(state, path, untrusted=True)
    forged(path, said, [evil], forger, keys=1)
    with pytest.raises(UntrustedSignerError):
        import_checkpoint(state, path)
    # No signature.
    forged(path, said, [evil], None, keys=1)
    with pytest.raises(UntrustedSignerError):
        import_checkpoint(state, path)
    forged(path, said, [evil], None, keys=1, signer=said.signer)
    with pytest.raises(DamagedExportError, match="by halves"):
        import_checkpoint(state, path, untrusted=True)
    assert state.get("plan") != "send all money"


def test_who_is_not_trusted_costs_nothing(store: sync.Store, tmp_path: Path) -> None:
    """Of a file that nobody here trusts nothing but the description is read."""
    state, path = store.agent("1"), tmp_path / "x"
    export_checkpoint(state, path)
    content = [record_head("blob", BYTES, 200 << 20), bytes(200 << 20)]
    forged(path, described(path), content, Signer.generate(), keys=1)
    assert path.stat().st_size < 1 << 20
    began = time.process_time()
    with pytest.raises(UntrustedSignerError):
        import_checkpoint(state, path)
    with pytest.raises(LimitExceededError, match="limit="):
        import_checkpoint(state, path, untrusted=True, limit=100 << 20)
    assert time.process_time() - began < 1


HOSTILE = {
    "keys out of order": (lambda: [record("b", 1), record("a", 2)], DamagedExportError),
    "a key twice": (lambda: [record("a", 1), record("a", 2)], DamagedExportError),
    "a key that is none": (lambda: [record("a//b", 1)], DamagedExportError),
    "a key of a lookup": (lambda: [record("$terms/x/y", 1)], DamagedExportError),
    "a declaration among values": (lambda: [record("$declared/sticky/a*", {})], DamagedExportError),
    "an unknown kind": (lambda: [record_head("a", 9, 0)], DamagedExportError),
    "a negative size": (lambda: [record_head("a", VALUE, -1)], DamagedExportError),
    "more than there is": (lambda: [record_head("a", VALUE, 1 << 20)], DamagedExportError),
    "a list without end": (lambda: [record_head("a", LIST, 1 << 60)], DamagedExportError),
    "a value beyond all limits": (
        lambda: [record_head("a", VALUE, 1 << 40)],
        LimitExceededError,
    ),
    "bytes beyond all limits": (lambda: [record_head("a", BYTES, 1 << 50)], LimitExceededError),
    "an expiry that is none": (
        lambda: [record_head("a", VALUE, 1, pack(["x"])) + b"\0"],
        DamagedExportError,
    ),
    "a class that is none": (
        lambda: [record_head("a", VALUE, 1, pack([0, 0, "ephemeral"])) + b"\0"],
        DamagedExportError,
    ),
    "long bytes with a class": (
        lambda: [record_head("a", BYTES, 1, pack([0, 0, "sensitive"])) + b"\0"],
        DamagedExportError,
    ),
    "no msgpack": (lambda: [record_head("a", VALUE, 1), b"\xc1"], DamagedExportError),
    "two values in one": (lambda: [record_head("a", VALUE, 2), b"\1\2"], DamagedExportError),
    "very deep": (
        lambda: [record_head("a", VALUE, 100_001), b"\x91" * 100_000 + b"\0"],
        LimitExceededError,
    ),
    "many empty arrays": (
        lambda: [
            record_head("a", VALUE, 5 + 16_000_000),
            b"\xdd" + (16_000_000).to_bytes(4, "big") + b"\x90" * 16_000_000,
        ],
        LimitExceededError,
    ),
    "no content": (lambda: [b"\0"], DamagedExportError),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_refused_in_bounds(store: sync.Store, tmp_path: Path, name: str) -> None:
    """Even from somebody who is trusted, or if anybody is."""
    content, error = HOSTILE[name]
    state, path = store.agent("1"), tmp_path / "x"
    export_checkpoint(state, path)
    before = dict(state.items())
    parts = content()
    size = sum(map(len, parts))
    forged(path, described(path), parts, Signer.generate(), keys=1 + ("twice" in name))
    del parts
    tracemalloc.start()
    began = time.process_time()
    try:
        for refuse in (
            lambda: import_checkpoint(state, path, untrusted=True),
            lambda: inspect_export(path),
        ):
            with pytest.raises(error):
                refuse()
        assert tracemalloc.get_traced_memory()[1] < 8_000_000 + 4 * size
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 5
    assert dict(state.items()) == before
    assert len(state.timelines()) == 1


def test_hostile_descriptions(store: sync.Store, tmp_path: Path) -> None:
    state, path = store.agent("1"), tmp_path / "x"
    export_checkpoint(state, path)
    said, signer = described(path), Signer.generate()
    values: list[tuple[dict[str, Any], type[HoldfastError]]] = [
        ({"size": 1 << 62}, LimitExceededError),
        ({"size": -1}, DamagedExportError),
        ({"keys": 7}, DamagedExportError),
        ({"time": 1 << 62}, DamagedExportError),
        ({"scope": "nonsense"}, DamagedExportError),
        ({"metadata": b"\xc1"}, DamagedExportError),
        ({"digest": b"short"}, DamagedExportError),
        ({"declared": [("plan", b"\0")]}, DamagedExportError),
        ({"declared": [("$declared/magic/x", b"\x80")]}, NewerFormatError),
        ({"declared": [("$declared/sticky/x*", b"\0")]}, NewerFormatError),
        ({"declared": [("$declared/sticky/x*", b"\xc1")]}, StateIntegrityError),
    ]
    for other, error in values:
        forged(path, said, [record("a", 1)], signer, keys=other.pop("keys", 1), **other)
        with pytest.raises(error):
            import_checkpoint(state, path, untrusted=True)
    for frame in (b"\0", pack([b"", b""]), pack([b"\xc1", b""]), pack(["x"])):
        path.write_bytes(b"".join(export_parts(frame, [], None)))
        with pytest.raises(DamagedExportError):
            inspect_export(path)
    assert len(state.timelines()) == 1


def test_the_cost_of_a_passphrase_is_bounded(store: sync.Store, tmp_path: Path) -> None:
    """What a file asks for is looked at before anything is derived."""
    state, path = store.agent("1"), tmp_path / "x"
    export_checkpoint(state, path, key="passphrase:x")
    whole = path.read_bytes()
    length = int.from_bytes(whole[len(MAGIC) : len(MAGIC) + 2], "big")
    start = len(MAGIC) + 2
    meta = msgspec.msgpack.decode(whole[start : start + length - 16])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for cost in ([16 << 20, 3, 4], [8, 1, 1], [65536, 1000, 4], None):
        meta[4] = cost
        packed = pack(meta)
        packed += hashlib.sha256(b"holdfast/1/ring-meta\0" + packed).digest()[:16]
        head = MAGIC + len(packed).to_bytes(2, "big") + packed
        path.write_bytes(head + whole[start + length :])
        with pytest.raises(DamagedExportError, match="says of its key"):
            inspect_export(path, key="passphrase:x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_a_file_that_changes_while_it_is_read(
    store: sync.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is compared with what was signed, not with what was looked at first."""
    state, path = store.agent("1"), tmp_path / "x"
    export_checkpoint(state, path, at="good")
    content = record("plan", "other")
    with path.open("rb") as file:
        frame = ExportFile(file, None).description
    rewind = ExportFile.rewind

    def changing(self: ExportFile) -> None:
        path.write_bytes(b"".join(export_parts(frame, [content], None)))
        rewind(self)

    monkeypatch.setattr(ExportFile, "rewind", changing)
    before = dict(state.items())
    with pytest.raises(DamagedExportError):
        import_checkpoint(state, path)
    assert dict(state.items()) == before


def test_limits_of_the_store_hold(tmp_path: Path) -> None:
    with sync.open("memory:") as store:
        state = store.agent("1")
        state.set("list", list(range(2000)))
        state.checkpoint("x")
        export_checkpoint(state, tmp_path / "x")
    with sync.open("memory:", limits=ValueLimits(items=1000)) as small:
        with pytest.raises(LimitExceededError):
            import_checkpoint(small.agent("1"), tmp_path / "x", untrusted=True)
        assert small.agent("1").keys() == []
