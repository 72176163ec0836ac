"""What stands between a client and a PostgreSQL server: one that cuts connections, and a pooler."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

from server_proxy import Between, hang_up

Message = tuple[bytes, bytes]
"""Its kind (nothing for the one that begins a connection), and all of its bytes."""


def messages(source: socket.socket, *, begins: bool = False) -> Iterator[Message]:
    """Whole messages, until the connection ends."""
    buffer = b""
    kind_size = 0 if begins else 1
    while True:
        while len(buffer) >= kind_size + 4:
            size = kind_size + struct.unpack_from(">i", buffer, kind_size)[0]
            if len(buffer) < size:
                break
            yield buffer[:kind_size], buffer[:size]
            buffer, kind_size = buffer[size:], 1
        try:
            more = source.recv(1 << 16)
        except OSError:
            return
        if not more:
            return
        buffer += more


class Before(Between):
    """Stands before a PostgreSQL server."""

    @property
    def url(self) -> str:
        """Of the server's first database, through here."""
        options = "sslmode=disable&gssencmode=disable"
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?{options}"


class Cutting(Before):
    """Cuts a connection when so many messages of the client, or of the server, have passed."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.passed: dict[str, list[bytes]] = {"client": [], "server": []}
        """Kinds of messages since `arm`; those of the client as a whole."""
        self._cut: tuple[str, int] | None = None
        self._lock = threading.Lock()

    def arm(self, side: str, count: int) -> None:
        """From now on let so many messages of that side pass, and then cut, once; -1: never."""
        with self._lock:
            self.passed = {"client": [], "server": []}
            self._cut = (side, count) if count >= 0 else None

    def serve(self, client: socket.socket) -> None:
        server = self.dial()
        other = threading.Thread(target=self._pump, args=("server", server, client), daemon=True)
        other.start()
        self._pump("client", client, server)

    def _pump(self, side: str, source: socket.socket, target: socket.socket) -> None:
        for kind, data in messages(source, begins=side == "client"):
            if not self._may_pass(side, data if side == "client" else kind):
                break
            try:
                target.sendall(data)
            except OSError:
                break
        hang_up(source)
        hang_up(target)

    def _may_pass(self, side: str, what: bytes) -> bool:
        with self._lock:
            if self._cut == (side, len(self.passed[side])):
                self._cut = None
                return False
            self.passed[side].append(what)
            return True


class Pooling(Before):
    """A pooler in transaction mode: each transaction goes to another connection of its own."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._free: list[socket.socket] = []
        self._greeting = b""
        self._lock = threading.Lock()
        self.used = 0
        """Transactions that it has passed on."""

    def serve(self, client: socket.socket) -> None:
        asked = messages(client, begins=True)
        _, hello = next(asked)
        with self._lock:
            self._free += [self._connect(hello), self._connect(hello)]
        client.sendall(self._greeting)
        flight, server = b"", None
        for kind, data in asked:
            if kind == b"X":
                break
            flight += data
            if kind in (b"S", b"Q"):
                server = self._pass_on(flight, client, server)
                flight = b""
        hang_up(client)
        if server is not None:
            hang_up(server)

    def _connect(self, hello: bytes) -> socket.socket:
        server = self.dial()
        server.sendall(hello)
        self._greeting = b"".join(_until_ready(server)[0])
        return server

    def _pass_on(
        self, flight: bytes, client: socket.socket, server: socket.socket | None
    ) -> socket.socket | None:
        """Give the flight to the connection that has its transaction, or that rested longest."""
        if server is None:
            with self._lock:
                server = self._free.pop(0)
                self.used += 1
        server.sendall(flight)
        answer, idle = _until_ready(server)
        if idle:
            with self._lock:
                self._free.append(server)
        client.sendall(b"".join(answer))
        return None if idle else server


def _until_ready(server: socket.socket) -> tuple[list[bytes], bool]:
    found = []
    for kind, data in messages(server):
        found.append(data)
        if kind == b"Z":
            return found, data[-1:] == b"I"
    raise AssertionError("the server closed the connection")
