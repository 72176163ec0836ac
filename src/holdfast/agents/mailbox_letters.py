"""What a mailbox tells: its letters, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.store.read.reader import moment


@dataclass(frozen=True, slots=True)
class Letter:
    """One message to an agent."""

    number: int
    """Counts from 1 in the order in which they came."""
    id: str
    content: Any
    sender: str
    time: datetime
    tries: int = 0
    """How often processing it has failed."""
    error: str = ""
    """The type of the last error."""
    kind: str = ""
    """What kind of failure that was, if it can be told: timeout, network_error …"""
    due: datetime | None = None
    """Not tried again before; those behind it wait for it."""


@dataclass(frozen=True, slots=True)
class MailboxStatus:
    """How far an agent has processed what was sent to it."""

    received: int
    processed: int
    """Those set aside or removed included."""
    waiting: int
    last_processed_id: str | None
    set_aside: int
    """How many failed too often."""
    missed: int
    """How many were trimmed though the state, by a restore, has not processed them."""


class _Kept(msgspec.Struct, omit_defaults=True):
    """A letter in the list."""

    id: str
    content: Any
    sender: str = ""
    time: datetime | None = None
    by: str = ""
    """The scope that sent it while it processed a letter itself, in the same commit."""
    line: str = ""
    """The timeline that it was sent to."""
    again: bool = False
    """Whether it was set aside and put behind all others."""

    def letter(self, number: int, failed: dict[str, Any]) -> Letter:
        wait = failed.get("wait", 0.0)
        return Letter(
            number,
            self.id,
            self.content,
            self.sender,
            self.time or moment(0),
            failed.get("count", 0),
            failed.get("error", ""),
            failed.get("kind", ""),
            failed["at"] + timedelta(seconds=wait) if wait else None,
        )


def letter_of(item: dict[str, Any], number: int, failed: dict[str, Any]) -> Letter:
    """A letter as it lies in the list, and what is known of its failures."""
    of_it = failed.get("id", item["id"]) == item["id"]
    return _Kept(**item).letter(number, failed if of_it else {})
