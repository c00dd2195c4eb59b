"""Counters of what workers have done."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Tally", "WorkerReport"]


class WorkerReport(msgspec.Struct, frozen=True):
    """Counters of one worker, or of several added up. They count messages, unless stated otherwise."""

    worked: int = 0  # the handler returned
    failed: int = 0  # the handler raised; a message counts each time
    dead_lettered: int = 0  # failed for the last time, and moved to the dead-letter queue
    given_back: int = 0  # received, but not started before the worker stopped
    lease_lost: int = 0  # worked or failed, but their lease had expired: they are delivered again
    batches: int = 0  # bulk reads
    store_faults: int = 0  # how often the store was unavailable for longer than the client retries
    in_flight: int = 0  # held at this moment
    last_failure: str | None = None

    def __add__(self, other: WorkerReport) -> WorkerReport:
        numbers: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        last_failure = other.last_failure or self.last_failure
        return msgspec.structs.replace(self, **numbers, last_failure=last_failure)


_NUMBERS = tuple(name for name in WorkerReport.__struct_fields__ if name != "last_failure")


class Tally:
    """The counters of a running worker: written by its thread, read by any thread."""

    def __init__(self) -> None:
        self._report = WorkerReport()

    def add(self, **amounts: int) -> None:
        """Add to the counters of these names."""
        changed: dict[str, Any] = {name: getattr(self._report, name) + more for name, more in amounts.items()}
        self._report = msgspec.structs.replace(self._report, **changed)

    def fail(self, reason: str) -> None:
        """Count a failure, and keep its reason."""
        self.add(failed=1)
        self._report = msgspec.structs.replace(self._report, last_failure=reason)

    def hold(self, count: int) -> None:
        """Set how many messages are held now."""
        self._report = msgspec.structs.replace(self._report, in_flight=count)

    def read(self) -> WorkerReport:
        """The counters as they are now."""
        return self._report
