"""Operations of an entry that is being built: what was asked for, made of what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import Conflict, MissingError
from holdfast.store.journal import entry
from holdfast.store.journal.declared import PREFIX
from holdfast.store.journal.lifetime import NONE, Meta
from holdfast.store.journal.slot import Slot, meta_of
from holdfast.store.names.scope import RESERVED
from holdfast.store.rules.classes import EXTERNAL, SENSITIVE, STANDARD, check_external, class_of
from holdfast.store.rules.trim import going
from holdfast.store.tree import refs
from holdfast.store.tree.split import array_header

if TYPE_CHECKING:
    from holdfast.store.commit.stage import Packer, Stage
    from holdfast.store.tree.split import Part


class Ahead(Protocol):
    """A value that was stored ahead of the entry that names it."""

    def enter(self, stage: Stage) -> None:
        """Let the entry that is built now take it over."""


def operate(
    stage: Stage, sequence: int, op: tuple[Any, ...], packer: Packer, made: list[Any]
) -> None:
    """Apply an operation to a stage, and add to `made` what the entry says of it."""
    kind, key = op[0], op[1]
    if kind == "set":
        meta = _asked_meta(stage, key, op)
        made.append(stage._set(sequence, key, op[2], packer))  # which leaves it without meta
        if meta is not NONE:
            made += _described(stage, key, meta)
        _admit(stage, key, op[2:3], packer)
    elif kind == "append":
        old = stage.live(key)
        made.append(stage._append(sequence, key, op[2], packer, old))
        made += _described(stage, key, meta_of(old))  # if it is so short that it was set whole
        _admit(stage, key, op[2], packer, within=1)
    elif kind == "delete":
        stage._put(key, None)
        made.append([entry.DELETE, key])
    elif kind == "trim":
        old = stage.live(key)
        if old is not None:
            made.append(staged_trim(stage, sequence, key, op[2], packer, old))
            made += _described(stage, key, meta_of(old))
            packer.quiet |= _class(stage, key) == SENSITIVE
    elif kind == "ahead":
        meta = _asked_meta(stage, key, op)
        ahead = [entry.SET, key, op[2]]
        stage._put(key, stage.timeline.changed(sequence, ahead, iter(()), None))
        made.append(ahead)
        made += _described(stage, key, meta)
        _admit(stage, key, (), packer)
    elif kind == "merge":
        made.append(_merge(stage, sequence, *op[2:]))
    else:
        assert kind == "expire"
        old = stage.live(key)
        if old is None:
            raise MissingError(f"{stage.ledger.scope} has no key {key!r} that could expire")
        meta = op[2].meta(stage.now, meta_of(old))
        made += _described(stage, key, meta._replace(class_=meta_of(old).class_))


def _asked_meta(stage: Stage, key: str, op: tuple[Any, ...]) -> Meta:
    """What is to be known of a key besides the value that it is set to."""
    if len(op) <= 3:
        return NONE
    return op[3].meta(stage.now, meta_of(stage.live(key)) if op[3].keep else NONE)  # type: ignore[no-any-return]


def _described(stage: Stage, key: str, meta: Meta) -> list[Any]:
    """The operation, if it takes one, that says what is known of a key besides its value."""
    slot = stage.slot(key)
    assert slot is not None
    packed = meta.pack()
    if packed == slot.meta:
        return []
    stage._put(key, slot.with_meta(packed))
    return [[entry.META, key, packed]]


def _admit(
    stage: Stage, key: str, parts: Sequence[Part], packer: Packer, *, within: int = 0
) -> None:
    """Treat what was just written by its class; `within` is how deep in the value it lies."""
    class_ = _class(stage, key)
    if class_ is STANDARD:  # as most are
        return
    packer.quiet |= class_ == SENSITIVE
    if class_ == EXTERNAL:
        slot = stage.slot(key)
        assert slot is not None
        check_external(stage.ledger, key, parts, slot.size(), within)


def _class(stage: Stage, key: str) -> str:
    """The class of a key that is there; what parts of Holdfast keep is sensitive, or has none."""
    slot = stage.slot(key)
    assert slot is not None
    if key.startswith(PREFIX):
        return ""  # what is declared may be just what cannot be read
    class_ = class_of(key, slot.meta, stage.declared)
    return class_ if key[0] != RESERVED or class_ == SENSITIVE else ""


def _merge(
    stage: Stage,
    sequence: int,
    point: Any,
    hash_: bytes,
    rests: tuple[int, ...],
    uploads: Sequence[Ahead],
) -> Any:
    """Note what is merged, if the timeline still has the past that the merge rests on."""
    if rests != (stage.ledger.number, stage.origin, stage.merged):
        raise Conflict(f"{stage.ledger.scope}: restored or merged meanwhile; try again")
    for upload in uploads:
        upload.enter(stage)
    before, stage.merged = stage.merged, sequence
    return [entry.MERGE, *point, hash_, before]


def staged_length(stage: Stage, key: str) -> int:
    """How many items a list has after the entries staged so far; 0 if it is absent."""
    slot = stage.live(key)
    if slot is None:
        return 0
    length = slot.length()
    return length if length is not None else len(stage._items_of(key, slot, ()))


def staged_trim(
    stage: Stage, sequence: int, key: str, trim: dict[str, int], packer: Packer, old: Slot
) -> list[Any]:
    """Trim a list, which is there, in the entry that is being built."""
    length = old.length()
    if length is None:
        items = stage._items_of(key, old, packer.laid)
        rest: list[Part] | None = items[going(len(items), trim) :]
    else:
        old = stage.timeline.settled(old)
        first = going(length, trim)
        rest = _short_rest(stage, old, first, packer)
    if rest is not None:
        return stage._set(sequence, key, stage._joined(key, rest), packer, how=entry.TRIMMED)  # type: ignore[no-any-return]
    op = [entry.PATCH, key, [[0, first, None, []]] if first else [], entry.TRIMMED]
    stage._put(key, stage.timeline.changed(sequence, op, iter(()), lambda _: old))
    return op


def _short_rest(stage: Stage, old: Slot, first: int, packer: Packer) -> list[Part] | None:
    """What is left of a list, if that is so short that it is kept whole."""
    _, hash_, count, _ = refs.read_tree(old.ref)
    if count - first > refs.WHOLE:
        return None
    ledger = stage.ledger
    rest = list(ledger.trees.slice(ledger.trees.load(old.location, hash_), first, count))
    if any(refs.is_tree(ref) for _, ref, _ in rest):
        return None
    if len(array_header(len(rest))) + sum(refs.size_of(ref) for _, ref, _ in rest) > refs.WHOLE:
        return None
    parts: list[Part] = []
    for _, ref, place in rest:
        at = place or (0, 0)
        value = stage._short_value(Slot(ref, place, at[0], at[1]), packer.laid)
        parts.append(ledger.splitter.atom(ledger.codec.encode(ledger.codec.plain(value))))
    return parts
