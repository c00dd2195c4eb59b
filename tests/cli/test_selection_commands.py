"""Commands that act on selected messages: what they show, ask, and leave alone."""

from __future__ import annotations

import pytest

import shardq
from tests.cli.conftest import Shell


@pytest.fixture
def orders(shell: Shell) -> Shell:
    """A queue with eight messages of acme and one of another tenant."""
    with shardq.connect(shell.url) as client:
        queue = client.create_queue("orders", shards=1, time_shards=1, max_deliveries=1)
        producer = queue.producer()
        for number in range(8):
            producer.send(b"%d" % number, headers={"tenant": "acme", "number": number})
        producer.send(b"other", headers={"tenant": "other"}, group="g")
    return shell


def test_peek_shows_the_selected_messages(orders: Shell) -> None:
    assert [each["body"] for each in orders.lines("peek", "orders", "--header", "tenant=other")] == ["other"]
    assert [each["body"] for each in orders.lines("peek", "orders", "--header", "number=3")] == ["3"]
    assert len(orders.lines("peek", "orders", "--header", "tenant=acme", "--limit", "2")) == 2
    assert [each["body"] for each in orders.lines("peek", "orders", "--group", "g")] == ["other"]
    assert orders.lines("peek", "orders", "--until", "10m") == []
    assert len(orders.lines("peek", "orders", "--since", "10m", "--limit", "50")) == 9


def test_peek_shows_what_a_consumer_holds(orders: Shell) -> None:
    with (
        shardq.connect(orders.url) as client,
        client.queue("orders").consumer(name="billing") as consumer,
    ):
        held = {message.id for message in consumer.receive(3)}
        assert {each["id"] for each in orders.lines("peek", "orders", "--in-flight")} == held
        assert {each["id"] for each in orders.lines("peek", "orders", "--owner", "billing")} == held
        assert orders.lines("peek", "orders", "--owner", "somebody") == []


def test_remove_shows_the_selected_messages_and_asks(orders: Shell) -> None:
    refused = orders("remove", "orders", "--header", "tenant=acme", stdin="n\n")
    assert refused.exit_code == 1
    assert "and 3 more messages" in refused.stderr
    assert "Remove 8 messages of queue orders?" in refused.stderr
    assert len(orders.lines("peek", "orders")) == 9
    assert orders.json("remove", "orders", "--header", "tenant=acme", "--yes") == {"removed": 8}
    assert [each["body"] for each in orders.lines("peek", "orders")] == ["other"]
    assert orders("remove", "orders", "letters", "--until", "7d").exit_code == 2


def test_redrive_moves_the_selected_dead_letters(orders: Shell) -> None:
    with shardq.connect(orders.url) as client, client.queue("orders").consumer() as consumer:
        for number, message in enumerate(consumer.receive(9)):
            message.dead_letter("timeout" if number < 3 else "refused")
    asked = orders("redrive", "orders", "--reason", "time", stdin="n\n")
    assert "orders: 3 messages in orders.dead" in asked.stderr
    assert "back to queue orders?" in asked.stderr
    assert asked.exit_code == 1
    limited = orders("redrive", "orders", "--reason", "time", "--limit", "1", stdin="n\n")
    assert "orders: 1 of 3 messages in orders.dead" in limited.stderr
    assert orders.json("redrive", "orders", "--reason", "TIME", "--yes") == {"redriven": 0}
    assert orders.json("redrive", "orders", "--reason", "time", "--limit", "1", "--yes") == {"redriven": 1}
    assert "2 dead letters back" in orders.ok("redrive", "orders", "--reason", "time", "--yes").stderr
    assert len(orders.lines("peek", "orders")) == 3
    assert "nothing to change" in orders.ok("redrive", "orders", "--since", "2100-01-01").stderr
