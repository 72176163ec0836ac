"""Verifying that a timeline has what the feed names, but for what it tells itself is lost.

What was stored with entries that are told to be lost is accounted for by that: other timelines may
lead to it. One that begins from a lost state is judged by the index that it saved of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.store.journal import entry
from holdfast.store.journal.save import read_save
from holdfast.store.names import rowkinds as rows
from holdfast.store.proof.verify_nodes import DAMAGE
from holdfast.store.proof.verify_report import KnownLoss
from holdfast.store.read.state_check import check_values
from holdfast.store.upkeep.losses import all_told, find_loss, newest_entry

if TYPE_CHECKING:
    from holdfast.store.journal.entry import Body
    from holdfast.store.proof.verify_line import LineCheck


def check_losses(check: LineCheck) -> None:
    """Compare a timeline that was read to its end with the feed.

    How many entries the feed names shows whether anything is lost: only then it is read again, to
    see what.
    """
    line, ledger = check.line, check.ledger
    for loss in check.losses:
        place = rows.describe(rows.entry(line.prefix, loss.at))
        check.report.losses.append(KnownLoss(str(ledger.scope), place, str(loss)))
    surplus = check.losses[-1].surplus if check.losses else 0
    counted = check.check.feed.counted(ledger.number, line.number)
    # Less than there is was named if others write meanwhile, or rows of the feed are damaged.
    whole = ledger.before + counted - line.sequence <= surplus
    if whole and not check.other and (check.losses or line.sequence >= check.head[0]):
        return
    lost = find_loss(check.check.core, ledger, line.number)
    if lost is None:
        return  # it was told before the check was stopped, or others have written meanwhile
    if lost.last > line.sequence:
        said = f"the feed names entry {lost.last}, the newest here is {line.sequence}"
        message = f"{said}: the scope was put back, or entries were dropped"
    elif lost.first == line.sequence:
        message = "it is not the entry that the feed names"
    else:
        message = f"{lost}, were dropped, and others have taken their numbers"
    key = rows.entry(line.prefix, min(lost.first, line.sequence + 1))
    check.find("feed", key, message)


def is_lost(check: LineCheck, timeline: int, sequence: int) -> bool:
    """Whether a timeline tells that its entry of this number is lost; another one may be there."""
    if timeline not in check.told:
        check.told[timeline] = list(all_told(check.ledger, timeline))
    return any(loss.first <= sequence <= loss.last for loss in check.told[timeline])


def stands_on_save(check: LineCheck, key: bytes, body: Body) -> bool:
    """Take the state that an entry has from a lost one from its save; False if it is not that.

    All of that state must be there: what is missing is found.
    """
    op, line, ledger = body.ops[0], check.line, check.ledger
    if op[0] not in (entry.RESTORE, entry.FORK):
        return False
    missing = op[2] > newest_entry(ledger, op[1])  # found and named with its own timeline
    if not missing and not is_lost(check, op[1], op[2]):
        return False
    sequence = rows.sequence_of(key)
    saved = rows.entry(rows.line(b"S", ledger.number, line.number), sequence)
    try:
        save = read_save(ledger.open_row(saved, check.storage.get([saved])[0]))
        root = ledger.trees.load(tuple(save.place), op[3]) if save.place else ledger.trees.empty
        line.rebase(root, {})
        line.apply(sequence, body)
        check_values(ledger, root, read=True)
    except DAMAGE as error:
        check.find("damage", key, str(error))
        check.folding = False
    return True


def check_merge(check: LineCheck, key: bytes, op: list[Any]) -> None:
    """What was merged must still be the history that it was, and the merge before be named."""
    _, timeline, sequence, hash_, before = op
    merged = rows.entry(rows.line(b"E", check.ledger.number, timeline), sequence)
    row = check.storage.get([merged])[0]
    try:
        there = row and check.ledger.entry_hash(merged, entry.split_row(row)[0].data)
    except DAMAGE:
        there = hash_  # found and named where it stands
    if there != hash_ and not is_lost(check, timeline, sequence):
        check.find("chain", key, f"{rows.describe(merged)} is not the entry that it merged")
    if check.folding and before != check.line.merged:
        check.find("chain", key, "it names another merge before it than there is")
