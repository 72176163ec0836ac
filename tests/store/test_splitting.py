"""Items of a list that is set again are recognised by content, and only where that is safe."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import Any

import pytest

from holdfast.errors import InvalidValueError
from holdfast.seal.codec import Codec
from holdfast.seal.registry import Registry
from holdfast.store.splitting import Branch, Memo, Splitter

CODEC = Codec(Registry())


def remembered(value: Any) -> tuple[Splitter, Memo]:
    splitter = Splitter(CODEC, lambda data: hashlib.sha256(data).digest(), bytes(32))
    memo: Memo = {}
    held = splitter.remember(splitter.split(value), memo)
    assert (held > 0) == bool(memo)
    return splitter, memo


def rows(**more: Any) -> list[Any]:
    return [{"n": n, "text": "zażółć gęślą jaźń" * 5, **deepcopy(more)} for n in range(100)]


def parts_of(part: Any) -> list[Any]:
    assert type(part) is Branch
    return part.parts


@pytest.mark.parametrize("nested", [False, True])
def test_an_item_changed_in_place_is_found(nested: bool) -> None:
    value = rows(tags=["a"])
    splitter, memo = remembered({"more": {"rows": value}} if nested else value)
    assert len(memo) == 100
    value[50]["tags"].append("b")
    value[60]["n"] = 60.0  # equal, but not the same
    again = parts_of(splitter.split(value, memo))
    known = set(map(id, memo.values()))
    assert [n for n, part in enumerate(again) if id(part) not in known] == [50, 60]
    fresh = parts_of(splitter.split(value))
    assert [part.ref for part in again] == [part.ref for part in fresh]
    assert [part.data(CODEC) for part in again] == [part.data(CODEC) for part in fresh]


def test_bytes_are_not_taken_for_what_is_like_them() -> None:
    splitter, memo = remembered([*rows(), *rows(raw=[{"b": b"x"}])])
    assert len(memo) == 100
    with pytest.raises(InvalidValueError) as caught:
        splitter.split([*rows(), *rows(raw=[{"b": bytearray(b"x")}])], memo)
    assert caught.value.path == "$[100].raw[0].b"
