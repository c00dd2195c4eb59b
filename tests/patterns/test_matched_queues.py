"""Which queues of a store a pattern stands for."""

from __future__ import annotations

from collections.abc import Callable

import shardq


def test_no_pattern_matches_queues_for_dead_letters_or_those_that_shardq_makes(
    connect_any: Callable[[], shardq.Client], name: str
) -> None:
    client = connect_any()
    client.create_queue(f"{name}/plain")
    client.create_queue(f"{name}/other", dead_letter_queue=f"{name}/failed")
    client.create_queue(f"{name}-beside", dead_letter_queue=f"{name}/theirs")
    client.create_queue(f"{name}/gone")
    client.delete_queue(f"{name}/gone")  # its dead-letter queue stays
    client.semaphore(f"{name}/door", permits=1)
    assert client.pattern(f"{name}/**").names() == (f"{name}/other", f"{name}/plain")
    assert f"{name}/gone.dead" in client.queues(name)


def test_a_queue_that_receives_dead_letters_from_now_on_is_matched_no_longer(
    connect_any: Callable[[], shardq.Client], name: str
) -> None:
    client = connect_any()
    orders = client.create_queue(f"{name}/orders")
    client.create_queue(f"{name}/spare", max_deliveries=None)
    pattern = client.pattern(f"{name}/*")
    assert pattern.names() == (f"{name}/orders", f"{name}/spare")
    orders.alter(dead_letter_queue=f"{name}/spare")
    assert pattern.names() == (f"{name}/orders",)
