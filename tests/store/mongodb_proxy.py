"""What stands between a client and a MongoDB server, and cuts connections."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

from server_proxy import Between, hang_up


def messages(source: socket.socket) -> Iterator[bytes]:
    """Whole messages, until the connection ends."""
    buffer = b""
    with suppress(OSError):
        while more := source.recv(1 << 16):
            buffer += more
            while len(buffer) >= 4 and len(buffer) >= (size := struct.unpack_from("<i", buffer)[0]):
                yield buffer[:size]
                buffer = buffer[size:]


class CuttingCommands(Between):
    """Cuts a connection where a command is asked for, or where it is answered."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._lock = threading.Lock()
        self._where = ("", "")
        self._left = 0

    def place(self, name: str, **options: object) -> str:
        """The URL of a store of that name, through here."""
        more = "".join(f"&{option}={value}" for option, value in options.items())
        return f"mongodb://127.0.0.1:{self.port}/{name}?directConnection=true{more}"

    def arm(self, command: str, side: str, times: int) -> None:
        """From now on cut that command, so many times."""
        with self._lock:
            self._where, self._left = (command, side), times

    def serve(self, client: socket.socket) -> None:
        server = self.dial()
        answers = messages(server)
        for asked in messages(client):
            # Header, flags, kind of section, size and type: then the command's name.
            name = asked[26 : asked.find(b"\0", 26)].decode(errors="replace")
            if self._cut(name, "asked"):
                break
            with suppress(OSError):
                server.sendall(asked)
            answer = next(answers, None)
            if answer is None or self._cut(name, "answered"):
                break
            client.sendall(answer)
            while name == "hello" and struct.unpack_from("<I", answer, 16)[0] & 2:
                answer = next(answers, None)  # there is more to come without being asked for
                if answer is None:
                    break
                with suppress(OSError):
                    client.sendall(answer)
        hang_up(client)
        hang_up(server)

    def _cut(self, name: str, side: str) -> bool:
        with self._lock:
            cut = self._left > 0 and (name, side) == self._where
            self._left -= cut
            return cut
