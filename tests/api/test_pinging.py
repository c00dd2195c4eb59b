"""A ping is answered, or says within a bound why there is nobody to answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore

SHORT = 0.2  # seconds


@pytest.fixture
def deaf_server() -> Iterator[int]:
    """The port of a server that takes connections and never says a word, as one that was stopped."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def ping(url: str, seconds: float = SHORT) -> shardq.StoreUnavailable:
    """The error of a ping."""
    with shardq.connect(url) as client:
        with pytest.raises(shardq.StoreUnavailable) as caught:
            client.ping(timeout=seconds)
        return caught.value


def test_a_file_that_is_there_or_can_be_made_answers(url: str) -> None:
    with shardq.connect(url) as client:
        client.ping()
        assert client.queues() == ()
        client.create_queue("q")
        client.ping()


def test_a_ping_makes_nothing(tmp_path: Path) -> None:
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db") as client:
        client.ping()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    error = ping(f"sqlite:///{tmp_path}/missing/queue.db", 20)
    assert "its folder does not exist; make it first" in str(error)
    assert not error.retryable


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "queue.db").write_bytes(b"no database" * 1000)
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db") as client, pytest.raises(shardq.ShardqError):
        client.ping(timeout=20)


@pytest.mark.parametrize("scheme", ["mongodb", "cassandra"])
def test_a_server_that_never_answers_is_told_within_the_bound(deaf_server: int, scheme: str) -> None:
    error = ping(f"{scheme}://127.0.0.1:{deaf_server}/shardq")
    assert f"did not answer within {SHORT:g} seconds" in str(error)
    assert error.retryable


@pytest.mark.parametrize("scheme", ["mongodb", "cassandra"])
def test_a_server_that_is_not_there_is_told(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ping(f"{scheme}://127.0.0.1:{port}/shardq", 2)


def test_a_store_that_hangs_is_told_within_the_bound(url: str, clock: ManualClock) -> None:
    go_on = threading.Event()

    class Hanging(WrappedStore):
        def ping(self) -> None:
            go_on.wait()

    with shardq.Client(Hanging(open_store(url, clock))) as client:
        with pytest.raises(shardq.StoreUnavailable, match="did not answer within"):
            client.ping(timeout=SHORT)
        go_on.set()


@pytest.mark.parametrize("kind", list(FaultKind))
def test_a_ping_is_not_repeated_and_is_never_in_doubt(url: str, clock: ManualClock, kind: FaultKind) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan(faults=(Fault("ping", 1, kind),)))
    with shardq.Client(store) as client:
        with pytest.raises(shardq.StoreUnavailable):
            client.ping(timeout=20)
        client.ping(timeout=20)


def test_a_closed_client_pings_nobody(connect: Callable[[], shardq.Client]) -> None:
    client = connect()
    client.close()
    with pytest.raises(shardq.Closed):
        client.ping()


@pytest.mark.parametrize("timeout", [0, -1, 1e9])
def test_the_bound_is_checked(client: shardq.Client, timeout: float) -> None:
    with pytest.raises(shardq.InvalidSetting):
        client.ping(timeout=timeout)
