"""The collections of a store in MongoDB: making them, and refusing what is not exactly them.

A validator, a view, a capped collection, an index that expires documents: each would make an
acknowledged write something else than what is stored. So everything in the store's database is
described, a line for each thing, and compared with what was made there.
"""

from __future__ import annotations

from contextlib import suppress

from bson.int64 import Int64
from pymongo.errors import DuplicateKeyError, OperationFailure

from holdfast.errors import (
    HoldfastError,
    NewerFormatError,
    NotAStoreError,
    StoreNotFoundError,
)
from holdfast.storage import server
from holdfast.storage.mongodb.client import COUNT, Client

FORMAT = 1
_EXISTS = 48
_NAMES = ("records", "cells", "store")
_EXPECTED = frozenset(
    {f"collection {name}" for name in _NAMES} | {f"index _id_ of {name} on _id" for name in _NAMES}
)


def differences(client: Client) -> list[str]:
    """What is in the database and should not be, or the other way round; [] if it is ours."""
    found: set[str] = set()
    for one in client.database.list_collections():
        name = one["name"]
        if name.startswith("system."):  # the server's own
            continue
        kind = one["type"]
        options = ", ".join(sorted(one["options"]))
        found.add(f"{kind} {name}" + (f" (with {options})" if options else ""))
        if name not in _NAMES or kind != "collection":
            continue
        for index in client.database[name].list_indexes():
            keys = ", ".join(index["key"])
            special = ", ".join(sorted(set(index) - {"v", "key", "name", "ns"}))
            text = f"index {index['name']} of {name} on {keys}"
            found.add(text + (f" (with {special})" if special else ""))
    return server.differences(found, _EXPECTED)


def prepare(client: Client, *, create: bool) -> None:
    """Check the collections, or make them where nothing is.

    The document that counts commits is written last: what was begun without it has no rows yet.
    """
    wrong = differences(client)
    if any("was not made" in line for line in wrong):
        raise _foreign(client, wrong)
    empty = client.records.find_one() is None and client.cells.find_one() is None
    store = client.store.find_one({"_id": COUNT})
    if store is None and not empty:
        raise NotAStoreError(
            f"{client.address} has rows and no format number; restore it from a backup"
        )
    if store is None and not create:
        raise StoreNotFoundError(
            f"there is no store at {client.address}; check the address or open with create=True"
        )
    if store is None:
        _make(client)
    elif wrong and (wrong := differences(client)):  # perhaps somebody was just making them
        raise _foreign(client, wrong)
    elif store["format"] != FORMAT:
        raise NewerFormatError(
            f"{client.address} has format {store['format']}, this version knows {FORMAT}; update "
            "holdfast"
        )


def _foreign(client: Client, wrong: list[str]) -> HoldfastError:
    return server.not_as_made(f"database of {client.address}", wrong, "database")


def _make(client: Client) -> None:
    """Others may be doing the same at this moment: then what they make is used."""
    for name in _NAMES:
        try:
            client.database.create_collection(name, check_exists=False)
        except OperationFailure as error:
            if error.code != _EXISTS:
                raise
    new = {"format": FORMAT, "commits": Int64(0)}
    with suppress(DuplicateKeyError):
        client.store.update_one({"_id": COUNT}, {"$setOnInsert": new}, upsert=True)
