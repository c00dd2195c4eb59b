"""What the reader of a pipe has not taken when it ends is not acked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shardq

COUNT = 50


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/queue.db"
    with shardq.connect(url) as client:
        queue = client.create_queue("q", shards=1, time_shards=1, max_deliveries=2)
        queue.producer().send_many([b"%d" % number for number in range(COUNT)])
    return url


def received(url: str, reader: str, *options: str) -> list[str]:
    """What the reader prints of all messages."""
    command = [sys.executable, "-m", "shardq", "--url", url, "receive", "q", "--limit", str(COUNT), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as receiving:
        shown = subprocess.run(reader, shell=True, stdin=receiving.stdout, capture_output=True, check=True)
        assert receiving.stdout is not None
        receiving.stdout.close()
        receiving.wait(timeout=60)
    return shown.stdout.decode().split()


@pytest.mark.parametrize("lines", [1, 3])
def test_what_head_does_not_print_stays_in_the_queue(url: str, lines: int) -> None:
    printed = received(url, f"head -n {lines}")
    with shardq.connect(url) as client:
        queue = client.queue("q")
        left = queue.consumer().receive(COUNT)
        assert len(printed) == lines
        assert sorted([*map(int, printed), *map(int, left.bodies)]) == list(range(COUNT))
        assert {message.deliveries for message in left} == {1}  # what nobody saw was not counted


def test_a_reader_that_takes_nothing_acks_nothing(url: str) -> None:
    assert received(url, "sleep 0.5") == []
    with shardq.connect(url) as client:
        assert client.queue("q").counts().ready == COUNT


@pytest.mark.parametrize("reader", ["cat", "sleep 0.5; cat", "while read line; do echo $line; done"])
def test_a_reader_that_takes_all_has_all_acked(url: str, reader: str) -> None:
    assert sorted(map(int, received(url, reader))) == list(range(COUNT))
    with shardq.connect(url) as client:
        counts = client.queue("q").counts()
        assert (counts.ready, counts.in_flight) == (0, 0)


def test_a_file_gets_all(url: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "shardq", "--url", url, "receive", "q", "-n", "9"],
            stdout=file, check=True, timeout=60,
        )  # fmt: skip
    assert len((tmp_path / "out").read_text().split()) == 9
