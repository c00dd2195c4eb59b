"""A bulk send of anything, from anything: whatever stops it, every message is accounted for, in its order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardq
from shardq.storage.opening import open_store
from shardq.storage.store import Capabilities
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock

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
            assert unsent == [body(items[position]) for position in error.positions]
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


class SeveralAtOnce(FaultyStore):
    """Takes four requests at a time."""

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, requests_at_once=4)


def test_what_is_returned_is_in_order_though_several_requests_were_on_their_way(
    url: str, clock: ManualClock
) -> None:
    # Given a store that takes one bundle, and refuses all others
    faults = tuple(Fault("append", number, FaultKind.UNAVAILABLE) for number in range(2, 50))
    with shardq.Client(
        SeveralAtOnce(open_store(url, clock), FaultPlan(faults=faults)), retry_seconds=0
    ) as client:
        queue = client.create_queue("q", shards=8)
        bodies = [b"%d" % number for number in range(40)]
        # When more bundles are sent than are on their way at a time
        with queue.producer(bundle_messages=2) as producer, pytest.raises(shardq.PartialSend) as caught:
            producer.send_many(bodies)
        # Then all but those of the first are returned, in their order and with their places
        stored = {message.body for message in queue.peek(50)}
        left = [place for place, body in enumerate(bodies) if body not in stored]
        assert (len(stored), caught.value.positions) == (2, left)
        assert [message.body for message in caught.value.unsent] == [bodies[place] for place in left]
