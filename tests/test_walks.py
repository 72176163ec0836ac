"""What pages show is what a store does: files that calls pass through, an agent's timeline."""

from __future__ import annotations

import os
import subprocess
import sys

from test_reference import script


def test_the_lists_are_what_calls_pass_through() -> None:
    """In a process of its own: what other tests made warm, or patched, changes what is called."""
    walks = script("walks")
    assert set(walks.listed(walks.PAGE.read_text())) == {"set", "restore", "recovery", "put"}
    environment = {**os.environ, "HOLDFAST_CHECK_BATCHES": ""}  # checked in tests alone
    checked = subprocess.run(
        [sys.executable, walks.__file__, "--check"], env=environment, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


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
