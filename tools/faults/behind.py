"""The audit of a round: what the store holds behind the port when everything is over."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base.clock import SystemClock
from shardq.errors import QueueNotFound
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.testing.audit import broken_rows, drain, hidden, remains

from .target import Target

__all__ = ["audit"]

ATTEMPTS = 5  # a server that was just started again may refuse a request


def audit(target: Target, queues: Sequence[str]) -> list[str]:
    """Name what is stored and not shown, and what remains after a drain and a sweep. No client may be at work."""
    store = open_store(target.url, SystemClock())
    try:
        return [f"audit of {queue}: {each}" for queue in queues for each in _audit(target, store, queue)]
    finally:
        store.close()


def _audit(target: Target, store: Store, queue: str) -> list[str]:
    for _ in range(ATTEMPTS):
        try:
            raw = target.read(queue)
            found = broken_rows(raw) + hidden(raw, store) + drain(queue, store)
            return found + remains(target.read(queue))
        except QueueNotFound:
            return remains(target.read(queue))
        except Exception as error:  # the port's, or of the driver behind it
            failed = str(error)
    return [f"could not be made: {failed}"]
