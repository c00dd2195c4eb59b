"""Joining sends of many threads into bundles: group commit, led by whoever comes first.

While one thread stores a bundle, the others gather behind it; one of them leads the next bundle. With
``linger`` a leader waits for so long for company, or until a bundle is full. Every caller returns only when
its own message is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from shardq.errors import OutcomeUnknown, ShardqError
from shardq.message import OutgoingMessage
from shardq.sending.outgoing import PreparedMessage
from shardq.sending.storing import PlannedSend, Written, unsent
from shardq.storage.per_process import PerProcess

__all__ = ["Coalescer"]


class _Ticket:
    """One caller's message and what became of it."""

    def __init__(self, message: PreparedMessage) -> None:
        self.message = message
        self.turn = threading.Event()  # the message was handled, or the caller is to lead
        self.id: str | None = None
        self.error: BaseException | None = None


class _Line:
    """The callers of one process, and which of them leads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: list[_Ticket] = []
        self.leader: _Ticket | None = None


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
        self._lines = PerProcess(_Line)

    def submit(self, message: PreparedMessage) -> str:
        """Store the message; returns its id, or raises what kept it from being stored."""
        ticket, line = _Ticket(message), self._lines.get()
        try:
            _line_up(line, ticket)
            ticket.turn.wait()
            if ticket.id is None and ticket.error is None:
                self._lead(line, ticket)
        except BaseException:
            _leave(line, ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        assert ticket.id is not None
        return ticket.id

    def _lead(self, line: _Line, own: _Ticket) -> None:
        tickets: list[_Ticket] = []
        try:
            tickets = self._gather(line)
            self._store(tickets)
        finally:
            _leave(line, own)
            for ticket in tickets:
                ticket.turn.set()

    def _gather(self, line: _Line) -> list[_Ticket]:
        with line.changed:
            if self._linger:
                line.changed.wait_for(lambda: len(line.waiting) >= self._limit, self._linger)
            count = size = 0
            while count < min(len(line.waiting), self._limit) and (size < self._max_bytes or not count):
                size += len(line.waiting[count].message.body)
                count += 1
            tickets, line.waiting = line.waiting[:count], line.waiting[count:]
            return tickets

    def _store(self, tickets: list[_Ticket]) -> None:
        messages = [ticket.message for ticket in tickets]
        try:
            send, written = self._store_send(messages)
        except BaseException as error:
            for ticket in tickets:
                ticket.error = _for_another_thread(error)
            raise
        for ticket, identity in zip(tickets, written.ids, strict=True):
            ticket.id = identity
        if written.error is None:
            return
        for place, message in unsent(send, written):
            tickets[place].error = _for_another_thread(written.error, message)
        if not isinstance(written.error, Exception):
            raise written.error


def _line_up(line: _Line, own: _Ticket) -> None:
    with line.changed:
        line.waiting.append(own)
        if line.leader is None:
            line.leader = own
            own.turn.set()
        else:
            line.changed.notify()


def _leave(line: _Line, own: _Ticket) -> None:
    """Let the next one lead, if this one did; it may have been interrupted before its own message was taken."""
    with line.changed:
        line.waiting = [ticket for ticket in line.waiting if ticket is not own]
        if line.leader is own:
            line.leader = line.waiting[0] if line.waiting else None
            if line.leader is not None:
                line.leader.turn.set()


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
