# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast.access.audit import Audit as Audit
from holdfast.access.audit import Read as Read
