"""Which process this is, known without asking the system at every call."""

from __future__ import annotations

import os

number = os.getpid()
"""That of this process, also after `os.fork()`."""


def _forked() -> None:
    global number
    number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
