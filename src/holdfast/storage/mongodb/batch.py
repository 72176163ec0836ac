"""One batch as one transaction of MongoDB.

All commits of a store follow one another: each counts itself in one document, and of two
transactions that write one document, the server ends the second at once. So a transaction sees
everything that was committed before it, and its expectations are true when it is applied, also
those on rows that it does not write. What was ended so is tried again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from pymongo import DeleteMany, InsertOne, ReadPreference, ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import (
    BulkWriteError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.read_concern import ReadConcern

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreLockedError
from holdfast.storage.batch import conflict, differs
from holdfast.storage.contract import Batch
from holdfast.storage.mongodb.client import COUNT, STOPPED, Client, Document, row

MANY = 10_000
"""Keys that are named in one question: it has to stay far below 16 MB."""
_SHORTEST, _LONGEST = 0.002, 0.05
"""Seconds that are waited for others who commit, about."""
_TWICE = 11000
Write = InsertOne[Document] | UpdateOne | DeleteMany


class Commit:
    """A batch on its way."""

    def __init__(self, client: Client, batch: Batch, deadline: float) -> None:
        self._client = client
        self._batch = batch
        self._deadline = deadline
        self._careful = False
        """Look also at what is put: something of it is there, equal, other, or unexpected."""
        self._new: dict[bytes, bytes] = {}
        """What is put and not there."""
        self._commits = 0
        """How many there are with this one."""
        self._why: PyMongoError | None = None
        """What keeps it from being applied."""

    def run(self) -> None:
        """Apply the batch, or raise what became of it."""
        with self._client.mongo.start_session(causal_consistency=False) as session:
            wait = _SHORTEST
            look = time.monotonic() + STOPPED
            while not self._attempt(session):
                now = time.monotonic()
                if now + wait > self._deadline:
                    raise self._given_up()
                if now > look:
                    look = now + 1
                    self._client.end_stopped()
                time.sleep(random.uniform(0, wait))
                wait = min(2 * wait, _LONGEST)

    def _attempt(self, session: ClientSession) -> bool:
        """Whether it was applied; if not, it is to be tried again."""
        session.start_transaction(
            ReadConcern("snapshot"), self._client.safe, ReadPreference.PRIMARY
        )
        try:
            self._count(session)
            self._check(session)
            self._write(session)
        except PyMongoError as error:
            session.abort_transaction()
            details = error.details if isinstance(error, BulkWriteError) else None
            wrong = (details or {}).get("writeErrors", ())
            if not self._careful and any(one.get("code") == _TWICE for one in wrong):
                self._careful = True
                return False
            self._note(error)
            if not _may_be_tried_again(error):
                raise self._given_up() from None
            return False
        return self._finish(session)

    def _note(self, error: PyMongoError) -> None:
        """Remember what keeps it from being applied.

        That the time is over tells less than the error before. But one that finds no server has
        looked for one all of its time.
        """
        mute = error.timeout and not isinstance(error, ServerSelectionTimeoutError)
        if self._why is None or not mute:
            self._why = error

    def _given_up(self) -> HoldfastError:
        """The error for a batch that was not applied."""
        error = self._why
        others = isinstance(error, OperationFailure) and _may_be_tried_again(error)
        if error is not None and not others:
            return self._client.error(error)
        return StoreLockedError(
            f"others kept committing to {self._client.address}, or one of them stopped in the "
            "middle, and the server has not yet ended what it began; nothing was applied: try again"
        )

    def _finish(self, session: ClientSession) -> bool:
        while True:
            try:
                session.commit_transaction()
                self._client.absent_at = self._commits
                self._client.absent -= self._new.keys()
                return True
            except PyMongoError as error:
                if _may_be_tried_again(error):
                    self._note(error)
                    return False  # the server knows of no such transaction, and never will
                late = time.monotonic() > self._deadline
                if late or not error.has_error_label("UnknownTransactionCommitResult"):
                    raise OutcomeUnknown(
                        f"the commit to {self._client.address} may or may not have been applied: "
                        f"{self._client.error(error)}; read again to see"
                    ) from None
                time.sleep(_LONGEST)

    # -- the transaction ---------------------------------------------------------------

    def _count(self, session: ClientSession) -> None:
        """First of all: others who commit are noticed before anything else is done."""
        more = {"$inc": {"commits": 1}}
        found = self._client.store.find_one_and_update(
            {"_id": COUNT}, more, return_document=ReturnDocument.AFTER, session=session
        )
        if found is None:
            raise self._client.lost_count()
        self._commits = found["commits"]

    def _check(self, session: ClientSession) -> None:
        failed, found = self._look(session)
        if failed and not self._careful:
            self._careful = True  # what is put may be there, too, and is named then
            failed, found = self._look(session)
        if failed:
            raise conflict(list(dict.fromkeys(failed)))
        for key, value in self._batch.puts:
            if found.get(key, value) != value:
                raise differs(key)
        self._new = {key: value for key, value in self._batch.puts if key not in found}

    def _look(self, session: ClientSession) -> tuple[list[bytes], dict[bytes, bytes]]:
        """The expectations that do not hold, and the records that were read."""
        batch, client = self._batch, self._client
        absent, puts = set(batch.absent), {key for key, _ in batch.puts}
        # What is put is hardly ever there, and if it is, the server does not insert it.
        passed = set() if self._careful else puts
        named = {*(absent - passed), *batch.present}
        read = {*(puts - absent - passed), *(key for key, _, _ in batch.swaps)}
        found = dict(self._read(client.records, read, session))
        if client.absent_at != self._commits - 1 or len(client.absent) >= MANY:
            client.absent = set()  # others have committed since
        asked = named - found.keys() - client.absent
        there = set(found)
        for page in pages(asked):
            only = client.records.find({"_id": {"$in": page}}, {"_id": 1}, session=session)
            there.update(bytes.fromhex(one["_id"]) for one in only)
        client.absent |= asked - there
        failed = [key for key in batch.absent if key in there]
        failed += [key for key in batch.present if key not in there]
        failed += [key for key, old, _ in batch.swaps if found.get(key) != old]
        cells = dict(self._read(client.cells, [key for key, _, _ in batch.cells], session))
        failed += [key for key, old, _ in batch.cells if cells.get(key) != old]
        return failed, found

    def _read(
        self, source: Collection[Document], keys: Iterable[bytes], session: ClientSession
    ) -> Iterator[tuple[bytes, bytes]]:
        for page in pages(keys):
            yield from map(row, source.find({"_id": {"$in": page}}, session=session))

    def _write(self, session: ClientSession) -> None:
        batch = self._batch
        records: list[Write] = [_insert(key, value) for key, value in self._new.items()]
        records += [_update(key, new) for key, _, new in batch.swaps]
        records += [DeleteMany({"_id": {"$in": page}}) for page in pages(batch.drops)]
        cells: list[Write] = []
        for key, old, new in batch.cells:
            if new is None and old is not None:
                cells.append(DeleteMany({"_id": key.hex()}))
            elif old is None and new is not None:
                cells.append(_insert(key, new))
            elif new is not None and new != old:
                cells.append(_update(key, new))
        for target, writes in ((self._client.records, records), (self._client.cells, cells)):
            if writes:
                target.bulk_write(writes, session=session)


def pages(keys: Iterable[bytes]) -> Iterator[list[str]]:
    """Keys as the documents have them, so many at a time."""
    left = iter(keys)
    while page := [key.hex() for key in islice(left, MANY)]:
        yield page


def _insert(key: bytes, value: bytes) -> InsertOne[Document]:
    return InsertOne({"_id": key.hex(), "v": value})


def _update(key: bytes, value: bytes) -> UpdateOne:
    return UpdateOne({"_id": key.hex()}, {"$set": {"v": value}})


def _may_be_tried_again(error: PyMongoError) -> bool:
    """Whether the whole transaction may: the server has ended it, or never heard of it."""
    return error.has_error_label("TransientTransactionError")
