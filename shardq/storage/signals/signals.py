"""Waking those who wait for messages, in this process and in others."""

from __future__ import annotations

import threading

from shardq.storage.per_process import PerProcess
from shardq.storage.signals.herald import Herald
from shardq.storage.signals.line import Line
from shardq.storage.signals.switchboard import Switchboard
from shardq.storage.signals.watch import Watch

__all__ = ["Signals"]


class Signals:
    """Tells all who wait, through a line, in which queues something became deliverable.

    Signals are merged, never dropped. One thread of each client that waits listens to the line.
    """

    def __init__(self, line: Line) -> None:
        self._own = PerProcess(lambda: _Own(line))

    def announce(self, queue: str) -> None:
        """Wake the threads of this client and tell the others."""
        own = self._own.get()
        own.board.announce((queue,))
        own.herald.announce(queue)

    def wait(self, queue: str, seconds: float) -> bool:
        """Return True when something was announced since this thread's last wait, False after ``seconds``."""
        own = self._own.get()
        own.watch()
        return own.board.wait(queue, seconds)

    def watches(self) -> bool:
        """True while what other clients announce is heard; begins to listen if need be."""
        return self._own.get().watch().stands

    def close(self) -> None:
        """Tell what is to be told and listen no longer; a later wait begins again."""
        own = self._own.known()
        if own is not None:
            own.close()


class _Own:
    """What a process has for itself."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.board, self.herald = Switchboard(), Herald(line)
        self._watch: Watch | None = None
        self._beginning = threading.Lock()

    def watch(self) -> Watch:
        with self._beginning:
            if self._watch is None:
                self._watch = Watch(self._line, self.board)
            return self._watch

    def close(self) -> None:
        self.herald.close()
        with self._beginning:
            if self._watch is not None:
                self._watch.end()
            self._watch = None
