"""Stands between a client and a PostgreSQL, and fails at one of the client's requests.

Clients come without encryption and prepared statements, so each request tells its statement.
"""

from __future__ import annotations

import socket
import struct

from tests.mongodb.lossy_proxy import LossyProxy, exactly

__all__ = ["READING", "Pooling", "PostgresProxy"]

READING = frozenset({"SELECT", "BEGIN", "ROLLBACK", "SET"})
"""First words of statements that change nothing, or take a lock at most."""

_ENDS = frozenset(b"SQXp")  # Sync, Query, Terminate, and an answer to the login


class PostgresProxy(LossyProxy):
    """Counts what a client sends until it waits for an answer."""

    def read_request(self, client: socket.socket) -> bytes:
        parts: list[bytes] = []
        while kind := exactly(client, 1):
            head = exactly(client, 4 if kind != b"\0" else 3)
            size = struct.unpack(">I", (kind + head)[-4:])[0] - 4
            parts += (kind, head, exactly(client, size))
            if kind == b"\0" or kind[0] in _ENDS:  # the first message of all has no kind, and is short
                return b"".join(parts)
        return b""

    def read_response(self, server: socket.socket) -> bytes:
        head = exactly(server, 5)
        return head and head + exactly(server, struct.unpack_from(">I", head, 1)[0] - 4)

    def name_of(self, message: bytes) -> str | None:
        kind = message[:1]
        if kind not in (b"P", b"Q"):
            return None
        text = message[5:].split(b"\0")[1 if kind == b"P" else 0]
        words = text.split(None, 1)
        return words[0].rstrip(b";").decode().upper() if words else None


class Pooling(PostgresProxy):
    """Tells clients another number than that of the server's process, as poolers do."""

    def read_response(self, server: socket.socket) -> bytes:
        message = super().read_response(server)
        if message[:1] == b"K":
            return message[:8] + bytes([message[8] ^ 1]) + message[9:]
        return message
