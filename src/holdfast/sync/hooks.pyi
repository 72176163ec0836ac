# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast.hooks.breaker import Breaker as Breaker
from holdfast.hooks.breaker import BreakerSettings as BreakerSettings
from holdfast.hooks.built_in import backup_on_change as backup_on_change
from holdfast.hooks.built_in import persistence as persistence
from holdfast.hooks.built_in import validation as validation
from holdfast.hooks.hook import HookMetrics as HookMetrics
from holdfast.hooks.hook import ReplayReport as ReplayReport
from holdfast.hooks.hook import TimeRange as TimeRange
from holdfast.hooks.hook_events import Cache as Cache
from holdfast.hooks.hook_events import Cancel as Cancel
from holdfast.hooks.hook_events import Changed as Changed
from holdfast.hooks.hook_events import Continue as Continue
from holdfast.hooks.hook_events import Fork as Fork
from holdfast.hooks.hook_events import HookContext as HookContext
from holdfast.hooks.hook_events import Modified as Modified
from holdfast.hooks.hook_events import Redirect as Redirect
from holdfast.hooks.hook_events import Replace as Replace
from holdfast.hooks.hook_events import Retry as Retry
from holdfast.hooks.hook_events import Skipped as Skipped
from holdfast.hooks.hooks import Hooks as Hooks
