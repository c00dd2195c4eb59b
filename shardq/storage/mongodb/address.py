"""Where a database is."""

from __future__ import annotations

import msgspec

__all__ = ["Address"]


class Address(msgspec.Struct, frozen=True):
    """What a URL says. Its text names hosts and database, never the credentials."""

    uri: str  # for the driver; it may hold a password
    database: str
    hosts: tuple[str, ...]

    def __str__(self) -> str:
        return f"MongoDB at {','.join(self.hosts)}, database {self.database!r},"

    def __repr__(self) -> str:
        return f"<{self}>"
