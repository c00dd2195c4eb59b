"""Signals through a small capped collection.

An append or a release writes the queue's name into it, unacknowledged, and at most 250 times a second. One thread of
each waiting client reads at its end. The server answers when something comes, so clients do not poll.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import suppress

from pymongo import CursorType, WriteConcern
from pymongo.errors import PyMongoError

from shardq.storage.mongodb.documents import QUEUE
from shardq.storage.mongodb.faults import DRIVER_ERRORS
from shardq.storage.mongodb.session import Session

__all__ = ["SIGNALS", "CappedCollection"]

SIGNALS = "shardq.signal"
# Milliseconds that the server keeps a question open; half of what the client waits for an answer if that is less.
_LONGEST_ANSWER = 10_000
_UNACKNOWLEDGED = WriteConcern(w=0)


class CappedCollection:
    """The channel between the clients of one database."""

    may_block = False  # no longer than the append before it

    def __init__(self, session: Session) -> None:
        self._session = session
        self.name = f"the collection {SIGNALS} of {session.address}"

    def publish(self, queues: Collection[str]) -> bool:
        """Write the names once, as consumers also read now and then."""
        with suppress(*DRIVER_ERRORS):
            signals = self._session.collection(SIGNALS).with_options(write_concern=_UNACKNOWLEDGED)
            if len(queues) == 1:  # as a rule; an insert of many takes the driver half as long again
                signals.insert_one({QUEUE: next(iter(queues))})
            else:
                signals.insert_many([{QUEUE: queue} for queue in queues])
        return True

    def listen(self) -> Generator[Collection[str]]:
        """Read the names that are written from now on."""
        with suppress(PyMongoError, OSError):
            signals = self._session.collection(SIGNALS)
            patience = signals.database.client.options.pool_options.socket_timeout  # seconds
            longest = min(_LONGEST_ANSWER, round(500 * patience)) if patience else _LONGEST_ANSWER
            found = signals.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(longest)
            with found as cursor:
                next(cursor, None)
                yield ()
                while cursor.alive:
                    for signal in cursor:
                        yield (signal[QUEUE],)
                    yield ()
