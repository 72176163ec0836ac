"""What is out of bounds is told, by whichever way, until it resolves; what was not told is told."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.checkpoints import checkpoint_group as group
from holdfast.errors import ConfigurationError, Unavailable
from holdfast.recovery import Configuration
from holdfast.recovery.setup import alerts
from holdfast.recovery.setup.alerts import Alerts, Channel, FailureRate, recovery_time

QUICK = {"watchdog": "100ms", "retention": "1h", "expiry": "1h", "alerts": "50ms"}


def document(**sections: Any) -> dict[str, Any]:
    return {"agent_id": "7", "intervals": QUICK, **sections}


def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def told(events: list[Any]) -> list[tuple[str, str]]:
    return [(one["alert"], one["status"]) for one in events if one["event"] == "alert"]


@pytest.mark.spec("K288")
def test_replicas_that_lag_are_told_of_until_they_follow(tmp_path: Path) -> None:
    """Catches: a threshold that nobody watches; an alert that never resolves."""
    events = list[Any]()
    section = {"enabled": True, "replicas": [f"sqlite:{tmp_path}/there/copy.db"]}
    watched = {"alert_thresholds": {"sync_lag": "1m"}}
    with (
        sync.open("memory:") as store,
        sync.recovery.set_up(
            document(synchronization=section, monitoring=watched),
            store=store,
            initial={"k": 1},
            on_alert=events.append,
        ) as running,
    ):
        until(lambda: ("sync_lag", "firing") in told(events))
        concerns = running.recovery.health().concerns
        assert any(one.kind == "alert" and "sync_lag" in one.what for one in concerns)
        (tmp_path / "there").mkdir()
        until(lambda: ("sync_lag", "resolved") in told(events))
        until(lambda: running.status().ok)
        assert all(one.ok for one in running.synchronise().replicas)
        assert told(events).count(("sync_lag", "firing")) == 1
    with pytest.raises(ConfigurationError, match="nothing lags"):
        Configuration.of(document(monitoring=watched))


@pytest.mark.spec("K286")
def test_checkpoints_that_fail_are_told_of_as_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: failures that nobody counts; a window that never ends."""
    fails, events, finished = threading.Event(), list[Any](), group._finished

    def failing(*given: Any) -> Any:
        if fails.is_set():
            return group.Saved("failed", error=Unavailable("the disk is away"))
        return finished(*given)

    monkeypatch.setattr(group, "_finished", failing)
    monkeypatch.setattr(FailureRate.__init__, "__defaults__", (1.0,))
    watched = {"alert_thresholds": {"checkpoint_failure_rate": 0.05}}
    with (
        sync.open("memory:") as store,
        sync.recovery.set_up(
            document(monitoring=watched), store=store, initial={"k": 0}, on_alert=events.append
        ) as running,
    ):
        fails.set()
        running.state.set("k", "x" * 100)
        until(lambda: told(events) == [("checkpoint_failure_rate", "firing")])
        assert "checkpoints failed, more than 5.0%" in events[0]["what"]
        assert running.store.metrics().count("checkpoints", outcome="failed") > 0
        fails.clear()
        running.state.set("k", "y" * 100)
        until(lambda: told(events)[1:] == [("checkpoint_failure_rate", "resolved")])


@pytest.mark.spec("K287")
def test_a_recovery_that_takes_long_is_told_of(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a threshold taken for milliseconds; one that ended long ago, told of for ever."""
    config = Configuration.of(document(monitoring={"alert_thresholds": {"recovery_time": 300_000}}))
    assert config.thresholds == {"recovery_time": 300}
    recovery = sync.recovery.Recovery(store, steps={"slow": lambda *_: time.sleep(0.05)})
    recovery.set({"id": "p", "triggers": ["slow"], "steps": [{"type": "slow"}]})
    store.agent("7").set("k", 1)
    look = partial(recovery_time, store, lambda: recovery.reports("agent:7", 1), 0.02)
    assert list(look()) == []
    recovery.recover("agent:7", "slow")
    ((name, what),) = look()
    assert name == "recovery_time"
    assert "took 0." in what
    assert list(recovery_time(store, lambda: recovery.reports("agent:7", 1), 60)) == []
    monkeypatch.setattr(alerts, "WINDOW", 0.0)
    assert list(look()) == []


def test_each_way_is_told_once_and_again_where_it_did_not_serve(tmp_path: Path) -> None:
    """Catches: a body that is not signed, or told to who did not answer; lost letters."""
    calls, key = list[tuple[int, dict[str, Any]]](), b"shared"

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            signed = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
            code = 200 if len(calls) > 1 else 500
            calls.append(
                (code if self.headers["Holdfast-Signature"] == signed else 0, json.loads(body))
            )
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    secret = tmp_path / "secret"
    secret.write_bytes(key + b"\n")
    secret.chmod(0o600)
    file = tmp_path / "told.txt"
    append = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    place = Place("sqlite", tmp_path, sealed=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hook = {"webhook": f"http://127.0.0.1:{server.server_port}/x", "secret": f"file:{secret}"}
        command = {"command": [sys.executable, "-c", append, str(file)]}
        notify = [hook, command, {"letter": "operator"}]
        config = Configuration.of(document(monitoring={"notify": notify}))
        with sync.recovery.set_up(config, store=place.open(), initial={"k": 1}) as running:
            running.recover("agent_crash")
            until(lambda: any(code == 200 for code, one in calls if one["event"] == "recovery"))
            mailbox = sync.agents.Mailbox(running.store.agent("operator"))
            until(lambda: file.exists() and any(of(letters(mailbox))))
            until(lambda: running.status().alerts == ())
        server.shutdown()
    assert [code for code, _ in calls][:3] == [500, 500, 200]
    recoveries = of(one for code, one in calls if code == 200)
    assert [one["failure"] for one in recoveries] == ["agent_crash"], "once it served"
    assert of(map(json.loads, file.read_text().splitlines())) == recoveries
    assert of(letters(mailbox_of(place))) == recoveries
    place.close()


def of(events: Any) -> list[Any]:
    """Those that tell of recoveries."""
    return [one for one in events if one["event"] == "recovery"]


def mailbox_of(place: Place) -> Any:
    return sync.agents.Mailbox(place.reopen().agent("operator"))


def letters(mailbox: Any) -> list[Any]:
    return [one.content for one in mailbox.waiting()]


def test_a_way_that_does_not_serve_is_told_by_the_others(store: sync.Store) -> None:
    holds, events = {"one": "is high"}, list[Any]()
    bad = Channel(command=(sys.executable, "-c", "raise SystemExit('no')"))
    watching: list[Alerts] = []

    def look() -> Any:
        yield from holds.items()
        yield from watching[0].errors.items()

    watching.append(Alerts(store, [look], [bad], {"mine": events.append}))
    watching[0].look()
    watching[0].look()
    assert told(events) == [("one", "firing"), (bad.name, "firing")]
    assert "ended with 1: no" in events[1]["what"]
    holds.clear()
    watching[0].look()
    assert told(events)[2:] == [("one", "resolved")]
    again = Alerts(store, [], [], {"mine": events.append})  # another process goes on
    again.look()
    assert told(events)[3:] == [(bad.name, "resolved")]


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"alert_thresholds": {"checkpoint_failure_rate": 5}}, "a share from 0 to 1"),
        ({"alert_thresholds": {"recovery_time": "soon"}}, "recovery_time is milliseconds"),
        ({"alert_thresholds": {"colour": 1}}, "colour is none of"),
        ({"notify": [{"webhook": "ftp://x"}]}, "webhook is a URL"),
        ({"notify": [{"command": "rm"}]}, "command is a list"),
        ({"notify": [{"letter": "a", "command": ["x"]}]}, "give one of"),
        ({"notify": [{"letter": "a", "secret": "env:X"}]}, "secret is of a webhook"),
        ({"notify": ["x"]}, "is a mapping of"),
        ({"notify": {}}, "notify is a list"),
    ],
)
def test_slips_of_monitoring(section: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Configuration.of(document(monitoring=section))
