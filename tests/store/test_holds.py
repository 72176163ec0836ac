"""The table of what keeps something from going: each reason is found, told, and obeyed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from secrets import token_bytes
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.checkpoints import CheckpointRequest, RetentionRule
from holdfast.checkpoints.create import make, release
from holdfast.errors import HoldfastError, PrunedError, StillNeededError
from holdfast.store.inner import mark_key
from holdfast.store.names.items import Hold
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.hold_reasons import REASONS
from holdfast.sync.checkpoints import Checkpoints, Retention

TABLE = {
    "hold": ("prune end delete", "retention", "on hold: case 7", "Retention.lift"),
    "pin": ("prune end", "retention", "pinned: shipped", "Retention.unpin"),
    "restart": ("prune end", "retention", "a restart: stuck", "started again"),
    "fork": ("", "retention", "a timeline starts from it", "Retention.end"),
    "operation": ("prune end", "retention", "its operation is not over", "Checkpoints.finish"),
    "restore": ("prune", "retention", "a restore that is not confirmed", "Checkpoints.confirm"),
    "recovery": ("prune", "retention", "a recovery that is not over", "Recovery.resume"),
    "dependency": ("end", "retention", "agent:other main@1 rests on it", "delete its scope"),
    "newest": ("", "retention", "the newest entry", "write something"),
    "since": ("", "retention", "that began before it is not over", "let that end"),
    "source": ("end", "prune", "main began from it", "prune that one past it"),
    "restored": ("", "prune", "a restore went back to it", "past that restore"),
    "upload": ("", "sweep", "a long value is being written", "Store.sweep"),
}
"""By reason: what is refused because of it, what leaves it alone, what is told, what ends it."""


LONG = token_bytes(6 << 20)


class World:
    """A timeline `trial` with a checkpoint that its rule lets go, and that something may need."""

    def __init__(self, store: sync.Store) -> None:
        self.store = store
        self.main = store.agent("1")
        self.main.set("x", "main")
        self.state = self.main.fork("trial")
        self.state.set("x", "then")
        self.one = self.state.checkpoint("one", type="routine")
        none = RetentionRule(max_count=0)
        self.retention = Retention(store, rules={"routine": none, "recovery": none})
        self.after = True
        self.open = ExitStack()
        """What is running: it ends with the test, or else what comes behind it would be of it."""

    def held(self, request: CheckpointRequest, **more: Any) -> Callable[[], Any]:
        self.one = make(self.state._handle, request, **more)
        return lambda: release(self.state._handle, [self.one.id], "over")

    # one for each row: makes what needs the checkpoint; what ends that

    def hold(self) -> Callable[[], Any]:
        self.retention.hold(self.one, "case 7")
        return lambda: self.retention.lift(self.one)

    def pin(self) -> Callable[[], Any]:
        self.retention.pin(self.one, "shipped")
        return lambda: self.retention.unpin(self.one)

    def restart(self) -> Callable[[], Any]:
        key = mark_key(self.main._handle, "restart", self.one.id)
        handle = self.main._handle
        handle.core.run(handle._plan([Operation("set", key, "stuck")], lambda _: None)[0])
        gone = Operation("delete", key)
        return lambda: handle.core.run(handle._plan([gone], lambda _: None)[0])

    def fork(self) -> Callable[[], Any]:
        self.state.fork("child", at=self.one).set("x", "child")
        return lambda: self.retention.end(self.main, "child")

    def operation(self) -> Callable[[], Any]:
        self.one = self.open.enter_context(Checkpoints(self.state).operation("deploy")).checkpoint
        return self.open.close

    def restore(self) -> Callable[[], Any]:
        done = self.state.restore(self.one)
        assert done.backup is not None
        self.one = done.backup
        return lambda: Checkpoints(self.state).confirm(done)

    def recovery(self) -> Callable[[], Any]:
        return self.held(CheckpointRequest("before", "recovery"), recovery="r1")

    def dependency(self) -> Callable[[], Any]:
        other = self.store.agent("other")
        Checkpoints(other).create("top", depends_on=[self.one])
        return lambda: self.store.delete(other)

    def newest(self) -> Callable[[], Any]:
        self.after = False
        return lambda: self.state.set("x", "on")

    def since(self) -> Callable[[], Any]:
        self.open.enter_context(Checkpoints(self.state).operation("deploy"))
        self.one = self.state.checkpoint("behind it", type="routine")
        return self.open.close

    def source(self) -> Callable[[], Any]:
        Checkpoints(self.main).confirm(self.main.restore(self.one))

        def over() -> None:
            for key in ("x", "y"):
                self.main.set(key, "anew")
            self.main.prune(self.main._handle.place()[2], keep=[])

        return over

    def restored(self) -> Callable[[], Any]:
        Checkpoints(self.state).confirm(self.state.restore(self.one))

        def over() -> None:
            self.state.set("x", "anew")
            self.state.prune(self.state._handle.place()[2], keep=[self.one])

        return over

    def upload(self) -> Callable[[], Any]:
        self.open.enter_context(self.state.open_write("long")).write(LONG)
        return self.open.close

    # what is asked

    def why(self, reason: str) -> list[Hold]:
        point = None if reason == "upload" else self.one
        return [one for one in self.state.why_kept(point) if one.reason == reason]

    def in_the_way(self, deed: str, column: int = 0) -> set[str]:
        """Points that are kept from a deed, by what is told and the table above."""
        told = self.state.why_kept()
        return {one.point for one in told if deed in TABLE[one.reason][column].split()}

    def stays(self) -> bool:
        (line,) = [one for one in self.retention.plan(self.main).lines if one.timeline == "trial"]
        return any(one.stays for one in line.judged if one.checkpoint.id == self.one.id)


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    made = World(place.open())
    yield made
    with suppress(HoldfastError):  # of what is deleted by then
        made.open.close()


def begun(world: World, reason: str) -> Callable[[], Any]:
    over: Callable[[], Any] = getattr(world, reason)()
    if world.after:
        world.state.set("x", "on")
    return over


def test_all_reasons_are_here_in_the_order_in_which_they_are_told() -> None:
    assert list(REASONS) == list(TABLE)
    for name, reason in REASONS.items():
        assert (" ".join(reason.refused), " ".join(reason.left)) == TABLE[name][:2]
    assert [name for name, one in REASONS.items() if one.onward] == ["operation", "recovery"]


@pytest.mark.parametrize("reason", TABLE)
def test_a_reason_is_told_until_it_ends(world: World, reason: str) -> None:
    assert world.why(reason) == [] or reason == "newest"
    world.open.enter_context(world.store.acting("Ann"))
    over = begun(world, reason)
    (told,) = world.why(reason)
    _, _, text, until = TABLE[reason]
    assert text in told.text
    assert until in told.until
    assert told.point == ("" if reason == "upload" else world.one.id)
    assert told.by or reason in ("newest", "since")
    assert (told.by == "Ann") is (reason in ("hold", "pin", "restart", "restore"))
    assert told.text in str(told)
    over()
    assert world.why(reason) == []
    assert world.store.verify().ok


@pytest.mark.parametrize("reason", [one for one in TABLE if one != "upload"])
def test_retention_leaves_what_the_table_says(world: World, reason: str) -> None:
    begun(world, reason)
    assert world.stays() is ("retention" in TABLE[reason][1])
    world.retention.run(world.main, confirm=True)
    if world.stays():
        assert world.state.at(world.one).get("x") is not None


@pytest.mark.parametrize("reason", [one for one in TABLE if one not in ("newest", "upload")])
def test_pruning_by_hand_is_refused_as_the_table_says(world: World, reason: str) -> None:
    begun(world, reason)
    head, others = world.state._handle.place()[2], world.in_the_way("prune") - {world.one.id}
    if reason == "restored":
        head = world.one.sequence + 1  # before the restore, which else goes, too
    if "prune" in TABLE[reason][0]:
        with pytest.raises(StillNeededError, match=f"{world.one.id} is (held: )?"):
            world.state.prune(head, keep=others)
        return
    kept = world.one.id in world.in_the_way("prune", 1)
    assert kept or reason not in ("source", "restored")
    world.state.prune(head, keep=others)
    if kept:
        assert world.state.at(world.one).get("x") == "then"
    else:
        with pytest.raises(PrunedError):
            world.state.at(world.one)


@pytest.mark.parametrize("reason", TABLE)
def test_a_timeline_is_ended_only_if_the_table_lets_it(world: World, reason: str) -> None:
    over = begun(world, reason)
    stopped = world.in_the_way("end")
    assert (world.one.id in stopped) is ("end" in TABLE[reason][0] or reason == "fork")
    if stopped:
        with pytest.raises(StillNeededError, match=f"because of {stopped.pop()}: "):
            world.retention.end(world.main, "trial")
        assert world.state.get("x") == "on"
        over()
    world.retention.end(world.main, "trial")
    assert [one.name for one in world.main.timelines()][1:] == []
    assert world.store.verify().ok


@pytest.mark.parametrize("deed", ["delete", "erase"])
@pytest.mark.parametrize("reason", TABLE)
def test_a_scope_is_deleted_only_if_the_table_lets_it(world: World, reason: str, deed: str) -> None:
    over = begun(world, reason)
    if "delete" in TABLE[reason][0]:
        with pytest.raises(StillNeededError, match=f"{world.one.id} is on hold: lift that first"):
            getattr(world.store, deed)(world.main)
        over()
    getattr(world.store, deed)(world.main)
    assert "agent:1" not in [str(one.scope) for one in world.store.scopes().items]


def test_what_is_being_written_is_not_swept(world: World) -> None:
    over = begun(world, "upload")
    swept = world.store.sweep()
    assert swept.uploads == 0
    over()
    assert world.state.get("long") == LONG


def test_without_a_point_all_of_the_timeline_is_told(world: World) -> None:
    world.pin()
    world.hold()
    world.state.set("x", "on")
    assert [(one.reason, one.point) for one in world.state.why_kept()] == [
        ("hold", world.one.id),
        ("pin", world.one.id),
        ("newest", f"trial@{world.state._handle.place()[2]}"),
    ]
    assert [one.reason for one in world.main.why_kept(world.one.id)] == ["hold", "pin"]
    assert world.main.why_kept(world.one) == world.state.why_kept("one")


def test_async_tells_the_same(place: Place) -> None:
    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.set("x", 1)
            done = await state.restore(await state.checkpoint("c"))
            (told,) = await state.why_kept(done.backup)
            assert told.reason == "restore"

    asyncio.run(work())
