"""Which process holds a lease, and whether it is known to be no more.

The name of a holder is `HOST/NUMBER`, and on Linux behind it `#MACHINE.START`: a hash of what
numbers of processes mean anything in (the kernel since it was started, the namespace of processes,
that of times), and when the process was started. So a process that was killed is told from

- one of another machine or container that has the same host name and number: another `MACHINE`;
- one that was given its number since: another `START`;
- one that only is not heard, stopped or slow: it is there.

Where any of this cannot be seen, nobody is known to be gone, and time decides. One that was frozen
and is thawed as another process counts as gone: what it writes under its leases is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import lru_cache

_MARK = re.compile(r"/(\d{1,10})#([0-9a-f]{16})\.(\d+)$", re.ASCII)
_ENDED = "ended"
"""Stands for the start of a process that has ended, though its number is not free yet."""


def this_process() -> str:
    """The name under which this process holds leases."""
    return _name_of(os.getpid())


@lru_cache(1)
def _name_of(number: int) -> str:
    import socket  # only who takes a lease pays for loading it

    name = f"{socket.gethostname()[:200]}/{number}"
    machine, start = _machine(number), _start(number)
    return f"{name}#{machine}.{start}" if machine and start else name


def shown(owner: str | None) -> str | None:
    """What people see of the name of a holder."""
    mark = _MARK.search(owner) if owner else None
    return owner[: mark.start(2) - 1] if owner and mark else owner


def is_gone(owner: str | None) -> bool:
    """Whether a holder is a process of this machine that is no more; False if that is not known."""
    mark = _MARK.search(owner) if owner else None
    if mark is None or mark[2] != _machine(os.getpid()):
        return False
    number = int(mark[1])
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # there is one that is another user's
    start = _start(number)
    return start is not None and start != mark[3]


@lru_cache(1)
def _machine(mine: int) -> str | None:
    """A hash of what the numbers of processes, this one's too, are good within; None if that cannot
    be seen."""
    try:
        if os.readlink("/proc/self") != str(mine):
            return None  # it shows the numbers of another namespace
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts = [file.read().strip(), os.readlink("/proc/self/ns/pid")]
        if os.path.lexists("/proc/self/ns/time"):  # starts are told as this one counts
            parts.append(os.readlink("/proc/self/ns/time"))
    except OSError:
        return None
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16] if all(parts) else None


def _start(number: int) -> str | None:
    """When a process was started, in ticks of its kernel; None if that cannot be seen."""
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            data = file.read()
        fields = data[data.rindex(b")") + 2 :].split()  # behind its name, which may hold anything
        state, threads, start = fields[0], int(fields[17]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
    # Nobody has asked how it ended, and none of its threads is left, which may outlive the first.
    return _ENDED if state in (b"Z", b"X") and threads <= 1 else str(start)
