"""Where a cluster is and how it is talked to."""

from __future__ import annotations

import msgspec

__all__ = ["Address"]


class Address(msgspec.Struct, frozen=True):
    """What a URL says. Its text names hosts and keyspace, never the credentials."""

    hosts: tuple[str, ...]
    keyspace: str
    port: int = 9042
    user: str = ""
    password: str = ""
    local_dc: str = ""
    consistency: str = "LOCAL_QUORUM"
    serial_consistency: str = "LOCAL_SERIAL"
    replication: tuple[tuple[str, int], ...] = ()  # copies in each data centre, for a new keyspace
    timeout: float = 10.0
    ssl: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __str__(self) -> str:
        return f"Cassandra at {','.join(self.hosts)}:{self.port}, keyspace {self.keyspace!r},"

    def __repr__(self) -> str:
        return f"<{self}>"
