"""Long values: bytes and files written and read in pieces, the same value as set whole."""

from __future__ import annotations

import asyncio
import io
import random
import shutil
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import Gate, GateRequest, ValueLimits, sync
from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    DiskFullError,
    GateRefusedError,
    InvalidInputError,
    LimitExceededError,
    MissingError,
    PrunedError,
    StateIntegrityError,
)
from holdfast.store import long as long_writing
from holdfast.store.names import rowkinds

SIZES = (0, 1, 63, 64, 16_384, 16_385, 50_000, 70_000, 300_000)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long begins early, so that short tests have uploads of many rows and commits."""
    monkeypatch.setattr(long_writing, "SHORT", 60_000)
    monkeypatch.setattr(long_writing, "PIECE", 40_000)
    monkeypatch.setattr(long_writing, "COMMIT", 100_000)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def pieces(data: bytes, seed: int = 1) -> Iterator[bytes]:
    """The data in pieces of all kinds of sizes."""
    draw = random.Random(seed)
    at = 0
    while at < len(data):
        size = draw.choice((1, 100, 5_000, 50_000, 200_000))
        yield data[at : at + size]
        at += size


def write(state: sync.State, key: str, data: bytes, **more: int) -> int:
    with state.open_write(key, **more) as file:
        for piece in pieces(data):
            file.write(piece)
    assert file.version is not None
    return file.version


def upload_rows(place: Place) -> int:
    storage = place.storage()
    found = [k for kind in (b"V", b"N") for k, _ in rows_of(storage, kind)]
    storage.close()
    return sum(int.from_bytes(key[7:9], "big") == rowkinds.UPLOADS for key in found)


def test_what_is_written_is_the_value_that_set_makes(place: Place) -> None:
    """Equal content has an equal root, however it came: in pieces or whole, over old or new."""
    state = place.open().agent("1")
    for size in SIZES:
        data = noise(size)
        state.set("k", data)
        whole = state.root()
        for before in (None, noise(size, 2), data, data[: size // 2] + b"!" + data[size // 2 :]):
            if before is None:
                state.delete("k")
            else:
                state.set("k", before)
            write(state, "k", data)
            assert state.root() == whole
            assert state.get("k") == data
    assert place.reopen().agent("1").get("k") == noise(SIZES[-1])
    assert place.open().verify().findings == []


def test_a_value_that_was_set_is_read_in_pieces(place: Place) -> None:
    state = place.open().agent("1")
    for size in SIZES:
        data = noise(size)
        for how in (state.set, lambda key, value: write(state, key, value)):
            how("k", data)
            with state.open_read("k") as file:
                assert file.size == size
                assert b"".join(file.chunks(7_001)) == data
                assert file.read(1) == b""
                assert file.seek(size // 2) == size // 2
                assert file.read() == data[size // 2 :]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranges_are_those_of_bytes(data: st.DataObject) -> None:
    """Every range, as Python's slices give it, whatever the size and wherever it is cut."""
    size = data.draw(st.sampled_from([0, 1, 64, 70, 257, 258, 16_400, 70_000, 130_077]))
    whole = noise(size, size)
    with sync.open("memory:") as store:
        state = store.agent("1")
        write(state, "k", whole)
        bound = st.none() | st.integers(-size - 5, size + 5)
        with state.open_read("k") as file:
            for _ in range(8):
                start, stop = data.draw(bound), data.draw(bound)
                assert state.read_range("k", start, stop) == whole[start:stop]
                place, length = data.draw(st.integers(0, size + 5)), data.draw(st.integers(0, size))
                file.seek(place)
                assert file.read(length) == whole[place : place + length]


def test_files(place: Place, tmp_path: Path) -> None:
    """Real files for what knows files: copying, archives, text; whole files in and out."""
    state = place.open().agent("1")
    data = noise(200_000)
    source, target = tmp_path / "in.bin", tmp_path / "out.bin"
    source.write_bytes(data)
    version = state.put_file("file", source)
    assert state.item("file").version == version  # type: ignore[union-attr]
    assert state.get_file("file", target) == len(data)
    assert target.read_bytes() == data
    with pytest.raises(MissingError):
        state.get_file("none", target)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []
    assert target.read_bytes() == data
    with source.open("rb") as opened, state.open_write("copy") as file:
        shutil.copyfileobj(opened, file)
    with state.open_write("zip") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.bin", data)
        archive.writestr("b.txt", "hello")
    with state.open_read("zip") as opened_zip, zipfile.ZipFile(opened_zip) as archive:
        assert archive.read("a.bin") == data
        assert archive.testzip() is None
    with state.open_write("text") as file, io.TextIOWrapper(file, "utf-8") as words:
        words.writelines(f"line {n}\n" for n in range(20_000))
    with state.open_read("text") as file:
        assert sum(1 for _ in file) == 20_000
        file.seek(-6, io.SEEK_END)
        assert file.readline() == b"19999\n"


def test_a_file_that_is_replaced_keeps_who_may_read_it(place: Place, tmp_path: Path) -> None:
    state = place.open().agent("1")
    state.set("k", b"secret")
    target = tmp_path / "out"
    target.write_bytes(b"before")
    target.chmod(0o600)
    state.get_file("k", target)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"secret", 0o600)
    if Path("/dev/full").exists():
        with pytest.raises(DiskFullError):
            state.get_file("k", "/dev/full")


def test_the_async_face(place: Place, tmp_path: Path) -> None:
    async def run() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            data = noise(250_000)
            async with state.open_write("k") as file:
                for piece in pieces(data):
                    await file.write(piece)
            assert file.version == 1
            assert file.size == len(data)
            async with state.open_read("k") as found:
                assert (found.size, found.version) == (len(data), 1)
                assert b"".join([piece async for piece in found]) == data
                assert found.seek(-10, io.SEEK_END) == found.tell() == found.size - 10
                assert await found.read(4) + await found.read() == data[-10:]
            assert await state.read_range("k", 5, 100_000) == data[5:100_000]
            (tmp_path / "f").write_bytes(data)
            await state.put_file("f", tmp_path / "f")
            assert await state.get_file("f", tmp_path / "g") == len(data)
            assert (tmp_path / "g").read_bytes() == data
            with pytest.raises(RuntimeError):
                async with state.open_write("k") as file:
                    await file.write(data[::-1])
                    raise RuntimeError
            assert await state.get("k") == data
            with pytest.raises(InvalidInputError, match="async with"):
                await state.open_read("k").read()
            assert (await store.sweep()).waiting == 0
            assert (await store.verify()).findings == []

    asyncio.run(run())


def test_a_cancelled_write_leaves_nothing(place: Place) -> None:
    async def run() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.set("other", 1)

            async def write_on() -> None:
                async with state.open_write("k") as file:
                    while True:
                        await file.write(noise(50_000, file.size))

            task = asyncio.create_task(write_on())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await state.keys() == ["other"]

    asyncio.run(run())
    assert upload_rows(place) == 0


def test_only_what_differs_is_stored(place: Place) -> None:
    """The same bytes again cost an entry; a small edit costs what it touches; repeats nothing."""
    store, counting = place.open_counting()
    state = store.agent("1")
    data = noise(3_000_000)
    write(state, "k", data)
    for changed, most in (
        (data, 5_000),
        (data[:1_000_000] + b"some words" + data[1_000_000:], 150_000),
        (data[:1_000_000] + data[1_200_000:], 150_000),
        (data[:1_000_000] + data[1_200_000:] + noise(10_000, 7), 150_000),
    ):
        counting.reset()
        write(state, "k", changed)
        assert counting.bytes_written < most
        assert state.read_range("k") == changed
    counting.reset()
    write(state, "again", data[:500_000] * 8)
    assert counting.bytes_written < 1_000_000
    assert state.get("again") == data[:500_000] * 8
    assert place.open().verify().findings == []


def test_over_a_value_that_was_set_and_is_not_saved(place: Place) -> None:
    """Chunks are taken over from a value whose nodes are only in memory, too."""
    store, counting = place.open_counting()
    state = store.agent("1")
    data = noise(400_000)
    state.set("k", data)
    counting.reset()
    write(state, "k", data + b"more")
    assert counting.bytes_written < 120_000
    state.set("k", data + b"more and more")
    assert place.reopen().agent("1").get("k") == data + b"more and more"
    assert place.open().verify().findings == []


def test_the_key_changes_when_it_is_closed(place: Place) -> None:
    store = place.open()
    other = place.open().agent("1")
    state = store.agent("1")
    state.set("k", b"before")
    with state.open_write("k") as file:
        file.write(noise(500_000))
        assert other.get("k") == b"before"
        other.set("beside", 1)
    assert other.get("k") == noise(500_000)
    assert [entry.keys for entry in other.log()] == [("k",), ("beside",), ("k",)]
    assert place.open().verify().findings == []


def test_an_error_in_the_block_gives_it_up(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    for size in (10, 500_000):
        with pytest.raises(RuntimeError), state.open_write("k") as file:
            file.write(noise(size))
            raise RuntimeError
        assert file.closed
        assert not state.exists("k")
        assert store.scopes().items == []
    assert upload_rows(place) == 0
    assert store.verify().findings == []
    assert store.verify().unfinished == 0


def test_what_wraps_a_file_does_not_finish_it(place: Place) -> None:
    """A text file closes what it wraps, also when an error leaves its block."""
    state = place.open().agent("1")
    for lines in (3, 30_000):
        with (
            pytest.raises(RuntimeError),
            state.open_write("k") as file,
            io.TextIOWrapper(file, "utf-8") as words,
        ):
            words.writelines(f"line {n}\n" for n in range(lines))
            raise RuntimeError
        assert file.closed
        assert not state.exists("k")
    with state.open_write("k") as file:
        file.write(b"given up")
        file.abort()
    assert not state.exists("k")
    file = state.open_write("k")
    file.write(b"closed")
    file.close()
    file.close()
    assert state.get("k") == b"closed"
    with pytest.raises(ValueError, match="closed"):
        file.write(b"more")


def test_letting_go_is_no_closing(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    file = state.open_write("k")
    file.write(noise(500_000))
    del file
    assert not state.exists("k")
    assert store.verify().unfinished == 1
    store.close()
    assert upload_rows(place) == 0


def test_two_writers_of_one_key(place: Place) -> None:
    """The last to be closed wins; with a version, the first."""
    state, other = place.open().agent("1"), place.open().agent("1")
    first, second = noise(300_000, 1), noise(300_000, 2)
    one, two = state.open_write("k"), other.open_write("k")
    one.write(first)
    two.write(second)
    two.close()
    one.close()
    assert other.get("k") == first
    version = state.item("k").version  # type: ignore[union-attr]
    one, two = (
        state.open_write("k", if_version=version),
        other.open_write("k", if_version=version),
    )
    one.write(second)
    two.write(first[::-1])
    one.close()
    with pytest.raises(Conflict):
        two.close()
    assert other.get("k") == second
    assert place.open().verify().findings == []
    assert place.open().verify().unfinished == 0


def test_many_writers_at_once(place: Place) -> None:
    store = place.open()

    def work(number: int) -> None:
        write(store.agent(str(number % 3)), f"k{number}", noise(200_000, number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = place.reopen()
    for number in range(8):
        assert again.agent(str(number % 3)).get(f"k{number}") == noise(200_000, number)
    assert again.verify().findings == []


def test_what_is_open_stays_as_it_was(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    first = noise(400_000, 1)
    write(state, "k", first)
    with state.open_read("k") as file:
        head = file.read(10)
        write(place.open().agent("1"), "k", noise(400_000, 2))
        assert head + file.read(100_000) == first[:100_010]
        state.delete("k")
        file.seek(0)
        assert file.read() == first
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_what_is_open_and_pruned_is_told_to_be_pruned(place: Place) -> None:
    state = place.open().agent("1")
    write(state, "k", noise(1_000_000, 1))
    with state.open_read("k") as file:
        file.read(10)
        other = place.open().agent("1")
        other.delete("k")
        other.set("x", 1)
        other.prune(other._handle.place()[2], keep=[])
        file.seek(800_000)
        with pytest.raises(PrunedError):
            file.read()


def test_the_past(place: Place) -> None:
    """Checkpoints, restores, forks, views, diffs and reverts take long values along."""
    store = place.open()
    state = store.agent("1")
    first, second = noise(300_000, 1), noise(300_000, 2)
    write(state, "k", first)
    safe = state.checkpoint("safe")
    with store.acting("writer", correlation="run"):
        write(state, "k", second)
    assert state.at(safe).read_range("k", 0, 100) == first[:100]
    trial = state.fork("trial", at=safe)
    write(trial, "k", first + second)
    assert trial.get("k") == first + second
    assert state.diff(safe).keys == ["k"]
    state.revert(correlation="run")
    assert state.get("k") == first
    state.restore(state._handle.place()[2] - 1)
    assert state.get("k") == second
    for n in range(600):  # so that indexes are saved
        state.set(f"n/{n}", n)
    again = place.reopen()
    assert again.agent("1").get("k") == second
    assert again.agent("1").on("trial").get("k") == first + second
    assert again.verify().findings == []
    assert not hasattr(again.agent("1").at(1), "open_write")


def test_a_scope_that_is_deleted_meanwhile(place: Place) -> None:
    """What is written belongs to the scope that the name stands for when it is closed, as set's."""
    store = place.open()
    state = store.agent("1")
    state.set("old", 1)
    data = noise(500_000)
    with state.open_write("k") as file:
        file.write(data)
        place.open().delete("agent:1")
    assert state.keys() == ["k"]
    assert state.get("k") == data
    assert place.open().verify().findings == []
    assert place.open().verify().unfinished == 0


def test_a_scope_that_others_make_meanwhile(place: Place) -> None:
    state = place.open().agent("1")
    data = noise(500_000)
    with state.open_write("k") as file:
        file.write(data)
        assert place.open().verify().findings == []
        assert place.open().verify().unfinished == 1
        place.open().agent("1").set("theirs", 1)
    assert state.items() == [("k", data), ("theirs", 1)]
    assert place.open().verify().findings == []


def test_erasing_takes_all_of_it(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    write(state, "k", noise(300_000))
    file = state.open_write("other")
    file.write(noise(300_000, 3))
    place.open().erase("agent:1")
    with pytest.raises(MissingError, match="erased"):
        for number in range(20):
            file.write(noise(300_000, number))
    assert upload_rows(place) == 0
    assert store.verify().findings == []
    assert store.verify().unfinished == 0


def test_damage_is_found_and_named(place: Place) -> None:
    state = place.open().agent("1")
    state.set("sound", b"x" * 100)
    write(state, "k", noise(400_000))
    place.close()
    storage = place.storage()
    ours = [
        key
        for kind in (b"V", b"N")
        for key, _ in rows_of(storage, kind)
        if int.from_bytes(key[7:9], "big") == rowkinds.UPLOADS
    ]
    assert len(ours) > 4
    for key in ours[:2] + ours[-1:]:
        row = storage.get([key])[0]
        assert row is not None
        for bad in (row[:-20] + bytes([row[-20] ^ 1]) + row[-19:], None):
            put_row(storage, key, bad)
            store = place.open()
            with pytest.raises(DamagedRecordError, match="verify"):
                store.agent("1").read_range("k")
            assert store.agent("1").get("sound") == b"x" * 100
            report = store.verify()
            assert any(finding.keys == ("k",) for finding in report.findings)
            place.close()
        put_row(storage, key, row)
    extra = ours[0][:-3] + (999).to_bytes(3, "big")
    put_row(storage, extra, storage.get([ours[0]])[0])
    assert [f.kind for f in place.open().verify().findings] != []
    put_row(storage, extra, None)
    stray = ours[0][:9] + bytes(5) + ours[0][14:]
    put_row(storage, stray, storage.get([ours[0]])[0])
    found = place.open().verify().findings
    assert "unaccounted" in {finding.kind for finding in found}
    put_row(storage, stray, None)
    storage.close()
    assert place.open().verify().findings == []


def test_verify_in_portions_leaves_nothing_out(place: Place) -> None:
    """Stopped by its budget anywhere, it checks the chunks of every scope all the same."""
    store = place.open()
    for name in ("1", "2", "3"):
        write(store.agent(name), "k", noise(200_000))
        store.agent(name).fork("trial")

    def portions() -> list[str]:
        found, resume = [], None
        while True:
            report = place.open().verify(budget=0, resume=resume)
            found += [finding.kind for finding in report.findings]
            resume = report.resume
            if resume is None:
                return found

    assert portions() == []
    storage = place.storage()
    for key, row in rows_of(storage, b"V"):
        put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
        assert "damage" in portions()
        put_row(storage, key, row)
    storage.close()


def test_what_cannot_be_meant_is_refused(place: Place) -> None:
    store = place.open(limits=ValueLimits(long=100_000, size=90_000))
    state = store.agent("1")
    state.set("list", [1])
    state.set("text", "x" * 20_000)
    for key in ("list", "text"):
        with pytest.raises(InvalidInputError, match="not bytes"):
            state.open_read(key)
    with pytest.raises(InvalidInputError, match="256 GiB"):
        ValueLimits(long=1 << 39)
    with pytest.raises(MissingError, match="no key"):
        state.open_read("none")
    with pytest.raises(MissingError):
        store.agent("2").read_range("none")
    file = state.open_write("k")
    with pytest.raises(InvalidInputError, match="only bytes"):
        file.write("text")  # type: ignore[arg-type]
    file.write(noise(95_000))
    file.close()
    with pytest.raises(LimitExceededError, match="open_read"):
        state.get("k")
    with pytest.raises(InvalidInputError, match="pieces"):
        state.read_range("k")
    assert state.diff(1).keys == ["k", "text"]
    with pytest.raises(LimitExceededError, match="100000"), state.open_write("k") as file:
        file.write(noise(100_001))
    assert state.read_range("k", 0, 10) == noise(95_000)[:10]
    with pytest.raises(InvalidInputError, match="whence"):
        state.open_read("k").seek(-1)
    with pytest.raises(InvalidInputError, match="reserved"), state.open_write("$x"):
        pass


def test_gates_stand_in_front_of_long_values(place: Place) -> None:
    asked: list[object] = []

    class Guard(Gate):
        def before(self, request: GateRequest) -> None:
            for operation in request.operations:
                asked.append(operation.value)
                if operation.key == "locked":
                    raise GateRefusedError("locked")
                if operation.key == "other":
                    operation.key = "elsewhere"

    store = place.open()
    store.add_gate(Guard())
    state = store.agent("1")
    write(state, "k", noise(200_000))
    assert [getattr(value, "size", None) for value in asked][-1] == 200_000
    for key in ("locked", "other"):
        with pytest.raises(GateRefusedError):
            write(state, key, noise(200_000))
    assert state.keys() == ["k"]
    assert upload_rows(place) > 0
    assert store.verify().unfinished == 0


def test_damaged_saves_do_not_hide_a_value(plain: Place) -> None:
    """Nodes that a set value has in a save are made again from the entries."""
    state = plain.open().agent("1")
    data = noise(100_000)
    state.set("k", data)
    for n in range(600):
        state.set(f"n/{n}", n)
    plain.close()
    storage = plain.storage()
    for key, _ in rows_of(storage, b"N"):
        put_row(storage, key, None)
    storage.close()
    assert plain.open().agent("1").read_range("k") == data


def test_an_old_value_that_is_damaged_can_be_replaced(plain: Place) -> None:
    state = plain.open().agent("1")
    write(state, "k", noise(300_000))
    plain.close()
    storage = plain.storage()
    for key, _ in rows_of(storage, b"N"):
        put_row(storage, key, None)
    storage.close()
    state = plain.open().agent("1")
    with pytest.raises(StateIntegrityError):
        state.get("k")
    write(state, "k", noise(300_000, 5))
    assert state.get("k") == noise(300_000, 5)


def test_nothing_is_kept_of_a_value_that_was_found_damaged(plain: Place) -> None:
    store = plain.open()
    state, items = store.agent("1"), [f"item {number} " * 20 for number in range(60)]
    state.set("k", items)
    state.restore(state.checkpoint("safe"))  # which saves the index
    storage = plain.storage()
    ((key, row),) = (one for one in rows_of(storage, b"E") if rowkinds.sequence_of(one[0]) == 1)
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    storage.close()
    store._core.atoms.clear()  # as it is forgotten in time, while what the value was is known
    with pytest.raises(StateIntegrityError):
        state.get("k")
    state.set("k", [*items, "more"])
    plain.close()
    assert plain.open().agent("1").get("k") == [*items, "more"]
