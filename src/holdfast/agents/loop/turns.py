"""The turns of a loop, in steps that serve both faces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct, structs

from holdfast.agents.agent_keys import CONVERSATION, MEMORY, OWN_LOOP
from holdfast.agents.attached import METHODS, Attachment, Living, PersistentAgent
from holdfast.agents.drift import Drift
from holdfast.agents.handover import Handovers
from holdfast.agents.loop.decide import (
    Clocks,
    LoopResult,
    LoopSettings,
    StepResult,
    agent_by,
    step_of,
)
from holdfast.agents.mailbox import Mail, Mailbox, Reruns
from holdfast.checkpoints.checkpoint_group import Wanted, save_all
from holdfast.checkpoints.create import make, release
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.checkpoints.retention import stand
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    LeaseLostError,
    MissingError,
    PointNotFoundError,
    StateIntegrityError,
    StoreClosedError,
)
from holdfast.store.inner import (
    DELETED,
    Asking,
    Book,
    ChangeParts,
    Lease,
    LineHandle,
    Plan,
    StoreHandle,
    beside_pruning,
    given_back,
    held,
    mark_key,
    moment,
    own_change,
    own_step,
    running_lease,
    same,
    sticky_prefixes,
)
from holdfast.store.inner import RESTART as ASKED
from holdfast.store.names.arguments import (
    NotRunError,
    check_not_async,
    check_own,
    check_run,
    check_text,
    ran,
    unawaited,
)
from holdfast.store.names.face import Step, Steps, ask
from holdfast.store.names.face import taken as blocking_of
from holdfast.store.names.items import Checkpoint, Entry
from holdfast.store.state import State
from holdfast.store.store import Store

# ---- loop store ---------------------------------------------------------------------------------
# What a loop does to the store: checkpoints, restarts, reports. All of it blocks.
#
# Under `$loop/`, which restores leave alone, lies the note of a restart that is asked for. It is
# written before anything is undone and removed when all of it is done: whichever process runs the
# agent next finishes a restart that was cut short. Until then no rule of retention removes the
# checkpoint: a mark among the pins of the scope, written and removed with the note, says so.
#
# A refresh is a restart that goes on from the newest state: its checkpoint is there to go back to,
# and says what of the context is old. What anybody writes after it stays.


log = logging.getLogger("holdfast.loop")

ENDS = (LeaseLostError, StoreClosedError)
"""Errors after which trying again is in vain: another runs the agent, or the store is closed."""
RESTART = "restart"


class Restart(Struct, kw_only=True, frozen=True):
    """A restart that is asked for: from which checkpoint, and whether with clean context."""

    checkpoint: str
    clean: bool
    reason: str
    restores: bool
    """Whether the state becomes that of the checkpoint; not of a refresh."""
    timeline: str
    """Of which it was asked; a fork takes the note along from where it comes from."""
    time: datetime | None
    """When it was asked for, by which one is told from another."""
    failed: bool = False
    """An earlier version asked for some because of an error."""
    asked_at: int = 0
    """The entry that asked for it; after a restore, that of the restore. It is not stored."""

    @property
    def cause(self) -> str:
        """The reason that the entries carry by which it is carried out."""
        return f"restart: {self.reason}"


class LoopStore:
    """One timeline, as a loop uses it."""

    def __init__(self, handle: LineHandle) -> None:
        self._handle = handle
        self._state = State(handle)
        self._notes = Book(self._state, OWN_LOOP, Restart)

    def commit(self, plan: Plan | None) -> Any:
        """Commit a change, if there is one."""
        return self._state._run(plan) if plan is not None else None

    # checkpoints

    def save(self, name: str, type: str, trigger: str) -> Checkpoint | None:
        """A checkpoint, if anything was written since the last one."""
        wanted = Wanted(self._handle.scope, self._handle.timeline, name, type, {"trigger": trigger})
        [saved] = save_all(self._handle.core, [wanted])
        if saved.error is not None:
            raise saved.error
        return saved.checkpoint

    def recovery(self, trigger: str, **about: Any) -> Checkpoint:
        """A recovery checkpoint, before anything is done about what went wrong."""
        request = CheckpointRequest(f"recovery: {trigger}", "recovery", trigger, metadata=about)
        made = make(self._handle, request)
        log.warning("%s: Recovery point created: %s", self._handle.scope, made.id)
        return made

    # restarts

    def ask(
        self, checkpoint: Any, clean: bool, reason: str, *, restores: bool, instead: bool
    ) -> None:
        """Note that the agent is to be started again from a checkpoint: its state becomes that of
        the checkpoint, or (a refresh, of the loop itself) goes on from the newest.

        If one is asked for already, it takes its place, or (not `instead`) comes first.
        """
        check_text(reason, "the reason of a restart", 1000)
        timeline, sequence = self._handle.history.points.find(checkpoint)
        point = f"{timeline}@{sequence}"
        wanted = Restart(
            checkpoint=point,
            clean=clean,
            reason=reason,
            restores=restores,
            timeline=self._handle.timeline,
            time=moment(self._handle.core.clock.claimed()),
        )

        def step() -> None:  # as a pin does, it stands on the state that it is about
            parts = own_change(self._state, reason=wanted.cause)
            notes = self._notes.page(parts.part(self._handle))
            if self._own(notes.get(RESTART)) is not None and not instead:
                return
            self._unasked(parts)
            notes.put(RESTART, wanted)
            main = parts.part(self._line())  # where the marks of retention lie
            main.set(mark_key(self._line(), ASKED, point), wanted.reason)
            plan = parts.plan()
            assert plan is not None
            stand(self._line(), plan[0], point)
            self.commit(plan)

        beside_pruning(step)

    def _unasked(self, parts: ChangeParts, restart: Restart | None = None) -> bool:
        """Note in a change that no restart is asked for, or not this one any more, and that no
        checkpoint is held for it; whether it was."""
        notes = self._notes.page(parts.part(self._handle))
        note = self._own(notes.get(RESTART))
        wanted = restart.asked_at if restart is not None else 0
        if note is None or restart not in (None, structs.replace(note, asked_at=wanted)):
            return False
        notes.delete(RESTART)
        parts.part(self._line()).delete(mark_key(self._line(), ASKED, note.checkpoint))
        return True

    def _line(self) -> LineHandle:
        return StoreHandle(self._handle.core).line(self._handle.scope)

    def restart(self) -> Restart | None:
        """The restart that is asked for, by whomever."""
        found, version = self._notes.versioned(RESTART)
        note = self._own(found)
        return structs.replace(note, asked_at=version) if note is not None else None

    def _own(self, note: Restart | None) -> Restart | None:
        return note if note is not None and note.timeline == self._handle.timeline else None

    def put_back(self, restart: Restart) -> None:
        """Let the state be as the restart wants it; done again, it changes nothing more."""
        try:
            if restart.restores:
                self._restore(restart)
            if restart.clean:
                self._clean(restart)
        except MissingError as error:
            raise PointNotFoundError(
                f"{self._handle.scope}: it is to be started again from {restart.checkpoint} "
                f"({restart.reason}), which is not there any more ({error}); call restart() of a "
                "Loop with another checkpoint: one of now goes on from what is saved"
            ) from error

    def _restore(self, restart: Restart) -> None:
        """Return to the checkpoint, once, and let tasks be where they were handed to since."""
        alone = sticky_prefixes(self._handle.reader.declared())
        found = self._state.diff(restart.checkpoint).keys
        # If it was restored before the restart was cut short, once more would undo more.
        if any(not key.startswith(alone) for key in found) and not self._restores(restart):
            self._state.restore(restart.checkpoint, reason=restart.cause)
        if self._handle.timeline == "main":  # a fork takes no part in handovers
            try:
                store = Store(StoreHandle(self._handle.core))
                Handovers(store).reconcile(self._handle.scope)
            except StateIntegrityError as error:  # of what another keeps: that stops nobody here
                log.warning("%s: not reconciled with handovers: %s", self._handle.scope, error)

    def _restores(self, restart: Restart) -> list[Entry]:
        """The entries by which a restart was carried out, in whichever process."""
        wanted = (restart.checkpoint, restart.cause)
        done = self._handle.history.log(kind="restore", since=restart.asked_at, limit=None)
        return [one for one in done if (one.point, one.cause.reason) == wanted]

    def _clean(self, restart: Restart) -> None:
        """Remove the conversation and the short-term memory, as far as the checkpoint has them."""
        then = self._handle.view(restart.checkpoint).reader
        keys = [CONVERSATION, *self._handle.reader.keys(MEMORY + "short_term/")]

        def let_go(parts: ChangeParts) -> None:
            part = parts.part(self._handle)
            versions = self._handle.reader.versions(keys)
            for key, version, old in zip(keys, versions, then.versions(keys), strict=True):
                if version == old and then.timeline == self._handle.timeline:
                    part.delete(key, if_version=version)
                elif old:  # what was written since stays, of a list what came behind
                    now, was = part.get(key, DELETED), then.get(key)
                    lists = isinstance(now, list) and isinstance(was, list)
                    if same(now, was):
                        part.delete(key)
                    elif lists and same(now[: len(was)], was):
                        part.trim(key, keep_last=len(now) - len(was))

        own_step(self._state, let_go, reason="clean context")

    def restarted(self, restart: Restart) -> None:
        """Note that a restart is done, and has proved good: its backup is let go.

        One that was asked for meanwhile stays, and is the next.
        """
        # Before the note goes: whoever finishes a restart that was cut short does this, too.
        before = {one.sequence - 1 for one in self._restores(restart)}  # by the same commit
        ids = [
            one.checkpoint.id
            for one in (held(self._handle, min(before)) if before else [])
            if one.why == "restore" and one.checkpoint.sequence in before
        ]
        if ids:
            release(self._handle, ids, "confirmed")
        own_step(self._state, lambda parts: self._unasked(parts, restart), reason="restarted")


CALLED = ("step", "on_letter", "check_tasks")
"""What an agent has for a loop to call."""


@dataclass(slots=True)
class Running:
    """What a loop runs, and with what."""

    handle: LineHandle
    state: State
    agent: Any
    fields: tuple[str, ...] | None
    settings: LoopSettings
    store: LoopStore
    mailbox: Mailbox | None
    drift: Drift | None
    ran: bool = False
    """Whether the agent has run here: one at hand holds what came of that."""

    def __post_init__(self) -> None:
        check_own(self.handle.core, "that drift", self.drift and self.drift._handle)

    @property
    def at_hand(self) -> bool:
        """Whether it is an agent, not what makes one."""
        return hasattr(self.agent, "step") and not isinstance(self.agent, type)

    def check(self, agent: Any, *, awaited: bool) -> None:
        """Refuse an agent whose functions would not have run when their call is over.

        `awaited`: whether the face awaits what they give.
        """
        kind = type(agent).__name__
        if not callable(getattr(agent, "step", None)):
            raise InvalidInputError(f"a loop runs an agent with step(); {kind} has none")
        for name in CALLED:
            if callable(function := getattr(agent, name, None)):
                check_run(function, f"{name} of {kind}", awaited=awaited)
        for name in () if awaited else METHODS:
            check_not_async(getattr(agent, name, None), f"{name} of {kind}")


VAIN = (*ENDS, NotRunError)
"""The same, and functions that were not written for this face: they never run."""
FIRST = ("session start", "session_start", "start")
"""Name, type and trigger of the checkpoint with which a loop begins."""
ANEW = ("session start", "session_start", "restart")
"""Those of the one with which an agent that was made anew begins: no error leads further back."""
ROUTINE = ("routine", "routine", "interval")
LAST = ("shutdown", "automatic", "shutdown")
"""Those of the one with which a loop ends."""

WAITS = "%s: another runs it, or was killed: waiting until its lease is given back or runs out"
"""Said once, so that nobody takes a loop that waits for one that hangs."""


class Turns:
    """One run of a loop."""

    def __init__(self, running: Running, own: Any, wait: Callable[[float], Steps[None]]) -> None:
        self._running = running
        self._own = own
        """The state, of the face that runs it: what a factory and letters are given."""
        self._wait = wait
        self._handle = running.handle
        self._settings = running.settings
        self._store = running.store
        self._agent: Any = None
        self._kept: Attachment | None = None
        self._life = Living(None, running.handle)
        self._lease: Lease | None = None
        self._ticks = running.handle.core.clock.ticks
        self._clocks = Clocks(running.settings, self._ticks())
        self._tries: int | None = None
        """If a letter ended the turn: how often it has failed; 0, if it will not be tried again."""
        self.result = LoopResult()
        self.stopped = False
        """Set by whoever wants the loop to end after what it is doing."""

    def run(self) -> Steps[LoopResult]:
        """The whole run: one holder of the lease, from its first to its last checkpoint."""
        self._lease = lease = yield from self._leased()
        if lease is None:
            self.result.outcome = "stopped"
            return self.result
        try:
            with lease.fencing():
                yield from self._begin()
                try:
                    while not self.result.outcome:
                        yield from self._turn()
                except BaseException as error:  # whatever ends it, what was saved stands
                    yield from self._ended_by(error)
                    raise
                yield from self._end()
        finally:
            lease.release()
        return self.result

    def _leased(self) -> Steps[Lease | None]:
        """The lease, which is waited for; None if the loop is stopped meanwhile."""
        name = running_lease(self._handle.scope, self._handle.timeline)
        duration = self._settings.lease
        asking = Asking(self._handle.core, name, duration, 2 * duration, None)
        told = False
        while not self.stopped:
            lease = yield _work(asking.take, undo=given_back)
            if lease is not None:
                return lease  # type: ignore[no-any-return]
            if not told:
                told = True
                log.warning(WAITS, self._handle.scope)
            yield from self._wait(asking.pause())
        return None

    # beginning and ending

    def _begin(self) -> Steps[Any]:
        restart = yield _work(self._store.restart)
        if restart is not None:
            yield _work(self._store.put_back, restart)
        yield from self._object()
        if callable(getattr(self._agent, "on_letter", None)) and self._running.mailbox is not None:
            # Who runs an agent that takes letters is alone at it: what was begun was cut short.
            yield _work(self._running.mailbox.interrupted)
        yield from self._taken_up(restart)
        yield from self._saved(self._life.lives("running", started=True))
        yield from self._finished(restart)
        yield from self._note_checkpoint(_work(self._store.save, *FIRST))
        self._clocks.refreshed(self._ticks())

    def _object(self) -> Steps[Any]:
        """The agent itself, as it was given or is made now."""
        given = self._running.agent
        self._agent = given if self._running.at_hand else None
        if not self._running.at_hand:
            self._agent = yield from self._call(agent_by, given, self._own)
        self._running.check(self._agent, awaited=self._own is not self._running.state)

    def _taken_up(self, restart: Restart | None) -> Steps[Any]:
        """Let the agent hold what is stored of it, and see to it that this is sound."""
        if self._running.fields is None and hasattr(self._agent, "set_state"):
            self._agent.set_state(self._own)  # a holdfast.agents.Agent has its own
            self._kept = blocking_of(self._agent.kept)._core
        elif self._running.fields is None and not isinstance(self._agent, PersistentAgent):
            self._kept = None  # it keeps nothing of its own
            held = getattr(self._agent, "__dict__", {})
            lost = [n for n, one in held.items() if isinstance(one, (int, float, str, list, dict))]
            ours = (type(one).__module__.partition(".")[0] == "holdfast" for one in held.values())
            if lost and not any(ours):  # one that holds a state may keep them itself
                log.warning(
                    "%s: nothing of %s is kept: %s will be gone when it ends or is killed. Name "
                    "what to keep (fields=[...], --field), or give it get_persistent_state and "
                    "apply_persistent_state",
                    self._handle.scope, type(self._agent).__name__, ", ".join(lost),
                )  # fmt: skip
        else:
            fields = self._running.fields
            self._kept = Attachment(self._agent, self._handle, fields, self._lease)
        self._life = self._kept if self._kept is not None else Living(self._agent, self._handle)
        self._life.begin("start")
        if self._kept is not None:
            found = yield from self._kept.held(_work(self._kept.load))
            if not found and self._running.at_hand and self._running.ran:
                raise InvalidInputError(
                    f"{self._handle.scope}: it is to be started again from before it was first "
                    "saved, and the object that runs holds what came later; give the loop what "
                    "makes the agent, a class or function, or call restart() with another "
                    "checkpoint"
                )
        if restart is not None or self._life.interrupted:
            yield from self._life.recovered()
        yield from self._life.validated()
        self._running.ran = True

    def _saved(self, life: Any = None) -> Steps[Any]:
        plan = yield from self._life.planned(life)
        yield _work(self._store.commit, plan)

    def _finished(self, restart: Restart | None) -> Steps[Any]:
        if restart is None:
            return
        self.result.restarts += 1
        if self._running.drift is not None:
            yield _work(self._running.drift.reset)
        yield _work(self._store.restarted, restart)

    def _end(self) -> Steps[Any]:
        """What the loop leaves behind: the agent saved and at rest, and a checkpoint of that.

        Of a restart, all that is as the next process needs it, but that this one has ended; of a
        drift, what the agent holds is not to be trusted.
        """
        life = self._life.lives("stopped")
        if self.result.outcome in ("restart", "drifted"):
            yield _work(self._store.commit, self._life.plan_life(life))
        else:
            yield from self._saved(life)
        if self.result.outcome != "restart":
            yield from self._note_checkpoint(_work(self._store.save, *LAST))

    def _ended_by(self, error: BaseException) -> Steps[Any]:
        """Whatever ends the loop: what was saved stands, and becomes a checkpoint if it can be."""
        if isinstance(error, ENDS):
            return
        try:
            yield _work(self._store.commit, self._life.plan_fail(error))
            yield _work(self._store.save, *LAST)
        except HoldfastError as failure:
            error.add_note(f"{self._handle.scope}: no last checkpoint: {failure}")

    # turns

    def _turn(self) -> Steps[Any]:
        """One cycle and what is due around it."""
        if self.stopped:
            self.result.outcome = "stopped"
            return
        self._tries = None
        try:
            restart = yield _work(self._store.restart)
            if restart is not None:
                yield from self._restart(restart)
                return
            due = self._clocks.due(self._ticks())
            if due == "routine":
                yield from self._note_checkpoint(_work(self._store.save, *ROUTINE))
                self._clocks.saved(self._ticks())
            elif due == "refresh":
                self._clocks.drifts = 0
                made = yield from self._note_checkpoint(_work(self._store.recovery, "refresh"))
                yield from self._refresh(made.id, "refresh", clean=False)
                restart = yield _work(self._store.restart)
                assert restart is not None
                yield from self._restart(restart)
            if not self.result.outcome:
                yield from self._cycle()
        except VAIN:
            raise
        except Exception as error:
            yield from self._failed(error)

    def _restart(self, restart: Restart) -> Steps[Any]:
        """Go on from a checkpoint: here, with an agent made anew, or in another process."""
        self.result.checkpoint = restart.checkpoint
        if self._settings.restart == "process":
            self.result.outcome = "restart"
            return
        yield _work(self._store.put_back, restart)
        yield from self._object()
        yield from self._taken_up(restart)
        yield from self._saved(self._life.lives("running"))
        yield from self._finished(restart)
        yield from self._note_checkpoint(_work(self._store.save, *ANEW))
        self._clocks.refreshed(self._ticks())

    def _cycle(self) -> Steps[Any]:
        begun = self._ticks()
        letters = yield from self._letters()
        check = getattr(self._agent, "check_tasks", None)
        if callable(check):
            ran((yield from self._call(check)), "check_tasks")
        step = step_of((yield from self._call(self._agent.step)))
        yield from self._saved()
        self._clocks.worked()
        if step.done:
            self.result.outcome = "done"
        if step.idle and not letters:
            if not step.done:
                yield from self._wait(self._clocks.pause(self._ticks()))
            return
        self.result.cycles += 1
        drifted = yield from self._judged(step, self._ticks() - begun, failed=False)
        if drifted is not None:
            yield from self._refresh(drifted.id, "drift", clean=True)

    def _refresh(self, checkpoint: str, reason: str, *, clean: bool) -> Steps[Any]:
        """Ask for the agent to be made anew, which undoes nothing."""
        ask = partial(self._store.ask, restores=False, instead=False)
        yield _work(ask, checkpoint, clean, reason)

    def _letters(self) -> Steps[int]:
        work, mailbox = getattr(self._agent, "on_letter", None), self._running.mailbox
        count, reruns = 0, Reruns()
        if mailbox is None or not callable(work):
            return 0
        while count < self._settings.letters and not self.stopped:
            mail = yield from mailbox._take()
            if mail is None:
                break
            try:
                ran((yield from self._call(work, mail)), "on_letter")
                saved = yield from self._life.planned(None)
                yield _work(self._done, mail, saved)
            except NotRunError:
                raise  # that is not the letter's fault
            except Exception as error:
                pause = reruns.pause(mail, error)
                if pause is not None:
                    yield from self._put_back()
                    yield from self._wait(pause)
                    continue
                again = yield from mailbox._failed(mail, error)
                self._tries = mail.letter.tries + 1 if again else 0
                raise
            count += 1
            self._clocks.read()
            self.result.letters += 1
        return count

    def _done(self, mail: Mail, saved: Plan | None) -> None:
        """A letter is done, what it led to and what the agent holds now: one change."""
        assert self._running.mailbox is not None
        change, finish = self._running.mailbox._plan_done(mail)
        if saved is not None:  # of the same timeline; behind its own a letter may have others
            [target] = saved[0].targets
            change.targets[0].ops += target.ops
            change.targets[0].expects |= target.expects
        written = self._handle.core.run(change)
        if saved is not None:
            saved[1](written)
        finish(written)

    def _judged(self, step: StepResult, seconds: float | None, *, failed: bool) -> Steps[Any]:
        """Note the cycle, and decide what is to be done about a drift that it shows.

        The checkpoint with which the agent is to be made anew with clean context, or None.
        """
        drift = self._running.drift
        if drift is None:
            return None
        note = partial(drift.note, task=step.task, progress=step.progress, signals=step.signals)
        alarms = yield _work(partial(note, step.action, seconds=seconds, failed=failed))
        if not alarms or self.result.outcome:
            return None
        self.result.alarms = alarms
        log.warning("%s: drift: %s", self._handle.scope, ", ".join(one.kind for one in alarms))
        about = {"kinds": [one.kind for one in alarms], "why": [one.why for one in alarms]}
        made = yield from self._note_checkpoint(
            _work(lambda: self._store.recovery("drift", **about))
        )
        if self._settings.on_drift != "refresh":
            return None
        if self._clocks.drifted():
            self.result.outcome = "drifted"
            return None
        return made

    # errors

    def _failed(self, error: Exception) -> Steps[Any]:
        """A recovery checkpoint, a pause, and on from what is saved; or the end, after too many.

        So too when the agent cannot be put back: that is the next error in a row.
        """
        while True:
            yield from self._wait((yield from self._recorded(error)))
            try:
                return (yield from self._put_back())
            except VAIN:
                raise
            except Exception as wrong:
                kind = type(error).__name__
                wrong.add_note(f"{self._handle.scope}: while it was put back after {kind}")
                error, self._tries = wrong, None

    def _recorded(self, error: Exception) -> Steps[float]:
        """What an error leaves behind; seconds to wait, unless it was one too many."""
        kind = type(error).__name__
        self.result.errors += 1
        log.error("%s: Error during operation: %s", self._handle.scope, kind, exc_info=error)
        wait = self._clocks.failed(self._tries)
        try:
            drifted = yield from self._judged(StepResult(), None, failed=True)
            made = yield from self._note_checkpoint(
                _work(lambda: self._store.recovery("error", error=kind))
            )
            error.add_note(f"{self._handle.scope}: recovery checkpoint {made.id}")
            if drifted is not None:
                yield from self._refresh(drifted.id, "drift", clean=True)
        except ENDS:
            raise
        except HoldfastError as failure:
            log.error("%s: nothing could be saved after it: %s", self._handle.scope, failure)
        if wait is None:
            error.add_note(f"{self._handle.scope}: {self._clocks.errors} errors in a row; gave up")
            raise error
        return wait

    def _put_back(self) -> Steps[Any]:
        """Let the agent hold what is saved: what a failed cycle changed in it is gone."""
        kept = self._kept
        if kept is not None and not (yield from kept.held(_work(kept.load))):
            # Somebody restored what was before it was first saved: it begins as it did then.
            yield from self._object()
            yield from self._taken_up(None)
            yield from self._saved(self._life.lives("running"))

    # what it asks for

    def _call(self, function: Callable[..., Any], *args: Any) -> Steps[Any]:
        """Call a function of the agent; if it is async, its answer is waited for."""
        answer = yield ask(function, *args)
        if unawaited(answer):
            raise NotRunError("an agent with async methods is run by holdfast.agents.Loop")
        return answer

    def _note_checkpoint(self, work: Step) -> Steps[Any]:
        made = yield work
        if made is not None:
            self.result.checkpoint = made.id
        return made


def _work(
    function: Callable[..., Any], *args: Any, undo: Callable[[Any], object] | None = None
) -> Step:
    """A step that reads or writes the store; it has its end whatever becomes of the loop."""
    return Step("ends", partial(function, *args), undo)
