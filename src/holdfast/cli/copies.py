"""Copies of the store that a command may take from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import TYPE_CHECKING

import click

from holdfast.cli.session import Session

if TYPE_CHECKING:
    from holdfast.sync import Store

copy_option = click.option(
    "--copy",
    "copies",
    metavar="URL",
    multiple=True,
    help="A copy of the store that may have what is lost here, opened with the same key.",
)


@contextmanager
def opened(session: Session, urls: Sequence[str]) -> Iterator[list[Store]]:
    """Copies of the store, for looking only."""
    with ExitStack() as stack:
        found = []
        for url in urls:
            there = copy(session)
            there.store = url
            found.append(stack.enter_context(there.reading()))
        yield found
