"""What packages above the store may use of it, beside its public classes and `store.names`.

All that reaches behind the wall goes through this door, so that one place shows how much does:
`handle_of` gives the handle behind a State, View or Store (its reader, its plans, its core),
`core_of` the core of a store, of either face; the rest are functions and classes of the floors
below, in the order of their folders. A feature that needs something new adds a line here,
and `tests/test_style.py` refuses every other way in.

Names are imported when they are first used: a command that reads a key loads no verifier.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from holdfast.store.commit.change import Change as Change
    from holdfast.store.commit.change import Target as Target
    from holdfast.store.commit.change import Ticket as Ticket
    from holdfast.store.commit.change import Written as Written
    from holdfast.store.commit.change_request import build_change as build_change
    from holdfast.store.commit.core import Core as Core
    from holdfast.store.commit.expected import Keep as Keep
    from holdfast.store.commit.expected import stand_on as stand_on
    from holdfast.store.commit.expected import sticky_of as sticky_of
    from holdfast.store.commit.gates import Gate as Gate
    from holdfast.store.commit.meter import RECOVERIES as RECOVERIES
    from holdfast.store.commit.meter import TRANSITIONS as TRANSITIONS
    from holdfast.store.commit.meter import Meter as Meter
    from holdfast.store.commit.meter import Metrics as Metrics
    from holdfast.store.commit.meter import done_again as done_again
    from holdfast.store.commit.outcome import content_of as content_of
    from holdfast.store.commit.outcome import id_tag as id_tag
    from holdfast.store.commit.stage import Stage as Stage
    from holdfast.store.commit.storage_view import seen_in as seen_in
    from holdfast.store.history.ancestry import Ancestry as Ancestry
    from holdfast.store.history.ancestry import Point as Point
    from holdfast.store.history.blame import Blame as Blame
    from holdfast.store.history.blame import blame_value as blame_value
    from holdfast.store.history.checkpoint import Plan as Plan
    from holdfast.store.history.diff import expiry_changes as expiry_changes
    from holdfast.store.history.diff import index_of as index_of
    from holdfast.store.history.diff import show_changes as show_changes
    from holdfast.store.history.diff import shown_value as shown_value
    from holdfast.store.history.handle import UPDATES as UPDATES
    from holdfast.store.history.handle import ChangeParts as ChangeParts
    from holdfast.store.history.handle import LineHandle as LineHandle
    from holdfast.store.history.handle import StoreHandle as StoreHandle
    from holdfast.store.history.lookup_settle import settle_after as settle_after
    from holdfast.store.history.merge import MergeConflict as MergeConflict
    from holdfast.store.history.merge import Merged as Merged
    from holdfast.store.history.merge_meta import meta_along as meta_along
    from holdfast.store.history.owned_records import told as told
    from holdfast.store.history.restore import PAUSE as PAUSE
    from holdfast.store.history.restore import beside_pruning as beside_pruning
    from holdfast.store.history.restore import restore_state as restore_state
    from holdfast.store.history.revert import AS_BEFORE as AS_BEFORE
    from holdfast.store.history.revert import Beside as Beside
    from holdfast.store.history.revert import revert_state as revert_state
    from holdfast.store.history.trace import PATCHED as PATCHED
    from holdfast.store.history.trace import Trace as Trace
    from holdfast.store.history.trace import trace as trace
    from holdfast.store.journal import directory as directory
    from holdfast.store.journal import entry as entry
    from holdfast.store.journal.declared import NOTHING as NOTHING
    from holdfast.store.journal.declared import PREFIX as PREFIX
    from holdfast.store.journal.declared import Declaration as Declaration
    from holdfast.store.journal.declared import parse_declared as parse_declared
    from holdfast.store.journal.directory import by_number as by_number
    from holdfast.store.journal.directory import erased_ids as erased_ids
    from holdfast.store.journal.directory import made as made
    from holdfast.store.journal.directory import numbered as numbered
    from holdfast.store.journal.directory import read_tombstone as read_tombstone
    from holdfast.store.journal.entry import CHECKPOINT as CHECKPOINT
    from holdfast.store.journal.entry import KEYED as KEYED
    from holdfast.store.journal.entry import KINDS as KINDS
    from holdfast.store.journal.entry import MERGE as MERGE
    from holdfast.store.journal.entry import RESTORE as RESTORE
    from holdfast.store.journal.entry import Body as Body
    from holdfast.store.journal.entry import Envelope as Envelope
    from holdfast.store.journal.entry import shown as shown
    from holdfast.store.journal.entry import split_row as split_row
    from holdfast.store.journal.feed import LANES as LANES
    from holdfast.store.journal.feed import FeedHeads as FeedHeads
    from holdfast.store.journal.feed import FeedItem as FeedItem
    from holdfast.store.journal.feed import Lanes as Lanes
    from holdfast.store.journal.feed import items_of as items_of
    from holdfast.store.journal.feed import names as names
    from holdfast.store.journal.floor import NO_FLOOR as NO_FLOOR
    from holdfast.store.journal.floor import Floor as Floor
    from holdfast.store.journal.floor import announced_floor as announced_floor
    from holdfast.store.journal.floor import floor_of as floor_of
    from holdfast.store.journal.ledger import Ledger as Ledger
    from holdfast.store.journal.lifetime import KEEP as KEEP
    from holdfast.store.journal.lifetime import LATEST as LATEST
    from holdfast.store.journal.lifetime import READ as READ
    from holdfast.store.journal.lifetime import Meta as Meta
    from holdfast.store.journal.lifetime import Terms as Terms
    from holdfast.store.journal.lifetime import asked_terms as asked_terms
    from holdfast.store.journal.lifetime import check_class as check_class
    from holdfast.store.journal.lifetime import check_ttl as check_ttl
    from holdfast.store.journal.lifetime import read_meta as read_meta
    from holdfast.store.journal.lifetime import terms_of as terms_of
    from holdfast.store.journal.loss import Loss as Loss
    from holdfast.store.journal.loss import loss_text as loss_text
    from holdfast.store.journal.save import BEFORE as BEFORE
    from holdfast.store.journal.save import read_save as read_save
    from holdfast.store.journal.slot import Slot as Slot
    from holdfast.store.journal.slot import keep_sticky as keep_sticky
    from holdfast.store.journal.slot import meta_of as meta_of
    from holdfast.store.journal.slot import slot_of as slot_of
    from holdfast.store.journal.timeline import Timeline as Timeline
    from holdfast.store.journal.timeline import folded_at as folded_at
    from holdfast.store.lease import LONGEST as LONGEST
    from holdfast.store.lease import Asking as Asking
    from holdfast.store.lease import Lease as Lease
    from holdfast.store.lease import LeaseInfo as LeaseInfo
    from holdfast.store.lease import given_back as given_back
    from holdfast.store.lease import lease_name as lease_name
    from holdfast.store.lease import lease_parts as lease_parts
    from holdfast.store.lease import leases_now as leases_now
    from holdfast.store.lease import running_lease as running_lease
    from holdfast.store.lease import taken as taken
    from holdfast.store.lease import taken_async as taken_async
    from holdfast.store.long.long_reader import ByteTree as ByteTree
    from holdfast.store.long.long_writer import LongWriter as LongWriter
    from holdfast.store.proof.cosign import Trust as Trust
    from holdfast.store.proof.prove import checkpoint_view as checkpoint_view
    from holdfast.store.proof.schedule_cells import ScheduleCells as ScheduleCells
    from holdfast.store.proof.verify import verify_store as verify_store
    from holdfast.store.proof.verify_report import Finding as Finding
    from holdfast.store.proof.verify_report import Report as Report
    from holdfast.store.proof.verify_rows import begun_at as begun_at
    from holdfast.store.proof.verify_rows import readable_timelines as readable_timelines
    from holdfast.store.read.change_block import Exact as Exact
    from holdfast.store.read.change_block import ScopedChange as ScopedChange
    from holdfast.store.read.change_block import exact as exact
    from holdfast.store.read.change_block import put as put
    from holdfast.store.read.change_block import sensitive as sensitive
    from holdfast.store.read.change_block import subject_of as subject_of
    from holdfast.store.read.find import Begins as Begins
    from holdfast.store.read.find import Range as Range
    from holdfast.store.read.follow import Follower as Follower
    from holdfast.store.read.follow import Tail as Tail
    from holdfast.store.read.follow import check_position as check_position
    from holdfast.store.read.public_entry import ENDED as ENDED
    from holdfast.store.read.public_entry import public_entry as public_entry
    from holdfast.store.read.reader import Reader as Reader
    from holdfast.store.read.reader import microseconds as microseconds
    from holdfast.store.read.reader import moment as moment
    from holdfast.store.read.state_check import leaves as leaves
    from holdfast.store.rules.checkpoint_marks import ASKING as ASKING
    from holdfast.store.rules.checkpoint_marks import LOOP as LOOP
    from holdfast.store.rules.checkpoint_marks import RESTART as RESTART
    from holdfast.store.rules.classes import SENSITIVE as SENSITIVE
    from holdfast.store.rules.classes import Classed as Classed
    from holdfast.store.rules.ephemeral import ephemeral_prefixes as ephemeral_prefixes
    from holdfast.store.rules.gate_request import Asked as Asked
    from holdfast.store.rules.gate_request import GateReading as GateReading
    from holdfast.store.rules.gate_request import Operation as Operation
    from holdfast.store.rules.keep import kept_past as kept_past
    from holdfast.store.rules.lookup import BUILT as BUILT
    from holdfast.store.rules.lookup import TERMS as TERMS
    from holdfast.store.rules.lookup import count_keys as count_keys
    from holdfast.store.rules.lookup import derived as derived
    from holdfast.store.rules.masks import Rules as Rules
    from holdfast.store.rules.masks import masks as masks
    from holdfast.store.rules.masks import rules_of as rules_of
    from holdfast.store.rules.owned_keys import ATTACHED as ATTACHED
    from holdfast.store.rules.owned_keys import DATA as DATA
    from holdfast.store.rules.owned_keys import DONE as DONE
    from holdfast.store.rules.owned_keys import EFFECTS as EFFECTS
    from holdfast.store.rules.owned_keys import HANDOVER_LOG as HANDOVER_LOG
    from holdfast.store.rules.owned_keys import LOG as LOG
    from holdfast.store.rules.owned_keys import MACHINE as MACHINE
    from holdfast.store.rules.owned_keys import NOW as NOW
    from holdfast.store.rules.owned_keys import OPEN as OPEN
    from holdfast.store.rules.owned_keys import SEEN as SEEN
    from holdfast.store.rules.owned_keys import TASKS as TASKS
    from holdfast.store.rules.owned_keys import companion as companion
    from holdfast.store.rules.owned_keys import leader as leader
    from holdfast.store.rules.sticky import COLLECTED as COLLECTED
    from holdfast.store.rules.sticky import Sticky as Sticky
    from holdfast.store.rules.sticky import apart as apart
    from holdfast.store.rules.sticky import sticky_prefixes as sticky_prefixes
    from holdfast.store.rules.subjects import Kept as Kept
    from holdfast.store.rules.subjects import has_sealed as has_sealed
    from holdfast.store.rules.trim import trim_of as trim_of
    from holdfast.store.state import View
    from holdfast.store.state_async import View as AsyncView
    from holdfast.store.state_async import pump_of as pump_of
    from holdfast.store.store import Store
    from holdfast.store.store_async import Store as AsyncStore
    from holdfast.store.tree import json as json
    from holdfast.store.tree import refs as refs
    from holdfast.store.tree.difference import DELETED as DELETED
    from holdfast.store.tree.difference import MISSING as MISSING
    from holdfast.store.tree.difference import Diff as Diff
    from holdfast.store.tree.difference import Difference as Difference
    from holdfast.store.tree.difference import contrasted as contrasted
    from holdfast.store.tree.difference import identity as identity
    from holdfast.store.tree.difference import masked_changes as masked_changes
    from holdfast.store.tree.difference import same as same
    from holdfast.store.tree.difference import tree_changes as tree_changes
    from holdfast.store.tree.difference import value_changes as value_changes
    from holdfast.store.tree.json import dumps as dumps
    from holdfast.store.tree.json import tagged as tagged
    from holdfast.store.tree.json import write as write
    from holdfast.store.tree.refs import WHOLE as WHOLE
    from holdfast.store.tree.split import Atom as Atom
    from holdfast.store.tree.tree import Node as Node
    from holdfast.store.tree.tree import Trees as Trees
    from holdfast.store.tree.value import AHEAD as AHEAD
    from holdfast.store.tree.value import copied as copied
    from holdfast.store.upkeep.end import end_after as end_after
    from holdfast.store.upkeep.end import end_line as end_line
    from holdfast.store.upkeep.end import ended_if_it_fails as ended_if_it_fails
    from holdfast.store.upkeep.erase import erase_scope as erase_scope
    from holdfast.store.upkeep.erase import finish_erasures as finish_erasures
    from holdfast.store.upkeep.expiry import SWEPT as SWEPT
    from holdfast.store.upkeep.holds import DEPENDS as DEPENDS
    from holdfast.store.upkeep.holds import REASONS as REASONS
    from holdfast.store.upkeep.holds import Held as Held
    from holdfast.store.upkeep.holds import Rest as Rest
    from holdfast.store.upkeep.holds import depends_in as depends_in
    from holdfast.store.upkeep.holds import forget_rests as forget_rests
    from holdfast.store.upkeep.holds import held as held
    from holdfast.store.upkeep.holds import is_backup as is_backup
    from holdfast.store.upkeep.holds import mark_key as mark_key
    from holdfast.store.upkeep.holds import marked as marked
    from holdfast.store.upkeep.holds import marked_entries as marked_entries
    from holdfast.store.upkeep.holds import marks_of as marks_of
    from holdfast.store.upkeep.holds import rest_on as rest_on
    from holdfast.store.upkeep.holds import rests_on as rests_on
    from holdfast.store.upkeep.losses import find_loss as find_loss
    from holdfast.store.upkeep.losses import make_room as make_room
    from holdfast.store.upkeep.losses import newest_entry as newest_entry
    from holdfast.store.upkeep.losses import tell as tell
    from holdfast.store.upkeep.past_needs import NEEDS as NEEDS
    from holdfast.store.upkeep.prune import Needed as Needed
    from holdfast.store.upkeep.prune import prune_state as prune_state
    from holdfast.store.upkeep.rotate import Resealed as Resealed

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
    "holdfast.store.journal.feed": "LANES FeedHeads FeedItem Lanes items_of names",
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
    "holdfast.store.long.long_reader": "ByteTree",
    "holdfast.store.long.long_writer": "LongWriter",
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
_HOME = {name: home for home, names in HOMES.items() for name in names.split()}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of the table, or a module of a package that it names."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOME[name]
        module = import_module(home)
        found = getattr(module, name) if hasattr(module, name) else import_module(f"{home}.{name}")
        globals()[name] = found  # so that it is looked for once
        return found


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
