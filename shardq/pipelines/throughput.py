"""The counters of a pipeline's links, and the rates of messages through them.

A note is one message for each worker, which the next one replaces, in a queue of shardq's own. It is delayed until it
does not count any more; a worker that notes something then removes those that are due. Notes are only for display:
when one cannot be written, the worker continues.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from shardq.client import Client, check_client
from shardq.errors import QueueNotFound, ShardqError
from shardq.pipelines.pipeline import Pipeline, check_pipeline
from shardq.storage.requests import EntryState
from shardq.worker import WorkerReport

__all__ = ["NOTE_SECONDS", "LinkRate", "LinkReport", "LinkTally", "Notes", "PipelineReport", "rates_of"]

QUEUE = "_shardq/pipelines"
NOTE_SECONDS = 5.0
COUNTED_SECONDS = 3 * NOTE_SECONDS  # a worker without a note for this time is idle
MOST_NOTES = 10_000
_NAME = "pipeline"
_ENCODER = msgspec.msgpack.Encoder()


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
    """The counters of a worker, with those of each link by its source."""

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
        """Return the present counters of the links, beside those of the worker."""
        numbers: dict[str, Any] = msgspec.structs.asdict(report)
        with self._lock:
            return PipelineReport(**numbers, links=dict(self._links))


class LinkRate(msgspec.Struct, frozen=True):
    """How many messages a second went through a link lately, over all its workers.

    ``worked`` are those that its function took, and that were done; ``sent`` those that went on.
    """

    source: str
    worked: float = 0.0
    sent: float = 0.0


class Notes:
    """The notes of one worker."""

    def __init__(self, client: Client, pipeline: str) -> None:
        self._client, self._pipeline = client, pipeline
        self._key = secrets.token_hex(8)
        self._written: Mapping[str, LinkReport] = {}
        self._at = time.monotonic()

    def write(self, links: Mapping[str, LinkReport]) -> None:
        """Note the work since the note before, once in five seconds at most."""
        seconds = time.monotonic() - self._at
        if seconds < NOTE_SECONDS:
            return
        rates = [_rate(source, each, self._written.get(source), seconds) for source, each in links.items()]
        self._written, self._at = links, time.monotonic()
        with suppress(ShardqError):
            self._write(_ENCODER.encode(rates))

    def _write(self, body: bytes) -> None:
        try:
            queue = self._client.queue(QUEUE)
        except QueueNotFound:
            queue = self._client.create_queue(QUEUE, exist_ok=True, shards=1, max_deliveries=None)
        with queue.producer() as producer:
            producer.send(
                body,
                headers={_NAME: self._pipeline},
                unique_key=self._key,
                on_conflict="replace",
                delay=COUNTED_SECONDS,
            )
        with queue.consumer() as consumer:
            consumer.receive(MOST_NOTES).ack()


def rates_of(pipeline: Pipeline, client: Client) -> dict[str, LinkRate]:
    """Return how fast messages went through the links of a pipeline in the last seconds, by their sources.

    Those that did nothing for a quarter of a minute may be missing.
    """
    check_pipeline(pipeline)
    check_client(client)
    found: dict[str, LinkRate] = {}
    try:
        notes = client.queue(QUEUE).peek(MOST_NOTES)
    except QueueNotFound:
        return found
    for note in notes:
        if note.state is EntryState.DELAYED and note.headers.get(_NAME) == pipeline.name:
            for each in _DECODER.decode(note.body):
                before = found.get(each.source, LinkRate(each.source))
                found[each.source] = LinkRate(
                    each.source, before.worked + each.worked, before.sent + each.sent
                )
    return found


def _rate(source: str, now: LinkReport, before: LinkReport | None, seconds: float) -> LinkRate:
    then = before or LinkReport()
    span = max(seconds, 0.001)
    return LinkRate(source, (now.worked - then.worked) / span, (now.sent - then.sent) / span)


_DECODER = msgspec.msgpack.Decoder(list[LinkRate])
