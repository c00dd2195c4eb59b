"""A message that cannot be stored is refused with a clear error, and nothing of it is stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

import shardq
from shardq.storage.bundles import decode_bundle


class Nowhere(tzinfo):
    """A time zone that does not tell how far it is from UTC."""

    def utcoffset(self, moment: datetime | None) -> None: ...
    def dst(self, moment: datetime | None) -> None: ...
    def tzname(self, moment: datetime | None) -> str:
        return "nowhere"


HUGE = pytest.param(10**5000, id="huge")  # more digits than Python writes


class Untold:
    def __repr__(self) -> str:
        raise ValueError("has no text")


@pytest.mark.parametrize("body", ["text", None, 5, ["x"], {"a": 1}, HUGE, Untold()])
def test_a_body_that_is_not_bytes_needs_a_codec(queue: shardq.Queue, body: object) -> None:
    with queue.producer() as producer, pytest.raises(shardq.InvalidMessage, match="codec"):
        producer.send(body)
    assert queue.peek() == []


@pytest.mark.parametrize(
    "body", [object(), {1, object()}, float, 2**70, HUGE, "\ud800", memoryview(b"abcd")[::2], Untold()]
)
def test_a_value_that_the_codec_cannot_write_is_refused(queue: shardq.Queue, body: object) -> None:
    with queue.producer(codec=shardq.MSGPACK) as producer, pytest.raises(shardq.InvalidMessage):
        producer.send(body)
    with queue.producer(codec=shardq.TEXT) as producer, pytest.raises(shardq.InvalidMessage):
        producer.send(body)
    assert queue.peek() == []


@pytest.mark.parametrize(
    "options",
    [
        {"priority": -1},
        {"priority": 10},
        {"priority": 1.0},
        {"priority": True},
        {"priority": None},
        {"delay": -1},
        {"delay": math.nan},
        {"delay": math.inf},
        {"delay": 1e12},
        {"delay": 10**400},
        {"delay": 10**5000},
        {"delay": "5"},
        {"delay": True},
        {"ttl": -(10**5000)},
        {"priority": 10**5000},
        {"group": 10**5000},
        {"due": "tomorrow"},
        {"due": datetime(2030, 1, 1, tzinfo=Nowhere())},
        {"due": datetime(2030, 1, 1)},
        {"due": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
        {"due": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5},
        {"headers": ["a"]},
        {"headers": {"a": None}},
        {"headers": {"a": [1]}},
        {"headers": {1: "a"}},
        {"headers": {"": "a"}},
        {"headers": {"x" * 201: "a"}},
        {"headers": {"a": 2**64}},
        {"headers": {"a": 10**5000}},
        {"headers": {"a": "\ud800"}},
        {"headers": {"\ud800": "a"}},
        {"headers": {str(number): 1 for number in range(101)}},
        {"dedupe_key": ""},
        {"dedupe_key": "x" * 201},
        {"dedupe_key": 5},
        {"dedupe_key": "shardq-move:orders:0:0"},
        {"dedupe_key": "\ud800"},
    ],
)
def test_an_option_that_cannot_be_stored_is_refused_by_name(
    queue: shardq.Queue, options: dict[str, object]
) -> None:
    name = next(iter(options)).split("_")[0].rstrip("s")
    with queue.producer() as producer, pytest.raises(shardq.InvalidMessage, match=name):
        producer.send(b"x", **options)  # type: ignore[arg-type]
    assert queue.peek() == []


@pytest.mark.parametrize("attempt", [b"x", HUGE, {"bundle": None}])
def test_an_attempt_that_no_send_has_made_is_refused(queue: shardq.Queue, attempt: Any) -> None:
    producer = queue.producer()
    message = shardq.OutgoingMessage(body=b"x", id=producer.send(b"y"), attempt=attempt)
    with pytest.raises(shardq.InvalidMessage, match="attempt="):
        producer.send(message)
    assert len(queue.peek()) == 1


def test_what_cannot_be_written_or_is_long_is_named_in_short(client: shardq.Client) -> None:
    queue = client.create_queue("letters")
    for refused in (10**5000, Untold(), ["x"] * 100_000):
        for call in (
            lambda given=refused: client.create_queue(given),
            lambda given=refused: queue.get(given),
            lambda given=refused: queue.ack([given]),
            lambda given=refused: queue.peek(given),
            lambda given=refused: queue.alter(retention=given),
            lambda given=refused: queue.producer().send(given),
            lambda given=refused: queue.producer().send_many(given),
            lambda given=refused: client.queues(given),
            lambda given=refused: queue.producer().send(b"x", unique_key=given),
            lambda given=refused: shardq.DeadLetter(given),
            lambda given=refused: list(queue.history(since=given)),
        ):
            with pytest.raises(shardq.ShardqError) as caught:
                call()
            assert len(str(caught.value)) < 500


def test_a_message_above_the_limit_is_refused_headers_included(client: shardq.Client) -> None:
    queue = client.create_queue("small", max_message_bytes=100)
    with queue.producer() as producer:
        producer.send(b"x" * 100)
        with pytest.raises(shardq.MessageTooLarge, match=r"101 bytes.*'small'.*100"):
            producer.send(b"x" * 101)
        with pytest.raises(shardq.MessageTooLarge):
            producer.send(b"x" * 90, headers={"abc": "12345678"})
    assert queue.counts().ready == 1


def test_a_bad_message_in_a_bulk_send_stops_it_and_everything_before_its_bundle_is_stored(
    queue: shardq.Queue,
) -> None:
    with queue.producer(bundle_messages=2) as producer:
        with pytest.raises(shardq.InvalidMessage):
            producer.send_many([b"1", "two", b"3"])
        assert queue.peek() == []
        with pytest.raises(shardq.PartialSend) as caught:
            producer.send_many([b"1", b"2", b"3", "four", b"5"])
    assert len(caught.value.stored) == 2
    assert [message.body for message in caught.value.unsent] == [b"3", "four", b"5"]
    assert queue.counts().ready == 2


def test_an_empty_body_is_a_message_and_an_empty_bulk_send_is_none(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        assert len(producer.send_many([])) == 0
        producer.send(b"")
    assert [message.body for message in queue.consumer().receive(5)] == [b""]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"linger": -1}, "linger"),
        ({"linger": "1"}, "linger"),
        ({"bundle_messages": 0}, "bundle_messages"),
        ({"bundle_bytes": 0.5}, "bundle_bytes"),
    ],
)
def test_a_producers_option_out_of_range_is_refused(
    queue: shardq.Queue, options: dict[str, object], name: str
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=name):
        queue.producer(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["", "queue.db", "sqlite:", "sqlite://queue.db", "sqlite://", "oracle://x", None, 5]
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(shardq.InvalidSetting):
        shardq.connect(url)


@pytest.mark.parametrize("query", ["synchronous=off", "busy_timeout=x", "busy_timeout=-1", "timeout=5"])
def test_an_option_of_a_url_that_is_not_known_is_refused(url: str, query: str) -> None:
    with pytest.raises(shardq.InvalidSetting):
        shardq.connect(f"{url}?{query}")


@pytest.mark.parametrize("bodies", [b"one", "one", bytearray(b"one"), memoryview(b"one"), {"a": 1}, None, 5])
def test_one_body_in_place_of_many_is_refused_rather_than_sent_in_parts(
    queue: shardq.Queue, bodies: object
) -> None:
    with queue.producer(codec=shardq.JSON) as producer, pytest.raises(shardq.InvalidMessage, match="`send`"):
        producer.send_many(bodies)  # type: ignore[arg-type]
    assert queue.peek() == []


@pytest.mark.parametrize("settle", ["ack", "release", "extend"])
def test_one_receipt_in_place_of_many_is_refused_with_the_remedy(queue: shardq.Queue, settle: str) -> None:
    queue.producer().send(b"x")
    (message,) = queue.consumer().receive(1)
    arguments = (5.0,) if settle == "extend" else ()
    with pytest.raises(shardq.InvalidReceipt, match="give a list"):
        getattr(queue, settle)(message.receipt, *arguments)
    message.ack()


@pytest.mark.parametrize(
    "refused", ["text", b"x" * 2_000_000, shardq.OutgoingMessage(body=b"x", priority=11)]
)
def test_a_bulk_send_says_which_of_its_bodies_was_refused(queue: shardq.Queue, refused: object) -> None:
    bodies = [b"x"] * 700 + [refused] + [b"x"] * 700
    with pytest.raises(shardq.PartialSend, match=r"bodies\[700\]") as caught:
        queue.producer().send_many(bodies)
    assert isinstance(caught.value.__cause__, shardq.InvalidMessage)
    assert caught.value.__cause__.position == 700
    with pytest.raises(shardq.InvalidMessage, match=r"bodies\[150\]"):
        queue.producer().send_many(bodies[550:])


def test_a_bulk_send_that_was_refused_does_not_advise_to_repeat_it_as_it_is(queue: shardq.Queue) -> None:
    with pytest.raises(shardq.PartialSend, match="take the refused message out"):
        queue.producer().send_many(body for body in [b"x", "text", b"y"])


UNREADABLE: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "text": (shardq.TEXT.decode, b"\xe9"),
    "json": (shardq.JSON.decode, b'{"a": "\xe9"}'),
    "json key": (shardq.JSON.decode, b'{"\xe9": 1}'),
    "msgpack": (shardq.MSGPACK.decode, b"\xa1\xe9"),
    "bundle": (decode_bundle, b"\x92\x90\x91\x81\xa1\xe9\x01"),
    "nested json": (shardq.JSON.decode, b"[" * 100_000),
    "nested msgpack": (shardq.MSGPACK.decode, b"\x91" * 100_000),
    "nested bundle": (decode_bundle, b"\x92\x90\x91\x81\xa1a" + b"\x91" * 100_000),
}


@pytest.mark.parametrize(("decode", "body"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_cannot_be_read_is_told_as_that_whatever_its_decoder_raises(
    decode: Callable[[bytes], object], body: bytes
) -> None:
    with pytest.raises(shardq.InvalidMessage):
        decode(body)
