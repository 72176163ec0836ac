"""Names of leases that stand for something else: always legal, and never two things with one name.

lease_name("recovery", "agent:7")        # recovery/agent:7
lease_name("agent", "a/b")               # agent/a%2Fb
running_lease(Scope("agent", "7"))       # agent/7: of who runs it
"""

from __future__ import annotations

from hashlib import sha256

from holdfast.errors import InvalidKeyError
from holdfast.store.names.scope import Scope, check_key, escape, unescape

_HASHED = "/%~"
"""What no escaped part begins with."""


def lease_name(*parts: str) -> str:
    """The name of a lease that these parts have, and no others.

    Parts are joined by `/`, with `/` and `%` in them percent-encoded. What is too long for a key or
    would be no legal one has a hash behind its first part, which is one of the program's own.
    """
    name = "/".join(map(escape, parts))
    try:
        if check_key(name) == name:
            return name
    except InvalidKeyError:
        pass
    return f"{parts[0]}{_HASHED}{sha256(name.encode()).hexdigest()}"


def lease_parts(name: str) -> list[str] | None:
    """The parts that make such a name; None if they are hashed."""
    return None if _HASHED in name else [unescape(part) for part in name.split("/")]


def running_lease(scope: Scope, timeline: str = "main") -> str:
    """The lease of who runs an agent; each timeline has its own."""
    parts = [scope.kind, scope.id, "" if timeline == "main" else timeline]
    return lease_name(*filter(None, parts))
