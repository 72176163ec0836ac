"""Storage in a MongoDB database, through pymongo.

Several processes on several machines may share the store. A commit that returned is on the disks
of a majority of the servers, and survives the loss of any minority of them, also of the primary.
The servers are a replica set, which may have one member: a single server has no transactions.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.errors import MissingExtraError, StoreLockedError

try:
    import pymongo
except ImportError as error:
    raise MissingExtraError(
        "a store in MongoDB needs pymongo: pip install 'holdfast[mongodb]'"
    ) from error
from pymongo.client_session import ClientSession

from holdfast.storage.batch import Ranges
from holdfast.storage.contract import Batch, Limits, Moment
from holdfast.storage.mongodb import schema as schema
from holdfast.storage.mongodb.batch import Commit, pages
from holdfast.storage.mongodb.client import COUNT, Client, row
from holdfast.storage.rows import Row
from holdfast.storage.server import MongoAddress, ServerStorage


class MongoStorage(ServerStorage):
    """A handle on the collections in one database."""

    limits = Limits("mongodb", durability=("full", "normal"), shared=True, embedded=False)

    def __init__(
        self, url: str, *, durability: str = "full", create: bool = True, read_only: bool = False
    ) -> None:
        super().__init__(durability, read_only=read_only)
        self.address = MongoAddress.of(url)
        self._turn = threading.Lock()  # see `_commit`: two at once would end one another
        self._client = Client(self.address, full=durability == "full")
        try:
            with self._client.talking():
                self._client.check_server()
                schema.prepare(self._client, create=create and not read_only)
        except BaseException:  # nobody gets the handle that would close it
            self._client.close()
            raise

    # -- the contract ------------------------------------------------------------------

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._life.check()
        found: dict[bytes, bytes] = {}
        with self._client.talking():
            for page in pages(dict.fromkeys(keys)):
                rows = self._client.records.find({"_id": {"$in": page}}, batch_size=len(page) + 1)
                found.update(map(row, rows))
        return [found.get(key) for key in keys]

    def _commit(self, batch: Batch) -> None:
        seconds = self.address.timeout / 1000
        deadline = time.monotonic() + seconds
        # Two transactions of one handle would only end one another.
        if not self._turn.acquire(timeout=seconds):
            raise StoreLockedError("other threads kept committing; nothing was applied: try again")
        try:
            left = max(0.001, deadline - time.monotonic())
            with self._tally.flight() as counted, pymongo.timeout(left):
                Commit(self._client, batch, deadline).run()
                counted()
        finally:
            self._turn.release()

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        self._life.check()
        with self._client.mongo.start_session(snapshot=True) as session:
            with self._client.talking():  # the moment is that of the first read
                self._client.store.find_one({"_id": COUNT}, session=session)
            yield _Still(self, session)

    def size(self) -> int:
        self._life.check()
        with self._client.talking():
            return int(self._client.database.command("dbStats")["totalSize"])

    def check(self) -> list[str]:
        self._life.check()
        with self._client.talking():
            return schema.differences(self._client)

    def close(self) -> None:
        if self._life.end():
            self._client.close()

    def __del__(self) -> None:
        # The driver cannot start its threads any more when the interpreter ends, and would wait.
        if hasattr(self, "_client") and not sys.is_finalizing():
            self.close()

    # -- asking ------------------------------------------------------------------------

    def _rows(
        self,
        table: str,
        low: bytes,
        high: bytes,
        limit: int,
        reverse: bool,
        session: ClientSession | None = None,
    ) -> list[Row]:
        self._life.check()
        if not limit:  # which means to the server that there is none
            return []
        asked = {"_id": {"$gte": low.hex(), "$lt": high.hex()}}
        with self._client.talking():
            found = self._client.database[table].find(asked, batch_size=limit + 1, session=session)
            return [row(one) for one in found.sort("_id", -1 if reverse else 1).limit(limit)]

    def _commits(self) -> tuple[int, object]:
        with self._client.talking():
            return self._client.counted(), None


class _Still(Ranges):
    """Reads in a session whose moment the servers keep, for five minutes if not told otherwise."""

    def __init__(self, storage: MongoStorage, session: ClientSession) -> None:
        self._storage = storage
        self._session = session

    def _rows(self, table: str, low: bytes, high: bytes, limit: int, reverse: bool) -> list[Row]:
        return self._storage._rows(table, low, high, limit, reverse, self._session)
