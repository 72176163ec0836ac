"""A checkpoint for readers: JSON for people, Protocol Buffers for other programs."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from store_kit import Place, same

import holdfast
from holdfast import Classed, Sticky, Typed, sync
from holdfast.errors import InvalidInputError
from holdfast.seal.codec import Unbuilt
from holdfast.store.tree.json_values import loads, write
from holdfast.sync.checkpoints import export_checkpoint, import_checkpoint

VALUES: dict[str, Any] = {
    "list": [1, [2.5, [], {}], None, True, False],
    "numbers": [0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 1e16, -0.0, float("-inf")],
    "odd": {"$x": 1, 7: b"\0\xff", 2**64 - 1: "\ud800"},
    "plan": Typed("Plan", 2, {"goal": "é", "steps": ["a", "b"]}),
    "text": "line\nand \x1b[31m \u202e",
    "times": [
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(minutes=90), "here")),
    ],
    "users/1": {"name": "Ann", "Password": "1234", "keys": [{"api_token": b"x", "n": 1}]},
    "users/secrets/1": {"anything": "hidden"},
}


@pytest.fixture
def state(place: Place) -> sync.State:
    """A state with a checkpoint."""
    state = place.open(registry=Unbuilt()).agent("1")
    state.declare(Sticky("done/"))
    for key, value in VALUES.items():
        state.set(key, value)
    state.checkpoint("good", type="pre_operation", tags=["a"], metadata={"access_token": "abc"})
    return state


@pytest.mark.spec("D40")
def test_json_is_for_people(state: sync.State, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    made = export_checkpoint(state, path, at="good", format="json", plain=True, reveal=True)
    assert (made.signer, made.encrypted, made.keys) == ("", False, len(VALUES))
    found = json.loads(path.read_text())
    assert found["format"] == "holdfast-checkpoint/1"
    assert (found["scope"], found["keys"]) == ("agent:1", len(VALUES))
    about = found["checkpoint"]
    assert (about["id"], about["name"], about["type"]) == (made.checkpoint, "good", "pre_operation")
    assert about["root"] == state.checkpoints(name="good")[0].root
    assert found["declared"] == {"$declared/sticky/done/*": {"prefix": "done/"}}
    assert list(found["state"]) == sorted(VALUES)
    for key, value in found["state"].items():
        assert same(loads(write(value)), VALUES[key])
    assert "\x1b" not in path.read_text()
    assert "\u202e" not in path.read_text()
    with pytest.raises(InvalidInputError, match="no export"):
        import_checkpoint(state, path)


def test_what_is_sensitive_is_masked(state: sync.State, tmp_path: Path) -> None:
    """Whole keys, by their class: named by the write, declared, or told by the name."""
    state.declare(Classed("billing/", "sensitive"))
    state.set("billing/card", "4111 1111")
    state.set("note", "call Ann", class_="sensitive")
    state.set("gone", "long ago", ttl=0.001)
    time.sleep(0.002)
    state.checkpoint("secrets")
    told = Told()
    state._handle.core.gates.add(told)
    export_checkpoint(state, tmp_path / "x", format="json", plain=True)
    assert told.keys == []
    text = (tmp_path / "x").read_text()
    found = json.loads(text)["state"]
    hidden = {"users/secrets/1", "billing/card", "note"}
    assert {key for key, value in found.items() if value == {"$sensitive": True}} == hidden
    assert same(loads(write(found["odd"])), VALUES["odd"])
    for secret in ("4111 1111", "call Ann", "hidden", "long ago"):
        assert secret not in text
    export_checkpoint(state, tmp_path / "x", format="json", plain=True, reveal=True)
    assert json.loads((tmp_path / "x").read_text())["state"]["billing/card"] == "4111 1111"
    assert set(told.keys) == hidden
    told.keys.clear()
    export_checkpoint(state, tmp_path / "x", plain=True)
    assert set(told.keys) == hidden


class Told(holdfast.Gate):
    """Notes which sensitive keys are read."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def reading(self, reading: Any) -> None:
        self.keys += reading.keys


def test_an_empty_state_is_json(store: sync.Store, tmp_path: Path) -> None:
    state = store.agent("1")
    state.checkpoint("nothing")
    export_checkpoint(state, tmp_path / "x", format="json", plain=True)
    assert json.loads((tmp_path / "x").read_text())["state"] == {}


# ---- Protocol Buffers ----------------------------------------------------------------------


def message_class() -> Any:
    """The class that Google's library makes of the published file."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    text = (Path(holdfast.__file__).parent / "checkpoints" / "checkpoint.proto").read_text()
    text = re.sub(r"//.*", "", text)
    file = descriptor_pb2.FileDescriptorProto(
        name="c.proto", package="holdfast.v1", syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.DOTALL):
        message = file.message_type.add(name=name)
        if "oneof kind" in body:
            message.oneof_decl.add(name="kind")
        for many, kind, field, number in re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body):
            made = message.field.add(name=field, number=int(number))
            made.label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
            if kind[0].isupper():
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".holdfast.v1.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if "oneof kind" in body:
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("holdfast.v1.Checkpoint"))


def value_of(found: Any) -> Any:
    """The value in a message."""
    kind = found.WhichOneof("kind")
    part = getattr(found, kind)
    if kind == "null":
        return None
    if kind in ("sensitive", "erased"):
        return f"({kind})"
    if kind == "big_integer":
        return int.from_bytes(part, "big", signed=True)
    if kind == "odd_text":
        return part.decode("utf-8", "surrogatepass")
    if kind == "time":
        more = {"zone": part.zone, "name": part.name, "fold": part.fold}
        more = {name: one for name, one in more.items() if one}
        return loads(json.dumps({"$time": {"at": part.at, **more}}))
    if kind == "list":
        return [value_of(one) for one in part.items]
    if kind == "map":
        return {value_of(pair.key): value_of(pair.value) for pair in part.pairs}
    if kind == "object":
        return Typed(part.name, part.version, value_of(part.fields))
    return part


@pytest.mark.spec("K11")
def test_protobuf_is_read_by_googles_library(state: sync.State, tmp_path: Path) -> None:
    read = message_class().FromString
    unknown_fields = pytest.importorskip("google.protobuf.unknown_fields").UnknownFieldSet
    path = tmp_path / "x.pb"
    made = export_checkpoint(state, path, format="protobuf", plain=True, reveal=True)
    found = read(path.read_bytes())
    assert len(unknown_fields(found)) == 0
    assert (found.format, found.scope) == ("holdfast-checkpoint/1", "agent:1")
    assert (found.timeline, found.sequence) == (made.timeline, made.sequence)
    assert (found.name, found.type, list(found.tags)) == ("good", "pre_operation", ["a"])
    assert (found.root.hex(), found.hash.hex()) == (made.root, made.hash)
    assert found.store.hex() == made.store
    assert datetime.fromtimestamp(found.time / 1e6, UTC) == made.time
    assert value_of(found.metadata) == {"access_token": "abc"}
    assert [one.key for one in found.declared] == ["$declared/sticky/done/*"]
    assert [one.key for one in found.state] == sorted(VALUES)
    for one in found.state:
        assert same(value_of(one.value), VALUES[one.key])
    # Written by the library it is the same message: nothing was lost on the way.
    assert read(found.SerializeToString()) == found

    export_checkpoint(state, path, format="protobuf", plain=True)
    masked = {one.key: value_of(one.value) for one in read(path.read_bytes()).state}
    assert masked["users/secrets/1"] == "(sensitive)"
    assert b"hidden" not in path.read_bytes()
    state.set("text", 1, expires=datetime(2999, 1, 1, tzinfo=UTC), class_="sensitive")
    state.checkpoint("terms")
    export_checkpoint(state, path, format="protobuf", plain=True)
    one = next(one for one in read(path.read_bytes()).state if one.key == "text")
    assert datetime.fromtimestamp(one.expires / 1e6, UTC).year == 2999
    assert getattr(one, "class") == "sensitive"


def test_what_was_erased_is_said_to_be(tmp_path: Path) -> None:
    place = Place("memory", tmp_path, sealed=True)
    store = place.open()
    state = store.agent("1")
    state.set("who", "ann", subject="user:42")
    state.checkpoint("x")
    store.erase_subject("user:42")
    export_checkpoint(state, tmp_path / "x", plain=True, format="json")
    assert json.loads((tmp_path / "x").read_text())["state"] == {"who": {"$erased": True}}
    export_checkpoint(state, tmp_path / "x", plain=True, format="protobuf")
    (found,) = message_class().FromString((tmp_path / "x").read_bytes()).state
    assert value_of(found.value) == "(erased)"
    place.close()
