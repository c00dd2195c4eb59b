"""What becomes of requests that a PostgreSQL server does not answer, cancels or cuts off."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import quote

import psycopg
import pytest

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.migrations import migrations
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Acknowledge, Append, Claim, Fenced, Span
from shardq.testing import BundleFactory, ManualClock
from tests.postgresql.lossy_proxy import PostgresProxy
from tests.processes import eventually
from tests.steps import EXPECTED, MINUTE, STEPS, clear, counted, prepared

pytestmark = pytest.mark.server
TOKEN = b"t" * 16


def sleep(sql: Sql, *_: object) -> None:
    sql.one("SELECT pg_sleep(20)")


def backends(url: str, among: str = "true") -> list[int]:
    """Return the processes that serve shardq, other than those of other tests."""
    address, _ = parse(url)
    with psycopg.connect(address.conninfo) as connection:
        found = connection.execute(
            f"SELECT pid FROM pg_stat_activity WHERE application_name = 'faulty' AND {among}"
        )
        return [pid for (pid,) in found]


def test_a_server_that_does_not_answer_is_given_up(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    open_store().create_schema()
    store = open_store(f"{schema_url}&timeout=0.5")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="has not answered") as unread:
        store.session.read(sleep)
    assert unread.value.retryable
    with pytest.raises(OutcomeUnknown, match="has not answered"):
        store.session.statement(sleep)
    assert time.monotonic() - began < 15
    store.ping()


def test_a_request_that_is_cancelled_may_be_repeated(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    def cancelled(sql: Sql, *_: object) -> None:
        sql.script("SET LOCAL statement_timeout = 100")
        sleep(sql)

    store = open_store(schema_url)
    with pytest.raises(StoreUnavailable, match="statement_timeout") as raised:
        store.session.write(cancelled)
    assert raised.value.retryable
    store.ping()


def test_connections_that_were_cut_off_are_replaced_after_one_failure(
    open_store: Callable[..., PostgresStore], store: PostgresStore, shard: Shard, schema_url: str
) -> None:
    cut = open_store(f"{schema_url}&application_name=faulty")
    make = BundleFactory(store.now)
    cut.append(Append(shard, (make(1),)))
    with psycopg.connect(parse(schema_url)[0].conninfo, autocommit=True) as connection:
        for pid in backends(schema_url):
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    bundle = make(1)
    with pytest.raises((StoreUnavailable, OutcomeUnknown)) as failed:
        cut.append(Append(shard, (bundle,)))
    assert failed.value.retryable
    cut.append(Append(shard, (bundle,)))
    assert store.count(shard).ready == 2


def test_a_statement_that_is_given_up_is_cancelled(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    store = open_store(f"{schema_url}&timeout=0.5&application_name=faulty")
    store.create_schema()
    with pytest.raises(OutcomeUnknown):
        store.session.statement(sleep)
    until = time.monotonic() + 10  # half of what it would sleep
    while backends(schema_url, "state = 'active'"):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_ack_of_what_another_transaction_has_locked_is_given_up_soon(
    open_store: Callable[..., PostgresStore], store: PostgresStore, shard: Shard, schema_url: str
) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(1),)))
    (held,) = store.claim(Claim(shard, TOKEN, 1, MINUTE)).slices
    ack = Acknowledge(shard, (Span(held.bundle.id, 0, 1, TOKEN),))
    address, _ = parse(schema_url)
    with psycopg.connect(address.conninfo) as other:
        other.execute(f"SELECT 1 FROM {address.schema}.slice WHERE token IS NOT NULL FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="locked by another transaction") as raised:
            open_store(f"{schema_url}&timeout=10").acknowledge(ack)
        assert raised.value.retryable
    assert store.acknowledge(ack) == Fenced()


def test_a_server_that_takes_no_more_writes_is_left_after_one_failure(
    store: PostgresStore, shard: Shard
) -> None:
    bundle = BundleFactory(store.now)(1)
    store.session.read(lambda sql: sql.script("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
    with pytest.raises(StoreUnavailable, match="takes no writes") as raised:
        store.append(Append(shard, (bundle,), fresh=True))
    assert raised.value.retryable
    store.append(Append(shard, (bundle,)))
    assert store.count(shard).ready == 1


def test_a_claim_whose_long_data_could_not_be_read_may_have_been_made(
    open_store: Callable[..., PostgresStore],
    store: PostgresStore,
    shard: Shard,
    proxy: PostgresProxy,
    proxied: str,
) -> None:
    failing = open_store(proxied)
    assert not failing.claim(Claim(shard, os.urandom(16), 1, MINUTE)).slices
    store.append(Append(shard, (BundleFactory(store.now)(1, data=b"x" * 5000),)))
    proxy.arm(1)
    with pytest.raises(OutcomeUnknown):
        failing.claim(Claim(shard, TOKEN, 1, MINUTE))
    assert proxy.failed
    proxy.arm(-1)
    (held,) = failing.claim(Claim(shard, TOKEN, 1, MINUTE)).slices
    assert (held.deliveries, len(held.bundle.data)) == (1, 5000)


PANIC = {"S": "PANIC", "V": "PANIC", "C": "53100", "M": "could not write to file: No space left on device"}


class Panicking(PostgresProxy):
    """The server says, when it has carried out the request, that it has to end."""

    def _responses(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        while message := self.read_response(server):
            if lost.is_set():
                fields = b"".join(f"{kind}{text}\0".encode() for kind, text in PANIC.items()) + b"\0"
                client.sendall(b"E" + struct.pack(">I", len(fields) + 4) + fields)
                return
            client.sendall(message)


def test_a_server_that_ends_while_it_commits_may_have_stored_the_message(
    open_store: Callable[..., PostgresStore],
    store: PostgresStore,
    shard: Shard,
    proxied: str,
    proxy: PostgresProxy,
    schema_url: str,
) -> None:
    host, port = parse(schema_url)[0].hosts[0].split(":")
    make = BundleFactory(store.now)
    with closing(Panicking(host, int(port))) as panicking:
        failing = open_store(proxied.replace(f":{proxy.port}", f":{panicking.port}"))
        failing.append(Append(shard, (make(1),)))
        panicking.arm(0)
        with pytest.raises(OutcomeUnknown, match="No space left"):
            failing.append(Append(shard, (make(1),), fresh=True))
        assert store.count(shard).ready == 2


class FailingClock(ManualClock):
    """Says once, after so many answers, that the server cannot be asked."""

    left = -1

    def now(self) -> int:
        self.left -= 1
        if self.left == -1:
            raise StoreUnavailable("the plan")
        return super().now()


@pytest.mark.parametrize("step", ["append", "acknowledge", "release"])
def test_what_was_done_is_not_told_as_undone_when_the_clock_cannot_be_read(
    schema_url: str, shard: Shard, step: str
) -> None:
    clock = FailingClock()
    store = PostgresStore(parse(schema_url)[0], clock=clock)
    for reads in range(20):
        given = prepared(step, store, shard)
        before = counted(store, shard)
        clock.left = reads
        try:
            STEPS[step](store, shard, given)
            undone = False
        except StoreUnavailable:
            undone = True
        failed, clock.left = clock.left < 0, -1
        assert counted(store, shard) == (before if undone else EXPECTED[step]), reads
        clear(store, shard)
        if not failed:
            break
    store.close()


def test_an_interrupt_while_the_schema_is_applied_stays_one_though_the_connection_is_lost(
    open_store: Callable[..., PostgresStore], schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"{schema_url}_not&application_name=faulty")
    asked: list[str] = []

    def interrupted(name: str) -> object:
        asked.append(name)
        if len(asked) == 1:
            return migrations(name)
        with psycopg.connect(parse(schema_url)[0].conninfo, autocommit=True) as connection:
            for pid in backends(schema_url):
                connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        raise KeyboardInterrupt

    monkeypatch.setattr("shardq.storage.postgresql.schema.migrations", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.create_schema()


@pytest.mark.parametrize("setting", ["statement_timeout=1000", "default_transaction_isolation=serializable"])
def test_clients_apply_the_schema_together_whatever_their_role_has_set(
    open_store: Callable[..., PostgresStore], postgresql_url: str, setting: str
) -> None:
    name = f"t{os.urandom(5).hex()}"
    stores = [
        open_store(f"{postgresql_url}?schema={name}&options={quote(f'-c {setting}')}") for _ in range(2)
    ]
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    with psycopg.connect(postgresql_url, autocommit=True) as other, ThreadPoolExecutor() as threads:
        other.execute("SELECT pg_advisory_lock(hashtextextended(%s, 7526476))", (name,))
        applied = [threads.submit(store.create_schema) for store in stores]
        assert eventually(lambda: other.execute(waits).rowcount == len(stores) or applied[0].done())
        time.sleep(1.5)  # longer than the timeout
        other.execute("SELECT pg_advisory_unlock_all()")
        assert [each.exception(60) for each in applied] == [None, None]
        other.execute(f"DROP SCHEMA {name} CASCADE")
