"""Opening and creating stores: what is checked before anything is touched."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    DamagedStorageError,
    ForeignSchemaError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    NewerFormatError,
    NotAStoreError,
    ReadOnlyError,
    StoreNotFoundError,
    WitnessError,
    WrongKeyError,
)
from holdfast.seal.codec import Codec, ValueLimits
from holdfast.seal.keys import EnvKey, FileKey, KeySource, check_home, key_for
from holdfast.seal.registry import Registry, default_registry
from holdfast.seal.ring import Ring, RingStorage, damaged, stored_masters
from holdfast.seal.sealer import PlainSeal, sealed_under
from holdfast.seal.signer import Identity, Signer, parse_identity
from holdfast.storage import (
    address_of,
    check_names_file,
    file_of,
    on_server,
    open_storage,
    shown,
    url_of,
)
from holdfast.storage.contract import Batch, Moment, Storage
from holdfast.storage.redis import FORM, Address, Cached, RedisCache, check_driver
from holdfast.store.commit.group import Core
from holdfast.store.journal.entry import split_row
from holdfast.store.journal.ledger import Found, Ledger, Wanted
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_filters, check_flag, check_texts, is_seconds
from holdfast.store.names.cells import row_at
from holdfast.store.names.clock import Clock
from holdfast.store.names.meter import CACHE, Meter
from holdfast.store.read.lookup_terms import keep_lookups

# ---- open cache ---------------------------------------------------------------------------------
# Putting a cache in front of a store while it is opened.


HOUR = 3600.0
LONGEST = 30 * 24 * HOUR
"""Seconds for which a cache may be told to keep what it holds."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Which cache is to stand in front of a store."""

    address: Address
    ttl: float

    @classmethod
    def of(cls, cache: object, ttl: float, *, embedded: bool = False) -> CachePlan | None:
        """What the arguments of `open` ask for; refused before anything is touched.

        In front of an `embedded` engine a cache was measured to take 2.4 to 3.4 times as long as
        none: a read of the file is cheaper than a round trip.
        """
        if not is_seconds(ttl, 0.001, LONGEST):
            raise InvalidInputError("cache_ttl is seconds, from a thousandth to 30 days of them")
        if cache is None:
            return None
        if not isinstance(cache, str):
            raise InvalidInputError(f"a cache is given as text: {FORM}")
        address = Address.of(cache)
        if embedded:
            raise InvalidInputError(
                "a cache in Redis is for a store on a server: in front of a file or of memory it "
                "makes reads slower; leave cache= out"
            )
        return cls(address, float(ttl))

    def before(self, storage: Storage, lineage: bytes, instance: bytes) -> Cached:
        """The storage of a store behind the cache; a server that does not answer is logged."""
        prefix = f"holdfast:{lineage.hex()}:{instance.hex()}:"
        cache = RedisCache(self.address, prefix, self.ttl)
        cache.reach()
        return Cached(storage, cache)


# Only rows with the atoms of values (entries, packs) are asked for there, and only by a reader who
# holds the refs of those atoms: an index that came from the engine says by its hashes what they
# must be. So neither an old nor a foreign nor a forged row is ever believed; it is read from the
# engine instead, and put in its place. Nodes of trees are not kept there: a node says where its
# children lie, and no hash covers that, so that a node of another copy could lead astray.
#
# What is sensitive is never put there. A row tells by its seal whether it holds something that was
# so when it was written; and of a scope in which a class of keys is declared so, nothing is asked.


class Near:
    """The cache in front of one open store."""

    def __init__(self, cache: RedisCache, meter: Meter) -> None:
        self._cache = cache
        self._meter = meter
        cache.tell = self._tell

    def atoms(self, ledger: Ledger, wanted: Mapping[bytes, Wanted]) -> dict[bytes, list[Found]]:
        """The atoms of those rows that the cache has, and has as they must be."""
        found: dict[bytes, list[Found]] = {}
        rows = self._cache.get(list(wanted))
        if rows is None:
            self._tell("read", "failed", len(wanted))
            return found
        for key, row in rows.items():
            atoms = ledger.named_atoms(key, row, wanted[key])
            if atoms is not None:
                found[key] = atoms
        self._tell("read", "hit", len(found))
        self._tell("read", "wrong", len(rows) - len(found))
        self._tell("read", "miss", len(wanted) - len(rows))
        return found

    def offer(self, ledger: Ledger, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put rows there that were read from the engine, or committed, if they may lie there."""
        encrypted = ledger.seal.encrypted
        self._cache.put((k, row) for k, row in rows if row and _may_leave(k, row, encrypted))

    def left(self) -> str:
        """What an erase says of the cache: rows that are dropped leave it, but for these."""
        return (
            "rows of it in the cache that could not be reached there, or that another process has "
            f"put there meanwhile: they expire, {self._cache.ttl:g} s after that at the latest"
        )

    def _tell(self, call: str, result: str, count: int) -> None:
        if count:
            self._meter.add(CACHE, (call, result), count=count)


def _may_leave(key: bytes, row: bytes, encrypted: bool) -> bool:
    """Whether it is sure that a row held nothing sensitive when it was written.

    One that did is padded in an encrypted store, and in a plain one not compressed. There, what is
    short or cannot be made shorter is not compressed either, and so is left out with it.
    """
    try:
        start = len(split_row(row)[0].data) if key[:1] == b"E" else 0
        _, packed, quiet = sealed_under(row, start)
    except DamagedRecordError:
        return False  # what cannot be read may hold anything
    return not quiet if encrypted else packed


# ---- open ---------------------------------------------------------------------------------------


FORMAT = 1
"""Of the store. A reader needs at least `oldest_reader`, a writer `oldest_writer`."""
META = rowkinds.ROW[b"M"].key
_AD = b"holdfast/meta/1\0" + META


class Meta(msgspec.Struct, array_like=True):
    """What a store is; written once, when it is made."""

    format: int
    oldest_reader: int
    oldest_writer: int
    lineage: bytes
    instance: bytes
    encrypted: bool
    public: bytes
    """Of the signer; verifiers who want more than accidents found pin it."""
    created: int
    signer_inside: bool
    """The signer is kept in the ring, or lies beside the file: reports say self-signed."""


_ENGINE = ("limits", *(name for name in vars(Storage) if not name.startswith("_")))
"""What an engine has."""
_decode = msgspec.msgpack.Decoder(Meta).decode
_encode = msgspec.msgpack.Encoder().encode


class Opening:
    """The arguments of `holdfast.open`, and the steps that make a store of them."""

    source: KeySource | None

    def __init__(
        self,
        url: str | Path,
        *,
        key: str | None = None,
        durability: str = "full",
        create: bool = True,
        read_only: bool = False,
        signer: str | None = None,
        identity: str | None = None,
        registry: Registry | None = None,
        limits: ValueLimits | None = None,
        clock: Clock | None = None,
        storage: Storage | None = None,
        cache: str | None = None,
        cache_ttl: float = HOUR,
    ) -> None:
        url = url_of(url)
        check_filters(key=key, signer=signer, identity=identity)
        key = key if key is not None else os.environ.get("HOLDFAST_KEY")
        check_texts(url=url, key=key, signer=signer)
        check_flag(create, "create")
        check_flag(read_only, "read_only")
        how, _, path = (signer or "").partition(":")
        if signer is not None and (how not in ("file", "hybrid") or not path):
            raise InvalidInputError(
                "a signer is given as file:PATH, or hybrid:PATH with ML-DSA, too"
            )
        for given, kind in ((registry, Registry), (limits, ValueLimits), (clock, Clock)):
            if given is not None and not isinstance(given, kind):
                what = kind.__name__
                raise InvalidInputError(f"{_OPTIONS[what]} is given as holdfast.{what}(...)")
        for text, named in ((key, "the key's file"), (signer, "the signer's file")):
            form, _, place = (text or "").partition(":")
            if form in ("file", "hybrid") and place:
                check_names_file(place, named)
        # What is no engine is refused further on, with a text that says what is missing.
        limits_of = getattr(storage, "limits", None)
        embedded = not on_server(url) if storage is None else getattr(limits_of, "embedded", False)
        self.url = url
        self.key = key
        self.signer_path = os.path.expanduser(path) if signer else None
        self.hybrid = how == "hybrid"
        self.pinned = parse_identity(identity) if identity is not None else None
        self.durability = durability
        self.create = create and not read_only and self.pinned is None
        self.read_only = read_only
        self.registry = registry or default_registry
        self.limits = limits
        self.clock = clock or Clock()
        self.storage = storage
        self.cache = CachePlan.of(cache, cache_ttl, embedded=embedded)

    def run(self) -> Core:
        """Open the store, or create it where that is allowed."""
        with key_for(self.key) as self.source:
            self.check_source()
            return self._run(self.storage)

    def _run(self, storage: Storage | None) -> Core:
        in_memory = not on_server(self.url) and file_of(self.url) is None
        if storage is None:
            path = file_of(self.url)
            if path is not None:
                check_cut_off(path)
            if path is not None and self.create:
                check_lost(path)
            how = {"create": self.create, "read_only": self.read_only}
            storage = open_storage(self.url, durability=self.durability, **how)
        elif not all(hasattr(storage, name) for name in _ENGINE):
            raise InvalidInputError(
                "storage is an engine: an object with all that holdfast.storage.contract.Storage "
                "has; for one of ours give its URL alone"
            )
        elif self.source is not None and in_memory and storage.limits.name != "memory":
            # An engine of one's own does not say where the ring lies: the URL does.
            raise InvalidInputError(
                "the keys of this store would be in memory alone, and its content lost with them: "
                "beside storage=, give sqlite:PATH as URL, and they are kept in PATH.keys"
            )
        try:
            check_replica(storage, self.url, read_only=self.read_only)
            meta = read_meta(storage)
            if meta is not None:
                return self.open(storage, meta)
            if self.create:
                return self.make(storage)
            raise StoreNotFoundError(
                f"there is no store at {shown(self.url)}, and none may be created"
            )
        except BaseException:  # whatever it is, nobody else has the storage to close it
            storage.close()
            raise

    def check_source(self) -> None:
        """What cannot be used must not leave half a store behind: a key, or a place for one that
        is made with the store, or for a signer; a cache whose driver is missing."""
        source = self.source
        if self.cache is not None:
            check_driver()
        if isinstance(source, EnvKey) or (isinstance(source, FileKey) and source.path.exists()):
            source.load()
        elif isinstance(source, FileKey) and self.create:
            check_home(source.path, "key file")
        if self.signer_path is not None and os.path.lexists(self.signer_path):
            self.load_signer(self.signer_path)
        elif self.signer_path is not None and self.create:
            check_home(Path(self.signer_path), "signer file")
            if self.hybrid:
                Signer.generate(hybrid=True)  # refused where there is no ML-DSA
        if source is not None and on_server(self.url):
            self.ring_url()

    def open(self, storage: Storage, meta: Meta) -> Core:
        """Open what is there."""
        return self.core(storage, meta, *self.keys(meta))

    def keys(self, meta: Meta) -> tuple[Ring | None, Storage | None, Signer | None]:
        """The ring of a store that may be opened, its storage, and the signer."""
        self.check(meta)
        ring = ring_storage = None
        try:
            if meta.encrypted:
                ring_storage = self.ring_storage(create=False)
                ring = Ring.open(ring_storage, self.source, meta.lineage)
            return ring, ring_storage, self.find_signer(meta, ring)
        except BaseException as error:  # whatever it is, nobody else has the ring to close it
            if ring_storage is not None:
                ring_storage.close()
            if meta.encrypted and (
                isinstance(error, (NotAStoreError, ForeignSchemaError, DamagedStorageError))
                or type(error) is DamagedRecordError  # of the file, not of a row
            ):
                raise damaged(f"file ({shown(self.ring_url())})", mendable=True) from None
            raise

    def make(self, storage: Storage) -> Core:
        """Create a store: its ring first, then, if nobody was faster, the row that makes it one."""
        lineage = os.urandom(16)
        ring = ring_storage = None
        path, source = file_of(self.url), self.source
        if source is None and path is not None:
            check_no_ring(self.ring_url())
        if source is not None:
            file = source.path if isinstance(source, FileKey) else None
            if file and path is not None and file.parent.resolve() == Path(path).parent:
                warnings.warn(
                    f"the key file {file} lies in the same folder as the store: who copies "
                    "the folder has both",
                    stacklevel=5,
                )
            ring_storage = self.ring_storage(create=True)
            try:
                ring = Ring.create(ring_storage, source, lineage)
            except Conflict:  # another process is making the store, and has made its ring
                ring_storage.close()
                return self.second(storage)
        return self.found(storage, lineage, ring, ring_storage)

    def found(
        self, storage: Storage, lineage: bytes, ring: Ring | None, ring_storage: Storage | None
    ) -> Core:
        """Write the row that makes it a store; if another process has, use the store it made."""
        if ring is not None and ring_storage is not None and ring.lies_in(storage):
            ring.discard()  # it was given by another name of the same place
            ring_storage.close()
            raise ring_in_store()
        signer = self.make_signer(ring)
        meta = Meta(
            FORMAT,
            FORMAT,
            FORMAT,
            lineage,
            os.urandom(16),
            ring is not None,
            signer.public,
            self.clock.claimed(),
            self.signer_path is None,
        )
        row = PlainSeal(bytes(16)).seal(_AD, _encode(meta), bytes(32), compress=False)
        try:
            storage.commit(Batch(puts=[(META, row)], absent=[META]))
        except Conflict:  # another process has made the store
            if ring_storage is not None:
                ring_storage.close()
            return self.second(storage)
        # Who opens it later has no signer either; a store has one for good, or never.
        nowhere = ring is None and self.signer_path is None and on_server(self.url)
        return self.core(storage, meta, ring, ring_storage, None if nowhere else signer)

    def second(self, storage: Storage) -> Core:
        """Another process was faster: use the store that it made.

        If that process was cut short, its ring is there and the store is not; nobody can tell
        that from one that is slow, so it is given two seconds.
        """
        for _ in range(200):
            meta = read_meta(storage)
            if meta is not None:
                return self.open(storage, meta)
            time.sleep(0.01)  # it has its ring and is about to write this row
        return self.take_over(storage)

    def take_over(self, storage: Storage) -> Core:
        """Finish a creation that was cut short behind its ring, if nothing rests on that ring."""
        ring_storage = self.ring_storage(create=False)
        where = f"there is a ring ({shown(self.ring_url())}), but no store beside it"
        try:
            lineage = Ring.unused(ring_storage)
            if lineage is None:
                raise lost(self.ring_url())
            ring = Ring.open(ring_storage, self.source, lineage)
        except BaseException as error:  # whatever it is, nobody else has the ring to close it
            ring_storage.close()
            if isinstance(error, WrongKeyError):
                raise WrongKeyError(
                    f"{where}: two seconds were waited for the process that made it, which seems "
                    "to have been cut short. The key given does not open that ring: give the one "
                    "that was used then, or remove the ring's file, on which no data rests"
                ) from None
            raise
        return self.found(storage, lineage, ring, ring_storage)

    def check(self, meta: Meta) -> None:
        """Refuse a store that this call, or this version, must not use."""
        if meta.oldest_reader > FORMAT:
            raise NewerFormatError(
                f"the store needs a reader of format {meta.oldest_reader}; this version has "
                f"{FORMAT}: use a newer one"
            )
        if meta.oldest_writer > FORMAT and not self.read_only:
            raise NewerFormatError(
                f"the store needs a writer of format {meta.oldest_writer}; this version has "
                f"{FORMAT}: use a newer one, or open it with read_only=True"
            )
        here = Identity(meta.lineage, meta.encrypted, meta.public)
        if self.pinned is not None and self.pinned != here:
            raise WitnessError("this is not the store that the identity names")
        if meta.encrypted and self.source is None:
            raise KeyMissingError("the store is encrypted: give its key (key= or HOLDFAST_KEY)")
        if not meta.encrypted and self.source is not None:
            raise KeyNotNeededError("the store is not encrypted: open it without a key")

    def core(
        self,
        storage: Storage,
        meta: Meta,
        ring: Ring | None,
        ring_storage: Storage | None,
        signer: Signer | None,
    ) -> Core:
        """The open store."""
        if self.cache is not None:
            storage = self.cache.before(storage, meta.lineage, meta.instance)
        core = Core(
            storage,
            meta.lineage,
            instance=meta.instance,
            public=meta.public,
            self_signed=meta.signer_inside,
            ring=ring,
            ring_storage=ring_storage,
            signer=signer,
            codec=Codec(self.registry, self.limits),
            clock=self.clock,
            lookups=keep_lookups,
            read_only=self.read_only,
        )
        if isinstance(storage, Cached):
            core.near = Near(storage.cache, core.meter)
        return core

    def ring_url(self) -> str:
        """Where the ring lies."""
        return ring_place(self.url)

    def ring_storage(self, *, create: bool) -> Storage:
        """The ring lies beside the store, never in it: a copy of the one lacks the other."""
        if self.url == "memory:":
            return open_storage("memory:", durability=self.durability)
        url = self.ring_url()
        try:
            # Under a passphrase, who reads the ring can guess it at leisure.
            ring = open_storage(
                url,
                durability=self.durability,
                create=create,
                read_only=self.read_only,
                private=True,
            )
        except StoreNotFoundError:
            raise KeyMissingError(
                f"the store is encrypted and its ring ({shown(url)}) is missing; put it back from "
                "a copy; that of a replica is the one of its store: copy it there"
            ) from None
        return RingStorage(ring, shown(url))

    def beside(self) -> str | None:
        """Where the signer of a plain store lies if none is given; none without a file."""
        path = file_of(self.url)
        return f"{path}.sign" if path is not None else None

    def make_signer(self, ring: Ring | None) -> Signer:
        """The pair that signs for a new store."""
        path = self.signer_path
        if path is None and ring is not None:
            signer = Signer.generate()
            try:
                ring.put_signer(signer.seed())
            except Conflict:  # a creation that was cut short, or is under way, has put its own
                return Signer.from_seed(ring.signer_seed() or b"")
            return signer
        path = path or self.beside()
        if path is None:
            return Signer.generate()
        if not os.path.exists(path):
            try:
                return Signer.create(path, hybrid=self.hybrid)
            except InvalidInputError:
                pass  # another process that creates this store was faster
        return self.load_signer(path)

    def load_signer(self, path: str) -> Signer:
        """The signer in a file, if it is of the kind that was asked for."""
        signer = Signer.load(path)
        if self.hybrid and not signer.hybrid:
            raise InvalidInputError(
                f"the signer in {path} is not a hybrid one; give it as file:PATH, or give a new "
                "path for a hybrid signer of a new store"
            )
        return signer

    def find_signer(self, meta: Meta, ring: Ring | None) -> Signer | None:
        """The store's signer, or None if it is not here: checkpoints are then unsigned."""
        if self.signer_path is not None:
            signer = self.load_signer(self.signer_path)
            if signer.public != meta.public:
                raise WitnessError(
                    f"the signer in {self.signer_path} is not the one this store was made with"
                )
            return signer
        found: Signer | None = None
        beside = self.beside()
        if ring is not None:
            seed = ring.signer_seed()
            found = Signer.from_seed(seed) if seed is not None else None
        elif beside is not None and os.path.exists(beside):
            found = Signer.load(beside)
        if found is not None and found.public == meta.public:
            return found
        if beside is not None and ring is None and meta.signer_inside and not self.read_only:
            told = "the signer of this store is gone: %r is missing, or is another's. Checkpoints "
            told += "are not signed until it is put back from a copy"
            logging.getLogger("holdfast.store").warning(told, beside)
        return None


_OPTIONS = {"Registry": "registry", "ValueLimits": "limits", "Clock": "clock"}


def open_core(url: str | Path, **options: Any) -> Core:
    """Open or create a store; see `holdfast.open` for the arguments."""
    return Opening(url, **options).run()


def read_meta(storage: Moment) -> Meta | None:
    """What the store says of itself; None if there is no store in this storage."""
    row = row_at(storage, META)
    if row is None and not storage.scan(b"A", b"[", limit=1):
        return None
    # It is the first row of a store: if another process made the store meanwhile, it is there.
    row = row or row_at(storage, META)
    try:
        return _decode(PlainSeal(bytes(16)).open(_AD, row or b""))
    except (msgspec.MsgspecError, DamagedRecordError):  # told as the row that it is
        how = "missing" if row is None else "damaged"
        raise DamagedRecordError(
            f"the row that says what this store is, is {how}: run `holdfast repair`, with a copy "
            "of the store if there is one (--copy URL)",
            "store row",
        ) from None


# ---- open keys ----------------------------------------------------------------------------------
# Where the keys of a store lie: its ring, and the key file.


def ring_place(url: str) -> str:
    """Where the ring lies: beside a file; for a store on a server, where its URL says."""
    path = file_of(url)
    if not on_server(url):
        return f"{url}.keys" if path is None else f"sqlite:{path}.keys"
    store = address_of(url)
    if not store.ring:
        raise InvalidInputError(
            "an encrypted store on a server needs a place for its ring, which holds the "
            "wrapped keys: add ring=PATH to the options in its URL (a file), or ring=URL of "
            "another database"
        )
    ring = store.ring if ":" in store.ring else f"sqlite:{store.ring}"
    if on_server(ring) and address_of(ring).place == store.place:
        raise ring_in_store()
    return ring


def ring_in_store() -> InvalidInputError:
    """The error for a ring in the place of its own store."""
    return InvalidInputError("the ring of a store cannot lie in the store's own schema or database")


# ---- open leftovers -----------------------------------------------------------------------------
# What is left of a store whose file was lost or cut off: no new one is made in its place.


HEADER = 100
"""Bytes at the beginning of a SQLite file without which it is none."""


def check_cut_off(path: str) -> None:
    """An empty file may become a store, but not if it was one: a plain store's signer and an
    encrypted one's ring, which are made after the file has content, lie beside it. A few bytes
    are what is left as well."""
    signer, ring = f"{path}.sign", f"{path}.keys"
    signed, sealed = os.path.exists(signer), os.path.exists(ring)
    size = os.path.getsize(path) if os.path.exists(path) else HEADER  # after what is made later
    if size < HEADER and (signed or (sealed and _holds_keys(f"sqlite:{ring}"))):
        beside = f"signer of a store lies beside it ({signer!r})"
        beside = beside if signed else f"ring of a store lies beside it ({ring!r})"
        raise NotAStoreError(
            f"{path!r} holds {size} bytes, and the {beside}: the store was cut off. Repair it "
            "with a copy of the store (holdfast repair --copy URL), or put the file back from a "
            "backup; for a new store, remove both files"
        )


def _holds_keys(ring: str) -> bool:
    """Whether data rests on a ring."""
    with _opened(ring) as storage:
        return bool(stored_masters(storage)) and Ring.unused(storage) is None


def _opened(ring: str) -> closing[Storage]:
    return closing(open_storage(ring, create=False, read_only=True))


def check_lost(path: str) -> None:
    """Refuse a path without a file whose ring holds keys, before a file is made there: a store is
    made before its ring, so that this one was lost."""
    ring = f"sqlite:{path}.keys"
    if os.path.exists(f"{path}.keys") and not os.path.exists(path) and _holds_keys(ring):
        raise lost(ring)  # looked at in this order: who makes a store makes its file first


def check_no_ring(ring: str) -> None:
    """Refuse a store that is not encrypted where the ring of one that is lies."""
    file = file_of(ring)
    if file is not None and os.path.exists(file) and os.path.getsize(file):
        with _opened(ring) as storage:
            if stored_masters(storage):
                raise lost(ring)


def lost(ring: str) -> DamagedRecordError:
    """The error for a ring whose store is not there."""
    return DamagedRecordError(
        f"the store's file is missing, its ring is there ({shown(ring)}): put the store's file "
        "back, or remove the ring's file if it belongs to no store"
    )


# ---- open replica -------------------------------------------------------------------------------
# What a store says of itself if it is a replica: a cell, which only the layer above writes.


def check_replica(storage: Storage, url: str, *, read_only: bool) -> None:
    """Refuse to write to what another store is copied to, and to open what is not whole."""
    if not storage.cells(rowkinds.FOLLOWS, rowkinds.FOLLOWS + b"\0", limit=1):
        return
    if storage.get([META])[0] is None:
        raise StoreNotFoundError(
            f"the replica at {shown(url)} is not finished: it is no store yet. Sync it again"
        )
    if not read_only:
        raise ReadOnlyError(
            f"{shown(url)} is a replica, and follows another store: write to that, or open this "
            "one with read_only=True. If that store is lost, promote the replica first: "
            "promote_replica, or `holdfast replica promote`"
        )
