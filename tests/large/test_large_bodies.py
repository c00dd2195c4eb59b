"""Bodies of any size: sent from a file or a stream, read as a file, and moved with their messages."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.testing import ManualClock
from shardq.testing.seam import context_of
from tests.large.conftest import CONTENT, PART, stored_bodies

HOURS = 3 * 3_600


def only(queue: shardq.Queue) -> shardq.Message:
    """Receive the only message of a queue."""
    (message,) = queue.consumer().receive(10)
    return message


def read(message: shardq.Message) -> bytes:
    with message.open() as body:
        return body.read()


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 1_234])
def test_what_is_sent_as_a_stream_is_read_as_a_file(queue: shardq.Queue, size: int) -> None:
    content = (CONTENT * 6)[:size]
    identity = queue.producer(codec=shardq.JSON).send_stream(
        io.BytesIO(content), headers={"kind": "film"}, priority=2
    )
    message = only(queue)
    assert (message.id, message.headers, message.priority) == (identity, {"kind": "film"}, 2)
    assert message.large is not None
    assert message.large.size == size
    assert read(message) == content


def test_a_file_is_sent_by_its_path(queue: shardq.Queue, tmp_path: Path) -> None:
    path = tmp_path / "film"
    path.write_bytes(CONTENT)
    queue.producer().send_file(path)
    assert read(only(queue)) == CONTENT
    with pytest.raises(FileNotFoundError):
        queue.producer().send_file(tmp_path / "other")


def test_it_can_be_sought_in_and_read_by_lines(queue: shardq.Queue, send: Callable[..., str]) -> None:
    lines = [b"line %d\n" % number for number in range(100)]
    send(b"".join(lines))
    with only(queue).open() as body:
        assert body.seekable()
        assert list(body) == lines
        for place in (0, PART - 3, 5 * PART, 17):
            assert body.seek(place) == body.tell() == place
            assert body.read(7) == b"".join(lines)[place : place + 7]
        body.seek(-3, io.SEEK_END)
        assert body.read() == b"99\n"
        body.seek(10**9)
        assert body.read() == b""
    assert body.closed


def test_a_stream_that_gives_little_at_a_time_makes_full_parts(queue: shardq.Queue) -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(7, size or 7))

    queue.producer().send_stream(Dripping(CONTENT))
    message = only(queue)
    assert read(message) == CONTENT
    assert message.large is not None
    assert message.large.parts == 3


def test_it_is_never_taken_for_a_value(
    client: shardq.Client, queue: shardq.Queue, send: Callable[..., str]
) -> None:
    identity = send()
    batch = queue.consumer().receive(10)
    for ask in (lambda: batch[0].body, lambda: batch[0].raw, lambda: batch.bodies):
        with pytest.raises(
            shardq.InvalidMessage, match=r"large, 259 bytes: read it with `message\.open\(\)`"
        ):
            ask()
    for stored in (queue.get(identity, codec=shardq.JSON), *queue.peek(codec=shardq.TEXT)):
        assert stored is not None
        assert stored.body is None
        assert stored.large == batch[0].large
    with queue.open(identity) as body:
        assert body.read() == CONTENT


def test_a_message_without_one_has_nothing_to_open(queue: shardq.Queue) -> None:
    identity = queue.producer().send(b"small")
    message = only(queue)
    assert message.large is None
    for ask in (message.open, lambda: queue.open(identity)):
        with pytest.raises(shardq.InvalidMessage, match="has no large body to open"):
            ask()
    queue.remove(identity)
    with pytest.raises(shardq.BodyNotFound, match="is not stored"):
        queue.open(identity)


def test_a_body_that_is_too_large_is_told_the_way(client: shardq.Client) -> None:
    queue = client.create_queue("small", max_message_bytes=10)
    with pytest.raises(shardq.MessageTooLarge, match=r"`producer\.send_file` or `send_stream`"):
        queue.producer().send(CONTENT)
    queue.producer().send_stream(io.BytesIO(CONTENT))
    assert read(only(queue)) == CONTENT
    with pytest.raises(shardq.MessageTooLarge):
        queue.producer().send_stream(io.BytesIO(b""), headers={"long": "x" * 10})


def test_what_cannot_be_sent_is_refused_before_anything_is_stored(
    client: shardq.Client, queue: shardq.Queue
) -> None:
    producer = queue.producer()
    with pytest.raises(shardq.InvalidMessage, match="priority=11"):
        producer.send_stream(io.BytesIO(CONTENT), priority=11)
    with pytest.raises(shardq.InvalidMessage, match=r"stream='path' is a str: give a file of bytes"):
        producer.send_stream("path")  # type: ignore[arg-type]
    with pytest.raises(shardq.InvalidMessage, match="gives str"):
        producer.send_stream(io.StringIO("text"))  # type: ignore[arg-type]
    for path in (None, 5, b"film", "film\0"):
        with pytest.raises(shardq.InvalidMessage, match="is not a path"):
            producer.send_file(path)  # type: ignore[arg-type]
    queue.pause(sends=True)
    with pytest.raises(shardq.QueuePaused):
        producer.send_stream(io.BytesIO(CONTENT))
    producer.close()
    with pytest.raises(shardq.Closed):
        producer.send_stream(io.BytesIO(CONTENT))
    assert stored_bodies(client) == {}


def test_a_stream_that_breaks_leaves_nothing(client: shardq.Client, queue: shardq.Queue) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if not (some := super().read(size)):
                raise OSError("the disk is gone")
            return some

    with pytest.raises(OSError, match="the disk is gone"):
        queue.producer().send_stream(Broken(CONTENT * 3))
    assert stored_bodies(client) == {}
    assert queue.counts().ready == 0


@pytest.mark.parametrize("given", [None, "", 0], ids=repr)
@pytest.mark.parametrize("size", [0, 5, 30 * PART])
def test_a_stream_that_gives_no_bytes_is_not_taken_to_be_at_its_end(
    client: shardq.Client, queue: shardq.Queue, size: int, given: Any
) -> None:
    class Impatient:  # such as a socket that does not block
        left = b"x" * size

        def read(self, size: int) -> Any:
            some, self.left = self.left[:size], self.left[size:]
            return some or given

    with pytest.raises(
        shardq.InvalidMessage, match=f"gives {type(given).__name__}: give one of bytes that waits"
    ):
        queue.producer().send_stream(Impatient())  # type: ignore[arg-type]
    assert stored_bodies(client) == {}
    assert queue.counts().ready == 0


def test_a_stream_that_stands_still_for_too_long_is_given_up(
    client: shardq.Client, queue: shardq.Queue, clock: ManualClock
) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            clock.advance(seconds)
            return super().read(size)

    seconds = 1_800
    queue.producer().send_stream(Slow(CONTENT))
    assert queue.sweep() == 0
    assert read(only(queue)) == CONTENT
    seconds = HOURS
    with pytest.raises(shardq.BodyNotFound, match="stood still for more than 60 minutes"):
        queue.producer().send_stream(Slow(CONTENT))
    assert len(stored_bodies(client)) == 1


def test_large_and_small_messages_keep_the_order_of_their_group(
    queue: shardq.Queue, send: Callable[..., str]
) -> None:
    for number in range(6):
        queue.producer().send(b"%d" % number, group="a") if number % 2 else send(b"%d" % number, group="a")
    batch = queue.consumer().receive(10)
    assert [read(each) if each.large else each.body for each in batch] == [
        b"%d" % number for number in range(6)
    ]


def test_sends_of_other_threads_are_not_mixed_with_it(queue: shardq.Queue) -> None:
    producer = queue.producer(linger=0.05)
    threads = [threading.Thread(target=producer.send_stream, args=(io.BytesIO(CONTENT),)) for _ in range(4)]
    threads += [threading.Thread(target=producer.send, args=(b"small",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    received = queue.consumer().receive(10)
    assert (
        sorted(read(each) if each.large else each.body for each in received) == [CONTENT] * 4 + [b"small"] * 4
    )


def test_the_body_of_a_message_can_be_sent_again_without_copying_it(
    client: shardq.Client, queue: shardq.Queue, send: Callable[..., str]
) -> None:
    send()
    first = only(queue)
    assert first.large is not None
    others = client.create_queue("others")
    producer = others.producer(codec=shardq.JSON)
    producer.send(first.large)
    producer.send_many([first.large, shardq.OutgoingMessage(body=first.large, priority=1), {"small": 1}])
    first.ack()
    assert len(stored_bodies(client)) == 1
    received = others.consumer(codec=shardq.JSON).receive(10)
    assert sorted(bool(each.large) for each in received) == [False, True, True, True]
    assert all(read(each) == CONTENT for each in received if each.large)


@pytest.mark.parametrize("codec", [shardq.BYTES, shardq.JSON, shardq.MSGPACK, shardq.TEXT])
def test_the_body_of_a_message_is_never_written_as_a_value(
    queue: shardq.Queue, send: Callable[..., str], codec: shardq.Codec
) -> None:
    send()
    (message,) = queue.consumer(codec=codec).receive(1)
    for move in (
        lambda: message.forward(queue.name, body=message.large),
        lambda: message.release(body=message.large),
    ):
        with pytest.raises(shardq.InvalidMessage, match="LargeBody"):
            move()
    assert read(message) == CONTENT


@pytest.mark.parametrize("key", ["dedupe_key", "unique_key"])
def test_a_second_one_with_the_same_key_is_not_kept(
    client: shardq.Client, queue: shardq.Queue, send: Callable[..., str], key: str
) -> None:
    first = send(**{key: "one"})
    assert send(b"other" * PART, **{key: "one"}) == first
    assert len(stored_bodies(client)) == 1
    assert read(only(queue)) == CONTENT


def test_one_that_replaces_another_is_read(
    client: shardq.Client, queue: shardq.Queue, clock: ManualClock, send: Callable[..., str]
) -> None:
    send(b"old" * PART, unique_key="one")
    send(unique_key="one", on_conflict="replace")
    clock.advance(HOURS)
    queue.sweep()
    assert len(stored_bodies(client)) == 1
    assert read(only(queue)) == CONTENT


def test_it_is_moved_with_its_message(
    client: shardq.Client, queue: shardq.Queue, clock: ManualClock, send: Callable[..., str]
) -> None:
    send()
    client.create_queue("others")
    only(queue).forward("others", headers={"new": 1})
    clock.advance(HOURS)
    queue.sweep()
    there = only(client.queue("others"))
    assert (read(there), there.headers) == (CONTENT, {"new": 1})
    there.dead_letter("bad")
    assert client.queue("others").redrive() == 1
    clock.advance(HOURS)
    queue.sweep()
    back = only(client.queue("others"))
    assert read(back) == CONTENT
    back.ack()
    assert stored_bodies(client) == {}


@pytest.mark.parametrize("how", ["release", "forward"])
def test_another_body_takes_its_place(
    client: shardq.Client, queue: shardq.Queue, clock: ManualClock, send: Callable[..., str], how: str
) -> None:
    send()
    message = only(queue)
    message.release(body=b"small") if how == "release" else message.forward(queue.name, body=b"small")
    again = only(queue)
    assert (again.body, again.large) == (b"small", None)
    clock.advance(HOURS)
    queue.sweep()
    assert stored_bodies(client) == {}


def test_what_is_acked_can_be_replayed_while_the_history_has_it(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("kept", history_retention=86_400)
    identity = queue.producer().send_stream(io.BytesIO(CONTENT))
    only(queue).ack()
    with queue.open(identity) as body:
        assert body.read() == CONTENT
    clock.advance(HOURS)
    queue.sweep()
    assert queue.replay() == 1
    clock.advance(86_400)
    queue.sweep()
    assert read(only(queue)) == CONTENT


def test_what_is_popped_can_be_read_for_two_hours(
    client: shardq.Client, queue: shardq.Queue, clock: ManualClock, send: Callable[..., str]
) -> None:
    send()
    clock.advance(HOURS)
    message = queue.consumer().pop()
    assert message is not None
    clock.advance(7_000)
    queue.sweep()
    assert read(message) == CONTENT
    clock.advance(HOURS)
    queue.sweep()
    assert stored_bodies(client) == {}


def test_a_reader_whose_message_is_acked_elsewhere_is_told_so(
    queue: shardq.Queue, send: Callable[..., str]
) -> None:
    send(CONTENT * 100)
    message = only(queue)
    body = message.open()
    assert body.read(5) == CONTENT[:5]
    message.ack()
    with pytest.raises(shardq.BodyNotFound, match=r"large body of message .* is not stored"):
        body.read()
    with pytest.raises(shardq.BodyNotFound):
        message.open().read(1)


def test_what_is_damaged_in_the_store_is_not_given_out_as_whole(
    queue: shardq.Queue, send: Callable[..., str]
) -> None:
    send()
    message = only(queue)
    body = message.large
    assert body is not None
    other = shardq.LargeBody(body.id, body.size, bytes(32), body.part_bytes)
    shorter = shardq.LargeBody(body.id, body.size - 1, body.sha256, body.part_bytes)
    for wrong in (other, shorter):
        queue.producer().send(wrong)
        with pytest.raises(shardq.InvalidMessage, match="differs from the one that was sent"):
            read(only(queue))


def test_a_send_that_was_not_answered_is_sent_again_with_what_is_stored(
    url: str, clock: ManualClock, client: shardq.Client, queue: shardq.Queue
) -> None:
    from shardq.storage.opening import open_store
    from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore

    for nth in (4, 5):  # the owner's entry, and the message
        plan = FaultPlan(faults=(Fault("append", nth, FaultKind.LOST_RESPONSE),))
        broken = shardq.Client(FaultyStore(open_store(url, clock), plan), retry_seconds=0)
        producer = broken.queue(queue.name).producer()
        with pytest.raises(shardq.OutcomeUnknown) as caught:
            producer.send_stream(io.BytesIO(CONTENT))
        producer.send(caught.value.unsent[0])
        broken.close()
    received = queue.consumer().receive(10)
    assert [read(each) for each in received] == [CONTENT] * 2
    for nth in (1, 2, 3):  # a part
        plan = FaultPlan(faults=(Fault("append", nth, FaultKind.LOST_RESPONSE),))
        broken = shardq.Client(FaultyStore(open_store(url, clock), plan), retry_seconds=0)
        with pytest.raises(shardq.StoreUnavailable, match="the large body was not stored"):
            broken.queue(queue.name).producer().send_stream(io.BytesIO(CONTENT))
        broken.close()
    received.ack()
    assert queue.counts().ready == 0


def test_a_copy_in_another_store_has_a_body_of_its_own(
    client: shardq.Client, queue: shardq.Queue, tmp_path: Path, clock: ManualClock, send: Callable[..., str]
) -> None:
    from shardq.spark.jobs.copies import begin_copy, copy_shard

    identity = shardq.MessageId.parse(send())
    with shardq.connect(f"sqlite:///{tmp_path}/other.db", clock=clock) as other:
        there, here = other.create_queue("copies"), client.create_queue("copies")
        for target in (there, here):
            copy_shard(context_of(queue), identity.shard, context_of(target), begin_copy(context_of(target)))
        only(queue).ack()
        clock.advance(HOURS)
        queue.sweep()
        there.sweep()
        assert read(only(there)) == read(only(here)) == CONTENT
