"""What features keep in a scope: records of before are read as they were, and gone on with."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import features
import golden
import pytest

from holdfast import sync
from holdfast.sync import agents

STORED: dict[str, Any] = json.loads(features.FILE.read_text())


@pytest.fixture
def store() -> Any:
    with features.opened(STORED["records"], STORED["cells"]) as store:
        yield store


def test_records_of_before_say_the_same(store: sync.Store) -> None:
    assert store.verify().findings == []
    told = json.loads(json.dumps(features.told(store)))
    for name, said in STORED["told"].items():
        assert told[name] == said, name
    assert told.keys() == STORED["told"].keys()


def test_features_go_on_from_there(store: sync.Store) -> None:
    clerk = store.agent("clerk")
    assert agents.Effects(clerk).call("send-email", lambda _: "twice", key="order-17") == (
        "receipt 1"
    )
    with agents.Mailbox(clerk).next() as mail:
        assert mail.content == "waits"
    assert agents.Machine(clerk, features.MACHINE).fire("send").version == 4
    done = agents.Handovers(store).accept("agent:billing", "offer-t3")
    assert (done.status, agents.AgentState(store.agent("billing")).ids("tasks")) == (
        "accepted",
        ["t1", "t3"],
    )
    loop = agents.Loop(store.agent("counter"), features.Counter, fields=["count"], signals=())
    assert loop.run().restarts == 1
    assert store.verify().findings == []


def test_the_same_keys_are_written() -> None:
    url = golden.fresh_url()
    with sync.open(url, clock=golden.Hands()) as store:
        features.fill(store)
        written = features.told(store)["keys"]
    assert without_ids(written) == without_ids(STORED["told"]["keys"])


def without_ids(keys: dict[str, list[str]]) -> dict[str, list[str]]:
    """Keys with random numbers and hashes of such left out."""
    random = re.compile(r"[0-9a-f]{16,}|\d{8}T[\d.]+-[0-9a-f]{4}")
    return {scope: sorted(random.sub("…", key) for key in found) for scope, found in keys.items()}
