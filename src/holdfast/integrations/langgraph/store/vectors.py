"""Embedding texts, and finding the vectors that are nearest to one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    IndexConfig,
    PutOp,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from holdfast.errors import InvalidInputError, MissingExtraError

try:
    import numpy
except ImportError as error:
    raise MissingExtraError(
        "long-term memory needs numpy: pip install 'holdfast[langgraph]'"
    ) from error

np: Any = numpy
Floats = Any
"""An array of float32."""
FIRST_LOOK = 2048
"""The best so many are looked at before everything is ranked."""


Found = tuple[dict[str, Floats], dict[str, Floats]]
"""The vectors of texts, and of queries."""


class Embedder:
    """Turns texts into vectors with the function of the index configuration."""

    def __init__(self, config: IndexConfig) -> None:
        dims = config.get("dims")
        if type(dims) is not int or dims < 1:
            raise InvalidInputError('index needs "dims", the number of dimensions of a vector')
        self.dims = dims
        self.embeddings = ensure_embeddings(config.get("embed"))
        self._fields = [_tokens(field) for field in config.get("fields") or ["$"]]

    def texts(self, put: PutOp) -> list[str]:
        """What of an item is to be embedded; every text becomes a vector of its own."""
        if put.value is None or put.index is False:
            return []
        fields = self._fields if put.index is None else [_tokens(field) for field in put.index]
        try:
            return [text for field in fields for text in get_text_at_path(put.value, field)]
        except TypeError:
            raise InvalidInputError(
                f"{put.namespace} {put.key!r}: what JSON cannot say cannot be embedded; name the "
                "fields to embed, or give index=False"
            ) from None

    def embed(self, texts: Sequence[str], queries: Sequence[str]) -> Found:
        """Vectors of an items' texts and of what is searched for, asked for once each."""
        documents = list(dict.fromkeys(texts))
        made = self.embeddings.embed_documents(documents) if documents else []
        asked = {query: self.embeddings.embed_query(query) for query in dict.fromkeys(queries)}
        return self._found(documents, made, asked)

    async def aembed(self, texts: Sequence[str], queries: Sequence[str]) -> Found:
        """The same, awaited."""
        documents, asked = list(dict.fromkeys(texts)), list(dict.fromkeys(queries))
        made = await self.embeddings.aembed_documents(documents) if documents else []
        answers = await asyncio.gather(*map(self.embeddings.aembed_query, asked))
        return self._found(documents, made, dict(zip(asked, answers, strict=True)))

    def _found(self, documents: list[str], made: Any, asked: Mapping[str, Any]) -> Found:
        count = len(made) if hasattr(made, "__len__") else "no list of"
        if count != len(documents):
            raise InvalidInputError(
                f"the embedding function gave {count} vectors for {len(documents)} texts"
            )
        vectors = {text: self._checked(one) for text, one in zip(documents, made, strict=True)}
        return vectors, {text: self._checked(one) for text, one in asked.items()}

    def _checked(self, vector: Any) -> Floats:
        try:
            with np.errstate(over="ignore"):  # what does not fit is infinite, and refused below
                made: Floats = np.asarray(vector, dtype="<f4")
        except (TypeError, ValueError):
            made = np.zeros(())
        if made.shape != (self.dims,) or not np.isfinite(made).all():
            raise InvalidInputError(
                f"the embedding function must give {self.dims} finite numbers for a text; it gave "
                f"an array of shape {made.shape}"
            )
        return made


def _tokens(field: str) -> str | list[str]:
    return field if field == "$" else tokenize_path(field)


def units(packed: bytes, dims: int, count: int) -> Floats | None:
    """An item's vectors at unit length, so many; None if they are of another size."""
    if len(packed) != 4 * dims * count:
        return None
    vectors = np.frombuffer(packed, dtype="<f4").reshape(-1, dims)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    lengths[lengths == 0] = 1.0  # a vector of zeros has no direction: it scores 0
    return vectors / lengths[:, None]


class Matrix:
    """The vectors of some items; exact search by cosine.

    It takes 4 bytes a dimension for each vector: 150 MB for 100,000 of 384 dimensions. Items that
    come later are looked at beside it, those whose `units` are taken away are passed over; after
    many of both it is `worn`, and another one should be made.
    """

    def __init__(self, owners: Sequence[Any]) -> None:
        self._owners = [owner for owner in owners for _ in owner.units]
        self._vectors: Any = None
        if owners:
            self._vectors = np.concatenate([owner.units for owner in owners])
        at = 0
        for owner in owners:  # who has them looks into the whole, so that they are held once
            count = len(owner.units)
            owner.units = self._vectors[at : at + count]
            at += count
        self.later: list[Any] = []
        self.gone = 0

    @property
    def worn(self) -> bool:
        """Whether bringing all together again costs less than what is beside it."""
        return len(self.later) + self.gone > 256 + len(self._owners) // 8

    def nearest(self, query: Floats) -> Iterator[tuple[Any, float]]:
        """Owners with their best scores, best first."""
        later = [owner for owner in self.later if owner.units is not None]
        vectors = [] if self._vectors is None else [self._vectors]
        vectors += [owner.units for owner in later]
        if not vectors:
            return
        length = float(np.linalg.norm(query))
        unit = query / length if length else query
        scores = np.concatenate([some @ unit for some in vectors])
        owners = self._owners + [owner for owner in later for _ in owner.units]
        seen: set[int] = set()
        for at in _ranked(scores):
            owner = owners[at]
            if owner.units is not None and id(owner) not in seen:
                seen.add(id(owner))
                yield owner, float(scores[at])


def _ranked(scores: Floats) -> Iterator[int]:
    """Places of the scores, best first; sorted whole only if the first ones do not do."""
    if len(scores) > FIRST_LOOK:
        top = np.argpartition(scores, len(scores) - FIRST_LOOK)[-FIRST_LOOK:]
        yield from top[np.argsort(-scores[top], kind="stable")].tolist()
    yield from np.argsort(-scores, kind="stable").tolist()
