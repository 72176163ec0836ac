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
    from holdfast.store.commit.core import Core
    from holdfast.store.history.handle import LineHandle, StoreHandle
    from holdfast.store.state import View
    from holdfast.store.state_async import View as AsyncView
    from holdfast.store.store import Store
    from holdfast.store.store_async import Store as AsyncStore

HOMES = {
    "holdfast.store.commit.change": "Change Target Ticket Written",
    "holdfast.store.commit.change_request": "build_change",
    "holdfast.store.commit.core": "Core",
    "holdfast.store.commit.expected": "Keep stand_on sticky_of",
    "holdfast.store.commit.gates": "Gate",
    "holdfast.store.commit.meter": "RECOVERIES TRANSITIONS Meter Metrics done_again",
    "holdfast.store.commit.outcome": "content_of id_tag",
    "holdfast.store.commit.stage": "Stage",
    "holdfast.store.commit.storage_view": "seen_in",
    "holdfast.store.state_async": "pump_of",
    "holdfast.store.history.ancestry": "Ancestry Point",
    "holdfast.store.history.blame": "Blame blame_value",
    "holdfast.store.history.checkpoint": "Plan",
    "holdfast.store.history.diff": "expiry_changes index_of show_changes shown_value",
    "holdfast.store.history.handle": "UPDATES ChangeParts LineHandle StoreHandle",
    "holdfast.store.history.lookup_settle": "settle_after",
    "holdfast.store.history.merge": "MergeConflict Merged",
    "holdfast.store.history.merge_meta": "meta_along",
    "holdfast.store.history.owned_records": "told",
    "holdfast.store.history.restore": "PAUSE beside_pruning restore_state",
    "holdfast.store.history.revert": "AS_BEFORE Beside revert_state",
    "holdfast.store.history.trace": "PATCHED Trace trace",
    "holdfast.store.journal": "directory entry",
    "holdfast.store.journal.declared": "NOTHING PREFIX Declaration parse_declared",
    "holdfast.store.journal.directory": "by_number erased_ids made numbered read_tombstone",
    "holdfast.store.journal.entry": (
        "CHECKPOINT KEYED KINDS MERGE RESTORE Body Envelope shown split_row"
    ),
    "holdfast.store.journal.feed": "LANES FeedHeads FeedItem Lanes items_of",
    "holdfast.store.journal.floor": "NO_FLOOR Floor announced_floor floor_of",
    "holdfast.store.journal.ledger": "Ledger",
    "holdfast.store.journal.lifetime": (
        "KEEP LATEST READ Meta Terms asked_terms check_class check_ttl read_meta terms_of"
    ),
    "holdfast.store.journal.loss": "Loss loss_text",
    "holdfast.store.journal.save": "BEFORE read_save",
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
    "holdfast.store.proof.verify_report": "Finding Report",
    "holdfast.store.proof.verify_rows": "begun_at readable_timelines",
    "holdfast.store.read.change_block": "Exact ScopedChange exact put sensitive subject_of",
    "holdfast.store.read.find": "Begins Range",
    "holdfast.store.read.follow": "Follower Tail check_position",
    "holdfast.store.read.public_entry": "ENDED public_entry",
    "holdfast.store.read.reader": "Reader microseconds moment",
    "holdfast.store.read.state_check": "leaves",
    "holdfast.store.rules.checkpoint_marks": "ASKING LOOP RESTART",
    "holdfast.store.rules.classes": "SENSITIVE Classed",
    "holdfast.store.rules.ephemeral": "ephemeral_prefixes",
    "holdfast.store.rules.gate_request": "Asked GateReading Operation",
    "holdfast.store.rules.keep": "kept_past",
    "holdfast.store.rules.lookup": "BUILT TERMS count_keys derived",
    "holdfast.store.rules.masks": "Rules masks rules_of",
    "holdfast.store.rules.owned_keys": (
        "ATTACHED DATA DONE EFFECTS HANDOVER_LOG LOG MACHINE NOW OPEN SEEN TASKS companion leader"
    ),
    "holdfast.store.rules.sticky": "COLLECTED Sticky apart sticky_prefixes",
    "holdfast.store.rules.subjects": "Kept has_sealed",
    "holdfast.store.rules.trim": "trim_of",
    "holdfast.store.tree": "json refs",
    "holdfast.store.tree.difference": (
        "DELETED MISSING Diff Difference contrasted identity masked_changes same "
        "tree_changes value_changes"
    ),
    "holdfast.store.tree.json": "dumps tagged write",
    "holdfast.store.tree.refs": "WHOLE",
    "holdfast.store.tree.split": "Atom",
    "holdfast.store.tree.tree": "Node Trees",
    "holdfast.store.tree.value": "AHEAD copied",
    "holdfast.store.upkeep.end": "end_after end_line ended_if_it_fails",
    "holdfast.store.upkeep.erase": "erase_scope finish_erasures",
    "holdfast.store.upkeep.expiry": "SWEPT",
    "holdfast.store.upkeep.holds": (
        "DEPENDS REASONS Held Rest depends_in forget_rests held is_backup mark_key marked "
        "marked_entries marks_of rest_on rests_on"
    ),
    "holdfast.store.upkeep.losses": "find_loss make_room newest_entry tell",
    "holdfast.store.upkeep.past_needs": "NEEDS",
    "holdfast.store.upkeep.prune": "Needed prune_state",
    "holdfast.store.upkeep.rotate": "Resealed",
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
