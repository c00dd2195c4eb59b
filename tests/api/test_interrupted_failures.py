"""Whenever a call that fails is interrupted, it blocks nobody: not its thread, nor others of its client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import FaultKind, FaultPlan, FaultyStore, ManualClock

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # finalizers, too

PATIENCE = 60.0  # seconds until something counts as hanging
MOST = 400  # calls of functions that a call makes


METHODS = {"send": {"append"}, "ack": {"acknowledge", "settle"}}


def interrupted_at(step: int, call: Callable[[], object]) -> bool:
    """Make a call that fails, and interrupt it where it calls its ``step``-th function; False: it calls fewer."""
    left = step

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal left
        if event == "call":
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        call()
    except (KeyboardInterrupt, shardq.ShardqError):
        pass
    finally:
        sys.setprofile(None)
    return left <= 0


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_RESPONSE])
@pytest.mark.parametrize("verb", ["send", "ack"])
def test_others_go_on_wherever_a_call_is_interrupted_that_fails(
    url: str, clock: ManualClock, verb: str, kind: FaultKind
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    client = shardq.Client(store, retry_seconds=0)
    queue = client.create_queue("q", shards=1, time_shards=1)
    producer, consumer = queue.producer(), queue.consumer()
    with ThreadPoolExecutor(1) as threads:
        for step in range(1, MOST):
            producer.send(b"held")
            batch = consumer.receive(1)
            call = partial(producer.send, b"fails") if verb == "send" else batch.ack
            store.plan = FaultPlan(probability=1.0, kinds=(kind,), methods=frozenset(METHODS[verb]))
            interrupted = interrupted_at(step, call)
            store.plan = FaultPlan()
            threads.submit(producer.send, b"next").result(PATIENCE)
            threads.submit(queue.ack, [batch[0].receipt]).result(PATIENCE)
            queue.purge()
            if not interrupted:
                assert step > 10 and any(each.fault for each in store.calls)
                return
    pytest.fail("the call has no end")


def test_others_write_wherever_a_send_is_interrupted_that_is_refused(url: str, clock: ManualClock) -> None:
    client, other = (shardq.connect(url, clock=clock, retry_seconds=0) for _ in range(2))
    producer = client.create_queue("kept").producer()
    for step in range(1, MOST):
        name = f"gone-{step}"
        refused = client.create_queue(name).producer()
        other.delete_queue(name)
        interrupted = interrupted_at(step, partial(refused.send, b"x"))
        producer.send(b"next")
        if not interrupted:
            assert step > 10
            return
    pytest.fail("the call has no end")
