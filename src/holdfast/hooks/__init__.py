"""Hooks: functions that are called before changes, or told of them behind.

Glossary of this layer:

- **Hook**: a function, and which events it is told of (`hook`, `hooks`). In **front** it stands in
  a gate of the store; **behind**, it reads the feed (`hook_runner`).
- **Event** and **result**: what a hook is told, and what it may answer (`hook_events`).
- **Built in**: hooks that validate, make backups and save agents (`built_in`).
- **Breaker**: leaves alone for a while what fails again and again (`breaker`).
- **Replay**: a hook called with what is in the journal (`hook`).
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.hooks.breaker": "Breaker BreakerSettings",
    "holdfast.hooks.built_in": "backup_on_change persistence validation",
    "holdfast.hooks.hook": "HookMetrics ReplayReport TimeRange",
    "holdfast.hooks.hook_events": (
        "Cache Cancel Changed Continue Fork HookContext Modified Redirect Replace Retry Skipped"
    ),
    "holdfast.hooks.hooks": "Hooks",
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
