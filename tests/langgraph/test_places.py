"""Messages are stored once and referred to; what comes back is what was put, edited or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from graph_kit import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast import sync
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph import put as putting
from holdfast.integrations.langgraph.thread_records import Names, Record, Space, Writes

WHERE: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}


class Line:
    """A thread that grows by one checkpoint at a time."""

    def __init__(self, saver: HoldfastSaver) -> None:
        self.saver = saver
        found = saver.get_tuple(WHERE)
        self.config: Any = found.config if found else WHERE

    def put(self, *, run: str = "", **values: Any) -> None:
        metadata: Any = {"source": "loop", "run_id": run}
        self.config = self.saver.put(self.config, checkpoint(**values), metadata, {})

    def messages(self) -> list[Any]:
        found = self.saver.get_tuple(WHERE)
        assert found is not None
        return found.checkpoint["channel_values"]["messages"]  # type: ignore[no-any-return]


def fields(messages: list[Any]) -> list[Any]:
    """All of a message that can be told: also its class and which fields are set."""
    return [(type(m), m.__dict__, m.__pydantic_extra__, m.model_fields_set) for m in messages]


IDS = st.sampled_from([None, "x", "y", "0f0e0d0c-0b0a-4908-8706-050403020100", b"b" * 16, 7, False])
EDITS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abcd"), IDS), max_size=3)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 15), EDITS, st.booleans()), max_size=8))
def test_what_was_put_is_what_comes_back(steps: list[Any]) -> None:
    """Lists that grow and shrink, messages edited in place, also ids; in one process and anew."""
    with sync.open("memory:") as store:
        line = Line(HoldfastSaver(store))
        messages: list[Any] = [HumanMessage("begin")]
        line.put(messages=messages)
        past = [fields([m.model_copy(deep=True) for m in messages])]
        for more, edits, again in steps:
            messages = messages[: 45 - 3 * more] + [AIMessage(f"{n % 3}") for n in range(more)]
            for place, content, id in edits:
                edited = messages[place % len(messages)]
                edited.content, edited.id = content, id
            line.put(messages=messages)
            assert fields(line.messages()) == fields(messages)
            past.append(fields([m.model_copy(deep=True) for m in messages]))
            if again:
                line = Line(HoldfastSaver(store))
                assert fields(line.messages()) == fields(messages)
        listed = [*HoldfastSaver(store).list(WHERE)][::-1]
        told = [one.checkpoint["channel_values"]["messages"] for one in listed]
        assert list(map(fields, told)) == past
        assert store.verify().ok


Edit = Callable[[AIMessage], None]


def _content(message: AIMessage) -> None:
    message.content = "edited"


def _inside(message: AIMessage) -> None:
    message.additional_kwargs["a"]["b"].append(1)


def _kind(message: AIMessage) -> None:
    message.additional_kwargs["a"]["b"][0] = True  # it was 1, which Python takes for equal


def _extra(message: AIMessage) -> None:
    message.more = [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("edit", [_content, _inside, _kind, _extra])
@pytest.mark.parametrize("count", [3, 40])
def test_an_edit_in_place_is_stored_wherever_it_is(tmp_path: Path, edit: Edit, count: int) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    messages = [AIMessage(f"{n}", additional_kwargs={"a": {"b": [1]}}) for n in range(count)]
    with HoldfastSaver.open(url) as saver:
        line = Line(saver)
        line.put(messages=messages)
        edit(messages[1])
        line.put(messages=[*messages, AIMessage("new")])
    with HoldfastSaver.open(url) as saver:
        assert fields(Line(saver).messages())[:-1] == fields(messages)
        first = [*saver.list(WHERE)][-1].checkpoint["channel_values"]["messages"]
        assert first[1].content == "1"
        assert repr(first[1].additional_kwargs) == "{'a': {'b': [1]}}"


def test_a_message_is_stored_once_whoever_refers_to_it(tmp_path: Path) -> None:
    """Input, a task's writes, a channel; with an id that it gets on the way; in two processes."""
    url = f"sqlite:{tmp_path / 'a.db'}"
    message = AIMessage("a" * 300)
    with HoldfastSaver.open(url) as saver:
        line = Line(saver)
        line.put(start={"messages": [message]})
        saver.put_writes(line.config, [("messages", [message])], "task")
        message.id = "given"
        line.put(messages=[message])
    with HoldfastSaver.open(url) as saver:
        Line(saver).put(messages=[message, HumanMessage("b")])
    with sync.open(url) as store:
        assert store.scope("custom:langgraph/a").length("parts") == 2


def test_writes_stay_with_the_checkpoint_that_becomes_the_newest_again(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}") as store:
        saver = HoldfastSaver(store)
        line = Line(saver)
        line.put(n=1)
        first = line.config
        saver.put_writes(first, [("n", "written")], "task")
        line.put(n=2, run="undone")
        saver.put_writes(line.config, [("n", "gone")], "task")
        written = [one.pending_writes for one in saver.list(WHERE)]
        assert written == [[("task", "n", "gone")], [("task", "n", "written")]]
        saver.delete_for_runs(["undone"])
        for reader in (saver, HoldfastSaver(store)):
            found = reader.get_tuple(WHERE)
            assert found is not None
            assert found.config == first
            assert found.pending_writes == [("task", "n", "written")]


def test_a_snapshot_is_built_anew_each_time(tmp_path: Path) -> None:
    """Whoever changes what a delta channel was seeded with changes nothing for the next one."""
    with HoldfastSaver.open(f"sqlite:{tmp_path / 'a.db'}") as saver:
        line = Line(saver)
        line.put(messages=_DeltaSnapshot([HumanMessage("a"), AIMessage("b" * 600)]))
        line.put()
        seeds = []
        for _ in range(3):
            history = saver.get_delta_channel_history(config=line.config, channels=["messages"])
            seeds.append(history["messages"]["seed"].value)
            assert [m.content for m in seeds[-1]] == ["a", "b" * 600]
            seeds[-1][0].content = "changed"
            seeds[-1].append("more")


TIMES = st.one_of(
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    st.sampled_from(["", "2026-01-01T00:00:00", "2026-01-01T00:00:00+01:00", "2026-W01"]),
)
VERSIONS = st.dictionaries(
    st.sampled_from("abc"), st.one_of(st.integers(), st.booleans(), st.text(max_size=3))
)


@given(
    id=st.one_of(st.text(), st.uuids().map(str), st.just(str(uuid6()))),
    ts=TIMES,
    versions=VERSIONS,
    seen=st.dictionaries(st.sampled_from("ab"), VERSIONS),
)
def test_records_unpack_to_what_was_packed(id: str, ts: str, versions: Any, seen: Any) -> None:
    names = Names()
    record = Record(id, None, 4, ts, versions, seen, ["a"], {"source": "odd"}, {}, ["b"])
    packed = record.pack(names)
    names.learn(names.new)
    found = Record.unpack(packed, names)
    assert repr(found) == repr(record)


@pytest.mark.parametrize("path", ["", "~__pregel_pull, answer", "~__pregel_push, 0", "odd"])
def test_paths_of_tasks_unpack_to_what_they_were(path: str) -> None:
    names = Names()
    packed = Writes("c", "t", path, [(0, "answer", 1)]).pack(names)
    names.learn(names.new)
    assert Writes.unpack(packed, names) == Writes("c", "t", path, [(0, "answer", 1)])


def test_a_time_is_told_by_its_id_in_few_bytes() -> None:
    id = str(uuid6())
    ts = (datetime.now(UTC) + timedelta(microseconds=5)).isoformat()
    packed = Record(id, None, 4, ts, {}, {}, None, {}, {}, []).pack(Names())
    assert abs(packed[3]) < 60_000_000


@pytest.mark.parametrize("busy", [False, True], ids=["between puts", "during a put"])
def test_what_another_saver_stores_meanwhile_keeps_its_number(tmp_path: Path, busy: bool) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}") as store:
        saver, other = HoldfastSaver(store), HoldfastSaver(store)
        line = Line(saver)
        line.put(messages=[HumanMessage("one")])
        said = iter("23")

        def interfere(*_: Any) -> None:
            place: Any = {**WHERE["configurable"], "checkpoint_ns": "sub", "checkpoint_id": "c"}
            for text in said:
                other.put_writes({"configurable": place}, [("x", HumanMessage(text))], text)
                return

        interfere()
        if busy:
            # It adds no message, so nothing tells it that somebody did.
            first = saver.get_tuple(line.config)
            assert first is not None
            again: Any = {**first.checkpoint, "id": str(uuid6())}
            thread = saver._place(WHERE)[0]
            putting.put(thread, Space(""), again, {}, first.checkpoint["id"], interfere)
            line.config["configurable"]["checkpoint_id"] = again["id"]
        line.put(messages=[HumanMessage("one"), HumanMessage("four")])
        line.put(messages=[HumanMessage("one"), HumanMessage("four"), HumanMessage("five")])
        assert [m.content for m in Line(HoldfastSaver(store)).messages()] == ["one", "four", "five"]
