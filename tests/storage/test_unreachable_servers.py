"""A server that refuses or never answers is given up soon after ``retry_seconds``."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

import shardq
from shardq.errors import InvalidSetting, StoreUnavailable

SCHEMES = ["mongodb", "cassandra"]
GENEROUS = 9.0
"""Seconds: twice the time that two attempts to connect may take; one of ten seconds is above it."""


@pytest.fixture(params=["refused", "black hole"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port where nobody listens, or where connections are accepted and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "black hole":
            listener.listen(100)
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


def test_a_timeout_in_the_url_goes_before_that_of_the_retries(port) -> None:
    pytest.importorskip("pymongo")
    url = f"mongodb://127.0.0.1:{port}/missing?serverSelectionTimeoutMS=100&connectTimeoutMS=100"
    assert seconds_until_it_fails(url, 0.0) < 2.0


@pytest.mark.parametrize("wrong", ["2", -1.0, float("nan"), None])
def test_seconds_that_are_none_are_refused_before_the_store_is_opened(wrong) -> None:
    with pytest.raises(InvalidSetting, match="retry_seconds"):
        shardq.connect("mongodb://127.0.0.1/missing", retry_seconds=wrong)
