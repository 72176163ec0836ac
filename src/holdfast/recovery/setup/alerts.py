"""What is out of bounds, and telling somebody: alerts that fire and resolve, by several ways.

An alert that fires, or resolves, and every recovery that ends, is told by each way that is set up:
a function, a webhook, a command, a letter. What could not be told is kept in the store and told
later, by whichever process watches then; so one may be told twice, under the same `id`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import asdict

from holdfast.agents.mailbox import Mailbox
from holdfast.agents.state.checks import refusal_of
from holdfast.errors import InvalidInputError
from holdfast.recovery.failure_kinds import KEPT_ALERTS, log
from holdfast.recovery.records import RecoveryNotice, deliver, notices_scope
from holdfast.recovery.report import RecoveryReport
from holdfast.seal.keys import read_secret
from holdfast.store.inner import Book, BookPage, StoreHandle, core_of, moment
from holdfast.store.names.arguments import check_run
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import called
from holdfast.store.state import State
from holdfast.store.store import Store

RATE, TIME, LAG = "checkpoint_failure_rate", "recovery_time", "sync_lag"
THRESHOLDS = (RATE, TIME, LAG)
WINDOW = 300.0
"""Seconds of which the share of failed checkpoints is taken."""
TIMEOUT = 10.0
"""Seconds that a webhook may take; a command may take six times that."""
OLD = timedelta(days=1)
"""Of a recovery that began longer ago nobody is told."""
SIGNATURE = "Holdfast-Signature"
Tell = Callable[[dict[str, Any]], Any]
Look = Callable[[], Iterable[tuple[str, str]]]
"""Gives the names of alerts that hold now, each with what it is."""


# ---- ways to tell -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Channel:
    """One way to tell somebody; one of webhook, command and letter."""

    webhook: str = field(default="", repr=False)
    """A URL, to which JSON is posted."""
    secret: str = ""
    """Of a webhook, `file:PATH` or `env:NAME`: what the body is signed with (HMAC-SHA-256)."""
    command: tuple[str, ...] = ()
    """A program and its arguments, which gets the JSON as its input, and ends with 0."""
    letter: str = ""
    """The id of an agent, into whose mailbox it is put."""

    @property
    def name(self) -> str:
        """What it is kept by; nothing that is secret."""
        kind = "webhook" if self.webhook else "command" if self.command else "letter"
        text = self.webhook or "\0".join(self.command) or self.letter
        return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def problems(self) -> Iterable[str]:
        """What is wrong with it."""
        if sum(map(bool, (self.webhook, self.command, self.letter))) != 1:
            yield "give one of webhook, command and letter"
        address = urlsplit(self.webhook)
        if self.webhook and (address.scheme not in ("http", "https") or not address.hostname):
            yield "webhook is a URL: https://HOST/PATH"
        if self.secret and (not self.webhook or self.secret.split(":")[0] not in ("file", "env")):
            yield "secret is of a webhook: file:PATH or env:NAME"
        wrong = refusal_of(Scope, "agent", self.letter) if self.letter else ()
        yield from (f"letter is the id of an agent: {text}" for text in wrong)

    def teller(self, store: Store) -> Tell:
        """What tells by it; raises if it could not."""
        if self.webhook:
            kind, _, name = self.secret.partition(":")
            key = os.environ.get(name, "").encode() if kind == "env" else b""
            if kind == "env" and not key:
                raise InvalidInputError(f"the secret of a webhook: the variable {name} is not set")
            if kind == "file":
                key = read_secret(Path(name).expanduser(), "secret of a webhook").strip()
            return lambda event: post(self.webhook, key, event)
        if self.command:
            return lambda event: _run(self.command, event)
        mailbox = Mailbox(store.agent(self.letter))
        return lambda event: mailbox.send(event, sender="holdfast", id=event["id"])


def signature(key: bytes, body: bytes) -> str:
    """What the header of a webhook says of a body: to be compared with `hmac.compare_digest`."""
    return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()


def post(url: str, key: bytes, event: Mapping[str, Any]) -> None:
    """Post an event; an answer that is none of 2xx is raised."""
    body = json.dumps(event, sort_keys=True).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "holdfast"}
    if key:
        headers[SIGNATURE] = signature(key, body)
    asked = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(asked, timeout=TIMEOUT):
            pass
    except urllib.error.HTTPError as error:  # without the URL, which may hold a secret
        error.close()
        raise OSError(f"the webhook answered {error.code}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What was signed for one place is sent to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _run(command: Sequence[str], event: Mapping[str, Any]) -> None:
    text = json.dumps(event, sort_keys=True)
    done = subprocess.run(
        command, input=text, text=True, capture_output=True, timeout=6 * TIMEOUT, check=False
    )
    if done.returncode:
        raise OSError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[:500]}")


# ---- alerts -------------------------------------------------------------------------------------


class KeptAlert(Struct):
    """An alert as it is kept: that it fires, or fired."""

    firing: bool
    what: str
    since: datetime
    id: str
    untold: list[str] = []
    """Names of the ways by which this was not told yet."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires."""

    name: str
    what: str
    since: datetime

    def __str__(self) -> str:
        return f"{self.name}: {self.what} (since {self.since:%Y-%m-%d %H:%M:%S})"


def firing(store: StoreHandle) -> list[Alert]:
    """Alerts of a store that fire now, as far as somebody watched."""
    kept = Book(State(store.line(notices_scope())), KEPT_ALERTS, KeptAlert).readable()
    return [Alert(name, one.what, one.since) for name, one in kept.items() if one.firing]


class Alerts:
    """Looks what is out of bounds, and tells it. Nothing runs by itself: call `look`.

    `looks` give what holds now. `channels` are told of what began or ended to hold since, and of
    recoveries that ended; so are `callbacks`, functions of an event, by the names that are kept.
    """

    def __init__(
        self,
        store: Store,
        looks: Sequence[Look],
        channels: Sequence[Channel] = (),
        callbacks: Mapping[str, Tell] | None = None,
    ) -> None:
        self._core = core_of(store)
        self._store = StoreHandle(self._core)
        self._looks = looks
        self._state = State(self._store.line(notices_scope()))
        self._book: Book[KeptAlert] = Book(self._state, KEPT_ALERTS, KeptAlert)
        self._tellers: dict[str, Tell] = {one.name: one.teller(store) for one in channels}
        for name, function in (callbacks or {}).items():
            check_run(function, "what is told of alerts", awaited=True)
            self._tellers[name] = partial(called, function)
        self.errors: dict[str, str] = {}
        """Why a way did not serve, by its name, until it does."""

    def look(self) -> None:
        """Look once: note what fires and resolves, and tell all that is untold."""
        holds = {name: what for look in self._looks for name, what in look()}
        for name, one in self._book.readable().items():
            if one.firing and name not in holds:
                self._note(name, False, one.what)
        for name, what in holds.items():
            self._note(name, True, what[:1000])
        for name, one in self._book.readable().items():
            for way in one.untold:
                self._tell_alert(name, one, way)
        for way in self._tellers:
            with suppress(_Untold):  # it stays the next one for this way
                deliver(self._store, self._state, way, partial(self._tell_recovery, way))

    def _note(self, name: str, on: bool, what: str) -> None:
        def note(page: BookPage[KeptAlert]) -> None:
            known = page.get(name)
            if known is not None and known.firing and on:
                if known.what != what:  # it is kept, and told to nobody again
                    known.what = what
                    page.put(name, known)
                return
            now = moment(self._core.clock.claimed())
            id = f"{name}/{now.timestamp():.6f}"
            page.put(name, KeptAlert(on, what, now, id, list(self._tellers)))

        self._book.step(note, reason=f"alert {name}: {'firing' if on else 'resolved'}")

    def _tell_alert(self, name: str, one: KeptAlert, way: str) -> None:
        event = {
            "id": one.id,
            "event": "alert",
            "alert": name,
            "status": "firing" if one.firing else "resolved",
            "what": one.what,
            "at": one.since.isoformat(),
        }
        if way in self._tellers and not self._told(way, event):
            return  # the next look tries again

        def note(page: BookPage[KeptAlert]) -> None:
            known = page.get(name)
            if known is not None and known.id == one.id:
                known.untold = [other for other in known.untold if other != way]
                page.put(name, known)

        self._book.step(note, reason=f"alert {name}: told")

    def _tell_recovery(self, way: str, _: Any, one: RecoveryNotice) -> None:
        begun = datetime.fromisoformat(one.recovery.partition("-")[0]).replace(tzinfo=UTC)
        if moment(self._core.clock.claimed()) - begun > OLD:
            return  # a way that is new is not told of all that ever was
        event = {"id": f"{one.recovery}/{one.agent}", "event": "recovery", **asdict(one)}
        del event["number"]
        if not self._told(way, event):
            raise _Untold

    def _told(self, way: str, event: dict[str, Any]) -> bool:
        try:
            self._tellers[way](event)
        except Exception as error:  # theirs; it is tried again
            self.errors[way] = f"{type(error).__name__}: {error}"[:500]
            log.warning("%s could not be told: %s", way, self.errors[way])
            return False
        self.errors.pop(way, None)
        return True


class _Untold(Exception):
    """A way did not serve."""


# ---- thresholds ---------------------------------------------------------------------------------


class FailureRate:
    """The share of checkpoints that come by themselves and fail, of the last minutes, here."""

    def __init__(self, store: Store, most: float, window: float = WINDOW) -> None:
        self._store, self._most, self._window = store, most, window
        self._seen: list[tuple[float, Any]] = [(core_of(store).clock.ticks(), store.metrics())]

    def __call__(self) -> Iterable[tuple[str, str]]:
        now, told = core_of(self._store).clock.ticks(), self._store.metrics()
        recent = [one for one in self._seen[1:] if now - one[0] <= self._window]
        last = self._seen[-len(recent) - 1]  # the newest that is older, or the first
        self._seen = [last, *recent, (now, told)]
        found = told.since(last[1])
        made, failed = found.count("checkpoints"), found.count("checkpoints", outcome="failed")
        if made and failed / made > self._most:
            share = f"{failed} of {made} checkpoints failed, more than {self._most:.1%}"
            yield RATE, f"{share} in {self._window:g} s"


def recovery_time(
    store: Store, newest: Callable[[], Sequence[RecoveryReport]], most: float
) -> Iterable[tuple[str, str]]:
    """A look at the newest recovery of an agent: whether it takes too long, or just did."""
    for one in newest():
        now = moment(core_of(store).clock.claimed())
        ended = one.finished_at
        took = ((ended or now) - one.started_at).total_seconds()
        if took > most and (ended is None or (now - ended).total_seconds() < WINDOW):
            what = "takes" if ended is None else "took"
            yield TIME, f"{one.agent}: {one.id} {what} {took:.1f} s, more than {most:g}"


def sync_lag(replicas: Any, wanted: int, most: float) -> Iterable[tuple[str, str]]:
    """A look at how far replicas are behind; `wanted` is how many there should be."""
    known = replicas.status() if replicas is not None else []
    wrong = [str(one) for one in known if one.error or not one.whole or (one.seconds or 0) > most]
    if len(known) < wanted:
        wrong.append(f"{len(known)} replicas are named, {wanted} are wanted")
    if wrong:
        yield LAG, f"{'; '.join(wrong)[:900]}"
