"""Sending tasks within a transaction of the application."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from shardq.client.queue import Queue
from shardq.errors import QueueNotFound, UnsupportedByStore
from shardq.tasks.binding import Binding, settings_for

__all__ = ["within"]


def within(binding: Binding, transaction: object) -> Binding:
    """Return what sends in a transaction of the application, by this thread; the binding itself without one.

    Raises the errors of :meth:`shardq.Client.transaction`.
    """
    return binding if transaction is None else _JoinedBinding(binding, transaction)


class _JoinedBinding(Binding):
    """A binding whose sends are part of a transaction. It is made for each call, so any thread may send."""

    def __init__(self, outside: Binding, transaction: object) -> None:
        super().__init__(outside.client.transaction(connection=transaction), outside.options)
        self._outside = outside

    def queue(self, name: str, tasks: Collection[str] = ()) -> Queue:
        """Return a queue of tasks; one that is missing is created in the transaction, or outside if it cannot be.

        Limits that differ are not reported here: workers do that, and every call would.
        """
        with suppress(QueueNotFound):
            return self.client.queue(name)
        try:
            return self.client.create_queue(name, exist_ok=True, **settings_for(self.options(name, tasks)))
        except UnsupportedByStore:
            self._outside.queue(name, tasks)
            return self.client.queue(name)
