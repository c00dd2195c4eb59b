"""Waking consumers that wait for messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shardq.base.waits import BackgroundThread, ChangeNotifier
from shardq.storage.per_process import watch_forks
from shardq.storage.sqlite.log import LOG, EventSleeper, PollingSleeper, Sleeper, notify_processes

__all__ = ["Signals"]

_IDLE_SECONDS = 5.0  # after which the thread ends, if nobody listens
_LAST_READ_SECONDS = 3.0  # that a read under way has when this is closed
_LONGEST_SLEEP_SECONDS = 60.0  # an upper bound: each sleeper ends its sleep after a second


class Signals:
    """Wakes who listens when the number of one of its queues changes in the file, which ``numbers`` reads.

    A client that has changed one calls :meth:`announce`. The operating system then wakes the watching thread of each
    client. Where it cannot, that thread checks the file's log now and then.
    """

    def __init__(
        self, numbers: Callable[[Sequence[str]], Mapping[str, int]], path: Path, ending: str = LOG
    ) -> None:
        self.numbers = numbers
        self._path, self._place, self._ending = path, str(path), ending
        self.sleeper: Sleeper | None = None
        self.thread = self._new_thread()
        self._start()
        watch_forks(self)

    def announce(self) -> None:
        """Wake all listeners, which read the numbers again. Later listeners see the commit anyway."""
        notify_processes(self._place, self._ending)
        if self.listening:
            self._wake_thread()

    def listen(self, wake: Callable[[], None]) -> _Listener:
        """Return what calls ``wake`` when the number of one of its queues changes."""
        return _Listener(self, wake)

    def close(self) -> None:
        """Return the watch, and wake the listeners. A later listener has a new one made."""
        with self._lock:
            thread, listeners = self.thread, list(self.listening)
            self._wake_thread()
            self.thread, self.sleeper = self._new_thread(), None
            self.listening.clear()
            for listener in listeners:
                listener.wake()
        self._changes.notify_all()
        thread.join(_LAST_READ_SECONDS)

    def add(self, listener: _Listener, queues: Sequence[str]) -> None:
        """Watch the file for one who listens."""
        with self._lock:
            self.listening[listener] = queues
            new = self.thread.prepare(self._watch)
        if new is None:
            self._changes.notify_all()
        else:
            self.thread.begin(new)

    def remove(self, listener: _Listener) -> None:
        """Watch for it no longer."""
        with self._lock:
            self.listening.pop(listener, None)

    def before_fork(self) -> None:
        """Let no thread begin or end a watch."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Continue after a fork."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Continue without the parent's watch, which is still in use there."""
        if self.sleeper is not None:
            self.sleeper.close()
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may send while this thread listens
        self._changes = ChangeNotifier(self._lock)
        self.listening: dict[_Listener, Sequence[str]] = {}
        self.thread, self.sleeper = self._new_thread(), None

    def _wake_thread(self) -> None:
        with self._lock:
            if self.sleeper is not None:
                self.sleeper.wake()

    @staticmethod
    def _new_thread() -> BackgroundThread:
        return BackgroundThread("shardq-signals")

    # -- the thread ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        sleeper = self._new_sleeper()
        try:
            while self._wait_for_listener():
                sleeper.sleep(_LONGEST_SLEEP_SECONDS)
                if self._notify_listeners():
                    sleeper.found()
                if not sleeper.lasting:
                    sleeper.close()
                    sleeper = self._new_sleeper()
        finally:
            sleeper.close()

    def _wait_for_listener(self) -> bool:
        """Wait for a listener; False when none came, and another thread is to be begun for a later one."""
        self._changes.wait_for(lambda: self.listening or not self.thread.is_current, _IDLE_SECONDS)
        with self._lock:
            if self.thread.is_current and not self.listening:
                self.thread.forget()
                self.sleeper = None
            return self.thread.is_current

    def _notify_listeners(self) -> bool:
        """Wake those whose queues have other numbers than in their last notice."""
        with self._lock:
            listening = dict(self.listening)
        if not listening:
            return False
        try:
            numbers = self.numbers(sorted({queue for queues in listening.values() for queue in queues}))
            news = [each for each, queues in listening.items() if each.changed(queues, numbers)]
        except Exception:  # a waiting client also reads, and meets it
            news = list(listening)
        with self._lock:  # one that rests by now is not woken, so that its rest has a certain moment
            for listener in news:
                if self.listening.pop(listener, None) is not None:
                    listener.wake()
        return bool(news)

    def _new_sleeper(self) -> Sleeper:
        """Watch the present file, and read the news that came until then."""
        sleeper = _make_sleeper(self._path, self._ending)
        with self._lock:
            if self.thread.is_current:
                self.sleeper = sleeper
        self._notify_listeners()
        return sleeper


class _Listener:
    """Notifies one receiver of news."""

    def __init__(self, signals: Signals, wake: Callable[[], None]) -> None:
        self._signals, self.wake = signals, wake
        self._seen: dict[str, int] = {}

    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        """Return the queues whose numbers differ from those of the last notice, 0 at first.

        If none, begin to listen.
        """
        self._signals.add(self, queues)  # before the read
        numbers = self._signals.numbers(queues)
        news = self.changed(queues, numbers)
        if news:
            self._seen.update((queue, numbers.get(queue, 0)) for queue in news)
            self.rest()
        return news

    def changed(self, queues: Sequence[str], numbers: Mapping[str, int]) -> tuple[str, ...]:
        """Return the queues whose numbers differ from those of the last notice."""
        seen = self._seen
        return tuple(queue for queue in queues if numbers.get(queue, 0) != seen.get(queue, 0))

    def rest(self) -> None:
        """Listen no longer, until the next :meth:`news`."""
        self._signals.remove(self)


def _make_sleeper(path: Path, ending: str) -> Sleeper:
    try:
        return EventSleeper(path, ending)
    except OSError:  # no watch left, no such folder yet, or not Linux
        return PollingSleeper(path)
