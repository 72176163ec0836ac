"""A Redis server of the tests' own, which can be killed, stopped and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from store_kit import free_port

PATIENT = "timeout=30000"
"""For tests that are not about time: on a slow machine an answer may take long."""


class Server:
    """A server on a free port of this machine; what it keeps is in memory only."""

    def __init__(self, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.fail("the server of Redis is missing; run scripts/setup --tests")
        self.folder = tempfile.mkdtemp(prefix="holdfast-redis-")
        self.port = free_port()
        self._command = [program, "--bind", "127.0.0.1", "--port", str(self.port)]
        self._command += ["--dir", self.folder, "--save", "", "--appendonly", "no", *options]
        self.start()

    def url(self, number: int = 0, options: str = PATIENT, who: str = "") -> str:
        """Of one of its databases."""
        return f"redis://{who}127.0.0.1:{self.port}/{number}?{options}".rstrip("?")

    def client(self, number: int = 0) -> redis.Redis:
        """Whoever owns the server."""
        return redis.Redis(port=self.port, db=number, retry=Retry(NoBackoff(), 0))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, cwd=self.folder)
        for _ in range(1200):
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.AuthenticationError:
                return
            except redis.RedisError:
                time.sleep(0.05)
        pytest.fail("the Redis server did not start")

    def hang(self) -> None:
        """Let it take connections, and not answer any more."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """End that."""
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once; what it kept is gone."""
        self.process.kill()
        self.process.wait(60)

    def remove(self) -> None:
        """End it, and take its folder away."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
