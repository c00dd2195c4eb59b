"""The throttle of a task, by a clock that stands still until somebody sleeps."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from shardq.spark import sending
from shardq.spark.columns import Columns
from shardq.spark.options import SendOptions
from shardq.spark.sending import Throttle
from shardq.testing.seam import context_of, store_of

RATE = 1_000.0


class Clock:
    """Seconds that pass by sleeping only."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.fixture
def seconds() -> Clock:
    return Clock()


def test_rows_pass_at_the_rate_however_many_come_at_once(seconds) -> None:
    throttle = Throttle(RATE, timer=seconds, sleep=seconds.sleep)
    passed = 0
    for rows in (1, 500, 2_000, 1, 1, 3_000, 497):
        throttle.pass_through(rows)
        assert passed <= (seconds.now - 100.0) * RATE + 1e-6
        passed += rows
    assert seconds.now == pytest.approx(100.0 + (passed - 497) / RATE)


def test_a_pause_is_not_made_up_for(seconds) -> None:
    throttle = Throttle(RATE, timer=seconds, sleep=seconds.sleep)
    throttle.pass_through(1_000)
    seconds.now += 3_600
    throttle.pass_through(1_000)
    throttle.pass_through(1)
    assert seconds.now == 100.0 + 3_600 + 1.0


def test_without_a_rate_nobody_waits(seconds) -> None:
    Throttle(None, timer=seconds, sleep=seconds.sleep).pass_through(10**9)
    assert seconds.now == 100.0


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_task_sends_no_more_rows_than_its_rate_allows(seconds, url, queue, monkeypatch, in_flight) -> None:
    monkeypatch.setattr(sending, "Throttle", partial(Throttle, timer=seconds, sleep=seconds.sleep))
    store, sent = store_of(queue), []
    options = SendOptions(
        url=url, queue=queue.name, throughput_rows_per_sec=RATE, concurrent_writes=in_flight
    )
    monkeypatch.setattr(sending, "task_context", lambda _: nullcontext(context_of(queue)))
    append = store.append

    def note(request) -> None:
        sent.append((seconds.now, sum(bundle.count for bundle in request.bundles)))
        append(request)

    monkeypatch.setattr(store, "append", note)
    columns = Columns.of(StructType().add("body", StringType()), options)
    bodies = pa.RecordBatch.from_pydict({"body": [f"{number:0512}" for number in range(40_000)]})
    assert sending.send_partition([bodies], columns, options, "run") == (40_000, 40_000)
    assert queue.counts().ready == 40_000
    assert len(sent) > 10
    largest = max(rows for _, rows in sent)
    assert largest <= 4_000
    assert seconds.now - 100.0 >= (40_000 - largest) / RATE
    if in_flight == 1:  # else a thread may note its request after another one has slept
        for place, (moment, _) in enumerate(sent):
            assert sum(rows for _, rows in sent[:place]) <= (moment - 100.0) * RATE + 1e-6
    # When it is sent again, nothing is, so nothing waits
    before = seconds.now
    assert sending.send_partition([bodies], columns, options, "run") == (40_000, 0)
    assert seconds.now == before
