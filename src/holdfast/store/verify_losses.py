"""Verifying that a timeline has what the feed names, but for what it tells itself is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store import rows
from holdfast.store.losses import find_loss
from holdfast.store.verify_report import KnownLoss

if TYPE_CHECKING:
    from holdfast.store.verify_line import LineCheck


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
