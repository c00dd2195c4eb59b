"""A send that was not answered: what its caller is told is enough to repeat it, and the message is stored once."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock

UNKNOWN = [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE]
Door = Callable[[shardq.Producer, Sequence[shardq.OutgoingMessage]], Sequence[str]]
DOORS: list[Door] = [
    lambda producer, unsent: [producer.send(message) for message in unsent],
    lambda producer, unsent: producer.send_many(unsent),
    lambda producer, unsent: producer.send_many(iter(unsent)),
]


def failing(url: str, clock: ManualClock, *kinds: FaultKind) -> shardq.Client:
    """A client whose first appends fail, and are not repeated by the library."""
    faults = tuple(Fault("append", number, kind) for number, kind in enumerate(kinds, start=1))
    return shardq.Client(FaultyStore(open_store(url, clock), FaultPlan(faults=faults)), retry_seconds=0.0)


def work(queue: shardq.Queue) -> list[Any]:
    """Receive and ack all that there is."""
    batch = queue.consumer().receive(1_000)
    bodies = sorted(batch.bodies)
    batch.ack()
    return bodies


@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("door", DOORS)
def test_an_unanswered_send_is_repeated_with_what_its_error_carries(
    url: str, clock: ManualClock, door: Door, kind: FaultKind, worked: bool
) -> None:
    queue = failing(url, clock, kind).create_queue("q")
    producer = queue.producer()
    with pytest.raises(shardq.OutcomeUnknown) as caught:
        producer.send(b"x", priority=2, headers={"a": 1})
    (again,) = caught.value.unsent
    assert (again.body, again.priority, again.headers) == (b"x", 2, {"a": 1})
    seen = work(queue) if worked else []
    assert list(door(producer, [again])) == list(door(producer, [again])) == [again.id]
    assert seen + work(queue) == [b"x"]


@pytest.mark.parametrize(("sent", "again"), [("a", None), ("a", "b"), (None, "a")])
def test_a_message_is_not_sent_again_with_another_group_or_without_its_own(
    url: str, clock: ManualClock, sent: str | None, again: str | None
) -> None:
    queue = failing(url, clock, FaultKind.LOST_REQUEST).create_queue("q")
    with queue.producer() as producer:
        with pytest.raises(shardq.OutcomeUnknown) as caught:
            producer.send(b"x", group=sent)
        (unsent,) = caught.value.unsent
        with pytest.raises(shardq.InvalidMessage, match=f"was not sent with group={again!r}"):
            producer.send(msgspec.structs.replace(unsent, group=again))
        producer.send(unsent)
    assert work(queue) == [b"x"]


@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("door", DOORS)
def test_each_of_several_threads_whose_sends_were_joined_can_repeat_its_own(
    url: str, clock: ManualClock, door: Door, kind: FaultKind
) -> None:
    queue = failing(url, clock, kind).create_queue("q")
    producer = queue.producer(linger=60.0, bundle_messages=3, codec=shardq.JSON)
    ids: dict[int, str] = {}
    errors: list[shardq.OutcomeUnknown] = []

    def send(number: int) -> None:
        try:
            producer.send({"number": number})
        except shardq.OutcomeUnknown as error:
            errors.append(error)
            with queue.producer(codec=shardq.JSON) as other:
                (ids[number],) = door(other, error.unsent)
                assert ids[number] == error.unsent[0].id

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, errors))) == 3
    stored = {number: queue.get(identity, codec=shardq.JSON) for number, identity in ids.items()}
    assert {number: message and message.body for number, message in stored.items()} == {
        number: {"number": number} for number in range(3)
    }
    assert queue.counts().ready == 3


def test_an_error_that_is_no_passing_one_stays_so_when_sends_are_joined(url: str, clock: ManualClock) -> None:
    class Full(WrappedStore):
        def append(self, request: Append) -> None:
            raise shardq.StoreUnavailable("the disk is full", retryable=False)

    queue = shardq.Client(Full(open_store(url, clock))).create_queue("q")
    with pytest.raises(shardq.StoreUnavailable) as caught:
        queue.producer().send(b"x")
    assert not caught.value.retryable


class _Choosy(shardq.Hooks):
    def before_send(self, queue: str, messages: Sequence[shardq.OutgoingMessage]) -> None:
        if any(message.priority == 9 for message in messages):
            raise PermissionError(queue)


@pytest.mark.parametrize("reason", ["sent too long ago", "a key of another group", "refused by a hook"])
def test_what_is_refused_is_the_message_of_one_thread_and_of_none_that_it_was_joined_with(
    url: str, clock: ManualClock, reason: str
) -> None:
    faults = (Fault("append", 1, FaultKind.LOST_REQUEST),)
    store = FaultyStore(open_store(url, clock), FaultPlan(faults=faults))
    queue = shardq.Client(store, retry_seconds=0.0, hooks=_Choosy()).create_queue("q")
    with pytest.raises(shardq.OutcomeUnknown) as caught:
        queue.producer().send(b"before", dedupe_key=None if reason == "sent too long ago" else "k", group="a")
    clock.advance(0 if "group" in reason else 16 * 60)
    cases: dict[str, tuple[shardq.OutgoingMessage, type[Exception]]] = {
        "sent too long ago": (caught.value.unsent[0], shardq.RepeatTooLate),
        "a key of another group": (
            shardq.OutgoingMessage(body=b"refused", dedupe_key="k", group="b"),
            shardq.InvalidMessage,
        ),
        "refused by a hook": (shardq.OutgoingMessage(body=b"refused", priority=9), PermissionError),
    }
    message, error = cases[reason]
    producer = queue.producer(linger=60, bundle_messages=3)
    with ThreadPoolExecutor(3) as threads:
        first, refused, last = (threads.submit(producer.send, body) for body in (b"first", message, b"last"))
        stored = [first.result(), last.result()]
        with pytest.raises(error):
            refused.result()
    assert len(set(stored)) == 2
    assert work(queue) == [b"first", b"last"]


def test_who_stores_for_others_and_is_interrupted_leaves_them_with_what_they_need(
    url: str, clock: ManualClock
) -> None:
    class Interrupted(WrappedStore):
        interrupts = True

        def append(self, request: Append) -> None:
            super().append(request)
            if self.interrupts:
                raise KeyboardInterrupt

    store = Interrupted(open_store(url, clock))
    queue = shardq.Client(store).create_queue("q")
    producer = queue.producer(linger=60.0, bundle_messages=2)
    caught: list[BaseException] = []

    def send(body: bytes) -> None:
        try:
            producer.send(body)
        except BaseException as error:
            caught.append(error)

    threads = [threading.Thread(target=send, args=(body,)) for body in (b"1", b"2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(error) for error in caught} == {KeyboardInterrupt, shardq.OutcomeUnknown}
    (error,) = (error for error in caught if isinstance(error, shardq.OutcomeUnknown))
    store.interrupts = False
    producer.send_many(error.unsent)
    assert work(queue) == [b"1", b"2"]


@pytest.mark.parametrize("door", DOORS)
def test_a_send_is_not_repeated_when_the_store_may_have_forgotten_the_first(
    url: str, clock: ManualClock, door: Door
) -> None:
    queue = failing(url, clock, FaultKind.LOST_RESPONSE).create_queue("q")
    producer = queue.producer()
    with pytest.raises(shardq.OutcomeUnknown) as caught:
        producer.send(b"x")
    assert work(queue) == [b"x"]
    clock.advance(15 * 60)
    queue.sweep()
    with pytest.raises((shardq.RepeatTooLate, shardq.PartialSend)) as refused:
        door(producer, caught.value.unsent)
    cause = refused.value.__cause__ if isinstance(refused.value, shardq.PartialSend) else refused.value
    assert isinstance(cause, shardq.RepeatTooLate)
    assert (cause.code, cause.retryable) == ("repeat_too_late", False)
    assert work(queue) == []


def test_a_bulk_send_is_not_repeated_when_the_store_may_have_forgotten_the_first(
    url: str, clock: ManualClock
) -> None:
    queue = failing(url, clock, FaultKind.LOST_RESPONSE).create_queue("q")
    with pytest.raises(shardq.PartialSend) as caught:
        queue.producer().send_many([b"1", b"2"])
    clock.advance(14 * 60)
    with pytest.raises(shardq.RepeatTooLate):
        queue.producer().send_many(caught.value.unsent)
    assert work(queue) == [b"1", b"2"]


class _Calls:
    """A codec of what cannot be pickled."""

    def encode(self, value: Callable[[], bytes]) -> bytes:
        return value()

    def decode(self, body: bytes) -> bytes:
        return body


def test_an_attempt_can_be_pickled_whatever_the_bodies_were_made_of(url: str, clock: ManualClock) -> None:
    queue = failing(url, clock, FaultKind.LOST_RESPONSE).create_queue("q")
    with pytest.raises(shardq.PartialSend) as caught:
        queue.producer(codec=_Calls()).send_many([lambda: b"a", lambda: b"b"])
    kept = [pickle.loads(pickle.dumps(message.attempt)) for message in caught.value.unsent]
    again = [
        msgspec.structs.replace(message, attempt=attempt)
        for message, attempt in zip(caught.value.unsent, kept, strict=True)
    ]
    queue.producer(codec=_Calls()).send_many(again)
    assert work(queue) == [b"a", b"b"]


def test_what_was_not_stored_for_certain_can_be_sent_at_any_time(url: str, clock: ManualClock) -> None:
    queue = failing(url, clock, FaultKind.LOST_RESPONSE, FaultKind.UNAVAILABLE).create_queue("q", shards=4)
    with pytest.raises(shardq.PartialSend) as caught:
        queue.producer().send_many([b"1", b"2"])
    with pytest.raises(shardq.PartialSend) as again:
        queue.producer().send_many(iter([*caught.value.unsent, b"3"]))
    clock.advance(60 * 60)
    fresh = [message for message in again.value.unsent if message.id is None]
    assert [message.body for message in fresh] == [b"3"]
    queue.producer().send_many(fresh)
    assert work(queue) == [b"1", b"2", b"3"]


def test_the_library_itself_does_not_repeat_a_send_for_too_long(url: str, clock: ManualClock) -> None:
    class Slow(WrappedStore):
        appends = 0

        def append(self, request: Append) -> None:
            self.appends += 1
            super().append(request)
            work(sound)
            clock.advance(10 * 60)
            sound.sweep()
            raise shardq.OutcomeUnknown("no answer")

    sound = shardq.connect(url, clock=clock).create_queue("q")
    store = Slow(open_store(url, clock))
    with pytest.raises(shardq.OutcomeUnknown):
        shardq.Client(store, retry_seconds=3_600).queue("q").producer().send(b"x")
    assert store.appends == 2
    assert work(sound) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 12),
    first=st.integers(1, 12),
    second=st.integers(1, 12),
    written_down=st.booleans(),
    kind=st.sampled_from(UNKNOWN),
    data=st.data(),
)
def test_an_unanswered_bulk_send_is_repeated_whatever_bundles_the_next_producer_makes(
    url: str,
    clock: ManualClock,
    count: int,
    first: int,
    second: int,
    written_down: bool,
    kind: FaultKind,
    data: st.DataObject,
) -> None:
    client = failing(url, clock, kind)
    name = f"q{os.urandom(6).hex()}"
    queue = client.create_queue(name)
    bodies = [b"%02d" % number for number in range(count)]
    with pytest.raises(shardq.PartialSend) as caught:
        queue.producer(bundle_messages=first).send_many(bodies)
    unsent = list(caught.value.unsent)
    if written_down:  # as a file keeps them: in their order, without what is only in memory
        unsent = [msgspec.structs.replace(message, attempt=None) for message in unsent]
    else:
        unsent = data.draw(st.permutations(unsent))
    ids = queue.producer(bundle_messages=second).send_many(unsent)
    stored = [queue.get(identity) for identity in (*caught.value.stored, *ids)]
    assert [message and message.body for message in stored] == [
        *bodies[: count - len(unsent)],
        *(message.body for message in unsent),
    ]
    assert work(queue) == bodies
