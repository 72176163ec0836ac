"""`holdfast run`: a document as a process, looked at from outside alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kai_kit import DOCUMENT
from s3_kit import Server as Bucket
from store_kit import put_row, rows_of

from holdfast.storage import open_storage

SCOPE = "agent:ai.kai.assistant.general"
BOTS = '''
import time

from holdfast.agents import StepResult

class Worker:
    """Rewrites its notes in each step: a checkpoint each, until there are 120."""

    def __init__(self, state):
        self.state = state

    def step(self):
        n = self.state.get("n", 0)
        if n >= 120:
            return StepResult(idle=True)
        self.state.set_many({"n": n + 1, "notes": f"{n + 1} " * 50})
        time.sleep(0.02)

def sane(view):
    return view.get("mood", "good") != "nonsense"
'''
STEPS = 120
KEY = b"a secret of the receiver"


class Receiver(ThreadingHTTPServer):
    """A webhook on this machine, which keeps what it was told; the first call is refused."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.calls = 0
        super().__init__(("127.0.0.1", 0), _Taking)

    def got(self, **fields: str) -> bool:
        return any(fields.items() <= one.items() for one in self.events)


class _Taking(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = "sha256=" + hmac.new(KEY, body, hashlib.sha256).hexdigest()
        self.server.calls += 1
        good = self.headers["Holdfast-Signature"] == signed
        refused = self.server.calls == 1 or not good
        if not refused:
            self.server.events.append(json.loads(body))
        self.send_response(503 if refused else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def until(true: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 60
    while not true():
        assert process is None or process.poll() is None, "it has ended"
        assert time.monotonic() < end
        time.sleep(0.05)


class Runs:
    """`holdfast` in a folder, with an environment."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, **environment}
        self.started: list[subprocess.Popen[str]] = []

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Run a command; its lines go to a file."""
        with (
            open(self.folder / "out.txt", "a") as out,
            open(self.folder / "err.txt", "a") as err,
        ):
            self.started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "holdfast.cli.main", *words],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=out,
                    stderr=err,
                    text=True,
                )
            )
        return self.started[-1]

    def ask(self, *words: str) -> tuple[int, Any]:
        """The exit code of a command, and the document that it writes to a file."""
        file = self.folder / "answer.json"
        with open(file, "w") as out:
            done = subprocess.run(
                [sys.executable, "-m", "holdfast.cli.main", "--json", *words],
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=subprocess.DEVNULL,
                timeout=120,
                check=False,
            )
        return done.returncode, json.loads(file.read_text() or "null")

    def lines(self) -> str:
        return (self.folder / "out.txt").read_text()

    def end(self) -> None:
        for one in self.started:
            if one.poll() is None:
                one.kill()
            one.wait()


def harm(urls: list[str]) -> None:
    """Change a bit of the newest entry of the agent, which has most of them, in each place."""
    storages = [open_storage(one, create=False) for one in urls]
    lines: dict[bytes, list[bytes]] = {}
    for key, _ in rows_of(storages[0], b"E"):
        lines.setdefault(key[:-8], []).append(key)
    newest = max(lines.values(), key=len)[-1]
    for storage in storages:
        row = storage.get([newest])[0]
        if row is not None:
            put_row(storage, newest, row[:-1] + bytes([row[-1] ^ 1]))
        storage.close()


@pytest.mark.spec("K1", "K2", "K254")
def test_the_document_runs_and_its_agent_comes_back_from_whatever_happens(
    tmp_path: Path, postgres: Any, redis: Any
) -> None:
    """Catches: a part of the document that is taken and does nothing."""
    bucket = Bucket()
    url = f"{postgres.place('kai_states')}&ring={tmp_path}/ring.keys"
    addresses = {
        "postgresql://user:pass@localhost:5432/kai_states": url,
        "redis://localhost:6379/2": redis.url(2),
        "encryption: true\n": "encryption: true\n      interval: 1s\n      keep: 3\n",
        'verification_level: "high"\n': 'verification_level: "high"\n    scrub_interval: 1s\n',
    }
    replicas = [f"sqlite:{tmp_path}/{name}.db" for name in ("one", "two")]
    with receiver() as hook:
        text = DOCUMENT
        for old, new in addresses.items():
            assert old in text
            text = text.replace(old, new)
        text += f"    notify: [{{webhook: 'http://127.0.0.1:{hook.server_port}/', "
        text += "secret: 'env:HOOK_SECRET'}]\n"
        text += "  intervals: {watchdog: 500ms, retention: 500ms, alerts: 500ms, lease: 2s}\n"
        (tmp_path / "agents.yaml").write_text(text)
        (tmp_path / "bots.py").write_text(BOTS)
        runs = Runs(
            tmp_path,
            HOLDFAST_KEY=f"file:{tmp_path}/master.key",
            HOLDFAST_STORE=url,
            HOLDFAST_REPLICAS=" ".join(replicas),
            AWS_ENDPOINT_URL=bucket.endpoint,
            AWS_ALLOW_HTTP="true",
            HOOK_SECRET=KEY.decode(),
            **bucket.environment(),
        )
        try:
            _works(runs, hook, bucket, url, replicas)
        finally:
            runs.end()
            bucket.remove()


def _reports(runs: Runs) -> None:
    """Each of the three has its report: procedure, steps, times, what was restored, its root."""
    ids = [one["id"] for one in runs.ask("recovery", "list", SCOPE)[1]["recoveries"]]
    kinds = set()
    for number, id in enumerate(ids):
        file = runs.folder / f"report-{number}.json"
        assert runs.ask("recovery", "show", SCOPE, id, "-o", file.name)[0] == 0
        found = json.loads(file.read_text())
        kinds.add(found["failure"]["kind"])
        assert found["status"] == "succeeded"
        assert found["procedure"] in ("standard_recovery", "damaged_state")
        steps = found["steps"]
        assert [one["step"] for one in steps][:5] == [
            *("backup_current", "locate_checkpoint", "verify_integrity"),
            *("restore_state", "validate_state"),
        ]
        assert all(one["success"] and one["seconds"] > 0 and one["executed_at"] for one in steps)
        assert found["started_at"] <= steps[0]["executed_at"] <= found["finished_at"]
        assert found["restored_from"].startswith("main@")
        assert len(bytes.fromhex(found["root"])) == 32
    assert {"agent_crash", "validation_failed"} < kinds


def _works(runs: Runs, hook: Receiver, bucket: Bucket, url: str, replicas: list[str]) -> None:
    words = ("run", "agents.yaml", "--agent", "bots:Worker", "--validate", "bots:sane")
    process = runs.begin(*words)
    until(lambda: "ready\t" in runs.lines(), process)
    parts = ("alerts", "audit", "watchdog", "scheduler", "retention", "expiry", "scrubbing")
    for name in (*parts, "replicas", "backups", f"agent {SCOPE[6:]}"):
        assert f"\n{name}\trunning\t" in f"\n{runs.lines()}", name

    # More checkpoints than may stay are made, and go by themselves.
    until(lambda: (runs.ask("key", "get", SCOPE, "n")[1] or {}).get("value") == STEPS, process)
    tag = "policy:state_change"

    def kept() -> int:
        return len(
            runs.ask("checkpoint", "list", SCOPE, "--tag", tag, "--limit", "999")[1]["checkpoints"]
        )

    until(lambda: 40 < kept() <= 51, process)  # 50, and what was made since the last look
    # A crash of the agent, with all that ran beside it.
    process.send_signal(signal.SIGKILL)
    process.wait()
    process = runs.begin(*words)
    until(lambda: hook.got(event="recovery", failure="agent_crash", status="succeeded"), process)
    # Nonsense in its state.
    until(lambda: runs.lines().count("ready\t") == 2, process)
    assert runs.ask("key", "set", SCOPE, "mood", '"nonsense"')[0] == 0
    until(
        lambda: hook.got(event="recovery", failure="validation_failed", status="succeeded"), process
    )
    assert runs.ask("key", "get", SCOPE, "mood")[0] != 0
    # Damage of its newest state, of which no copy has more.
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    harm([url, *replicas])
    assert runs.ask("verify", SCOPE)[0] != 0
    process = runs.begin(*words)
    until(lambda: hook.got(event="recovery", status="succeeded", severity="critical"), process)
    until(lambda: runs.lines().count("ready\t") == 3, process)
    assert runs.ask("key", "get", SCOPE, "notes")[0] == 0
    _reports(runs)
    # Backups fail.
    assert runs.ask("backup", "list", "s3://kai-agent-states")[1]["backups"]
    bucket.kill()
    until(lambda: hook.got(alert="part/backups", status="firing"), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert runs.lines().endswith("stopped\t\n")
    assert hook.calls > len(hook.events), "what was refused was told again"
    for one in replicas:  # files, which hold what the store holds, but for the keys
        shutil.copy(runs.folder / "ring.keys", f"{one.removeprefix('sqlite:')}.keys")
        code, found = runs.ask("--store", one, "key", "get", SCOPE, "notes")
        assert (code, f"{STEPS} {STEPS} " in json.dumps(found)) == (0, True)
