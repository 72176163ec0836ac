"""Every storage call of a workload fails: once, from there on, and with an unknown outcome.

After each operation a second, sound handle looks at what is really there. A call that returned
must be there, one that failed cleanly must not be, one with an unknown outcome may be either,
but whole. After the fault the same writer goes on (or, where storage stays away, a new one),
a change with an id that is sent again is applied once, and `verify` finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast import sync
from holdfast.errors import HoldfastError, InternalError, OutcomeUnknown, Unavailable
from holdfast.storage import open_storage
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store import long as write
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import timeline
from holdfast.store.open import open_core
from holdfast.sync import Store
from prove.common import Findings, Result, TooMany, folder, pick
from prove.ops import Generator, Op, Plain, carry_out, dump_store

FAULTS = (
    ("before", False),
    ("before", True),
    ("ambiguous-applied", False),
    ("ambiguous-applied", True),
    ("ambiguous-lost", False),
    ("ambiguous-lost", True),
)


@dataclass
class Case:
    """One run of the workload: where, and which call fails how."""

    url: str
    fault: Fault
    ops: list[Op]

    def __str__(self) -> str:
        mode = self.fault.mode + (" from there on" if self.fault.onward else "")
        return f"{self.url.partition(':')[0]}, call {self.fault.nth} {mode}"


def open_around(url: str, storage: Faulty) -> Store:
    """The blocking store on a storage of our own."""
    return Store(StoreHandle(open_core(url, storage=storage)))


def workload(seed: int, length: int) -> list[Op]:
    """Operations of every kind; the first of each kind come early."""
    generator = Generator(seed, scopes=("agent:a", "session:s:1"))
    ops: list[Op] = [
        ("set", "agent:a", "main", "k1", {"n": 0}),
        ("change", "id-0", [("agent:a", "main", [("set", "k2", 1)]),
                            ("session:s:1", "main", [("append", "log", 1)])]),
        ("checkpoint", "agent:a", "main", "c0"),
        ("append", "agent:a", "main", "log", {"n": 1}),
        ("restore", "agent:a", "main", "c0"),
        ("fork", "agent:a", "main", "trial"),
        ("set", "agent:a", "trial", "k3", 3),
        ("adopt", "agent:a", "main", "trial"),
        ("delete", "agent:a", "main", "k1"),
        ("drop", "session:s:1"),
        ("set", "session:s:1", "main", "k1", "again"),
        ("write", "agent:a", "main", "long", b"".join(b"line %d\n" % n for n in range(3000))),
    ]  # fmt: skip
    for op in ops:
        generator.model.apply(op)
    while len(ops) < length:
        op = generator.next()
        if op[0] != "reopen":
            ops.append(op)
    return ops


def settle(sound: Store, store: Store, model: Plain, op: Op) -> tuple[Plain, str]:
    """Carry out one operation; the model afterwards, and what is wrong ("" if nothing)."""
    after = model.after(op)
    try:
        carry_out(store, op)
        allowed, told = [after], "returned"
    except OutcomeUnknown:
        allowed, told = [model, after], "unknown"
    except InternalError as error:
        return model, f"a bug: {error} ({error.__cause__!r})"
    except HoldfastError as error:
        allowed, told = [model], f"refused ({type(error).__name__})"
    except Exception as error:
        return model, f"{type(error).__name__} instead of an error of Holdfast: {error}"
    seen = dump_store(sound)
    for candidate in allowed:
        if seen == candidate.dump():
            return candidate, ""
    there = "it is there" if seen == after.dump() else "neither the state before nor after it"
    return model, f"{told}, but {there}"


def run_case(case: Case) -> str:
    """One run; what is wrong, or ""."""
    faulty = Faulty(open_storage(case.url))
    store = open_around(case.url, faulty)  # the faults begin with the first operation
    sound = Store(StoreHandle(open_core(case.url)))
    faulty.plan, _ = (case.fault,), faulty.calls.clear()
    try:
        return _run_ops(case, faulty, store, sound)
    finally:
        store.close()
        sound.close()


def _run_ops(case: Case, faulty: Faulty, store: Store, sound: Store) -> str:
    model = Plain()
    for number, op in enumerate(case.ops):
        if not fits(model, op):
            if not refused(store, op):
                return f"operation {number} ({op[0]}) was done although its place is not there"
            continue
        failed = len(faulty.failed)
        model, wrong = settle(sound, store, model, op)
        if wrong:
            return f"operation {number} ({op[0]}): {wrong}"
        if len(faulty.failed) == failed:
            continue
        if case.fault.onward:
            faulty.plan = ()  # the outage ends here; the same handle must be able to go on
        # Whoever does not know sends it again: with an id it is there once, whatever happened.
        if op[0] == "change" and op[1] is not None:
            once = model.after(op)
            carry_out(store, op)
            model = once
            if dump_store(sound) != model.dump():
                return f"operation {number}: sent again with its id, it is not there exactly once"
        elif fits(model, op) and op[0] in ("set", "append"):
            carry_out(store, op)
            model = model.after(op)
            if dump_store(sound) != model.dump():
                return f"operation {number}: done again after the fault, something else is there"
    if dump_store(store) != model.dump():
        return "at the end the writer sees something else than what is there"
    found = sound.verify().findings
    return f"verify: {found[0].place}: {found[0].message}" if found else ""


def refused(store: Store, op: Op) -> bool:
    """Whether an operation on what a failed one should have made is refused."""
    try:
        carry_out(store, op)
    except HoldfastError:
        return True
    return False


def fits(model: Plain, op: Op) -> bool:
    """Whether what the operation needs is there; an earlier one may have failed."""
    if op[0] == "drop":
        return op[1] in model.scopes
    if op[0] == "change":
        return all(name in model.scopes.get(s, {"main": 0}) for s, name, _ in op[2])
    lines = model.scopes.get(op[1], {})
    if op[2] not in lines and not (op[2] == "main" and op[0] in ("set", "append", "checkpoint")):
        return False
    if op[0] == "restore":
        return any(name == op[3] for name, _ in lines[op[2]].checkpoints)
    if op[0] == "adopt":
        return op[3] in lines
    return op[0] != "fork" or op[3] not in lines


def cases(seed: int, scale: int, place: Path) -> Iterator[Case]:
    """Every call number in every mode, until the workload has no more calls."""
    ops = workload(seed, pick(scale, 11, 14, 60))
    for engine in ("memory", "sqlite"):
        calls = count_calls(engine, ops, place)
        step = 1 if engine == "memory" else pick(scale, 9, 3, 1)
        first = seed % step + 1
        for nth in range(first, calls + 1, step):
            for mode, onward in FAULTS:
                number = f"{nth}-{mode}-{onward}"
                url = f"memory:{place.name}-{number}" if engine == "memory" else (
                    f"sqlite:{place / number}.db"
                )  # fmt: skip
                yield Case(url, Fault("*", nth, mode, onward), ops)


def count_calls(engine: str, ops: list[Op], place: Path) -> int:
    """How many storage calls the workload makes when nothing fails."""
    url = f"{engine}:{place / 'count.db' if engine == 'sqlite' else place.name}"
    faulty = Faulty(open_storage(url))
    with open_around(url, faulty) as store:
        faulty.calls.clear()
        for op in ops:
            carry_out(store, op)
    return faulty.calls["*"]


def run(seed: int, scale: int) -> Result:
    """Run all cases."""
    findings = Findings()
    runs = 0
    often, timeline.DELTA_EVERY = timeline.DELTA_EVERY, 5
    short, write.SHORT = write.SHORT, 0
    try:
        with folder() as place:
            for case in cases(seed, scale, place):
                runs += 1
                wrong = run_case(case)
                if wrong:
                    findings.note(f"{case}: {wrong}")
                forget(case)
        for wrong in outage_is_no_damage(seed, scale):
            findings.note(wrong)
    except TooMany:
        pass
    finally:
        timeline.DELTA_EVERY, write.SHORT = often, short
    each = ("9th", "3rd", "one")[scale]
    scope = f"every storage call on memory, every {each} on sqlite, 6 ways to fail"
    return Result(f"{runs} runs", scope, seed, findings)


def outage_is_no_damage(seed: int, scale: int) -> Iterator[str]:
    """Each storage call of `verify` and of reading fails once: never taken for damage."""
    url = f"memory:faults-outage-{seed}-{scale}"
    with sync.open(url) as store:
        for op in workload(seed, 14):
            carry_out(store, op)
    for name, look in (("verify", lambda store: store.verify().findings), ("dump", dump_store)):
        nth, failed = 0, True
        while failed:
            nth += 1
            storage = Faulty(open_storage(url))
            with open_around(url, storage) as store:
                storage.plan, _ = (Fault("*", nth),), storage.calls.clear()
                try:
                    if look(store) and storage.failed:
                        yield f"{name} gave an answer although call {nth} of it failed"
                except Unavailable:
                    pass
                except HoldfastError as error:
                    yield f"{name} with call {nth} failing: {type(error).__name__}"
                failed = bool(storage.failed)


def forget(case: Case) -> None:
    """Free what a run leaves behind."""
    from holdfast.storage import memory

    engine, _, path = case.url.partition(":")
    if engine == "memory":
        memory._SPACES.pop(path, None)
    else:
        for file in Path(path).parent.glob(Path(path).name + "*"):
            file.unlink()
