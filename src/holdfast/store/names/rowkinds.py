"""Keys of records in storage: a kind, then numbers. Names never appear in them.

| kind | key after the kind | what it holds |
| --- | --- | --- |
| M | name | what the store is: format, lineage, mode, signer |
| D | tag(16) incarnation(4) state(1) | a scope's name and number; 1: it is deleted; 2: erased |
| T | scope(6) timeline(2) | a timeline's name and where it starts |
| E | scope(6) timeline(2) sequence(5) | an entry |
| V | scope(6) timeline(2) sequence(5) ordinal(3) | a pack of the entry's atoms |
| S | scope(6) timeline(2) sequence(5) | a save: the index, or what changed in it |
| N | scope(6) timeline(2) sequence(5) ordinal(3) | a pack of the save's nodes |
| F | lane(1) number(6) | a row of the feed |
| R | tag(16) scope(6) timeline(2) block(4) | a correlation was used in this block of entries |
| I | tag(16) | what became of a change with an id |
| C | scope(6) timeline(2) sequence(5) key id(8) | a signature beside a checkpoint |
| K | scope(6) epoch(4) | the scope has a new data key, of this epoch |
| A | scope(6) timeline(2) number(4) | which entry is the timeline's anchor of this number |
| B | scope(6) timeline(2) sequence(5) | a base: the saved index of an entry that is kept below it |
| U | subject id(16) | the subject is erased |

A long value is written before the entry that names it: an *upload*. Its packs (V, N) lie on the
line `UPLOADS`, which is no timeline, under a random number in place of an entry's. While it is not
finished, the cell P scope(6) upload(5) pins them.

Cells have keys of their own:

| kind | key after the kind | what it holds |
| --- | --- | --- |
| CL | tag(16) part(1) | a lease: 0 its token, 1 its beat |
| A | scope(6) | who prunes the scope now, or erases it |
| R | scope(6) timeline(2) sequence(5) twice | the checkpoint named second rests on the first |
| CS | tag(16) | the id of the subject of a name |
| CT | tag(16) | a schedule |
| CT | nothing | how often a schedule was added, replaced or removed |
| B | scope(6) | how often rows of the scope were changed without a row of the feed (`beside`) |
| B | nothing | the same of rows that belong to no scope |
| F | nothing | this store follows another one: it is a replica |
"""

from __future__ import annotations

from holdfast.errors import DamagedRecordError

SCOPE, TIMELINE, SEQUENCE, ORDINAL = 6, 2, 5, 3
LAST_SEQUENCE = (1 << 40) - 1
UPLOADS = (1 << 16) - 1
"""The line of values that are written ahead; timelines have lower numbers."""
MOST_SIGNATURES = 64
"""Beside one checkpoint."""
LENGTHS = {b"E": 14, b"S": 14, b"V": 17, b"N": 17, b"C": 22}
"""Bytes of the keys of rows with the number of an entry."""
OF_SCOPE = (b"E", b"V", b"S", b"N", b"C", b"T", b"K", b"A", b"B")
"""Kinds whose keys begin with a scope's number, and which are sealed under its data key."""
BLOCK = 256
"""Entries of a timeline that share one row for a correlation."""


def meta(name: bytes) -> bytes:
    """Key of a row about the store."""
    return b"M" + name


FEED = 8
DIRECTORY = 22
THERE, DELETED, ERASED = 0, 1, 2
"""States of a scope in the directory. Of an erased one, the row that says so is all that stays."""


def directory(tag: bytes, incarnation: int, state: int) -> bytes:
    """Key of a scope's row in the directory."""
    return b"D" + tag + incarnation.to_bytes(4, "big") + bytes([state])


def state_of(key: bytes) -> int:
    """What a directory row says of its scope."""
    if len(key) != DIRECTORY:
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


CORRELATION = 1 + 16 + SCOPE + TIMELINE + 4


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


ARRIVAL = 1 + SCOPE + 16 + 7 + 13


def arrivals(scope: int, token: bytes) -> bytes:
    """Prefix of the cells that say what came to rest on a scope while somebody prunes it."""
    return pruner(scope) + token


def arrival(scope: int, token: bytes, at: bytes, by: bytes) -> bytes:
    """Key of such a cell, of an entry and the checkpoint that rests on it, both by their keys."""
    return arrivals(scope, token) + at[7:] + by[1:]


def arrived_at(arrival: bytes) -> tuple[int, int]:
    """Timeline and number of the entry that such a cell names."""
    at = arrival[23:30]
    return int.from_bytes(at[:2], "big"), int.from_bytes(at[2:], "big")


def rests(scope: int) -> bytes:
    """Prefix of the cells that say what rests on entries of a scope."""
    return b"R" + scope.to_bytes(SCOPE, "big")


REST = 27


def rest(at: bytes, by: bytes) -> bytes:
    """Key of the cell that says that a checkpoint rests on an entry; both by their keys."""
    return b"R" + at[1:] + by[1:]


def ends_of(rest: bytes) -> tuple[bytes, bytes]:
    """Keys of the entry and the checkpoint that such a cell names."""
    return b"E" + rest[1:14], b"E" + rest[14:]


SUBJECTS = b"CS"
SUBJECT = len(SUBJECTS) + 16


def subject(tag: bytes) -> bytes:
    """Key of the cell that says which id the subject of a name has."""
    return SUBJECTS + tag


SUBJECT_TOMBSTONE = 1 + 16


def subject_tombstone(id: bytes) -> bytes:
    """Key of the row that says that a subject is erased."""
    return b"U" + id


LEASES = b"CL"
LEASE = len(LEASES) + 16 + 1
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
SCHEDULE = len(SCHEDULES) + 16


def schedule(tag: bytes) -> bytes:
    """Key of the cell of a schedule."""
    return SCHEDULES + tag


BESIDE = b"B"
"""Prefix of the cells that count what is changed without a row of the feed."""
FOLLOWS = b"F"
"""Key of the cell that says that a store is a replica of another one."""


def beside(key: bytes) -> bytes:
    """Key of the cell that counts such changes of what the row with this key belongs to."""
    if key[:1] == b"R":
        return BESIDE + key[17:23]
    return BESIDE + key[1:7] if key[:1] in OF_SCOPE else BESIDE


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
    kind = key[:1].decode("latin-1")
    if key.startswith(SUBJECTS) and len(key) == SUBJECT:
        return f"subject ({key[len(SUBJECTS) :].hex()})"
    if key.startswith(LEASES) and len(key) == LEASE:
        return f"lease ({key[len(LEASES) : -1].hex()}, {'beat' if key[-1] else 'token'})"
    if key == SCHEDULES:
        return "count of schedules"
    if key.startswith(SCHEDULES) and len(key) == SCHEDULE:
        return f"schedule ({key[len(SCHEDULES) :].hex()})"
    if kind in "TEVSNCB" and len(key) >= 9:
        parts = [f"scope {int.from_bytes(key[1:7], 'big'):x}"]
        line = key[7] * 256 + key[8]
        if line != UPLOADS:
            parts.append(f"timeline {line}")
        if len(key) >= 14:
            parts.append(f"{'entry' if line != UPLOADS else 'upload'} {sequence_of(key)}")
        if len(key) >= 17 and kind != "C":
            parts.append(f"pack {int.from_bytes(key[14:17], 'big')}")
        return f"{_KINDS[kind]} ({', '.join(parts)})"
    if kind == "R" and len(key) == REST:
        at, by = (describe(end).removeprefix("entry ") for end in ends_of(key))
        return f"dependency (of {by} on {at})"
    if kind == "B" and len(key) in (1, 7):
        return "count of changes beside the feed"
    if kind == "A" and len(key) in (7, ARRIVAL):
        return f"pruning (scope {int.from_bytes(key[1:7], 'big'):x})"
    if kind == "F" and len(key) == 8:
        return f"feed row (lane {key[1]}, number {int.from_bytes(key[2:], 'big')})"
    return f"{_KINDS.get(kind, 'row')} ({key[1:].hex()})"


_KINDS = {
    "M": "store row",
    "D": "directory row",
    "T": "timeline",
    "E": "entry",
    "V": "values",
    "S": "index save",
    "N": "index nodes",
    "F": "feed row",
    "R": "correlation row",
    "I": "change row",
    "C": "signature",
    "K": "key epoch",
    "A": "anchor",
    "B": "base",
    "U": "erased subject",
}
