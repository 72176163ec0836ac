"""A checkpoint as one JSON document for people; what JSON lacks is tagged, see `json_values`.

The keys are the members of `state`, in order. What is masked is `{"$masked": true}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.export_records import public_export
from holdfast.checkpoints.masks import sensitive
from holdfast.seal.json_values import tagged, write

if TYPE_CHECKING:
    from holdfast.checkpoints.export_records import Description
    from holdfast.checkpoints.exporting import Source

FORMAT = "holdfast-checkpoint/1"
MASK = {"$masked": True}


def json_parts(said: Description, source: Source, reveal: bool) -> Iterator[bytes]:
    """The document in pieces: one for each key."""

    def shown(name: str, value: Any) -> Any:
        return tagged(value) if reveal else masked(name, tagged(value))

    about = public_export(said, encrypted=False)
    head = {
        "format": FORMAT,
        "scope": said.scope,
        "checkpoint": {
            "id": about.checkpoint,
            "name": said.name,
            "type": said.type,
            "time": about.time.isoformat(),
            "tags": said.tags,
            "description": said.description,
            "metadata": shown("", about.metadata),
            "actor": said.cause.actor,
            "reason": said.cause.reason,
            "correlation": said.cause.correlation,
            "root": about.root,
            "hash": about.hash,
        },
        "store": about.store,
        "exported": about.exported.isoformat(),
        "keys": said.keys,
        "declared": {key: shown("", value) for key, value in source.declared()},
    }
    yield write(head, indent=2).removesuffix("\n}").encode() + b',\n  "state": {'
    between = "\n    "
    for key, value in source.values():
        # A line break is always one of the layout: within text it is escaped.
        text = write(shown(key, value), indent=2).replace("\n", "\n    ")
        yield f"{between}{write(key)}: {text}".encode()
        between = ",\n    "
    yield b"\n  }\n}\n"


def masked(name: object, part: Any) -> Any:
    """Tagged JSON under a name, without what sounds like a secret."""
    if sensitive(name):
        return MASK
    if type(part) is list:
        return [masked("", one) for one in part]
    if type(part) is not dict:
        return part
    tag = next(iter(part)) if len(part) == 1 else ""
    if tag == "$map":
        return {tag: [[key, masked(key, value)] for key, value in part[tag]]}
    if tag == "$object":
        return {tag: {**part[tag], "fields": masked("", part[tag]["fields"])}}
    return part if tag.startswith("$") else {key: masked(key, one) for key, one in part.items()}
