"""Where a store in PostgreSQL lies, as its URL says it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.storage.server import POOL_SIZE, TIMEOUT, take_options, whole

SCHEMA = "holdfast"
_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class Address:
    """A server, a database and a schema in it. Its text shows neither user nor password."""

    conninfo: str = field(repr=False)
    """What libpq understands; it may hold a password."""
    schema: str = SCHEMA
    pool_size: int = POOL_SIZE
    timeout: int = TIMEOUT
    ring: str | None = field(default=None, repr=False)
    """Where the keys of an encrypted store lie: a file, or the URL of other storage."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL: `schema`, `pool_size`, `timeout` and `ring` are ours, others are libpq's."""
        conninfo, ours = take_options(url, "schema")
        made = cls(
            conninfo,
            ours.get("schema", SCHEMA),
            whole(ours, "pool_size", POOL_SIZE),
            whole(ours, "timeout", TIMEOUT),
            ours.get("ring"),
        )
        if not _NAME.fullmatch(made.schema):
            raise InvalidInputError(
                "the schema of a store has up to 63 small letters, digits and _, begins with no "
                "digit and not with pg_"
            )
        return made

    @property
    def place(self) -> tuple[str, ...]:
        """What tells stores apart."""
        return self.conninfo, self.schema

    def check(self) -> None:
        """Refuse what libpq does not understand."""
        self._parts()

    def _parts(self) -> dict[str, Any]:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        try:
            return conninfo_to_dict(self.conninfo)
        except psycopg.ProgrammingError:  # its text shows pieces of the URL
            raise InvalidInputError(f"the URL of a store in PostgreSQL is {_FORM}") from None

    def defaults(self) -> dict[str, Any]:
        """Options for connections, where the URL gives no other."""
        parts = self._parts()
        mine: dict[str, Any] = {
            "application_name": "holdfast",
            "connect_timeout": max(2, -(-self.timeout // 1000)),
        }
        if "," in str(parts.get("host", "")):
            mine["target_session_attrs"] = "primary"
        return {name: value for name, value in mine.items() if name not in parts}

    def hide(self, message: str) -> str:
        """A message of libpq on one line, without the password."""
        password = self._parts().get("password")
        message = " ".join(message.split())
        return message.replace(str(password), "***") if password else message

    def __str__(self) -> str:
        parts = self._parts()
        host, port = parts.get("host") or "localhost", parts.get("port") or 5432
        return f"postgresql://{host}:{port}/{parts.get('dbname', '')}?schema={self.schema}"
