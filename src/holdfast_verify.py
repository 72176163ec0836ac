"""holdfast-verify: check what left a Holdfast store, without the store and without its keys.

It reads proofs, chains and witnesses, by docs/format.md. What vouches is a signature; whose key it
is only you know: pin it. Exit codes: 0 valid, 1 refused, 2 misused.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PROOF, CHAIN, WITNESS = b"holdfast-proof/1\0", b"holdfast-chain/1\0", b"holdfast-witness1:"
LARGEST, DEEPEST = 1 << 30, 300
LINE, ENTRY = 9, 14  # bytes that begin the keys of a timeline's entries, and of such keys
dumps = json.JSONEncoder(default=lambda data: {"$bytes": base64.b64encode(data).decode()}).encode


class Refused(Exception):
    """Why something is not valid."""


def need(condition: object, why: str = "it has another form than docs/format.md says") -> None:
    """Refuse, unless a condition holds."""
    if not condition:
        raise Refused(why)


def sha256(*parts: bytes) -> bytes:
    """SHA-256 of the parts, joined."""
    return hashlib.sha256(b"".join(parts)).digest()


def committed(label: bytes, data: bytes, opening: bytes) -> bytes:
    """The commitment to data; in an encrypted store it has an opening."""
    digest = sha256(b"holdfast/1/", label, b"\0", data)
    need(len(opening) in (0, 32))
    return sha256(b"holdfast/1/keyed\0", opening, digest) if opening else digest


_FIXED = {0xC0: None, 0xC2: False, 0xC3: True, **{n & 255: n for n in range(-32, 128)}}
_WHOLE = {base + n: (1 << n, base == 0xD0) for base in (0xCC, 0xD0) for n in range(4)}
_LONG: dict[str, tuple[int, ...]] = {"array": (0xDC, 2, 4), "map": (0xDE, 2, 4)}
_LONG |= {"bin": (0xC4, 1, 2, 4), "ext": (0xC7, 1, 2, 4), "str": (0xD9, 1, 2, 4)}
_SIZED = {at + n: (kind, w, 0) for kind, (at, *ws) in _LONG.items() for n, w in enumerate(ws)}
_SIZED |= {0x80 + n: ("map" if n < 16 else "array", 0, n & 15) for n in range(32)}
_SIZED |= {0xA0 + n: ("str", 0, n) for n in range(32)}
_SIZED |= {0xD4 + n: ("ext", 0, 1 << n) for n in range(5)}


class Reader:
    """Reads bytes that anybody may have made: no length is believed before it fits."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, length: int) -> bytes:
        need(length <= len(self.data) - self.at, "it is cut short")
        self.at += length
        return self.data[self.at - length : self.at]

    def read(self, depth: int = 0) -> Any:
        need(depth < DEEPEST, "it is nested too deeply")
        code = self.take(1)[0]
        if code in _FIXED:
            return _FIXED[code]
        if code in _WHOLE:
            return int.from_bytes(self.take(_WHOLE[code][0]), "big", signed=_WHOLE[code][1])
        if code == 0xCB:
            number = struct.unpack(">d", self.take(8))[0]
            return number if abs(number) < float("inf") else {"$float": str(number)}
        kind, width, length = _SIZED[code]
        length = int.from_bytes(self.take(width), "big") if width else length
        if kind == "ext":
            return self.extension(length, depth + 1)
        if kind in ("bin", "str"):
            return self.take(length) if kind == "bin" else self.take(length).decode()
        need(length << (kind == "map") <= len(self.data) - self.at, "it claims more than it holds")
        if kind == "array":
            return [self.read(depth + 1) for _ in range(length)]
        return self.mapping([[self.read(depth + 1), self.read(depth + 1)] for _ in range(length)])

    def extension(self, length: int, depth: int) -> dict[str, Any]:
        code, data = self.take(1)[0], self.take(length)
        if code == 1:
            return {"$int": (str if length < 99 else hex)(int.from_bytes(data, "big", signed=True))}
        if code not in (3, 4):
            return {"$ext": [code, data]}
        found = unpack(data, depth)
        if code == 4:
            return {"$object": dict(zip(("name", "version", "fields"), found, strict=True))}
        zone = timezone(timedelta(microseconds=found.pop(8)))
        more = zip(("fold", "zone", "name"), found[7:], strict=True)
        at = datetime(*found[:7], tzinfo=zone).isoformat()  # type: ignore[misc]
        return {"$time": {"at": at} | {key: one for key, one in more if one}}

    @staticmethod
    def mapping(pairs: list[list[Any]]) -> dict[str, Any]:
        need(len({dumps(key) for key, _ in pairs}) == len(pairs), "a mapping names a key twice")
        plain = all(type(key) is str for key, _ in pairs) and [key[:1] for key, _ in pairs] != ["$"]
        return dict(pairs) if plain else {"$map": pairs}  # JSON has none like it, or it looks so

    def varint(self) -> int:
        found = shift = 0
        while (byte := self.take(1)[0]) > 127 and shift < 56:
            found, shift = found | (byte & 127) << shift, shift + 7
        need(byte < 128 and (byte or not shift))
        return found | byte << shift


def unpack(data: bytes, depth: int = 0) -> Any:
    """The one object that the bytes hold."""
    found = (reader := Reader(data)).read(depth)
    need(reader.at == len(data), "there is more in it than there should be")
    return found


def fields(found: Any, form: str) -> list[Any]:
    """The fields of an array, each of a kind: b16 is 16 bytes, n a number that is not negative."""
    need(type(found) is list and len(found) == len(kinds := form.split()))
    for one, kind in zip(found, kinds, strict=True):
        need(type(one) is {"b": bytes, "t": str, "n": int, "l": list, "m": dict}[kind[0]])
        need(0 <= one < 1 << 63 if kind == "n" else not kind[1:] or len(one) == int(kind[1:]))
    return list(found)


def check_signature(public: bytes, text: bytes, signature: bytes) -> None:
    """Refuse, unless the holder of a key, or of both keys of a hybrid one, signed just this."""
    try:
        if len(public) == 33:
            from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PublicKey

            keys = signature[64:2048]
            need(public == b"\2" + sha256(b"holdfast/1/hybrid\0", keys), "a key is another one")
            MLDSA65PublicKey.from_public_bytes(keys[32:]).verify(signature[2048:], text)
            public, signature = keys[:32], signature[:64]
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise Refused("a signature does not fit") from None


def read_entry(place: bytes, envelope: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Hash, hash before, commitment, statement; `place`: lineage, scope id, key of the row."""
    reader = Reader(envelope)
    known, flags, _ = reader.take(1) + place[32:33] == b"\1E", reader.take(17)[0], reader.varint()
    before, commitment, statement = reader.take(32), reader.take(32), reader.take(110 * flags)
    need(known and reader.at == len(envelope) and flags < 2, "it has a format that is not known")
    return sha256(b"holdfast/entry/1\0", place, envelope), before, commitment, statement


def signers_of(place: bytes, envelope: bytes, found: list[Any]) -> set[bytes]:
    """Public keys of all who signed a checkpoint; one signature that does not fit refuses it."""
    hash_, _, _, statement = read_entry(place, envelope)
    need(statement and statement[0] in (1, 2), "it is not signed, or in a way that is not known")
    own = b"holdfast/checkpoint/1\0" + place + envelope[:-69] + bytes(64) + envelope[-5:]
    valid: dict[bytes, bool] = {}
    for public, signature in (fields(one, "b b") for one in found):
        ours = sha256(b"holdfast/1/signer\0", public)[:8] == statement[33:41]
        ours = ours and (len(public), not signature) == ((32, True), (33, False))[statement[0] - 1]
        need((ours or signature) and public not in valid, "a signature is missing, or there twice")
        text = b"holdfast/cosign/1\0" + place + hash_ + public if signature else own
        check_signature(public, text, signature or statement[41:105])
        valid[public] = ours
    need(any(valid.values()), "a signature that the checkpoint calls for is missing")
    return set(valid)


def trusted(options: Any, valid: set[bytes], least: int) -> str:
    """Refuse what too few of the pinned keys signed; says whose word it is."""
    known = valid.intersection(options.pin or valid)
    need(len(known) >= least, f"of the keys that are believed {len(known)} signed it, not {least}")
    trust = "pinned" if options.pin else "taken on trust from the file: pin it with --pin"
    return f"{', '.join(sorted(one.hex() for one in known))} ({trust})"


def named_by(wanted: bytes, label: bytes, record: Any, why: str = "a part is not its own") -> bytes:
    """What a record holds, if it is the one that a hash names."""
    data, opening = fields(record, "b b")
    need(committed(label, data, opening) == wanted, why)
    return bytes(data)


def value_of(parts: Any, ref: bytes, depth: int = 0) -> Any:
    """The value that a ref describes."""
    need(type(ref) is bytes and depth < DEEPEST)
    reader, kind = Reader(ref, 1), ref[0]
    if kind == 0:
        return unpack(ref[1:])
    if kind == 3:
        about = {"name": reader.take(reader.varint()).decode(), "version": reader.varint()}
        return {"$object": {**about, "fields": value_of(parts, ref[reader.at :], depth + 1)}}
    need(kind in (1, 2), "a value is kept in a way that is not known")
    shape, wanted, count = reader.take(kind - 1), reader.take(32), reader.varint()
    size = reader.varint() if kind == 2 else count
    need(reader.at == len(ref) and size < LARGEST, "a value claims more than any has")
    if kind == 1:
        return unpack(named_by(wanted, b"value", next(parts, None)))
    found = list(elements(parts, wanted, 64, depth + 1))
    whole = len(found) == count and b"\1" <= shape <= b"\4"
    need(whole, "a part of the value is missing, or one too many")
    values: Any = Reader.mapping(found) if shape == b"\2" else [value for _, value in found]
    data = b"".join(values) if shape > b"\2" else values
    return data.decode() if shape == b"\4" else data


def elements(parts: Any, wanted: bytes, below: int, depth: int) -> Any:
    """Keys and values of a tree."""
    level, keys, content = read_node(named_by(wanted, b"node", next(parts, None)), below)
    for key, one in zip(keys or content, content, strict=True):
        leaf = [] if level else [[key, value_of(parts, one, depth)]]
        yield from leaf or elements(parts, one, level, depth)


def read_node(data: bytes, below: int) -> tuple[int, list[Any], list[Any]]:
    """Level, keys, and refs or hashes of children."""
    node = unpack(data)
    level, keys, content = fields([node[0], node[1] or [], node[2]], "n l " + "lb"[len(node) == 6])
    need(level < below and (level > 0) == (len(node) == 6), "a node is of another level")
    content = [content[at : at + 32] for at in range(0, len(content), 32)] if level else content
    need(len(keys) in (0, len(content)))
    return level, keys, content


def find(path: list[Any], root: bytes, key: str) -> bytes | None:
    """The ref of a key in the index with this root; None if it is not there."""
    low, high, below = "", "", 64
    for number, one in enumerate(path, 1):
        data = named_by(root, b"node", one, "the path does not come from the root")
        below, keys, content = read_node(data, below)
        ordered = all(a < b for a, b in zip([low, *keys], keys, strict=False))
        need(ordered and len(keys) == len(content), "the keys of a node are out of order")
        need(not high or keys[-1] == high, "a node is not the one that is named")
        at = next((n for n, k in enumerate(keys) if k >= key), len(keys))
        if not below or at == len(keys):
            need(number == len(path), "the path goes on behind its end")
            return content[at] if at < len(keys) and keys[at] == key else None
        root, low, high = content[at], keys[at - 1] if at else low, keys[at]
    raise Refused("the path ends before it reaches the key")


def check_proof(data: bytes, options: Any) -> dict[str, Any]:
    """What a proof shows."""
    form = f"b16 b16 b{ENTRY} b l l t l l"
    lineage, scope, row, envelope, body, by, key, path, records = fields(unpack(data), form)
    place, (plain, opening), parts = lineage + scope + row, fields(body, "b b"), iter(records)
    signer = trusted(options, signers_of(place, envelope, by), options.require)
    hash_, _, commitment, statement = read_entry(place, envelope)
    need(committed(b"body", plain, opening) == commitment, "the checkpoint is not its own")
    moment, (operation, *_), *_ = unpack(plain)
    code, name, _, text = fields(operation[:4], "n t t t")
    ref, meta = find(path, statement[1:33], key) or b"", []
    if ref[:1] == b"\4":
        reader = Reader(ref, 1)
        meta, ref = unpack(reader.take(reader.varint())), ref[reader.at :]
        need(ref)
    end, _, class_, _ = fields(meta + [0, 0, "", 0][len(meta) :], "n n t n")
    until = datetime.fromtimestamp(end / 1e6, UTC).isoformat() if end else None
    found = {"value": value_of(parts, ref), "class": class_, "expires": until} if ref else {}
    need(next(parts, None) is None and code == 5, "there is more in it than there should be")
    number, time = int.from_bytes(row[LINE:], "big"), datetime.fromtimestamp(moment / 1e6, UTC)
    told = f"{dumps(text)} {dumps(key)} at entry {number}, checkpoint {dumps(name)} of {time}, "
    told += f"is {dumps(found['value']):.200}" if found else "is absent"
    told += f", {'expired since' if end <= moment else 'until'} {until}" if end else ""
    about = {"scope": text, "key": key, "absent": not found, **found, "checkpoint": name}
    about |= {"time": time.isoformat(), "entry": number, "hash": hash_.hex(), "_place": place}
    return {"kind": "proof", "told": told, "store": lineage.hex(), "signer": signer, **about}


def check_chain(data: bytes, options: Any) -> dict[str, Any]:
    """What an exported chain shows."""
    reader, signer, vouched, points = Reader(data), "", 0, dict[int, Any]()
    gone, commitments, floor, kept, lanes = set[int](), [b""], 0, set[int](), dict[int, Any]()
    lineage, scope, line, first, count = fields(reader.read(), f"b16 b16 b{LINE} n n")
    lost, until = list[int](), dict[int, int]()
    need(0 < count <= len(data) // 80 and first + count < 1 << 40, "it claims more than it holds")
    place, hashes = lineage + scope + line, [sha256(b"holdfast/first/1\0", lineage, scope, line)]
    for number in range(first, first + count):
        at, (envelope, whole) = place + number.to_bytes(5, "big"), fields(reader.read(), "b n")
        hash_, before, commitment, statement = read_entry(at, envelope)
        need(before == hashes[-1], f"entry {number} does not follow from the one before it")
        hashes.append(hash_)
        commitments.append(commitment)
        gone |= set() if whole else {number}
        points |= {number: (at, envelope, [])} if statement else {}
    for number, *signed in (fields(reader.read(), "n b b") for _ in range(reader.read())):
        points[number][2].append(signed)
    for number, point in points.items():
        valid = signers_of(*point) if point[2] else set()
        if len(valid.intersection(options.pin or valid)) >= options.require:
            signer, vouched = trusted(options, valid, options.require), number
    need(vouched, "no checkpoint in it is signed by so many keys that are believed")
    if anchor := reader.read():
        at, *body = fields(anchor, "n b b")
        plain = named_by(commitments[max(at - first + 1, 0)], b"body", body)
        code, floor, hash_, bases = fields(unpack(plain)[1][0], "n n b32 l")
        right = code == 12 and first <= floor < at and hashes[floor - first + 1] == hash_
        need(right, "its anchor names another entry, or none")
        kept = {number for number, _ in bases}
    need(max(gone, default=0) <= floor and not gone & kept, "bodies are gone that no anchor names")
    if type(many := reader.read()) is list:  # the newest entry that tells of a loss
        at, *body = fields(many, "n b b")
        plain = named_by(commitments[max(at - first + 1, 0)], b"body", body)
        code, *lost, _, _, ends = fields(unpack(plain)[1][0], "n n n n n l")
        need(code == 14 and at <= vouched, "no signature vouches for what it tells of a loss")
        until, many = dict(ends), reader.read()
    for lane, rows in (fields(reader.read(), "n n") for _ in range(many)):
        tags, named = lanes[lane] = [bytes(32)], []  # of its rows; what it names of the timeline
        for number in range(1, rows + 1):
            items, opening = fields(reader.read(), "b b")
            row = bytes([lane]) + number.to_bytes(6, "big") + tags[-1] + items
            tags.append(committed(b"feed", row, opening))
            for item in (items[at : at + 48] for at in range(0, len(items), 48)):
                if item[:8] == place[33:] and any(item[13:16]):  # else it is a link
                    last = int.from_bytes(item[8:13], "big") + int.from_bytes(item[13:16], "big")
                    there = hashes[last - first :][:1] == [item[16:]]
                    need(there or number <= until.get(lane, 0), "the feed names another entry")
                    named += [(number, last - 1)] if there else []
    need(reader.at == len(data), "there is more in it than there should be")
    told = f"entries {first} to {first + count - 1} of scope {scope.hex()} follow from each other, "
    told += f"a signature vouches for those up to {vouched}, {len(gone)} are pruned"
    told += f", {lost[0]} to {lost[1]} were lost once, as the chain tells" if lost else ""
    facts = {"kind": "chain", "told": told, "store": lineage.hex(), "signer": signer}
    facts |= {"first": first, "last": first + count - 1, "vouched": vouched, "pruned": len(gone)}
    facts |= {"head": hashes[-1].hex(), "checkpoints": len(points)}
    return {**facts, "_chain": (place, first - 1, hashes, lanes)}


def check_witness(data: bytes, options: Any) -> dict[str, Any]:
    """What a witness shows."""
    plain, signature = fields(unpack(base64.b64decode(data.strip(), b"-_", validate=True)), "b b")
    lineage, _, moment, public, lanes = fields(unpack(plain), "b16 b16 n b m")
    check_signature(public, b"holdfast/witness/1\0" + plain, signature)
    ends = {lane: fields(end, "n b32") for lane, end in lanes.get("$map", [])}
    signer, time = trusted(options, {public}, 1), datetime.fromtimestamp(moment / 1e6, UTC)
    facts = {"store": lineage.hex(), "time": time.isoformat(), "signer": signer, "_ends": ends}
    return {"kind": "witness", "told": f"a witness of store {lineage.hex()} at {time}", **facts}


def compare(one: dict[str, Any], chain: dict[str, Any]) -> bool:
    """Refuse a proof or a witness that contradicts a chain; whether it could be compared."""
    need(one["store"] == chain["store"], "it is of another store than the chain")
    place, first, hashes, lanes = chain["_chain"]
    if "_place" in one:
        at = hashes[one["entry"] - first :][:1] if one["_place"][:-5] == place else None
        need(at in (None, [bytes.fromhex(one["hash"])]), "the chain has another there, or none")
        one["told"] += "; the chain " + ("has this checkpoint" if at else "is of another timeline")
    if "_ends" in one and lanes:
        saw = [0]
        for lane, (number, tag) in one["_ends"].items():
            tags, named = lanes.get(lane, ([], []))
            need(number < len(tags), "the chain ends before what it saw: it is older, or put back")
            need(tags[number : number + 1] == [tag], "it saw another history than the chain's")
            saw += [last for at, last in named if at <= number]
        one["told"] += f"; it saw the chain's entries up to {max(saw)}"
    return "_ends" not in one or bool(lanes)


def verdict(name: str, data: bytes, options: Any, chains: list[Any]) -> dict[str, Any]:
    """What is to be said of a file, and of what it says of the chains."""
    checks = {PROOF: check_proof, CHAIN: check_chain, WITNESS: check_witness}
    try:
        kind = next((kind for kind in checks if data.startswith(kind)), b"")
        need(kind and len(data) <= LARGEST, "it is no proof, no chain and no witness, or too long")
        end = len(data) - 32 * (kind != WITNESS)
        need(kind == WITNESS or sha256(data[:end]) == data[end:], "it was changed, or cut short")
        one = {"file": name, "valid": True, **checks[kind](data[len(kind) : end], options)}
        fed = [compare(one, chain) for chain in chains]
        need(any(fed) or not fed, "no chain here was exported with its feed: a witness needs one")
        return one | {"told": f"{one['told']}; signed by {one['signer']}"}
    except Exception as why:  # whatever hostile bytes led to, it is a verdict
        told = str(why) if type(why) is Refused else f"it cannot be read ({type(why).__name__})"
        return {"file": name, "valid": False, "told": told}


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser("holdfast-verify", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="proofs, chains, witnesses")
    parser.add_argument("--pin", action="append", default=[], type=bytes.fromhex, help="public key")
    parser.add_argument("--require", type=int, default=1, help="how many of them must have signed")
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    options, files, found = parser.parse_args(arguments), [], list[dict[str, Any]]()
    try:
        for name in options.files:
            with open(name, "rb") as file:
                files.append((name, file.read(LARGEST + 1)))
    except (OSError, ValueError) as error:
        parser.error(f"a file or a --pin cannot be read: {error}")
    if not 1 <= options.require <= max(1, len(options.pin)) or {*map(len, options.pin)} - {32, 33}:
        parser.error("a --pin has 64 or 66 digits; --require is at least 1, at most their number")
    for name, data in sorted(files, key=lambda file: not file[1].startswith(CHAIN)):
        chains = [one for one in found if "_chain" in one and not data.startswith(CHAIN)]
        found.append(verdict(name, data, options, chains))
        if not options.json:
            print("valid:" if found[-1]["valid"] else "refused:", f"{name}: {found[-1]['told']}")
    if options.json:
        print(dumps([{k: v for k, v in one.items() if k[0] != "_"} for one in found]))
    return 0 if all(one["valid"] for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
