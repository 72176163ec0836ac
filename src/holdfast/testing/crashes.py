"""Crash-testing an agent: it is killed around every commit, started again, and judged by its end.

    report = crash(run_agent)
    assert report.ok, str(report)

Each trial has a new store. The agent runs in a process of its own, which is killed with SIGKILL
just before or just after one of its commits; then it is started again and runs to its end. The end
must be that of a run that nobody disturbed, and the store must verify.

What it cannot show: power loss (the file system is not cut off), and what happens between two
commits, unless something there is seen from outside: the two moments around a gap are its ends.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast
from holdfast import sync
from holdfast.agents.machines.machine_records import MachineBook, machines_of
from holdfast.errors import InvalidInputError
from holdfast.seal.keys import variable_of
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Counting
from holdfast.store.inner import handle_of, same
from holdfast.store.names.arguments import check_run, check_seconds, is_async, ran

MOMENTS = ("before", "after")
"""Of a commit: nothing of it is stored, or all of it."""
SEEN = ("", "$agent/")
"""Prefixes of the keys that are compared, beside where machines are; what else Holdfast keeps holds
times and attempts."""
_MOST_TOLD = 8
Kill = tuple[str, int]
"""A moment, and the number of a commit, counted from the start of the process."""


@dataclass(frozen=True)
class CrashFinding:
    """A trial whose end was another than that of the undisturbed run."""

    kill: Kill
    why: str

    def __str__(self) -> str:
        return f"killed {self.kill[0]} commit {self.kill[1]}: {self.why}"


@dataclass(frozen=True)
class CrashReport:
    """What killing an agent showed."""

    commits: int
    """Of the run that nobody disturbed."""
    kills: int
    findings: tuple[CrashFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether it was killed at all, and every end was that of the undisturbed run."""
        return self.kills > 0 and not self.findings

    def __str__(self) -> str:
        head = f"{self.kills} kills around {self.commits} commits, {len(self.findings)} findings"
        return "\n".join([head, *map(str, self.findings)])


class Killing(Counting):
    """A storage that ends its own process with SIGKILL at one of its commits."""

    def __init__(self, storage: Storage, moment: str = "", commit: int = 0) -> None:
        super().__init__(storage)
        self._moment = moment
        self._commit = commit

    def commit(self, batch: Batch) -> None:
        """Commit, unless this is the moment."""
        here = self.calls["commit"] + 1 == self._commit
        if here and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(batch)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)


def contents(store: sync.Store, world: Path) -> dict[str, Any]:
    """What is compared unless you say otherwise: all keys of all scopes, where their machines are,
    with data and metadata, and the world's files."""
    found: dict[str, Any] = {}
    for info in store.scopes().items:
        state = store.scope(info.scope)
        for prefix in SEEN:
            for key, value in state.items(prefix, plain=True):
                found[f"{info.scope} {key}"] = value
        for name in machines_of(handle_of(state)):
            found |= {f"{info.scope} {key}": value for key, value in _machine(state, name).items()}
    for path in sorted(world.rglob("*")):
        if path.is_file():
            found[f"file {path.relative_to(world)}"] = path.read_bytes()
    return found


def _machine(state: sync.State, name: str) -> dict[str, Any]:
    """What a machine keeps, but for times, ids and the number of its version."""
    book = MachineBook(handle_of(state), name)
    seen = book.look_whole()
    metadata = seen.now.metadata or None if seen.now is not None else None
    found = {book.now_key: (seen.state or None, metadata), book.data_key: seen.data or None}
    return found | ({book.intent_key: seen.intent.trigger} if seen.intent is not None else {})


def crash(
    run: Callable[..., Any],
    *,
    prepare: Callable[..., Any] | None = None,
    see: Callable[..., Any] = contents,
    moments: tuple[str, ...] = MOMENTS,
    every: int = 1,
    timeout: float = 60.0,
    folder: Path | None = None,
    **options: Any,
) -> CrashReport:
    """Kill `run(store)` around each of its commits, start it again, and compare the ends.

    A coroutine function gets a store of `holdfast`, any other one of `holdfast.sync`. With a second
    parameter it also gets the world: an empty folder of the trial, that outlives the kills, for
    tools to leave their traces in. `prepare` makes what is there at first, `see` what is compared;
    both take what `run` takes, and a blocking store. `every=5` kills around each fifth commit only.
    A run of more than `timeout` seconds is a finding. `options` are those of `holdfast.open`.
    Trials lie in `folder`, which keeps them, or in a temporary one.

    The agent has to come to its end by itself, and to do the same each time: what is random, or is
    told by the clock, is left out by a `see` of yours. Needs `os.fork`: Linux or macOS; call it
    where no store is in use by other threads.
    """
    for name, function in (("run", run), ("prepare", prepare), ("see", see)):
        if function is not None:
            check_run(function, name, awaited=name == "run")
            _parameters(function, name)
    if type(every) is not int or every < 1:
        raise InvalidInputError("every is a whole number from 1 up: around each, each second ...")
    check_seconds(timeout, "timeout")
    if not hasattr(os, "fork"):
        raise InvalidInputError("crash-testing needs os.fork, which this system does not have")
    if not moments or not set(moments) <= set(MOMENTS):
        raise InvalidInputError(f"moments are {' and '.join(MOMENTS)}")
    with _place(folder) as place:
        agent = _Agent(run, prepare, see, timeout, options, place)
        expected, commits = agent.undisturbed()
        findings = []
        killed = 0
        for kill in [(one, n) for n in range(1, commits + 1, every) for one in moments]:
            died, why = agent.trial(kill, expected)
            killed += died
            if why:
                findings.append(CrashFinding(kill, why))
        return CrashReport(commits, killed, tuple(findings))


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder)
        return
    # In memory where the system offers that: syncs cost nothing there, and nobody cuts the power.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-", dir=base) as made:
        yield Path(made)


@dataclass
class _Agent:
    """The agent under test, and how it is run."""

    _run: Callable[..., Any]
    _prepare: Callable[..., Any] | None
    _see: Callable[..., Any]
    _timeout: float
    _options: Mapping[str, Any]
    _place: Path

    def __post_init__(self) -> None:
        key = self._options.get("key")
        self._options = {"durability": "normal", **self._options}
        self._secrets = variable_of(os.environ.get("HOLDFAST_KEY") if key is None else str(key))

    def _open(self, opened: Callable[..., Any], trial: Path, **more: Any) -> Any:
        """Open a store; a key in an environment variable is gone once it is read: set it again."""
        os.environ.update(self._secrets)
        return opened(self._url(trial), **more, **self._options)

    def undisturbed(self) -> tuple[Any, int]:
        """The end of a run that is not killed, and the number of its commits."""
        with self._open(sync.open, self._new("options", prepared=False)):
            pass  # what is wrong with the options is no failure of the agent
        trial = self._new("undisturbed")
        died, told = self._process(trial, "", 0)
        if died:
            raise InvalidInputError(f"the agent fails without being killed: {told or died}")
        commits, own = map(int, told.split())
        if not own:
            raise InvalidInputError(
                "the agent commits nothing: there is nothing that it could be killed around"
            )
        return self._end(trial)[0], commits

    def trial(self, kill: Kill, expected: Any) -> tuple[bool, str]:
        """Run the agent, kill it, and let it come to its end.

        Whether it was killed, and what is wrong with its end.
        """
        trial = self._new(f"{kill[0]}-{kill[1]}")
        died, told = self._process(trial, *kill)
        killed = died == "SIGKILL"
        if killed:
            died, told = self._process(trial, "", 0)
        if died:
            return killed, f"{'started again, it' if killed else 'it'} failed: {told or died}"
        end, findings = self._end(trial)
        return killed, "; ".join([*_differences(expected, end), *findings][:_MOST_TOLD])

    def _new(self, name: str, *, prepared: bool = True) -> Path:
        trial = self._place / name
        try:
            (trial / "world").mkdir(parents=True)
        except OSError as error:
            raise InvalidInputError(
                f"{trial / 'world'} cannot be made ({error.strerror}): give a folder without trials"
            ) from error
        if prepared and self._prepare is not None:
            with self._open(sync.open, trial) as store:
                ran(_call(self._prepare, store, trial), "prepare")
        return trial

    def _url(self, trial: Path) -> str:
        return f"sqlite:{trial / 'store.db'}"

    def _end(self, trial: Path) -> tuple[Any, list[str]]:
        with self._open(sync.open, trial) as store:
            seen = ran(_call(self._see, store, trial), "see")
            return seen, [f"verify: {one.message}" for one in store.verify().findings]

    def _process(self, trial: Path, moment: str, commit: int) -> tuple[str, str]:
        """Run the agent in a process of its own; the signal that ended it, and what it told."""
        forks = multiprocessing.get_context("fork")
        reading, writing = forks.Pipe(duplex=False)

        def live() -> None:
            told, code = "", 1
            try:
                told, code = " ".join(map(str, self._live(trial, moment, commit))), 0
            except BaseException:  # also what would end this process: its parent is to be told
                told = traceback.format_exc()
            finally:
                writing.send(told[-4000:])
                os._exit(code)

        process = forks.Process(target=live)
        with warnings.catch_warnings():
            # That other threads may hold locks is said in the docstring, and bounded by `timeout`.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        writing.close()
        try:
            text = reading.recv() if reading.poll(self._timeout) else None
        except EOFError:  # it ended, or was ended, and told nothing
            text = ""
        if text is None:
            process.kill()
        process.join()
        if text is None:
            return "timeout", f"it did not come to its end in {self._timeout:g} s"
        code = process.exitcode or 0
        if code < 0:
            return signal.Signals(-code).name, text
        if not text:
            return "error", "it ended its own process instead of coming back"
        return "error" if code else "", text

    def _live(self, trial: Path, moment: str, commit: int) -> tuple[int, int]:
        """The agent's life, in its own process; how many commits there were, and by itself."""
        inner = open_storage(self._url(trial), durability=self._options["durability"])
        storage = Killing(inner, moment, commit)
        own = 0
        if is_async(self._run):

            async def live() -> None:
                nonlocal own
                async with self._open(holdfast.open, trial, storage=storage) as store:
                    own -= storage.calls["commit"]
                    await _call(self._run, store, trial)
                    own += storage.calls["commit"]

            asyncio.run(live())
        else:
            with self._open(sync.open, trial, storage=storage) as store:
                own -= storage.calls["commit"]
                ran(_call(self._run, store, trial), "what is crash-tested")
                own += storage.calls["commit"]
        return storage.calls["commit"], own


def _call(function: Callable[..., Any], store: Any, trial: Path) -> Any:
    """Call with the store, and with the world if there is a second parameter for it."""
    return function(*(store, trial / "world")[: _parameters(function, "it")])


def _parameters(function: Callable[..., Any], name: str) -> int:
    """Whether a function takes the store alone (1), or also the world (2)."""
    signature = inspect.signature(function)
    for count in (1, 2):
        with suppress(TypeError):
            signature.bind(*range(count))
            return count
    raise InvalidInputError(f"{name} takes the store, or the store and the world")


def _differences(expected: Any, end: Any) -> list[str]:
    """Where two ends differ, by name: values may be long, or secret."""
    if not (isinstance(expected, dict) and isinstance(end, dict)):
        return [] if _same(expected, end) else ["the end is another"]
    both = [name for name in expected if name in end]
    return [
        *(f"{name} is missing" for name in expected if name not in end),
        *(f"{name} is new" for name in end if name not in expected),
        *(f"{name} differs" for name in both if not _same(expected[name], end[name])),
    ]


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or same(one, other)  # nan is not equal to itself
