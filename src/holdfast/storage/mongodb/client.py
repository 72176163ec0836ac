"""The client of a MongoDB server: how reads and commits are asked for, and its errors in our words.

Reads come from the primary and see only what a majority of the servers has on its disks, so that
nothing is seen that could be lost. Keys lie in documents as hexadecimal text: MongoDB orders
binary values by their length first, and text without a collation by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymongo
from bson.codec_options import CodecOptions
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import split_options

from holdfast.errors import (
    DamagedRecordError,
    DiskFullError,
    ForeignSchemaError,
    HoldfastError,
    InvalidInputError,
    StorageReadOnlyError,
    Unavailable,
    UnsafePlaceError,
)
from holdfast.storage.server import MONGO_FORM, MongoAddress

Document = dict[str, Any]
COUNT = "store"
"""The document in the collection of the same name that counts commits."""
STOPPED = 5
"""Seconds after which whoever does nothing in a transaction is taken to have stopped there."""


class Client:
    """Connections to the servers, and the three collections of a store."""

    def __init__(self, address: MongoAddress, *, full: bool) -> None:
        self.address = address
        more: dict[str, Any] = {}
        if "appname=" not in address.url.lower():
            more["appname"] = f"holdfast {address.database}"
        try:
            if options := address.url.partition("?")[2]:
                split_options(options, validate=True)  # the client itself would only warn
            self.mongo: MongoClient[Document] = MongoClient(
                address.url,
                maxPoolSize=address.pool_size,
                connect=False,
                **more,
            )
        except (PyMongoError, ValueError):  # its text may show pieces of the URL
            raise InvalidInputError(
                f"the URL of a store in MongoDB is {MONGO_FORM}; this one has another form, or an "
                "option that the driver does not know, or not with this value"
            ) from None
        self.safe = WriteConcern("majority", j=True if full else None)
        self.database = self.mongo.get_database(
            address.database,
            codec_options=CodecOptions(),
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self.records = self.database["records"]
        self.cells = self.database["cells"]
        self.store = self.database["store"]
        self._sure = self.store.with_options(read_concern=ReadConcern("linearizable"))
        self.absent: set[bytes] = set()
        """Records that were found absent by commits of this client, the last of which was number
        `absent_at`: not looked for again unless others commit."""
        self.absent_at = -1

    def check_server(self) -> None:
        """Refuse a server that has no transactions."""
        hello = self.mongo.admin.command("hello")
        if hello.get("msg") == "isdbgrid":
            raise UnsafePlaceError(
                f"{self.address} is a sharded cluster, which is not supported; give the address "
                "of a replica set"
            )
        if "setName" not in hello:
            raise _no_transactions(self.address)

    def counted(self) -> int:
        """How many commits there were.

        Another server may have become primary without this one knowing, so it has to make sure.
        That takes a while, and is not needed where there is no other.
        """
        servers = self.mongo.topology_description.server_descriptions().values()
        alone = all(len(server.all_hosts) == 1 for server in servers)
        found = (self.store if alone else self._sure).find_one({"_id": COUNT})
        if found is None:
            raise self.lost_count()
        return int(found["commits"])

    def lost_count(self) -> HoldfastError:
        """The error for a store that somebody has taken apart."""
        return ForeignSchemaError(
            f"the document that counts commits is missing at {self.address}: restore the database "
            "from a backup"
        )

    def end_stopped(self) -> None:
        """End transactions in which nothing happens: whoever began them was killed there.

        The server does so by itself after a minute, in which nobody else could commit. One that
        was only slow is told, and begins again. Every user may end its own.
        """
        idle = {
            "type": "idleSession",
            "appName": self.mongo.options.pool_options.appname,
            "transaction.timeInactiveMicros": {"$gt": STOPPED * 1_000_000},
        }
        mine = {"allUsers": False, "idleSessions": True}
        with suppress(PyMongoError):  # it is only help; what is wrong is seen by who commits
            for one in self.mongo.admin.aggregate([{"$currentOp": mine}, {"$match": idle}]):
                self.mongo.admin.command("killSessions", [{"id": one["lsid"]["id"]}])

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Bound what is asked for in time, and give errors in our words; nothing was applied."""
        try:
            with pymongo.timeout(self.address.timeout / 1000):
                yield
        except PyMongoError as error:
            raise self.error(error) from None

    def error(self, error: PyMongoError) -> HoldfastError:
        """An error of the driver in our words, where nothing was applied."""
        if isinstance(error, ConnectionFailure) or error.timeout:
            return Unavailable(f"{self.address} cannot be reached: {_plain(error)}; try again")
        if not isinstance(error, OperationFailure):
            return Unavailable(f"{self.address} cannot be used: {_plain(error)}; try again")
        code = error.code or 0
        if code == 20:  # IllegalOperation
            return _no_transactions(self.address)
        name = (error.details or {}).get("codeName", "error")
        kind, advice = _CODES.get(code, (Unavailable, "nothing was applied; try again"))
        return kind(f"MongoDB: {name} ({code}); {advice}")

    def close(self) -> None:
        """End all connections. A server that is away is told only for a moment."""
        with pymongo.timeout(1):
            self.mongo.close()


_KEPT = "try again, or raise minSnapshotHistoryWindowInSeconds, which is five minutes"
_CODES: dict[int, tuple[type[HoldfastError], str]] = {
    13: (StorageReadOnlyError, "the user lacks rights: give it the role readWrite on the database"),
    18: (Unavailable, "check user and password, and authSource=DATABASE in the URL's options"),
    8000: (Unavailable, "check user and password, and authSource=DATABASE in the URL's options"),
    239: (Unavailable, "the servers keep a moment no longer; " + _KEPT),
    246: (Unavailable, "the servers keep a moment no longer; " + _KEPT),
    14031: (DiskFullError, "no room is left on the server's disk: free some space"),
}


def _no_transactions(address: MongoAddress) -> HoldfastError:
    return UnsafePlaceError(
        f"{address} is a single server without transactions, on which nothing is kept safe; start "
        "it as a replica set, which may have one member: mongod --replSet NAME, then "
        "rs.initiate() once in mongosh"
    )


def _plain(error: PyMongoError) -> str:
    """The first part of what the driver says, which has host and reason, and no passwords."""
    return str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0]


def row(document: Document) -> tuple[bytes, bytes]:
    """A document as key and content."""
    key, value = document.get("_id"), document.get("v")
    try:
        found = bytes.fromhex(key)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DamagedRecordError("a document has no valid key", "document") from None
    if type(value) is not bytes:
        place = f"record {found.hex()}"
        raise DamagedRecordError(f"{place} has no content: run verify on the store", place)
    return found, value
