"""Waking consumers that wait for messages, in this process and in others.

A publisher notifies other processes of the queues in which messages became deliverable.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from typing import Protocol

from shardq.base.log import Log
from shardq.base.waits import BackgroundThread, ChangeNotifier, Flag
from shardq.storage.listening import LocalListener, LocalNotifier
from shardq.storage.per_process import PerProcess
from shardq.storage.requests import Finding

__all__ = ["OpenSignalChannel", "Publisher", "SignalChannel", "Signals", "Watch"]

_log = Log(__name__)

_GAP = 0.004  # seconds between two messages to the others
_LONGEST_PAUSE = 5.0  # seconds between two attempts to reach them
_LAST_WORDS = 3.0  # seconds that a message under way has when the publisher is closed


class SignalChannel(Protocol):
    """Carries names of queues to all who listen. Safe for threads, and in forked children."""

    @property
    def name(self) -> str:
        """The channel's name and place, without a login, for the log."""
        ...

    @property
    def may_block(self) -> bool:
        """True when ``publish`` may take long while the store is well: no thread that sends may call it then."""
        ...

    def publish(self, queues: Collection[str]) -> bool:
        """Pass the names on. False, and no error, when they have to be passed on again."""
        ...

    def listen(self) -> Generator[Collection[str]]:
        """Yield the names of queues from now on.

        The first item comes when the channel stands, and one every few seconds, of no names if there are none. The end
        comes, without an error, when the channel is broken.
        """
        ...


class OpenSignalChannel(SignalChannel, Protocol):
    """A channel that a URL names, with its own connections."""

    def diagnose(self) -> Finding:
        """Report whether the channel stands, for ``shardq doctor``."""
        ...

    def close(self) -> None:
        """Give up the connections of this process; the channel may be used again."""
        ...


class Publisher:
    """Passes the names of queues on to other processes.

    The first name after a pause is passed on at once. Names that follow within four milliseconds are merged, and a
    thread passes them on. On a channel that may block, the thread passes on every name. Closing the publisher, or the
    end of the program, passes on what is left. Names that could not be passed on are repeated, with growing pauses.
    """

    def __init__(self, channel: SignalChannel) -> None:
        self._channel = channel
        self._lock = threading.RLock()  # a signal's handler may send while the thread below it does
        self._news = ChangeNotifier(self._lock)
        self._pending: set[str] = set()
        self._published_at = 0.0
        self._thread = self._new_thread()
        self._pid = os.getpid()

    def announce(self, queue: str) -> None:
        """Pass the name on, now or within the gap."""
        with self._lock:
            self._pending.add(queue)
            soon = self._channel.may_block or time.monotonic() - self._published_at < _GAP
            new = self._thread.prepare(self._work) if soon else None
            if soon and new is None:
                if len(self._pending) == 1:
                    self._news.notify_all()
                return
        if new is None or not self._begins(new):
            self.flush()

    def flush(self) -> bool:
        """Pass on announcements; False when they have to be passed on again."""
        with self._lock:
            pending, self._pending = self._pending, set()
            self._published_at = time.monotonic()
        if not pending or self._channel.publish(pending):
            return True
        with self._lock:
            self._pending |= pending
        return False

    def close(self) -> None:
        """Pass on announcements and end the thread."""
        atexit.unregister(self._end)
        with self._lock:
            thread, self._thread = self._thread, self._new_thread()
            self._news.notify_all()
        thread.join(_LAST_WORDS)
        self.flush()

    @staticmethod
    def _new_thread() -> BackgroundThread:
        return BackgroundThread("shardq-publisher")

    def _begins(self, thread: threading.Thread) -> bool:
        """Start the thread; False when that is impossible, as when the program ends."""
        begun = self._thread.begin(thread)
        if begun:
            atexit.register(self._end)
        return begun

    def _end(self) -> None:
        if self._pid == os.getpid():  # a fork inherits what is to be done at the end, but not the thread
            self.close()

    def _work(self) -> None:
        pause = _GAP
        while self._wait(pause):
            pause = _GAP if self.flush() else min(2 * pause, _LONGEST_PAUSE)

    def _wait(self, pause: float) -> bool:
        """Return True when names are to be passed on, that long after the last time; False once it is closed."""
        self._news.wait_for(lambda: self._pending or self._has_ended)
        while not self._has_ended and (left := self._published_at + pause - time.monotonic()) > 0:
            self._news.wait_for(lambda: self._has_ended, left)
        return not self._has_ended

    @property
    def _has_ended(self) -> bool:
        return not self._thread.is_current


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


class Signals:
    """Notifies all waiting consumers, through a channel, of the queues in which messages became deliverable.

    Signals are merged, never dropped. One thread of each client that waits listens to the channel.
    """

    def __init__(self, channel: SignalChannel) -> None:
        self._own = PerProcess(lambda: _Own(channel))

    def announce(self, queue: str, *, elsewhere: bool = True) -> None:
        """Wake the threads of this client, and notify the others unless nobody waits ``elsewhere``."""
        own = self._own.get()
        own.notifier.announce((queue,))
        if elsewhere:
            own.publisher.announce(queue)

    def listen(self, wake: Callable[[], None]) -> LocalListener:
        """Return what calls ``wake`` when one of its queues is announced."""
        return _Listener(self._own.get(), wake)

    def watches(self) -> bool:
        """Return whether announcements of other clients are heard; begins to listen if need be."""
        return self._own.get().watch().connected

    def close(self) -> None:
        """Send pending announcements and listen no longer; a later wait begins again."""
        own = self._own.known
        if own is not None:
            own.close()


class _Own:
    """The objects of one process."""

    def __init__(self, channel: SignalChannel) -> None:
        self._channel = channel
        self.notifier, self.publisher = LocalNotifier(), Publisher(channel)
        self._lock = threading.Lock()
        self._watch = Watch(channel, self.notifier)
        self._thread = BackgroundThread("shardq-signals")

    def watch(self) -> Watch:
        with self._lock:
            if self._thread.has_ended:
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
        self._watch = Watch(self._channel, self.notifier)


class _Listener(LocalListener):
    """One for whom the client has to listen to the channel."""

    def __init__(self, own: _Own, wake: Callable[[], None]) -> None:
        super().__init__(own.notifier, wake)
        self._own = own

    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        self._own.watch()
        return super().news(queues)


class Watch:
    """Listens until it is ended; connects again after interruptions, with growing pauses.

    When it begins to hear, every queue counts as announced: what came before is not known. The log says once that the
    channel is lost, and once that it is connected again.
    """

    def __init__(self, channel: SignalChannel, notifier: LocalNotifier) -> None:
        self._channel, self._notifier = channel, notifier
        self._ended = Flag()
        self.connected, self._lost = False, False

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
        """Pass on what is heard, until the channel is broken; True when it was connected."""
        was_connected = False
        try:
            with closing(self._channel.listen()) as heard:
                for queues in heard:
                    if self._ended.is_set():
                        break
                    if not was_connected:
                        was_connected = self.connected = True
                        self._found()
                    self._notifier.announce(queues)
        finally:
            self.connected = False
        self._lose()
        return was_connected

    def _found(self) -> None:
        self._notifier.announce_all()
        if self._lost:
            _log.info("%s is connected again: consumers are notified of messages", self._channel.name)
        self._lost = False

    def _lose(self) -> None:
        if not self._lost and not self._ended.is_set():
            _log.warning("%s is lost: consumers poll for messages", self._channel.name)
            self._lost = True
            self._notifier.wake_all()  # who listens has to do so elsewhere
