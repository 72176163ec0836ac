"""What stands between clients and a server of any kind."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self


class Between(ABC):
    """Listens on a port of its own, and serves each connection in a thread."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listening.getsockname()[1]
        return port

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._note(client)
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def dial(self) -> socket.socket:
        """A connection to the server."""
        made = socket.create_connection(("127.0.0.1", self.target))
        self._note(made)
        return made

    def _note(self, one: socket.socket) -> None:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages go one by one
        self._sockets.append(one)

    @abstractmethod
    def serve(self, client: socket.socket) -> None:
        """Serve one client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self._sockets:
            hang_up(one)


def hang_up(one: socket.socket) -> None:
    """End a connection so that both sides notice at once."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
