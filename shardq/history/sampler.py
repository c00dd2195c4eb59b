"""Taking samples: every process reports what its clients did, and one of them counts the queues and stores rows.

A report is a message of a queue of shardq's own, which the sampler receives. Reports are acked when they are received:
a crash, or a sampler that stood still, may lose them, and none is counted twice.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from shardq.base.clock import from_datetime, microseconds, rest_after, seconds
from shardq.base.closing import Closing
from shardq.base.log import Log
from shardq.base.waits import BackgroundThread
from shardq.client import Client
from shardq.client.consumer import Consumer
from shardq.client.queue import Queue
from shardq.core.settings import ONE_SHARD, check_number
from shardq.errors import OutcomeUnknown, PartialSend, QueueNotFound, ShardqError
from shardq.history.archive import COARSE, FINE, FOLDER, Archive
from shardq.history.sampler_lease import LONGEST_SECONDS, SamplerLease
from shardq.history.samples import (
    TOTAL,
    Flow,
    Row,
    Sample,
    flows_of,
    joined,
    peaks_of,
    total_of,
)
from shardq.metrics.measures import Measures
from shardq.metrics.queues import INTERVAL_SECONDS, SHARE_OF_TIME, counted
from shardq.topics.names import worked_queues

__all__ = ["INTERVAL_SECONDS", "Sampler"]

_log = Log(__name__)

COARSE_SECONDS = 300
AFTER_REPORTS_SECONDS = 2.0  # the sampler waits for reports that are on their way
IDLE_SECONDS = 60.0  # between two samples of a store in which nothing changes, at the most
QUIET_SECONDS = 120.0  # between two counts of a queue that did not change and that no report names
STANDBY_SECONDS = 30.0  # between two tries to become the sampler
LEASE_SECONDS = 30.0  # after which another process takes the lease of one that did not renew it
_KEPT_SECONDS = 60.0  # for which the sampler renews its lease while it counts
GAP_SECONDS = 180.0  # the first row of a sampler covers the time since the last row, if that is no longer ago
REPORT_TTL_SECONDS = 300.0
_REPORTS_AT_ONCE = 1_000
_END_SECONDS = 3.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Flow]).decode


class Counted(msgspec.Struct, frozen=True):
    """The last count of a queue: when it was made, by the timer, and whether the queue had changed by then."""

    sample: Sample
    at: float
    changed: bool


class Sampler(Closing):
    """Keeps the history of the queues of a store, together with the samplers of other processes.

    One of them at a time counts the queues, every 15 seconds while something changes in the store, and every minute
    at the most while nothing does. All report what ``measures`` returns, such as that of a
    :class:`shardq.metrics.Metrics` or a :class:`shardq.worker.WorkerPool`. Nothing is stored in the first half of an
    interval, or while the store has no queues. Errors of the store are logged, and it tries again.

    ``prefix`` limits it to some queues, whose history is read from a separate ``folder``, such as ``_shardq/shop/``. It
    sends and receives by its client, so give it one without hooks, and close it before that. Raises InvalidSetting.
    """

    def __init__(
        self,
        client: Client,
        *,
        measures: Callable[[], Measures] | None = None,
        prefix: str = "",
        interval: float = INTERVAL_SECONDS,
        folder: str = FOLDER,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        check_number("interval", interval, 1.0, IDLE_SECONDS)
        self._client, self._measures, self._prefix, self._timer = client, measures, prefix, timer
        self._interval, self._folder, self._pause = interval, folder, interval
        self._archive = Archive(client, folder)
        self._reported = Measures() if measures is None else measures()
        self._lease = SamplerLease(client, folder, LEASE_SECONDS)
        self._consumer: Consumer | None = None
        self._tried_at = -1e9
        self._known: dict[str, Counted] = {}
        self._stored: dict[str, Sample] = {}  # with the last row
        self._taken: dict[str, Flow] = {}  # reports that are in no row yet
        self._row_at: float | None = None  # of the last row, by the timer
        self._coarse_at: int | None = None  # of the last coarse row
        self._is_unsure = False  # whether the last row is stored
        self._begun = False
        self._ended = threading.Event()
        self._thread = BackgroundThread("shardq-history")

    def start(self) -> None:
        """Keep the history in the background until :meth:`close`. Again, while it does, it changes nothing."""
        self._thread.run(self._run)

    def close(self) -> None:
        """End the sampling. Waits for a request that is under way, 3 seconds at most."""
        self._ended.set()
        if self._thread.has_ended:
            self._end()
        else:
            self._thread.join(_END_SECONDS)

    @property
    def is_sampler(self) -> bool:
        """Return whether this is the one that counts the queues."""
        return self._lease.is_held

    def step(self) -> float:
        """Report, and sample if no other does; return after how many seconds to do it again.

        Raises an error of the store. The next step reports everything that this one did not.
        """
        began = self._timer()
        self._begun, changed = True, self._report()
        led = self.is_sampler
        if not self._leads():
            return self._until(self._interval)
        if not led:  # reports are on their way that the next row would have beside those of its own time
            return AFTER_REPORTS_SECONDS
        changed = self._sample() or changed
        took = self._timer() - began
        self._pause = self._interval if changed else min(2 * self._pause, IDLE_SECONDS)
        pause = max(self._pause, min(rest_after(took, SHARE_OF_TIME), LONGEST_SECONDS))
        pause = self._until(pause) + AFTER_REPORTS_SECONDS
        self._lease.renew(pause)
        return pause

    def _until(self, pause: float) -> float:
        return _aligned(seconds(self._now()), pause, self._interval)

    def _run(self) -> None:
        pause, failing = _aligned(time.time(), self._interval, self._interval), False
        while not self._ended.wait(pause):
            try:
                pause, failing = self.step(), False
            except Exception as error:  # messages are sent and received all the same
                _log.log(
                    logging.DEBUG if failing or self._ended.is_set() else logging.WARNING,
                    "the history of queues is not sampled, trying again: %s: %s",
                    type(error).__name__,
                    error,
                )
                pause, failing = IDLE_SECONDS, True
        self._end()

    def _end(self) -> None:
        """Report the rest, if anything was reported before, and let another process sample."""
        with suppress(ShardqError):
            if self._begun:
                self._report()
        with suppress(ShardqError):
            self._drop_consumer()
        with suppress(ShardqError):
            self._lease.release()

    # -- reports ------------------------------------------------------------------------------------------------

    def _report(self) -> bool:
        """Send what the clients did since the last report; False when they did nothing."""
        if self._measures is None:
            return False
        now = self._measures()
        flows = {
            queue: flow
            for queue, flow in flows_of(now, self._reported).items()
            if queue.startswith(self._prefix)
        }
        if flows:
            with self._reports().producer() as producer, suppress(OutcomeUnknown):  # none is counted twice
                producer.send(zlib.compress(_encode(flows), 1), ttl=REPORT_TTL_SECONDS)
        self._reported = now
        return bool(flows)

    def _reports(self) -> Queue:
        name = f"{self._folder}reports"
        try:
            return self._client.queue(name)
        except QueueNotFound:
            return self._client.create_queue(name, exist_ok=True, **ONE_SHARD)

    def _take_reports(self) -> dict[str, Flow]:
        if self._consumer is None:
            self._consumer = self._reports().consumer(name="sampler")
        found: list[dict[str, Flow]] = []
        while bodies := self._consumer.pop_many(_REPORTS_AT_ONCE).bodies:
            for body in bodies:
                with suppress(zlib.error, msgspec.MsgspecError):  # of a later version
                    found.append(_decode(zlib.decompress(body)))
            if len(bodies) < _REPORTS_AT_ONCE:
                break
        return joined(found)

    # -- the sampler --------------------------------------------------------------------------------------------

    def _leads(self) -> bool:
        """Return whether this is the sampler, after a try to become it if the last one was a while ago."""
        if self._lease.renew(_KEPT_SECONDS):
            return True
        self._drop_consumer()
        if self._timer() < self._tried_at + STANDBY_SECONDS:
            return False
        self._tried_at = self._timer()
        # In a store that is not used nothing is created.
        if not self._client.queues(self._prefix) or not self._lease.acquire():
            return False
        self._take_over()
        return True

    def _take_over(self) -> None:
        """Begin where the sampler before has ended."""
        self._known, self._stored, self._taken, self._row_at = {}, {}, {}, None
        self._archive = Archive(self._client, self._folder)
        now, gap = self._now(), microseconds(GAP_SECONDS)
        rows = self._archive.rows(FINE, self._archive.start_of(FINE, now - gap), now)
        if rows and rows[-1].at >= now - gap:
            self._row_at = self._timer() - seconds(now - rows[-1].at)
            self._stored = {each.queue: each for row in rows for each in row.samples if each.queue != TOTAL}
        coarse = self._archive.rows(COARSE, now - microseconds(FINE.kept), now + 1, ())
        self._coarse_at = coarse[-1].at if coarse else None

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _sample(self) -> bool:
        """Count the queues, and store a row; False when nothing has changed."""
        reported = self._take_reports()
        if self._row_at is not None:  # else it is not known in what time that was
            self._taken = joined([self._taken, reported])
        names = worked_queues(self._client.queues, self._prefix)
        kept_at = self._timer()
        for name in filter(self._is_due, names):
            self._count(name)
            if self._timer() > kept_at + _KEPT_SECONDS / 2:
                kept_at = self._timer()
                if not self._lease.renew(_KEPT_SECONDS):  # another process samples by now
                    return False
        self._known = {name: self._known[name] for name in names if name in self._known}
        samples = [self._sampled(name) for name in sorted(self._stored.keys() | self._known.keys())]
        at, moment = self._now(), self._timer()
        is_whole = self._is_unsure or self._archive.begins(FINE, at)
        kept = [each for each in samples if is_whole or not each.is_still(self._stored.get(each.queue))]
        passed = 0.0 if self._row_at is None else max(0.0, moment - self._row_at)
        row = Row(at, round(passed, 3), [total_of(samples), *kept])
        try:
            self._archive.append(FINE, row, queues=len(samples))
            self._is_unsure = False
        except (OutcomeUnknown, PartialSend):  # it may be stored, and no flow is counted twice
            self._is_unsure = True
        self._taken, self._row_at = {}, moment
        self._stored = {name: known.sample for name, known in self._known.items()}
        self._store_coarse(at, [each.quiet for each in samples])
        return any(each.net or each.flow != Flow() for each in samples)

    def _is_due(self, name: str) -> bool:
        known = self._known.get(name)
        return (
            known is None
            or known.changed
            or name in self._taken
            or not self._timer() < known.at + QUIET_SECONDS
        )

    def _count(self, name: str) -> None:
        known = self._known.get(name)
        if (state := counted(self._client, name)) is None:
            self._known.pop(name, None)
            return
        counts, late, now = state.counts, round(state.late_seconds, 1), self._timer()
        over = 0.0 if known is None else round(now - known.at, 3)
        sample = Sample(
            name, counts.ready, counts.delayed, counts.in_flight, state.consumers, late, over=over
        )
        changed = known is not None and known.sample.numbers != sample.numbers
        self._known[name] = Counted(sample, now, changed)

    def _sampled(self, name: str) -> Sample:
        """Return the sample of a queue with its flow; one that is gone is empty from now on."""
        known = self._known.get(name)
        sample = Sample(name) if known is None else known.sample
        return sample.after(self._stored.get(name), self._taken.get(name, Flow()))

    def _store_coarse(self, at: int, samples: Sequence[Sample]) -> None:
        """Store the coarse rows of the periods that have ended, made of the fine rows in the store."""
        period = microseconds(COARSE_SECONDS)
        last = at // period * period
        if self._coarse_at is None or self._coarse_at > at:  # or the clock was put back
            self._coarse_at = last - period
        known = {each.queue: each for each in samples}
        for end in range(max(self._coarse_at, last - microseconds(FINE.kept)) + period, last + 1, period):
            rows = self._archive.rows(FINE, end - period + 1, end + 1)
            if rows:
                passed = min(COARSE_SECONDS, sum(row.seconds for row in rows))
                peaks = peaks_of(rows, known)
                row = Row(end, round(passed, 3), list(peaks.values()))
                self._archive.append(COARSE, row, queues=len(samples))
            self._coarse_at = end

    def _now(self) -> int:
        return from_datetime(self._client.now())


def _aligned(now: float, pause: float, interval: float) -> float:
    """Return the seconds until a multiple of the interval, about ``pause`` from now.

    All processes report at these moments, so that each row has one report of each.
    """
    return max(interval / 2, round((now + pause) / interval) * interval - now)
