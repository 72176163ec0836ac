"""What Holdfast's own tests use, open to everybody who writes an engine.

`check_storage` runs the conformance suite of the storage contract; `CHECKS` has its checks
by name, for a test runner that shows each as its own case. `Counting` and `Faulty` are
storages around a storage: one counts calls and bytes, the other lets chosen calls fail.
"""

from __future__ import annotations

from holdfast.storage.wrappers import Counting, Faulty
from holdfast.testing.conformance import CHECKS, Report, check_storage
from holdfast.testing.helpers import CheckFailedError

__all__ = ["CHECKS", "CheckFailedError", "Counting", "Faulty", "Report", "check_storage"]
