"""Checkpoints that take care of themselves.

`Scheduler` runs checkpoints and jobs at intervals and by the calendar, once, in one of several
processes. `ShutdownCheckpoints` makes the last ones before a process ends. Both are made from an
open store; schedules are cells of it, and no state.
"""
