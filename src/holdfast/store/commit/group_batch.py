"""What the entries of a group become: one batch for the storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.storage.contract import Batch
from holdfast.store.journal.feed import FeedItem, Lanes
from holdfast.store.names import rowkinds

if TYPE_CHECKING:
    from holdfast.store.commit.group_commit import Attempt
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.ledger import Ledger


def batch_of(attempt: Attempt, lanes: Lanes) -> tuple[Batch, bytes]:
    """Everything that a group writes, and what it expects; and the row of the feed among it."""
    batch = Batch()
    items = links(attempt.stages, attempt.born)
    for stage in attempt.stages.values():
        count = stage.sequence - stage.start
        ledger, timeline = stage.ledger, stage.timeline
        items.append(FeedItem(ledger.number, timeline.number, stage.start + 1, count, stage.head))
        batch.puts.extend(stage.rows)
        batch.absent.append(rowkinds.entry(timeline.prefix, stage.start + 1))
        batch.absent.extend(stage.absent)
        batch.cells.extend(stage.cells)
        if ledger.birth is None:
            # Its entries may be dropped already: their absence alone would not stop this.
            batch.absent.append(ledger.tombstone)
    for ledger in attempt.born:
        batch.puts.extend(ledger.birth or ())
        batch.absent.extend(key for key, _ in ledger.birth or ())
    # Where two changes expect different things of one cell, that of the first does not hold.
    batch.cells = [*{one[0]: one for one in reversed(batch.cells)}.values()]
    batch.cells += [(key, cell, cell) for key, cell in attempt.cells.items()]
    batch.puts.extend(attempt.extra)
    batch.absent = list(dict.fromkeys([*batch.absent, *attempt.absent]))  # forks share theirs
    feed_key, feed_row = lanes.next_row(items)
    batch.puts.append((feed_key, feed_row))
    batch.absent.append(feed_key)
    return batch, feed_row


# ---- feed links ---------------------------------------------------------------------------------
# What comes behind entries of another timeline, and says so in the feed: its *links*.
#
# The feed keeps the order of each timeline by its numbers. Two things begin with none before them:
# a scope that is made again under the name of a deleted one, and a fork. Their first commit names
# the end of the one, and where the other starts. So whoever reads the feed gets both behind it,
# whatever lanes they lie in.


def links(stages: Mapping[tuple[int, int], Stage], born: Iterable[Ledger]) -> list[FeedItem]:
    """The links of a commit; what it extends itself it comes behind in any case."""
    found = [*(ledger.behind for ledger in born), *(stage.behind for stage in stages.values())]
    wanted = (item for item in found if item and (item.scope, item.timeline) not in stages)
    return list(dict.fromkeys(wanted))
