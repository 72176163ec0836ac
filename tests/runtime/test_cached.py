"""What is built again from its source: caches, logs of conversations, files of compositions."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidInputError, MissingError
from holdfast.runtime import Cached, Compositions, Conversations
from holdfast.runtime import cached as module


class Ticking:
    """Stands for the monotonic clock of the module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    return Ticking(monkeypatch)


@pytest.mark.spec("S95", "S96", "S98", "S99")
def test_a_value_is_built_on_demand_and_again_after_a_minute(ticking: Ticking) -> None:
    built: list[int] = []
    cached = Cached(lambda: built.append(1) or len(built))
    assert cached.ttl == 60.0
    assert (cached.built_at, built) == (None, [])
    assert (cached.get(), cached.get()) == (1, 1)
    first = cached.built_at
    assert first is not None
    ticking.now += 59.9
    assert cached.get() == 1
    ticking.now += 0.1
    assert cached.get() == 2
    assert cached.built_at is not None
    assert cached.built_at >= first
    cached.forget()
    assert cached.built_at is None
    assert cached.get() == 3
    for_ever = Cached(lambda: built.append(1) or len(built), ttl=None)
    assert for_ever.get() == 4
    ticking.now += 10**9
    assert for_ever.get() == 4


@pytest.mark.spec("S101")
def test_what_fails_is_tried_by_the_next_and_threads_build_once(ticking: Ticking) -> None:
    calls: list[int] = []

    def build() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("not now")
        return "value"

    cached = Cached(build)
    with pytest.raises(OSError, match="not now"):
        cached.get()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(cached.get())) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert (found, len(calls)) == (["value"] * 8, 2)
    for wrong in (lambda: Cached("x"), lambda: Cached(build, ttl=-1)):  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            wrong()


def said(folder: Path, session: str, *lines: Any) -> None:
    with (folder / f"{session}.jsonl").open("a") as file:
        for one in lines:
            file.write((one if isinstance(one, str) else json.dumps(one)) + "\n")


@pytest.mark.spec("S97", "S100", "S102", "S134", "S99")
def test_conversations_are_found_in_the_files_of_sessions(tmp_path: Path, ticking: Ticking) -> None:
    said(tmp_path, "s1", {"timestamp": 1, "text": "hello"}, {"timestamp": 2, "text": "there"})
    said(tmp_path, "s2", {"timestamp": "2026-01-01T00:00:00Z"})
    (tmp_path / "notes.txt").write_text("no log")
    index = Conversations(tmp_path)
    assert index.index.built_at is None, "built on first access"
    assert [one.session for one in index.list()] == ["s1", "s2"]
    one = index.get("s1")
    assert (one.messages, one.first, one.last, one.unreadable) == (2, 1, 2, 0)
    assert [m["text"] for m in index.messages("s1")] == ["hello", "there"]
    said(tmp_path, "s1", {"timestamp": 3, "text": "again"})
    said(tmp_path, "s3", {})
    assert index.get("s1").messages == 2, "from memory"
    assert len(index.messages("s1")) == 3, "content is always read from the file"
    ticking.now += 61
    assert index.get("s1").messages == 3
    assert (index.get("s3").first, index.get("s3").messages) == (None, 1)
    said(tmp_path, "s4", {})
    index.index.forget()
    assert index.get("s4").messages == 1
    with pytest.raises(MissingError, match="no log of the session 's5'"):
        index.get("s5")
    assert Conversations(tmp_path).get("s1") == index.get("s1"), "no memory is needed"


@pytest.mark.spec("S134", "S101")
def test_lines_that_are_no_json_are_counted_and_hide_no_other(tmp_path: Path) -> None:
    said(tmp_path, "s", {"n": 1}, "{broken", "[1]", "", {"n": 2}, "[" * 10**5)
    with (tmp_path / "s.jsonl").open("a") as file:
        file.write('{"n": 3}\n{"n": 4')
    index = Conversations(tmp_path)
    one = index.get("s")
    assert [m["n"] for m in index.messages("s")] == [1, 2, 3]
    assert (one.messages, one.unreadable) == (3, 4)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert [one.session for one in Conversations(tmp_path).list()] == ["s"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for kind in (Conversations, Compositions):
        with pytest.raises(InvalidInputError, match="is no folder"):
            kind(tmp_path / "none")
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidInputError, match="is no folder"):
            kind(tmp_path / "file")
        with pytest.raises(InvalidInputError, match="a folder is a path, not NoneType"):
            kind(None)  # type: ignore[arg-type]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    if before:  # a clock that is coarse hides no change here
        os.utime(path, ns=(before + 10**9, before + 10**9))
    return path


@pytest.mark.spec("S104", "S105", "S106", "S107", "S108")
def test_compositions_are_indexed_by_name_type_and_tag(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "name: planner\ntype: profile\ntags: [core, fast]\nrole: plans")
    write(tmp_path / "deep" / "b.yml", "type: prompt\ntags: [core]")
    index = Compositions(tmp_path)
    assert [one.name for one in index.list()] == ["b", "planner"]
    assert [one.name for one in index.list(type="profile")] == ["planner"]
    assert [one.name for one in index.list(tag="core")] == ["b", "planner"]
    assert index.list(type="prompt", tag="fast") == []
    found = index.get("planner")
    assert (found.type, found.tags, found.data["role"]) == ("profile", ("core", "fast"), "plans")
    assert index.refresh() == 0, "nothing has changed, nothing is read"
    write(tmp_path / "a.yaml", "name: planner\nrole: waits")
    assert index.get("planner").data["role"] == "waits"
    write(tmp_path / "c.yaml", "name: new")
    (tmp_path / "deep" / "b.yml").unlink()
    assert [one.name for one in index.list()] == ["new", "planner"]
    with pytest.raises(MissingError, match="no composition 'b'"):
        index.get("b")


@pytest.mark.spec("S109", "S108")
def test_they_are_rebuilt_from_the_files_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "name: a")
    before = Compositions(tmp_path).list()
    assert Compositions(tmp_path).list() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.yaml"], "nothing is written"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join('*' + chr(97 + n) for _ in range(9))}]\n"
    for n in range(9)
)


@pytest.mark.spec("S108", "S106")
@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "name: [unclosed",
        "- a list",
        "name: 5",
        "tags: text",
        "x: !!python/object/apply:os.system ['false']",
        "\x00",
        "",
    ],
)
def test_a_broken_file_is_named_and_hides_no_other(tmp_path: Path, text: str) -> None:
    write(tmp_path / "good.yaml", "name: good")
    bad = write(tmp_path / "bad.yaml", text)
    index = Compositions(tmp_path)
    assert [one.name for one in index.list()] == ["good"]
    assert list(index.broken) == [str(bad)]
    assert index.broken[str(bad)]
    write(bad, "name: mended")
    assert [one.name for one in index.list()] == ["good", "mended"]
    assert not index.broken


def test_two_files_of_one_name(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "name: same")
    second = write(tmp_path / "b.yaml", "name: same")
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    index = Compositions(tmp_path)
    assert index.get("same").path.name == "a.yaml"
    assert "has the name 'same' already" in index.broken[str(second)]
    assert str(tmp_path / "c.yaml") in index.broken
    (tmp_path / "a.yaml").unlink()
    assert index.get("same").path == second
