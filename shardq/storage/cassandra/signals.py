"""Waking the threads of this process that wait for messages.

Cassandra tells nobody of a write. What one client of a process appends, another of the same process must see
at once, so the local notifier is the process's.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardq.storage.per_process import PerProcess
from shardq.storage.signals.publisher import LocalNotifier

__all__ = ["announce", "wait"]

_notifier = PerProcess(LocalNotifier)


def announce(queue: str) -> None:
    """Wake the threads that wait for the queue."""
    _notifier.get().announce((queue,))


def wait(queues: Sequence[str], seconds: float) -> tuple[str, ...]:
    """Return the queues that were announced since this thread's last wait for them; none after ``seconds``."""
    return _notifier.get().wait(queues, seconds)
