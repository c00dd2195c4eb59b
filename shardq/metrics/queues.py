"""The state of all queues of a store, sampled in the background, for Prometheus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from shardq.base.clock import rest_after
from shardq.base.closing import Closing
from shardq.base.log import Log
from shardq.base.shard import DEAD_LETTER_SUFFIX
from shardq.base.texts import masked
from shardq.base.waits import BackgroundThread
from shardq.client import Client
from shardq.client.queue_internals import QueueState, count_queue
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting, QueueNotFound, ShardqError
from shardq.schedules import Schedule
from shardq.topics.names import is_of_subscription, topic_in, worked_queues

__all__ = ["INTERVAL_SECONDS", "SHARE_OF_TIME", "QueueMetrics", "counted"]

T = TypeVar("T")

_log = Log(__name__)

INTERVAL_SECONDS = 15.0
KEPT_SECONDS = 300.0  # for which the last sample of a queue is shown while no other can be taken
SHARE_OF_TIME = 0.05  # that sampling takes at most
LATE_SECONDS = 60.0  # after the moment of an occurrence: consumers check their schedules now and then
QUICK_SECONDS = 1.0  # a request that takes longer may have been repeated
_STATES = ("ready", "delayed", "in_flight", "processed")


class Sample(msgspec.Struct, frozen=True):
    """A queue at a moment of ``time.monotonic()``."""

    at: float
    state: QueueState

    @property
    def age(self) -> float:
        """Return the seconds since the oldest message that is not processed was sent."""
        oldest = self.state.counts.oldest
        return 0.0 if oldest is None else max(0.0, (self.state.at - oldest).total_seconds())


class Schedules(msgspec.Struct, frozen=True):
    """The schedules of a queue."""

    number: int = 0
    late: int = 0
    seconds: float = 0.0  # of the one that is latest


_OF_QUEUES: Sequence[tuple[str, str, Callable[[Sample], float]]] = (
    (
        "queue_late_seconds",
        "For how long the first message that is due has been due.",
        lambda each: each.state.late_seconds,
    ),
    (
        "queue_oldest_message_age_seconds",
        "How long ago the oldest message that is not processed was sent.",
        lambda each: each.age,
    ),
    ("consumers", "Live consumers.", lambda each: each.state.consumers),
    ("shards_in_use", "Shards that have messages.", lambda each: each.state.shards),
)
_OF_SCHEDULES: Sequence[tuple[str, str, Callable[[Schedules], float]]] = (
    ("schedules", "Schedules.", lambda each: each.number),
    ("schedules_late", "Schedules whose next occurrence should have taken place.", lambda each: each.late),
    (
        "schedule_late_seconds",
        "For how long the latest of them should have taken place.",
        lambda each: each.seconds,
    ),
)


class QueueMetrics(Closing):
    """Samples every queue of a store in the background, and shows the last samples as gauges.

    It is a collector of ``prometheus_client``. A scrape asks the store nothing. A sample counts the entries of a queue,
    so samples are ``interval`` seconds apart, and longer where they take long: a twentieth of the time at most. While
    the store is unreachable the last samples are shown for five minutes. One such process is enough for a store.
    """

    def __init__(
        self,
        client: Client,
        *,
        interval: float = INTERVAL_SECONDS,
        prefix: str = "",
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        check_number("interval", interval, 1.0, 3_600.0)
        self._client, self._interval, self._prefix, self._timer = client, interval, prefix, timer
        self._samples: dict[str, Sample] = {}
        self._schedules: dict[str, Schedules] = {}
        self._schedules_at = timer()
        self._answered, self._retries, self._up = 0.0, 0, False
        self.pause = interval
        """Seconds until the next sampling."""
        self._ended = threading.Event()
        self._thread = BackgroundThread("shardq-queue-metrics")

    def start(self) -> None:
        """Sample in the background from now on, until :meth:`close`. Again, while it does, it changes nothing."""
        self._thread.run(self._run)

    def close(self) -> None:
        """End the sampling. Does not wait for a request that is under way."""
        self._ended.set()

    @property
    def runs(self) -> bool:
        """Return whether it samples in the background."""
        return not self._thread.has_ended

    def sample(self) -> None:
        """Sample all queues once. Raises an error of the store; the samples before it stay."""
        self._answered, self._retries, up = 0.0, self._client.counters.retries, False
        try:
            names = self._ask(partial(worked_queues, self._client.queues, self._prefix, logs=True))
            for name in self._samples.keys() - set(names):
                del self._samples[name]
            for name in names:
                if self._ended.is_set():
                    break
                self._ask(partial(self._sample, name))
            self._ask(self._read_schedules)
            up = bool(names) or not self._lacks_file()
        finally:
            self._up = up
            self.pause = max(self._interval, rest_after(self._answered, SHARE_OF_TIME))

    def _ask(self, request: Callable[[], T]) -> T:
        """Return the answer of the store, and add up the time that answers take.

        Requests that fail, or are repeated while the store is unreachable, are no load: their time is left out, or the
        sampling would rest for minutes after an outage.
        """
        began = self._timer()
        answer = request()
        took = self._timer() - began
        if took > QUICK_SECONDS:  # the counters of all queues are added up, so not for each request
            before, self._retries = self._retries, self._client.counters.retries
            took = took if self._retries == before else 0.0
        self._answered += took
        return answer

    def collect(self) -> Iterator[Any]:
        """Yield the gauges."""
        from shardq.metrics.families import gauge, info  # noqa: PLC0415 - needs prometheus_client

        now = self._timer()
        kept = now - max(KEPT_SECONDS, 3 * self.pause)
        samples = {name: each for name, each in list(self._samples.items()) if each.at >= kept}
        schedules = self._schedules if self._schedules_at >= kept else {}
        yield info()
        yield gauge(
            "store_up", "1 when the last sampling reached a store that exists.", (), {(): float(self._up)}
        )
        yield gauge("queue_messages", "Messages by state.", ("queue", "state"), {
            (name, state): getattr(each.state.counts, state) for name, each in samples.items() for state in _STATES
        })  # fmt: skip
        for metric, text, value in _OF_QUEUES:
            yield gauge(metric, text, ("queue",), {(name,): value(each) for name, each in samples.items()})
        yield gauge("queue_sample_age_seconds", "How old the sample is.", ("queue",), {
            (name,): now - each.at for name, each in samples.items()
        })  # fmt: skip
        yield gauge(
            "topic_lag_seconds",
            "For how long the first published message that is not relayed has waited.",
            ("topic",),
            {
                (topic,): each.state.late_seconds
                for name, each in samples.items()
                if (topic := topic_in(name)) is not None
            },
        )
        yield gauge(
            "subscription_lag_messages",
            "Messages of a subscription that are not acked yet.",
            ("topic", "subscription"),
            {
                tuple(name.split("/")[2:4]): each.state.counts.backlog
                for name, each in samples.items()
                if _is_main(name)
            },
        )
        for metric, text, number in _OF_SCHEDULES:
            yield gauge(metric, text, ("queue",), {(name,): number(each) for name, each in schedules.items()})

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.sample()
            except ShardqError as error:
                _log.warning("queues were not sampled, trying again: %s", masked(str(error)))
            self._ended.wait(self.pause)

    def _lacks_file(self) -> bool:
        return any(each.name == "file" and not each.ok for each in self._client.diagnose())

    def _sample(self, name: str) -> None:
        if (state := counted(self._client, name)) is None:
            self._samples.pop(name, None)
        else:
            self._samples[name] = Sample(self._timer(), state)

    def _read_schedules(self) -> None:
        found: dict[str, Schedules] = {}
        now = self._client.now()
        for schedule in self._client.schedules.list():
            if not schedule.queue.startswith(self._prefix):
                continue
            before, late = found.get(schedule.queue, Schedules()), _late(schedule, now)
            found[schedule.queue] = Schedules(
                before.number + 1, before.late + (late > LATE_SECONDS), max(before.seconds, late)
            )
        self._schedules, self._schedules_at = found, self._timer()


def counted(client: Client, name: str) -> QueueState | None:
    """Return the state of a queue; None if it was deleted since it was listed, or its settings cannot be read.

    Such settings are of a later version, or damaged. They do not keep other queues from being counted.
    """
    try:
        return count_queue(client.queue(name))
    except QueueNotFound:
        return None
    except InvalidSetting as error:
        _log.warning("queue %s is not counted: %s", name, error)
        return None


def _is_main(name: str) -> bool:
    """Return True for the queue of a subscription, and not for that of its dead letters."""
    return is_of_subscription(name) and not name.endswith(DEAD_LETTER_SUFFIX)


def _late(schedule: Schedule, now: datetime) -> float:
    if schedule.paused or schedule.next is None:
        return 0.0
    return max(0.0, (now - schedule.next).total_seconds())
