"""The conformance suite of the storage contract.

    report = check_storage(lambda: MyEngine(place))
    assert report.ok, str(report)

`make()` opens a handle on one place that was fresh at first: another handle on the same rows
each time for an engine whose limits say `shared`, or the same handle for others. Each check
uses keys of its own, so that all of them can run in one place.

What it cannot show: durability (kill the process and cut the power for that) and more
concurrency than the threads of one process make.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    InvalidInputError,
    LimitExceededError,
    OutcomeUnknown,
    StoreClosedError,
)
from holdfast.storage.contract import MAX_KEY, Batch, Storage
from holdfast.storage.wrappers import Fault, Faulty

# ---- what checks are made of -------------------------------------------------------------------

Make = Callable[[], Storage]


class CheckFailedError(AssertionError):
    """The engine does not do what the contract says."""


def expect(holds: bool, reason: str) -> None:
    """Fail the check with this reason unless it holds."""
    if not holds:
        raise CheckFailedError(reason)


def raises(kind: type[Exception], call: Callable[[], object], reason: str) -> Exception:
    """The error of that kind that the call raises; none of it fails the check."""
    try:
        call()
    except kind as error:
        return error
    raise CheckFailedError(f"no {kind.__name__}: {reason}")


@contextmanager
def opened(make: Make, count: int = 1) -> Iterator[list[Storage]]:
    """Handles; those of a shared engine are closed again, others belong to the caller."""
    handles = [make() for _ in range(count)]
    try:
        yield handles
    finally:
        for handle in handles:
            if handle.limits.shared:
                handle.close()


def end_of(prefix: bytes) -> bytes:
    """A key above all keys with this prefix."""
    return prefix + b"\xff" * (MAX_KEY - len(prefix))


def race(calls: list[Callable[[], None]]) -> list[Exception | None]:
    """Run the calls at one moment, each in a thread; what each of them raised."""
    start = threading.Barrier(len(calls))
    results: list[Exception | None] = [None] * len(calls)

    def run(number: int) -> None:
        start.wait()
        try:
            calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def winners(handles: Sequence[Storage], batches: list[Batch]) -> int:
    """How many of the batches are committed, each on its handle at one moment; anything but a
    conflict is a failure of the check."""
    pairs = zip(handles, batches, strict=True)
    results = race([partial(s.commit, batch) for s, batch in pairs])
    for result in results:
        if result is not None and not isinstance(result, Conflict):
            raise result
    return results.count(None)


def fail_in_turn(s: Storage) -> None:
    """Raise KeyError inside a turn."""
    with s.turn():
        raise KeyError


def all_keys(s: Storage, prefix: bytes, limit: int) -> list[bytes]:
    """All keys under a prefix, read page by page."""
    found: list[bytes] = []
    low = prefix
    while rows := s.scan(low, end_of(prefix), limit=limit):
        found += [key for key, _ in rows]
        low = found[-1] + b"\x00"
    return found


# ---- the suite ---------------------------------------------------------------------------------


@dataclass
class Report:
    """What the suite found."""

    passed: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """(name, reason)"""

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __str__(self) -> str:
        rows = [(name, "ok", "") for name in self.passed]
        rows += [(name, "FAILED", reason) for name, reason in self.failed]
        width = max((len(name) for name, _, _ in rows), default=0)
        lines = [
            f"{name:<{width}}  {result:<6}  {reason}".rstrip() for name, result, reason in rows
        ]
        return "\n".join([*lines, f"{len(self.passed)} passed, {len(self.failed)} failed"])


Check = Callable[[Make], None]
CHECKS: dict[str, Check] = {}
"""The checks by name, in the order in which they run."""


def check_storage(make: Make) -> Report:
    """Run every check. An error of any kind fails its check and the next one goes on."""
    report = Report()
    for name, check in CHECKS.items():
        try:
            check(make)
        except Exception as error:
            report.failed.append((name, f"{type(error).__name__}: {error}"))
        else:
            report.passed.append(name)
    return report


def _check(handles: int) -> Callable[[Callable[..., None]], Check]:
    """A check of so many handles, under keys that no other check uses."""

    def add(function: Callable[..., None]) -> Check:
        @wraps(function)
        def check(make: Make) -> None:
            with opened(make, handles) as found:
                function(b"\x01" + secrets.token_bytes(7), *found)

        CHECKS[function.__name__] = check
        return check

    return add


@_check(1)
def put_and_get(p: bytes, s: Storage) -> None:
    """What was put comes back, in the order asked, None where nothing is."""
    s.commit(Batch(puts=[(p + b"a", b"1"), (p + b"b", b"2")]))
    found = s.get([p + b"b", p + b"x", p + b"a", p + b"b"])
    expect(found == [b"2", None, b"1", b"2"], "get gives other values or another order")
    rows = [*s.scan(p, end_of(p)), (p, found[0])]
    kinds = {type(part) for row in rows for part in row}
    expect(kinds == {bytes}, "what get and scan give is not bytes")
    expect(s.get([p + b"a"]) == [b"1"], "get of one key differs from get of many")
    expect(s.get([]) == [], "get of no keys is not empty")
    s.commit(Batch())
    s.commit(Batch(drops=[p + b"a", p + b"x"]))
    expect(s.get([p + b"a"]) == [None], "a dropped record is still there")


@_check(1)
def scan_order_and_bounds(p: bytes, s: Storage) -> None:
    """Scans are in byte order, low is included, high is not, both directions, limited."""
    names = [b"", b"\x00", b"\x00\xff", b"a", b"a\x00", b"ab", b"b", b"\x7f", b"\x80", b"\xff"]
    rows = [(p + name, b"v" + name) for name in names]
    s.commit(Batch(puts=rows[::-1]))
    expect(s.scan(p, end_of(p)) == rows, "scan is not in byte order, or misses rows")
    expect(s.scan(p, end_of(p), reverse=True) == rows[::-1], "reverse is not the reverse")
    expect(s.scan(p + b"a", p + b"b") == rows[3:6], "low is included, high is not")
    expect(s.scan(p, end_of(p), limit=3) == rows[:3], "limit does not give the first rows")
    last = s.scan(p, end_of(p), limit=3, reverse=True)
    expect(last == rows[:-4:-1], "limit in reverse does not give the last rows")
    expect(s.scan(p, end_of(p), limit=0) == [], "limit 0 gives rows")
    expect(s.scan(p + b"b", p + b"a") == [], "a range from high to low gives rows")
    expect(s.scan(p + b"a", p + b"a") == [], "an empty range gives rows")


@_check(1)
def scan_of_many_rows(p: bytes, s: Storage) -> None:
    """Paging through thousands of rows gives each once; drops in the middle are gone."""
    keys = [p + number.to_bytes(4, "big") for number in range(5000)]
    s.commit(Batch(puts=[(key, key) for key in keys]))
    s.commit(Batch(drops=keys[1000:4000:3]))
    left = [key for key in keys if key not in set(keys[1000:4000:3])]
    expect(all_keys(s, p, 997) == left, "paging forward gives other rows")
    back = [key for key, _ in s.scan(p, end_of(p), limit=9999, reverse=True)]
    expect(back == left[::-1], "scanning back gives other rows")


@_check(1)
def put_equal_is_left(p: bytes, s: Storage) -> None:
    """Putting a record again with equal bytes is fine, alone and among new ones."""
    s.commit(Batch(puts=[(p + b"a", b"1")]))
    s.commit(Batch(puts=[(p + b"a", b"1")]))
    s.commit(Batch(puts=[(p + b"b", b"2"), (p + b"a", b"1"), (p + b"c", b"3")]))
    expect(s.get([p + b"a", p + b"b", p + b"c"]) == [b"1", b"2", b"3"], "rows are missing")


@_check(1)
def put_other_is_damage(p: bytes, s: Storage) -> None:
    """Putting a record with other bytes is damage, and nothing of the batch is applied."""
    batch = Batch(
        puts=[(p + b"b", b"2"), (p + b"a", b"other"), (p + b"c", b"3")],
        drops=[p + b"d"],
        cells=[(p, None, b"x")],
    )
    s.commit(Batch(puts=[(p + b"a", b"1"), (p + b"d", b"4")]))
    raises(DamagedRecordError, lambda: s.commit(batch), "a record was put with other bytes")
    expect([k for k, _ in s.scan(p, end_of(p))] == [p + b"a", p + b"d"], "rows were changed")
    expect(s.get([p + b"a"]) == [b"1"], "the record was overwritten")
    expect(s.cells(p, end_of(p)) == [], "a cell was set")


@_check(1)
def absent_and_present(p: bytes, s: Storage) -> None:
    """Expectations on records hold or refuse, also on rows that the batch does not write."""
    a, b, c = p + b"a", p + b"b", p + b"c"
    s.commit(Batch(puts=[(a, b"1")], absent=[a]))
    again = Batch(puts=[(a, b"1")], absent=[a])
    raises(Conflict, lambda: s.commit(again), "absent failed, though the bytes are equal")
    raises(Conflict, lambda: s.commit(Batch(puts=[(b, b"2")], absent=[a])), "absent, unput")
    raises(Conflict, lambda: s.commit(Batch(puts=[(b, b"2")], present=[c])), "present failed")
    raises(Conflict, lambda: s.commit(Batch(absent=[a])), "absent in a batch of nothing else")
    expect(s.get([b]) == [None], "a refused batch was applied")
    s.commit(Batch(puts=[(b, b"2")], present=[a], absent=[c]))
    s.commit(Batch(drops=[a], present=[a]))
    raises(Conflict, lambda: s.commit(Batch(present=[a])), "present after a drop")
    s.commit(Batch(puts=[(a, b"new")], absent=[a]))
    expect(s.get([a, b]) == [b"new", b"2"], "absent after a drop, then put")


@_check(1)
def conflict_names_every_key(p: bytes, s: Storage) -> None:
    """`Conflict.keys` has each expectation that failed, and no other."""
    held, also = p + b"held", p + b"also"
    batch = Batch(
        puts=[(p + b"new", b"1"), (held, b"1")],
        absent=[p + b"new", held, also],
        present=[p + b"gone", held],
        cells=[(p + b"cell", b"wrong", b"2"), (p + b"none", None, b"1")],
    )
    s.commit(Batch(puts=[(held, b"1"), (also, b"1")], cells=[(p + b"cell", None, b"1")]))
    error = raises(Conflict, lambda: s.commit(batch), "four expectations fail")
    expected = {held, also, p + b"gone", p + b"cell"}
    keys = error.keys if isinstance(error, Conflict) else ()
    expect(set(keys) == expected, f"{len(set(keys) ^ expected)} keys named wrongly")
    only = Batch(puts=[(p + b"new", b"1"), (held, b"1"), (also, b"1")], absent=[also, held])
    error = raises(Conflict, lambda: s.commit(only), "two puts exist already")
    keys = error.keys if isinstance(error, Conflict) else ()
    expect(set(keys) == {held, also}, "not every put that exists is named")


@_check(1)
def conflict_leaves_nothing(p: bytes, s: Storage) -> None:
    """A batch that conflicts applies no put, no drop and no cell."""
    s.commit(Batch(puts=[(p + b"a", b"1")], cells=[(p + b"c", None, b"1")]))
    for extra in (
        Batch(absent=[p + b"a"]),
        Batch(present=[p + b"x"]),
        Batch(cells=[(p + b"z", b"1", b"2")]),
    ):
        extra.puts.append((p + b"b", b"2"))
        extra.drops.append(p + b"a")
        extra.cells.append((p + b"c", b"1", b"2"))
        raises(Conflict, lambda batch=extra: s.commit(batch), "one expectation fails")  # type: ignore[misc]
        expect(s.scan(p, end_of(p)) == [(p + b"a", b"1")], "records were changed")
        expect(s.cells(p, end_of(p)) == [(p + b"c", b"1")], "a cell was changed")


@_check(1)
def cells_compare_and_swap(p: bytes, s: Storage) -> None:
    """A cell is created, swapped, only checked and deleted, each only as expected."""
    s.commit(Batch(cells=[(p, None, b"1"), (p + b"e", None, b"")]))
    s.commit(Batch(cells=[(p, b"1", b"2")]))
    s.commit(Batch(cells=[(p, b"2", b"2"), (p + b"x", None, None)]))
    expect(s.cells(p, end_of(p)) == [(p, b"2"), (p + b"e", b"")], "cells hold other bytes")
    expect(s.cells(p, end_of(p), limit=1) == [(p, b"2")], "limit of cells is not kept")
    for wrong in ((p, None, b"3"), (p, b"1", b"3"), (p, b"1", None), (p, None, None)):
        refused = Batch(cells=[wrong])
        raises(Conflict, lambda b=refused: s.commit(b), "a cell held something else")  # type: ignore[misc]
    raises(Conflict, lambda: s.commit(Batch(cells=[(p + b"e", None, b"1")])), "empty is there")
    s.commit(Batch(cells=[(p, b"2", None), (p + b"e", b"", None)]))
    expect(s.cells(p, end_of(p)) == [], "a deleted cell is still there")
    expect(s.get([p]) == [None], "cells and records share keys")


@_check(2)
def sealed_again_if_unchanged(p: bytes, s: Storage, other: Storage) -> None:
    """Records are swapped for others only if they hold what is expected, with all else or not."""
    a, b, c = (p + name for name in (b"a", b"b", b"c"))
    s.commit(Batch(puts=[(a, b"1"), (b, b"2")]))
    s.commit(Batch(swaps=[(a, b"1", b"one"), (b, b"2", b"")], puts=[(c, b"3")]))
    expect(other.get([a, b, c]) == [b"one", b"", b"3"], "what was swapped is not there")
    wrong = Batch(swaps=[(a, b"1", b"x"), (c, b"3", b"x"), (p + b"d", b"", b"x")])
    found = raises(Conflict, lambda: s.commit(wrong), "a swap of other bytes was applied")
    named = set(getattr(found, "keys", ()))
    expect(named == {a, p + b"d"}, "the conflict does not name what had changed")
    expect(s.get([a, c, p + b"d"]) == [b"one", b"3", None], "some of it was applied")
    twice = Batch(swaps=[(a, b"one", b"x")], drops=[a])
    raises(InvalidInputError, lambda: s.commit(twice), "a record was swapped and dropped")


@_check(1)
def empty_and_largest(p: bytes, s: Storage) -> None:
    """Empty contents, keys of 64 bytes and records of the largest size come back."""
    long_key = p + b"\xff" * (MAX_KEY - len(p))
    large = secrets.token_bytes(s.limits.max_record)
    s.commit(Batch(puts=[(p, b""), (long_key, large)], absent=[p, long_key]))
    expect(s.get([p, long_key]) == [b"", large], "what was put does not come back")
    s.commit(Batch(puts=[(p, b"")], present=[p]))
    raises(Conflict, lambda: s.commit(Batch(absent=[p])), "an empty record is there")


@_check(1)
def too_large_is_refused(p: bytes, s: Storage) -> None:
    """A record above the limit, a key above 64 bytes, a non-bytes key: refused by name."""
    large = Batch(puts=[(p + b"a", b"1"), (p + b"b", bytes(s.limits.max_record + 1))])
    raises(LimitExceededError, lambda: s.commit(large), "a record above the limit")
    long_key = Batch(puts=[(p + b"a", b"1"), (p + bytes(MAX_KEY), b"1")])
    raises(InvalidInputError, lambda: s.commit(long_key), "a key above 64 bytes")
    text = Batch(puts=[(p + b"a", b"1"), ("text", b"1")])  # type: ignore[list-item]
    raises(InvalidInputError, lambda: s.commit(text), "a key that is not bytes")
    both = Batch(puts=[(p + b"a", b"1")], drops=[p + b"a"])
    raises(InvalidInputError, lambda: s.commit(both), "put and drop of one record")
    expect(s.scan(p, end_of(p)) == [], "a refused batch was applied")


@_check(2)
def one_winner(p: bytes, *handles: Storage) -> None:
    """Of two commits that expect the same key absent and put it, exactly one wins."""
    for number in range(20):
        key = p + number.to_bytes(2, "big")
        batches = [Batch(puts=[(key, bytes([who]))], absent=[key]) for who in (0, 1)]
        expect(winners(handles, batches) == 1, "not exactly one commit won")


@_check(1)
def unknown_outcome_is_settled(p: bytes, s: Storage) -> None:
    """After an unknown outcome, the same batch sent again settles it: applied once, whichever
    way it went, and the conflict of the second sending names the row that tells."""
    for number, mode in enumerate(("ambiguous-applied", "ambiguous-lost")):
        key, other = p + bytes([number]), p + bytes([number]) + b"other"
        batch = Batch(puts=[(key, b"mine"), (other, b"too")], absent=[key])
        broken = Faulty(s, Fault("commit", 1, mode))
        raises(OutcomeUnknown, partial(broken.commit, batch), "the outcome is not unknown")
        try:
            s.commit(batch)
        except Conflict as conflict:  # what was applied is told by its own row
            expect(mode == "ambiguous-applied", "a batch that was lost cannot be sent again")
            expect(conflict.keys == (key,), "the conflict does not name the row that tells")
        else:
            expect(mode == "ambiguous-lost", "a batch was applied twice")
        expect(s.get([key, other]) == [b"mine", b"too"], "the batch is not there as it was")


@_check(2)
def write_skew(p: bytes, *handles: Storage) -> None:
    """Of two commits that each expect absent what the other writes, at most one wins."""
    for number in range(20):
        a, b = (p + number.to_bytes(2, "big") + name for name in (b"a", b"b"))
        batches = [Batch(puts=[(a, b"")], absent=[b]), Batch(puts=[(b, b"")], absent=[a])]
        won = winners(handles, batches)
        expect(won <= 1, "both commits won: an expectation was read, not enforced")
        there = sum(value is not None for value in handles[0].get([a, b]))
        expect(there == won, "what is there does not fit who won")


@_check(2)
def drop_against_present(p: bytes, *handles: Storage) -> None:
    """Of a drop and a commit that expects the record present and drops another, not both
    can win in a ring of two."""
    for number in range(20):
        a, b = (p + number.to_bytes(2, "big") + name for name in (b"a", b"b"))
        handles[0].commit(Batch(puts=[(a, b""), (b, b"")]))
        batches = [Batch(drops=[a], present=[b]), Batch(drops=[b], present=[a])]
        won = winners(handles, batches)
        expect(won <= 1, "both commits won: an expectation was read, not enforced")


@_check(8)
def counter_loses_nothing(p: bytes, *handles: Storage) -> None:
    """Eight threads that count up one cell by compare and swap lose no step."""
    steps = 8
    handles[0].commit(Batch(cells=[(p, None, b"0")]))

    def count(s: Storage) -> None:
        done = 0
        while done < steps:
            old = s.cells(p, p + b"\x00")[0][1]
            try:
                s.commit(Batch(cells=[(p, old, b"%d" % (int(old) + 1))]))
                done += 1
            except Conflict:  # another was faster: read again, and count from there
                continue

    calls: list[Callable[[], None]] = [lambda s=s: count(s) for s in handles]  # type: ignore[misc]
    for error in race(calls):
        if error is not None:
            raise error
    total = int(handles[0].cells(p, p + b"\x00")[0][1])
    expect(total == 8 * steps, f"{8 * steps - total} steps were lost")


@_check(2)
def visible_at_once(p: bytes, one: Storage, two: Storage) -> None:
    """What one handle commits, the other reads at once, and the other way round."""
    for number in range(20):
        key = p + number.to_bytes(2, "big")
        writer, reader = (one, two) if number % 2 else (two, one)
        writer.commit(Batch(puts=[(key, b"1")], absent=[key]))
        expect(reader.get([key]) == [b"1"], "a commit is not visible to a later read")
        expect(len(reader.scan(p, end_of(p))) == number + 1, "a commit is not in a later scan")


@_check(2)
def version_tells_commits(p: bytes, one: Storage, two: Storage) -> None:
    """The version changes with every commit of another handle, of any kind, and not by reading."""
    batches = {
        "puts": Batch(puts=[(p, b"1"), (p + b"a", b"1")]),
        "new cells": Batch(cells=[(p, None, b"1")]),
        "swaps": Batch(swaps=[(p, b"1", b"2")]),
        "drops": Batch(drops=[p + b"a"]),
        "cells": Batch(cells=[(p, b"1", b"2")]),
        "removed cells": Batch(cells=[(p, b"2", None)]),
    }
    for number, (what, batch) in enumerate(batches.items()):
        writer, other = (one, two) if number % 2 else (two, one)
        before = [one.version(), two.version()]
        one.get([p]), two.scan(p, end_of(p)), one.cells(p, end_of(p)), two.size()
        expect([one.version(), two.version()] == before, "reading changed the version")
        writer.commit(batch)
        moved = other.version() != before[1 if other is two else 0]
        expect(moved, f"a commit of nothing but {what} left the version")


@_check(1)
def ranges_are_checked(p: bytes, s: Storage) -> None:
    """Bounds that are no bytes, and limits below zero, are refused by name."""
    wrong: list[Any] = [("a", b"b", 1), (b"a", "b", 1), (b"a", None, 1), (p, end_of(p), -1)]
    s.commit(Batch(puts=[(p, b"1")], cells=[(p, None, b"1")]))
    for read in (s.scan, s.cells):
        expect(read(p, end_of(p), limit=0) == [], "a limit of 0 gives rows")
        expect(read(end_of(p), p) == [], "a range from high to low gives rows")
        for low, high, limit in wrong:
            ask = partial(read, low, high, limit=limit)
            raises(InvalidInputError, ask, "a range that is none is answered")


@_check(2)
def turn_is_given_back(p: bytes, one: Storage, two: Storage) -> None:
    """A turn with no commit changes nothing, one with commits applies them, and after it,
    also after an error in it, others can commit."""
    with one.turn():
        expect(one.get([p]) == [None], "a read in a turn gives something else")
    two.commit(Batch(puts=[(p + b"a", b"1")]))
    with one.turn():
        one.commit(Batch(puts=[(p + b"b", b"1")], absent=[p + b"b"]))
        one.commit(Batch(puts=[(p + b"c", b"1")], present=[p + b"b"]))
    with one.turn():
        wrong = Batch(puts=[(p + b"x", b"1")], absent=[p + b"a"])
        raises(Conflict, lambda: one.commit(wrong), "a conflict in a turn")
    raises(KeyError, lambda: fail_in_turn(one), "an error in a turn")
    two.commit(Batch(puts=[(p + b"d", b"1")]))
    names = [key[len(p) :] for key, _ in one.scan(p, end_of(p))]
    expect(names == [b"a", b"b", b"c", b"d"], "commits in or after turns are missing")


@_check(2)
def scan_while_writing(p: bytes, writer: Storage, reader: Storage) -> None:
    """Paging while others put and drop gives every row that was there all the time."""
    kept = [p + number.to_bytes(2, "big") for number in range(0, 600, 3)]
    writer.commit(Batch(puts=[(key, b"kept") for key in kept]))

    def write() -> None:
        for number in range(1, 600, 12):
            extra = [p + n.to_bytes(2, "big") for n in (number, number + 1)]
            writer.commit(Batch(puts=[(key, b"new") for key in extra]))
            writer.commit(Batch(drops=extra[:1]))

    def read() -> None:
        for _ in range(10):
            found = all_keys(reader, p, 17)
            expect(found == sorted(set(found)), "rows came twice or out of order")
            expect(set(kept) <= set(found), "rows that were there were skipped")

    for error in race([write, read]):
        if error is not None:
            raise error


@_check(2)
def moment_stays(p: bytes, one: Storage, two: Storage) -> None:
    """A moment shows what was committed before it, and nothing of what comes after."""
    one.commit(Batch(puts=[(p + b"a", b"1"), (p + b"b", b"2")], cells=[(p, None, b"1")]))
    before = (one.scan(p, end_of(p)), one.cells(p, end_of(p)))
    with two.moment() as moment:
        one.commit(Batch(drops=[p + b"a"], swaps=[(p + b"b", b"2", b"3")]))
        one.commit(Batch(puts=[(p + b"c", b"4")], cells=[(p, b"1", b"2")]))
        seen = moment.scan(p, end_of(p)), moment.cells(p, end_of(p))
        expect(seen == before, "a moment shows what came after it")
        down = moment.scan(p, end_of(p), limit=1, reverse=True)
        expect(down == before[0][1:], "a moment reads backwards otherwise")
    expect(two.scan(p, end_of(p)) != before[0], "the moment stays when it is over")


@_check(1)
def size_grows(p: bytes, s: Storage) -> None:
    """`size` is a number that a large record does not make smaller."""
    before = s.size()
    s.commit(Batch(puts=[(p, secrets.token_bytes(s.limits.max_record))]))
    expect(s.size() >= max(before, 1), "size does not count a large record")


@_check(1)
def check_finds_nothing(p: bytes, s: Storage) -> None:
    """`check` has nothing to say of rows that were put, swapped and dropped."""
    s.commit(Batch(puts=[(p + b"a", b"1"), (p + b"b", b"2")], cells=[(p, None, b"1")]))
    s.commit(Batch(drops=[p + b"a"], swaps=[(p + b"b", b"2", b"3")]))
    expect(s.check() == [], "check finds something where nothing is wrong")


@_check(1)
def closed_refuses(_: bytes, s: Storage) -> None:
    """A closed handle refuses every call; closing again does nothing. Runs last, because an
    engine that is not shared has only this handle."""
    s.close()
    s.close()
    calls: list[Callable[[], object]] = [
        lambda: s.get([b"a"]),
        lambda: s.get([b"a", b"b"]),
        lambda: s.scan(b"a", b"b"),
        lambda: s.cells(b"a", b"b"),
        lambda: s.commit(Batch(puts=[(b"\x01closed", b"1")])),
        s.version,
        s.size,
        s.check,
    ]
    for call in calls:
        raises(StoreClosedError, call, "a closed handle answered")
