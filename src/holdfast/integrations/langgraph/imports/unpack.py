"""Values of LangGraph's own savers, read with LangGraph's serialiser but without its trust.

That serialiser imports whatever module a row names, calls what it finds there, and reads what it
cannot build as None or as bare fields. Here a row is looked through first: it is refused if it is
damaged, pickled, encrypted, or names something else than a data class that is loaded already.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.errors import HoldfastError, InvalidValueError, UnknownTypeError
from holdfast.integrations.langgraph.types import class_names as names
from holdfast.integrations.langgraph.types.kinds import BUILTIN, numpy_kind
from holdfast.integrations.langgraph.types.types import Types
from holdfast.seal.codec import Refusal

_OBJECTS = range(6)
"""Extension codes of LangGraph's msgpack that hold [module, name, arguments …]."""
_OTHERS = range(6, 8)
"""Those of numpy arrays and of snapshots of delta channels."""

Named = set[tuple[str, ...]]


class Unpacker:
    """Reads serialised values.

    types: which classes may be stored, and so may be built.
    fields: take objects of classes that are not there as their bare fields, as LangGraph does.
    """

    def __init__(self, types: Types, *, fields: bool = False) -> None:
        self._types = types
        self._fields = fields
        self._serde = JsonPlusSerializer(allowed_msgpack_modules=None)
        self._allowed: Named = set()
        self._refused: Named = set()

    def load(self, kind: str | None, data: Any) -> Any:
        """The value; an error says what is wrong with it and what to do."""
        try:
            if kind == "msgpack":
                self._admit(_named_in_msgpack(data))
            elif kind == "json":
                self._admit(_named_in_json(data))
            elif kind not in ("null", "bytes", "bytearray"):
                raise _unreadable(kind)
            return self._serde.loads_typed((str(kind), data))
        except HoldfastError:
            raise
        except Exception as error:
            # Whatever a crafted or damaged row, or a class of the user's, makes of it.
            raise InvalidValueError(
                f"it is damaged or was not written by LangGraph ({type(error).__name__})"
            ) from error

    def _admit(self, found: Named) -> None:
        new = found - self._allowed - self._refused
        missing = [path for path in sorted(new) if not self._fits(path)]
        if missing and not self._fields:
            raise UnknownTypeError(_missing(missing))
        self._refused |= set(missing)
        allowed = self._allowed | new.difference(missing)
        if allowed != self._allowed:
            self._allowed = allowed
            self._serde = JsonPlusSerializer(
                allowed_msgpack_modules=allowed, allowed_json_modules=allowed
            )

    def _fits(self, path: tuple[str, ...]) -> bool:
        """Whether a class is there; one that would not come back as it was is refused."""
        *module, name = path
        cls = names.find(f"{'.'.join(module)}:{name}")
        if cls is None:
            return False
        try:
            if cls not in BUILTIN and numpy_kind(cls) is None:
                self._types.entry(cls)
        except Refusal as refusal:
            raise InvalidValueError(str(refusal)) from None
        return True


def _named_in_msgpack(data: bytes) -> Named:
    """(module, name) of all objects in it but those that LangGraph itself takes for safe."""
    found: Named = set()
    newer: set[int] = set()

    def look(code: int, inner: bytes) -> None:
        if code not in _OBJECTS and code not in _OTHERS:
            newer.add(code)
            return
        parts = ormsgpack.unpackb(inner, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
        if code in _OBJECTS:
            found.add((str(parts[0]), str(parts[1])))

    ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
    if newer:
        raise InvalidValueError("it was written by a newer LangGraph: update langgraph")
    return found - SAFE_MSGPACK_TYPES


def _named_in_json(data: bytes) -> Named:
    """The same of the older form; an object is named by the steps to it."""
    found: Named = set()

    def look(mapping: dict[str, Any]) -> dict[str, Any]:
        if mapping.get("lc") == 2 and mapping.get("type") == "constructor":
            *module, name = map(str, mapping["id"])
            if (".".join(module), name) not in SAFE_MSGPACK_TYPES:
                found.add((*module, name))
        return mapping

    json.loads(data, object_hook=look)
    return found


def _unreadable(kind: str | None) -> InvalidValueError:
    if kind is not None and "+" in kind:
        return InvalidValueError(
            f"it is encrypted ({kind}); copy the thread to a saver without encryption first"
        )
    if kind == "pickle":
        return InvalidValueError(
            "it is pickled, and reading it would run whatever code it names; put the thread again "
            "with a saver without pickle_fallback"
        )
    return InvalidValueError(f"its form {kind!r} is unknown: update langgraph")


def _missing(paths: list[tuple[str, ...]]) -> str:
    told = ", ".join(".".join(path) for path in paths)
    modules = sorted({".".join(path[:-1]) for path in paths})
    if "__main__" in modules:
        return (
            f"the class {told} was defined in a script, where nobody else finds it; call "
            "holdfast.integrations.langgraph.imports.importer.Import in that script, or take such "
            "objects as their fields: --fields"
        )
    absent = [module for module in modules if module not in sys.modules]
    if absent:
        flags = " ".join(f"--import {module}" for module in absent)
        return f"the class {told} is needed; give {flags}, or take its fields: --fields"
    return f"there is no class {told} (any more); take such objects as their fields: --fields"
