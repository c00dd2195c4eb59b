"""A bulk send of anything, from anything: whatever stops it, every message is accounted for, in its order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardq

SMALL, LARGE, TOO_LARGE = 5, 60, 101
good = st.builds(lambda size: os.urandom(4).hex().encode()[:size] * 12, st.sampled_from([SMALL, LARGE // 12]))
items = st.lists(
    good
    | st.builds(
        lambda body, priority: shardq.OutgoingMessage(body=body, priority=priority), good, st.integers(0, 9)
    )
    | st.just("no bytes")
    | st.just(b"x" * TOO_LARGE),
    max_size=40,
)


class SourceFailed(Exception):
    """Of a generator."""


def body(item: Any) -> Any:
    return item.body if isinstance(item, shardq.OutgoingMessage) else item


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=items, as_generator=st.booleans(), fails=st.booleans(), messages=st.integers(1, 12))
def test_every_message_is_stored_or_returned_or_still_in_the_source(
    client: shardq.Client, items: list[Any], as_generator: bool, fails: bool, messages: int
) -> None:
    queue = client.create_queue(f"q{os.urandom(6).hex()}", max_message_bytes=100, shards=1, time_shards=1)
    left: list[Any] = list(items)

    def source() -> Iterator[Any]:
        while left:
            yield left.pop(0)
        if fails:
            raise SourceFailed

    unsent: list[Any] = []
    with queue.producer(bundle_messages=messages, bundle_bytes=200) as producer:
        try:
            producer.send_many(source() if as_generator else items)
        except shardq.PartialSend as error:
            unsent = [message.body for message in error.unsent]
        except (shardq.InvalidMessage, shardq.MessageTooLarge):
            unsent = [body(item) for item in items]
            assert not as_generator
    stored = [message.body for message in queue.peek(100)]
    behind = [body(item) for item in left] if as_generator else []
    assert sorted(map(repr, [*stored, *unsent, *behind])) == sorted(repr(body(item)) for item in items)
    assert [*unsent, *behind] == [body(item) for item in items][len(stored) :]


def test_what_a_generator_gave_before_it_failed_is_returned(queue: shardq.Queue) -> None:
    def source() -> Iterator[bytes]:
        yield from (b"1", b"2", b"3")
        raise SourceFailed

    with queue.producer(bundle_messages=2) as producer, pytest.raises(shardq.PartialSend) as caught:
        producer.send_many(source())
    assert isinstance(caught.value.__cause__, SourceFailed)
    assert len(caught.value.stored) + len(caught.value.unsent) == 3
