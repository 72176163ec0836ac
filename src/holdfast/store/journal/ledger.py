"""One scope, opened: its keys, its trees, and the reading of its records."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.errors import (
    DamagedIndexError,
    DamagedRecordError,
    DataKeyRemovedError,
    HoldfastError,
    InvalidValueError,
    KeyMissingError,
    LimitExceededError,
    PrunedError,
    ScopeNotFoundError,
    UnknownTypeError,
)
from holdfast.seal.codec import Codec
from holdfast.seal.ring import subkey
from holdfast.seal.sealer import Commitments, Seal, sealed_under
from holdfast.storage.contract import Storage
from holdfast.storage.rows import Row, each
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body, Envelope
from holdfast.store.journal.feed import FeedItem
from holdfast.store.journal.save import Floor
from holdfast.store.journal.slot import Slot
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import leave_loop
from holdfast.store.tree import refs
from holdfast.store.tree.refs import ATOM, ATOM_INLINE
from holdfast.store.tree.split import Splitter, array_header
from holdfast.store.tree.tree import NodeCache, Place, Trees
from holdfast.store.tree.value import Grower

PACK = 4096
"""Bytes of a pack, and of the atoms inside an entry's row: one read gives little more than
what was asked for, and rows stay few."""
_PREFETCH = 256
"""Rows that are read together: what bounds memory."""
NOT_NAMED = "a value is not the one that the index names"
TOGETHER = 1024
"""Values that are decoded at one stroke, if all of them are held."""
Wanted = Sequence[tuple[bytes, Any]]
"""(ref, place) of atoms in one row."""
Found = tuple[bytes, Any, bytes]
"""The same with an atom's bytes."""


class RowCache(Protocol):
    """A cache outside of the process, as a ledger uses it: see `store.open`."""

    def atoms(self, ledger: Ledger, wanted: Mapping[bytes, Wanted]) -> dict[bytes, list[Found]]:
        """The atoms of those rows that the cache has, and has as they must be."""

    def offer(self, ledger: Ledger, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put rows there, if they may lie there."""

    def left(self) -> str:
        """What an erase says of the cache: rows that are dropped leave it, but for these."""


_BYTE = [bytes([n]) for n in range(256)]
_T = TypeVar("_T")

_decode_pack = msgspec.msgpack.Decoder(list[bytes]).decode
ADVICE = ". Run `holdfast verify` to see what it touches, and restore a checkpoint from before it"


def gone(scope: Scope) -> ScopeNotFoundError:
    """The error for a scope that was erased while it was open."""
    return ScopeNotFoundError(f"{scope} was erased; one that is made again under its name is new")


class Home(Protocol):
    """The open store that a scope is part of."""

    codec: Codec
    storage: Storage
    lineage: bytes
    nodes: NodeCache
    atoms: AtomCache


class Ledger:
    """What is needed to read and write one scope."""

    stale = False
    """Another object stands for this scope now, or it is to be read again."""
    met_damage = False
    """A record could not be read: what is written rests on nothing that was not read anew."""

    def __init__(
        self,
        scope: Scope,
        number: int,
        scope_id: bytes,
        *,
        before: int,
        tombstone: bytes,
        home: Home,
        seal: Seal,
        commitments: Commitments,
        no_body: Callable[[Ledger, bytes], HoldfastError],
    ) -> None:
        self.scope = scope
        self.number = number
        self.id = scope_id
        self.before = before
        """The number before the first entry's: not 0 if an earlier scope of this name is deleted.

        So a number names one entry for ever, and a version kept from before never fits by chance.
        """
        self.tombstone = tombstone
        """Key of the row that says that the scope is erased: every commit expects it absent."""
        self.seal = seal
        self.codec = home.codec
        self.storage = home.storage
        self.prefix = home.lineage + scope_id
        self.timelines: dict[int, Any] = {}
        """Held for `Directory`; of timelines, which read through it, a ledger knows nothing."""
        self.names: dict[str, int] = {}
        self.lines: dict[int, str] = {}
        """Names of timelines other than `main`, as far as somebody asked: see `Numbers`."""
        self.views: dict[tuple[int, int, int], Any] = {}
        """The same, at older entries."""
        self.viewing = threading.RLock()  # one reads such a state, for all who want it
        self.made: list[tuple[int, str, int, int]] = []
        """All timelines, as far as somebody asked: see `Directory.timelines`."""
        self.ended: set[int] = set()
        """Those that are over, as far as somebody looked: nothing of them is asked again."""
        self.whole: dict[int, tuple[int, list[int]]] = {}
        """By timeline: entries that its newest anchor, by number, left whole for now."""
        self.floors: dict[int, Floor] = {}
        """What anchors that were read say, by timeline."""
        self.pruning: dict[int, Floor] = {}
        """Floors that this process is about to set."""
        self.terms: dict[tuple[bytes, str], tuple[bytes, frozenset[str]]] = {}
        """What a lookup and a key gave for a ref: see `store.read.lookup_terms`."""
        self.birth: list[tuple[bytes, bytes]] | None = None
        """Rows that bring the scope into being, until its first commit."""
        self.ring_birth: list[tuple[bytes, bytes]] = []
        self.behind: FeedItem | None = None  # the end of the one that had its name before
        self.near: RowCache | None = None
        """Asked for values first, if a reader found that nothing here is declared sensitive."""
        self._ad = b"holdfast/ad/1\0" + self.prefix
        self._atoms = home.atoms
        self._no_body = no_body
        """Judges an entry whose row is the envelope alone: pruned, or damaged."""
        self._derive(commitments, home.nodes)

    def _derive(self, commitments: Commitments, nodes: NodeCache) -> None:
        """What follows from the scope's keys: commitments, and trees that are made by them."""
        self._entry_state = hashlib.sha256(b"holdfast/entry/1\0" + self.prefix).copy
        self.commit_body = commitments.domain(b"body")
        self.commit_pack = commitments.domain(b"pack")
        self.commit_save = commitments.domain(b"save")
        self.commit_line = commitments.domain(b"timeline")
        self.commit_signature = commitments.domain(b"signature")
        self.value_hash = commitments.domain(b"value")
        self.opening, self.tag = commitments.opening, commitments.tag
        self.page_key = subkey(commitments.boundary_key, b"page")
        ends = hashlib.blake2b(key=commitments.boundary_key, digest_size=8, person=b"ends").copy

        def end_hash(data: bytes) -> bytes:
            state = ends()
            state.update(data)
            return state.digest()

        self.commit_node = commitments.domain(b"node")
        self.trees = Trees(self.commit_node, end_hash, self._fetch_node, nodes, self.number)
        self.grower = Grower(self.trees)
        self.splitter = Splitter(self.codec, self.value_hash, commitments.boundary_key)

    # rows

    def rows_of(
        self,
        kind: bytes,
        timeline: int,
        first: int | None = None,
        last: int | None = None,
        **how: Any,
    ) -> Iterator[Row]:
        """The rows of a kind that a timeline has, or those of some entries; read as by `each`."""
        line = rows.line(kind, self.number, timeline)
        low = rows.entry(line, first) if first is not None else line
        high = rows.entry(line, last + 1) if last is not None else rows.after(line)
        return each(self.storage.scan, low, high, **how)

    def entry_hash(self, key: bytes, envelope: bytes) -> bytes:
        """The hash of an entry, from its place and envelope."""
        state = self._entry_state()
        state.update(key + envelope)
        return state.digest()

    def ad(self, key: bytes) -> bytes:
        """Associated data of a row: store, scope and place."""
        return self._ad + _BYTE[len(key)] + key

    def seal_row(
        self, key: bytes, plain: bytes, commit: Callable[[bytes], bytes], *, quiet: bool = False
    ) -> bytes:
        """A row's bytes at rest."""
        return self.seal.seal(self.ad(key), plain, commit(plain), quiet=quiet)

    def open_row(self, key: bytes, row: bytes | None) -> bytes:
        """A row's plain bytes; what fails its check is read once more before it is damage."""
        return self._checked(key, row, self._open_row)

    def _open_row(self, key: bytes, row: bytes) -> bytes:
        return self.seal.open(self.ad(key), row)

    def open_entry(self, key: bytes, row: bytes | None) -> tuple[Envelope, Body]:
        """An entry, with its body checked against the envelope's commitment."""
        return self._checked(key, row, self._open_entry)

    def entry_at(self, timeline: int, sequence: int) -> tuple[bytes, Envelope, Body]:
        """An entry by its place: its row's key, and what it says; a missing one is damage."""
        key = rows.entry(rows.line(b"E", self.number, timeline), sequence)
        return key, *self.open_entry(key, self.storage.get([key])[0])

    def envelope(self, key: bytes, row: bytes) -> Envelope:
        """The clear part of an entry that others made; its key epoch is the one to seal under."""
        found = self._checked(key, row, lambda _, row: entry.split_row(row)[0])
        self.seal.know(found.epoch)
        return found

    def _open_entry(self, key: bytes, row: bytes) -> tuple[Envelope, Body]:
        envelope, _ = entry.split_row(row)
        start = len(envelope.data)
        return envelope, self.open_body(key, row, start, envelope.writer, envelope.commitment)

    def open_body(
        self, key: bytes, row: bytes, start: int, writer: bytes, commitment: bytes
    ) -> Body:
        """The body that begins at `start`, behind its envelope, which names the rest."""
        if len(row) == start:
            raise self._no_body(self, key)
        plain = self.seal.open(self.ad(key), row, writer, start)
        if self.commit_body(plain) != commitment:
            raise DamagedRecordError("the body is not the one that the envelope commits to")
        return entry.decode_body(plain)

    def _checked(self, key: bytes, row: bytes | None, read: Callable[[bytes, bytes], _T]) -> _T:
        for attempt in (1, 2):
            try:
                if row is None:
                    raise DamagedRecordError("it is missing")
                return read(key, row)
            except (DamagedRecordError, KeyMissingError) as error:
                # It may have been sealed again, or pruned, since it was read: that is no damage.
                if attempt == 2:
                    if isinstance(error, DataKeyRemovedError) and self._is_of_before():
                        where = f"{self.scope}: {rows.describe(key)}"
                        raise DataKeyRemovedError(f"{where}: {error}") from None
                    advice = ADVICE if isinstance(error, DamagedRecordError) else ""
                    raise self.damage(key, str(error), advice) from None
            row = self.storage.get([key])[0]
        raise AssertionError

    def _is_of_before(self) -> bool:
        """Whether the files are older than a reseal, and not one record damaged.

        The row of the first timeline, which a reseal seals again like all others, shows it.
        """
        key = rows.line(b"T", self.number, 0)
        row = self.storage.get([key])[0]
        try:
            if row is not None:
                self._open_row(key, row)
        except DataKeyRemovedError:
            return not self.erased()
        except (DamagedRecordError, KeyMissingError):
            pass  # damaged itself, it shows nothing of the others
        return False

    def erased(self) -> bool:
        """Whether the scope has been erased, by whomever: then missing rows are no damage."""
        return self.storage.get([self.tombstone])[0] is not None

    def over(self) -> bool:
        """Whether the scope has been deleted or erased, by whomever."""
        ends = [rows.deletion(self.tombstone), self.tombstone]
        return any(row is not None for row in self.storage.get(ends))

    def damage(self, key: bytes, what: str, advice: str = ADVICE) -> HoldfastError:
        """The error for a damaged row; it says where and what to do."""
        if self.erased():
            return gone(self.scope)
        self.met_damage = True
        place = rows.describe(key)
        # The nodes of an upload are the only ones: entries do not give them again.
        spare = key[:1] in (b"N", b"S") and rows.line_of(key) != rows.UPLOADS
        kind = DamagedIndexError if spare else DamagedRecordError
        return kind(f"{self.scope}: {place}: {what}{advice}", place, key.hex())

    def next_epoch(self) -> bytes:
        """Key of the row that announces the next data key: who rests on this one expects none."""
        return rows.epoch(self.number, self.seal.epoch + 1)

    # atoms and nodes

    def row_of(self, place: Sequence[int]) -> bytes:
        """The key of the row that a place lies in."""
        timeline, sequence, ordinal = place[:3]
        if ordinal == 0:
            return rows.entry(rows.line(b"E", self.number, timeline), sequence)
        return rows.pack(rows.line(b"V", self.number, timeline), sequence, ordinal)

    def atoms_in(self, key: bytes, row: bytes | None) -> list[bytes]:
        """The atoms that a row holds, an entry's own or a pack's, for who compares each with its
        ref: that proves more than the commitment to a whole body, which is not compared here."""
        try:
            return self._checked(key, row, self._open_atoms)
        except PrunedError:  # whoever has a state that is kept must not find this
            raise self.damage(key, "it is missing") from None

    def _open_atoms(self, key: bytes, row: bytes) -> list[bytes]:
        ad = self._ad + _BYTE[len(key)] + key
        if key[:1] != b"E":
            try:
                return _decode_pack(self.seal.open(ad, row))
            except msgspec.MsgspecError:
                raise DamagedRecordError("a pack cannot be read") from None
        plain_head = len(row) > entry.CLEAR and row[:2] == entry.NO_STATEMENT and row[18] < 128
        start = entry.CLEAR if plain_head else len(entry.split_row(row)[0].data)
        if len(row) == start:
            raise self._no_body(self, key)
        return entry.decode_atoms(self.seal.open(ad, row, row[2:18], start))

    def atom(self, ref: bytes, place: Any) -> bytes:
        """The bytes of an atom, checked against its ref."""
        if ref[0] == refs.ATOM_INLINE:
            return ref[1:]
        held = self._atoms.get((self.number, place))
        if held is not None and held[0] == ref:
            return held[1]  # type: ignore[no-any-return]
        ((_, _, data),) = self._load({self.row_of(place): [(ref, place)]})
        self._atoms.put((self.number, place), ref, data)
        return data

    def _load(self, by_row: dict[bytes, list[tuple[bytes, Any]]]) -> list[Found]:
        """Atoms by the rows in which they lie, checked."""
        near = self.near
        held = near.atoms(self, by_row) if near is not None else {}
        found = [atom for atoms in held.values() for atom in atoms]
        keys = [key for key in by_row if key not in held] if held else list(by_row)
        if not keys:
            return found
        read = self.storage.get(keys)
        value_hash = self.value_hash
        for key, row in zip(keys, read, strict=True):
            atoms = self.atoms_in(key, row)
            for ref, place in by_row[key]:
                data = atoms[place[3]] if place[3] < len(atoms) else None
                if data is None or value_hash(data) != ref[1:33]:
                    raise self.damage(key, NOT_NAMED)
                found.append((ref, place, data))
        if near is not None:
            near.offer(self, zip(keys, read, strict=True))
        return found

    def named_atoms(self, key: bytes, row: bytes, wanted: Wanted) -> list[Found] | None:
        """Atoms in a row that may be anything; None unless it holds all that the refs name."""
        try:
            atoms = self._open_atoms(key, row)
        except HoldfastError:
            return None
        if not all(self._is_named(atoms, ref, place) for ref, place in wanted):
            return None
        return [(ref, place, bytes(atoms[place[3]])) for ref, place in wanted]

    def _is_named(self, found: list[bytes], ref: bytes, place: Any) -> bool:
        return place[3] < len(found) and self.value_hash(found[place[3]]) == ref[1:33]

    def _pick(self, key: bytes, found: list[bytes], ref: bytes, place: Any) -> bytes:
        if not self._is_named(found, ref, place):
            raise self.damage(key, NOT_NAMED)
        return bytes(found[place[3]])

    def hold_atom(self, place: Any, ref: bytes, data: bytes) -> None:
        """Keep an atom that was just written."""
        if ref[0] != refs.ATOM_INLINE:
            self._atoms.put((self.number, place), ref, data)

    def fetch_atoms(self, wanted: Iterable[tuple[bytes, Any]]) -> None:
        """Bring atoms into the cache of this process with few calls."""
        by_row: dict[Any, list[tuple[bytes, Any]]] = {}
        for ref, place in wanted:
            if ref[0] == refs.ATOM and not self._atoms.holds((self.number, place), ref):
                by_row.setdefault(place[:3], []).append((ref, place))
        keys = list(by_row)
        for start in range(0, len(keys), _PREFETCH):
            page = {self.row_of(key): by_row[key] for key in keys[start : start + _PREFETCH]}
            for ref, place, data in self._load(page):
                self._atoms.put((self.number, place), ref, data)

    def read_atoms(self, wanted: Sequence[tuple[bytes, Any]]) -> list[bytes]:
        """The bytes of atoms, checked; they are not kept, for they are read once."""
        keys = [self.row_of(place) if ref[0] == refs.ATOM else b"" for ref, place in wanted]
        names = [name for name in dict.fromkeys(keys) if name]
        read = zip(names, self.storage.get(names), strict=True)
        found = {name: self.atoms_in(name, row) for name, row in read}
        return [
            self._pick(key, found[key], ref, place) if key else ref[1:]
            for key, (ref, place) in zip(keys, wanted, strict=True)
        ]

    def check_atoms(self, records: dict[Any, list[tuple[int, bytes]]], *, read: bool) -> None:
        """Check that atoms are stored (`read`: and are themselves); the cache is not asked.

        `records` says what must lie where: (timeline, sequence, ordinal) to (index, ref) of each.
        """
        names, value_hash = sorted(records), self.value_hash
        for start in range(0, len(names), _PREFETCH):
            page = names[start : start + _PREFETCH]
            keys = [self.row_of(name) for name in page]
            for name, key, row in zip(page, keys, self.storage.get(keys), strict=True):
                if row is None:
                    raise self.damage(key, "it is missing")
                if read:
                    found = self.atoms_in(key, row)
                    for index, ref in records[name]:
                        if index >= len(found) or value_hash(found[index]) != ref[1:33]:
                            raise self.damage(key, NOT_NAMED)

    def check_value(self, ref: bytes, location: Any) -> None:
        """Check each atom that a value is made of, but for those that were read before and are
        held; once damage was met, all of them are read anew."""
        records: dict[Any, list[tuple[int, bytes]]] = {}
        for atom, place in leaves(self, ref, location):
            known = not self.met_damage and self._atoms.holds((self.number, place), atom)
            if atom[0] == ATOM and not known:
                records.setdefault(place[:3], []).append((place[3], atom))
        self.check_atoms(records, read=True)

    def _fetch_node(self, place: Place) -> bytes:
        pack, number = place[:3], place[3]
        held = self._atoms.get((self.number, pack))
        if held is None:
            key = self._node_row(*pack)
            found: Any = self._checked(key, self.storage.get([key])[0], self._open_atoms)
            self._atoms.put((self.number, pack), b"", found)
        else:
            found = held[1]
        if number >= len(found):
            raise self.damage(self._node_row(*pack), "a node is missing")
        return found[number]  # type: ignore[no-any-return]

    def _node_row(self, timeline: int, sequence: int, ordinal: int) -> bytes:
        return rows.pack(rows.line(b"N", self.number, timeline), sequence, ordinal)

    # values

    def value(self, ref: bytes, location: Any, codec: Codec | None = None) -> Any:
        """The value that a ref and its location describe; the caller owns it.

        `codec.plain_reader` in place of the ledger's own codec leaves objects unbuilt.
        """
        try:
            return self._value(ref, location, codec or self.codec)
        except (ValueError, IndexError, StopIteration) as error:
            if isinstance(error, HoldfastError):
                raise
            raise DamagedRecordError(f"{self.scope}: a value cannot be put together") from None

    def value_of(self, key: str, slot: Slot, codec: Codec | None = None) -> Any:
        """The value of a key; an error says which key has one that cannot be read here."""
        try:
            return self.value(slot.ref, slot.location, codec)
        except (InvalidValueError, UnknownTypeError) as error:
            raise self._of(key, error) from None

    def items_of(
        self, key: str, elements: list[tuple[Any, ...]], codec: Codec | None = None
    ) -> list[Any]:
        """Some items of the list under a key, in the same way."""
        try:
            items: list[Any] = self.assemble(refs.LIST, elements, codec)
        except (InvalidValueError, UnknownTypeError) as error:
            raise self._of(key, error) from None
        return items

    def _of(self, key: str, error: HoldfastError) -> HoldfastError:
        """The error of a value that is too long, or of a class that is not known or has changed."""
        error.args = (f"{self.scope}: the value of {key!r} cannot be read: {error}",)
        return error

    def _value(self, ref: bytes, location: Any, codec: Codec) -> Any:
        if ref[0] == refs.ATOM_INLINE:
            return codec.decode(ref[1:])
        if ref[0] == refs.ATOM:
            return codec.decode(self.atom(ref, location))
        if ref[0] == refs.TYPED:
            name, version, inner = refs.read_typed(ref)
            return codec.build(name, version, self._value(inner, location, codec))
        kind, hash_, count, size = refs.read_tree(ref)
        if kind == refs.BYTES and size - 3 * count > codec.limits.size:
            raise LimitExceededError(
                f"a value of over {codec.limits.size} bytes is not read whole; "
                "open_read (`holdfast key fetch`) gives it in pieces"
            )
        leave_loop(size)
        elements = self.trees.all(self.trees.load(location, hash_))
        return self.assemble(kind, elements, codec)

    def together(self, elements: list[tuple[Any, ...]], codec: Codec) -> list[Any] | None:
        """The values of some elements, read with few calls and decoded at one stroke; None if one
        is a tree, or they do not fit into the cache."""
        data = self._atoms.all_of(self.number, elements)
        if data is None:
            self.fetch_atoms((e[1], e[2]) for e in elements)
            data = self._atoms.all_of(self.number, elements)
        if data is None:
            return None
        with suppress(HoldfastError):  # what is wrong with which of them is told one by one
            return codec.decode(array_header(len(elements)) + b"".join(data))  # type: ignore[no-any-return]
        return None

    def assemble(
        self, kind: int, elements: list[tuple[Any, ...]], codec: Codec | None = None
    ) -> Any:
        """A list, mapping, text or byte string of its elements."""
        codec = codec or self.codec
        found: list[Any] = []
        for start in range(0, len(elements), TOGETHER):
            part = elements[start : start + TOGETHER]
            values = self.together(part, codec)
            if values is None:
                values = [self._value(e[1], e[2], codec) for e in part]
            found += values
        if kind == refs.LIST:
            return found
        if kind == refs.MAP:
            return {e[0]: value for e, value in zip(elements, found, strict=True)}
        data = b"".join(found)
        return data if kind == refs.BYTES else data.decode()


def leaves(ledger: Ledger, ref: bytes, location: Any) -> Iterator[tuple[bytes, Any]]:
    """(ref, place) of every atom that a value is made of."""
    ref = refs.bare(ref)
    if ref[0] != refs.TREE:
        yield ref, location
        return
    trees = ledger.trees
    for element in trees.all(trees.load(location, refs.read_tree(ref)[1])):
        yield from leaves(ledger, element[1], element[2])


def sealed_again(ledger: Ledger, key: bytes, row: bytes, epoch: int) -> bytes | None:
    """A row under the newest key; None if it is not under one older than that of `epoch`."""
    ad, seal, front, writer = ledger.ad(key), ledger.seal, b"", None
    if key[:1] == b"E":
        envelope, sealed = entry.split_row(row)
        if not sealed:
            return None  # pruned
        front, writer = envelope.data, envelope.writer
    found, compressed, quiet = sealed_under(row, len(front))
    if found >= epoch:
        return None
    plain = seal.open(ad, row, writer, len(front))
    commitment = ledger.commit_body(plain) if front else ledger.commit_pack(plain)
    if front and commitment != envelope.commitment:
        raise DamagedRecordError("the body is not the one that the envelope commits to")
    how: dict[str, Any] = {"compress": compressed, "quiet": quiet}
    if front:
        how |= {"writer_outside": True, "writer": writer}
    return front + seal.seal(ad + front, plain, commitment, **how)


class AtomCache:
    """Checked plain bytes by place. Decoded anew for each reader, so none can change another's.

    The oldest go first when the bound is reached. Races between threads cost a miss, never a
    wrong answer: an entry is only used if it carries the ref that the reader expects.
    """

    def __init__(self, capacity: int = 6 << 20) -> None:
        self._capacity = capacity
        self._held = 0
        # A plain dict finds its oldest item ever more slowly, the more were removed before it.
        self._items: OrderedDict[Any, tuple[bytes, Any]] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: Any) -> tuple[bytes, Any] | None:
        """(ref, bytes) held under a place."""
        found = self._items.get(key)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def all_of(self, scope: int, elements: list[tuple[Any, ...]]) -> list[bytes] | None:
        """The bytes of a scope's atoms, if all are held or stand in their refs."""
        found, get = [], self._items.get
        for _, ref, place in elements:
            kind = ref[0]
            if kind == ATOM:
                held = get((scope, place))
                if held is None or held[0] != ref:
                    return None
                found.append(held[1])
            elif kind == ATOM_INLINE:
                found.append(ref[1:])
            else:
                return None
        self.hits += len(found)
        return found

    def holds(self, key: Any, ref: bytes) -> bool:
        """Whether a place is held with this ref."""
        found = self._items.get(key)
        return found is not None and found[0] == ref

    def put(self, key: Any, ref: bytes, data: Any) -> None:
        """Hold bytes; what alone would fill an eighth of the cache is not held."""
        weight = _weight(data)
        if weight > self._capacity >> 3:
            return
        if key not in self._items:
            self._held += weight
        self._items[key] = (ref, data)
        while self._held > self._capacity:
            try:
                _, (_, old) = self._items.popitem(last=False)
            except KeyError:
                return  # another thread is making room
            self._held -= _weight(old)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._held = 0


def _weight(data: Any) -> int:
    if type(data) is list:
        return 300 + 40 * len(data) + sum(map(len, data))
    return len(data) + 300
