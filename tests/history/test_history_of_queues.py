"""The history of queues: what was sampled, and how it is read."""

from __future__ import annotations

import re

import pytest

import shardq
from shardq.errors import InvalidSetting
from shardq.history import Percentiles
from tests.history.conftest import Process, World


def test_depth_rates_and_durations_are_read_in_steps(
    world: World, process: Process, orders: shardq.Queue
) -> None:
    process.sampler.step()
    with orders.producer() as producer, orders.consumer() as consumer:
        for _ in range(20):
            producer.send_many([b"x"] * 30)
            world.pass_time(3)
            batch = consumer.receive(15)
            process.metrics.handled("orders", {"worked": 15}, [0.2] * 15)
            batch.ack()
            world.pass_time(12)
            process.sampler.step()
    history = world.history(since=300, points=20)
    assert history.step == 15
    assert not history.incoming_estimated
    assert not history.outgoing_estimated
    last = history.points[-2]
    assert (last.incoming, last.outgoing, last.failed) == (2.0, 1.0, 0.0)
    assert last.ready == 300
    assert last.consumers == 1
    assert last.processing == Percentiles(p50=0.175, p95=0.242)
    assert last.wait is not None
    assert last.wait.p95 >= last.wait.p50 > 3
    depths = [point.ready for point in history.points[1:-1]]
    assert depths == sorted(depths, key=lambda depth: depth or 0)


def test_all_queues_together_are_without_dead_letters(world: World, process: Process) -> None:
    for name in ("orders", "mail", "mail.dead"):
        process.client.create_queue(name, max_deliveries=None).producer().send_many([b"x"] * 5)
    world.go_on(process.sampler)
    assert world.history(None, since=60).points[-1].ready == 10
    assert world.history("mail.dead", since=60).points[-1].ready == 5


def test_subscriptions_have_a_history_and_are_no_part_of_all_queues_together(
    world: World, process: Process, orders: shardq.Queue
) -> None:
    topic = process.client.create_topic("news")
    subscription = topic.subscribe("archive")
    world.go_on(process.sampler)
    topic.publish(b"x")
    with subscription.consumer() as consumer:
        consumer.receive(1, wait=10)[0].ack()
        topic.publish(b"y")
        world.go_on(process.sampler)
    (name,) = (each for each in process.client.queues("_shardq/topics/news/archive/") if "dead" not in each)
    history = world.history(name, since=60)
    assert max(point.ready or 0 for point in history.points) <= 1
    assert max(point.outgoing or 0.0 for point in history.points) > 0
    assert not history.outgoing_estimated
    together = world.history(None, since=60).points
    assert {point.ready for point in together if point.ready is not None} == {0}
    assert {point.outgoing for point in together if point.outgoing is not None} == {0.0}


def test_no_row_has_reports_of_a_longer_time_than_its_own(
    world: World, process: Process, orders: shardq.Queue
) -> None:
    other = world.process()
    due = {process.sampler: 15.0, other.sampler: 15.0}  # the one that samples is called first
    with other.client.queue("orders").producer() as producer:
        for second in range(1, 121):
            world.pass_time(1)
            producer.send(b"x")
            for sampler in due:
                if due[sampler] <= second:
                    due[sampler] = second + sampler.step()
    assert (process.sampler.is_sampler, other.sampler.is_sampler) == (True, False)
    rates = [point.incoming for point in world.history(since=150).points if point.incoming is not None]
    assert len(rates) >= 5
    assert max(rates) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(
    ("senders", "consumers", "estimated", "rates"),
    [
        (False, True, (True, False), (2.0, 1.0)),
        (True, False, (False, True), (2.0, 1.0)),
        (False, False, (True, False), (1.0, 0.0)),  # only the difference is known
    ],
    ids=["consumers report", "senders report", "no client reports"],
)
def test_the_rate_of_clients_that_do_not_report_is_estimated_from_the_depth(
    world: World,
    process: Process,
    orders: shardq.Queue,
    senders: bool,
    consumers: bool,
    estimated: tuple[bool, bool],
    rates: tuple[float, float],
) -> None:
    process.sampler.step()
    with shardq.connect(world.url, clock=world.clock) as other:
        silent = other.queue("orders")
        producer = (orders if senders else silent).producer()
        consumer = (orders if consumers else silent).consumer()
        for _ in range(20):
            producer.send_many([b"x"] * 30)
            consumer.receive(15).ack()
            world.go_on(process.sampler)
    history = world.history(since=300, points=5)
    assert (history.incoming_estimated, history.outgoing_estimated) == estimated
    assert (history.points[2].incoming, history.points[2].outgoing) == rates


def test_a_consumer_that_keeps_a_message_for_minutes_counts_as_live(
    world: World, process: Process, orders: shardq.Queue
) -> None:
    orders.producer().send(b"x")
    with orders.consumer(visibility_timeout=60, keep_leases=False) as consumer:
        (message,) = consumer.receive(1)
        for _ in range(10):
            world.go_on(process.sampler)
            message.extend(60)
            assert [each.alive for each in orders.consumers()] == [True]
        assert world.history(since=60).points[-1].consumers == 1
        message.ack()


def test_time_in_which_nobody_sampled_is_unknown(
    world: World, process: Process, orders: shardq.Queue
) -> None:
    orders.producer().send(b"x")
    world.go_on(process.sampler, steps=4)
    process.sampler.close()
    world.pass_time(300)
    world.go_on(world.process().sampler, steps=4)
    points = world.history(since=600, points=20).points
    seen = "".join("-" if point.ready is None else str(point.ready) for point in points)
    assert re.fullmatch("-*1+-{7,}1+", seen), seen


def test_a_day_is_read_in_steps_of_minutes_and_the_newest_ones_are_there(
    world: World, process: Process, orders: shardq.Queue
) -> None:
    producer = orders.producer()
    for number in range(60):
        producer.send_many([b"x"] * 120)
        world.go_on(process.sampler, seconds=60)
        if number == 29:
            orders.purge()
    history = world.history(since=7_200, points=24)
    assert history.step == 300
    known = [point for point in history.points if point.ready is not None]
    assert max(point.ready or 0 for point in known) == 30 * 120
    assert known[-1].ready == 30 * 120
    assert 11 <= len(known) <= 13
    assert known[5].incoming == pytest.approx(2.0, rel=0.3)


def test_the_peak_of_a_step_is_shown(world: World, process: Process, orders: shardq.Queue) -> None:
    world.go_on(process.sampler, steps=2)
    orders.producer().send_many([b"x"] * 1_000)
    world.go_on(process.sampler)
    orders.purge()
    world.go_on(process.sampler, steps=30)
    assert max(point.ready or 0 for point in world.history(since=7_200, points=24).points) == 1_000


def test_a_deleted_queue_is_empty_from_then_on(world: World, process: Process, orders: shardq.Queue) -> None:
    orders.producer().send(b"x")
    world.go_on(process.sampler, steps=4)
    process.client.delete_queue("orders")
    world.go_on(process.sampler, steps=4)
    depths = [point.ready for point in world.history(since=300, points=20).points if point.ready is not None]
    assert (depths[0], depths[-1]) == (1, 0)


def test_a_queue_that_was_never_sampled_has_an_empty_history(world: World, process: Process) -> None:
    process.client.create_queue("orders")
    assert world.history("orders").is_empty
    assert world.history("missing").is_empty


@pytest.mark.parametrize(("since", "points"), [(59, 10), (86_401, 10), (600, 0)])
def test_a_time_that_is_not_kept_is_refused(
    world: World, process: Process, since: float, points: int
) -> None:
    process.client.create_queue("orders")
    with pytest.raises(InvalidSetting):
        world.history(since=since, points=points)
