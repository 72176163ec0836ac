"""Damage: every bit of every stored row flipped, every row dropped, swapped and replayed.

On a small store with every kind of row, plain and encrypted. After each damage a fresh handle
reads every key, of every line and at every checkpoint: each read gives the true value or raises
an error of Holdfast. Then `verify` names a finding, or, for a store that was put back as a whole,
`verify(expect=witness)` does.

Two cases are documented as weaker: a dropped row that lists something (scopes, lines, the newest
entries, ids) may make reads show less, which `verify` names; and the signer's row missing from
the ring leaves old checkpoints as they were and new ones unsigned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from holdfast.errors import HoldfastError, InternalError
from holdfast.sync import Store
from prove.common import LONG, Findings, Result, TooMany, pick
from prove.ops import Plain
from prove.sample import Damage, Sample, damages, kind, place


def reads(model: Plain) -> Iterator[tuple[str, Callable[[Store], Any], Any]]:
    """(what, how to read it, the truth) of everything that a user can read."""
    for scope, lines in model.scopes.items():
        for name, line in lines.items():
            where = f"{scope} {name}"

            def state(store: Store, scope: str = scope, name: str = name) -> Any:
                return store.scope(scope).on(name)

            for key, value in line.keys.items():
                yield f"{where} {key}", lambda s, at=state, k=key: at(s).get(k), value
                if isinstance(value, list):
                    yield (f"tail of {where} {key}", lambda s, at=state, k=key: at(s).tail(k, 3),
                           value[-3:])  # fmt: skip
            yield f"all of {where}", lambda s, at=state: dict(at(s).items()), line.keys
            for label, keys in line.checkpoints:
                yield (f"{where} at {label}",
                       lambda s, at=state, p=label: dict(at(s).at(p).items()), keys)  # fmt: skip

    yield "a deleted scope", lambda s: dict(s.custom("gone").items()), {}


def looks(store: Store) -> Iterator[Callable[[], Any]]:
    """Calls that show history; they may show less, but fail in no other way than ours."""
    yield lambda: list(store.feed())
    yield lambda: store.correlated("run")
    yield lambda: [store.scope(info.scope).timelines() for info in store.scopes().items]
    yield lambda: store.scope("agent:a").checkpoints()
    yield lambda: store.scope("agent:a").log(limit=None)


def guarded(call: Callable[[], Any]) -> tuple[bool, Any, str]:
    """(returned, what, what is wrong with how it failed)."""
    try:
        return True, call(), ""
    except InternalError as error:
        return False, None, f"a bug: {error} ({error.__cause__!r})"
    except HoldfastError:
        return False, None, ""
    except Exception as error:
        return False, None, f"{type(error).__name__} instead of an error of Holdfast: {error}"


def inspect(sample: Sample, damage: Damage) -> Iterator[str]:
    """What is wrong after a damage that was done already."""
    opened, store, wrong = guarded(sample.open)
    if wrong:
        yield f"open: {wrong}"
    if not opened:
        return
    with store:
        for what, read, truth in reads(sample.model):
            returned, value, wrong = guarded(lambda read=read: read(store))
            if wrong:
                yield f"reading {what}: {wrong}"
            elif returned and value != truth and not damage.stale:
                yield f"reading {what} gave something else than was written"
        for look in looks(store):
            wrong = guarded(look)[2]
            if wrong:
                yield wrong
        yield from _verify(store, sample, damage)


def _verify(store: Store, sample: Sample, damage: Damage) -> Iterator[str]:
    if damage.ring and "row P" in damage.what and "dropped" in damage.what:
        return  # see the module's text
    try:
        report = store.verify(expect=sample.witness if damage.witnessed else None)
    except Exception as error:
        yield f"verify was stopped by {type(error).__name__}: {error}"
        return
    if not report.findings:
        yield "verify found nothing"


def check(sample: Sample, damage: Damage, findings: Findings) -> None:
    """Do the damage, look, and undo it."""
    storage = sample.ring_storage if damage.ring else sample.storage
    truth = sample.ring if damage.ring else sample.rows
    place(storage, damage.changes)
    try:
        for wrong in inspect(sample, damage):
            mode = "encrypted" if sample.encrypted else "plain"
            findings.note(f"{mode}: {damage.what}: {wrong}")
    finally:
        place(storage, {key: truth.get(key) for key in damage.changes})


def damaged(encrypted: bool, seed: int, scale: int) -> tuple[int, int, list[str]]:
    """(damages, bits stored, findings) of one kind of store."""
    findings = Findings()
    draw = random.Random(seed)
    name = f"flips-{seed}-{scale}-{encrypted}"
    sample, twin = Sample(name, encrypted).build(), Sample(name + "2", encrypted).build()
    assert {kind(key) for key in sample.rows} == set("MDTEVSNFRI")
    found = list(damages(sample, twin, pick(scale, 701, 41, 1), draw))
    if not scale:
        many = [
            d for d in found if "flipped" in d.what or {kind(k) for k in d.changes} <= {"E", "F"}
        ]
        found = [d for d in found if d not in many] + draw.sample(many, 80)
    bits = 8 * sum(map(len, [*sample.rows.values(), *sample.ring.values()]))
    count = 0
    try:
        check_sound(sample, findings)
        for damage in found:
            count += 1
            check(sample, damage, findings)
        check_sound(sample, findings)
    except TooMany:
        pass
    return count, bits, findings


def run(seed: int, scale: int) -> Result:
    """Damage a plain and an encrypted store in every way."""
    with ProcessPoolExecutor(2) as pool:
        parts = list(pool.map(damaged, (False, True), (seed, seed), (scale, scale)))
    count, bits = sum(part[0] for part in parts), sum(part[1] for part in parts)
    which = "every bit" if scale == LONG else "a sample of the bits"
    scope = f"every row, {which} of {bits}, plain and encrypted"
    return Result(f"{count} damages", scope, seed, [text for part in parts for text in part[2]])


def check_sound(sample: Sample, findings: Findings) -> None:
    """The control: undamaged, everything reads true and nothing is found."""
    with sample.open() as store:
        for what, read, truth in reads(sample.model):
            if read(store) != truth:
                findings.note(f"undamaged: reading {what} is wrong")
        if store.verify(expect=sample.witness).findings:
            findings.note("undamaged: verify found something")
