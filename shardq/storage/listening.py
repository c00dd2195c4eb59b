"""Notifications: which queues may have new deliverable messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from shardq.base.waits import RECHECK_SECONDS, ThreadWait
from shardq.storage.per_process import PerProcess, forks

__all__ = ["Listener", "Listens", "LocalListener", "LocalNotifier", "Waiter", "of_process"]

_MOST = 10_000  # queues whose announcements are counted, before all of them count as announced


class Listener(Protocol):
    """Notifies one receiver of news, as :meth:`shardq.storage.store.Store.listen` does."""

    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        """Return the queues with news since the last call; if there are none, begin to listen."""
        ...

    def rest(self) -> None:
        """Listen no longer, until the next :meth:`news`."""
        ...


class Listens(Protocol):
    """A store that can be listened to."""

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Return what calls ``wake`` when there are news."""
        ...


class Waiter:
    """Lets one thread at a time wait for the news of a store. News between two waits ends the second.

    With ``wake`` no thread waits: it is called when a :meth:`poll` that found nothing may find something.
    """

    def __init__(
        self,
        store: Listens,
        has_ended: Callable[[], bool] = lambda: False,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self._store, self._has_ended = store, has_ended
        self._wait = ThreadWait()
        self.wake = wake or self._end_wait
        """Let the thread look again. For handlers of signals and other threads."""
        self._listener: Listener | None = None
        self._generation = forks.count

    def wait(self, queues: Sequence[str], seconds: float) -> tuple[str, ...]:
        """Return the queues that have news; none after ``seconds``, or when it has ended."""
        until = time.monotonic() + seconds
        try:
            while True:
                self._wait = wait = ThreadWait()
                if self._has_ended():
                    return ()
                if news := self.poll(queues):
                    return news
                wait.wait(max(0.0, min(until - time.monotonic(), RECHECK_SECONDS)))
                if time.monotonic() >= until:  # the next wait begins with a read
                    return ()
        finally:
            self.rest()

    def poll(self, queues: Sequence[str]) -> tuple[str, ...]:
        """Return the queues that have news; if none has, begin to listen."""
        if self._listener is None or self._generation != forks.count:  # the parent's is of no use to a child
            self._listener = self._store.listen(self.wake)
            self._generation = forks.count
        return self._listener.news(queues)

    def rest(self) -> None:
        """Listen no longer, until the next look."""
        if self._listener is not None:
            self._listener.rest()

    def _end_wait(self) -> None:
        self._wait.end()


class LocalNotifier:
    """Counts announcements by queue and wakes the listeners of this process. They are merged, never dropped."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may send while the thread below it listens
        self._counts: dict[str, int] = {}
        self._of_all = 0
        self._listening: dict[LocalListener, frozenset[str]] = {}

    @property
    def remembered(self) -> int:
        """Return the number of queues that have a count."""
        return len(self._counts)

    def listen(self, wake: Callable[[], None]) -> LocalListener:
        """Return what calls ``wake`` when one of its queues is announced."""
        return LocalListener(self, wake)

    def announce(self, queues: Collection[str]) -> None:
        """Wake who listens to these queues."""
        with self._lock:
            for queue in queues:
                if len(self._counts) >= _MOST:
                    self._counts.clear()
                    self.announce_all()
                self._counts[queue] = self._counts.get(queue, 0) + 1
            if self._listening:
                self._wake(
                    [each for each, names in list(self._listening.items()) if not names.isdisjoint(queues)]
                )

    def announce_all(self) -> None:
        """Wake all listeners: it is not known which messages became deliverable."""
        with self._lock:
            self._of_all += 1
            self.wake_all()

    def wake_all(self) -> None:
        """Wake all listeners without news."""
        with self._lock:
            self._wake(list(self._listening))

    def news(self, listener: LocalListener, queues: Sequence[str]) -> tuple[str, ...]:
        """Return the queues that were announced since the listener was last notified; if none, it listens."""
        with self._lock:
            news: list[str] = []
            for queue in queues:
                count = self._of_all, self._counts.get(queue, 0)
                if count != listener.notified.get(queue, (0, 0)):
                    listener.notified[queue] = count
                    news.append(queue)
            if not news:
                self._listening[listener] = frozenset(queues)
            return tuple(news)

    def rest(self, listener: LocalListener) -> None:
        """Wake it no longer."""
        with self._lock:
            self._listening.pop(listener, None)

    def _wake(self, listeners: Iterable[LocalListener]) -> None:
        for listener in listeners:
            self._listening.pop(listener, None)
            listener.wake()


class LocalListener:
    """Notifies one receiver of announcements in this process."""

    def __init__(self, notifier: LocalNotifier, wake: Callable[[], None]) -> None:
        self._notifier, self.wake = notifier, wake
        self.notified: dict[str, tuple[int, int]] = {}
        """The count of each queue at its last notification."""

    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        """Return the queues that were announced since the last notification; if none, begin to listen."""
        return self._notifier.news(self, queues)

    def rest(self) -> None:
        """Listen no longer, until the next :meth:`news`."""
        self._notifier.rest(self)


of_process = PerProcess(LocalNotifier)
"""Of stores that announce no writes: another client of this process must see an append at once."""
