"""Operations of an entry that is being built: what was asked for, made of what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict, MissingError
from holdfast.store.journal import entry
from holdfast.store.journal.lifetime import NONE, Meta
from holdfast.store.journal.slot import meta_of
from holdfast.store.names.scope import RESERVED
from holdfast.store.rules.classes import EXTERNAL, SENSITIVE, STANDARD, check_external, class_of
from holdfast.store.rules.declared import PREFIX
from holdfast.store.rules.trim import staged_trim

if TYPE_CHECKING:
    from holdfast.store.commit.packs import Packer
    from holdfast.store.commit.stage import Stage
    from holdfast.store.long.uploads import Upload
    from holdfast.store.tree.split import Part


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
    uploads: Sequence[Upload],
) -> Any:
    """Note what is merged, if the timeline still has the past that the merge rests on."""
    if rests != (stage.ledger.number, stage.origin, stage.merged):
        raise Conflict(f"{stage.ledger.scope}: restored or merged meanwhile; try again")
    for upload in uploads:
        upload.enter(stage)
    before, stage.merged = stage.merged, sequence
    return [entry.MERGE, *point, hash_, before]
