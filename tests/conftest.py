"""What all tests share."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

import shardq
import tests.gate
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.sharding import ownership
from shardq.testing import ManualClock
from tests.alike_appends import alike_appends
from tests.cassandra_server import cassandra_url, narrow_cassandra_url
from tests.local_server import begin_lasting_servers, docker_answers, end_lasting_servers
from tests.mongodb_server import mongodb_url, replica_set_url
from tests.postgresql_server import postgresql_url
from tests.redis_server import guarded_redis, own_redis, redis_url

# Here and nowhere else: a fixture of two conftests would start two servers.
__all__ = [
    "alike_appends",
    "cassandra_url",
    "guarded_redis",
    "mongodb_url",
    "narrow_cassandra_url",
    "own_redis",
    "postgresql_url",
    "redis_url",
    "replica_set_url",
]

LONG = {
    "backups", "bench", "cassandra", "crash", "demo", "faults", "kills", "model", "mongodb", "soak",
}  # fmt: skip
"""Folders of tests that take seconds each, or are about one store's own code."""

STORES = {"conformance", "spark"}
"""Folders with what every store has to do: `make test` runs it on servers, a contract with its first parameters.

Other tests on a server are long.
"""

AGAIN = "test_sqlite_of_applications.py"
"""What every store has to do, once more on SQLite."""

REPEATED = {
    "test_broken_off.py",
    "test_contended_unique_keys.py",
    "test_copies.py",
    "test_cost_of_groups.py",
    "test_every_page_in_a_browser.py",
    "test_faults.py",
    "test_features_together.py",
    "test_forged_tasks.py",
    "test_interrupted_threads.py",
    "test_large_groups.py",
    "test_long_data_memory.py",
    "test_memory_stores.py",
    "test_mongodb_cost.py",
    "test_mongodb_guarded.py",
    "test_mongodb_lost_responses.py",
    "test_mongodb_tool.py",
    "test_mongodb_waiting.py",
    "test_promises_of_the_sync_client.py",
    "test_sdist.py",
    "test_served_processes.py",
    "test_site_in_a_browser.py",
    "test_sqlite_processes.py",
    "test_tail_calls.py",
    "test_unconfirmed_keys.py",
    "test_workers_of_several_queues.py",
    "test_workflow_retries.py",
}
"""Files that repeat one rule many times, or start many processes."""

HISTORIES = "test_a_store_agrees_with_the_model"
"""A contract that tries random histories: minutes on a server that is busy."""

STREAMS = {"test_claim_streams.py", "test_stream_sinks.py", "test_wrong_use.py"}
"""Files that take one half of the time of Spark's tests: each half has a Spark and a process of its own."""

PARTS = 3
"""The long tests are cut into this many parts. CI runs one of them; the day says which."""

_names = itertools.count(1)

# How long an example takes says how busy the machine is.
settings.register_profile(
    "shardq",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("shardq")

# A shell that runs the tests in its background lets them ignore these, and with them what they start and interrupt.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes of this run share servers that end with it. CI leaves no store out."""
    config.pluginmanager.register(tests.gate)
    missing = [
        name for name in ("cassandra", "psycopg", "pymongo", "pyspark", "redis") if find_spec(name) is None
    ]
    if missing and os.environ.get("CI"):
        raise pytest.UsageError(f"CI tests every store: install {', '.join(missing)}")
    folder = begin_lasting_servers()
    if folder is not None:
        config.add_cleanup(lambda: end_lasting_servers(folder))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no folder of which no test is chosen: every process would do so."""
    if collection_path.parent != Path(__file__).parent:
        return None
    mark = "long" if collection_path.name in LONG else collection_path.name
    return True if mark in ("long", "spark") and f"not {mark}" in config.option.markexpr else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select a part of the long tests, and that of the gate."""
    tests.gate.add_options(parser)
    parser.addoption("--part", type=int, choices=range(PARTS), help="run this third of the long tests only")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark the tests that take long. Order those that are chosen so that no core is idle, not even at the end.

    What is costly to start is given to few processes.
    """
    in_docker = docker_answers()
    contracts: set[tuple[object, ...]] = set()
    spared: list[pytest.Item] = []
    for item in items:
        is_further = _is_further_variant(item, contracts)
        if is_further and "[standalone" in item.name:
            spared.append(item)  # the replica set runs each variant
        if is_further or _is_long(item):
            item.add_marker(pytest.mark.long)
        if item.name.startswith(HISTORIES):
            item.add_marker(pytest.mark.timeout(900))
        if item.get_closest_marker("spark"):
            half = "streams" if item.path.name in STREAMS else "jobs"
            item.add_marker(pytest.mark.xdist_group(f"spark {half}"))
        elif in_docker and item.get_closest_marker("server") and "cassandra" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("cassandra"))
    _deselect(config, items, spared)
    _without_other_parts(config, items)
    yield
    items[:] = _in_order(items)


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return those first that take longest, and spread what waits for servers among what keeps a core busy.

    The folders of these are in reverse: tests of workers wait for processes, and those of the API never wait.
    """
    longest = dict.fromkeys(
        item for name in ("spark", "timeout") for item in items if item.get_closest_marker(name)
    )
    rest = [item for item in items if item not in longest]
    waiting = [item for item in rest if item.get_closest_marker("server")]
    busy = [item for item in reversed(rest) if not item.get_closest_marker("server")]
    places = {item: place / len(kind) for kind in (waiting, busy) for place, item in enumerate(kind)}
    return [*longest, *sorted(rest, key=places.__getitem__)]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Measure no coverage while each process of a run collects the tests: other tests import all modules."""
    with _unmeasured() if hasattr(session.config, "workerinput") else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure no coverage of what runs the same code as tests on SQLite."""
    is_again = item.get_closest_marker("server") or item.path.name == AGAIN
    with _unmeasured() if is_again else nullcontext():
        return (yield)


@contextmanager
def _unmeasured() -> Iterator[None]:
    """Measure no coverage, here and in the processes that are started meanwhile: it doubles the time."""
    measuring = Coverage.current()
    if measuring is None:
        yield
        return
    measuring.stop()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
            yield
    finally:
        measuring.start()


def _without_other_parts(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests of the other parts: neighbours are alike, so the parts take about equally long.

    Those with a time limit of their own, which take longest, are shared out by themselves.
    """
    part = config.getoption("part")
    if part is not None:
        long = [item for item in items if item.get_closest_marker("long")]
        long.sort(key=lambda item: item.get_closest_marker("timeout") is None)
        _deselect(config, items, set(long) - set(long[part::PARTS]))


def _deselect(config: pytest.Config, items: list[pytest.Item], others: Collection[pytest.Item]) -> None:
    """Leave out tests, and let pytest count them."""
    left_out = set(others)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _is_long(item: pytest.Item) -> bool:
    """Tell whether `make test` leaves the test to `make test-long`."""
    folder, file = item.path.parent.name, item.path.name
    if folder in LONG or file in REPEATED or file.endswith("_has_teeth.py"):
        return True
    if item.name.startswith(HISTORIES) or "[standalone" in item.name:  # a replica set can do all that it can
        return True
    return item.get_closest_marker("server") is not None and folder not in STORES


def _is_further_variant(item: pytest.Item, contracts: set[tuple[object, ...]]) -> bool:
    """Tell whether a contract comes again on a server, or on SQLite, with other parameters. Notes the first of each."""
    is_again = item.get_closest_marker("server") is not None or item.path.name == AGAIN
    if item.path.parent.name != "conformance" or not is_again:
        return False
    name, server = getattr(item, "originalname", item.name), "[standalone" in item.name
    contract = (item.path, getattr(item, "cls", None), name, server)
    is_further = contract in contracts
    contracts.add(contract)
    return is_further


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
    weight = ownership.weight

    def by_name(member: str, number: int) -> bytes:
        identity = ConsumerIdentity.read(member)
        return weight(member if identity is None else identity.name, number)

    monkeypatch.setattr(ownership, "weight", by_name)


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    """A fresh queue."""
    return client.create_queue(f"queue-{next(_names)}")


@pytest.fixture
def begun_threads() -> Callable[..., list[threading.Thread]]:
    """Return the threads that began in this test and have a name with a given prefix.

    Threads of earlier tests may still run, as clients that those left open are collected late.
    """
    before = set(threading.enumerate())

    def begun(*prefixes: str) -> list[threading.Thread]:
        return [
            each
            for each in threading.enumerate()
            if each not in before and each.name.startswith(prefixes or "")
        ]

    return begun
