"""From a namespace and a key of LangGraph to a key of a scope, and back.

Every label is one part of a path, the item's key is the last, so that a namespace's prefix is a
prefix of its keys. What a key may not hold is percent-encoded. A path that would be too long is
replaced by its hash; then the record says the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

from holdfast.errors import InvalidInputError
from holdfast.store.names.scope import KEY_LENGTH

ITEMS = "items/"
HASHED = "hashed/"
VECTORS = "vectors/"
HASHED_VECTORS = "hashed-vectors/"
EMPTY = "%"
"""An empty part; never what encoding a text gives, since that writes `%` as `%25`."""

_unsafe = re.compile(r"\.\.|[^\w:@. -]")
_not_ascii = re.compile(r"\.\.|[^A-Za-z0-9_:@. -]")

Name = tuple[tuple[str, ...], str]
"""A namespace and a key in it."""


@lru_cache(maxsize=4096)
def path(namespace: tuple[str, ...]) -> str:
    """What the keys of all items in a namespace and below it begin with, if they are not hashed."""
    return ITEMS + "".join(f"{_part(label)}/" for label in namespace)


def encode(namespace: tuple[str, ...], key: str) -> tuple[str, bool]:
    """The key of an item, and whether it is a hash that does not tell the name."""
    full = path(namespace) + _part(key)
    if len(full) + len(VECTORS) - len(ITEMS) <= KEY_LENGTH:
        return full, False
    return HASHED + sha256(full.encode()).hexdigest(), True


def vectors_of(key: str) -> str:
    """Where the vectors of the item under a key are, or of all under a path."""
    if key.startswith(HASHED):
        return HASHED_VECTORS + key[len(HASHED) :]
    return VECTORS + key[len(ITEMS) :]


def decode(key: str, record: Mapping[str, Any]) -> Name:
    """The name of the item that a key and its record hold."""
    if key.startswith(HASHED):
        labels, name = record["name"]
        return tuple(labels), name
    parts = key[len(ITEMS) :].split("/")
    texts = ["" if part == EMPTY else unquote(part, errors="surrogatepass") for part in parts]
    return tuple(texts[:-1]), texts[-1]


def check_labels(labels: Any) -> None:
    """Refuse what is no namespace: a text alone would be taken for its letters."""
    if not isinstance(labels, tuple | list):
        raise InvalidInputError(
            f"a namespace is a tuple of texts, for example ('users', 'one'), not a "
            f"{type(labels).__name__}"
        )


def _part(text: str) -> str:
    if not isinstance(text, str):
        raise InvalidInputError(
            f"namespaces are tuples of texts and keys are texts, not {type(text).__name__}"
        )
    found = _unsafe.sub(_percent, text)
    if not found.isascii() and normalize("NFC", found) != found:
        found = _not_ascii.sub(_percent, text)  # as it is, normalising would change it
    return found or EMPTY


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
