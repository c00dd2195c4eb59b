"""Counters of workers."""

from __future__ import annotations

from typing import Any

import msgspec

from shardq.core.hooks import Observer
from shardq.core.settling.dead_letters import LONGEST_REASON
from shardq.storage.per_process import OwnLock

__all__ = ["Tally", "WorkerReport"]


class WorkerReport(msgspec.Struct, frozen=True):
    """Counters of one worker, or of several added up. They count messages, unless stated otherwise."""

    worked: int = 0  # the handler returned
    failed: int = 0  # the handler raised, or asked for a retry or a dead letter; a message counts each time
    dead_lettered: int = 0  # failed for the last time, and moved to the dead-letter queue
    snoozed: int = 0  # to be delivered later, without having failed; a message counts each time
    discarded: int = 0  # acked although they were not worked
    returned: int = 0  # received, but not started before the worker stopped
    settled: int = 0  # of which the handler has ended, and then acked, released or moved
    lease_lost: int = 0  # worked or failed, but their lease had expired: they are delivered again
    batches: int = 0  # bulk reads
    store_faults: int = 0  # how often the store was unavailable for longer than the client retries
    permit_waits: int = 0  # attempts at a permit of the semaphore that found none, while no handler ran
    in_flight: int = 0  # held at this moment
    settling: int = 0  # of those: their handlers have ended, and they are acked or released now
    last_failure: str | None = None

    @property
    def handled(self) -> int:
        """How often the handler has ended, in messages."""
        return self.worked + self.failed + self.snoozed + self.discarded

    def __add__(self, other: WorkerReport) -> WorkerReport:
        numbers: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        last_failure = other.last_failure or self.last_failure
        return msgspec.structs.replace(self, **numbers, last_failure=last_failure)


_NUMBERS = tuple(name for name in WorkerReport.__struct_fields__ if name != "last_failure")


class Tally:
    """The counters of a running worker. Any thread may write and read them. Calls of handlers notify the observer."""

    def __init__(self, observer: Observer | None = None) -> None:
        self.observer = observer
        self._report = WorkerReport()
        self._lock = OwnLock()

    def add(self, **amounts: int) -> None:
        """Add to the counters of these names."""
        with self._lock.plain:
            before = self._report
            changed: dict[str, Any] = {name: getattr(before, name) + more for name, more in amounts.items()}
            self._report = msgspec.structs.replace(before, **changed)

    def fail(self, reason: str, messages: int) -> None:
        """Count failures, and keep the reason of the last one, as far as a dead letter has it too.

        A process of a pool sends it with each of its reports.
        """
        self.add(failed=messages)
        self._set(last_failure=reason[:LONGEST_REASON])

    def hold(self, count: int, *, settling: int = 0) -> None:
        """Set how many messages are held now, and of how many of them the handlers have ended."""
        self._set(in_flight=count, settling=settling)

    def read(self) -> WorkerReport:
        """Return the present values of the counters."""
        return self._report

    def _set(self, **values: Any) -> None:
        with self._lock.plain:
            self._report = msgspec.structs.replace(self._report, **values)
