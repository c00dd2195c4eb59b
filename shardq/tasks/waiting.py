"""Record which tasks a worker has received and not begun, so that others see that these wait.

A worker receives tasks before it can run them, and all that it holds is in flight in the store. Noting the begin of
each would cost every task a request. So what has waited in the worker for half a second is noted, once, and taken back
when it begins; so is what has ended, and is settled with the rest of its group. A note is for one delivery, and is kept
for a minute: what a dead worker has noted hides nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from shardq.errors import ShardqError
from shardq.message import Message
from shardq.tasks.results import WAITING_SECONDS, ResultLog
from shardq.tasks.work_unit import ledger_id

__all__ = ["PATIENCE_SECONDS", "Waiting"]

PATIENCE_SECONDS = 0.5


class Waiting:
    """The tasks that one worker holds and has not begun. Safe for threads."""

    def __init__(self, results: ResultLog) -> None:
        self._results = results
        # By the id of each: when it is to be noted, and its delivery.
        self._held: dict[str, tuple[float, int]] = {}
        self._noted: set[str] = set()
        self._lock, self._writing = threading.Lock(), threading.Lock()

    @property
    def are_new(self) -> bool:
        """True when some are to be noted soon."""
        return len(self._held) > len(self._noted)

    def hold(self, messages: Iterable[Message], patience: float = PATIENCE_SECONDS) -> None:
        """Add tasks that were received, or that have ended. They are noted after so many seconds."""
        at = time.monotonic() + patience
        with self._lock:
            self._held.update((ledger_id(each), (at, each.deliveries)) for each in messages)

    def end(self, messages: Iterable[Message]) -> None:
        """Take out tasks that begin, or are returned to their queue. A store that is unreachable does not hold them."""
        with self._lock:
            ids = [each for each in map(ledger_id, messages) if self._held.pop(each, None)]
            noted = self._noted.intersection(ids)
            self._noted -= noted
        if noted:
            with self._writing, suppress(ShardqError):  # after what is being noted
                self._results.remove_waiting(noted)

    def write_due(self) -> None:
        """Note those that have waited for long enough, in one request."""
        now = time.monotonic()
        with self._writing:
            with self._lock:
                late = {each: delivery for each, (at, delivery) in self._held.items() if at <= now}
                self._held.update((each, (now + WAITING_SECONDS / 2, late[each])) for each in late)
                self._noted.update(late)
            if late:
                with suppress(ShardqError):
                    self._results.enter_waiting(late)
