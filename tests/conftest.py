"""What all tests share."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import shardq
from shardq.context.identity import ConsumerIdentity
from shardq.sharding import ownership
from shardq.testing import ManualClock
from tests.alike_appends import alike_appends
from tests.cassandra_server import cassandra_url, narrow_cassandra_url
from tests.local_server import begin_lasting_servers, docker_answers, end_lasting_servers
from tests.mongodb_server import mongodb_url, replica_set_url
from tests.redis_server import guarded_redis, own_redis, redis_url
from tests.sampling import WIDE, every_third

# Here and nowhere else: a fixture of two conftests would start two servers.
__all__ = [
    "alike_appends",
    "cassandra_url",
    "guarded_redis",
    "mongodb_url",
    "narrow_cassandra_url",
    "own_redis",
    "redis_url",
    "replica_set_url",
]

LONG = {"bench", "crash", "demo", "faults", "kills", "model", "packaging", "soak"}
"""Folders of tests that take seconds each, most of them because they go through every step of something."""

STREAMS = {"test_claim_streams.py", "test_stream_sinks.py", "test_wrong_use.py"}
"""Files that take one half of the time of Spark's tests: each half has a Spark and a process of its own."""

TWINS = {
    "test_cassandra_paxos_v1.py",
    "test_mongodb.py",
    "test_mongodb_kills.py",
    "test_mongodb_lost_responses.py",
}
"""Files of tests for a server that is like another one."""

HISTORIES = "test_a_store_agrees_with_the_model"
"""A contract that tries random histories: minutes on a server that is busy."""

SLOW = {
    "test_child_processes.py",
    "test_contended_unique_keys.py",
    "test_features_together.py",
    "test_forks.py",
    "test_interrupted_bulk_sends.py",
    "test_interrupted_senders.py",
    "test_killed_processes.py",
    "test_pipeline_processes.py",
    "test_poison.py",
    "test_pool.py",
    "test_power_cuts.py",
    "test_processes.py",
    "test_redis_signals.py",
    "test_sqlite_processes.py",
}
"""Files of tests that start processes, let real time pass, or go through many histories: a second each."""

_names = itertools.count(1)

# How long an example takes says how busy the machine is.
settings.register_profile(
    "shardq",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("shardq")

# A shell that runs the tests in its background lets them ignore this, and with them what they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes of this run share servers that end with it."""
    folder = begin_lasting_servers()
    if folder is not None:
        config.add_cleanup(lambda: end_lasting_servers(folder))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test was run again: one that fails once in a while may have found a defect that is rare."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_sep("_", f"first try of {report.nodeid}")
        terminalreporter.write_line(str(report.longrepr))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no folder of which no test is chosen: every process would do so."""
    if collection_path.parent != Path(__file__).parent:
        return None
    mark = "long" if collection_path.name in LONG else collection_path.name
    return True if mark in ("long", "spark") and f"not {mark}" in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put Spark and long tests first, so that none is left at the end while the other processes have nothing to do.

    What is dear to start is given to few processes, and a file that is marked so to one.
    """
    _leave_out_twins(items)
    if not WIDE:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("wide")])
        items[:] = [item for item in items if not item.get_closest_marker("wide")]
    in_docker = docker_answers()
    for item in items:
        if _is_long(item):
            item.add_marker(pytest.mark.long)
        if item.name.startswith(HISTORIES):
            item.add_marker(pytest.mark.timeout(900))
        if WIDE:  # all steps of something, maybe on a machine that is busy
            item.add_marker(pytest.mark.timeout(3600), append=False)
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("spark"):
            half = "streams" if item.path.name in STREAMS else "jobs"
            item.add_marker(pytest.mark.xdist_group(f"spark {half}"))
        elif in_docker and item.get_closest_marker("cassandra"):
            item.add_marker(pytest.mark.xdist_group("cassandra"))
        elif item.get_closest_marker("one_process"):
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("spark", "long")])


def _leave_out_twins(items: list[pytest.Item]) -> None:
    """Let servers that are like another one meet every third of the tests that both go through.

    A single MongoDB server is like a replica set but for transactions, and the older Paxos is like the newer one.
    """
    twins = [item for item in items if item.path.name in TWINS and "[replica set" not in item.name]
    sample = {twins[number] for number in every_third(len(twins))}
    for item in twins:
        if item not in sample:
            item.add_marker(pytest.mark.wide)


def _is_long(item: pytest.Item) -> bool:
    """Tell whether `make test` leaves the test to `make test-long`."""
    if item.path.parent.name in LONG or item.path.name.endswith("_has_teeth.py"):
        return True
    return item.name.startswith(HISTORIES)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a fresh store."""
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until it is advanced."""
    return ManualClock()


@pytest.fixture
def connect(url: str, clock: ManualClock) -> Iterator[Callable[[], shardq.Client]]:
    """Opens independent clients of one store, on the manual clock."""
    clients: list[shardq.Client] = []

    def open_client() -> shardq.Client:
        client = shardq.connect(url, clock=clock, retry_seconds=0.5)
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[[], shardq.Client]) -> shardq.Client:
    """A client of a fresh store, on the manual clock."""
    return connect()


@pytest.fixture
def shards_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which shards are whose follows from the names of the consumers, so that it is the same in every run."""
    weight = ownership._weight

    def by_name(member: str, number: int) -> bytes:
        identity = ConsumerIdentity.read(member)
        return weight(member if identity is None else identity.name, number)

    monkeypatch.setattr(ownership, "_weight", by_name)


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    """A fresh queue."""
    return client.create_queue(f"queue-{next(_names)}")
