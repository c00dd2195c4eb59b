"""A server that refuses or never answers is given up soon after ``retry_seconds``."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

import shardq
from shardq.base.clock import SystemClock
from shardq.cli.command import READ_SECONDS
from shardq.cli.main import main
from shardq.errors import InvalidSetting, StoreUnavailable
from shardq.storage.opening import open_store
from tests.cli.test_damaged_files import READING

SCHEMES = ["mongodb", "cassandra"]
GENEROUS = 9.0
"""Seconds: twice the time that two attempts to connect may take; one of ten seconds is above it."""
LEAST_TO_CONNECT = 2.0
MOST_OF_A_LOOK = 10.0


@pytest.fixture(params=["refused", "black hole"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port where nobody listens, or where connections are accepted and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "black hole":
            listener.listen(100)
        yield listener.getsockname()[1]


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port where connections are accepted and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def seconds_until_it_fails(url: str, retry_seconds: float) -> float:
    with shardq.connect(url, retry_seconds=retry_seconds) as client:  # this imports the driver
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable):
            client.queue("q")
        return time.monotonic() - begun


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("retry_seconds", [0.0, 2.0])
def test_an_unreachable_server_is_given_up_soon_after_the_repetitions_end(
    scheme, port, retry_seconds
) -> None:
    pytest.importorskip({"mongodb": "pymongo", "cassandra": "cassandra"}[scheme])
    assert seconds_until_it_fails(f"{scheme}://127.0.0.1:{port}/missing", retry_seconds) < GENEROUS


@pytest.mark.parametrize(
    ("hosts", "retry_seconds", "seconds"),
    [
        ("127.0.0.1", 60.0, 10.0),
        ("127.0.0.1", 17.0, 8.5),
        ("127.0.0.1", 0.0, 2.0),
        ("127.0.0.1,127.0.0.2", 60.0, 5.0),
    ],
)
def test_a_node_of_cassandra_may_take_half_of_the_retries_to_answer_or_its_share_of_that(
    hosts: str, retry_seconds: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = pytest.importorskip("cassandra.cluster")
    given: list[float] = []

    def connect(cluster: Any) -> None:
        given.extend((cluster.connect_timeout, cluster.control_connection_timeout))
        raise driver.NoHostAvailable("none answers", {})

    monkeypatch.setattr(driver.Cluster, "connect", connect)
    store = open_store(f"cassandra://{hosts}/missing", SystemClock(), retry_seconds=retry_seconds)
    with pytest.raises(StoreUnavailable):
        store.load_queue("q")
    assert set(given) == {seconds}


def test_a_timeout_in_the_url_goes_before_that_of_the_retries(port) -> None:
    pytest.importorskip("pymongo")
    url = f"mongodb://127.0.0.1:{port}/missing?serverSelectionTimeoutMS=100&connectTimeoutMS=100"
    assert seconds_until_it_fails(url, 0.0) < 2.0


@pytest.mark.parametrize("wrong", ["2", -1.0, float("nan"), None])
def test_seconds_that_are_none_are_refused_before_the_store_is_opened(wrong) -> None:
    with pytest.raises(InvalidSetting, match="retry_seconds"):
        shardq.connect("mongodb://127.0.0.1/missing", retry_seconds=wrong)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("command", [["doctor"], ["stats", "orders"]])
def test_a_command_that_only_reads_gives_up_soon(
    scheme, command, black_hole, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"mongodb": "pymongo", "cassandra": "cassandra"}[scheme])
    assert READ_SECONDS + 2 * LEAST_TO_CONNECT <= MOST_OF_A_LOOK
    if command != ["doctor"]:  # which tries once
        monkeypatch.setattr("shardq.cli.command.READ_SECONDS", 0.0)
    begun = time.monotonic()
    told = CliRunner().invoke(main, ["--url", f"{scheme}://127.0.0.1:{black_hole}/missing", *command])
    assert time.monotonic() - begun < GENEROUS
    assert told.exit_code == 4
    assert "cannot be reached" in told.output


@pytest.mark.parametrize("command", READING)
def test_every_command_that_only_reads_asks_for_a_short_time(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def open_store(_url: str, _clock: object, *, retry_seconds: float) -> None:
        asked.append(retry_seconds)
        raise StoreUnavailable("away")

    monkeypatch.setattr("shardq.storage.opening.open_store", open_store)
    told = CliRunner().invoke(main, [*command.split(), *READING[command]])
    assert (told.exit_code, asked) == (4, [READ_SECONDS])
