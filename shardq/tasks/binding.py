"""What joins an app of tasks to a store: a client, the queues of the tasks, and their results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from shardq.client import Client
from shardq.errors import QueueNotFound
from shardq.message import StoredMessage
from shardq.outgoing_message import OutgoingMessage
from shardq.producer import Producer
from shardq.queue import Queue
from shardq.receipt import MessageId
from shardq.tasks.results import ResultLog

__all__ = ["Binding"]


class Binding:
    """One client, with what is opened once for all tasks. ``settings`` are those with which a queue is created."""

    def __init__(self, client: Client, settings: Callable[[str], dict[str, Any]]) -> None:
        self.client, self.results = client, ResultLog(client)
        self._settings = settings
        self._lock = threading.Lock()
        self._producers: dict[str, Producer] = {}

    def send(self, queue: str, messages: Sequence[OutgoingMessage]) -> Sequence[str]:
        """Store messages, and return their ids. A queue that is missing is created."""
        producer = self._producer(queue)
        try:
            return _sent(producer, messages)
        except QueueNotFound:  # it was deleted
            self._producers.pop(queue, None)
            return _sent(self._producer(queue), messages)

    def queue(self, name: str) -> Queue:
        """A queue of tasks; created if it is missing."""
        return self.client.create_queue(name, exist_ok=True, **self._settings(name))

    def find(self, task: str) -> StoredMessage | None:
        """The message of a task, if it is in its queue."""
        with suppress(QueueNotFound):
            return self.client.queue(MessageId.parse(task).shard.queue).get(task)
        return None

    def remove(self, task: str) -> bool:
        """Take the message of a task out of its queue; False when it is not there."""
        with suppress(QueueNotFound):
            return self.client.queue(MessageId.parse(task).shard.queue).remove(task)
        return False

    def _producer(self, queue: str) -> Producer:
        if queue not in self._producers:
            with self._lock:
                if queue not in self._producers:
                    self._producers[queue] = self.queue(queue).producer()
        return self._producers[queue]


def _sent(producer: Producer, messages: Sequence[OutgoingMessage]) -> Sequence[str]:
    return [producer.send(messages[0])] if len(messages) == 1 else producer.send_many(messages)
