"""What packages above the store may use of it, beside its public classes and `store.names`.

All that reaches behind the wall goes through this door, so that one place shows how much does:
`handle_of` gives the handle behind a State, View or Store (its reader, its plans, its core),
`core_of` the core of a store, of either face; the rest are functions and classes of the floors
below, in the order of their folders. A feature that needs something new adds a line here,
and `tests/test_style.py` refuses every other way in.

Names are imported when they are first used: a command that reads a key loads no verifier. Their
types stand in a stub, which scripts/stubs.py writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from holdfast.exports import lazy

if TYPE_CHECKING:
    from holdfast.store.commit.group import Core
    from holdfast.store.history.handle import LineHandle, StoreHandle
    from holdfast.store.state import View
    from holdfast.store.state_async import View as AsyncView
    from holdfast.store.store import Store
    from holdfast.store.store_async import Store as AsyncStore

HOMES = {
    "holdfast.store.book": (
        "TOLD Book BookPage Books Running again_in_steps announce announced listen loaded "
        "look own_change own_step own_steps run_parts sticky stored"
    ),
    "holdfast.store.commit.change": (
        "Change Outcome Target Ticket Written build_change content_of id_tag row_of seal_outcome"
    ),
    "holdfast.store.commit.group": "Core seen_in",
    "holdfast.store.names.meter": (
        "CHECKPOINTS EVENTS_LOGGED HOOKS RECOVERIES TRANSITIONS Meter Metrics"
    ),
    "holdfast.store.commit.stage": "Keep Stage stand_on sticky_of",
    "holdfast.store.history.trace": "PATCHED Trace trace",
    "holdfast.store.history.checkpoint": "Plan",
    "holdfast.store.history.diff": "expiry_changes index_of show_changes shown_value",
    "holdfast.store.history.handle": "ChangeParts LineHandle StoreHandle",
    "holdfast.store.history.merge": "Ancestry MergeConflict Merged Point",
    "holdfast.store.history.merge_values": "meta_along",
    "holdfast.store.history.restore": "PAUSE beside_pruning restore_state settle_after told",
    "holdfast.store.history.revert": "AS_BEFORE revert_state",
    "holdfast.store.journal": "directory entry",
    "holdfast.store.journal.declared": (
        "NOTHING PREFIX CheckingDeclaration Declaration parse_declared"
    ),
    "holdfast.store.journal.directory": "by_number erased_ids made numbered read_tombstone",
    "holdfast.store.journal.entry": (
        "CHECKPOINT KEYED KINDS MERGE RESTORE Body Envelope shown split_row"
    ),
    "holdfast.store.journal.feed": "GAP LANES Bell FeedHeads FeedItem Lanes items_of",
    "holdfast.store.journal.floor": "Loss announced_floor loss_text stated",
    "holdfast.store.journal.ledger": "Ledger leaves",
    "holdfast.store.journal.lifetime": (
        "KEEP LATEST READ Meta Terms check_class check_ttl read_meta terms_of"
    ),
    "holdfast.store.journal.save": "BEFORE NO_FLOOR Floor read_save",
    "holdfast.store.journal.slot": "Slot keep_sticky meta_of slot_of",
    "holdfast.store.journal.timeline": "Timeline folded_at",
    "holdfast.store.lease": (
        "LONGEST Asking Lease LeaseInfo given_back lease_name lease_parts leases_now "
        "running_lease taken taken_async"
    ),
    "holdfast.store.long": "ByteTree LongWriter",
    "holdfast.store.proof.cosign": "Trust",
    "holdfast.store.proof.prove": "checkpoint_view",
    "holdfast.store.proof.schedule_cells": "ScheduleCells",
    "holdfast.store.proof.verify": "verify_store",
    "holdfast.store.proof.verify_report": "Finding Report told_together",
    "holdfast.store.proof.verify_rows": "begun_at readable_timelines",
    "holdfast.store.read.change_block": "Exact ScopedChange exact put sensitive",
    "holdfast.store.read.cursor": "Cursor cursors",
    "holdfast.store.read.find": "Begins Range",
    "holdfast.store.read.points": "ENDED public_entry",
    "holdfast.store.read.reader": "Reader masks microseconds moment rules_of",
    "holdfast.store.read.watch": "Follower Tail Watch check_position",
    "holdfast.store.rules": "keep",
    "holdfast.store.rules.classes": "SENSITIVE Classed Rules",
    "holdfast.store.rules.ephemeral": "ephemeral_prefixes",
    "holdfast.store.rules.gates": "Asked Gate GateReading GateRequest Gates Operation",
    "holdfast.store.rules.keep": "kept_past trim_of",
    "holdfast.store.rules.owned": "TABLE Owned",
    "holdfast.store.rules.lookup": "BUILT TERMS Lookup count_keys derived encode_term",
    "holdfast.store.rules.hold_reasons": "REASONS RESTART RETENTION",
    "holdfast.store.rules.sticky": "Sticky apart sticky_along sticky_prefixes",
    "holdfast.store.rules.subjects": "Kept has_sealed",
    "holdfast.store.tree": "json_values refs",
    "holdfast.store.tree.difference": (
        "DELETED MISSING Diff Difference contrasted identity masked_changes same tree_changes"
    ),
    "holdfast.store.tree.json_values": "dumps tagged write",
    "holdfast.store.tree.refs": "WHOLE",
    "holdfast.store.tree.split": "Atom",
    "holdfast.store.tree.tree": "Node Trees",
    "holdfast.store.tree.value": "AHEAD copied",
    "holdfast.store.upkeep.end": "end_after end_line ended_if_it_fails",
    "holdfast.store.upkeep.erase": "erase_scope finish_erasures",
    "holdfast.store.upkeep.expiry": "SWEPT",
    "holdfast.store.upkeep.holds": (
        "DEPENDS Held Need depends_in forget_rests held is_backup mark_key marked marks_of needs "
        "rest_on"
    ),
    "holdfast.store.upkeep.losses": (
        "NO_SIGNER STATED find_loss make_room newest_entry state_losses tell"
    ),
    "holdfast.store.upkeep.prune": "prune_state",
}
__getattr__, __dir__ = lazy(__name__, HOMES, blocking=True)


@overload
def handle_of(thing: View | AsyncView) -> LineHandle: ...
@overload
def handle_of(thing: Store | AsyncStore) -> StoreHandle: ...
def handle_of(thing: View | AsyncView | Store | AsyncStore) -> LineHandle | StoreHandle:
    """The handle behind a public object; what it has is not for users."""
    return thing._handle


def core_of(store: Store | AsyncStore) -> Core:
    """The core behind a store: its storage, keys, leases and commits."""
    return store._core
