"""Joining the sends of several threads into bundles. With ``linger`` a send waits for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardq.context.joining import Joining, Pending, for_another_thread
from shardq.sending.prepared import PreparedMessage
from shardq.sending.storing import PlannedSend, Written, unsent

__all__ = ["Coalescer"]


class Coalescer:
    """Stores single messages, several at once where several threads send."""

    def __init__(
        self,
        store: Callable[[Sequence[PreparedMessage]], tuple[PlannedSend, Written]],
        *,
        linger: float,
        limit: int,
        max_bytes: int,
    ) -> None:
        self._store_send, self._limit, self._max_bytes = store, limit, max_bytes
        self._joining = Joining(self._store, self._fitting, linger=linger, enough=limit)

    def submit(self, message: PreparedMessage) -> str:
        """Store the message; returns its id, or raises what kept it from being stored."""
        return self._joining.submit(None, message)

    def _fitting(self, messages: Sequence[PreparedMessage]) -> int:
        """How many of the first messages make a bundle."""
        count = size = 0
        while count < min(len(messages), self._limit) and (size < self._max_bytes or not count):
            size += len(messages[count].body)
            count += 1
        return count

    def _store(self, sends: Sequence[Pending[PreparedMessage, str]]) -> None:
        planned, written = self._store_send([send.item for send in sends])
        if written.error is not None:
            for place, message in unsent(planned, written):
                sends[place].error = for_another_thread(written.error, (message,))
        for send, identity in zip(sends, written.ids, strict=True):
            send.result = identity
        if written.error is not None and not isinstance(written.error, Exception):
            raise written.error
