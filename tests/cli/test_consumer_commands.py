"""``shardq consumers`` lists who holds what, and gives back what a dead one holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["--url", f"sqlite:///{folder}/queue.db", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def client(tmp_path: Path) -> Iterator[shardq.Client]:
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db") as client:
        for name in ("orders", "letters"):
            client.create_queue(name).producer().send_many([b"1", b"2"])
        yield client


def test_a_consumer_of_two_queues_is_listed_once(client: shardq.Client, tmp_path: Path) -> None:
    with client.consumer(["orders", "letters"], name="worker-7") as consumer:
        assert sum(len(consumer.receive(2)) for _ in range(2)) == 4
        (line,) = json.loads(run(tmp_path, "consumers", "list", "--json")[1])["consumers"]
        assert (line["name"], line["held"], line["queues"], line["alive"]) == (
            "worker-7", 4, ["letters", "orders"], True,
        )  # fmt: skip
        (line,) = json.loads(run(tmp_path, "consumers", "list", "orders", "--json")[1])["consumers"]
        assert (line["held"], line["queues"]) == (2, ["orders"])
        header, row = run(tmp_path, "consumers", "list")[1].splitlines()
        assert header.split()[0] == "consumer"
        assert row.startswith("worker-7")
        assert row.endswith("letters orders")
        assert "in_flight by worker-7" in run(tmp_path, "peek", "orders")[1]
        assert '"owner":"worker-7"' in run(tmp_path, "peek", "orders", "--json")[1]


def test_a_queue_without_consumers_lists_none(client: shardq.Client, tmp_path: Path) -> None:
    assert client.exists("orders")
    assert json.loads(run(tmp_path, "consumers", "list", "--json")[1]) == {"consumers": []}


def test_what_a_consumer_holds_of_all_queues_is_given_back(client: shardq.Client, tmp_path: Path) -> None:
    with client.consumer(["orders", "letters"], name="worker-7") as consumer:
        assert sum(len(consumer.receive(2)) for _ in range(2)) == 4
        code, _, told = run(tmp_path, "consumers", "evict", "worker-7")
        assert (code, len(told.splitlines())) == (1, 1)
        assert "consumer_alive" in told
        assert "--force" in told
        code, _, told = run(tmp_path, "consumers", "evict", "worker-7", "--force", "--queue", "orders")
        assert (code, told) == (0, "2 messages released\n")
        assert run(tmp_path, "consumers", "evict", "worker-7", "--force", "--json")[1] == '{"released":2}\n'
        assert client.queue("letters").counts().ready == 2


def test_a_consumer_of_a_queue_with_limits_is_listed_once_and_its_permits_come_back(
    client: shardq.Client, tmp_path: Path
) -> None:
    queue = client.queue("orders")
    queue.alter(max_in_flight=2)
    with queue.consumer(name="worker-7") as consumer, queue.consumer() as other:
        assert len(consumer.receive(2)) == 2
        (line,) = json.loads(run(tmp_path, "consumers", "list", "--json")[1])["consumers"]
        assert (line["name"], line["held"], line["queues"]) == ("worker-7", 2, ["orders"])
        assert run(tmp_path, "consumers", "evict", "worker-7", "--force")[0] == 0
        assert len(other.receive(2, wait=10)) == 2


def test_what_is_wrong_is_told_in_one_line(client: shardq.Client, tmp_path: Path) -> None:
    assert client.exists("orders")
    for arguments in (
        ["consumers", "evict", "nobody"],
        ["consumers", "evict", "nobody", "--queue", "orders"],
        ["consumers", "list", "absent"],
    ):
        code, _, told = run(tmp_path, *arguments)
        assert code == 3
        assert len(told.splitlines()) == 1, told
