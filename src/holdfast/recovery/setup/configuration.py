"""What an agent's state management is to be, as one document: its sections, all checked at once.

What a document asks for and this version cannot do (another engine, another cache, peers) is
refused by name, with what to write instead.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.agents.state.checks import refusal_of
from holdfast.checkpoints.policy.policy import Policy, invalid, is_number, milliseconds
from holdfast.errors import ConfigurationError, HoldfastError, InvalidInputError
from holdfast.recovery.procedure import Procedure, twice
from holdfast.recovery.setup.alerts import LAG, RATE, THRESHOLDS, Channel
from holdfast.storage.server import take_options
from holdfast.store.inner import LONGEST
from holdfast.store.names.arguments import read_yaml
from holdfast.store.names.scope import Scope
from holdfast.store.open import HOUR, CachePlan

ENGINES = ("sqlite", "memory", "postgresql", "mongodb")
BACKUPS = ("s3", "file")
IN_BUCKETS = ("bucket", "prefix", "region", "endpoint")
LEVELS = ("low", "medium", "high")
EVENTUAL = ("eventual_consistency", "eventual")
"""How replicas follow: what is written is there a moment later."""
INSTEAD = "replicas follow the store: write eventual_consistency, or give enabled: false"
NEWEST = "timestamp_wins"
"""How conflicts are resolved: of a scope that was written to in two places, the later state."""
DAY, MINUTE = 86_400.0, 60.0
_SECTIONS = {"checkpoint": "checkpointing", "sync": "synchronization", "audit": "monitoring"}
"""Other names of sections."""
Check = Callable[[Any], bool]
Kind = tuple[str, Check]
"""What a field is to be, for people, and whether it is."""


def _is_length(value: Any) -> bool:
    length = milliseconds(value)
    return is_number(length) and length > 0


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _one_of(*known: str) -> Kind:
    return " or ".join(known), lambda value: value in known


_TEXT: Kind = "a text", lambda value: isinstance(value, str)
_FLAG: Kind = "true or false", lambda value: type(value) is bool
_LENGTH: Kind = 'milliseconds, or a text like "30s" or "1h"', _is_length
_PART: Kind = "a mapping", lambda value: isinstance(value, Mapping)
_PLANS: Kind = (
    "a mapping, or a list of them",
    lambda value: isinstance(value, Mapping) or (_is_list(value) and all(map(_PART[1], value))),
)
FIELDS: dict[str, dict[str, str]] = {
    "": {
        "agent_id": "whose state it is: the id of an agent",
        "storage": "where the state is kept",
        "checkpointing": "when checkpoints are made; also called `checkpoint`",
        "recovery": "how the agent is recovered",
        "synchronization": "which replicas follow the store; also called `sync`",
        "integrity": "how much is checked, and when",
        "monitoring": "what is noted, watched and told; also called `audit`",
        "intervals": "how often what runs beside the agent does its work",
    },
    "storage": {
        "primary": "the store",
        "backup": "where backups of it are kept, and how often one is made; a list of such plans, "
        "if some scopes have their own",
        "cache": "a cache in front of a store on a server",
    },
    "storage.primary": {
        "type": "`sqlite` (default), `memory`, `postgresql` or `mongodb`",
        "connection": "a path for `sqlite`, a URL for a server",
        "key": "as in `holdfast.open(key=)`; the store is encrypted if it is made with one",
        "signer": "as in `holdfast.open(signer=)`",
        "durability": "`full` (default) or `normal`",
        "pool_size": "connections to a server, 1 or more",
        "timeout": "how long a server may take to answer, a duration",
    },
    "storage.backup": {
        "type": "`s3` or `file`; follows from `bucket` if left out",
        "bucket": "of `s3`: the bucket",
        "prefix": "of `s3`: what names in the bucket begin with",
        "region": "of `s3`: the region",
        "endpoint": "of `s3`: the address of a server that is not Amazon's",
        "encryption": "`true` refuses to back up a plain store",
        "path": "of `file`: the folder",
        "interval": "how often one is made, a duration; a day if left out",
        "keep": "how many of the newest stay; all if left out",
        "scopes": "of `file`: for which scopes, as `[agent:*]`; signed exports of their newest "
        "checkpoints are made, `keep` of each stay. Left out: backups of the store",
    },
    "storage.cache": {
        "type": "`redis`",
        "connection": "the URL of the server",
        "ttl": "how long the cache keeps what it holds, a duration; an hour if left out",
    },
    "checkpointing": {"policies": "a list of policies, each as `Policy.of` takes it"},
    "recovery": {"procedures": "a list of procedures, each as `Procedure.of` takes it"},
    "synchronization": {
        "enabled": "`true` or `false`",
        "replicas": "the URLs of the replicas; else the argument `replicas`, or HOLDFAST_REPLICAS, "
        "names them",
        "strategy": "`eventual_consistency`: replicas follow",
        "conflict_resolution": "`timestamp_wins`: a replica that was written to by itself follows "
        "again, and each scope has the state whose newest change is the later one; left out, such "
        "a replica is left as it is, and an alert tells of it",
        "replication_factor": "how many stores, this one included, must hold a checkpoint",
        "consistency_level": "`eventual`",
    },
    "integrity": {
        "verification_level": "what is verified when the agent is set up: `high` all that is "
        "stored of it, `medium` its newest state, `low` (default) what is read, as always",
        "tamper_detection": "`true`: the store is verified in the background, see "
        "`scrub_interval`; what is read is verified in any case",
        "signature_verification": "`true`; it cannot be switched off",
        "hash_algorithm": "`SHA-256`",
        "scrub_interval": "how often a slice of the store is verified in the background, a "
        "duration of a day at most; with `tamper_detection` a minute if left out, else never",
    },
    "monitoring": {
        "metrics_enabled": "`true`; an open store counts, which cannot be switched off",
        "audit_logging": "`true`; the journal cannot be switched off",
        "performance_tracking": "`true`; an open store times, which cannot be switched off",
        "alert_thresholds": "what is watched: an alert fires above it, and resolves below",
        "notify": "who is told of alerts and of recoveries: a list of channels, each with a "
        "`webhook` (and its `secret`, `file:PATH` or `env:NAME`), a `command` (a list) or a "
        "`letter` (the id of an agent)",
    },
    "monitoring.alert_thresholds": {
        "checkpoint_failure_rate": "the share of checkpoints that fail, from 0 to 1, in 5 minutes",
        "recovery_time": "how long a recovery may take, a duration",
        "sync_lag": "how far a replica may be behind, a duration",
    },
    "intervals": {
        "watchdog": "between two looks for agents that failed; 5 s if left out",
        "retention": "between two runs of retention; a minute if left out",
        "expiry": "between two sweeps of keys that expired; a minute if left out",
        "alerts": "between two looks at thresholds; 5 s if left out",
        "lease": "after which another process takes over from one that is gone; 30 s if left out",
    },
}
"""The sections of a document, the fields of each, and what they mean."""
ALWAYS = {
    "tamper_detection": ": what is read is verified, which",
    "signature_verification": ": what is signed is verified, which",
    "metrics_enabled": ": an open store counts, which",
    "audit_logging": ": the journal is kept, which",
    "performance_tracking": ": an open store times, which",
}
"""What cannot be switched off, and what is said of it."""
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("encryption", "enabled", *ALWAYS), _FLAG),
    **dict.fromkeys(("timeout", "ttl"), _LENGTH),
    **dict.fromkeys(("policies", "procedures", "notify"), ("a list", _is_list)),
    "replication_factor": ("", lambda _: True),
    "scopes": (
        "a list of scopes, or of patterns of scopes",
        lambda it: _is_list(it) and bool(it) and all(type(one) is str and one for one in it),
    ),
    "keep": ("a whole number of 1 or more", lambda it: type(it) is int and it >= 1),
    RATE: ("a share from 0 to 1", lambda it: is_number(it) and 0 <= it <= 1),
    "conflict_resolution": (f"{NEWEST}, or left out", lambda it: it == NEWEST),
    "replicas": ("a list of URLs", lambda some: _is_list(some) and all(map(_TEXT[1], some))),
    "durability": _one_of("full", "normal"),
    "verification_level": _one_of(*LEVELS),
    "hash_algorithm": _one_of("SHA-256"),
    "pool_size": ("a whole number of 1 or more", lambda it: type(it) is int and it >= 1),
    **dict.fromkeys(
        ("scrub_interval", "interval", "recovery_time", "sync_lag", *FIELDS["intervals"]),
        (
            f"{_LENGTH[0]}, and a day at most",
            lambda it: _is_length(it) and milliseconds(it) <= LONGEST * 1000,
        ),
    ),
}
"""What fields are to be that are neither sections nor texts."""


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """A plan of backups: where they go, how often, how many stay; the arguments of `Backups`.

    What may hold credentials, though it should not, is never shown.
    """

    url: str = field(repr=False)
    region: str | None = None
    endpoint: str | None = field(default=None, repr=False)
    encryption: bool = False
    interval: float = DAY
    """Seconds between two of them."""
    keep: int | None = None
    scopes: tuple[str, ...] = ()
    """Patterns of scopes of which the newest checkpoints are exported, instead of backups."""


@dataclass(frozen=True, slots=True)
class Replication:
    """Which replicas a configuration has; the arguments of `Replicas`."""

    urls: tuple[str, ...] = field(default=(), repr=False)
    factor: int | None = None
    newest_wins: bool = False
    """Whether one that was written to by itself follows again, with the newest state of each scope;
    else it is left as it is, and told of."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two turns of what runs beside an agent."""

    watchdog: float = 5.0
    retention: float = MINUTE
    expiry: float = MINUTE
    alerts: float = 5.0
    lease: float = 30.0
    """After which another process takes over."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an agent's state management is to be; made with `load`, `of` or `from_yaml`."""

    agent_id: str
    url: str = field(default="sqlite:", repr=False)
    key: str | None = field(default=None, repr=False)
    signer: str | None = None
    durability: str = "full"
    cache: str | None = field(default=None, repr=False)
    cache_ttl: float = HOUR
    """Seconds for which a cache keeps what it holds."""
    backups: tuple[BackupPlace, ...] = ()
    replication: Replication | None = None
    policies: tuple[Policy, ...] = ()
    procedures: tuple[Procedure, ...] = ()
    verification: str = "low"
    """high: all that is stored of the agent is verified when it is set up; medium: its newest
    state is; low: what is read, as always."""
    scrub_interval: float | None = None
    """Seconds between two slices of a background check of the store; None: there is none."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """What alerts are watched, and above what they fire: a share, or seconds."""
    channels: tuple[Channel, ...] = ()
    """Who is told of alerts and of recoveries."""
    intervals: Intervals = field(default_factory=Intervals)
    notes: tuple[str, ...] = ()
    """What it says that makes no difference here."""

    @classmethod
    def load(cls, source: Configuration | Mapping[str, Any] | str | Path) -> Configuration:
        """The configuration in a file (.yaml, .yml, .toml or .json), or of plain data."""
        if isinstance(source, Configuration):
            return source
        if not isinstance(source, str | Path):
            return cls.of(source)
        try:
            text = Path(source).read_text(encoding="utf-8")
            kind = Path(source).suffix.lower()
            if kind == ".toml":
                return cls.of(tomllib.loads(text))
            return cls.of(json.loads(text)) if kind == ".json" else cls.from_yaml(text)
        except (OSError, ValueError) as error:  # ValueError: no text, no TOML, no JSON
            said = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError([f"{source} cannot be read: {said}"]) from None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Configuration:
        """The configuration of plain data, as a whole or its part `state_management`.

        Durations are milliseconds, or written like "1h". Refused with `ConfigurationError`, which
        lists everything that is wrong.
        """
        reading = _Reading()
        made = reading.run(data)
        if reading.problems:
            raise ConfigurationError(reading.problems)
        return made

    @classmethod
    def from_yaml(cls, text: str) -> Configuration:
        """The same of a YAML text; needs `holdfast[yaml]`."""
        return cls.of(read_yaml(text, ConfigurationError))


class _Reading:
    """Reads a document, and lists all that is wrong with it. It never shows a value."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._notes: list[str] = []

    def run(self, data: Any) -> Configuration:
        if isinstance(data, Mapping) and "state_management" in data:
            for other in sorted(str(one) for one in data if one != "state_management"):
                if _SECTIONS.get(other, other) in FIELDS[""]:
                    self.problems.append(f"{other} belongs into state_management, not beside it")
                else:  # of somebody else
                    note = "it stands beside state_management, and is not read"
                    self._notes.append(f"{other}: {note}")
            data = data["state_management"]
        if isinstance(data, Mapping):
            for other, name in _SECTIONS.items():
                if other in data and name in data:
                    self.problems.append(f"{other} and {name} are one section; give it once")
            data = {_SECTIONS.get(name, name): part for name, part in data.items()}
        whole = self._section(data, "")
        agent = whole.get("agent_id", "")
        wrong = refusal_of(Scope, "agent", agent)
        self.problems += [f"agent_id is the id of an agent: {text}" for text in wrong]
        parts = {
            name: self._section(whole.get(name, {}), name) for name in FIELDS[""] if name in FIELDS
        }
        storage, integrity = parts["storage"], parts["integrity"]
        primary = self._section(storage.get("primary", {}), "storage.primary")
        opened = {
            name: primary[name] for name in ("key", "signer", "durability") if name in primary
        }
        replication = self._synchronization(parts["synchronization"])
        scrubs = _seconds(integrity.get("scrub_interval"))
        if scrubs is None and integrity.get("tamper_detection"):
            scrubs = MINUTE
        lengths = {name: _seconds(value) for name, value in parts["intervals"].items()}
        given = storage.get("backup", ())
        plans = [given] if isinstance(given, Mapping) else given
        backups = tuple(made for one in plans if (made := self._backup(one)) is not None)
        if len({one.scopes for one in backups}) < len(backups):
            self.problems.append("storage.backup: two plans are for the same scopes")
        return Configuration(
            agent,
            **opened,
            **self._primary(primary),
            **self._cache(storage),
            backups=backups,
            replication=replication,
            policies=self._each(parts["checkpointing"], "checkpointing.policies", _policy),
            procedures=self._each(parts["recovery"], "recovery.procedures", Procedure.of),
            verification=integrity.get("verification_level", "low"),
            scrub_interval=scrubs,
            thresholds=self._thresholds(parts["monitoring"], replication),
            channels=self._channels(parts["monitoring"]),
            intervals=Intervals(**lengths),
            notes=tuple(self._notes),
        )

    def _lack(self, text: str) -> None:
        self.problems.append(f"not available: {text}")

    def _section(self, data: Any, name: str) -> dict[str, Any]:
        """The fields of a section that are what they are to be."""
        if not isinstance(data, Mapping):
            self.problems.append("a configuration is a mapping")
            return {}
        known, good = FIELDS[name], dict[str, Any]()
        for other in sorted(str(one) for one in data.keys() - known.keys()):
            self.problems.append(
                f"{name or 'a configuration'}: {other} is none of {', '.join(known)}"
            )
        for one in sorted(known.keys() & data.keys()):
            place = f"{name}.{one}".removeprefix(".")
            what, check = _PART if place in FIELDS else KINDS.get(one, _TEXT)
            what, check = (what, check) if place != "storage.backup" else _PLANS
            if not check(data[one]):
                self.problems.append(f"{place} is {what}")
            elif one in ALWAYS and not data[one]:
                self.problems.append(f"{place}{ALWAYS[one]} cannot be switched off: write true")
            else:
                good[one] = data[one]
        return good

    def _primary(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The URL of the store, if there is such an engine."""
        place = data.get("connection", "")
        if place.startswith("postgres:"):
            place = place.replace("postgres:", "postgresql:", 1)
        start = place.partition(":")[0].removesuffix("+srv") if ":" in place else ""
        scheme = start if start in ENGINES else ""
        kind = data.get("type", scheme or "sqlite")
        engines = f"a store is {' or '.join(ENGINES)}"
        if kind not in ENGINES:
            self._lack(f"storage.primary.type{_word(kind)}: {engines}")
        elif "://" in place and not scheme:
            self._lack(f"storage.primary.connection: it is of another engine; {engines}")
        elif scheme and scheme != kind:
            said = f"the type is {kind}, and the connection is of {scheme}"
            self.problems.append(f"storage.primary: {said}")
        elif kind in ("postgresql", "mongodb"):
            return {"url": self._server(kind, place, data)}
        else:
            for name in {"pool_size", "timeout"} & data.keys():
                said = f"{kind} runs in the process itself: leave it out"
                self.problems.append(f"storage.primary.{name} is for a server; {said}")
            return {"url": place if scheme else f"{kind}:{place}"}
        return {}

    def _server(self, kind: str, url: str, data: Mapping[str, Any]) -> str:
        """The URL of a store on a server, with what stands beside it as its options."""
        place, said = "storage.primary", dict[str, Any]()
        if "://" not in url:
            self.problems.append(f"{place}.connection is {kind}://USER:PASSWORD@HOST:PORT/DATABASE")
        try:
            said = take_options(url)[1]
        except InvalidInputError as error:
            self.problems.append(f"{place}.connection: {error}")
        for name in [name for name in ("pool_size", "timeout") if name in data]:
            if name in said:
                self.problems.append(f"{place}.{name} stands in the connection, too")
            url += f"{'&' if '?' in url else '?'}{name}={max(1, int(milliseconds(data[name])))}"
        return url

    def _backup(self, given: Mapping[str, Any]) -> BackupPlace | None:
        """Where backups go: a bucket, or a folder."""
        place = "storage.backup"
        known = len(self.problems)
        data = self._section(given, place)
        kind = data.get("type", "s3" if "bucket" in given else "file")
        if kind not in BACKUPS:
            self._lack(f"{place}.type{_word(kind)}")
            return None
        mine, others = ("bucket", ("path", "scopes")) if kind == "s3" else ("path", IN_BUCKETS)
        for name in others:
            if name in data:
                self.problems.append(f"{place}.{name} does not belong to type {kind}")
        where = data.get(mine, "")
        if not where and len(self.problems) == known:
            self.problems.append(f"{place}.{mine} is missing")
        return BackupPlace(
            f"s3://{where}/{data.get('prefix', '')}".rstrip("/")
            if kind == "s3"
            else f"dir:{where}",
            data.get("region"),
            data.get("endpoint"),
            data.get("encryption", False),
            _seconds(data.get("interval", DAY * 1000)),
            data.get("keep"),
            tuple(data.get("scopes", ())),
        )

    def _thresholds(
        self, data: Mapping[str, Any], replication: Replication | None
    ) -> dict[str, float]:
        place = "monitoring.alert_thresholds"
        found = self._section(data.get("alert_thresholds", {}), place)
        if LAG in found and replication is None:
            self.problems.append(f"{place}.{LAG}: nothing lags, for synchronization is not enabled")
        return {
            name: found[name] if name == RATE else _seconds(found[name])
            for name in THRESHOLDS
            if name in found
        }

    def _channels(self, data: Mapping[str, Any]) -> tuple[Channel, ...]:
        made = []
        for number, one in enumerate(data.get("notify", []), 1):
            place = f"monitoring.notify {number}"
            known = ("webhook", "secret", "command", "letter")
            if not isinstance(one, Mapping) or one.keys() - known:
                self.problems.append(f"{place} is a mapping of {', '.join(known)}")
                continue
            words = one.get("command", [])
            texts = [text for name, text in one.items() if name != "command"]
            if not _is_list(words) or not all(isinstance(text, str) for text in (*texts, *words)):
                self.problems.append(f"{place}: command is a list of texts, all else is a text")
                continue
            channel = Channel(**{**one, "command": tuple(words)})
            self.problems += [f"{place}: {text}" for text in channel.problems()]
            made.append(channel)
        return tuple(made)

    def _cache(self, storage: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of `open` for the cache."""
        if "cache" not in storage:
            return {}
        known = len(self.problems)
        data = self._section(storage["cache"], "storage.cache")
        kind, place = data.get("type", ""), data.get("connection", "")
        if kind != "redis":
            said = "what is read is kept in the process in any case; else write redis"
            self._lack(f"storage.cache.type{_word(kind)}: {said}")
        if len(self.problems) > known:
            return {}
        ttl = _seconds(data.get("ttl", HOUR * 1000))
        try:
            if not place:
                raise InvalidInputError("connection is missing")
            CachePlan.of(place, ttl)
        except InvalidInputError as error:
            self.problems.append(f"storage.cache: {error}")
        return {"cache": place, "cache_ttl": ttl}

    def _synchronization(self, data: Mapping[str, Any]) -> Replication | None:
        """Replicas of the store, which follow it."""
        from holdfast.replicas.replicas import MOST, check_factor

        place = "synchronization"
        urls, enabled = data.get("replicas", []), data.get("enabled", False)
        factor = data.get("replication_factor")
        stores = len(urls) if urls and enabled else MOST
        self.problems += refusal_of(check_factor, factor, stores, f"{place}.replication_factor")
        if not enabled:
            return None
        for name in ("strategy", "consistency_level"):
            if data.get(name, EVENTUAL[1]) not in EVENTUAL:
                self._lack(f"{place}.{name}{_word(data[name])}: {INSTEAD}")
        return Replication(tuple(urls), factor, data.get("conflict_resolution") == NEWEST)

    def _each(
        self, data: Mapping[str, Any], place: str, make: Callable[[Any], Any]
    ) -> tuple[Any, ...]:
        made = []
        for number, one in enumerate(data.get(place.rpartition(".")[2], []), 1):
            try:
                made.append(make(one))
            except HoldfastError as error:
                problems = getattr(error, "problems", None) or [str(error)]
                self.problems += [f"{place} {number}: {text}" for text in problems]
        self.problems += twice(place, made)
        return tuple(made)


def _seconds(length: Any) -> Any:
    """A duration as seconds; None for None."""
    return None if length is None else milliseconds(length) / 1000


def _word(kind: str) -> str:
    """The name of an engine, to be shown; nothing of what may be a connection instead."""
    return f" {kind}" if kind.isidentifier() and len(kind) <= 32 else ""


def _policy(data: Any) -> Policy:
    """A policy that can be used in a store that is encrypted, if it asks for that."""
    made = Policy.of(data)
    if problems := made.problems((), encrypted=True):
        raise invalid(problems)
    return made
