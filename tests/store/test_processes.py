"""Whether a holder of a lease is known to be gone: told only of a process of this very machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_kit import SOURCE, Place

from holdfast.errors import LeaseHeldError
from holdfast.store.lease import is_gone, shown, this_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nobody is known to be gone here")

NAMED = """
import sys
from holdfast.store.lease import this_process
print(this_process(), flush=True)
sys.stdin.readline()
"""
HOLDER = """
import sys
from holdfast import sync
with sync.open(sys.argv[1], durability="normal", signer=sys.argv[2]) as store:
    with store.lease("job", duration=3600) as lease:
        store.agent("1").append("log", lease.term)
        print("held", flush=True)
        sys.stdin.readline()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(program: str, *arguments: str, inside: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [*inside, sys.executable, "-c", program, *arguments],
                env={**os.environ, "PYTHONPATH": SOURCE},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_this_process_is_there() -> None:
    name = this_process()
    assert shown(name) == f"{socket.gethostname()[:200]}/{os.getpid()}"
    assert not is_gone(name)


def test_one_that_was_killed_is_gone_and_one_that_was_stopped_is_not(start: Start) -> None:
    process = start(NAMED)
    name = line_of(process)
    assert not is_gone(name)
    process.send_signal(signal.SIGSTOP)
    assert not is_gone(name)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(name), "it has ended, though nobody has asked how"
    process.wait()
    assert is_gone(name)


def test_one_whose_number_another_has_by_now_is_gone() -> None:
    head, _, start = this_process().rpartition(".")
    assert is_gone(f"{head}.{int(start) - 1}")


def test_of_another_machine_and_of_names_that_say_nothing_it_is_not_known() -> None:
    name = this_process()
    free = int(Path("/proc/sys/kernel/pid_max").read_text())
    mark = name[name.index("#") :]
    assert is_gone(f"here/{free}{mark}"), "there is no process of this number"
    head, _, start = name.rpartition(".")
    other = head[:-1] + ("0" if head[-1] != "0" else "1")
    names = [f"{other}.{start}", f"{other}.1", f"here/{free}", f"here/{free}#0.1", "worker-1", ""]
    for unknown in (None, *names, f"here/9999999999{mark}"[:-1] + "x"):
        assert not is_gone(unknown)
    assert [shown(one) for one in names[2:]] == names[2:]
    assert shown(None) is None


NAMESPACES = {
    "its own view of processes": ("--mount-proc",),
    "the view of another": (),
}


@pytest.mark.parametrize("options", NAMESPACES.values(), ids=NAMESPACES.keys())
def test_of_another_container_it_is_not_known(start: Start, options: tuple[str, ...]) -> None:
    """Same host name, a number that is nobody's here or another's: only time can tell."""
    inside = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", *options)
    tried = shutil.which("unshare") and subprocess.run([*inside, "true"], capture_output=True)
    if not tried or tried.returncode:
        pytest.skip("no namespace can be made here")
    process = start(NAMED, inside=inside)
    name = line_of(process)
    assert (shown(name) or "").startswith(f"{socket.gethostname()[:200]}/")
    assert not is_gone(name)
    process.kill()
    process.wait()
    assert not is_gone(name)


def test_the_lease_of_one_that_was_killed_is_taken_at_once(tmp_path: Path, start: Start) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    store.agent("1").set("log", [])
    process = start(HOLDER, place.url, place.signer)
    assert line_of(process) == "held"
    [info] = store.leases()
    assert (info.owner, info.gone) == (f"{socket.gethostname()[:200]}/{process.pid}", False)
    with pytest.raises(LeaseHeldError), store.lease("job", wait=0):
        pass
    process.kill()
    process.wait()
    assert store.leases()[0].gone
    with store.lease("job", wait=0) as lease:
        assert lease.owner == f"{socket.gethostname()[:200]}/{os.getpid()}"
        store.agent("1").append("log", lease.term)
    assert store.agent("1").get("log") == [1, 2]
    assert store.leases()[0].owner is None
    assert store.verify().findings == []
    place.close()


def test_the_lease_of_one_that_is_stopped_is_not(tmp_path: Path, start: Start) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store = place.open()
    store.agent("1").set("log", [])
    process = start(HOLDER, place.url, place.signer)
    assert line_of(process) == "held"
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(LeaseHeldError), store.lease("job", wait=0):
        pass
    place.close()
