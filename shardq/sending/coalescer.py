"""Joining the sends of several threads into bundles. With ``linger`` a send waits for others."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from shardq.context.joining import Joining, Pending, for_another_thread
from shardq.context.queue_context import QueueContext
from shardq.errors import OutcomeUnknown, QueueFull, ShardqError
from shardq.sending.prepared import Send
from shardq.sending.storing import Written, plan_sends, store_sends, tell_stored, unsent

__all__ = ["Coalescer"]

_ITEM = attrgetter("item")


class Coalescer:
    """Stores single messages, several at once where several threads submit them to its ``joining``."""

    def __init__(self, context: QueueContext, *, linger: float, limit: int, max_bytes: int) -> None:
        self._context, self._limit, self._max_bytes = context, limit, max_bytes
        self.joining = Joining(self._send, self._send_several, self._fitting, linger=linger, enough=limit)

    def _send(self, send: Send) -> str:
        """Store a message of this thread; returns its id, or raises what kept it from being stored."""
        bundles = plan_sends(self._context, (send,))
        written = store_sends(self._context, bundles)
        if self._context.hooks is not None:
            tell_stored(self._context, bundles, written)
        error = written.error
        if error is not None:
            if isinstance(error, OutcomeUnknown):
                error.unsent = tuple([each for _, each in unsent(written)])
            raise error
        (identity,) = written.ids
        assert identity is not None
        return identity

    def _fitting(self, sends: Sequence[Send]) -> int:
        """How many of the first messages make a bundle."""
        count = size = 0
        while count < min(len(sends), self._limit) and (size < self._max_bytes or not count):
            size += len(sends[count].bodies[0])
            count += 1
        return count

    def _send_several(self, sends: Sequence[Pending[Send, str]]) -> None:
        """What is planned may be stored from then on, however this ends: everybody is told under which id.

        If one of several is refused, each is stored alone, so that nobody meets the error of another.
        """
        several = len(sends) > 1
        try:
            self._context.live.current()
            planned = plan_sends(self._context, list(map(_ITEM, sends)))
        except Exception as error:
            if not several or (isinstance(error, ShardqError) and error.retryable):
                raise
            self._send_each(sends)
            return
        is_refused = False
        try:
            written = store_sends(self._context, planned)
            tell_stored(self._context, planned, written)
            is_refused = several and _is_refused(written)
            if not is_refused:
                _tell(sends, written)
        except BaseException as error:
            ids = {each.id for each in planned}
            _tell(sends, Written([None] * len(sends), error, tuple(planned), ids))
            raise
        if is_refused:
            self._send_each(sends)
        elif written.error is not None and not isinstance(written.error, Exception):
            raise written.error

    def _send_each(self, sends: Sequence[Pending[Send, str]]) -> None:
        for each in sends:
            try:
                self._send_several([each])
            except Exception as error:
                each.error = error


def _is_refused(written: Written) -> bool:
    """True when nothing was stored, nor may be, for a reason that need not be one of every message.

    A queue that has no room for all of them may have some for the first.
    """
    error = written.error
    is_told = isinstance(error, QueueFull) or (isinstance(error, ShardqError) and not error.retryable)
    return is_told and not any(written.ids)


def _tell(sends: Sequence[Pending[Send, str]], written: Written) -> None:
    """Give each caller that has no answer yet its id, or the error that kept its message from being stored."""
    if written.error is not None:
        for place, message in unsent(written):
            if not sends[place].done:
                sends[place].error = for_another_thread(written.error, (message,))
    for send, identity in zip(sends, written.ids, strict=True):
        if not send.done:
            send.result = identity
