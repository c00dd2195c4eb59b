"""Reading the history: samples, put together in steps of equal length."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from shardq.base.clock import from_datetime, microseconds, seconds, to_datetime
from shardq.client import Client
from shardq.core.settings import check_number
from shardq.history.archive import COARSE, FINE, FOLDER, Archive, LogKind
from shardq.history.samples import TOTAL, Flow, Row, Sample
from shardq.metrics.measures import BOUNDS

__all__ = ["LONGEST_SECONDS", "History", "Percentiles", "Point", "read_histories", "read_history"]

SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 86_400.0
MOST_POINTS = 1_000
_STEPS = (15, 30, 60, 90, 120, 180, 300, 600, 900, 1_800, 3_600)  # seconds
_COARSE_STEPS = tuple(step for step in _STEPS if step >= 300)
_COMPLETE = 0.9  # reports of one side that explain so much of the change of the depth are taken for all


class Percentiles(msgspec.Struct, frozen=True):
    """Durations in seconds, estimated from buckets: half of them, or 95 of 100, took no longer."""

    p50: float
    p95: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in one step of its history; None where nothing was sampled.

    Numbers of messages are the highest of the step. Rates are messages per second. ``wait`` is from when a message is
    due until it is received for the first time, ``processing`` is that of handlers.
    """

    at: datetime  # the end of the step
    seconds: float = 0.0  # of the step in which samples were taken
    ready: int | None = None
    delayed: int | None = None
    in_flight: int | None = None
    consumers: int | None = None
    late_seconds: float | None = None
    incoming: float | None = None
    outgoing: float | None = None
    failed: float | None = None
    wait: Percentiles | None = None
    processing: Percentiles | None = None

    @property
    def depth(self) -> int | None:
        """Return how many messages are not processed; None where nothing was sampled."""
        if self.ready is None or self.delayed is None or self.in_flight is None:
            return None
        return self.ready + self.delayed + self.in_flight


_TimedSamples: TypeAlias = "tuple[Row, Mapping[str, Sample]]"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a queue, or of all together, in steps of ``step`` seconds.

    Messages come in as clients report their sends, and leave as clients report acks and moves. Where these reports are
    missing or incomplete, the change of the depth says it: then ``incoming_estimated`` or ``outgoing_estimated``, but
    never both. Where no client reports, only the difference of the two rates is known, and shown as one of them.
    """

    queue: str | None
    since: datetime
    until: datetime
    step: float
    incoming_estimated: bool
    outgoing_estimated: bool
    points: list[Point]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was sampled."""
        return all(point.ready is None for point in self.points)


def read_history(
    client: Client,
    queue: str | None = None,
    *,
    since: float = 3_600.0,
    points: int = 60,
    folder: str = FOLDER,
) -> History:
    """Read the history of a queue for the last ``since`` seconds, 60 to 86,400; None: of all queues together.

    Steps are 15 seconds or longer, and 5 minutes or longer for more than an hour. There are ``points`` of them at most,
    and one that has just begun. A queue that does not exist, or was not sampled, has an empty history. Raises
    InvalidSetting.
    """
    return read_histories(client, [queue], since=since, points=points, folder=folder)[0]


def read_histories(
    client: Client,
    queues: Sequence[str | None],
    *,
    since: float = 3_600.0,
    points: int = 60,
    folder: str = FOLDER,
) -> list[History]:
    """Read the histories of several queues, as :func:`read_history` does, with fewer requests."""
    check_number("since", since, SHORTEST_SECONDS, LONGEST_SECONDS)
    check_number("points", points, 1, MOST_POINTS, whole=True)
    is_coarse = since > FINE.kept
    steps = _COARSE_STEPS if is_coarse else _STEPS
    step = microseconds(next((each for each in steps if since / each <= points), since / points))
    now = from_datetime(client.now())
    first = (now - microseconds(since)) // step * step + step  # the end of the first step
    ends = range(first, now + step, step)
    names = [TOTAL if queue is None else queue for queue in queues]
    rows = _Rows(Archive(client, folder), names, first - step, now, coarse=is_coarse)
    return [_history(name, rows, ends) for name in names]


def _history(name: str, rows: _Rows, ends: range) -> History:
    buckets = [_Bucket() for _ in ends]
    for each in rows.observed(name):
        _share(each, buckets, ends)
    incoming, outgoing = _complete(buckets)
    return History(
        queue=name or None,
        since=to_datetime(ends[0] - ends.step),
        until=to_datetime(ends[-1]),
        step=seconds(ends.step),
        incoming_estimated=not incoming,
        outgoing_estimated=not outgoing,
        points=[
            bucket.point(end, incoming=incoming, outgoing=outgoing)
            for end, bucket in zip(ends, buckets, strict=True)
        ],
    )


class _Observed(msgspec.Struct, frozen=True):
    """A queue from the end of one row to the end of the next."""

    start: int
    end: int
    sample: Sample


class _Rows:
    """The rows of a time with the samples of some queues: coarse ones for as long as there are any, then fine ones.

    Both begin with the first row of their log, which has all queues.
    """

    def __init__(
        self, archive: Archive, names: Collection[str], since: int, until: int, *, coarse: bool
    ) -> None:
        self._since = self._border = since
        self._coarse: Sequence[_TimedSamples] = ()
        if coarse:
            self._coarse = self._read(archive, COARSE, names, until)
            self._border = self._coarse[-1][0].at if self._coarse else since
        self._fine = self._read(archive, FINE, names, until)

    def observed(self, name: str) -> Iterator[_Observed]:
        """Yield how a queue was seen. A row without the queue says that it has not changed."""
        known: Sample | None = None
        before = 0
        for rows, after in ((self._coarse, self._since), (self._fine, self._border)):
            for row, samples in rows:
                known = samples.get(name) or (known and known.quiet)
                if row.at > after and known is not None:
                    start = max(row.at - microseconds(row.seconds), before)
                    yield _Observed(min(start, row.at), row.at, known)
                    before = row.at

    def _read(
        self, archive: Archive, kind: LogKind, names: Collection[str], until: int
    ) -> list[_TimedSamples]:
        rows = archive.rows(kind, archive.start_of(kind, self._border), until + 1, names)
        return [(row, {each.queue: each for each in row.samples}) for row in rows]


class _Bucket:
    """The samples of one step, and the flows in it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.states: list[Sample] = []
        self.flows: dict[str, float] = dict.fromkeys(("sent", "left", "failed", "net"), 0.0)
        self.timed = Flow()

    def point(self, end: int, *, incoming: bool, outgoing: bool) -> Point:
        """Return the step as it is shown."""
        if not self.states:
            return Point(at=to_datetime(end))
        flows = self.flows
        came = flows["sent"] if incoming else flows["net"] + flows["left"]
        left = flows["left"] if outgoing else flows["sent"] - flows["net"]
        return Point(
            at=to_datetime(end),
            seconds=round(self.seconds, 3),
            ready=self._highest(lambda each: each.ready),
            delayed=self._highest(lambda each: each.delayed),
            in_flight=self._highest(lambda each: each.in_flight),
            consumers=self._highest(lambda each: each.consumers),
            late_seconds=max(each.late for each in self.states),
            incoming=self._rate(came),
            outgoing=self._rate(left),
            failed=self._rate(flows["failed"]),
            wait=_percentiles("wait", self.timed.wait),
            processing=_percentiles("processing", self.timed.processing),
        )

    def _highest(self, value: Callable[[Sample], int]) -> int:
        return max(value(each) for each in self.states)

    def _rate(self, messages: float) -> float | None:
        return None if self.seconds <= 0 else round(max(0.0, messages) / self.seconds, 3)


def _share(seen: _Observed, buckets: Sequence[_Bucket], ends: range) -> None:
    """Add what was seen to the steps within which it was, to each its share of the time."""
    sample, flow = seen.sample, seen.sample.flow
    own = _place(ends, seen.end)
    for bucket, share in _shares(ends, seen.start, seen.end, buckets):
        bucket.states.append(sample)
        bucket.seconds += share * seconds(seen.end - seen.start)
        bucket.flows["sent"] += flow.sent * share
        bucket.flows["left"] += flow.left * share
        bucket.flows["failed"] += flow.failed * share
    # A quiet queue is counted now and then only: the change that shows then may be older than the row before.
    for bucket, share in _shares(
        ends, min(seen.start, seen.end - microseconds(sample.over)), seen.end, buckets
    ):
        bucket.flows["net"] += sample.net * share
    if 0 <= own < len(buckets):
        buckets[own].states.append(sample)
        buckets[own].timed += Flow(wait=flow.wait, processing=flow.processing)


def _place(ends: range, moment: int) -> int:
    """Return the place of the step that a moment is in."""
    return -((ends[0] - moment) // ends.step)


def _shares(ends: range, start: int, end: int, buckets: Sequence[_Bucket]) -> Iterator[tuple[_Bucket, float]]:
    """Yield the steps that a time is in, each with its share of it."""
    for place in range(max(0, _place(ends, start)), min(_place(ends, end), len(buckets) - 1) + 1):
        share = min(end, ends[place]) - max(start, ends[place] - ends.step)
        if share > 0:
            yield buckets[place], share / (end - start)


def _complete(buckets: Sequence[_Bucket]) -> tuple[bool, bool]:
    """Return whether the reports of sends, and those of acks and moves, explain how the depth has changed."""
    sent, left, net = (sum(each.flows[name] for each in buckets) for name in ("sent", "left", "net"))
    return sent >= _COMPLETE * (net + left), left >= _COMPLETE * (sent - net)


def _percentiles(kind: str, counts: Mapping[int, int]) -> Percentiles | None:
    if not counts:
        return None
    return Percentiles(_percentile(kind, counts, 0.5), _percentile(kind, counts, 0.95))


def _percentile(kind: str, counts: Mapping[int, int], share: float) -> float:
    """Return a percentile as if the durations were spread evenly within their bucket."""
    bounds, passed = BOUNDS[kind], 0.0
    wanted = share * sum(counts.values())
    for place in sorted(counts):
        if passed + counts[place] >= wanted:
            low = bounds[place - 1] if place else 0.0
            high = bounds[place] if place < len(bounds) else low
            return float(f"{low + (high - low) * (wanted - passed) / counts[place]:.3g}")
        passed += counts[place]
    return float(bounds[-1])
