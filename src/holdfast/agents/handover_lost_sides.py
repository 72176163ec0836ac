"""Handovers of which one agent has lost its side: it is taken from the side of the other.

Both agents keep the record of a handover, written in one commit. If entries of one of them are lost
(`store.losses`), or what it keeps of handovers cannot be read and is of before, its newest records
are missing, or those of before an answer, and with them what came with the answer: then nobody has
the task, or both do. The other's record says what became of it. What was handed over is not in that
record; it is in the giver's history, before the entry that gave it away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from holdfast.agents.again import again
from holdfast.agents.agent_keys import own_change, sticky
from holdfast.agents.handover_messages import place_of
from holdfast.agents.handover_package import (
    Load,
    conversation,
    give,
    keep,
    kept_of,
    load_of,
    packed,
    place,
    take_again,
)
from holdfast.agents.handover_records import (
    ACCEPTED,
    IN,
    LOG,
    OFFERED,
    OUT,
    PACKAGES,
    STANDINGS,
    WAITING,
    Package,
    Record,
    record_of,
    standing_of,
)
from holdfast.agents.records import stored
from holdfast.errors import MissingError, StateIntegrityError
from holdfast.store.commit.request import ScopedChange
from holdfast.store.history.handle import LineHandle
from holdfast.store.names import rowkinds
from holdfast.store.read.reader import Reader
from holdfast.store.rules.owned_keys import SEEN


def reason_of(id: str, what: str) -> str:
    """What the entries of a step of a handover are known by."""
    return f"handover {id} {what}"


def mend(store: Any, agent: LineHandle, others: Iterable[LineHandle]) -> list[str]:
    """Give an agent the records that it lost, as the others have them, and do what they say.

    Gives, for people, what cannot be had again: tasks that were handed to it.
    """
    behind = sorted(_behind(agent, others), key=lambda one: _moved(one[0]))
    if not behind:
        return []

    def step() -> list[str]:
        parts = own_change(store, reason="what it lost of handovers")
        part = parts.part(agent)
        part.operations += sticky(agent, LOG)
        lost = [_note(part, *one) for one in behind]
        plan = parts.plan()
        if plan is not None:
            agent.core.run(plan[0])
        return [text for text in lost if text]

    return again(step)


def _behind(
    agent: LineHandle, others: Iterable[LineHandle]
) -> Iterable[tuple[Record, str, LineHandle]]:
    """Records of others that this agent lacks, or knows no answer to, and where it keeps them."""
    for other in others:
        for theirs, mine in ((OUT, IN), (IN, OUT)):
            for _, data in other.reader.items(theirs, None, "", False):
                record = record_of(data)
                if str(agent.scope) != (record.taker if mine == IN else record.giver):
                    continue
                known = agent.reader.get(mine + record.id)
                status = record_of(known).status if known is not None else ""
                lacks = status != record.status and status in ("", OFFERED)
                if lacks or (status == ACCEPTED and not _stands(agent, record, mine)):
                    yield record, mine, other


def _stands(agent: LineHandle, record: Record, mine: str) -> bool:
    """Whether what an agent keeps of a task goes with a handover that it knows was accepted."""
    reader = agent.reader
    standing = standing_of(reader.get(STANDINGS + record.task))
    if standing.handover == record.id:
        return mine == OUT or reader.exists(PACKAGES + record.id)
    newer = _known(reader, standing.handover)
    return bool(standing.handover) and (newer is None or _moved(newer) > _moved(record))


def _moved(record: Record) -> Any:
    return record.answered_at or record.offered_at


def _note(part: ScopedChange, record: Record, mine: str, other: LineHandle) -> str:
    """Take one record over; what cannot be had again, if it is something."""
    key = STANDINGS + record.task
    standing = standing_of(part.get(key))
    newer = _known(part, standing.handover)
    counts = newer is None or _moved(newer) <= _moved(record)
    if mine == IN:
        if record.status == ACCEPTED and counts:
            if not _given(part, record, other):
                return f"the task {record.task!r}, which {record.giver} handed to it ({record.id})"
            standing = standing_of(part.get(key))
        if record.status == OFFERED:
            part.set(WAITING + record.id, True)
        elif part.exists(WAITING + record.id):
            part.delete(WAITING + record.id)
    elif record.status == OFFERED:
        standing.offer = record.id
    else:
        standing.offer = "" if standing.offer == record.id else standing.offer
        if record.status == ACCEPTED and counts:
            if part.get(SEEN + record.task) != record.id:
                take_again(part, record, other.reader)
            standing.handover, standing.away = record.id, True
    part.set(mine + record.id, stored(record))
    part.set(key, stored(standing))
    return ""


def _given(part: ScopedChange, record: Record, giver: LineHandle) -> bool:
    """Let the taker have a task, unless its state has it; False if it cannot be had again."""
    kept = kept_of(part, record)
    package, load = kept or _handed(giver, record)
    standing = standing_of(part.get(STANDINGS + record.task))
    if part.get(SEEN + record.task) != record.id:
        if package is None:
            return False
        give(part, record, package, load)
    elif standing.handover != record.id:
        messages, context = conversation(part), package.context if package is not None else []
        standing.handover, standing.away = record.id, False
        place(standing, messages[: place_of(messages, context)], context)
        part.set(STANDINGS + record.task, stored(standing))
    if kept is None:
        keep(part, record, package or Package({}, []), load)
    return True


def _known(part: ScopedChange | Reader, id: str) -> Record | None:
    """The handover of an id, by or to the agent, if it is known."""
    found = [part.get(where + id) for where in (IN, OUT)] if id else []
    return next((record_of(data) for data in found if data is not None), None)


def _handed(giver: LineHandle, record: Record) -> tuple[Package | None, Load]:
    """What a giver handed over, from its history; None if that cannot be read any more."""
    reason = reason_of(record.id, ACCEPTED)
    try:
        for key, _, body in giver.history.entries():
            if body.cause is not None and body.cause.reason == reason:
                then = ScopedChange(giver.view(rowkinds.sequence_of(key) - 1).reader)
                standing = standing_of(then.get(STANDINGS + record.task))
                package, _ = packed(then, structs.replace(record), standing)
                if package is not None:
                    return package, load_of(then, record, package)
                break
    except (MissingError, StateIntegrityError):
        pass
    return None, Load({}, None)
