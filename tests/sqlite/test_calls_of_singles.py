"""What a single message costs in Python, told by the functions that are called, those of C too.

The bounds are a twentieth above what was counted on Python 3.11: 82, 159, 101 and 117; and 5.7 for each of 250 that are
received and acked together.
"""

from __future__ import annotations

from collections.abc import Callable

import shardq
from shardq.testing.seam import claim_round
from tests.function_calls import function_calls


def test_a_send_calls_few_functions(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        assert _least(lambda: producer.send(b"one")) <= 86


def test_receiving_and_acking_one_calls_few_functions(queue: shardq.Queue) -> None:
    _send(queue, 20)
    with queue.consumer() as consumer:
        assert _least(lambda: consumer.receive(1).ack()) <= 167


def test_receiving_what_a_signal_tells_of_calls_few_functions(queue: shardq.Queue) -> None:
    calls = []
    with queue.producer() as producer, queue.consumer() as consumer:
        for _ in range(20):
            producer.send(b"one")
            calls.append(function_calls(lambda: claim_round(consumer, 10, news=[queue.name])))
    assert min(calls) <= 106


def test_a_pop_calls_few_functions(queue: shardq.Queue) -> None:
    _send(queue, 20)
    with queue.consumer() as consumer:
        assert _least(consumer.pop) <= 123


def test_what_is_received_and_acked_together_calls_few_functions_for_each(queue: shardq.Queue) -> None:
    _send(queue, 1000)
    with queue.consumer() as consumer:
        assert _least(lambda: consumer.receive(250).ack(), 4) <= 6 * 250


def test_bodies_that_are_bytes_are_not_encoded_and_decoded_one_by_one(queue: shardq.Queue) -> None:
    bodies = [b"%d" % number for number in range(500)]
    with queue.producer() as producer, queue.consumer() as consumer:
        assert _least(lambda: producer.send_many(bodies)) < len(bodies)
        batch = consumer.receive(500)
        assert function_calls(lambda: batch.bodies) < len(bodies)
        assert batch.bodies == bodies


def _send(queue: shardq.Queue, messages: int) -> None:
    with queue.producer() as producer:
        for number in range(messages):
            producer.send(b"%d" % number)


def _least(do: Callable[[], object], times: int = 20) -> int:
    """The calls that it takes where nothing has to be looked after besides."""
    return min(function_calls(do) for _ in range(times))
