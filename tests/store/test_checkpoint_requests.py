"""Checkpoints on request: everything wrong is listed, all fields are there, any one is found."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import Checkpoint, sync
from holdfast.checkpoints import CheckpointRequest, Locator, RestoreRequest
from holdfast.errors import (
    CheckpointNotFoundError,
    CheckpointValidationError,
    DependencyError,
    InvalidInputError,
    RestoreValidationError,
)
from holdfast.store.journal.entry import ED25519, signed_text, split_row


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("7")


@pytest.fixture
def checkpoints(state: sync.State) -> sync.checkpoints.Checkpoints:
    return sync.checkpoints.Checkpoints(state)


@pytest.mark.spec("K81", "K82", "K83", "X57")
def test_everything_that_is_wrong_is_listed(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints
) -> None:
    state.set("k", 1)
    request = CheckpointRequest(
        "x" * 300,
        "weekly",
        trigger=7,  # type: ignore[arg-type]
        tags="one",
        priority="urgent",
        retention={"max_age": -1, "max_count": "3", "years": 1},
        depends_on=[7],
        metadata={"trigger": "mine"},
    )
    problems = request.problems()
    assert len(problems) == 8
    for part in (
        "weekly",
        "urgent",
        "name",
        "trigger",
        "tags",
        "max_age",
        "max_count",
        "min_count",
    ):
        assert any(part in text for text in problems), part
    with pytest.raises(CheckpointValidationError, match="Invalid checkpoint request: ") as raised:
        checkpoints.create(request)
    assert raised.value.problems == tuple(problems)
    assert ", ".join(problems) in str(raised.value)
    assert state.checkpoints() == []
    assert CheckpointRequest("fine").problems() == []


def test_fields_and_requests_are_not_mixed(checkpoints: sync.checkpoints.Checkpoints) -> None:
    with pytest.raises(CheckpointValidationError, match="no colour here; there is name, type"):
        checkpoints.create("x", colour="red")
    with pytest.raises(CheckpointValidationError, match="one of the two"):
        checkpoints.create(CheckpointRequest(), name="x")
    with pytest.raises(RestoreValidationError, match="no colour here; there is point"):
        checkpoints.restore("x", colour="red")
    with pytest.raises(InvalidInputError, match="colour"):
        checkpoints.locate(colour="red")
    for wrong in (None, "state", holdfast):
        with pytest.raises(InvalidInputError, match=r"takes a state"):
            sync.checkpoints.Checkpoints(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="takes an open store"):
            sync.checkpoints.CheckpointGroups(wrong)  # type: ignore[arg-type]


@pytest.mark.spec("K94", "K95")
def test_a_restore_lists_everything_that_is_wrong(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints
) -> None:
    state.set("k", 1)
    request = RestoreRequest(
        1,
        Locator(type="weekly", at=datetime(2026, 1, 1)),  # noqa: DTZ001
        keys=["/bad"],
        prefixes=[""],
        verify="twice",
        dependencies="perhaps",
        dry_run="no",  # type: ignore[arg-type]
        if_head=-1,
        validate=7,  # type: ignore[arg-type]
    )
    problems = request.problems()
    assert len(problems) == 10, problems
    with pytest.raises(RestoreValidationError, match="Invalid restore request: ") as raised:
        checkpoints.restore(request)
    assert raised.value.problems == tuple(problems)
    for nothing in (RestoreRequest(), RestoreRequest(1, Locator(name="x"))):
        with pytest.raises(RestoreValidationError, match="a point, or say which"):
            checkpoints.restore(nothing)
    with pytest.raises(RestoreValidationError, match="simulate"):
        checkpoints.restore(1, dry_run=True, validate=bool)
    assert state._handle.place()[2] == 1


@pytest.mark.spec("K42", "K45", "K46", "K47")
def test_a_result_and_a_description_say_all(place: Place) -> None:
    store = place.open()
    state, other = store.agent("7"), store.agent("8")
    other.set("k", 1)
    for number in range(40):
        state.set(f"k{number}", "x" * 300)
    checkpoints = sync.checkpoints.Checkpoints(state)
    before = datetime.now(UTC)
    made = checkpoints.create(
        "safe",
        type="triggered",
        trigger="budget exceeded",
        tags=["a", "b"],
        description="why",
        priority="critical",
        retention={"max_age": 3600, "max_count": 3},
        depends_on=[other],
        metadata={"mine": [1]},
    )
    assert made.success
    assert (made.checkpoint_id, made.agent_id) == ("main@41", "7")
    assert (made.hash, made.created_at) == (state.root(), made.checkpoint.time)
    assert abs(made.timestamp / 1000 - before.timestamp()) < 60
    assert 100 < made.size < 1000
    for opening in (lambda: store, place.reopen):
        found = sync.checkpoints.Checkpoints(opening().agent("7")).inspect("safe")
        assert (found.checkpoint.type, found.trigger) == ("triggered", "budget exceeded")
        assert (found.checkpoint.tags, found.priority) == (("a", "b"), "critical")
        assert found.retention == {"max_age": 3600, "max_count": 3}
        assert found.checkpoint.metadata["mine"] == [1]
        assert (found.keys, found.size) == (40, made.size)
        assert 12_000 < found.state_size < 14_000
        assert [str(one) for one in found.dependencies] == ["agent:8 main@1 (same)"]


@pytest.mark.spec("K48", "K52", "K53", "K54", "K56")
def test_compression_and_integrity(place: Place) -> None:
    store = place.open()
    state = store.agent("7")
    state.set("squeezed", "x" * 3000)
    state.set("noise", bytes(range(256)))
    state.set("small", 1)
    checkpoints = sync.checkpoints.Checkpoints(state)
    made = checkpoints.create("safe")
    found = checkpoints.inspect(made.checkpoint_id)
    assert found.compression is not None
    assert found.compression.records["lz4"] == 1
    assert 300 < found.compression.stored < 1500
    assert found.integrity.hash == made.hash != found.integrity.checksum == made.checkpoint.hash
    assert found.integrity.signed_by == made.checkpoint.signed_by != ""
    assert (found.integrity.verification, found.integrity.valid) == ("full", True)
    assert found.integrity.tamper_proof
    assert not checkpoints.inspect("safe", verify="none").integrity.tamper_proof
    last, signed = rows_of(place.storage(), b"E")[-1]
    envelope = split_row(signed)[0]
    statement, ledger = envelope.statement, state._handle.history.points.line().ledger
    assert statement is not None
    assert statement.algorithm == ED25519
    assert statement.key_id.hex() == found.integrity.signed_by
    text = signed_text(ledger.prefix, last, envelope.data)
    public = Ed25519PublicKey.from_public_bytes(state._handle.core.public)
    public.verify(statement.signature, text)
    with pytest.raises(InvalidSignature):
        public.verify(statement.signature, text + b"x")
    key, row = rows_of(place.storage(), b"E")[0]
    put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
    damaged = sync.checkpoints.Checkpoints(place.reopen().agent("7")).inspect("main@4")
    assert (damaged.integrity.valid, damaged.compression) == (False, None)
    assert damaged.integrity.reason
    assert not damaged.integrity.tamper_proof


@pytest.mark.spec("K43", "K44")
def test_parents_and_children_follow_restores_and_forks(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints
) -> None:
    state.set("k", 1)
    one = state.checkpoint("one")
    state.set("k", 2)
    two = state.checkpoint("two")
    back = state.restore(one)
    state.set("k", 3)
    three = state.checkpoint("three")
    trial = state.fork("trial", at=two)
    trial.set("k", 4)
    four = trial.checkpoint("four")

    def family(which: Any) -> tuple[str | None, tuple[str, ...]]:
        found = checkpoints.inspect(which, verify="none")
        return found.parent, tuple(sorted(found.children))

    assert back.backup is not None
    assert family(one) == (None, (two.id, three.id))
    assert family(two) == (one.id, (back.backup.id, four.id))
    assert family(three) == (one.id, ())
    assert family(four) == (two.id, ())


def test_parents_are_known_though_history_is_pruned(
    store: sync.Store, state: sync.State, checkpoints: sync.checkpoints.Checkpoints
) -> None:
    state.set("k", 1)
    old = state.checkpoint("old", type="routine")
    state.set("k", 2)
    checkpoints.confirm(checkpoints.restore("old"))
    made = []
    for number in range(6):
        state.set("k", number)
        made.append(state.checkpoint(f"n{number}", type="routine"))
    state.prune(made[0], keep=[old])
    assert checkpoints.inspect("n0").parent == old.id  # by way of the restore
    sync.checkpoints.Retention(store).run(state)
    assert [checkpoints.inspect(one).parent for one in made[3:]] == [
        None,  # n2 is gone, and what lies before is pruned
        made[3].id,
        made[4].id,
    ]
    assert store.verify().findings == []


def test_an_id_is_told_apart_from_what_is_none(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints
) -> None:
    state.set("k", 1)
    one = state.checkpoint("one")
    state.set("k", 2)
    two = state.checkpoint("two")
    assert checkpoints.locate(id=one.id, before=two) == one
    assert checkpoints.find(id=two.id, before="one") == []
    for bad in ("main@0", "main@" + "9" * 5000, two.id):
        with pytest.raises(CheckpointNotFoundError):
            checkpoints.locate(id=bad, before=one)
    with pytest.raises(CheckpointNotFoundError):
        checkpoints.restore(id=two.id, before=one)
    with pytest.raises(CheckpointNotFoundError):
        state.at("9" * 5000)
    assert state.get("k") == 2


@pytest.mark.spec("K96", "K97", "D9")
def test_any_checkpoint_is_found(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints
) -> None:
    made = []
    for number in range(6):
        state.set("k", number)
        made.append(
            checkpoints.create(
                f"n{number % 2}",
                type=("routine", "manual", "automatic")[number % 3],
                trigger="shutdown" if number == 2 else "",
                tags=[f"t{number // 2}"],
            ).checkpoint
        )
    locate = checkpoints.locate
    assert locate() == made[5]
    assert locate(id=made[2].id) == made[2]
    assert locate(name="n0") == made[4]
    assert locate(type="routine") == made[3]
    assert locate(tag="t1", name="n0") == made[2]
    assert locate(trigger="shutdown") == made[2]
    assert locate(at=made[3].time) == made[3]
    assert locate(at=made[3].time - timedelta(microseconds=1)) == made[2]
    assert locate(before=made[3]) == locate(before=made[3].time) == made[2]
    assert locate(before=made[3].sequence) == made[2]
    assert locate(before="n0", type="manual") == made[1]
    assert locate(valid=True) == made[5]
    for where in ({"name": "n9"}, {"before": made[0]}, {"id": made[2].id, "name": "n1"}):
        with pytest.raises(CheckpointNotFoundError):
            locate(**where)
    for where in ({"id": "x"}, {"type": "weekly"}, {"valid": "yes"}, {"tag": 7}):
        with pytest.raises(InvalidInputError):
            locate(**where)  # type: ignore[arg-type]
    assert state.get("k") == 5
    done = checkpoints.restore(tag="t0", type="manual")
    assert (done.restored_from, state.get("k")) == (made[1].id, 1)


def test_what_is_made_from_a_state_stands_for_it(store: sync.Store) -> None:
    state, other = store.agent("7"), store.agent("8")
    state.set("k", 1)
    other.set("k", 1)
    typed = sync.agents.AgentState(other)
    made = sync.checkpoints.Checkpoints(state).create("safe", depends_on=[typed])
    assert made.checkpoint.metadata["depends"][0][:3] == ["agent:8", "main", 1]


@pytest.mark.spec("K28")
def test_dependencies_are_checked_at_restore(place: Place) -> None:
    store = place.open()
    state, other, third = store.agent("7"), store.agent("8"), store.workflow("w")
    for one in (state, other, third):
        one.set("k", 1)
    checkpoints = sync.checkpoints.Checkpoints(state)
    checkpoints.create("safe", depends_on=[other, third.checkpoint("w")])
    state.set("k", 2)
    assert [one.status for one in checkpoints.restore("safe").dependencies] == ["same", "same"]
    other.set("k", 2)
    done = checkpoints.restore("safe")
    assert [one.status for one in done.dependencies] == ["moved on", "same"]
    head = state._handle.place()[2]
    with pytest.raises(DependencyError, match=r"agent:8 main@1 \(moved on\)"):
        checkpoints.restore("safe", dependencies="unchanged")
    store.delete(third)
    with pytest.raises(DependencyError, match=r"workflow:w main@2 \(missing\)"):
        checkpoints.restore("safe")
    third.set("k", "made again")
    with pytest.raises(DependencyError, match="missing"):
        checkpoints.restore("safe")
    assert state._handle.place()[2] == head, "nothing was restored"
    assert checkpoints.restore("safe", dry_run=True).dependencies[1].status == "missing"
    assert checkpoints.restore("safe", dependencies="ignore").success


def test_a_dependency_must_be_there(state: sync.State, store: sync.Store) -> None:
    state.set("k", 1)
    checkpoints = sync.checkpoints.Checkpoints(state)
    with sync.open("memory:") as elsewhere:
        elsewhere.agent("8").set("k", 1)
        foreign = elsewhere.agent("8").checkpoint("x")
        with pytest.raises(CheckpointValidationError) as raised:
            checkpoints.create("x", depends_on=[state, store.agent("none"), foreign])
    assert len(raised.value.problems) == 3
    assert state.checkpoints() == []


def test_the_async_face(store_url: str) -> None:
    async def run() -> None:
        async with holdfast.open(store_url) as store:
            state, other = store.agent("7"), store.agent("8")
            await other.set("k", 1)
            await state.set("k", 1)
            checkpoints = holdfast.checkpoints.Checkpoints(state)
            made = await checkpoints.create("safe", tags=["t"], depends_on=[other])
            assert await checkpoints.locate(tag="t", valid=True) == made.checkpoint
            assert (await checkpoints.inspect("safe")).dependencies[0].status == "same"
            with pytest.raises(CheckpointValidationError):
                await checkpoints.create(type="weekly")
            await state.set("k", 2)
            done = await checkpoints.restore(name="safe")
            assert await state.get("k") == 1
            assert [one.why for one in await checkpoints.held()] == ["restore"]
            await checkpoints.confirm(done)
            assert await checkpoints.held() == []
        for wrong in (sync, None):
            with pytest.raises(InvalidInputError):
                holdfast.checkpoints.Checkpoints(wrong)  # type: ignore[arg-type]

    asyncio.run(run())


def test_metadata_that_somebody_else_has_put_there(state: sync.State) -> None:
    """What looks like ours and is not takes nothing along with it."""
    state.set("k", 1)
    wrong = {"releases": 7, "operation": [], "group": 1, "set_aside": "x", "depends": [7]}
    more = {"trigger": {"a": 1}, "priority": None, "retention": "long"}
    for type_ in ("pre_operation", "recovery", "post_operation"):
        state.checkpoint(type_, type=type_, metadata=wrong | more)
    checkpoints = sync.checkpoints.Checkpoints(state)
    assert checkpoints.held() == []
    found = checkpoints.inspect("recovery")
    assert (found.trigger, found.priority, found.retention, found.group) == ("", "medium", {}, "")
    assert checkpoints.restore("recovery").success
    assert checkpoints.recover().success
    for odd in (
        ["numpy", "pandas", "1.2", "x"],
        ["agent:a", "main", "1", "x"],
        ["a", "b", True, ""],
    ):
        state.checkpoint("odd", metadata={"depends": [odd]})
        assert checkpoints.inspect("odd").dependencies == ()
        assert checkpoints.restore("odd").success


# peers


@pytest.mark.spec("K89", "K91", "K92")
def test_a_checkpoint_is_brought_to_the_peers_when_that_is_asked_for(
    place: Place, tmp_path: Path
) -> None:
    """And a peer that did not get it is no success."""
    store = place.open()
    state = store.agent("7")
    trust = [store.identity().rsplit(":", 1)[1]]
    elsewhere = sync.open("memory:peer of a checkpoint")
    peer = elsewhere.agent("7")
    state.set("plan", {"step": 1})

    def bring(checkpoint: Checkpoint) -> None:
        file = tmp_path / checkpoint.id
        sync.checkpoints.export_checkpoint(
            state, file, at=checkpoint, key="passphrase:between the two"
        )
        sync.checkpoints.import_checkpoint(
            peer, file, key="passphrase:between the two", trust=trust
        )

    checkpoints = sync.checkpoints.Checkpoints(state, sync=bring)
    done = checkpoints.create("shared", sync=True)
    assert (done.success, done.synchronized, done.sync_error) == (True, True, None)
    assert (done.checkpoint_id, done.agent_id, done.hash) == (
        done.checkpoint.id,
        "7",
        done.checkpoint.root,
    )
    assert done.size > 0
    assert done.timestamp == int(done.created_at.timestamp() * 1000)
    assert peer.get("plan") == {"step": 1}
    state.set("plan", {"step": 2})
    assert not checkpoints.create("mine").synchronized
    assert peer.get("plan") == {"step": 1}
    elsewhere.close()
    failed = checkpoints.create("again", sync=True)
    assert (failed.success, failed.synchronized) == (True, False)
    assert failed.sync_error == "StoreClosedError"
    with pytest.raises(CheckpointValidationError, match="sync needs to know how"):
        sync.checkpoints.Checkpoints(state).create("no peers", sync=True)
    with pytest.raises(CheckpointValidationError, match="sync"):
        checkpoints.create("odd", sync="yes")
    assert [one.name for one in state.checkpoints()] == ["again", "mine", "shared"]


def test_async_peers(place: Place) -> None:
    got: list[str] = []

    async def bring(checkpoint: Checkpoint) -> None:
        got.append(checkpoint.name)
        if checkpoint.name == "lost":
            raise OSError("no way")

    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            checkpoints = holdfast.checkpoints.Checkpoints(store.agent("7"), sync=bring)
            await store.agent("7").set("a", 1)
            assert (await checkpoints.create("c", sync=True)).synchronized
            lost = await checkpoints.create("lost", sync=True)
            assert (lost.synchronized, lost.sync_error) == (False, "OSError")

    asyncio.run(work())
    assert got == ["c", "lost"]


def test_a_dry_run_tells_that_the_restore_is_refused(store: sync.Store, state: sync.State) -> None:
    other = store.agent("other")
    for one in (state, other):
        one.set("k", 1)
    checkpoints = sync.checkpoints.Checkpoints(state)
    checkpoints.create("top", depends_on=["agent:other"])
    state.set("k", 2)
    other.set("k", 2)
    assert checkpoints.restore("top", dry_run=True).success
    assert not checkpoints.restore("top", dry_run=True, dependencies="unchanged").success
    store.delete(other)
    planned = checkpoints.restore("top", dry_run=True)
    assert (planned.success, [one.status for one in planned.dependencies]) == (False, ["missing"])
    assert checkpoints.restore("top", dry_run=True, dependencies="ignore").success
    with pytest.raises(DependencyError):
        checkpoints.restore("top")
    recovered = checkpoints.recover()
    assert "it rests on agent:other main@1 (missing)" in str(recovered)
    assert state.get("k") == 1


def test_what_cannot_be_rested_on_is_told_once(store: sync.Store, state: sync.State) -> None:
    state.set("k", 1)
    with pytest.raises(CheckpointValidationError) as refused:
        sync.checkpoints.Checkpoints(state).create("top", depends_on=[state, "agent:none"])
    assert len(refused.value.problems) == 2
    assert str(refused.value).count("Invalid checkpoint request") == 1


def test_what_a_generator_gives_is_taken_once(store: sync.Store, state: sync.State) -> None:
    other = store.agent("other")
    for one in (state, other):
        one.set("k", 1)
        one.set("left", 1)
    checkpoints = sync.checkpoints.Checkpoints(state)
    made = checkpoints.create("one", depends_on=iter([other]), tags=(tag for tag in ["deploy"]))
    assert made.checkpoint.tags == ("deploy",)
    assert len(checkpoints.inspect("one").dependencies) == 1
    group = sync.checkpoints.CheckpointGroups(store).create(
        iter([state]), "all", depends_on=iter([other])
    )
    assert group.checkpoints[0].metadata["depends"]
    for key in ("k", "left"):
        state.set(key, 2)
    checkpoints.restore("one", keys=iter(["k"]))
    assert (state.get("k"), state.get("left")) == (1, 2)

    async def work() -> None:
        async with holdfast.open("memory:") as opened:
            one, two = opened.agent("1"), opened.agent("2")
            await one.set("k", 1)
            await two.set("k", 1)
            made = await holdfast.checkpoints.Checkpoints(one).create("one", depends_on=iter([two]))
            assert made.checkpoint.metadata["depends"]

    asyncio.run(work())


@pytest.mark.parametrize("none", [{"keys": []}, {"prefixes": ()}, {"keys": [], "prefixes": []}])
def test_a_restore_of_no_keys_is_none_of_all(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints, none: dict[str, Any]
) -> None:
    state.set("plan", 1)
    state.checkpoint("safe")
    state.set("plan", 2)
    for dry_run in (True, False):
        with pytest.raises(RestoreValidationError, match="name nothing"):
            checkpoints.restore("safe", dry_run=dry_run, **none)
    assert state.get("plan") == 2
    checkpoints.restore("safe", keys=[], prefixes=["pl"])
    assert state.get("plan") == 1


def test_what_is_rested_on_and_a_source_are_told_with_the_rest(
    checkpoints: sync.checkpoints.Checkpoints,
) -> None:
    with pytest.raises(CheckpointValidationError) as raised:
        checkpoints.create("x", type="weekly", depends_on=["zzz", 5])
    told = raised.value.problems
    assert len(told) == 3
    for text in ("weekly", "zzz", "int"):
        assert any(text in one for one in told)
    for source in ("zzz", 5):
        with pytest.raises(RestoreValidationError) as refused:
            checkpoints.restore("safe", source=source, verify="q")
        assert len(refused.value.problems) == 2
