"""Joining sends of many threads into bundles: group commit, led by whoever comes first.

While one thread stores a bundle, the others gather behind it; one of them leads the next bundle. With
``linger`` a leader waits for so long for company, or until a bundle is full. Every caller returns only when
its own message is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from shardq.errors import OutcomeUnknown, ShardqError
from shardq.outgoing_message import OutgoingMessage
from shardq.sending.prepared import PreparedMessage
from shardq.sending.storing import PlannedSend, Written, unsent
from shardq.storage.per_process import PerProcess

__all__ = ["Coalescer"]


class _PendingSend:
    """One caller's message and what became of it."""

    def __init__(self, message: PreparedMessage) -> None:
        self.message = message
        self.turn = threading.Event()  # the message was handled, or the caller is to lead
        self.id: str | None = None
        self.error: BaseException | None = None


class _Waiters:
    """The callers of one process, and which of them leads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: list[_PendingSend] = []
        self.leader: _PendingSend | None = None


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
        self._store_send, self._linger, self._limit, self._max_bytes = store, linger, limit, max_bytes
        self._waiters = PerProcess(_Waiters)

    def submit(self, message: PreparedMessage) -> str:
        """Store the message; returns its id, or raises what kept it from being stored."""
        send, waiters = _PendingSend(message), self._waiters.get()
        try:
            _enter(waiters, send)
            send.turn.wait()
            if send.id is None and send.error is None:
                self._lead(waiters, send)
        except BaseException:
            _leave(waiters, send)
            raise
        if send.error is not None:
            raise send.error
        assert send.id is not None
        return send.id

    def _lead(self, waiters: _Waiters, own: _PendingSend) -> None:
        sends: list[_PendingSend] = []
        try:
            sends = self._gather(waiters)
            self._store(sends)
        finally:
            _leave(waiters, own)
            for send in sends:
                send.turn.set()

    def _gather(self, waiters: _Waiters) -> list[_PendingSend]:
        with waiters.changed:
            if self._linger:
                waiters.changed.wait_for(lambda: len(waiters.waiting) >= self._limit, self._linger)
            count = size = 0
            while count < min(len(waiters.waiting), self._limit) and (size < self._max_bytes or not count):
                size += len(waiters.waiting[count].message.body)
                count += 1
            sends, waiters.waiting = waiters.waiting[:count], waiters.waiting[count:]
            return sends

    def _store(self, sends: list[_PendingSend]) -> None:
        messages = [send.message for send in sends]
        try:
            planned, written = self._store_send(messages)
        except BaseException as error:
            for send in sends:
                send.error = _for_another_thread(error)
            raise
        for send, identity in zip(sends, written.ids, strict=True):
            send.id = identity
        if written.error is None:
            return
        for place, message in unsent(planned, written):
            sends[place].error = _for_another_thread(written.error, message)
        if not isinstance(written.error, Exception):
            raise written.error


def _enter(waiters: _Waiters, own: _PendingSend) -> None:
    with waiters.changed:
        waiters.waiting.append(own)
        if waiters.leader is None:
            waiters.leader = own
            own.turn.set()
        else:
            waiters.changed.notify()


def _leave(waiters: _Waiters, own: _PendingSend) -> None:
    """Let the next one lead, if this one did; it may have been interrupted before its own message was taken."""
    with waiters.changed:
        waiters.waiting = [send for send in waiters.waiting if send is not own]
        if waiters.leader is own:
            waiters.leader = waiters.waiting[0] if waiters.waiting else None
            if waiters.leader is not None:
                waiters.leader.turn.set()


def _for_another_thread(error: BaseException, message: OutgoingMessage | None = None) -> BaseException:
    """What a thread is told of an error that another one met: an error of its own, as raising changes an error."""
    unsent = () if message is None else (message,)
    if not isinstance(error, Exception):  # it is the other thread that is to end
        told: BaseException = OutcomeUnknown(
            "the thread that stored this message was interrupted", unsent=unsent
        )
    elif isinstance(error, ShardqError):
        told = type(error).__new__(type(error), *error.args)
        told.__dict__.update(error.__dict__)
        if isinstance(told, OutcomeUnknown):
            told.unsent = unsent
    else:
        return error
    told.__cause__ = error
    return told
