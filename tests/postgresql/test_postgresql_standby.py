"""A primary with a standby: commits that wait for it, and what is there after a failover."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

import shardq  # noqa: E402
from shardq.base.shard import Shard  # noqa: E402
from shardq.errors import OutcomeUnknown, StoreUnavailable  # noqa: E402
from shardq.storage.postgresql.store import PostgresStore  # noqa: E402
from shardq.storage.postgresql.url import parse  # noqa: E402
from shardq.storage.requests import Acknowledge, Append, Claim, QueueRecord, Span  # noqa: E402
from shardq.testing import BundleFactory  # noqa: E402
from tests.local_server import local_server, server_pid  # noqa: E402
from tests.processes import eventually  # noqa: E402
from tests.steps import MINUTE  # noqa: E402

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
PATIENCE = 60.0


class Pair:
    """A primary and its standby."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        hosts = parse(url)[0].hosts
        self.primary, self.standby = (int(host.split(":")[1]) for host in hosts)

    def connect(self, port: int) -> Any:
        return psycopg.connect(f"postgresql://shardq@127.0.0.1:{port}/postgres", autocommit=True)

    def wait_for(self, names: str) -> None:
        """Let commits wait for these standbys, from now on."""
        with self.connect(self.primary) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            connection.execute("SELECT pg_reload_conf()")
            assert eventually(lambda: self.shown("synchronous_standby_names") == names), "the setting holds"

    def shown(self, name: str) -> object:
        with self.connect(self.primary) as connection:
            return connection.execute(f"SHOW {name}").fetchone()[0]

    @contextmanager
    def waiting(self, names: str) -> Iterator[None]:
        self.wait_for(names)
        try:
            yield
        finally:
            self.wait_for("")


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with local_server("postgresql", "--without-fsync", "--standby") as (url, folder):
        yield Pair(url, folder)


def spans(store: PostgresStore, shard: Shard, token: bytes) -> Sequence[Span]:
    held = store.claim(Claim(shard, token, 10, MINUTE)).slices
    return [Span(each.bundle.id, each.first, each.count, token) for each in held]


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
@pytest.mark.parametrize("step", ["send", "send again", "ack", "ack of a part"])
def test_a_commit_that_stops_waiting_for_its_standby_is_not_told_as_done(
    pair: Pair, step: str, how: str
) -> None:
    store, token = PostgresStore(parse(pair.url)[0]), os.urandom(16)
    shard = Shard(f"q{token.hex()}", 0, 0)
    store.create_queue(QueueRecord(shard.queue, b"", 1))
    bundle = BundleFactory(store.now)(2)
    do: Callable[[], object]
    if step.startswith("send"):
        append = Append(shard, (bundle,), fresh=step == "send")
        do, after = (lambda: store.append(append)), (2, 0)
    else:
        store.append(Append(shard, (bundle,)))
        (held,) = spans(store, shard, token)
        part = held if step == "ack" else Span(held.bundle_id, 0, 1, token)
        do, after = (lambda: store.acknowledge(Acknowledge(shard, (part,)))), (0, 2 - part.count)
    told: list[BaseException | None] = []

    def run() -> None:
        try:
            do()
            told.append(None)
        except BaseException as error:
            told.append(error)

    with pair.waiting("absent"), pair.connect(pair.primary) as connection:
        thread = threading.Thread(target=run)
        thread.start()
        stop = f"SELECT {how}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        assert eventually(lambda: bool(connection.execute(stop).fetchall())), "it waits for the standby"
        thread.join()
    assert [type(error) for error in told] == [OutcomeUnknown]
    do()  # is there as if it had been told
    counts = store.count(shard)
    assert (counts.ready, counts.in_flight) == after
    store.drop_queue(shard.queue)
    store.close()


@pytest.mark.parametrize("level", ["local", "remote_write", "off"])
def test_the_doctor_warns_of_commits_that_a_failover_may_undo(pair: Pair, level: str) -> None:
    with pair.waiting("absent"), pair.connect(pair.primary) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute("CREATE ROLE hasty LOGIN SUPERUSER")
        connection.execute(f"ALTER ROLE hasty SET synchronous_commit = {level}")
        try:
            store = PostgresStore(parse(pair.url.replace("shardq@", "hasty@"))[0])
            found = {each.name: each for each in store.diagnose()}
            store.close()
        finally:
            connection.execute("DROP ROLE hasty")
    assert found["synchronous_commit"].warning or not found["synchronous_commit"].ok
    assert found["synchronous_commit"].remedy


@pytest.mark.parametrize("level", ["error", "debug5"])
def test_a_role_that_wants_other_messages_is_told_of_commits_that_stop_waiting(
    pair: Pair, level: str
) -> None:
    owner = PostgresStore(parse(pair.url)[0])
    owner.create_schema()
    owner.close()
    with pair.connect(pair.primary) as connection:
        connection.execute("CREATE ROLE silent LOGIN SUPERUSER")
        connection.execute(f"ALTER ROLE silent SET client_min_messages = {level}")
        try:
            store = PostgresStore(parse(pair.url.replace("shardq@", "silent@"))[0])
            shard = Shard(f"q{os.urandom(5).hex()}", 0, 0)
            store.create_queue(QueueRecord(shard.queue, b"", 1))
            append = Append(shard, (BundleFactory(store.now)(1),))
            with pair.waiting("absent"), ThreadPoolExecutor() as threads:
                appended = threads.submit(store.append, append)
                stop = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                assert eventually(lambda: bool(connection.execute(stop).fetchall())), (
                    "it waits for the standby"
                )
                assert isinstance(appended.exception(PATIENCE), OutcomeUnknown)
            store.close()
        finally:
            connection.execute("DROP ROLE silent")


def test_a_standby_alone_is_refused_with_a_remedy(pair: Pair) -> None:
    only = pair.url.replace(f"127.0.0.1:{pair.primary},", "")
    store = PostgresStore(parse(only)[0])
    with pytest.raises(StoreUnavailable, match="takes no writes: name the primary") as refused:
        store.ping()
    assert refused.value.retryable
    assert not store.diagnose()[0].ok
    looking = PostgresStore(parse(f"{only}?target_session_attrs=any")[0])
    assert not {each.name: each for each in looking.diagnose()}["role"].ok
    store.close()
    looking.close()


def test_after_a_failover_everything_that_was_confirmed_is_there_once(pair: Pair) -> None:
    sent: list[str] = []
    with pair.connect(pair.primary) as connection:
        assert eventually(lambda: bool(connection.execute("SELECT 1 FROM pg_stat_replication").fetchall())), (
            "the standby follows"
        )
    pair.wait_for("*")
    with shardq.connect(pair.url, retry_seconds=PATIENCE) as client:
        queue = client.create_queue(f"f{os.urandom(5).hex()}", shards=2, time_shards=1)
        producer, over = queue.producer(), threading.Event()

        def send() -> None:
            while not over.is_set():
                sent.append(producer.send(b"%d" % len(sent)))

        thread = threading.Thread(target=send)
        thread.start()
        assert eventually(lambda: len(sent) > 50), "some are sent"
        os.kill(server_pid(pair.folder, pair.primary), signal.SIGKILL)
        with pair.connect(pair.standby) as connection:
            connection.execute("SELECT pg_promote()")
        before = len(sent)
        assert eventually(lambda: len(sent) > before + 50), "more are sent"
        over.set()
        thread.join()
        got: list[str] = []
        with queue.consumer() as consumer:
            while batch := consumer.receive(500, wait=1):
                got += [message.id for message in batch]
                batch.ack()
        assert sorted(got) == sorted(sent)
        assert len(set(sent)) == len(sent)
        assert {each.name: each for each in client.diagnose()}["role"].ok
        client.delete_queue(queue.name)
