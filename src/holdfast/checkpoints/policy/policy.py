"""A policy: when a checkpoint is made by itself, and what becomes of it."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any
from unicodedata import normalize

from msgspec import Struct

from holdfast.checkpoints.checkpoint_keys import POLICIES
from holdfast.errors import HoldfastError, PolicyValidationError
from holdfast.store.names.arguments import check_text
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import check_key

# ---- conditions ---------------------------------------------------------------------------------
# Conditions: what a policy looks at, and how it compares it.
#
# A condition names a kind, a metric of that kind, an operator and a threshold. All conditions of a
# policy must hold. Times are milliseconds, sizes bytes.


RATIO = "state_change_ratio"
"""Bytes of the keys that differ from the last checkpoint ÷ bytes of the state then. Each key counts
once, with its name and all of its value (of one that is gone, as it was then); 1.0 if there was no
checkpoint."""
SINCE = "time_since_last_checkpoint"
"""Milliseconds since the last checkpoint of any type, or since the agent's first entry."""
MEMORY = "memory_usage"
"""Bytes of the agent's state as it is encoded, keys included."""
OPERATIONS = "operation_count"
"""Sets, appends, trims and deletes since the last checkpoint; with a time window, those that this
process saw within it."""
ERRORS = "error_rate"
"""Errors ÷ (errors + operations) within the time window (without one: of five minutes)."""
ACTIONS = "user_action"
EVENTS = "system_event"
"""How often it was reported since the last checkpoint, or within the time window; behind a colon
may stand which: `system_event:low_disk`."""

METRICS = {
    "state_change": (RATIO,),
    "time_interval": (SINCE,),
    "memory_usage": (MEMORY,),
    "operation_count": (OPERATIONS,),
    "error_rate": (ERRORS,),
    "user_action": (ACTIONS,),
    "system_event": (EVENTS,),
}
"""Kinds of conditions, and the metrics of each."""
WINDOWED = (OPERATIONS, ERRORS, ACTIONS, EVENTS)
"""Metrics of what happens, which can be counted within a time window."""
REPORTED = (ACTIONS, EVENTS)
"""Kinds that are told; they take users' own metrics, too."""
ERROR_WINDOW = 300_000.0

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "greater_than": operator.gt,
    "less_than": operator.lt,
    "equals": operator.eq,
    "greater_than_or_equal": operator.ge,
    "less_than_or_equal": operator.le,
}
SIGNS = dict(zip(OPERATORS, (">", "<", "=", "≥", "≤"), strict=True))
LONGEST = 366 * 86_400_000.0
"""Of a window or an interval."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a metric with a threshold."""

    type: str
    metric: str
    operator: str
    threshold: float
    window: float | None = None
    """Milliseconds that are looked back; None: to the last checkpoint."""

    @property
    def span(self) -> float | None:
        """The window that counts: an error rate always has one."""
        return ERROR_WINDOW if self.window is None and self.metric == ERRORS else self.window

    def holds(self, value: float | None) -> bool:
        """Whether it is met; not if the value is not known, nor by an operator that is not."""
        compare = OPERATORS.get(self.operator)
        if self.operator == "equals" and self.counted and self.threshold >= 1:
            compare = operator.ge  # one that is more when it is looked at has been equal before
        return compare is not None and value is not None and compare(value, self.threshold)

    @property
    def counted(self) -> bool:
        """Whether it is about a count that grows until there is a checkpoint."""
        return self.span is None and base_of(self.metric) in (OPERATIONS, *REPORTED)

    def __str__(self) -> str:
        within = f" within {self.span:g} ms" if self.span is not None else ""
        return f"{self.metric} {SIGNS.get(self.operator, '?')} {self.threshold:g}{within}"

    def data(self) -> dict[str, Any]:
        """Plain data; what is left out has its default."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def problems(self, own: Collection[str]) -> Iterator[str]:
        """All that is wrong with it; `own` are the user's metrics."""
        kinds = METRICS.get(self.type) if isinstance(self.type, str) else None
        told = self.type in REPORTED and isinstance(self.metric, str)
        own_fits = told and (self.metric in own or base_of(self.metric) in (kinds or ()))
        if kinds is None:
            yield f"unknown type {self.type!r}; a condition is {', '.join(METRICS)}"
        elif self.metric not in kinds and not own_fits:
            more = " or one of your own, given as metrics=" if self.type in REPORTED else ""
            yield f"unknown metric {self.metric!r} of {self.type}; use {', '.join(kinds)}{more}"
        if not isinstance(self.operator, str) or self.operator not in OPERATORS:
            yield f"unknown operator {self.operator!r}; use {', '.join(OPERATORS)}"
        if not is_number(self.threshold):
            time = self.metric == SINCE
            text = ' of milliseconds; in a configuration also a text like "30s" or "1h"'
            yield f"the threshold is a finite number{text if time else ''}"
        if self.window is not None:
            if not is_number(self.window) or not 0 < self.window <= LONGEST:
                yield "a time window is more than 0 ms and at most a year"
            elif base_of(self.metric) not in WINDOWED:
                yield f"a time window is for {', '.join(WINDOWED)}, which count what happens"


def base_of(metric: object) -> str:
    """The metric without what stands behind a colon."""
    return metric.partition(":")[0] if isinstance(metric, str) else ""


def is_number(value: object) -> bool:
    """Whether it is a finite number that can be compared."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else value.bit_length() < 1000


# ---- policy -------------------------------------------------------------------------------------


PREFIX = POLICIES.prefix
"""Where an agent's own policies are kept, in its scope."""
MOST_CONDITIONS = 32
EMPTY = "it has no conditions: it would always fire"
PRIORITIES = ("low", "medium", "high", "critical")
MADE_BY = "policy:"
"""Begins the tag of a checkpoint that a policy made; its id follows."""
CIPHER = "AES-256-GCM"
METHODS = ("lz4", "zstd")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


@dataclass(frozen=True, slots=True)
class PolicyFrequency:
    """How often a policy may fire: not again for `interval` and a share of `jitter` (ms).

    The share follows from agent and policy, so that a thousand agents do not fire together. With
    an interval of 0 it fires with each event by which its conditions become met.
    """

    interval: float = 0
    jitter: float = 0


@dataclass(frozen=True, slots=True)
class PolicyRetention:
    """How long a policy's checkpoints are kept: milliseconds, and how many; None: no bound.

    The newest `min_count` stay, whatever their age. It is carried out when retention is run
    (`Retention`, `Scheduler.every(..., retention=True)`), by the policy as it is then.
    """

    max_age: float | None = None
    max_count: int | None = None
    min_count: int = 0

    def kept(self) -> dict[str, float]:
        """What a checkpoint says of it, with the age in seconds."""
        age = self.max_age / 1000 if self.max_age is not None else None
        found = {"max_age": age, "max_count": self.max_count, "min_count": self.min_count or None}
        return {name: bound for name, bound in found.items() if bound is not None}


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """A demand on compression or encryption, of what leaves the store.

    Inside it all is compressed and encrypted alike, as `explain` shows. Of a policy's checkpoints,
    `compression` says how an export without a key is compressed (not at all if it is not enabled);
    `encryption` of an agent's own policy, that there is no export without a key.
    """

    enabled: bool
    algorithm: str


def plain_id(id_: str) -> str:
    """The id of a policy as its key has it: two ways to write one accent name one policy."""
    return normalize("NFC", id_) if isinstance(id_, str) else id_


class PolicyRecord(Struct):
    """A policy as it is kept: what `Policy.data` gives. It has no defaults, so all is written."""

    id: str
    name: str
    conditions: list[dict[str, Any]]
    frequency: dict[str, Any]
    retention: dict[str, Any]
    compression: dict[str, Any] | None
    encryption: dict[str, Any] | None
    priority: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """When a checkpoint is made by itself. `Policies.set` checks it, and says all that is wrong."""

    id: str
    """Kept in Unicode normal form C."""
    conditions: tuple[Condition, ...]
    """All must be met."""
    name: str = ""
    frequency: PolicyFrequency = field(default_factory=PolicyFrequency)
    retention: PolicyRetention = field(default_factory=PolicyRetention)
    compression: PolicySetting | None = None
    """None: as it fits the content."""
    encryption: PolicySetting | None = None
    priority: str = "medium"
    enabled: bool = True
    """A policy that is off hides the default one of its id."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", plain_id(self.id))

    @property
    def title(self) -> str:
        """Its name, or its id."""
        return self.name or self.id

    @property
    def key(self) -> str:
        """Where it is kept."""
        return PREFIX + self.id

    @property
    def type(self) -> str:
        """The type of its checkpoints: triggered by what was reported, else automatic."""
        told = any(condition.type in REPORTED for condition in self.conditions)
        return "triggered" if told else "automatic"

    @property
    def demands_encryption(self) -> bool:
        """Whether its checkpoints must be encrypted, in the store and in exports."""
        return self.encryption is not None and self.encryption.enabled

    def data(self) -> dict[str, Any]:
        """Plain data, which `Policy.of` reads."""
        found = {"id": self.id, "name": self.name} | asdict(self)
        return {**found, "conditions": [condition.data() for condition in self.conditions]}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Policy:
        """A policy of plain data, as in a configuration file.

        Ages may be written like "7d", a time window `timeWindow` or `window`; without an id the
        name is taken.
        """
        policy, problems = read_policy(data)
        if policy is None or problems:
            raise invalid(problems)
        return policy

    def problems(self, own: Collection[str], *, encrypted: bool) -> list[str]:
        """All that is wrong with it in a store that is encrypted or not."""
        found = []
        try:
            check_text(self.id, "the id of a policy", 128, least=1)
            check_key(self.key, owner=True)
            check_text(self.name, "the name of a policy", 256)
        except HoldfastError as error:
            found.append(str(error))
        if not isinstance(self.enabled, bool):
            found.append("enabled is True or False")
        found += [*self._conditions(own), *self._bounds()]
        if self.priority not in PRIORITIES:
            found.append(f"unknown priority {self.priority!r}; use {', '.join(PRIORITIES)}")
        for name, algorithms in (("compression", METHODS), ("encryption", (CIPHER,))):
            setting = getattr(self, name)
            if setting is None:
                continue
            if not isinstance(setting, PolicySetting) or not isinstance(setting.enabled, bool):
                found.append(f"{name} is PolicySetting(True or False, algorithm), or None")
                continue
            if setting.algorithm not in algorithms:
                found.append(f"{name} is {' or '.join(algorithms)}")
            if name == "encryption" and setting.enabled != encrypted:
                found.append(
                    "it demands encryption, and this store is plain: create the store with a key"
                    if setting.enabled
                    else "it demands no encryption, and this store encrypts everything"
                )
        return found

    def _conditions(self, own: Collection[str]) -> Iterator[str]:
        if not isinstance(self.conditions, tuple | list):
            yield "conditions is a list"
            return
        if not self.conditions and self.enabled:  # one that is off needs none
            yield EMPTY
        if len(self.conditions) > MOST_CONDITIONS:
            yield f"it has more than {MOST_CONDITIONS} conditions"
        for number, condition in enumerate(self.conditions, 1):
            if isinstance(condition, Condition):
                yield from (f"condition {number}: {text}" for text in condition.problems(own))
            else:
                yield f"condition {number}: conditions are made with Condition(...)"

    def _bounds(self) -> Iterator[str]:
        if not isinstance(self.frequency, PolicyFrequency):
            yield "frequency is PolicyFrequency(interval, jitter)"
        for name in PolicyFrequency.__slots__:
            value = getattr(self.frequency, name, 0)
            if not is_number(value) or not 0 <= value <= LONGEST:
                yield f"the {name} is from 0 ms to a year"
        if not isinstance(self.retention, PolicyRetention):
            yield "retention is PolicyRetention(max_age, max_count, min_count)"
            return
        age, count = self.retention.max_age, self.retention.max_count
        if age is not None and (not is_number(age) or age <= 0):
            yield "max_age is more than 0 ms"
        if count is not None and (type(count) is not int or count < 1):
            yield "max_count is a whole number of at least 1"
        least = self.retention.min_count
        if type(least) is not int or least < 0:
            yield "min_count is a whole number of at least 0"


def invalid(problems: list[str]) -> PolicyValidationError:
    """The error that lists all that is wrong."""
    return PolicyValidationError(f"Invalid checkpoint policies: {'; '.join(problems)}", problems)


DEFAULTS = (
    Policy(
        "default-time-based",
        (Condition("time_interval", SINCE, "greater_than", 300_000),),
        "Time-based Checkpoint",
        PolicyFrequency(300_000, 30_000),
        PolicyRetention(86_400_000, 100),
        PolicySetting(True, "lz4"),
        PolicySetting(True, CIPHER),
        "medium",
    ),
    Policy(
        "default-state-change",
        (Condition("state_change", RATIO, "greater_than", 0.1),),
        "State Change Checkpoint",
        PolicyFrequency(0, 0),
        PolicyRetention(604_800_000, 50),
        PolicySetting(True, "lz4"),
        PolicySetting(True, CIPHER),
        "high",
    ),
)
"""The policies that every agent has unless it has others under their ids."""


def merged(defaults: tuple[Policy, ...], own: Mapping[str, Policy]) -> list[Policy]:
    """An agent's policies: its own over the defaults, the highest priority first, then its own."""
    found = {**{policy.id: policy for policy in defaults}, **own}
    return sorted(found.values(), key=lambda one: (-rank(one), one.id not in own, one.id))


def rank(policy: Policy) -> int:
    """How high its priority is; one that is not known, written by a newer version, is lowest."""
    return PRIORITIES.index(policy.priority) if policy.priority in PRIORITIES else -1


def policy_of(one: Checkpoint) -> str:
    """The policy that made a checkpoint; empty if none did, whatever its metadata says."""
    id_ = str(one.metadata.get("policy", ""))
    return id_ if f"{MADE_BY}{id_}" in one.tags else ""


# reading plain data


def read_policy(data: Any) -> tuple[Policy | None, list[str]]:
    """A policy of plain data, as far as it can be read, and what is wrong with the data."""
    problems: list[str] = []
    data = _mapping(data, "a policy", problems)
    if data is None:
        return None, problems
    known = {"id", *(name for name in Policy.__slots__), "policyId"}
    problems += [f"unknown field {name!r}" for name in data if name not in known]
    conditions = data.get("conditions", ())
    if not isinstance(conditions, list | tuple):
        problems.append("conditions is a list")
        conditions = ()
    made = [_part(Condition, one, "a condition", problems) for one in conditions]
    name = data.get("name", "")
    policy = Policy(
        data.get("id", data.get("policyId", name)),
        tuple(one for one in made if one is not None),
        name,
        priority=data.get("priority", "medium"),
        enabled=data.get("enabled", True),
    )
    parts: dict[str, Any] = {}
    for part, kind in _PARTS.items():
        if data.get(part) is not None and (one := _part(kind, data[part], part, problems)):
            parts[part] = one
    return replace(policy, **parts), problems


_PARTS = {
    "frequency": PolicyFrequency,
    "retention": PolicyRetention,
    "compression": PolicySetting,
    "encryption": PolicySetting,
}


_NAMES = {
    "timeWindow": "window",
    "time_window": "window",
    "maxAge": "max_age",
    "maxCount": "max_count",
    "minCount": "min_count",
}
"""Names that documents have for fields of ours."""
_TIMES = ("window", "interval", "jitter", "max_age")


def _part(kind: type, data: Any, what: str, problems: list[str]) -> Any:
    """A condition, or another part of a policy; None if it cannot be made."""
    data = _mapping(data, what, problems)
    if data is None:
        return None
    data = {_NAMES.get(name, name): value for name, value in data.items()}
    known = {one.name: one.default is MISSING for one in fields(kind)}
    wrong = [f"{what} needs {name!r}" for name, must in known.items() if must and name not in data]
    wrong += [f"unknown field {name!r} of {what}" for name in data if name not in known]
    problems += wrong
    if wrong:
        return None
    times = (*_TIMES, "threshold") if data.get("metric") == SINCE else _TIMES
    return kind(**{k: milliseconds(v) if k in times else v for k, v in data.items()})


def _mapping(data: Any, what: str, problems: list[str]) -> dict[str, Any] | None:
    if isinstance(data, Mapping):
        return dict(data)
    problems.append(f"{what} is a mapping")
    return None


def milliseconds(value: Any) -> Any:
    """A number of milliseconds, also of text like "7d"; what it is not is left to be refused."""
    if isinstance(value, str):
        found = re.fullmatch(r"(\d{1,12})(\.\d{1,6})?(ms|s|m|h|d|w)", value)
        if found is None:
            return value
        number = float(found[1] + found[2]) if found[2] else int(found[1])
        return number * _UNITS[found[3]]
    return value
