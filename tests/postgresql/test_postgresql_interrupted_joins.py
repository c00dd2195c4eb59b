"""A request in a transaction of the application that is interrupted is done, or nothing of the transaction is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import shardq
from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import OutcomeUnknown
from shardq.storage.abilities import TransactionEnded
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Append
from shardq.testing import BundleFactory
from tests.steps import EXPECTED, STEPS, clear, counted, prepared

pytestmark = pytest.mark.server


class Interrupted(psycopg.Connection[Any]):
    """Is interrupted, by any error, when so many more of its requests were answered."""

    left = -1
    error: BaseException = KeyboardInterrupt()

    def wait(self, *args: Any, **options: Any) -> Any:
        answer = super().wait(*args, **options)
        self.left -= 1
        if self.left == 0:
            raise self.error
        return answer


@pytest.fixture
def app(schema_url: str) -> Iterator[Interrupted]:
    with Interrupted.connect(parse(schema_url)[0].conninfo) as connection:
        yield connection
        connection.left = -1
        connection.rollback()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OutcomeUnknown("x")], ids=repr)
@pytest.mark.parametrize("time_shard", [0, GROUP_TIME_SHARD], ids=["", "of groups"])
@pytest.mark.parametrize("step", ["append", "acknowledge", "extend", "release", "forward"])
def test_a_request_is_done_or_spoils_the_transaction(
    store: PostgresStore, shard: Shard, app: Interrupted, step: str, time_shard: int, error: BaseException
) -> None:
    shard = Shard(shard.queue, time_shard, 0)
    other = Shard(shard.queue, 0, 1)  # what the application has done before
    for requests in range(1, 60):
        given = prepared(step, store, shard)
        before = counted(store, shard)
        joined = store.within(app)
        joined.append(Append(other, (BundleFactory(store.now)(1),), fresh=True))
        app.error, app.left = error, requests
        told: BaseException | None = None
        try:
            STEPS[step](joined, shard, given)
        except (KeyboardInterrupt, MemoryError, OutcomeUnknown, TransactionEnded) as caught:
            told = caught
        app.left = -1
        app.commit()
        others = store.count(other).ready
        assert counted(store, shard) in ({EXPECTED[step]} if told is None else {EXPECTED[step], before})
        assert (
            others == 0 if isinstance(told, TransactionEnded) else others or counted(store, shard) == before
        )
        clear(store, shard)
        clear(store, other)
        if told is None:
            return
    pytest.fail("the step has no end")


def ack_one(orders: shardq.Queue, receipt: str) -> None:
    orders.ack([receipt])


def send_with_dedupe_key(orders: shardq.Queue, receipt: str) -> None:
    orders.producer().send(b"new", dedupe_key=receipt)


@pytest.mark.parametrize(("step", "done"), [(ack_one, (0, 0)), (send_with_dedupe_key, (1, 1))])
def test_no_request_hides_that_the_server_has_ended_the_transaction(
    schema_url: str, app: Interrupted, step: Callable[[shardq.Queue, str], None], done: tuple[int, int]
) -> None:
    app.error = psycopg.errors.QueryCanceled("by an administrator")
    with shardq.connect(schema_url) as client:
        queue = client.create_queue("orders", shards=1, time_shards=1, exist_ok=True)
        for requests in range(1, 60):
            queue.producer().send(b"there", unique_key="there")
            (message,) = queue.consumer().receive(1)
            told: TransactionEnded | None = None
            with client.transaction(connection=app) as within:
                app.left = requests
                try:
                    step(within.queue("orders"), message.receipt)
                except TransactionEnded as error:
                    told = error
            interrupted, app.left = app.left <= 0, -1
            app.commit()
            counts = queue.counts()
            assert (counts.ready, counts.in_flight) == ((0, 1) if told else done)
            queue.purge()
            message.ack()
            if not interrupted:
                return
    pytest.fail("the step has no end")
