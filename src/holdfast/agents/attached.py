"""Attaching an object to a state."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from holdfast.agents.agent_keys import ATTACHED, EXECUTION_STATE, MayWait, may_wait
from holdfast.agents.attach_fields import (
    Manifest,
    Saved,
    check_field,
    field_key,
    read_fields,
    read_manifest,
)
from holdfast.agents.state.checks import (
    build,
    fields_of,
    inner_type,
    is_frozen,
    is_structured,
    not_coming_back,
    plain,
    problems,
    to_builtins,
    told,
)
from holdfast.agents.state.shapes import ExecutionState
from holdfast.errors import (
    AgentValidationError,
    Conflict,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    NewerFormatError,
)
from holdfast.store.inner import Lease, LineHandle, Operation, Plan, handle_of, look, sticky
from holdfast.store.names.arguments import check_awaited, check_face, check_not_async, check_own
from holdfast.store.names.face import (
    Step,
    Steps,
    ask,
    calls,
    commit,
    end,
    ends,
    faced,
    here,
    steps,
    steps_of,
)
from holdfast.store.state import State

# ---- life ---------------------------------------------------------------------------------------
# The life of an agent: created, running, paused, stopped or failed. Nothing here waits.


BEGINS = {
    "start": (None, "stopped", "failed"),
    "pause": ("running",),
    "resume": (None, "paused"),
    "stop": ("running", "paused"),
}
"""In which states of this process's own a step of the life may be taken; None: not begun here."""


class Living:
    """An object that lives in a state, whether or not anything of it is kept there.

    Where it is in its life, and what it says itself when it is asked.
    """

    __slots__ = ("handle", "life", "obj", "status")

    def __init__(self, obj: Any, handle: LineHandle) -> None:
        self.obj = obj
        self.handle = handle
        self.status: str | None = None
        """By what this process did; None: not started here."""
        self.life = ExecutionState()

    def begin(self, step: str) -> None:
        """Refuse a step of the life that cannot be taken now; read where the life is."""
        if self.status not in BEGINS[step]:
            raise InvalidInputError(
                f"{self.handle.scope}: {step} is not possible, the agent is "
                f"{self.status or 'not started here'}"
            )
        self.life = self.stored_life()
        if step == "resume" and self.life.status != "paused":
            raise InvalidInputError(
                f"{self.handle.scope}: resume is not possible, the agent is {self.life.status}"
            )

    def stored_life(self) -> ExecutionState:
        """Where the life is, as it is stored."""
        stored = self.handle.reader.get(EXECUTION_STATE, None, None, False)
        return ExecutionState() if stored is None else build(ExecutionState, stored)

    @property
    def interrupted(self) -> bool:
        """Whether the run before, by what `begin` read, had no end, or ended with an error."""
        return self.life.status in ("running", "failed")

    def lives(self, status: Any, *, started: bool = False, error: str = "") -> ExecutionState:
        """The life with another status."""
        now = datetime.fromtimestamp(self.handle.core.clock.claimed() / 1_000_000, UTC)
        life = self.life
        return ExecutionState(
            status=status,
            since=now,
            starts=life.starts + started,
            recoveries=life.recoveries + (started and self.interrupted),
            error=error,
        )

    def plan_life(self, life: ExecutionState) -> Plan:
        """Note where the life is, and nothing else of the agent."""

        def finish(_: Any) -> None:
            self.life, self.status = life, life.status

        return self.handle._plan(self._lived(life), finish)

    def plan_fail(self, error: BaseException) -> Plan:
        """Note that the run ended with an error; what the object holds is not saved."""
        return self.plan_life(self.lives("failed", error=type(error).__name__))

    def _lived(self, life: ExecutionState) -> list[Operation]:
        """Write where the life is. A restore leaves it alone: what has happened, happened."""
        written = Operation("set", EXECUTION_STATE, plain(life))
        return [*sticky(self.handle, EXECUTION_STATE), written]

    # what the object says itself

    def hook(self, name: str) -> Any:
        """What a method of the object returns; None if it has none of that name."""
        found = getattr(self.obj, name, None)
        return found() if callable(found) else None

    def validated(self) -> Steps[None]:
        """Refuse what `validate_state` says is wrong."""
        try:
            answer = yield ask(self.hook, "validate_state")
            check_awaited(answer, "validate_state")
            found = told(answer, "validate_state")
        except Exception as error:
            raise self.failed(error) from error
        if found:
            raise self._invalid("the agent is not valid", found)

    def recovered(self) -> Steps[None]:
        """Tell the object that the run before did not end in order."""
        yield ask(self.hook, "handle_recovery", what="handle_recovery")

    def planned(self, life: ExecutionState | None, replaced: bool = False) -> Steps[Plan | None]:
        """A change that stores the life and what the object holds, if that is fit for it."""
        yield from self.validated()
        return self.plan_life(life) if life is not None else None

    def failed(self, error: Exception, what: str = "validate_state") -> Exception:
        """What becomes of an error of such a method."""
        if isinstance(error, AgentValidationError):
            return self.handle.core.meter.invalid("agent", error)
        if isinstance(error, HoldfastError):
            return error
        kind = type(error).__name__
        return self._invalid(f"{what} raised {kind}")

    def _invalid(self, text: str, found: list[str] | None = None) -> AgentValidationError:
        error = AgentValidationError(f"{self.handle.scope}: {text}", found or [])
        return self.handle.core.meter.invalid("agent", error)


# ---- attached -----------------------------------------------------------------------------------


@here
@calls(agent=may_wait)
def attach(
    agent: Any,
    state: State,
    *,
    fields: Iterable[str] | None = None,
    lease: Lease | None = None,
) -> Attached:
    """Keep an agent, an object of any class, in a state. Nothing is touched yet.

    `fields` are the attributes that are kept. Without them, the agent says so itself (see
    `PersistentAgent`), or it is a dataclass, a msgspec Struct or a pydantic model, of which all
    fields are. What is written is under the lease, if one is given.
    """
    check_face(state, State, "attach")
    if isinstance(agent, MayWait):
        agent = agent.given
    else:
        for name in METHODS:
            check_not_async(getattr(agent, name, None), f"{name} of {type(agent).__name__}")
    return Attached(Attachment(agent, handle_of(state), fields, lease), state)


@faced
class Attached:
    """An agent that is kept: `save` and `restore`, or its whole life, which does both by itself.

        with attach(agent, state, fields=["plan", "memory"]) as kept:
            agent.work()
            kept.save()

    Entering starts it, which restores what was saved; leaving stops it, which saves. It belongs to
    one thread or task at a time. On the async face methods of the agent may be async.
    """

    __slots__ = ("_core", "_state")

    def __init__(self, core: Attachment, state: State) -> None:
        self._core = core
        self._state = state

    @property
    def agent(self) -> Any:
        """The agent itself."""
        return self._core.obj

    @property
    def agent_id(self) -> str:
        """The id of the agent that it is kept as."""
        return self._state.scope.id

    @property
    def state(self) -> State:
        """Where it is kept."""
        return self._state

    @property
    def status(self) -> str | None:
        """running, paused, stopped or failed, by what this process did; None: not started here."""
        return self._core.status

    @steps
    def life(self) -> Steps[ExecutionState]:
        """Where the agent is in its life, as it is stored."""
        return (yield look(self._state, self._core.stored_life))  # type: ignore[no-any-return]

    # saving and restoring

    @steps
    def save(self, *, replace: bool = False) -> Steps[int | None]:
        """Store what differs from what is stored, as one entry; None if nothing does.

        The agent is validated first. `Conflict` if what is stored was changed by somebody else, or
        is of an earlier run and was not restored; with `replace` it is given up for that of now.
        """
        return (yield from self._save(None, replace))

    @steps
    def restore(self) -> Steps[bool]:
        """Let the agent hold what is stored, and validate it; False if nothing is stored."""
        found = yield from self._core.held(look(self._state, self._core.load))
        if found:
            yield from self._core.validated()
        return found

    @steps
    def validate(self) -> Steps[None]:
        """Raise `AgentValidationError` if `validate_state` of the agent finds it wrong."""
        yield from self._core.validated()

    def _save(self, life: ExecutionState | None, replace: bool = False) -> Steps[int | None]:
        with self._core.fenced():
            plan = yield from self._core.planned(life, replace)
            try:
                return (yield commit(self._state, plan)) if plan is not None else None
            except Conflict as error:  # somebody was faster: what to do is not to read a key again
                if ATTACHED not in error.keys:
                    raise
                raise self._core.overtaken() from error

    # the life

    @steps
    def start(self, *, restore: bool = True) -> Steps[bool]:
        """Begin to run: restore what was saved, and save; tells whether there was something.

        If the run before had no end, or ended with an error, `handle_recovery` of the agent is
        called in between. With `restore=False` what is stored is given up for what the agent holds.
        """
        self._core.begin("start")
        found = restore and (yield from steps_of(self.restore)())
        if restore and self._core.interrupted:
            yield from self._core.recovered()
        yield from self._save(self._core.lives("running", started=True), replace=not restore)
        return found

    @steps
    def pause(self) -> Steps[None]:
        """Save, and rest."""
        self._core.begin("pause")
        yield from self._save(self._core.lives("paused"))

    @steps
    def resume(self) -> Steps[None]:
        """Restore what is stored, which somebody may have put back meanwhile, and run again."""
        self._core.begin("resume")
        yield from steps_of(self.restore)()
        yield from self._save(self._core.lives("running"))

    @steps
    def stop(self) -> Steps[None]:
        """Save, and end."""
        self._core.begin("stop")
        yield from self._save(self._core.lives("stopped"))

    @ends
    def fail(self, error: BaseException) -> None:
        """End because of an error: what the agent holds is not saved, the last save stands."""
        with self._core.fenced():
            self._state._run(self._core.plan_fail(error))

    @steps
    def __enter__(self) -> Steps[Self]:
        try:
            yield from steps_of(self.start)()
        except Exception:
            raise
        except BaseException as error:
            if self.status == "running":  # it was begun, and nobody is there to end it
                yield end(self.fail, error)
            raise
        return self

    @steps
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Steps[None]:
        if error is None:
            if self.status in ("running", "paused"):
                yield from steps_of(self.stop)()
            return
        try:
            yield end(self.fail, error)
        except HoldfastError as failure:
            error.add_note(f"that the agent failed could not be stored: {failure}")


# ---- attachment ---------------------------------------------------------------------------------
# An object and the state it is attached to: what both faces share. Nothing here waits.


METHODS = (
    "get_persistent_state",
    "apply_persistent_state",
    "upgrade_state",
    "validate_state",
    "handle_recovery",
)
"""What an object may have for us to call."""


class Attachment(Living):
    """What is kept of an object, and where. Not for several threads at once."""

    __slots__ = ("fields", "lease", "saved")

    def __init__(
        self, obj: Any, handle: LineHandle, fields: Iterable[str] | None, lease: Lease | None
    ) -> None:
        super().__init__(obj, handle)
        self.fields = _chosen(obj, fields)
        check_own(handle.core, "that lease", lease)
        self.lease = lease
        self.saved = Saved()

    def fenced(self) -> AbstractContextManager[None]:
        """What is written inside is under the lease, if there is one."""
        return self.lease.fencing() if self.lease is not None else nullcontext()

    # between the object and its fields

    def take(self) -> Any:
        """What the object holds now; on the async face, perhaps something to wait for."""
        if self.fields is None:
            return self.obj.get_persistent_state()
        missing = [name for name in self.fields if not hasattr(self.obj, name)]
        if missing:
            raise InvalidInputError(
                f"{type(self.obj).__name__} has no {', '.join(missing)}; set them before it is "
                "saved, or name other fields"
            )
        return {name: getattr(self.obj, name) for name in self.fields}

    def given(self, values: dict[str, Any]) -> Steps[None]:
        """Let the object hold these values."""
        if self.fields is None:
            give = self.obj.apply_persistent_state
            yield ask(give, values, what="apply_persistent_state")
            return
        for name, value in values.items():
            setattr(self.obj, name, value)

    def held(self, load: Step) -> Steps[bool]:
        """Let the object hold what is stored, or what it makes of that today; whether there was
        something.

        If that fails, the object may hold part of it or nothing: no save is taken from it before it
        is restored.
        """
        found: tuple[Manifest, dict[str, Any]] | None = yield load
        if found is None:
            return False
        manifest, made = found
        if self._upgrades(manifest):
            try:
                version, upgrade = manifest.version, self.obj.upgrade_state
                made = yield ask(upgrade, version, dict(made), what="upgrade_state")
            except Exception as error:
                raise self.failed(error, "upgrade_state") from error
        built, saved = self._built_of(*found, made)
        self.saved = Saved()
        yield from self.given(built)
        self.saved = saved
        return True

    def planned(self, life: ExecutionState | None, replaced: bool = False) -> Steps[Plan | None]:
        """A change that stores what differs, and the life; None if nothing does.

        It is made where the object's functions run: none of its tasks changes anything between.
        """
        yield from self.validated()
        values = yield ask(self.take, what="get_persistent_state")
        plan: Plan | None = yield ask(partial(self.plan_save, values, life, replaced=replaced))
        return plan

    # storing

    def plan_save(self, values: Any, life: ExecutionState | None, *, replaced: bool) -> Plan | None:
        """A change that stores what differs; None if nothing does."""
        if not isinstance(values, Mapping):
            raise InvalidInputError(
                f"what is kept of {type(self.obj).__name__} is a mapping from names to values"
            )
        for name in values:
            check_field(name)
        there = read_manifest(self.handle.reader)
        if replaced:
            self.saved = Saved.of(there, read_fields(self.handle.reader, there, None))
        mine = self.saved.manifest
        if there.entry != mine.entry:
            raise self.overtaken()
        operations, after = self.saved.differing(values, self._stored)
        version = _version(self.obj)
        if life is not None:
            operations += self._lived(life)
        elif not operations and version == mine.version:
            return None
        kept = [name for name in mine.fields if name not in self.saved.fields and name not in after]
        apart = mine.apart & set(kept)
        for name in mine.apart - apart:
            below = self.handle.reader.keys(field_key(name) + "/")
            operations += [Operation("delete", key) for key in below]
        new = Manifest((*kept, *after), apart, version, mine.saves + 1)
        operations.append(Operation("set", ATTACHED, new.data()))

        def finish(written: Any) -> int:
            entry: int = written[0].sequence
            self.saved = Saved(replace(new, entry=entry), after)
            if life is not None:
                self.life = life
                self.status = life.status
            return entry

        return self.handle._plan(operations, finish, expects={ATTACHED: mine.entry})

    def overtaken(self) -> Conflict:
        """Another has saved since this one knew what is saved, or before it knew anything."""
        why = (
            "what is saved was changed since this agent last saved or restored it, by another "
            "process, a restore, a merge or a revert; call restore()"
        )
        if not self.saved.manifest.entry:
            why = (
                "an agent was saved here, and this one has not taken it up; call restore() or "
                "start() first, or save(replace=True)"
            )
        return Conflict(f"{self.handle.scope}: {why}", [ATTACHED])

    def load(self) -> tuple[Manifest, dict[str, Any]] | None:
        """What is stored, and its fields, as they were stored; None if nothing is."""
        place = self.handle.place()[2]
        reader = self.handle.view(place).reader if place else self.handle.reader
        manifest = read_manifest(reader)
        if not manifest.entry:
            return None
        version = _version(self.obj)
        if manifest.version > version:
            raise NewerFormatError(
                f"{self.handle.scope}: the agent was saved in version {manifest.version}, and "
                f"{type(self.obj).__name__} has {version}; update it"
            )
        wanted = None if self._upgrades(manifest) else self.fields
        return manifest, read_fields(reader, manifest, wanted)

    def _upgrades(self, manifest: Manifest) -> bool:
        """Whether the object makes today's values itself, of all that is stored: what is a field
        no longer may be what another is made from."""
        return manifest.version < _version(self.obj) and hasattr(self.obj, "upgrade_state")

    def _built_of(
        self, manifest: Manifest, fields: dict[str, Any], values: Any
    ) -> tuple[dict[str, Any], Saved]:
        """Values as objects of the types that the class names, and what is saved of them."""
        if not isinstance(values, Mapping):
            raise self._invalid(
                f"upgrade_state returns a mapping from names to values, not {type(values).__name__}"
            )
        mine = {n: one for n, one in values.items() if self.fields is None or n in self.fields}
        hints = _hints(self.obj.__class__)
        typed = {name: one for name, one in mine.items() if name in hints}
        wrong = [text for name, one in typed.items() for text in problems(hints[name], one, name)]
        if wrong:
            raise self._invalid(f"what is saved does not fit {type(self.obj).__name__}", wrong)
        stored = built = mine | {name: build(hints[name], one) for name, one in typed.items()}
        if manifest.version < _version(self.obj):  # not stored before the next save
            # What the upgrade leaves out is removed then; what it returns beside the fields stays.
            stored = {n: one for n, one in fields.items() if n in mine or n not in values}
        return built, Saved.of(manifest, stored)

    def _stored(self, name: str, value: Any, inner: bool) -> Any:
        """What is stored of a value: what the type of the field builds it from again.

        Of a field whose type the class does not name, the value as it is.
        """
        hint = _hints(self.obj.__class__).get(name, Any)
        hint = inner_type(hint) if inner else hint
        if hint is Any:
            return value
        try:
            made = to_builtins(value)
            wrong = not_coming_back(hint, made, value, name)
            if not wrong:
                return made
        except InvalidValueError as error:
            wrong = [f"{name}: {error}"]
        except RecursionError:
            wrong = [f"{name}: contains itself, or is nested too deeply"]
        raise self._invalid(f"the field {name!r} would not come back as it is", wrong) from None


def _chosen(obj: Any, fields: Iterable[str] | None) -> tuple[str, ...] | None:
    """The fields that are kept; None if the object says that itself."""
    if isinstance(fields, str) or not isinstance(fields, Iterable | None):
        raise InvalidInputError("fields are several names: fields=['plan']")
    by_itself = isinstance(obj, PersistentAgent)
    if (fields is not None or not by_itself) and is_frozen(type(obj)):
        raise InvalidInputError(
            f"what was saved cannot be given back to a {type(obj).__name__}, whose fields cannot "
            "be set: attach the object that holds it, or give it get_persistent_state and "
            "apply_persistent_state"
        )
    if fields is not None:
        chosen = tuple(fields)
        if not chosen or not all(type(one) is str and one.isidentifier() for one in chosen):
            raise InvalidInputError("fields are names of attributes, at least one")
        for name in chosen:
            kept = inspect.getattr_static(type(obj), name, None)
            if isinstance(kept, property) and kept.fset is None:
                raise InvalidInputError(
                    f"{name} of {type(obj).__name__} is a property that cannot be set, so that "
                    "what was saved could not be given back: name what it is made from"
                )
        return tuple(dict.fromkeys(chosen))
    if by_itself:
        return None
    if is_structured(type(obj)):
        return tuple(fields_of(obj.__class__))
    raise InvalidInputError(
        f"say what is kept of {type(obj).__name__}: attach(agent, state, fields=[...]), or give it "
        "get_persistent_state and apply_persistent_state"
    )


def _version(obj: Any) -> int:
    version = getattr(obj, "state_version", 1)
    if type(version) is not int or version < 1:
        raise InvalidInputError(
            f"state_version of {type(obj).__name__} is a whole number from 1 up"
        )
    return version


@lru_cache(maxsize=1024)
def _hints(kind: type) -> dict[str, Any]:
    """Types that the class names for its attributes; those that cannot be resolved are left out."""
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}


# ---- agent protocol -----------------------------------------------------------------------------
# What an agent of any framework may have, so that it can be attached. All of it is optional.
#
# On the async face each of these methods may be `async`.


@runtime_checkable
class PersistentAgent(Protocol):
    """An agent that says itself what is kept of it.

    Beside these it may have `validate_state()`, which raises or returns a list of problems if the
    agent is in no state to be saved; `handle_recovery()`, called with what was saved of it, if
    anything was, when the run before did not end in order, and by a loop after each refresh and
    restart; `state_version`, a whole number that is raised when what it
    keeps changes, and `upgrade_state(version, values)`, which makes values of today of older ones.
    """

    def get_persistent_state(self) -> Any:
        """What is to be kept: a mapping from names to values."""

    def apply_persistent_state(self, values: Any) -> Any:
        """Take up again what was kept."""
