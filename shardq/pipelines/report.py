"""Counters of what the links of a pipeline have done."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from shardq.worker import WorkerReport

__all__ = ["LinkReport", "LinkTally", "PipelineReport"]


class LinkReport(msgspec.Struct, frozen=True):
    """Counters of one link, of one process or of several added up. They count messages."""

    worked: int = 0  # their function returned, and what it returned was done
    sent: int = 0  # that went on; each part of a split counts
    dropped: int = 0  # nothing went on
    failed: int = 0  # the function raised, or asked for a retry or a dead letter; a message counts each time
    put_off: int = 0  # snoozed, or a target took none for now; a message counts each time

    def __add__(self, other: LinkReport) -> LinkReport:
        return LinkReport(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class PipelineReport(WorkerReport, frozen=True):
    """What a worker has done, with the counters of each link by its source."""

    links: dict[str, LinkReport] = msgspec.field(default_factory=dict)

    def __add__(self, other: WorkerReport) -> PipelineReport:
        total = WorkerReport.__add__(self, other)
        links = dict(self.links)
        if isinstance(other, PipelineReport):
            for source, report in other.links.items():
                links[source] = links.get(source, LinkReport()) + report
        return msgspec.structs.replace(total, links=links)  # type: ignore[return-value]

    def __radd__(self, other: WorkerReport) -> PipelineReport:
        return self + other


class LinkTally:
    """The counters of the links of a running worker. Any thread may write and read them."""

    def __init__(self, sources: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._links = {source: LinkReport() for source in sources}

    def add(self, source: str, **amounts: int) -> None:
        """Add to the counters of a link."""
        with self._lock:
            self._links[source] += LinkReport(**amounts)

    def read(self, report: WorkerReport) -> PipelineReport:
        """The counters as they are now, beside those of the worker."""
        numbers: dict[str, Any] = msgspec.structs.asdict(report)
        with self._lock:
            return PipelineReport(**numbers, links=dict(self._links))
