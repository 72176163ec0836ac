"""Where long text and bytes are cut: whatever the content is like, an insertion stays local."""

from __future__ import annotations

import base64
import hashlib
import random

import pytest

from holdfast.store.tree.split import CHUNK_LEAST, CHUNK_MOST, Cutter

SIZE = 300_000
KEYS = [bytes([number]) * 32 for number in range(6)]
WORDS = ["the ", "state ", "of ", "agents ", "is ", "kept ", "and ", "a ", "tool ", "called "]


def contents() -> dict[str, bytes]:
    """Texts as agents have them, most of them far from random."""
    luck = random.Random(7)
    made = {
        "prose": "".join(luck.choice(WORDS) for _ in range(SIZE // 3)),
        "lines": "".join(f"line {n} of the report says that all is well\n" for n in range(9000)),
        "numbers": ",".join(str(luck.randrange(10**9)) for _ in range(SIZE // 8)),
        "counting": " ".join(map(str, range(SIZE // 4))),
        "json": "".join(f'{{"id": {n}, "role": "user", "content": "hi {n}"}}' for n in range(9000)),
    }
    plain = {name: text.encode()[:SIZE] for name, text in made.items()}
    noise = luck.randbytes(SIZE)
    return {**plain, "noise": noise, "base64": base64.b64encode(noise)[:SIZE]}


CONTENTS = contents()


def chunks(cutter: Cutter, data: bytes) -> list[bytes]:
    """The data, cut."""
    made: list[bytes] = []
    start = 0
    while start < len(data):
        end = cutter.end(data, start)
        made.append(data[start:end])
        start = end
    return made


@pytest.mark.parametrize("name", CONTENTS)
def test_an_insertion_changes_a_chunk_or_two(name: str) -> None:
    data = CONTENTS[name]
    costs: list[int] = []
    for key in KEYS:
        cutter = Cutter(key)
        before = chunks(cutter, data)
        assert b"".join(before) == data
        assert all(CHUNK_LEAST < len(chunk) <= CHUNK_MOST for chunk in before[:-1])
        for place in (500, SIZE // 2, SIZE - 40_000):
            after = chunks(cutter, data[:place] + b"some more words" + data[place:])
            costs.append(sum(map(len, set(after) - set(before))))
    assert sum(costs) / len(costs) < 20_000
    assert max(costs) < 3 * CHUNK_MOST


def test_cuts_depend_on_the_key() -> None:
    lengths = {tuple(map(len, chunks(Cutter(key), CONTENTS["prose"]))) for key in KEYS}
    assert len(lengths) == len(KEYS)


def cut_by_the_book(key: bytes, data: bytes) -> int:
    """The end of the first chunk, written from docs/format.md with nothing but plain numbers."""
    limit = min(len(data), 32768)
    for block in range(4096, limit, 4096):
        mixed = list(data[block - 64 : min(block + 4096, limit)])
        for number in (0, 1):
            secret = hashlib.shake_256(key + bytes([number])).digest(1040)
            order = sorted(range(256), key=lambda v, s=secret: (s[16 + 4 * v : 20 + 4 * v], v))  # type: ignore[misc]
            factor = [secret[0] | 1, *secret[1:16]]
            replaced = [order[byte] for byte in mixed]
            mixed, carry = [], 0
            for place in range(len(replaced)):
                for back in range(min(16, place + 1)):
                    carry += replaced[place - back] * factor[back]
                mixed.append(carry & 0xFF)
                carry >>= 8
        for place in range(64, len(mixed) - 1):
            if mixed[place] == 0 and mixed[place + 1] < 16:
                return block - 64 + place + 2
    return limit


@pytest.mark.parametrize("name", ["prose", "noise"])
def test_cuts_are_as_the_format_says(name: str) -> None:
    for key in KEYS[:3]:
        cutter = Cutter(key)
        for size in (4000, 5000, 60_000):
            data = CONTENTS[name][:size]
            assert cutter.end(data, 0) == cut_by_the_book(key, data)
