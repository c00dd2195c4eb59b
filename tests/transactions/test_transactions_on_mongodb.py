"""Sends and acks within a transaction of the application on MongoDB: with its commit, or not at all."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

pymongo = pytest.importorskip("pymongo", reason="the extra `mongodb` is not installed")

from pymongo import MongoClient, WriteConcern  # noqa: E402
from pymongo.client_session import ClientSession  # noqa: E402
from pymongo.errors import PyMongoError  # noqa: E402

import shardq  # noqa: E402
from shardq.storage.mongodb import collections  # noqa: E402
from shardq.testing.seam import store_of  # noqa: E402
from shardq.worker import Worker  # noqa: E402
from tests.forking import forked  # noqa: E402
from tests.mongodb_server import MEMBERS, _server  # noqa: E402

pytestmark = pytest.mark.server


@pytest.fixture(scope="session")
def standalone_url() -> Iterator[str]:
    with _server(MEMBERS["standalone"]) as url:
        yield url


@pytest.fixture
def client(replica_set_url: str) -> Iterator[shardq.Client]:
    with shardq.connect(replica_set_url) as client:
        yield client


@pytest.fixture
def name(client: shardq.Client) -> Iterator[str]:
    name = f"t{os.urandom(5).hex()}"
    yield name
    for each in client.queues(name):
        client.delete_queue(each) if client.exists(each) else None


@pytest.fixture
def queue(client: shardq.Client, name: str) -> shardq.Queue:
    """A queue with one shard, whose collection is there."""
    queue = client.create_queue(name, shards=1, time_shards=1)
    queue.producer().send(b"first")
    message = queue.consumer().pop()
    assert message is not None
    return queue


@pytest.fixture
def app(replica_set_url: str) -> Iterator[MongoClient]:
    with MongoClient(replica_set_url) as app:
        app.get_default_database()["paid"].drop()
        app.get_default_database().create_collection("paid")
        yield app


@pytest.fixture
def session(app: MongoClient) -> Iterator[ClientSession]:
    with app.start_session() as session:
        yield session


def pay(session: ClientSession) -> None:
    session.client.get_default_database()["paid"].insert_one({}, session=session)


def paid(app: MongoClient) -> int:
    return app.get_default_database()["paid"].count_documents({})


def held(queue: shardq.Queue) -> int:
    """Messages that are there, whatever their state."""
    counts = queue.counts()
    return counts.ready + counts.in_flight + counts.delayed


@pytest.mark.parametrize("commits", [True, False])
def test_what_is_done_in_it_stands_or_falls_with_it(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient, session: ClientSession, commits: bool
) -> None:
    queue.producer().send_many([b"one", b"two", b"three"])
    received = queue.consumer().receive(3)
    session.start_transaction()
    pay(session)
    with client.transaction(connection=session) as within:
        orders = within.queue(queue.name)
        orders.producer().send(b"four")
        orders.producer().send_many([b"five", b"six"])
        orders.ack([received[0].receipt])
        orders.release([received[1].receipt])
    assert (queue.counts().ready, queue.counts().in_flight) == (0, 3)
    session.commit_transaction() if commits else session.abort_transaction()
    counts = queue.counts()
    assert (counts.ready, counts.in_flight, paid(app)) == ((4, 1, 1) if commits else (0, 3, 0))


@pytest.mark.parametrize("commits", [True, False])
def test_a_pending_message_is_edited_with_it_and_one_in_flight_is_not(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession, commits: bool
) -> None:
    in_flight = queue.producer().send(b"in flight")
    held = queue.consumer().receive()
    pending = queue.producer().send_many([b"first", b"old"])[1]
    session.start_transaction()
    with client.transaction(connection=session) as within:
        orders = within.queue(queue.name)
        with pytest.raises(shardq.MessageNotPending):
            orders.edit(in_flight, body=b"new")
        orders.edit(orders.edit(pending, body=b"newer"), body=b"new")
        orders.edit(orders.producer().send(b"sent in it"), body=b"edited in it")
    session.commit_transaction() if commits else session.abort_transaction()
    held.ack()
    bodies = {message.body for message in queue.peek(10)}
    assert bodies == ({b"first", b"new", b"edited in it"} if commits else {b"first", b"old"})


def test_messages_are_sent_with_it_although_no_thread_can_begin_to_announce_them(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "shardq-commit":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    session.start_transaction()
    with client.transaction(connection=session) as within:
        within.queue(queue.name).producer().send(b"one")
    session.commit_transaction()
    assert queue.consumer().receive().bodies == [b"one"]


def test_a_message_whose_lease_has_expired_is_edited_with_it_unless_it_is_extended_before(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    queue.producer().send_many([b"1", b"2"])
    batch = queue.consumer(visibility_timeout=0.05).receive(2)
    while queue.counts().in_flight:
        time.sleep(0.02)
    session.start_transaction()
    with client.transaction(connection=session) as within:
        orders = within.queue(queue.name)
        orders.edit(batch[0].id, body=b"new")
        batch.part([batch[1]]).extend(60)
        with pytest.raises(
            (shardq.MessageNotPending, PyMongoError)
        ):  # whether the transaction sees it or not
            orders.edit(batch[1].id, body=b"late")
    session.abort_transaction() if session.in_transaction else None
    batch.part([batch[1]]).ack()


def test_a_new_queue_whose_collections_are_not_there_yet_is_sent_to(
    client: shardq.Client, name: str, app: MongoClient, session: ClientSession
) -> None:
    queue = client.create_queue(name)
    calls = []

    def callback(session: ClientSession) -> None:
        calls.append(1)
        pay(session)
        with client.transaction(connection=session) as within:
            within.queue(name).producer().send_many([b"one", b"two"])

    session.with_transaction(callback)
    assert (queue.counts().ready, paid(app)) == (2, 1)
    assert len(calls) < 10


def test_a_disturbed_transaction_is_done_again_by_the_driver_and_sends_once(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient, session: ClientSession
) -> None:
    queue.producer().send_many([b"held"])
    (message,) = queue.consumer().receive(1)
    calls = []

    def callback(session: ClientSession) -> None:
        calls.append(1)
        pay(session)
        with client.transaction(connection=session) as within:
            orders = within.queue(queue.name)
            orders.producer().send(b"one")
            if len(calls) == 1:
                message.extend(60)  # which changes what the transaction wants to finish
            orders.ack([message.receipt])

    session.with_transaction(callback)
    assert (len(calls), paid(app)) == (2, 1)
    assert (queue.counts().ready, queue.counts().in_flight) == (1, 0)


@pytest.mark.parametrize("made_before", [False, True])
def test_what_cannot_be_part_of_it_is_refused(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession, made_before: bool
) -> None:
    empty = client.create_queue(f"{queue.name}-empty").name
    queue.alter(history_retention=60, keep_results=True)
    if made_before:  # the queues of large bodies and of results are there then
        queue.producer().send_stream(io.BytesIO(b"large"))
        (large,) = queue.consumer().receive(1)
        large.ack(result=b"1")
    queue.producer().send(b"there")
    (message,) = queue.consumer().receive(1)
    session.start_transaction()
    with client.transaction(connection=session) as within:
        orders = within.queue(queue.name)
        producer = orders.producer()
        for refused in (
            lambda: orders.ack([message.receipt], results={message.receipt: b"2"}),
            lambda: producer.send_stream(io.BytesIO(b"large")),
            lambda: orders.consumer().receive(1),
            lambda: within.queue(empty).consumer().receive(1),
            lambda: within.queue(empty).consumer().pop(wait=1),
            Worker(within.queue(empty), lambda _message: None, idle_exit=0).run,
            orders.purge,
            lambda: within.create_queue("new"),
        ):
            with pytest.raises(shardq.UnsupportedByStore, match="cannot be part of a transaction"):
                refused()
    session.commit_transaction()
    message.ack()


@pytest.mark.parametrize("commits", [True, False])
def test_keys_and_groups_stand_or_fall_with_it(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession, commits: bool
) -> None:
    queue.producer().send(b"before", group="a")
    queue.producer().send(b"here", group="b")  # so that its collection is there
    session.start_transaction()
    with client.transaction(connection=session) as within:
        producer = within.queue(queue.name).producer()
        ids = [producer.send(b"once", dedupe_key="once") for _ in range(2)]
        ids += [producer.send(b"one", unique_key="one") for _ in range(2)]
        producer.send_many([shardq.OutgoingMessage(body=body, group="a") for body in (b"1", b"2")])
        producer.send(b"3", group="a")
        producer.send(b"other", group="b")
    assert held(queue) == 2
    session.commit_transaction() if commits else session.abort_transaction()
    again = [
        queue.producer().send(b"once", dedupe_key="once"),
        queue.producer().send(b"one", unique_key="one"),
    ]
    assert ([ids[0], ids[2]] == again) is commits
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    worked: dict[str | None, list[bytes]] = {}
    with queue.consumer() as consumer:
        while batch := consumer.receive(10, wait=1):
            for message in batch:
                worked.setdefault(message.group, []).append(message.raw)
            batch.ack()
    assert worked["a"] == ([b"before", b"1", b"2", b"3"] if commits else [b"before"])
    assert sorted(worked[None]) == [b"once", b"one"]
    assert worked["b"] == ([b"here", b"other"] if commits else [b"here"])


def test_of_two_transactions_that_send_a_key_one_is_done_again_and_one_message_is_sent(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient
) -> None:
    for keyword in ("dedupe_key", "unique_key"):
        ids, calls = list[str](), list[int]()

        def send(session: ClientSession, keyword: str = keyword, ids: list[str] = ids) -> None:
            pay(session)
            producer = client.transaction(connection=session).queue(queue.name).producer()
            ids.append(producer.send(keyword.encode(), **{keyword: "k"}))  # type: ignore[arg-type]

        def second(session: ClientSession, calls: list[int] = calls, send: Any = send) -> None:
            calls.append(1)
            pay(session)  # which is its snapshot
            if len(calls) == 1:
                with app.start_session() as first:
                    first.with_transaction(send)
            send(session)

        before = held(queue)
        with app.start_session() as session:
            session.with_transaction(second)
        assert (len(calls), held(queue) - before) == (2, 1)
        assert len(set(ids)) == 1


def test_a_group_that_two_transactions_send_to_keeps_the_order_of_their_commits(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient
) -> None:
    def send(body: bytes, session: ClientSession) -> None:
        pay(session)
        client.transaction(connection=session).queue(queue.name).producer().send(body, group="a")

    def work(body: bytes) -> None:
        with app.start_session() as session:
            session.with_transaction(partial(send, body))

    queue.producer().send(b"first", group="a")
    threads = [threading.Thread(target=work, args=(b"%d" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    seen = [message.raw for message in queue.consumer().receive(10, wait=5)]
    assert (seen[0], sorted(seen[1:])) == (b"first", [b"0", b"1", b"2", b"3"])


def test_other_groups_are_received_beside_an_open_transaction(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    queue.producer().send_many([shardq.OutgoingMessage(body=b"x", group=name) for name in "abcdef"])
    session.start_transaction()
    client.transaction(connection=session).queue(queue.name).producer().send(b"y", group="a")
    seen = set[str | None]()
    with queue.consumer() as consumer:
        until = time.monotonic() + 30
        while len(seen) < 5 and time.monotonic() < until:
            batch = consumer.receive(10, wait=1)
            seen |= {message.group for message in batch}
            batch.ack()
    session.commit_transaction()
    assert seen >= set("bcdef")
    assert {message.raw for message in queue.consumer().receive(10, wait=5)} >= {b"y"}


def test_a_message_of_a_group_is_acked_in_it_and_its_successor_is_delivered(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    queue.producer().send_many(
        [shardq.OutgoingMessage(body=b"%d" % number, group="a") for number in range(2)]
    )
    (first,) = queue.consumer().receive(1)
    session.start_transaction()
    with client.transaction(connection=session) as within:
        within.queue(queue.name).ack([first.receipt])
    session.commit_transaction()
    assert [message.raw for message in queue.consumer().receive(1, wait=20)] == [b"1"]


def test_a_message_of_a_unique_key_is_replaced_in_it(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    queue.producer().send(b"old", unique_key="k")
    for end, body in ((session.abort_transaction, b"old"), (session.commit_transaction, b"new")):
        session.start_transaction()
        with client.transaction(connection=session) as within:
            within.queue(queue.name).producer().send(b"new", unique_key="k", on_conflict="replace")
        end()
        assert [stored.body for stored in queue.peek(10)] == [body]


def test_a_message_to_be_replaced_that_changed_since_has_the_driver_do_all_of_it_again(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient, session: ClientSession
) -> None:
    queue.producer().send(b"old", unique_key="k")
    calls = []

    def callback(session: ClientSession) -> None:
        calls.append(1)
        pay(session)  # which takes the snapshot
        if len(calls) == 1:
            queue.consumer().receive(1).release()
        with client.transaction(connection=session) as within:
            producer = within.queue(queue.name).producer()
            producer.send(b"new", unique_key="k", on_conflict="replace")

    session.with_transaction(callback)
    assert (len(calls), paid(app)) == (2, 1)
    assert [message.body for message in queue.peek(10)] == [b"new"]


def test_a_transaction_that_one_member_confirms_is_refused(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    session.start_transaction(write_concern=WriteConcern(1))
    with pytest.raises(shardq.InvalidSetting, match="w=1 of the application's transaction"):
        client.transaction(connection=session)


def test_what_is_no_transaction_of_these_servers_is_refused(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=r"call start_transaction\(\) on it first"):
        client.transaction(connection=session)
    with pytest.raises(shardq.InvalidSetting, match="give the pymongo ClientSession"):
        client.transaction(connection="session")


def test_a_session_with_other_servers_is_refused(
    client: shardq.Client, queue: shardq.Queue, standalone_url: str
) -> None:
    with (
        MongoClient(standalone_url) as other,
        other.start_session() as session,
        session.start_transaction(),
        pytest.raises(shardq.InvalidSetting, match="by the same names"),
    ):
        client.transaction(connection=session)


def test_it_is_over_with_the_transaction_and_not_part_of_the_next(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    session.start_transaction()
    producer = client.transaction(connection=session).queue(queue.name).producer()
    session.abort_transaction()
    with pytest.raises(shardq.Closed):
        producer.send(b"one")
    session.start_transaction()
    with pytest.raises(shardq.Closed):
        producer.send(b"one")
    assert held(queue) == 0


def test_another_thread_has_no_part_in_it(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    session.start_transaction()
    producer = client.transaction(connection=session).queue(queue.name).producer()
    errors: list[BaseException] = []

    def send() -> None:
        try:
            producer.send(b"one")
        except shardq.StoreUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert "by the thread that has joined it" in str(errors[0]) or "used by the thread" in str(errors[0])


def test_a_forked_child_has_no_part_in_it(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    queue.producer().send(b"before")  # makes the collection
    session.start_transaction()
    producer = client.transaction(connection=session).queue(queue.name).producer()

    def send() -> str:
        with pytest.raises(shardq.StoreUnavailable, match="forked child"):
            producer.send(b"child")
        return "refused"

    assert forked(send) == "refused"


def test_a_shard_that_others_give_up_meanwhile_stays_listed(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession, replica_set_url: str
) -> None:
    with shardq.connect(replica_set_url) as other:
        store = store_of(other)
        (shard,) = store.shards(queue.name)
        assert store.drop_if_empty(shard)  # which closes the collection
        session.start_transaction()
        with client.transaction(connection=session) as within:
            within.queue(queue.name).producer().send(b"one")
        assert not store.drop_if_empty(shard)
        session.commit_transaction()
        assert store.shards(queue.name) == (shard,)
        assert not store.drop_if_empty(shard)
    assert [each.body for each in queue.consumer().receive(1, wait=5)] == [b"one"]


def test_a_shard_that_is_being_given_up_while_it_is_sent_to_stays_listed(
    client: shardq.Client,
    queue: shardq.Queue,
    session: ClientSession,
    replica_set_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session.start_transaction()
    producer = client.transaction(connection=session).queue(queue.name).producer()
    close = collections.close

    def close_and_be_late(*args: Any) -> bool:
        closed = close(*args)
        producer.send(b"one")
        return closed

    monkeypatch.setattr(collections, "close", close_and_be_late)
    with shardq.connect(replica_set_url) as other:
        store = store_of(other)
        (shard,) = store.shards(queue.name)
        assert not store.drop_if_empty(shard)  # it saw nothing, and was overtaken
        session.commit_transaction()
        assert store.shards(queue.name) == (shard,)


KILLED = """
import os, signal, sys, pymongo, shardq
url, name = sys.argv[1:]
client, app = shardq.connect(url), pymongo.MongoClient(url)
session = app.start_session()
session.start_transaction()
client.transaction(connection=session).queue(name).producer().send(b"one")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_process_that_is_killed_before_its_commit(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient, replica_set_url: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, replica_set_url, queue.name], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    app.admin.command("killAllSessions", [])  # as the server does by itself after a minute
    assert not queue.consumer().receive(1)
    queue.sweep()
    assert held(queue) == 0


def test_two_transactions_send_to_a_queue_at_once(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient
) -> None:
    with app.start_session() as one, app.start_session() as two:
        for session in (one, two):
            session.start_transaction()
            client.transaction(connection=session).queue(queue.name).producer().send(b"mine")
        one.commit_transaction()
        two.commit_transaction()
    assert held(queue) == 2


def test_of_two_transactions_that_ack_a_message_the_second_does_all_of_it_again(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient
) -> None:
    queue.producer().send(b"one")
    (message,) = queue.consumer().receive(1)
    with app.start_session() as one, app.start_session() as two:
        one.start_transaction()
        two.start_transaction()
        client.transaction(connection=one).queue(queue.name).ack([message.receipt])
        with pytest.raises(shardq.ShardqError) as caught:
            client.transaction(connection=two).queue(queue.name).ack([message.receipt])
        assert isinstance(caught.value, PyMongoError)
        assert caught.value.has_error_label("TransientTransactionError")
        one.commit_transaction()
    assert held(queue) == 0


def test_of_two_workers_that_had_a_message_one_commits(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient, session: ClientSession
) -> None:
    # Given a worker that was slower than its lease, and another one that has the message after that
    queue.producer().send(b"one")
    (slow,) = queue.consumer(visibility_timeout=0.1).receive(1)
    (fast,) = queue.consumer().receive(1, wait=10)

    def done(receipt: str) -> None:
        def work(session: ClientSession) -> None:
            pay(session)
            client.transaction(connection=session).queue(queue.name).ack([receipt])

        session.with_transaction(work)

    # When both ack it, each beside a row of their own, then the first one is refused
    done(fast.receipt)
    with pytest.raises(shardq.LeaseLost):
        done(slow.receipt)
    assert paid(app) == 1


def test_a_lease_that_ends_before_the_commit_gives_the_message_to_nobody_else(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    queue.alter(visibility_timeout=0.5)
    queue.producer().send(b"one")
    (message,) = queue.consumer().receive(1)
    session.start_transaction()
    client.transaction(connection=session).queue(queue.name).ack([message.receipt])
    time.sleep(0.7)
    others: list[shardq.Batch] = []
    other = threading.Thread(target=lambda: others.append(queue.consumer().receive(1, wait=1)))
    other.start()
    session.commit_transaction()
    other.join()
    assert (others[0].bodies, held(queue)) == ([], 0)


COMMITTED = KILLED.replace("os.kill", "session.commit_transaction(); os.kill")


def test_a_process_that_is_killed_with_its_commit_leaves_its_message_to_who_waits(
    client: shardq.Client, queue: shardq.Queue, replica_set_url: str
) -> None:
    with queue.consumer() as consumer:
        assert not consumer.receive(1)  # it has looked, and found nothing
        done = subprocess.run(
            [sys.executable, "-c", COMMITTED, replica_set_url, queue.name], check=False, timeout=60
        )
        assert done.returncode == -signal.SIGKILL
        assert consumer.receive(1, wait=60).bodies == [b"one"]


def test_a_transaction_that_the_server_ended_leaves_nothing_and_is_done_again(
    client: shardq.Client, queue: shardq.Queue, app: MongoClient, session: ClientSession
) -> None:
    calls = []

    def callback(session: ClientSession) -> None:
        calls.append(1)
        with client.transaction(connection=session) as within:
            producer = within.queue(queue.name).producer()
            producer.send(b"one")
            if len(calls) == 1:
                app.admin.command("killAllSessions", [])  # as after transactionLifetimeLimitSeconds
            producer.send_many([b"two"] * 3_000)

    session.with_transaction(callback)
    assert (len(calls), held(queue)) == (2, 3_001)


def test_a_queue_that_is_deleted_after_the_send_takes_the_message_along(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession, replica_set_url: str
) -> None:
    session.start_transaction()
    with client.transaction(connection=session) as within:
        within.queue(queue.name).producer().send(b"one")
    with shardq.connect(replica_set_url) as other:
        thread = threading.Thread(target=other.delete_queue, args=(queue.name,))
        thread.start()
        session.commit_transaction()
        thread.join(30)
        assert not other.exists(queue.name)
        assert held(other.create_queue(queue.name, shards=1, time_shards=1)) == 0


def test_a_queue_that_is_deleted_and_created_again_meanwhile_has_nothing_of_it(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession, replica_set_url: str
) -> None:
    session.start_transaction()
    within = client.transaction(connection=session)
    producer = within.queue(queue.name).producer()
    with shardq.connect(replica_set_url) as other:
        other.delete_queue(queue.name)
        again = other.create_queue(queue.name, shards=1, time_shards=1)
        with pytest.raises(shardq.ShardqError):
            producer.send(b"one")
        session.abort_transaction() if session.in_transaction else None
        assert held(again) == 0


def test_who_waits_is_told_of_what_was_committed(
    client: shardq.Client, queue: shardq.Queue, session: ClientSession
) -> None:
    consumer = queue.consumer()
    assert not consumer.receive(1)
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.extend(consumer.receive(1, wait=30).bodies))
    session.start_transaction()
    with client.transaction(connection=session) as within:
        within.queue(queue.name).producer().send(b"one")
    thread.start()
    begun = time.monotonic()
    session.commit_transaction()
    thread.join(30)
    assert received == [b"one"]
    assert time.monotonic() - begun < 4  # sooner than it would look by itself


def test_a_standalone_server_names_the_remedy(standalone_url: str, app: MongoClient) -> None:
    with (
        shardq.connect(standalone_url) as client,
        app.start_session() as session,
        session.start_transaction(),
        pytest.raises(shardq.UnsupportedByStore, match="MongoDB replica set"),
    ):
        client.transaction(connection=session)
