"""Rows are read whole whatever the page is, and a step is done again while others are faster."""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict, InvalidInputError
from holdfast.storage.contract import Batch
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.rows import again, each, pages


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
@pytest.mark.parametrize("reverse", [False, True])
def test_all_rows_of_a_range_come_once_and_in_order(limit: int, reverse: bool) -> None:
    storage = MemoryStorage()
    rows = [(b"b%d" % n, b"%d" % n) for n in range(10)]
    outside = [(b"a", b""), (b"c", b"")]
    cells = [(key, None, value) for key, value in [*rows, *outside]]
    storage.commit(Batch(puts=[*rows, *outside], cells=cells))
    wanted = rows[::-1] if reverse else rows
    assert list(each(storage.scan, b"b", b"c", limit=limit, reverse=reverse)) == wanted
    sizes = [len(page) for page in pages(storage.scan, b"b", b"c", limit=limit, reverse=reverse)]
    assert max(sizes) == min(limit, 10)
    assert list(each(storage.cells, b"b", b"c", limit=limit)) == rows
    assert list(each(storage.scan, b"d", b"e", limit=limit)) == []


def test_a_step_is_done_again_until_nobody_is_faster() -> None:
    done: list[int] = []

    def step(conflicts: int) -> int:
        done.append(1)
        if len(done) <= conflicts:
            raise Conflict("somebody was faster", [b"k"])
        return len(done)

    assert again(lambda: step(4), "never", times=5) == 5
    done.clear()
    with pytest.raises(Conflict, match="try it later") as told:
        again(lambda: step(5), "try it later", times=5)
    assert (len(done), told.value.keys) == (5, (b"k",))
    done.clear()
    with pytest.raises(Conflict, match="somebody was faster"):
        again(lambda: step(5), times=5, pause=0.001)
    assert len(done) == 5


def test_a_step_that_cannot_go_on_says_so_at_once() -> None:
    done: list[int] = []

    def step() -> None:
        done.append(1)
        raise InvalidInputError("no")

    with pytest.raises(InvalidInputError):
        again(step, "never")
    assert done == [1]
