"""A redrive moves dead letters out of the dead-letter queue that it names, and out of no other one."""

from __future__ import annotations

import json
import logging

import pytest

import shardq

API = "/api/v1"


@pytest.fixture
def client(url):
    with shardq.connect(url) as client:
        yield client


def _give_up(queue: shardq.Queue, count: int = 1) -> None:
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_many([b"1"] * count)
        for message in consumer.receive(count, wait=5):
            message.dead_letter("bank")


def test_a_forged_header_moves_no_letters_out_of_another_queue(web, orders, client) -> None:
    wages = client.create_queue("wages")
    _give_up(wages)
    _give_up(orders)
    client.queue("orders.dead").producer().send(b"x", headers={"shardq-queue": "wages"})
    assert web.post(f"{API}/redrive/orders.dead", json={}).json()["changed"] == 1
    assert (wages.counts().ready, client.queue("wages.dead").counts().ready) == (0, 1)


def test_letters_stay_whose_queue_has_another_dead_letter_queue_by_now(web, orders, client) -> None:
    _give_up(orders)
    orders.alter(dead_letter_queue="other.dead")
    _give_up(orders)
    assert web.post(f"{API}/redrive/orders.dead", json={}).json()["changed"] == 0
    assert client.queue("other.dead").counts().ready == 1


def test_a_source_that_was_deleted_or_is_no_name_holds_up_no_other(web, orders, client) -> None:
    gone = client.create_queue("gone", dead_letter_queue="orders.dead")
    _give_up(gone)
    client.queue("orders.dead").producer().send(b"x", headers={"shardq-queue": "no name!"})
    client.delete_queue("gone")
    _give_up(orders, 2)
    assert web.post(f"{API}/redrive/orders.dead", json={}).json()["changed"] == 2
    assert orders.counts().ready == 2


def test_the_log_of_a_redrive_that_fails_has_the_number_of_those_that_moved(
    web, orders, client, caplog
) -> None:
    paused = client.create_queue("paused", dead_letter_queue="orders.dead")
    _give_up(paused)
    _give_up(orders, 3)
    paused.pause(sends=True)
    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        assert web.post(f"{API}/redrive/orders.dead", json={}).status_code == 409
    (line,) = (json.loads(record.message) for record in caplog.records)
    assert (line["outcome"], line["changed"]) == ("queue_paused", 3)
    assert orders.counts().ready == 3


@pytest.mark.parametrize("chosen", ["ids", "reason", "all"])
def test_letters_that_are_held_elsewhere_are_reported_as_more(web, orders, client, chosen: str) -> None:
    _give_up(orders, 3)
    dead = client.queue("orders.dead")
    given = {"ids": {"ids": [each.id for each in dead.peek(3)]}, "reason": {"reason": "bank"}, "all": {}}[
        chosen
    ]
    with dead.consumer() as consumer:
        held = consumer.receive(3, wait=5)  # as a redrive does, also one that was killed since
        assert web.post(f"{API}/redrive/orders.dead", json=given).json() == {"changed": 0, "more": True}
        held.release()
    assert web.post(f"{API}/redrive/orders.dead", json=given).json() == {"changed": 3, "more": False}
