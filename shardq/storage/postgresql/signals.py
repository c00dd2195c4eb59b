"""Signals by NOTIFY, on one connection of each client that waits.

A notification takes a lock of the whole server when it is committed. So it has a separate transaction, after that of
the change, and is sent only when a client waits. A waiting client holds a lock that can be shared; another one that
cannot have it alone knows of waiting clients. Most appends find that out in their own statement. Behind a pooler
nobody listens, and consumers poll: the server's connections, which others use later, would keep the lock and the
listening.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import closing, suppress
from hashlib import blake2b
from selectors import EVENT_READ, BaseSelector, DefaultSelector

import msgspec
import psycopg

from shardq.errors import ShardqError
from shardq.storage.postgresql.connections import Address, Connection, Sql, quoted
from shardq.storage.postgresql.locks import LONG
from shardq.storage.postgresql.session import Session

__all__ = ["Channel"]

_WAITS = "SELECT pg_advisory_lock_shared($1) WHERE pg_backend_pid() = $2"  # not the pooler's number
# Its commit need not wait for the disk.
_NOTIFY = """
    SELECT pg_notify($2, n) FROM unnest($3::text[]) AS n, set_config('synchronous_commit', 'off', true)
    WHERE NOT (SELECT pg_try_advisory_xact_lock($1))
"""
_NOTIFY_ALWAYS = "SELECT pg_notify($1, n) FROM unnest($2::text[]) AS n"
_LISTEN = "LISTEN {}"
# Appends that are under way and have seen nobody wait. One that hangs is found by the next poll.
_EARLIER = f"SELECT set_config('lock_timeout', '{LONG}', true), pg_advisory_xact_lock($1)"
_STANDS = "SELECT 1 WHERE current_setting('transaction_read_only') = 'off'"  # else another server is the primary by now
_QUEUES = msgspec.json.Decoder(list[str])
_EVERY = 5.0  # seconds until the connection is tried


class Channel:
    """The channel between the clients of one schema."""

    may_block = False  # no longer than the append before it

    def __init__(self, session: Session, address: Address) -> None:
        self._session, self._address = session, address
        digest = blake2b(f"{address.database}\0{address.schema}".encode(), digest_size=8).digest()
        self._lock = int.from_bytes(digest, "big", signed=True)
        self.waiting = self._lock, self._lock ^ 1
        """The numbers of the lock of clients that wait, and of that of appends."""
        self.channel = f"shardq_{digest.hex()}"
        """The channel of the server."""
        self.name = f"the notification channel of {address}"

    def publish(self, queues: Collection[str]) -> bool:
        """Send the names once, as consumers also read now and then."""
        with suppress(ShardqError):
            self._session.statement(self._notify, _payloads(queues))
        return True

    def publish_within(self, session: Session, queue: str) -> None:
        """Have the server send a name when the transaction of an application is committed, to whoever waits then."""
        session.statement(self._notify_always, _payloads([queue]))

    def _notify(self, sql: Sql, names: list[str], _now: int) -> None:
        sql.all(_NOTIFY, self._lock, self.channel, names)

    def _notify_always(self, sql: Sql, names: list[str], _now: int) -> None:
        sql.all(_NOTIFY_ALWAYS, self.channel, names)

    def listen(self) -> Generator[Collection[str]]:
        """Pass on what is sent from now on."""
        with (
            suppress(psycopg.Error),
            closing(Connection(self._address, self._session.now)) as connection,
            DefaultSelector() as selector,
        ):
            sql, driver = connection.sql, connection.driver
            if not sql.all(_WAITS, self._lock, driver.info.backend_pid):
                return
            sql.script(_LISTEN.format(quoted(self.channel)))
            with suppress(psycopg.errors.LockNotAvailable):
                sql.one(_EARLIER, self.waiting[1])
            selector.register(driver, EVENT_READ)
            yield ()
            while True:
                yield from self._heard(connection, selector)

    def _heard(self, connection: Connection, selector: BaseSelector) -> Generator[Collection[str]]:
        # The driver's wait for notifications would wake this thread ten times a second.
        notifies = list(connection.driver.notifies(timeout=0))
        for notify in notifies:
            yield _QUEUES.decode(notify.payload)
        if not (notifies or selector.select(_EVERY)):
            if not connection.sql.all(_STANDS):
                raise psycopg.OperationalError("the server takes no writes")
            yield ()


def _payloads(queues: Collection[str]) -> list[str]:
    return [msgspec.json.encode([queue]).decode() for queue in queues]
