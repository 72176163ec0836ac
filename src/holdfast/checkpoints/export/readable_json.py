"""A checkpoint as one JSON document for people; what JSON lacks is tagged, see `json_values`.

The keys are the members of `state`, in order. What is sensitive is `{"$sensitive": true}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.checkpoints.export.records import public_export
from holdfast.store.tree.json import tagged, write

if TYPE_CHECKING:
    from holdfast.checkpoints.export.records import Description
    from holdfast.checkpoints.export.write import Source

FORMAT = "holdfast-checkpoint/1"


def json_parts(said: Description, source: Source, reveal: bool) -> Iterator[bytes]:
    """The document in pieces: one for each key."""
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
            "metadata": tagged(about.metadata),
            "actor": said.cause.actor,
            "reason": said.cause.reason,
            "correlation": said.cause.correlation,
            "root": about.root,
            "hash": about.hash,
        },
        "store": about.store,
        "exported": about.exported.isoformat(),
        "keys": said.keys,
        "declared": {key: tagged(value) for key, value in source.declared()},
    }
    yield write(head, indent=2).removesuffix("\n}").encode() + b',\n  "state": {'
    between = "\n    "
    for key, _, value in source.values(reveal):
        # A line break is always one of the layout: within text it is escaped.
        text = write(tagged(value), indent=2).replace("\n", "\n    ")
        yield f"{between}{write(key)}: {text}".encode()
        between = ",\n    "
    yield b"\n  }\n}\n"
