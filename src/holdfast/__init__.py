"""Holdfast: durable, verifiable state for AI agents.

    async with holdfast.open("sqlite:agents.db") as store:
        state = store.agent("researcher-7")
        await state.set("plan", {"goal": "ship"})
        safe = await state.checkpoint("before deploy")
        await state.restore(safe)

What is done for agents has parts of its own: `holdfast.agents`, `.checkpoints`, `.recovery`,
`.backup`, `.replicas`, `.access`, `.testing`. `holdfast.sync` has the same names without `await`,
its parts too (`from holdfast.sync.agents import Effects`). `DELETED` stands for a value where
there is none (in the conflicts of a merge), `ERASED` for one that was sealed for a subject who is
erased. Start with docs/getting-started.md.
"""

from __future__ import annotations

from holdfast import errors as errors
from holdfast.errors import HoldfastError
from holdfast.exports import PARTS, lazy

__version__ = "0.1.0"

__all__ = [
    "DELETED",
    "ERASED",
    "Begins",
    "Book",
    "BookPage",
    "Cause",
    "Change",
    "Checkpoint",
    "Classed",
    "Clock",
    "Diff",
    "Entry",
    "Ephemeral",
    "Gate",
    "GateReading",
    "GateRequest",
    "HoldfastError",
    "Item",
    "Keep",
    "Lease",
    "Lookup",
    "MergeConflict",
    "Operation",
    "Owned",
    "Page",
    "Position",
    "Proof",
    "Range",
    "Registry",
    "Report",
    "Scope",
    "State",
    "Sticky",
    "Store",
    "Typed",
    "ValueLimits",
    "View",
    "Watch",
    "errors",
    "open",
    "register",
    "sync",
]

HOMES = {
    "holdfast.store.book": "Book BookPage",
    "holdfast.seal.codec": "Typed ValueLimits",
    "holdfast.seal.registry": "Registry register",
    "holdfast.seal.subject_keys": "ERASED",
    "holdfast.store.history.merge": "MergeConflict",
    "holdfast.store.lease": "Lease",
    "holdfast.store.names.cause": "Cause",
    "holdfast.store.names.clock": "Clock",
    "holdfast.store.names.items": "Checkpoint Entry Item Page Position",
    "holdfast.store.names.scope": "Scope",
    "holdfast.store.proof.prove": "Proof",
    "holdfast.store.proof.verify_report": "Report",
    "holdfast.store.read.find": "Begins Range",
    "holdfast.store.rules.classes": "Classed",
    "holdfast.store.rules.ephemeral": "Ephemeral",
    "holdfast.store.rules.gates": "Gate GateReading GateRequest Operation",
    "holdfast.store.rules.keep": "Keep",
    "holdfast.store.rules.lookup": "Lookup",
    "holdfast.store.rules.owned": "Owned",
    "holdfast.store.rules.sticky": "Sticky",
    "holdfast.store.read.watch": "Watch",
    "holdfast.store.state_async": "State View",
    "holdfast.store.store": "Change",
    "holdfast.store.store_async": "Store open",
    "holdfast.store.tree.difference": "DELETED Diff",
}

_find, __dir__ = lazy(__name__, HOMES)


def __getattr__(name: str) -> object:
    """A public name, or a part of the package, when it is first used."""
    if name == "sync" or name in PARTS:
        from importlib import import_module

        return import_module(f"holdfast.{name}")
    return _find(name)
