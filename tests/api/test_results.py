"""What messages were acked with: stored before the ack, kept with the history, and shown with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Acknowledge, Append, Fenced, Release
from shardq.storage.store import Store
from shardq.testing import ManualClock, WrappedStore
from shardq.testing.seam import claims_of, store_of
from shardq.worker import Worker

Connect = Callable[[], shardq.Client]
P = ParamSpec("P")
T = TypeVar("T")

LOGS = "_shardq/results/"
DAY = 86_400.0


@pytest.fixture
def sums(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("sums", history_retention=DAY, keep_results=True)


def send(queue: shardq.Queue, *bodies: bytes) -> list[str]:
    with queue.producer() as producer:
        return [producer.send(body) for body in bodies or (b"1 + 1",)]


def take(queue: shardq.Queue, codec: shardq.Codec = shardq.BYTES) -> shardq.Message:
    with queue.consumer(codec=codec) as consumer:
        (message,) = consumer.receive(1)
        return message


def result_of(queue: shardq.Queue, identity: str) -> object:
    found = queue.get(identity)
    assert found is not None
    return found.result


def test_a_result_is_shown_with_the_message_and_with_the_history(
    sums: shardq.Queue, connect: Connect, clock: ManualClock
) -> None:
    with_one, without = send(sums, b"1 + 1", b"nothing")
    assert result_of(sums, with_one) is None
    take(sums).ack(result=b"2")
    clock.advance(2_000)
    take(sums).ack()
    other = connect().queue("sums")
    assert (result_of(other, with_one), result_of(other, without)) == (b"2", None)
    assert [(each.body, each.result) for each in other.history()] == [(b"1 + 1", b"2"), (b"nothing", None)]


def test_it_is_encoded_and_read_by_the_codec_of_the_bodies(sums: shardq.Queue) -> None:
    with sums.producer(codec=shardq.JSON) as producer:
        identity = producer.send([1, 1])
    take(sums, shardq.JSON).ack(result={"sum": 2})
    found = sums.get(identity, codec=shardq.JSON)
    assert found is not None
    assert found.result == {"sum": 2}
    assert result_of(sums, identity) == b'{"sum":2}'


def test_single_messages_of_a_batch_have_results_of_their_own(sums: shardq.Queue) -> None:
    with sums.producer() as producer:
        ids = producer.send_many([b"%d" % number for number in range(300)])
    with sums.consumer() as consumer:
        batch = consumer.receive(300)
        batch.ack(results={message: message.body * 2 for message in batch[::2]})
        other = consumer.receive(1)
    assert {each.body: each.result for each in sums.history()} == {
        b"%d" % number: None if number % 2 else b"%d" % number * 2 for number in range(300)
    }
    assert result_of(sums, ids[298]) == b"298298"
    (message,) = [take(sums) for _ in send(sums)]
    with pytest.raises(shardq.InvalidSetting, match="is not of this batch"):
        other.ack(results={message: b"2"})


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (b"x" * 65_537, shardq.MessageTooLarge, "result of 65,537 bytes: at most 65,536 are kept"),
        (2, shardq.InvalidMessage, "2"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_the_message_is_held(
    sums: shardq.Queue, result: object, error: type[Exception], text: str
) -> None:
    (identity,) = send(sums)
    message = take(sums)
    with pytest.raises(error, match=text):
        message.ack(result=result)
    assert not message.settled
    message.ack(result=b"x" * 65_536)
    assert result_of(sums, identity) == b"x" * 65_536


def test_a_queue_that_keeps_no_results_refuses_them_and_says_how_to_change_it(queue: shardq.Queue) -> None:
    send(queue)
    message = take(queue)
    with pytest.raises(shardq.InvalidSetting, match=f"`shardq alter {queue.name} --keep-results"):
        message.ack(result=b"2")
    assert not message.settled
    message.ack()
    with pytest.raises(shardq.InvalidSetting, match=r"keep_results=True with history_retention=0\.0"):
        queue.alter(keep_results=True)
    queue.alter(keep_results=True, history_retention=60)
    with pytest.raises(shardq.InvalidSetting, match="set history_retention too"):
        queue.alter(history_retention=0)
    with pytest.raises(shardq.InvalidSetting, match="keep_results=1 is an int"):
        queue.alter(keep_results=1)  # type: ignore[arg-type]


def test_the_result_of_a_late_ack_is_not_shown(sums: shardq.Queue, clock: ManualClock) -> None:
    (identity,) = send(sums)
    late = take(sums)
    clock.advance(31)
    winner = take(sums)
    with pytest.raises(shardq.LeaseLost):
        late.ack(result=b"3")
    winner.ack()
    assert result_of(sums, identity) is None
    with pytest.raises(shardq.LeaseLost):
        late.ack(result=b"4")


def test_the_result_of_a_late_ack_is_not_shown_where_its_delivery_was_not_counted(
    sums: shardq.Queue, clock: ManualClock
) -> None:
    (identity,) = send(sums)
    late = take(sums)
    (held,) = claims_of(late)
    store_of(sums).release(Release(held.shard, held.spans([0]), started=False))
    winner = take(sums)
    assert winner.deliveries == late.deliveries == 1
    winner.ack(result=b"2")
    clock.advance(1)
    late.ack(result=b"3")  # it is acked, by whomever
    assert result_of(sums, identity) == b"2"


class Interrupted(WrappedStore):
    """A store that ends the process, or refuses, before it acks or before it writes a log."""

    def __init__(self, inner: Store, *, acks: bool = False, logs: bool = False) -> None:
        super().__init__(inner)
        self.acks, self.logs = acks, logs

    def acknowledge(self, request: Acknowledge) -> Fenced:
        if self.acks:
            raise KeyboardInterrupt
        return super().acknowledge(request)

    def append(self, request: Append) -> None:
        if self.logs and request.shard.queue.startswith(LOGS):
            raise shardq.StoreUnavailable("no more logs", retryable=False)
        super().append(request)


def test_a_crash_before_the_ack_leaves_the_message_to_be_worked_again(url: str, clock: ManualClock) -> None:
    store = Interrupted(open_store(url, clock), acks=True)
    with shardq.Client(store) as client:
        queue = client.create_queue("sums", history_retention=DAY, keep_results=True)
        (identity,) = send(queue)
        with pytest.raises(KeyboardInterrupt):
            take(queue).ack(result=b"3")
        store.acks = False
        assert result_of(queue, identity) is None
        clock.advance(31)
        take(queue).ack()
        assert result_of(queue, identity) is None


def test_a_message_is_not_acked_without_its_result(url: str, clock: ManualClock) -> None:
    store = Interrupted(open_store(url, clock), logs=True)
    with shardq.Client(store) as client:
        queue = client.create_queue("sums", history_retention=DAY, keep_results=True)
        (identity,) = send(queue)
        message = take(queue)
        with pytest.raises(shardq.StoreUnavailable):
            message.ack(result=b"2")
        assert queue.counts().in_flight == 1
        store.logs = False
        message.ack(result=b"2")
        assert result_of(queue, identity) == b"2"


def test_results_go_with_the_history_the_setting_and_the_queue(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("brief", history_retention=3_600, keep_results=True)
    for _ in range(12):
        (last,) = send(queue)
        take(queue).ack(result=b"2")
        assert result_of(queue, last) == b"2"
        clock.advance(600)
    assert {each.result for each in queue.history()} == {b"2"}
    assert 4 <= len(client.queues(LOGS)) <= 6
    clock.advance(8_000)
    queue.sweep()
    assert client.queues(LOGS) == ()
    send(queue)
    take(queue).ack(result=b"2")
    queue.alter(keep_results=False)
    assert client.queues(LOGS) == ()
    assert {each.result for each in queue.history()} == {None}
    queue.alter(keep_results=True)
    (identity,) = send(queue)
    take(queue).ack(result=b"3")
    assert result_of(queue, identity) == b"3"
    client.delete_queue("brief")
    assert client.queues(LOGS) == ()


def test_a_worker_acks_with_what_its_handler_returns(
    sums: shardq.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    ids = send(sums, b"1", b"2", b"3", b"4")
    answers = {b"1": b"one", b"2": None, b"3": {"no": "bytes"}, b"4": shardq.Discard("odd")}
    assert Worker(sums, lambda message: answers[message.body], idle_exit=0).run().worked == 3
    assert [result_of(sums, each) for each in ids] == [b"one", None, None, None]
    why = "result {'no': 'bytes'} is a dict: give bytes, or a codec"
    assert f"message {ids[2]} is acked without what its handler returned: {why}" in caplog.text


class CountingStore(WrappedStore):
    """Counts what it is asked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.asked[method] += 1
        return super().call(method, do, *args, **kwargs)


def test_a_queue_without_results_makes_no_request_more(url: str, clock: ManualClock) -> None:
    store = CountingStore(open_store(url, clock))
    with shardq.Client(store) as client:
        plain = client.create_queue("plain", history_retention=DAY)
        keeping = client.create_queue("keeping", history_retention=DAY, keep_results=True)
        costs = []
        for queue, result in ((plain, None), (keeping, None), (keeping, b"2"), (keeping, b"2")):
            (identity,) = send(queue)
            message = take(queue)
            store.asked.clear()
            message.ack(result=result)
            acked = store.asked.copy()
            store.asked.clear()
            queue.get(identity)
            costs.append((acked, store.asked.copy()))
    (plain_ack, plain_get), (empty_ack, _), _, (ack, get) = costs
    assert plain_ack == empty_ack == {"acknowledge": 1}
    assert plain_get == {"find": 1}
    assert ack == {"append": 1, "acknowledge": 1}
    assert get == {"find": 1, "list_queues": 1, "peek": 1}
