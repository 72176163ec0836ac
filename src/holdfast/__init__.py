"""Holdfast: durable, verifiable state for AI agents.

    async with holdfast.open("sqlite:agents.db") as store:
        state = store.agent("researcher-7")
        await state.set("plan", {"goal": "ship"})
        safe = await state.checkpoint("before deploy")
        await state.restore(safe)

`holdfast.sync` has the same names without `await`. Start with docs/getting-started.md.
"""

from holdfast.aio import Change, State, Store, View, open
from holdfast.errors import HoldfastError
from holdfast.seal.codec import ValueLimits
from holdfast.seal.registry import Registry, default_registry
from holdfast.store.clock import Clock
from holdfast.store.compare import Diff, Difference
from holdfast.store.entries import Cause
from holdfast.store.gates import Gate, Operation, Request
from holdfast.store.items import Checkpoint, Entry, Item, Page, Restored, ScopeInfo, TimelineInfo
from holdfast.store.scopes import Scope
from holdfast.store.verify import Finding, Report
from holdfast.store.witness import Position

register = default_registry.register

__version__ = "0.1.0"

__all__ = [
    "Cause",
    "Change",
    "Checkpoint",
    "Clock",
    "Diff",
    "Difference",
    "Entry",
    "Finding",
    "Gate",
    "HoldfastError",
    "Item",
    "Operation",
    "Page",
    "Position",
    "Registry",
    "Report",
    "Request",
    "Restored",
    "Scope",
    "ScopeInfo",
    "State",
    "Store",
    "TimelineInfo",
    "ValueLimits",
    "View",
    "open",
    "register",
]
