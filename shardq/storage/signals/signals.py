"""Waking consumers that wait for messages, in this process and in others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing

from shardq.base.log import Log
from shardq.base.waits import BackgroundThread, Flag
from shardq.storage.listening import LocalListener, LocalNotifier
from shardq.storage.per_process import PerProcess
from shardq.storage.signals.publisher import Line, Publisher

__all__ = ["Signals", "Watch"]

_log = Log(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


class Signals:
    """Notifies all waiting consumers, through a line, of the queues in which messages became deliverable.

    Signals are merged, never dropped. One thread of each client that waits listens to the line.
    """

    def __init__(self, line: Line) -> None:
        self._own = PerProcess(lambda: _Own(line))

    def announce(self, queue: str) -> None:
        """Wake the threads of this client and notify the others."""
        own = self._own.get()
        own.notifier.announce((queue,))
        own.publisher.announce(queue)

    def listen(self, wake: Callable[[], None]) -> LocalListener:
        """Return what calls ``wake`` when one of its queues is announced."""
        return _Listener(self._own.get(), wake)

    def watches(self) -> bool:
        """Return whether announcements of other clients are heard; begins to listen if need be."""
        return self._own.get().watch().stands

    def close(self) -> None:
        """Send pending announcements and listen no longer; a later wait begins again."""
        own = self._own.known
        if own is not None:
            own.close()


class _Own:
    """The objects of one process."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.notifier, self.publisher = LocalNotifier(), Publisher(line)
        self._lock = threading.Lock()
        self._watch = Watch(line, self.notifier)
        self._thread = BackgroundThread("shardq-signals")

    def watch(self) -> Watch:
        with self._lock:
            if self._thread.is_over:
                self._renew()
            watch, new = self._watch, self._thread.prepare(self._watch.follow)
        if new is not None:
            self._thread.begin(new)
        return watch

    def close(self) -> None:
        self.publisher.close()
        with self._lock:
            self._renew()
            self._thread = BackgroundThread("shardq-signals")

    def _renew(self) -> None:
        """End the watch, in case that its thread begins late or was interrupted; the next one is its own."""
        self._watch.end()
        self._watch = Watch(self._line, self.notifier)


class _Listener(LocalListener):
    """One for whom the client has to listen to the line."""

    def __init__(self, own: _Own, wake: Callable[[], None]) -> None:
        super().__init__(own.notifier, wake)
        self._own = own

    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        self._own.watch()
        return super().news(queues)


class Watch:
    """Listens until it is ended; connects again after interruptions, with growing pauses.

    When it begins to hear, every queue counts as announced: what came before is not known. The log says once that the
    line is lost, and once that it stands again.
    """

    def __init__(self, line: Line, notifier: LocalNotifier) -> None:
        self._line, self._notifier = line, notifier
        self._ended = Flag()
        self.stands, self._lost = False, False

    def end(self) -> None:
        """Listen no longer."""
        self._ended.set()

    def follow(self) -> None:
        """Listen in this thread, until the end."""
        pause = _FIRST_PAUSE
        while not self._ended.is_set():
            if self._listen():
                pause = _FIRST_PAUSE
            self._ended.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _listen(self) -> bool:
        """Pass on what is heard, until the line is broken; True when it stood."""
        stood = False
        try:
            with closing(self._line.listen()) as heard:
                for queues in heard:
                    if self._ended.is_set():
                        break
                    if not stood:
                        stood = self.stands = True
                        self._found()
                    self._notifier.announce(queues)
        finally:
            self.stands = False
        self._lose()
        return stood

    def _found(self) -> None:
        self._notifier.announce_all()
        if self._lost:
            _log.info("%s stands again: consumers are notified of messages", self._line.name)
        self._lost = False

    def _lose(self) -> None:
        if not self._lost and not self._ended.is_set():
            _log.warning("%s is lost: consumers poll for messages", self._line.name)
            self._lost = True
            self._notifier.wake_all()  # who listens has to do so elsewhere
