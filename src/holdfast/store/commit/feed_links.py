"""What comes behind entries of another timeline, and says so in the feed: its *links*.

The feed keeps the order of each timeline by its numbers. Two things begin with none before them:
a scope that is made again under the name of a deleted one, and a fork. Their first commit names the
end of the one, and where the other starts. So whoever reads the feed gets both behind it, whatever
lanes they lie in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.storage.contract import Storage
from holdfast.store.journal.feed import FeedItem
from holdfast.store.names import rowkinds

if TYPE_CHECKING:
    from holdfast.store.commit.stage import Stage
    from holdfast.store.journal.ledger import Ledger


def link(scope: int, timeline: int, last: int) -> FeedItem:
    """What comes with it in a commit is behind this entry of a timeline."""
    return FeedItem(scope, timeline, last + 1, 0, bytes(32))


def end_of(storage: Storage, scope: int) -> FeedItem | None:
    """The link to the end of a deleted scope; None if it was erased since: nobody reads it."""
    line = rowkinds.line(b"E", scope, 0)
    newest = storage.scan(line, rowkinds.after(line), limit=1, reverse=True)
    return link(scope, 0, rowkinds.sequence_of(newest[0][0])) if newest else None


def links(stages: Mapping[tuple[int, int], Stage], born: Iterable[Ledger]) -> list[FeedItem]:
    """The links of a commit; what it extends itself it comes behind in any case."""
    found = [*(ledger.behind for ledger in born), *(stage.behind for stage in stages.values())]
    wanted = (item for item in found if item and (item.scope, item.timeline) not in stages)
    return list(dict.fromkeys(wanted))
