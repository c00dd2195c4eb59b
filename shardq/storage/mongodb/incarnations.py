"""The incarnations of the queues: what a queue is called in the database, other than in its record.

Each creation of a queue makes a new incarnation. Its name is part of the names of its collections and of every id in
the others. So a queue that is deleted and created again shares nothing with the one before, and whatever a client of
that one still makes is seen by nobody, until a sweep removes it. A queue of before there were incarnations is called
by its name alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shardq.errors import QueueNotFound
from shardq.storage.elapsed import Moment
from shardq.storage.mongodb import queues
from shardq.storage.mongodb.session import Session

__all__ = ["Incarnations"]

T = TypeVar("T")

_MEMORY = 5.0  # seconds


class Incarnations:
    """Which incarnations this client saw last.

    What goes by one that is over finds no message, so whoever finds none looks again; and everybody after 5 seconds.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[str, tuple[str, Moment]] = {}

    def of(self, queue: str) -> str:
        """Return what the queue was called when it was last looked at; nothing is stored there if it does not exist."""
        name, seen = self._seen.get(queue, (queue, None))
        if seen is not None and seen.passed() < _MEMORY:
            return name
        return self.look(queue) or name

    def look(self, queue: str) -> str | None:
        """Return what the queue is called now; None when it does not exist."""
        name = queues.current_name(self._session, queue)
        if name is None:
            self.forget(queue)
        else:
            self._seen[queue] = name, Moment.now()
        return name

    def forget(self, queue: str) -> None:
        """Look at the next call."""
        self._seen.pop(queue, None)

    def require(self, queue: str) -> str:
        """Return what the queue is called now; raises QueueNotFound."""
        name = self.look(queue)
        if name is None:
            raise queues.not_found(queue)
        return name

    def has_changed(self, queue: str, name: str) -> bool:
        """Look whether the queue exists and is called otherwise than that by now."""
        return self.look(queue) not in (None, name)

    def within(self, queue: str, do: Callable[[], T], *, in_vain: Callable[[T], bool]) -> T:
        """Do it by what is known; once more, by what is true now, when it was in vain because of that."""
        name = self.of(queue)
        try:
            done = do()
        except QueueNotFound:
            if not self.has_changed(queue, name):
                raise
            return do()
        return do() if in_vain(done) and self.has_changed(queue, name) else done
