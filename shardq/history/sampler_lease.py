"""The lease of the sampler: one message that its holder keeps, so that one process samples at a time.

The message has a unique key, so there is one however many processes make it. A holder that dies, or that stands still,
loses it when its lease expires. The process that receives it then is the next sampler.
"""

from __future__ import annotations

from contextlib import suppress

from shardq.client import Client
from shardq.client.consumer import Consumer
from shardq.client.queue_internals import shorten_leases
from shardq.core.message import Message
from shardq.core.settings import ONE_SHARD
from shardq.errors import LeaseLost, QueueNotFound

__all__ = ["LONGEST_SECONDS", "SamplerLease"]

LONGEST_SECONDS = 600.0
_KEY = "sampler"


class SamplerLease:
    """The lease, for one process that wants it."""

    def __init__(self, client: Client, folder: str, lease: float) -> None:
        self._client, self._name, self._lease = client, f"{folder}sampler", lease
        self._consumer: Consumer | None = None
        self._held: Message | None = None

    @property
    def is_held(self) -> bool:
        """True when this process took it, and has not noticed that it lost it."""
        return self._held is not None

    def acquire(self) -> bool:
        """Take the lease if no process has it. Returns whether this one has it."""
        if self._consumer is None:
            self._consumer = self._client.create_queue(
                self._name, exist_ok=True, visibility_timeout=self._lease, **ONE_SHARD
            ).consumer(name=_KEY)
        try:
            batch = self._consumer.receive(1)
            if not batch and self._prepare():
                batch = self._consumer.receive(1)
        except QueueNotFound:  # it was deleted since
            self._consumer.close()
            self._consumer = None
            return False
        self._held = batch[0] if batch else None
        return self.is_held

    def _prepare(self) -> bool:
        """Make the message if it is missing; True when it was. End a lease of a clock that was far ahead."""
        queue = self._client.queue(self._name)
        seen = queue.peek(1)
        if not seen:
            queue.producer().send(b"", unique_key=_KEY)
        elif (seen[0].due - self._client.now()).total_seconds() > LONGEST_SECONDS + 2 * self._lease:
            shorten_leases(queue, self._lease)
        return not seen

    def renew(self, seconds: float) -> bool:
        """Keep the lease for these seconds more, 10 minutes at most; False when another process may have it."""
        if self._held is not None:
            try:
                self._held.extend(min(seconds, LONGEST_SECONDS) + self._lease)
            except LeaseLost:
                self._held = None
        return self.is_held

    def release(self) -> None:
        """Release the lease for others."""
        held, consumer = self._held, self._consumer
        self._held = self._consumer = None
        if held is not None:
            with suppress(LeaseLost):
                held.release(count=False)
        if consumer is not None:
            consumer.close()
