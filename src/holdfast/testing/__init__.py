"""What Holdfast's own tests use, open to everybody who writes an engine or an agent.

`check_storage` runs the conformance suite of the storage contract; `CHECKS` has its checks
by name, for a test runner that shows each as its own case. `Counting` and `Faulty` are
storages around a storage: one counts calls and bytes, the other lets chosen calls fail.
`crash` kills an agent around every commit, starts it again, and compares its end with that of
an undisturbed run.
"""

from __future__ import annotations

from holdfast.storage.wrappers.faults import Counting, Faulty
from holdfast.testing.conformance import CHECKS, CheckFailedError, Report, check_storage
from holdfast.testing.crashes import CrashFinding, CrashReport, crash

__all__ = [
    "CHECKS",
    "CheckFailedError",
    "Counting",
    "CrashFinding",
    "CrashReport",
    "Faulty",
    "Report",
    "check_storage",
    "crash",
]
