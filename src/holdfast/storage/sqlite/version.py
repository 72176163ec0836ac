"""Whether anybody else has committed to a SQLite file, also asked while this process commits."""

from __future__ import annotations

import apsw

from holdfast.storage.sqlite.connection import Reading

_VERSION = "PRAGMA data_version"  # apsw's own data_version() does not see other processes


class Versions:
    """What two connections say of the file: the writing one does not count its own commits, but
    only one thread at a time can ask it; the reading one counts every commit."""

    def __init__(self, reading: Reading, writing: apsw.Cursor) -> None:
        self._reading, self._writing = reading, writing
        self._wanted = False
        self._began: tuple[object, object] = (None, None)
        """What the writing and the reading connection said when a commit began."""

    def now(self) -> object:
        """The version; who asks holds the writing connection."""
        return self._writing.execute(_VERSION).get

    def beside(self) -> object:
        """The version while another thread commits: the one with which a commit began, if nobody,
        not even that one, has committed anything since; else "perhaps" has to do."""
        self._wanted = True
        version, unchanged = self._began
        return version if self._read() == unchanged else object()

    def begin(self) -> None:
        """A commit begins: from now on nobody else can commit. Noted if somebody asked meanwhile,
        for it takes as long as two reads."""
        if self._wanted:
            self._wanted = False
            self._began = self.now(), self._read()

    def _read(self) -> object:
        return self._reading.rows(_VERSION)[0][0]
