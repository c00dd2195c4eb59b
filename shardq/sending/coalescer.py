"""Joining the sends of several threads into bundles. With ``linger`` a send waits for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from shardq.context.joining import Joining, Pending, for_another_thread
from shardq.errors import QueueFull, ShardqError
from shardq.sending.prepared import PreparedMessage
from shardq.sending.storing import PlannedSend, Written, unsent

__all__ = ["Coalescer"]

_ITEM = attrgetter("item")


class Coalescer:
    """Stores single messages, several at once where several threads send."""

    def __init__(
        self,
        plan: Callable[[Sequence[PreparedMessage]], PlannedSend],
        store: Callable[[PlannedSend], Written],
        *,
        linger: float,
        limit: int,
        max_bytes: int,
    ) -> None:
        self._plan, self._store_planned, self._limit, self._max_bytes = plan, store, limit, max_bytes
        self._joining = Joining(self._store, self._fitting, linger=linger, enough=limit)

    def submit(self, message: PreparedMessage) -> str:
        """Store the message; returns its id, or raises what kept it from being stored.

        One with a unique key or a large body goes alone, so that nobody waits for that of another thread's message.
        """
        alone = message.options.unique_key is not None or message.large is not None
        return self._joining.submit(object() if alone else None, message)

    def _fitting(self, messages: Sequence[PreparedMessage]) -> int:
        """How many of the first messages make a bundle."""
        count = size = 0
        while count < min(len(messages), self._limit) and (size < self._max_bytes or not count):
            size += len(messages[count].body)
            count += 1
        return count

    def _store(self, sends: Sequence[Pending[PreparedMessage, str]]) -> None:
        """What is planned may be stored from then on, however this ends: everybody is told under which id.

        If one of several is refused, each is stored alone, so that nobody meets the error of another.
        """
        several = len(sends) > 1
        try:
            planned = self._plan(list(map(_ITEM, sends)))
        except Exception as error:
            if not several or (isinstance(error, ShardqError) and error.retryable):
                raise
            self._store_each(sends)
            return
        is_refused = False
        try:
            written = self._store_planned(planned)
            is_refused = several and _is_refused(written)
            if not is_refused:
                _tell(sends, planned, written)
        except BaseException as error:
            ids = {each.bundle.id for each in planned.bundles}
            doubtful = Written([None] * len(sends), error, tuple(planned.bundles), ids)
            _tell(sends, planned, doubtful)
            raise
        if is_refused:
            self._store_each(sends)
        elif written.error is not None and not isinstance(written.error, Exception):
            raise written.error

    def _store_each(self, sends: Sequence[Pending[PreparedMessage, str]]) -> None:
        for each in sends:
            try:
                self._store([each])
            except Exception as error:
                each.error = error


def _is_refused(written: Written) -> bool:
    """True when nothing was stored, nor may be, for a reason that need not be one of every message.

    A queue that has no room for all of them may have some for the first.
    """
    error = written.error
    is_told = isinstance(error, QueueFull) or (isinstance(error, ShardqError) and not error.retryable)
    return is_told and not any(written.ids)


def _tell(sends: Sequence[Pending[PreparedMessage, str]], planned: PlannedSend, written: Written) -> None:
    """Give each caller that has no answer yet its id, or the error that kept its message from being stored."""
    if written.error is not None:
        for place, message in unsent(planned, written):
            if not sends[place].done:
                sends[place].error = for_another_thread(written.error, (message,))
    for send, identity in zip(sends, written.ids, strict=True):
        if not send.done:
            send.result = identity
