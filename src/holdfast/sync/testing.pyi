# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast.testing import CHECKS as CHECKS
from holdfast.testing import CheckFailedError as CheckFailedError
from holdfast.testing import Counting as Counting
from holdfast.testing import CrashFinding as CrashFinding
from holdfast.testing import CrashReport as CrashReport
from holdfast.testing import Faulty as Faulty
from holdfast.testing import Report as Report
from holdfast.testing import check_storage as check_storage
from holdfast.testing import crash as crash
