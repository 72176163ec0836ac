"""What differs between two sequences: applied to the one, it gives the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.tree.sequence import changes

ITEMS = st.lists(st.integers(0, 12), max_size=60) | st.lists(st.integers(), max_size=60)


def applied(old: list[int], new: list[int]) -> tuple[list[int], int]:
    """The old sequence with its ranges replaced, and how many items that took."""
    result: list[int] = []
    position = brought = 0
    for low, high, first, last in changes(old, new):
        assert position <= low <= high
        result += old[position:low] + new[first:last]
        brought += last - first
        position = high
    return result + old[position:], brought


@given(ITEMS, ITEMS)
def test_any_two(old: list[int], new: list[int]) -> None:
    assert applied(old, new)[0] == new


@given(st.sets(st.integers(0, 999), max_size=12), st.integers(0, 400))
def test_changes_where_they_stand_and_a_slid_window(places: set[int], slid: int) -> None:
    old = list(range(1000))
    new = [-n - 1 if n in places else n for n in old]
    assert applied(old, new) == (new, len(places))
    window = old[slid:] + list(range(1000, 1000 + slid))
    assert applied(old, window) == (window, slid)


@given(st.integers(0, 299), st.integers(0, 299))
def test_an_item_that_moved_is_all_that_is_brought(origin: int, target: int) -> None:
    old = list(range(300))
    new = [n for n in old if n != origin]
    new.insert(target, origin)
    assert applied(old, new) == (new, int(origin != target))


@given(st.integers(0, 299), st.integers(0, 299))
def test_two_items_that_changed_places(one: int, other: int) -> None:
    old = list(range(300))
    new = list(old)
    new[one], new[other] = new[other], new[one]
    assert applied(old, new)[0] == new
    assert applied(old, new)[1] <= 2


def test_far_changes_cost_what_they_changed() -> None:
    old = list(range(1000))
    new = [*old[:100], -1, -2, *old[100:500], *old[510:900], -3, *old[901:]]
    assert applied(old, new) == (new, 3)
