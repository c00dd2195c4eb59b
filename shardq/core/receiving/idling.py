"""Sleeping while there is nothing to receive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from shardq.core.context.queue_context import REFRESH_SECONDS
from shardq.core.context.retry import Retry
from shardq.core.receiving.receiving import Receiving
from shardq.storage.listening import Waiter
from shardq.storage.store import Store

__all__ = ["Idling", "NothingYet", "ThreadlessIdling"]

# If the store signals appends, polls only find what a signal missed. Many consumers share them.
SLOW_POLL_SECONDS = 5.0
SLOW_POLL_SECONDS_OF_A_QUEUE = 0.4  # a poll reads all shards of every queue
SLOW_POLLS_PER_SECOND = 1  # of all consumers together
LONGEST_POLL_SECONDS = 10.0  # of each consumer: one that is silent for 16 seconds counts as gone
# If it does not, polls begin further and further apart while nothing is read, from the first pause to the last one.
FIRST_POLL_SECONDS = 0.003
POLL_GROWTH = 1.5
LAST_POLL_SECONDS = 0.25  # longer if there are too many consumers, which would make more polls than
POLLS_PER_SECOND = 12  # of all consumers together
PAUSED_SECONDS = 1.0  # until the settings of queues that are all paused are looked at again


class Idling:
    """Sleeps until there may be something to read: until a signal, the next known due time, or the next poll."""

    def __init__(
        self,
        store: Store,
        retry: Retry,
        receiving: Receiving,
        stopped: Callable[[], bool],
        lock: AbstractContextManager[object] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self._store, self._retry, self._receiving = store, retry, receiving
        self._waiter = Waiter(store, lambda: stopped() or retry.closed, wake)
        self.wake = self._waiter.wake
        """End a sleep. A stop that does not call this is noticed within a second."""
        self._lock = lock or nullcontext()  # of what receives, if other threads use it
        self._poll, self._woke = FIRST_POLL_SECONDS, time.monotonic()
        self._signalled: tuple[str, ...] = ()  # where something may have come since something was last read
        self.has_slept = False
        """True from a sleep until something is read."""
        self.news: tuple[str, ...] | None = None
        """The queues whose signal ended a sleep before the receive that begins, if there was one."""

    def reset(self) -> None:
        """Poll quickly again, after something was read."""
        self.has_slept = False
        self._poll, self._woke = FIRST_POLL_SECONDS, time.monotonic()
        self._signalled = ()

    def sleep(self, at_most: float) -> tuple[str, ...]:
        """Sleep for at most ``at_most`` seconds.

        Returns the queues in which messages may have come. Without signals of other clients' sends, these are all
        queues.
        """
        queues, until = self._fall_asleep(at_most)
        return self._awake(
            queues, self._retry(lambda: self._waiter.wait(tuple(queues), until - time.monotonic()))
        )

    def _fall_asleep(self, at_most: float) -> tuple[Mapping[str, str], float]:
        """Return the queues to wait for, and until when."""
        with self._lock:
            until = time.monotonic() + min(at_most, self.longest())
            queues = self._receiving.waits_for
        self.has_slept = True
        return queues, until

    def _awake(self, queues: Mapping[str, str], news: Sequence[str]) -> tuple[str, ...]:
        signalled = self._signalled
        self._signalled = tuple(queues[name] for name in news if name in queues)
        self._woke = time.monotonic()
        if self._signalled:
            return self._signalled
        return signalled if self._store.capabilities.signals else tuple(self._receiving.queues)

    def longest(self) -> float:
        """Return the seconds until the next poll.

        If a signal came and nothing was found, the message may be in the shards of a new layout. So the next poll
        comes when the settings are read again.
        """
        receiving = self._receiving
        due = receiving.seconds_until_due()
        slow = max(
            SLOW_POLL_SECONDS,
            receiving.consumers / SLOW_POLLS_PER_SECOND,
            len(receiving.queues) * SLOW_POLL_SECONDS_OF_A_QUEUE,
        )
        paused = receiving.paused
        slow = REFRESH_SECONDS if self._signalled or paused else slow
        longest = min(slow, LONGEST_POLL_SECONDS, *(() if due is None else (due,)))
        if len(paused) == len(receiving.queues):
            return PAUSED_SECONDS
        if self._store.capabilities.signals:
            return longest
        last = max(LAST_POLL_SECONDS, receiving.consumers / POLLS_PER_SECOND)
        self._poll, poll = min(self._poll * POLL_GROWTH, last), self._poll
        took = time.monotonic() - self._woke  # to look, which is not a reason to poll less often
        return min(longest, max(poll - took, min(poll, took)))


class NothingYet(Exception):
    """Raised when there is nothing to receive, in place of a sleep of ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class ThreadlessIdling(Idling):
    """Does not sleep: its caller waits, and receives again after ``wake`` was called, or after the given seconds."""

    def sleep(self, at_most: float) -> tuple[str, ...]:
        """Return the queues that have news. Raises NothingYet when there are none."""
        queues, until = self._fall_asleep(at_most)
        news = self._retry(self._waiter.poll, tuple(queues))
        if not news:
            raise NothingYet(until - time.monotonic())
        return self._awake(queues, news)

    def resume(self) -> None:
        """Note what ended the wait after :class:`NothingYet`. The next receive begins with that."""
        queues = self._receiving.waits_for
        self.news = self._awake(queues, self._retry(self._waiter.poll, tuple(queues)))

    def rest(self) -> None:
        """Listen no longer, until the next sleep."""
        self._waiter.rest()
