"""Forgeries in a plain store, and races of two handles: what only one single check prevents.

A plain store's seal finds accidents; whoever knows the format can make rows that pass it. Here
such rows are made one by one, so that each time exactly one mechanism stands in the way: the
commitment to a body, the chain, the announcement of a save, the signature of a checkpoint. And
two handles are brought to the points where only an expectation or a lane's number decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast import sync
from holdfast.errors import Conflict, HoldfastError
from holdfast.store.commit.group import Core
from holdfast.store.journal import entry as entries
from holdfast.store.journal.feed import items_of
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope
from holdfast.store.open import open_core
from prove.common import Result
from prove.ops import Op
from prove.sample import Damage, Sample, kind, options, place

OPERATIONS: list[Op] = [
    *(("set", "agent:a", "main", f"k{n}", "text " * 20 * n) for n in range(1, 10)),
    ("checkpoint", "agent:a", "main", "c"),
    ("set", "agent:a", "main", "k1", "after the checkpoint"),
]
"""With an index saved after every fourth entry: at the end one that entries vouch for, and none
behind the checkpoint."""


class Forger:
    """Somebody who can write a plain store's rows but does not have its signer."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.core: Core = open_core(options(sample.name, False)["url"], create=False)
        self.ledger: Ledger = self.core.ledger(Scope.parse("agent:a"))
        self.prefix = rowkinds.line(b"E", self.ledger.number, 0)

    def entry(self, number: int) -> tuple[bytes, entries.Envelope, entries.Body]:
        """An entry of the scope's main line."""
        key = rowkinds.entry(self.prefix, number)
        return key, *self.ledger.open_entry(key, self.sample.rows[key])

    def row(
        self,
        key: bytes,
        envelope: entries.Envelope,
        body: entries.Body,
        commitment: bytes | None = None,
    ) -> tuple[bytes, bytes]:
        """(envelope, row) of an entry with this body; the seal of a plain store accepts it."""
        plain = entries.encode_body(body)
        commitment = commitment or self.ledger.commit_body(plain)
        data = entries.make_envelope(
            envelope.writer, envelope.epoch, envelope.before, commitment, envelope.statement
        )
        where = self.ledger.ad(key) + data
        how: dict[str, Any] = {"writer_outside": True, "writer": envelope.writer}
        return data, data + self.ledger.seal.seal(where, plain, commitment, **how)

    def checkpoint(self) -> int:
        """The number of the last checkpoint."""
        numbers = range(1, 100)
        with_statement = [
            n
            for n in numbers
            if (key := rowkinds.entry(self.prefix, n)) in self.sample.rows
            and entries.split_row(self.sample.rows[key])[0].statement
        ]
        return with_statement[-1]


def body_under_old_envelope(forger: Forger) -> Damage:
    """Another body, while the envelope, and so the whole chain, stays as it is."""
    key, envelope, body = forger.entry(2)
    body.time += 1
    row = forger.row(key, envelope, body, envelope.commitment)[1]
    return Damage("a body replaced under its envelope", {key: row})


def entry_in_the_middle(forger: Forger) -> Damage:
    """A whole entry replaced, that others follow."""
    key, envelope, body = forger.entry(2)
    body.time += 1
    return Damage("an entry replaced", {key: forger.row(key, envelope, body)[1]})


def save_of_another_state(forger: Forger) -> Damage:
    """The newest saved index replaced by one in which a key is missing or empty."""
    line = rowkinds.line(b"S", forger.ledger.number, 0)
    key = max(k for k in forger.sample.rows if k.startswith(line))
    save = msgspec.msgpack.decode(forger.ledger.open_row(key, forger.sample.rows[key]))
    save[0], save[1], save[8], save[9] = 0, 0, 0, []  # a whole index that is empty
    save[7] = forger.ledger.trees.empty.hash
    plain = msgspec.msgpack.encode(save)
    row = forger.ledger.seal_row(key, plain, forger.ledger.commit_save)
    return Damage("a saved index replaced", {key: row})


def checkpoint_of_another_signer(forger: Forger) -> Damage:
    """The signature of a checkpoint replaced, and the chain behind it built anew to fit."""
    ledger, changes = forger.ledger, {}
    number = forger.checkpoint()
    key, envelope, body = forger.entry(number)
    assert envelope.statement is not None
    envelope = envelope._replace(statement=envelope.statement._replace(signature=bytes(64)))
    while True:
        data, changes[key] = forger.row(key, envelope, body)
        head = ledger.entry_hash(key, data)
        number += 1
        if rowkinds.entry(forger.prefix, number) not in forger.sample.rows:
            break
        key, envelope, body = forger.entry(number)
        envelope = envelope._replace(before=head)
    changes |= feed_with(forger, number - 1, head)
    return Damage("a checkpoint signed by nobody, the chain built anew", changes)


def feed_with(forger: Forger, last: int, head: bytes) -> dict[bytes, bytes]:
    """The feed, changed so that it names another hash for an entry."""
    changed: dict[bytes, bytes] = {}
    tags: dict[int, bytes] = {}
    for key in sorted(k for k in forger.sample.rows if kind(k) == "F"):
        row = forger.sample.rows[key]
        data = row[:-32]
        for number, item in enumerate(items_of(row)):
            here = (item.scope, item.timeline) == (forger.ledger.number, 0)
            if here and item.first + item[3] - 1 == last:
                at = number * 48 + 16
                data = data[:at] + head + data[at + 32 :]
        lane, at_number = key[1], int.from_bytes(key[2:], "big")
        before = tags.get(lane, bytes(32))
        tags[lane] = forger.core.lanes.tag_of(lane, at_number, before, data)
        changed[key] = data + tags[lane]
    return changed


FORGERIES: list[Callable[[Forger], Damage]] = [
    body_under_old_envelope,
    entry_in_the_middle,
    save_of_another_state,
    checkpoint_of_another_signer,
]


def forged(sample: Sample, forge: Callable[[Forger], Damage]) -> Iterator[str]:
    """Make one forgery; what is wrong if it is not noticed."""
    forger = Forger(sample)
    damage = forge(forger)
    place(sample.storage, dict(damage.changes))
    try:
        with sample.open() as store:
            if not store.verify().findings:
                yield f"{damage.what}: verify found nothing"
            state = store.agent("a")
            try:
                if dict(state.items()) != sample.model.line("agent:a").keys:
                    yield f"{damage.what}: reading gave something else than was written"
            except HoldfastError:
                pass
    finally:
        place(sample.storage, {key: sample.rows.get(key) for key in damage.changes})
        forger.core.close()


def stale_read(url: str) -> Iterator[str]:
    """What a change has read must not have changed; an expected version must still be it."""
    with sync.open(url) as first, sync.open(url) as second:
        a, b = first.agent("x"), second.agent("x")
        version = a.set("k", 1)
        b.set("k", 2)
        try:
            a.set("k", 3, if_version=version)
            yield "a set with an old if_version was applied"
        except Conflict:
            pass
        try:
            with a.change() as change:
                seen = change.get("k")
                b.set("k", 4)
                change.set("sum", seen)
            yield "a change was applied although what it read has changed"
        except Conflict:
            pass
        if a.get("k") != 4 or a.exists("sum"):
            yield "a refused change left something behind"


def one_lane(url: str) -> Iterator[str]:
    """Two writers on the same lane of the feed give way to each other."""
    with sync.open(url) as first, sync.open(url) as second:
        for store in (first, second):
            lanes = store._core.lanes
            lanes._lane, (lanes._number, lanes._last) = 3, lanes.end(3)
        for number in range(6):
            for name, store in (("a", first), ("b", second)):
                try:
                    store.agent(name).set("k", number)
                except HoldfastError as error:
                    yield f"a writer that met another on its lane failed: {type(error).__name__}"
                    return
        if first.verify().findings:
            yield "verify found something after two writers met on a lane"


def run(seed: int, scale: int) -> Result:
    """All forgeries and races."""
    sample = Sample(f"forgeries-{seed}-{scale}", False, OPERATIONS).build()
    findings = [text for forge in FORGERIES for text in forged(sample, forge)]
    races = {"stale": stale_read, "lane": one_lane}
    for name, race in races.items():
        findings += list(race(f"memory:forgeries-{seed}-{scale}-{name}"))
    figure = f"{len(FORGERIES)} forgeries"
    return Result(figure, f"plain store, {len(races)} races of two handles", seed, findings)
