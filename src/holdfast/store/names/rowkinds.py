"""Kinds of rows, as one table, and their keys: a kind, then numbers. Names never appear in them.

`ROWS` are the kinds of records, `CELLS` those of cells. All that treats rows by their kind looks
it up here: verifying, healing, erasing, sealing again, replicas, what is told to people, and the
tables of docs/format.md, which a test compares with these.

A long value is written before the entry that names it: an *upload*. Its packs (V, N) lie on the
line `UPLOADS`, which is no timeline, under a random number in place of an entry's. While it is not
finished, a pin stands for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.errors import DamagedRecordError
from holdfast.storage.contract import LAST

SCOPE, TIMELINE, SEQUENCE, ORDINAL = 6, 2, 5, 3
LAST_SEQUENCE = (1 << 40) - 1
UPLOADS = (1 << 16) - 1
"""The line of values that are written ahead; timelines have lower numbers."""
MOST_SIGNATURES = 64
"""Beside one checkpoint."""
HELD = "it is lost, and nothing is written in its place"
"""What is said of an empty row, which is put where one is known to be lost."""
BLOCK = 256
"""Entries of a timeline that share one row for a correlation."""

# ---- kinds --------------------------------------------------------------------------------------

LINE = (("scope", SCOPE), ("timeline", TIMELINE))
ENTRY = (*LINE, ("sequence", SEQUENCE))
PACK = (*ENTRY, ("ordinal", ORDINAL))
TAG = (("tag", 16),)

PLAIN, STORE_KEY, SCOPE_KEY = "–", "store", "scope"
"""Whose key a row is sealed with."""
SEAL, COMMITMENT, CHAIN, LANE = "seal", "commitment", "chain", "lane"
CALLED, FORM = "entries", "form"
"""How a row is checked: it opens in its place; what is signed commits to it as well; it is a link
of its timeline's chain; it is one of its lane's; entries call for it, and for no others; or there
is nothing to it but its form."""
COPY, DERIVED, NONE = "copy", "made again", "–"
"""How a row heals that is damaged or missing: from a copy of the store; or, if no copy has it, from
what else is there; or not at all."""


class Kind(NamedTuple):
    """What there is to know of one kind of rows."""

    key: bytes
    """How its keys begin."""
    name: str
    """For people."""
    layout: tuple[tuple[str, int], ...]
    """The fields of its keys behind that, with their lengths."""
    sealed: str
    check: str
    heal: str
    stray: str = "nothing accounts for this row"
    """What is said of one that belongs to nothing."""
    copied: bool = True
    """Whether a replica has it as its source has it. A backup takes all."""

    @property
    def length(self) -> int:
        """Bytes of a key."""
        return len(self.key) + sum(size for _, size in self.layout)

    @property
    def end(self) -> bytes:
        """The first key behind all that begin like those of this kind."""
        return after(self.key) if self.layout else self.key + b"\0"

    def place(self, field: str) -> slice | None:
        """Where a field lies in a key; None if there is none."""
        at = len(self.key)
        for name, size in self.layout:
            if name == field:
                return slice(at, at + size)
            at += size
        return None

    @property
    def is_scoped(self) -> bool:
        """Whether its keys begin with a scope's number: such rows go with their scope."""
        return self.layout[:1] == LINE[:1]

    @property
    def is_lined(self) -> bool:
        """Whether its keys begin with a timeline."""
        return self.layout[:2] == LINE and len(self.layout) > 2

    @property
    def is_numbered(self) -> bool:
        """Whether its keys begin with the number of an entry."""
        return self.layout[:3] == ENTRY


_DIRECTORY = (*TAG, ("incarnation", 4), ("state", 1))
_SIGNATURE = (*ENTRY, ("key id", 8))
_ARRIVAL = (LINE[0], ("token", 16), *ENTRY[1:], *ENTRY)
_NO_ANCHOR = "no anchor names it"
ROWS = (
    Kind(b"Mstore", "store row", (), PLAIN, SEAL, NONE),
    Kind(b"D", "directory row", _DIRECTORY, STORE_KEY, SEAL, COPY),
    Kind(b"T", "timeline", LINE, SCOPE_KEY, SEAL, DERIVED),
    Kind(b"E", "entry", ENTRY, SCOPE_KEY, CHAIN, COPY, "the feed knows no such entry"),
    Kind(b"V", "values", PACK, SCOPE_KEY, COMMITMENT, COPY, "no entry names this pack"),
    Kind(b"S", "index save", ENTRY, SCOPE_KEY, COMMITMENT, COPY, "no entry announces this save"),
    Kind(b"N", "index nodes", PACK, SCOPE_KEY, COMMITMENT, COPY, "no save uses these nodes"),
    Kind(b"F", "feed row", (("lane", 1), ("number", 6)), PLAIN, LANE, NONE),
    Kind(b"R", "correlation row", (*TAG, *LINE, ("block", 4)), PLAIN, CALLED, DERIVED),
    Kind(b"I", "change row", TAG, STORE_KEY, CALLED, DERIVED),
    Kind(b"C", "signature", _SIGNATURE, SCOPE_KEY, SEAL, COPY, "it lies beside no checkpoint"),
    Kind(b"K", "key epoch", (LINE[0], ("epoch", 4)), SCOPE_KEY, CALLED, COPY),
    Kind(b"A", "anchor", (*LINE, ("number", 4)), SCOPE_KEY, COMMITMENT, COPY, _NO_ANCHOR),
    Kind(b"B", "base", ENTRY, SCOPE_KEY, COMMITMENT, COPY, _NO_ANCHOR),
    Kind(b"U", "erased subject", (("subject id", 16),), STORE_KEY, SEAL, COPY),
)
CELLS = (
    Kind(b"P", "pin", (LINE[0], ("upload", 5)), PLAIN, FORM, NONE, copied=False),
    Kind(b"A", "pruning", LINE[:1], PLAIN, FORM, NONE),
    Kind(b"A", "pruning, of before", _ARRIVAL, PLAIN, FORM, NONE),  # nothing writes it any more
    Kind(b"R", "dependency", (*ENTRY, *ENTRY), PLAIN, CALLED, NONE),
    Kind(b"B", "count of changes beside the feed", LINE[:1], PLAIN, FORM, NONE),
    Kind(b"B", "count of changes beside the feed", (), PLAIN, FORM, NONE),
    Kind(b"F", "mark of a replica", (), PLAIN, FORM, NONE, copied=False),
    Kind(b"CL", "lease", (*TAG, ("part", 1)), STORE_KEY, SEAL, NONE),
    Kind(b"CS", "subject", TAG, STORE_KEY, SEAL, NONE),
    Kind(b"CT", "schedule", TAG, STORE_KEY, SEAL, NONE),
    Kind(b"CP", "position of a reader", TAG, STORE_KEY, SEAL, NONE),
    Kind(b"CT", "count of schedules", (), STORE_KEY, SEAL, NONE),
)
_ROWS, _CELLS = ({(one.key, one.length): one for one in kinds} for kinds in (ROWS, CELLS))
ROW = {kind.key[:1]: kind for kind in ROWS}
"""By the first byte of a row's key."""
LENGTHS = {kind.key: kind.length for kind in ROWS if kind.is_numbered}
"""Bytes of the keys of rows with the number of an entry."""
OF_SCOPE = tuple(kind.key for kind in ROWS if kind.is_scoped)
"""Kinds of rows that go with their scope, and are sealed under its data key."""


def row_kind(key: bytes) -> Kind | None:
    """The kind of a row; None if there is none of which this is a whole key."""
    return _kind(_ROWS, key)


def cell_kind(key: bytes) -> Kind | None:
    """The kind of a cell; None if there is none of which this is a whole key."""
    return _kind(_CELLS, key)


def _kind(known: dict[tuple[bytes, int], Kind], key: bytes) -> Kind | None:
    starts = (key[:1], key[:2], key)
    return next((known[one] for start in starts if (one := (start, len(key))) in known), None)


def gaps(kinds: tuple[Kind, ...]) -> list[tuple[bytes, bytes]]:
    """Ranges of keys that begin like those of none of these kinds."""
    taken = sorted({(kind.key, kind.end) for kind in kinds})
    lows = [b"", *(high for _, high in taken)]
    highs = [*(low for low, _ in taken), LAST]
    return [(low, high) for low, high in zip(lows, highs, strict=True) if low < high]


# ---- keys ---------------------------------------------------------------------------------------


THERE, DELETED, ERASED = 0, 1, 2
"""States of a scope in the directory. Of an erased one, the row that says so is all that stays."""


def directory(tag: bytes, incarnation: int, state: int) -> bytes:
    """Key of a scope's row in the directory."""
    return b"D" + tag + incarnation.to_bytes(4, "big") + bytes([state])


def state_of(key: bytes) -> int:
    """What a directory row says of its scope."""
    if row_kind(key) is None:
        raise DamagedRecordError(f"{describe(key)}: its key has another length", describe(key))
    return key[21]


def deletion(key: bytes) -> bytes:
    """Key of the row that says that the scope of a directory row is deleted."""
    return key[:21] + bytes([DELETED])


def tombstone(key: bytes) -> bytes:
    """Key of the row that says that the scope of a directory row is erased."""
    return key[:21] + bytes([ERASED])


def line(kind: bytes, scope: int, timeline: int) -> bytes:
    """Prefix of all rows of a kind that belong to one timeline."""
    return kind + scope.to_bytes(SCOPE, "big") + timeline.to_bytes(TIMELINE, "big")


def entry(prefix: bytes, sequence: int) -> bytes:
    """Key of an entry or a save, behind its timeline's prefix."""
    return prefix + sequence.to_bytes(SEQUENCE, "big")


def pack(prefix: bytes, sequence: int, ordinal: int) -> bytes:
    """Key of a pack, behind its timeline's prefix."""
    return prefix + sequence.to_bytes(SEQUENCE, "big") + ordinal.to_bytes(ORDINAL, "big")


def signature(key: bytes, key_id: bytes) -> bytes:
    """Key of a signature on the checkpoint with this key."""
    return b"C" + key[1:] + key_id


def feed(lane: int, number: int) -> bytes:
    """Key of a row of the feed."""
    return b"F" + bytes([lane]) + number.to_bytes(6, "big")


def correlation(tag: bytes, scope: int, timeline: int, sequence: int) -> bytes:
    """Key that says where entries of a correlation are."""
    block = (sequence // BLOCK).to_bytes(4, "big")
    return line(b"R" + tag, scope, timeline) + block


def change(tag: bytes) -> bytes:
    """Key of the result of a change with an id."""
    return b"I" + tag


def pin(scope: int, upload: int) -> bytes:
    """Key of the cell that pins the rows of an upload."""
    return b"P" + scope.to_bytes(SCOPE, "big") + upload.to_bytes(SEQUENCE, "big")


def pinned(pin: bytes, kind: bytes) -> bytes:
    """Prefix of the rows of a kind that a pin stands for."""
    return kind + pin[1:7] + UPLOADS.to_bytes(TIMELINE, "big") + pin[7:]


def epoch(scope: int, number: int) -> bytes:
    """Key of the row that announces a scope's data key."""
    return b"K" + scope.to_bytes(SCOPE, "big") + number.to_bytes(4, "big")


BASES = 1 << (8 * ORDINAL - 1)
"""Ordinals from here on are of nodes that were saved for a base; saves have lower ones."""


def of_base(key: bytes) -> bool:
    """Whether a row holds nodes that were saved for a base."""
    return key[:1] == b"N" and int.from_bytes(key[14:17], "big") >= BASES


def anchor(scope: int, timeline: int, number: int) -> bytes:
    """Key of the row that leads to an anchor of a timeline; they are numbered from 1 on."""
    return line(b"A", scope, timeline) + number.to_bytes(4, "big")


def pruner(scope: int) -> bytes:
    """Key of the cell that says who prunes a scope."""
    return b"A" + scope.to_bytes(SCOPE, "big")


def rests(scope: int) -> bytes:
    """Prefix of the cells that say what rests on entries of a scope."""
    return b"R" + scope.to_bytes(SCOPE, "big")


def rest(at: bytes, by: bytes) -> bytes:
    """Key of the cell that says that a checkpoint rests on an entry; both by their keys."""
    return b"R" + at[1:] + by[1:]


def ends_of(rest: bytes) -> tuple[bytes, bytes]:
    """Keys of the entry and the checkpoint that such a cell names."""
    return b"E" + rest[1:14], b"E" + rest[14:]


SUBJECTS = b"CS"


def subject(tag: bytes) -> bytes:
    """Key of the cell that says which id the subject of a name has."""
    return SUBJECTS + tag


def subject_tombstone(id: bytes) -> bytes:
    """Key of the row that says that a subject is erased."""
    return b"U" + id


LEASES = b"CL"
TOKEN, BEAT = 0, 1


def lease(tag: bytes) -> bytes:
    """Key of the cell that says who holds a lease."""
    return LEASES + tag + bytes([TOKEN])


def token(key: bytes) -> bytes:
    """Key of a lease's token, from that of either of its cells."""
    return key[:-1] + bytes([TOKEN])


def beat(key: bytes) -> bytes:
    """Key of the cell that changes while a lease is held, from that of its token."""
    return key[:-1] + bytes([BEAT])


SCHEDULES = b"CT"
"""Also the key of the cell that counts changes of schedules."""


def cursor(tag: bytes) -> bytes:
    """Key of the cell that says where a reader of the feed is."""
    return b"CP" + tag


def schedule(tag: bytes) -> bytes:
    """Key of the cell of a schedule."""
    return SCHEDULES + tag


BESIDE = b"B"
"""Prefix of the cells that count what is changed without a row of the feed."""
FOLLOWS = b"F"
"""Key of the cell that says that a store is a replica of another one."""


def beside(key: bytes) -> bytes:
    """Key of the cell that counts such changes of what the row with this key belongs to."""
    scope = ROW[key[:1]].place("scope")
    return BESIDE + key[scope] if scope is not None else BESIDE


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with this prefix."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")


def scope_of(key: bytes) -> int:
    """The number of the scope that a row or cell belongs to."""
    return int.from_bytes(key[1:7], "big")


def line_of(key: bytes) -> int:
    """The number of the timeline that a row belongs to."""
    return int.from_bytes(key[7:9], "big")


def is_fork(key: bytes) -> bool:
    """Whether a row names a timeline that is not the first one."""
    return key[:1] == b"T" and line_of(key) > 0


def sequence_of(key: bytes) -> int:
    """The sequence number in the key of an entry or save."""
    return int.from_bytes(key[9:14], "big")


def describe(key: bytes) -> str:
    """A row's key for people: kind and numbers."""
    kind = row_kind(key) or cell_kind(key) or ROW.get(key[:1])
    if kind is None:
        return f"row ({key.hex()})"
    if kind.name == "dependency":
        at, by = (describe(end).removeprefix("entry ") for end in ends_of(key))
        return f"dependency (of {by} on {at})"
    told: list[str] = []
    rest = key[len(kind.key) :]
    for name, size in kind.layout:
        if len(rest) < size:
            break
        told += _told(name, rest[:size], upload=line_of(key) == UPLOADS and kind.is_lined)
        rest = rest[size:]
    return f"{kind.name} ({', '.join(told)})" if told else kind.name


def runs(keys: Iterable[bytes]) -> list[list[bytes]]:
    """Keys, in the order given, those together that follow each other by number."""
    found: list[list[bytes]] = []
    for key in keys:
        last = found[-1][-1] if found else b""
        if len(key) == len(last) and int.from_bytes(key, "big") == int.from_bytes(last, "big") + 1:
            found[-1].append(key)
        else:
            found.append([key])
    return found


def describe_run(run: list[bytes]) -> str:
    """Such keys for people."""
    end = describe(run[-1]).rstrip(")").rpartition(", ")[2]
    return describe(run[0]) + (f" to {end}" if run[1:] else "")


def _told(name: str, field: bytes, *, upload: bool) -> list[str]:
    number = int.from_bytes(field, "big")
    if name in ("tag", "subject id"):
        return [field.hex()]
    if name == "part":
        return ["beat" if number else "token"]
    if name in ("key id", "token") or (name == "timeline" and upload):
        return []
    words = {"sequence": "upload" if upload else "entry", "ordinal": "pack"}
    return [f"scope {number:x}" if name == "scope" else f"{words.get(name, name)} {number}"]
