"""Effects of an agent that is killed, as a process, around every one of its commits."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import EffectUnknownError
from holdfast.testing import crash

MAILS = ("ann", "bob", "cid")


def send(world: Path, to: str, key: str | None = None) -> str:
    """A tool that, given a key, sends once for it."""
    if key is not None and (world / f"key-{key}").exists():
        return f"sent to {to}"
    with (world / "sent").open("a") as file:
        file.write(f"{to}\n")
    if key is not None:
        (world / f"key-{key}").touch()
    return f"sent to {to}"


def sent(world: Path) -> list[str]:
    file = world / "sent"
    return file.read_text().split() if file.exists() else []


def with_keys(store: sync.Store, world: Path) -> None:
    state = store.agent("clerk")
    effects = sync.agents.Effects(state)
    for to in MAILS:
        with effects.once("send", key=to) as effect:
            if effect.due:
                effect.result = send(world, to, effect.key)
                effect.append("talk", effect.result)
    state.set("all", "sent")


async def with_keys_too(store: holdfast.Store, world: Path) -> None:
    effects = holdfast.agents.Effects(store.agent("clerk"))
    for to in MAILS:
        async with effects.once("send", key=to) as effect:
            if effect.due:
                effect.result = send(world, to, effect.key)
                effect.append("talk", effect.result)
    await store.agent("clerk").set("all", "sent")


def without_keys(store: sync.Store, world: Path) -> None:
    """What is unknown is left to somebody else."""
    effects = sync.agents.Effects(store.agent("clerk"))
    for to in MAILS:
        with suppress(EffectUnknownError):
            effects.call("send", lambda _, to=to: send(world, to), id=to)


def asking(store: sync.Store, world: Path) -> None:
    """What is unknown is looked up in the world, as a person would do it."""
    effects = sync.agents.Effects(store.agent("clerk"))
    for effect in effects.unfinished():
        happened = effect.id in sent(world)
        effects.settle("send", "done" if happened else "repeat", id=effect.id)
    for to in MAILS:
        effects.call("send", lambda _, to=to: send(world, to), id=to)


@pytest.mark.parametrize("run", [with_keys, with_keys_too])
def test_where_the_tool_takes_a_key_nothing_is_done_twice(run: Any) -> None:
    """The mails, the conversation and the end are those of a run that nobody disturbed."""
    report = crash(run)
    assert report.ok, str(report)
    assert report.commits >= 7


def test_where_it_takes_none_an_unknown_end_is_reported() -> None:
    """Never twice; and what was not sent for certain, or may not have been, is listed."""

    def judged(store: sync.Store, world: Path) -> list[str]:
        effects = sync.agents.Effects(store.agent("clerk"))
        listed = [effect.id for effect in effects.unfinished()]
        done = [effect.id for effect in effects.all() if effect.status == "done"]
        wrong = [to for to in MAILS if sent(world).count(to) > 1]
        wrong += [to for to in done if sent(world).count(to) != 1]
        return wrong + [to for to in MAILS if to not in done and to not in listed]

    report = crash(without_keys, see=judged)
    assert report.ok, str(report)
    assert crash(asking).ok, "and who settles what is unknown comes to the undisturbed end"


FORKING = """
import os, signal, sys
from holdfast import sync
url, signer = sys.argv[1:]
with sync.agents.Effects(sync.open(url, signer=signer).agent("7")).once("mail", key="k") as effect:
    assert effect.due
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    signal.alarm(60)  # it has no parent that would end it
    effects = sync.agents.Effects(sync.open(url, signer=signer).agent("7"))
    seen = [one.status for one in effects.unfinished()]
    done = effects.call("mail", lambda effect: "sent", key="k")
    print(seen, done, flush=True)
    os._exit(0)
"""


def test_what_a_parent_does_is_not_done_by_its_child(tmp_path: Path) -> None:
    """A child that was forked inside a block sees it as any other process does."""
    place = Place("sqlite", tmp_path, sealed=False)
    process = subprocess.run(
        [sys.executable, "-c", FORKING, place.url, place.signer],
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.stdout == "['unknown'] sent\n", process.stderr
    assert process.returncode == -signal.SIGKILL
