# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast.access.audit import Audit as Audit
from holdfast.access.audit import AuditedRead as AuditedRead
from holdfast.access.grants import Access as Access
from holdfast.access.grants import Grant as Grant
from holdfast.access.protection import CARD as CARD
from holdfast.access.protection import SSN as SSN
from holdfast.access.protection import Protection as Protection
