"""What pages show is what a store does: files that calls pass through, an agent's timeline."""

from __future__ import annotations

import pytest

from holdfast.storage.sqlite import engine
from test_reference import script


def test_the_lists_are_what_calls_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        engine, "check_own", False
    )  # batches of the store are checked in tests alone
    walks = script("walks")
    text = walks.PAGE.read_text()
    assert set(walks.listed(text)) == {"set", "restore", "recovery", "put"}
    # On a busy machine one may meet a file more: a lease that is renewed, a pause that is over.
    for _ in range(3):
        found = walks.walks()
        assert {name: walk.circles for name, walk in found.items() if walk.circles} == {}
        if walks.listed(text) == walks.listed(walks.written(text, found)):
            return
    raise AssertionError("docs/architecture.md is stale: run `make reference`")


def test_the_picture_is_what_a_store_says() -> None:
    picture = script("picture")
    assert picture.FILE.read_text() == picture.picture(), "run `make reference`"


def test_going_to_and_fro_is_found() -> None:
    walks = script("walks")
    walk = walks.Walk("walk/")
    there, back = {}, {}
    exec(compile("def a(n):\n    if n: b(n - 1)\n", "walk/a.py", "exec"), there)
    exec(compile("def b(n):\n    if n: a(n - 1)\n", "walk/b.py", "exec"), back)
    there["b"], back["a"] = back["b"], there["a"]
    with walk.noting():
        there["a"](2)
    assert (list(walk.files), walk.circles) == (["a.py", "b.py"], set())
    with walk.noting():
        there["a"](3)
    assert walk.circles == {("a.py", "b.py")}
