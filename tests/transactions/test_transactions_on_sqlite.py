"""Sends and acks within a transaction of the application: with its commit, or not at all."""

from __future__ import annotations

import gc
import io
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import shardq
from shardq.storage.abilities import TransactionEnded
from shardq.storage.opening import open_store
from shardq.storage.store import Capabilities
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from tests.forking import forked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}?synchronous=normal&busy_timeout=0.1"


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("orders")


@pytest.fixture
def db(path: Path, queue: shardq.Queue) -> Iterator[sqlite3.Connection]:
    """A connection of the application, with a table of its own in the file of the queues."""
    db = sqlite3.connect(path, isolation_level=None, timeout=0.1)
    db.execute("CREATE TABLE paid (id)")
    yield db
    db.close()


def begin(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO paid VALUES (1)")


def paid(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM paid").fetchone()[0])


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_what_is_done_in_it_stands_or_falls_with_it(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection, end: str
) -> None:
    client.create_queue("others")
    queue.producer().send_many([b"one", b"two"])
    held = queue.consumer().receive(2)
    begin(db)
    with client.transaction(connection=db) as within:
        orders = within.queue("orders")
        producer = orders.producer()
        sent = [producer.send(b"three"), *producer.send_many([b"four", b"five"])]
        sent += [producer.send(b"six", dedupe_key="a"), producer.send(b"seven", unique_key="b")]
        sent.append(producer.send_stream(io.BytesIO(b"large")))
        orders.ack([held[0].receipt])
        orders.release([held[1].receipt])
        assert orders.counts().ready == 7
        assert orders.counts().in_flight == 0
        assert all(orders.get(each) for each in sent)
    assert queue.counts().ready == 0
    db.execute(end)
    if end == "ROLLBACK":
        assert (queue.counts().ready, queue.counts().in_flight, paid(db)) == (0, 2, 0)
        assert queue.producer().send(b"six again", dedupe_key="a") not in sent
        held.ack()
    else:
        assert (queue.counts().ready, queue.counts().in_flight, paid(db)) == (7, 0, 1)
        assert queue.producer().send(b"six again", dedupe_key="a") in sent


def test_messages_are_received_in_it(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    queue.producer().send(b"one")
    for end in ("ROLLBACK", "COMMIT"):
        begin(db)
        with client.transaction(connection=db) as within:
            message = within.queue("orders").consumer().pop()
            assert message is not None
            assert message.body == b"one"
        db.execute(end)
    assert (queue.counts().ready, queue.counts().in_flight, paid(db)) == (0, 0, 1)


def test_an_ack_in_it_of_what_somebody_else_has_acked_is_refused(
    client: shardq.Client, clock: ManualClock, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    # Given a message of which the lease was over, and whom it was delivered to after that
    queue.producer().send(b"one")
    (slow,) = queue.consumer(visibility_timeout=1).receive(1)
    clock.advance(2)
    (fast,) = queue.consumer().receive(1)
    # When both ack it, each beside a row of their own
    begin(db)
    client.transaction(connection=db).queue("orders").ack([fast.receipt])
    db.execute("COMMIT")
    begin(db)
    with pytest.raises(shardq.LeaseLost) as caught:
        client.transaction(connection=db).queue("orders").ack([slow.receipt])
    db.execute("ROLLBACK")
    # Then only one of them can commit
    assert caught.value.messages == (slow.receipt,)
    assert paid(db) == 1
    # And outside it is as ever
    queue.ack([slow.receipt])


def test_a_request_that_fails_leaves_nothing_in_the_transaction(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    queue.alter(max_messages=1)
    begin(db)
    with client.transaction(connection=db) as within:
        producer = within.queue("orders").producer()
        producer.send(b"one")
        with pytest.raises(shardq.InvalidMessage):
            producer.send("text")
        (message,) = within.queue("orders").consumer().receive(1)
        message.release()
        with pytest.raises(shardq.LeaseLost):
            within.queue("orders").ack([message.receipt])
        with pytest.raises(shardq.QueueFull):
            producer.send_many([b"two"] * 1_000)
    db.execute("COMMIT")
    assert queue.counts().ready == 1


def fill_up(db: sqlite3.Connection) -> None:
    """Leave room for some bodies."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 100}")


def interrupt_soon(db: sqlite3.Connection) -> None:
    """Interrupt a statement that writes, after some others."""
    written = itertools.count()
    db.set_trace_callback(
        lambda statement: db.interrupt() if statement.startswith("INSERT") and next(written) == 5 else None
    )


@pytest.mark.parametrize("end", [fill_up, interrupt_soon])
@pytest.mark.parametrize(
    "send",
    [
        lambda producer, bodies: producer.send_many(bodies),
        lambda producer, bodies: [producer.send(body) for body in bodies],
    ],
    ids=["send_many", "send"],
)
def test_when_sqlite_itself_has_rolled_it_back_nothing_is_said_to_be_stored(
    client: shardq.Client,
    queue: shardq.Queue,
    db: sqlite3.Connection,
    send: Callable[[shardq.Producer, list[bytes]], object],
    end: Callable[[sqlite3.Connection], None],
) -> None:
    begin(db)
    with client.transaction(connection=db) as within:
        producer = within.queue("orders").producer(bundle_messages=1)
        producer.send(b"one")
        end(db)
        with pytest.raises(TransactionEnded, match="rolled back all") as ended:
            send(producer, [b"x" * 100_000] * 12)
        assert not ended.value.retryable
        assert not db.in_transaction
        with pytest.raises(shardq.Closed):
            producer.send(b"two")
    assert (queue.counts().ready, paid(db)) == (0, 0)


def test_a_key_that_is_not_confirmed_does_not_hide_that_sqlite_has_rolled_it_back(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    db.execute("CREATE TRIGGER full BEFORE UPDATE ON dedupe BEGIN SELECT RAISE(ROLLBACK, 'full'); END")
    begin(db)
    with client.transaction(connection=db) as within, pytest.raises(TransactionEnded):
        within.queue("orders").producer().send(b"one", dedupe_key="one")
    assert (db.in_transaction, queue.counts().ready) == (False, 0)


def test_rows_and_texts_of_the_application_stay_as_it_wants_them(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    db.row_factory = lambda cursor, row: {"row": row}
    db.text_factory = bytes
    begin(db)
    with client.transaction(connection=db) as within:
        within.queue("orders").producer().send(b"one", headers={"a": "b"})
    assert db.execute("SELECT 'x'").fetchone() == {"row": (b"x",)}
    db.execute("COMMIT")
    assert queue.counts().ready == 1


def test_it_is_over_with_the_transaction(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    begin(db)
    within = client.transaction(connection=db)
    producer = within.queue("orders").producer()
    db.execute("COMMIT")
    with pytest.raises(shardq.Closed, match="the transaction of the application has ended"):
        producer.send(b"one")
    db.close()
    with pytest.raises(shardq.Closed):
        producer.send(b"one")
    within.close()
    with pytest.raises(shardq.Closed, match=r"or client\.transaction\(\)"):
        within.queue("orders")
    assert queue.counts().ready == 0


def test_another_thread_has_no_part_in_it(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    begin(db)
    producer = client.transaction(connection=db).queue("orders").producer()
    errors: list[BaseException] = []

    def send() -> None:
        try:
            producer.send(b"one")
        except shardq.StoreUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert "by the thread that has joined it" in str(errors[0])
    db.execute("COMMIT")
    assert queue.counts().ready == 0


def test_a_forked_child_has_no_part_in_it(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    begin(db)
    producer = client.transaction(connection=db).queue("orders").producer()

    def send() -> str:
        with pytest.raises(shardq.StoreUnavailable, match="by no forked child"):
            producer.send(b"child")
        return "refused"

    assert forked(send) == "refused"
    producer.send(b"parent")
    db.execute("COMMIT")
    assert [each.body for each in queue.peek()] == [b"parent"]


def test_what_is_no_transaction_of_this_file_is_refused(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection, tmp_path: Path
) -> None:
    with pytest.raises(shardq.InvalidSetting, match="is in no transaction: begin one first"):
        client.transaction(connection=db)
    with pytest.raises(shardq.InvalidSetting, match=r"is a str: give the sqlite3\.Connection"):
        client.transaction(connection="db")
    for place in (":memory:", tmp_path / "other.db"):
        other = sqlite3.connect(place, isolation_level=None)
        other.execute("BEGIN")
        with pytest.raises(shardq.InvalidSetting, match="not to"):
            client.transaction(connection=other)
        other.close()


def test_a_store_without_them_says_so(url: str, clock: ManualClock, db: sqlite3.Connection) -> None:
    class Without(WrappedStore):
        @property
        def capabilities(self) -> Capabilities:
            return msgspec.structs.replace(self.inner.capabilities, transactions=False)

    begin(db)
    with (
        shardq.Client(Without(open_store(url, clock))) as client,
        pytest.raises(shardq.UnsupportedByStore, match="takes no part in transactions of the application"),
    ):
        client.transaction(connection=db)
    db.execute("ROLLBACK")


def test_sends_of_other_clients_wait_for_it_and_are_not_mixed_with_it(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    begin(db)
    with client.transaction(connection=db) as within:
        within.queue("orders").producer().send(b"one")
        with pytest.raises(shardq.StoreUnavailable, match="locked"):
            queue.producer().send(b"two")
    db.execute("ROLLBACK")
    queue.producer().send(b"two")
    assert [each.body for each in queue.peek()] == [b"two"]


def test_who_waits_is_told_of_what_was_committed(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    consumer = queue.consumer()
    assert not consumer.receive(1)
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.extend(consumer.receive(1, wait=30).bodies))
    thread.start()
    begin(db)
    with client.transaction(connection=db) as within:
        within.queue("orders").producer().send(b"one")
    db.execute("COMMIT")
    thread.join(30)
    assert received == [b"one"]


@pytest.mark.long
def test_nothing_is_left_of_a_transaction_in_memory(
    client: shardq.Client, queue: shardq.Queue, db: sqlite3.Connection
) -> None:
    def objects_after(transactions: int) -> int:
        for _ in range(transactions):
            begin(db)
            with client.transaction(connection=db) as within:
                within.queue("orders").producer().send(b"one")
            db.execute("ROLLBACK")
        gc.collect()
        return len(gc.get_objects())

    before = objects_after(5)
    # Weak references come and go by the hundred; what one transaction leaves is there after each time
    assert min(objects_after(200) for _ in range(3)) < before + 100
