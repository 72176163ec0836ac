"""Exports on the blocking face; what they need is loaded when they are first used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.checkpoints.export.read import Imported
    from holdfast.checkpoints.export.records import Export
    from holdfast.store.state import State

LIMIT = 1 << 30
"""Bytes of content that an import takes unless it is told another limit."""


def export_checkpoint(
    state: State,
    path: str | os.PathLike[str],
    *,
    at: Any = None,
    format: str = "holdfast",
    key: str | None = None,
    plain: bool = False,
    unsigned: bool = False,
    reveal: bool = False,
) -> Export:
    """Write a checkpoint (default: the newest) with all of its state to one file.

    The file stands for itself: whoever has it can take it over into any store. It is signed by the
    store's signer, and encrypted with `key` (`file:PATH`, which is made if it is missing,
    `env:NAME` or `passphrase:TEXT`), which has nothing to do with the store's own. From an
    encrypted store a file without a key is written only with `plain=True`, and where the signer is
    not at hand one without a signature only with `unsigned=True`.

    `format="json"` is for people and `"protobuf"` for other programs: not encrypted, not signed,
    not to be imported, and what is of class sensitive is masked in them unless `reveal` is given.
    Every value is read and checked. Memory is bounded by the longest value, of long bytes and
    lists by a piece; json and protobuf hold values whole.
    """
    from holdfast.checkpoints.export.write import export_state, line_of

    return export_state(
        line_of(state),
        path,
        at=at,
        format=format,
        key=key,
        plain=plain,
        unsigned=unsigned,
        reveal=reveal,
    )


def import_checkpoint(
    state: State,
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    trust: Sequence[str] | None = None,
    untrusted: bool = False,
    limit: int = LIMIT,
    reason: str | None = None,
) -> Imported:
    """Let the state be what is in an exported file, of whatever scope and store.

    The file must be signed by one of the public keys in `trust` (default: the store's own signer);
    with `untrusted=True` it is taken whoever signed it, if anybody did. What came from a scope that
    was erased in this store is refused, as is more content than `limit` bytes.

    It is read into a timeline of its own, compared there with what was signed, and then restored
    from: all or nothing, sticky keys and declarations left alone, and `restore(result.backup)`
    undoes it. A scope that declares nothing gets the declarations of the file.
    """
    from holdfast.checkpoints.export.read import import_state
    from holdfast.checkpoints.export.write import line_of

    return import_state(
        line_of(state),
        path,
        key=key,
        trust=trust,
        untrusted=untrusted,
        limit=limit,
        reason=reason,
    )


def inspect_export(
    path: str | os.PathLike[str], *, key: str | None = None, trust: Sequence[str] | None = None
) -> Export:
    """What is in an exported file, without a store. All of it is read and checked.

    With `trust`, a file that none of these public keys signed is refused; without, `Export.signer`
    is whoever says so.
    """
    from holdfast.checkpoints.export.read import inspect_file

    return inspect_file(path, key=key, trust=trust)
