"""The turns of a loop, in steps that serve both faces."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.agents.again import again
from holdfast.agents.attached import Attachment, PersistentAgent
from holdfast.agents.drift import Keeping
from holdfast.agents.drift_signs import noted
from holdfast.agents.life import Living
from holdfast.agents.loop.decide import Clocks, LoopResult, StepResult, agent_by, decided, step_of
from holdfast.agents.loop.loop_run import ENDS, Restart, Running, joined, log
from holdfast.agents.mailbox import Mail, Reruns, Taken
from holdfast.errors import HoldfastError
from holdfast.store.inner import Asking, Lease, Plan, copied, given_back, running_lease
from holdfast.store.names.arguments import NotRunError, ran, unawaited
from holdfast.store.names.face import Step, Steps, ask
from holdfast.store.names.face import taken as blocking_of

VAIN = (*ENDS, NotRunError)
"""The same, and functions that were not written for this face: they never run."""
FIRST = ("session start", "session_start", "start")
"""Name, type and trigger of the checkpoint with which a loop begins."""
ANEW = ("session start", "session_start", "restart")
"""Those of the one with which an agent that was made anew begins: no error leads further back."""
LAST = ("shutdown", "automatic", "shutdown")
"""Those of the one with which a loop ends."""

UNSAVED = Restart("", False, "what was saved of it is gone", restores=False)

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
        self._new: dict[str, Any] | None = None
        """What the agent held before anything was restored, if some of it may not survive."""
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
                except BaseException as error:
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
            yield _work(self._restored, restart)
        yield from self._object()
        if callable(getattr(self._agent, "on_letter", None)):
            yield _work(self._interrupted)
        yield from self._taken_up(restart)
        yield from self._saved(self._life.lives("running", started=True))
        yield from self._finished(restart)
        yield from self._note_checkpoint(_work(self._store.save, *FIRST))
        self._clocks.refreshed(self._ticks())

    def _made(self, restart: Restart | None) -> Steps[Any]:
        """The agent, made or at hand, with what is stored of it."""
        yield from self._object()
        yield from self._taken_up(restart)

    def _object(self) -> Steps[Any]:
        """The agent itself, as it was given or is made now."""
        given = self._running.agent
        self._agent = given if self._running.at_hand else None
        if not self._running.at_hand:
            self._agent = yield from self._call(agent_by, given, self._own)
        self._running.check(self._agent, awaited=self._own is not self._running.state)

    def _taken_up(self, restart: Restart | None) -> Steps[Any]:
        """Let the agent hold what is stored of it, and see to it that this is sound."""
        at_hand = self._running.at_hand
        self._kept = self._attachment()
        self._life = self._kept if self._kept is not None else Living(self._agent, self._handle)
        self._life.begin("start")
        if self._kept is not None:
            if self._settings.survive is not None and not (at_hand and self._new is not None):
                self._new = copied((yield from self._call(self._kept.take)))
            yield from self._loaded(restart)
        if restart is not None or self._life.interrupted:
            ran((yield from self._call(self._life.hook, "handle_recovery")), "handle_recovery")
        yield from self._validated()

    def _attachment(self) -> Attachment | None:
        """What keeps the agent; None if it keeps nothing of its own."""
        if self._running.fields is None and hasattr(self._agent, "set_state"):
            self._agent.set_state(self._own)  # a holdfast.agents.Agent has its own
            return blocking_of(self._agent.kept)._core  # type: ignore[no-any-return]
        if self._running.fields is None and not isinstance(self._agent, PersistentAgent):
            return None
        return Attachment(self._agent, self._handle, self._running.fields, self._lease)

    def _loaded(self, restart: Restart | None) -> Steps[Any]:
        assert self._kept is not None
        stored, first = (yield from self._stored()), self._running.first
        if self._running.at_hand and not first:
            first.append(
                copied((yield from self._call(self._kept.take))) if stored is None else None
            )
        elif self._running.at_hand and stored is None and restart is not None:
            yield from self._given(self._running.before())
        if stored is None:
            return
        with self._kept.taking_up(*stored) as values:
            if restart is not None and restart.clean and self._settings.survive is not None:
                stay = {name: one for name, one in values.items() if name in self._settings.survive}
                values = copied(self._new or {}) | stay
            yield from self._given(values)

    def _stored(self) -> Steps[Any]:
        """What is stored of the agent, and what its class makes of that; None if nothing is."""
        assert self._kept is not None
        found = yield _work(self._kept.load)
        if found is None:
            return None
        try:
            made = yield from self._call(self._kept.upgrade, found)
        except Exception as error:
            raise self._kept.failed(error, "upgrade_state") from error
        return found, made

    def _given(self, values: dict[str, Any]) -> Steps[Any]:
        assert self._kept is not None
        ran((yield from self._call(self._kept.give, values)), "apply_persistent_state")

    def _validated(self) -> Steps[Any]:
        try:
            answer = yield from self._call(self._life.hook, "validate_state")
        except Exception as error:
            raise self._life.failed(error) from error
        self._life.judge(answer)

    def _planned(self, life: Any = None) -> Steps[Any]:
        """A change that stores what the agent holds, if that is fit for it; None for nothing.

        It is made where the agent's own functions run: none of its tasks changes anything between.
        """
        yield from self._validated()
        if self._kept is None:
            return self._life.plan_life(life) if life is not None else None
        values = yield from self._call(self._kept.take)
        return (yield from self._call(partial(self._kept.plan_save, values, life, replaced=False)))

    def _saved(self, life: Any = None) -> Steps[Any]:
        plan = yield from self._planned(life)
        yield _work(self._store.commit, plan)

    def _finished(self, restart: Restart | None) -> Steps[Any]:
        if restart is None:
            return
        self.result.restarts += 1
        if self._running.drift is not None and not restart.failed:
            yield _work(self._commit, self._running.drift.reset)
        yield _work(self._store.restarted, restart)

    def _restored(self, restart: Restart) -> None:
        self._store.put_back(restart)
        if self._running.drift is not None and restart.failed:
            self._commit(self._running.drift.failed)

    def _end(self) -> Steps[Any]:
        """What the loop leaves behind: the agent saved and at rest, and a checkpoint of that.

        Of a restart, all that is as the next process needs it, but that this one has ended.
        """
        life = self._life.lives("stopped")
        if self.result.outcome == "restart":
            yield _work(self._store.commit, self._life.plan_life(life))
            return
        if self.result.outcome != "drifted":
            yield from self._saved(life)
        else:  # what the agent holds is not to be trusted
            yield _work(self._store.commit, self._life.plan_life(life))
        yield from self._note_checkpoint(_work(self._store.save, *LAST))

    def _ended_by(self, error: BaseException) -> Steps[Any]:
        """Whatever ends the loop: what was saved stands, and becomes a checkpoint if it can be."""
        if isinstance(error, ENDS):
            return
        try:
            yield _work(self._leave, error)
        except HoldfastError as failure:
            error.add_note(f"{self._handle.scope}: no last checkpoint: {failure}")

    def _leave(self, error: BaseException) -> None:
        self._store.commit(self._life.plan_fail(error))
        self._store.save(*LAST)

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
            yield from self._due()
            if not self.result.outcome:
                yield from self._cycle()
        except VAIN:
            raise
        except Exception as error:
            yield from self._failed(error)

    def _due(self) -> Steps[Any]:
        due = self._clocks.due(self._ticks())
        if due == "routine":
            yield from self._note_checkpoint(_work(self._store.routine))
            self._clocks.saved(self._ticks())
        elif due == "refresh":
            self._clocks.drifts = 0
            made = yield from self._note_checkpoint(_work(self._store.recovery, "refresh"))
            yield _work(self._store.ask_refresh, made.id, False, "refresh")
            restart = yield _work(self._store.restart)
            if restart is not None:  # not withdrawn meanwhile
                yield from self._restart(restart)

    def _restart(self, restart: Restart) -> Steps[Any]:
        """Go on from a checkpoint: here, with an agent made anew, or in another process."""
        self.result.checkpoint = restart.checkpoint
        if self._settings.restart == "process":
            self.result.outcome = "restart"
            return
        yield _work(self._restored, restart)
        yield from self._made(restart)
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
            yield _work(self._store.ask_refresh, drifted.id, True, "drift")

    def _letters(self) -> Steps[int]:
        work = getattr(self._agent, "on_letter", None)
        count, reruns = 0, Reruns()
        while callable(work) and count < self._settings.letters and not self.stopped:
            taken = yield _work(self._taken)
            if taken is None:
                break
            try:
                mail = Mail(self._running.state, taken)
                ran((yield from self._call(work, mail)), "on_letter")
                saved = yield from self._planned()
                yield _work(self._done, taken, saved)
            except NotRunError:
                raise  # that is not the letter's fault
            except Exception as error:
                pause = reruns.pause(taken, error)
                if pause is not None:
                    yield from self._put_back()
                    yield from self._wait(pause)
                    continue
                yield _work(self._letter_failed, taken, error)
                last = self._running.box.last_try(taken, error)
                self._tries = 0 if last else taken.letter.tries + 1
                raise
            count += 1
            self._clocks.read()
            self.result.letters += 1
        return count

    def _taken(self) -> Taken | None:
        taken = self._running.box.take()
        if taken is not None:
            self._store.commit(self._running.box.plan_begin(taken))
        return taken

    def _interrupted(self) -> None:
        """Who runs an agent that takes letters is alone at it: what was begun was cut short."""

        def step() -> None:
            found = self._running.box.plan_interrupted()
            self._store.commit(found and found[0])

        again(step)

    def _done(self, taken: Taken, saved: Plan | None) -> None:
        """A letter is done, what it led to and what the agent holds now: one change."""
        self._store.commit(joined(self._running.box.plan_done(taken), saved))

    def _letter_failed(self, taken: Taken, error: Exception) -> None:
        self._commit(lambda: self._running.box.plan_failed(taken, error))

    def _judged(self, step: StepResult, seconds: float | None, *, failed: bool) -> Steps[Any]:
        """Note the cycle, and decide what is to be done about a drift that it shows.

        The checkpoint with which the agent is to be made anew with clean context, or None.
        """
        drift = self._running.drift
        if drift is None:
            return None
        alarms = yield _work(self._noted, drift, noted(step, seconds, failed=failed))
        if not alarms or self.result.outcome:
            return None
        self.result.alarms = alarms
        log.warning("%s: drift: %s", self._handle.scope, ", ".join(one.kind for one in alarms))
        about = {"kinds": [one.kind for one in alarms], "why": [one.why for one in alarms]}
        made = yield from self._note_checkpoint(
            _work(lambda: self._store.recovery("drift", **about))
        )
        if (yield from self._choice(alarms, failed)) != "refresh":
            return None
        if self._clocks.drifted():
            self.result.outcome = "drifted"
            return None
        return made

    def _choice(self, alarms: list[Any], failed: bool) -> Steps[Any]:
        """What is to be done about a drift, as it is set or as a function says."""
        asked = self._settings.on_drift
        if not callable(asked):
            return asked
        try:
            return decided((yield from self._call(asked, alarms)))
        except VAIN:
            raise
        except Exception as error:
            if not failed:
                raise
            # The cycle has an error of its own, which is about to be seen to.
            log.error("%s: on_drift decided nothing", self._handle.scope, exc_info=error)
            return None

    def _noted(self, drift: Keeping, fields: dict[str, Any]) -> Any:
        found: list[Any] = []

        def plan() -> Any:
            made, found[:] = drift.note(fields)
            return made

        self._commit(plan)
        return found

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
            good = None
            if wait is not None and self._settings.on_error == "restore":
                good = yield _work(self._store.last_good)
            if good is not None:
                clean, why = drifted is not None, "drift" if drifted else "error"
                yield _work(self._store.ask_return, good.id, clean, why, not clean)
            elif drifted is not None:
                yield _work(self._store.ask_refresh, drifted.id, True, "drift")
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
        if self._kept is not None:
            stored = yield from self._stored()
            if stored is not None:
                with self._kept.taking_up(*stored) as values:
                    yield from self._given(values)
            else:
                # Somebody restored what was before it was first saved: it begins as it did then.
                yield from self._made(UNSAVED)
                yield from self._saved(self._life.lives("running"))

    # what it asks for

    def _call(self, function: Callable[..., Any], *args: Any) -> Steps[Any]:
        """Call a function of the agent; if it is async, its answer is waited for."""
        answer = yield ask(function, *args)
        if unawaited(answer):
            raise NotRunError("an agent with async methods is run by holdfast.agents.Loop")
        return answer

    def _commit(self, planned: Callable[[], Any]) -> None:
        """Commit what rests on reads; planned again when somebody was faster."""
        again(lambda: self._store.commit(planned()))

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
