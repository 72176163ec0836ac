"""Compression is exact, worth it, and cannot be made to expand without bound."""

from __future__ import annotations

import os
import threading
import tracemalloc

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DamagedRecordError, FormatError
from holdfast.seal.compress import BLOCK, LZ4, NONE, PADDED, ZSTD, expand, pad, squeeze


@given(st.binary(max_size=300) | st.builds(bytes.__mul__, st.binary(max_size=9), st.just(5000)))
def test_round_trip(data: bytes) -> None:
    method, small = squeeze(data)
    assert expand(method, small, len(data)) == data
    assert len(small) <= len(data)


@pytest.mark.parametrize(
    ("data", "method"),
    [
        (b"", NONE),
        (b"a" * 199, NONE),
        (b"a" * 200, LZ4),
        (b"a" * 16384, LZ4),
        (b"a" * 16385, ZSTD),
        (os.urandom(500).hex().encode(), ZSTD),  # nothing repeats, but not all bytes occur
        (os.urandom(5000), NONE),
        (os.urandom(50_000), NONE),
        (os.urandom(950) + b"a" * 50, NONE),  # saves less than a tenth
    ],
)
def test_what_is_worth_it(data: bytes, method: int) -> None:
    assert squeeze(data)[0] == method


@pytest.mark.parametrize("length", [0, 1, 999, 1001, 1 << 40, 1 << 62])
@pytest.mark.parametrize("method", [NONE, LZ4, ZSTD])
def test_lying_length(method: int, length: int) -> None:
    data = b"abcd" * 250
    small = {
        NONE: data,
        LZ4: lz4.block.compress(data, store_size=False),
        ZSTD: zstandard.compress(data, 1),
    }[method]
    assert expand(method, small, 1000) == data
    with pytest.raises(DamagedRecordError):
        expand(method, small, length)


def test_bombs() -> None:
    size = 200 << 20
    frames = {
        "zstd": (ZSTD, zstandard.compress(bytes(size), 1)),
        "zstd without size": (
            ZSTD,
            zstandard.ZstdCompressor(write_content_size=False).compress(bytes(size)),
        ),
        "lz4": (LZ4, lz4.block.compress(bytes(size), store_size=False)),
    }
    for method, data in frames.values():
        tracemalloc.start()
        with pytest.raises(DamagedRecordError):
            expand(method, data, 1000)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        tracemalloc.stop()
    lying = b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + bytes(20)
    with pytest.raises(DamagedRecordError):
        expand(ZSTD, lying, 1 << 50)


def test_garbage() -> None:
    for method in (LZ4, ZSTD):
        for data in (b"", b"x", os.urandom(100)):
            with pytest.raises(DamagedRecordError):
                expand(method, data, 100)
    small = zstandard.compress(b"a" * 1000, 1)
    for bad in (small + b"x", small + small, small[:-1]):
        with pytest.raises(DamagedRecordError):
            expand(ZSTD, bad, 1000)


def test_unknown_method() -> None:
    with pytest.raises(FormatError, match="method 4"):
        expand(4, b"", 0)


@pytest.mark.parametrize("length", [0, 1, 254, 255, 256, 5000])
def test_padding(length: int) -> None:
    for data in (bytes(length), b"\x80" * length):
        padded = pad(data)
        assert len(padded) % BLOCK == 0
        assert len(padded) - BLOCK <= len(data) < len(padded)
        assert expand(PADDED, padded, len(padded)) == data
    for bad, stated in ((b"", 0), (bytes(BLOCK), BLOCK), (pad(b"x"), 5)):
        with pytest.raises(DamagedRecordError):
            expand(PADDED, bad, stated)


def test_threads() -> None:
    wrong: list[int] = []

    def work(n: int) -> None:
        data = bytes((n,)) * 20_000 + os.urandom(20_000)
        for _ in range(50):
            method, small = squeeze(data)
            if method != ZSTD or expand(method, small, len(data)) != data:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
