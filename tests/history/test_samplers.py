"""Samplers of several processes: which one samples, and what a crash or a wrong clock costs."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.history import History, Sampler, read_history
from shardq.history.archive import FINE, FOLDER, Archive
from shardq.history.samples import Flow, Row, Sample, total_of
from shardq.metrics import Metrics
from shardq.testing import Fault, FaultKind, FaultPlan
from tests.history.conftest import Process, World


def came(history: History) -> int:
    """Count the messages that came in."""
    return round(sum((point.incoming or 0.0) * point.seconds for point in history.points))


def logs(process: Process) -> list[str]:
    return [name.rpartition("/")[0] for name in process.client.queues(FOLDER)]


def test_one_of_several_processes_samples_and_all_report(world: World, process: Process) -> None:
    other = world.process()
    queue = process.client.create_queue("orders")
    world.go_on(process.sampler, other.sampler, steps=2)
    assert (process.sampler.is_sampler, other.sampler.is_sampler) == (True, False)
    for _ in range(4):
        queue.producer().send(b"x")
        other.client.queue("orders").producer().send_many([b"x"] * 9)
        world.go_on(other.sampler, process.sampler)
    history = world.history(since=120)
    assert came(history) == 40
    assert not history.incoming_estimated


def test_another_process_takes_over_when_the_sampler_ends(world: World, process: Process) -> None:
    other = world.process()
    process.client.create_queue("orders")
    world.go_on(process.sampler, other.sampler)
    process.sampler.close()
    world.go_on(other.sampler, steps=2)
    assert other.sampler.is_sampler


@pytest.mark.parametrize("seconds", [15, 45])
def test_a_sampler_that_was_killed_costs_two_minutes_and_no_count_is_doubled(
    world: World, process: Process, seconds: int
) -> None:
    other = world.process()
    producer = other.client.create_queue("orders").producer()
    world.go_on(process.sampler, other.sampler, steps=4)
    process.kill()
    passed = 0
    while not other.sampler.is_sampler:
        producer.send(b"x")
        world.go_on(other.sampler, seconds=seconds)
        passed += seconds
    assert passed <= 120
    world.go_on(other.sampler, steps=4)
    history = world.history(since=600, points=40)
    assert came(history) == passed // seconds
    assert [point.ready for point in history.points][-1] == passed // seconds


def test_a_sampler_that_stood_still_does_not_sample_beside_its_successor(
    world: World, process: Process
) -> None:
    other = world.process()
    process.client.create_queue("orders")
    world.go_on(process.sampler, steps=2)
    world.go_on(other.sampler, steps=8)
    assert other.sampler.is_sampler
    process.sampler.step()
    assert not process.sampler.is_sampler


def test_a_sampler_that_stood_still_while_it_counted_stores_no_row_beside_its_successor(
    world: World, process: Process, orders: shardq.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, count = world.process(), process.store.count
    orders.producer().send(b"x")
    world.go_on(process.sampler, steps=2)

    def slow(*given: Any, **options: Any) -> Any:
        world.pass_time(200)
        other.sampler.step()  # takes the lease
        other.sampler.step()
        world.pass_time(1)
        return count(*given, **options)

    monkeypatch.setattr(process.store, "count", slow)
    orders.producer().send(b"x")
    world.go_on(process.sampler)
    assert (process.sampler.is_sampler, other.sampler.is_sampler) == (False, True)
    rows = Archive(process.client).rows(FINE, 0, world.clock.now() + 1)
    assert len(rows) == 3
    assert rows[-1].at == world.clock.now() - 1_000_000


def test_the_steps_of_a_day_are_made_of_what_a_killed_sampler_has_stored(
    world: World, process: Process
) -> None:
    producer = process.client.create_queue("orders").producer()
    world.go_on(process.sampler)
    for _ in range(19):
        producer.send(b"x")
        world.go_on(process.sampler)
    process.kill()
    other = world.process()
    world.pass_time(120)
    world.go_on(other.sampler, steps=30)
    assert came(world.history(since=7_200)) == 19


@pytest.mark.parametrize("kind", FaultKind)
def test_what_a_row_that_fails_would_have_had_is_counted_once_or_not_at_all(
    world: World, kind: FaultKind
) -> None:
    plan = FaultPlan(faults=tuple(Fault("append", number, kind) for number in range(9, 13)))
    process = world.process(plan)
    producer = process.client.create_queue("orders", max_deliveries=None).producer()
    sent = 0
    for _ in range(20):
        try:
            producer.send(b"x")
            sent += 1
        except (shardq.StoreUnavailable, shardq.OutcomeUnknown):
            sent += kind is FaultKind.LOST_RESPONSE
        world.pass_time(15)
        try:
            process.sampler.step()
        except (shardq.StoreUnavailable, shardq.OutcomeUnknown):
            continue
    world.go_on(process.sampler, steps=2)
    history = world.history(since=600)
    assert sent - 6 <= came(history) <= sent
    assert history.points[-1].ready == sent


def test_a_clock_that_is_put_back_leaves_rows_that_can_be_read(world: World, process: Process) -> None:
    producer = process.client.create_queue("orders").producer()
    world.clock.advance(90_000)  # a day ahead
    world.go_on(process.sampler, steps=3)
    ahead = world.clock
    process.kill()
    right = World(world.url)
    assert right.clock.now() < ahead.now()
    right.pass_time(600)
    later = right.process()
    right.go_on(later.sampler, steps=8)
    with pytest.raises(shardq.ShardqError):
        producer.send(b"x")
    later.client.queue("orders").producer().send_many([b"x"] * 3)
    right.go_on(later.sampler, steps=4)
    history = right.history(since=300)
    assert history.points[-1].ready == 3
    assert came(history) == 3
    right.go_on(later.sampler, steps=3, seconds=1_800)
    ends = [int(name.rpartition("/")[2].partition("-")[0]) for name in later.client.queues(f"{FOLDER}fine")]
    assert max(ends) <= right.clock.now() / 1e6 + 3_600
    right.close()


def test_an_idle_store_is_asked_little(world: World, process: Process) -> None:
    for number in range(10):
        process.client.create_queue(f"q{number}", shards=1, time_shards=1, max_deliveries=None)
    world.go_on(process.sampler, steps=4, seconds=60)
    standby = world.process()
    standby.sampler.step()
    asked: Counter[str] = Counter()
    for each in (process, standby):
        each.store.calls.clear()
    for _ in range(20):
        world.go_on(process.sampler, seconds=60)
    asked.update(call.method for call in process.store.calls if call.method != "now")
    assert asked["append"] <= 24
    assert sum(asked.values()) / 20 <= 35
    for _ in range(80):
        world.timer.advance(15)
        standby.sampler.step()
    waiting = Counter(call.method for call in standby.store.calls if call.method != "now")
    assert sum(waiting.values()) / 20 <= 16
    assert not waiting["append"]


def test_nothing_is_stored_where_there_are_no_queues_or_nothing_begins(
    world: World, process: Process
) -> None:
    world.go_on(process.sampler, steps=8)
    assert process.client.queues("_shardq/") == ()
    assert {call.method for call in process.store.calls} <= {"list_queues", "now"}


def test_a_sampler_that_runs_for_a_moment_stores_nothing(url: str) -> None:
    with shardq.connect(url, observer=(metrics := Metrics())) as client:
        queue = client.create_queue("orders")
        with Sampler(client, measures=metrics.measures) as sampler:
            sampler.start()
            queue.producer().send(b"x")
        assert client.queues(FOLDER) == ()


def test_logs_are_dropped_as_a_whole(world: World, process: Process) -> None:
    process.client.create_queue("orders").producer().send(b"x")
    for _ in range(120):
        world.go_on(process.sampler, seconds=900)
    kept = Counter(logs(process))
    assert kept[f"{FOLDER}fine"] <= 3
    assert kept[f"{FOLDER}coarse"] <= 5
    history = world.history(since=86_400, points=96)
    assert sum(point.ready is None for point in history.points) <= 1


def test_a_row_of_a_thousand_busy_queues_takes_at_most_64_bytes_for_each(url: str) -> None:
    flow = Flow(900, 800, 700, wait={2: 300, 3: 290, 4: 110}, processing={5: 600, 6: 80, 7: 20})
    samples = [
        Sample(f"customer-{n:04}/orders", n, n % 7, n % 50, 4, n / 10, n % 30, flow) for n in range(1_000)
    ]
    with shardq.connect(url) as client:
        archive = Archive(client)
        row = Row(1_800_000_000_000_000, 15.0, [total_of(samples), *samples])
        archive.append(FINE, row, queues=1_000)
        (log,) = client.queues(f"{FOLDER}fine")
        bodies = [message.body for message in client.queue(log).peek(1_000)]
        assert len(bodies) <= 17
        assert sum(map(len, bodies)) <= 64_000
        (read,) = archive.rows(FINE, row.at - 1, row.at + 1)
        assert {each.queue: each for each in read.samples} == {each.queue: each for each in row.samples}


def test_histories_are_limited_to_queues_with_a_prefix(world: World, process: Process) -> None:
    for name in ("shop.orders", "mail"):
        process.client.create_queue(name).producer().send(b"x")
    sampler = Sampler(
        process.client,
        measures=process.metrics.measures,
        prefix="shop.",
        folder="_shardq/shop/",
        timer=world.timer,
    )
    world.go_on(sampler, steps=2)
    shop = read_history(process.client, "shop.orders", since=60, folder="_shardq/shop/")
    mail = read_history(process.client, "mail", since=60, folder="_shardq/shop/")
    assert (shop.points[-1].ready, mail.is_empty) == (1, True)
    sampler.close()


@pytest.mark.parametrize(
    "command",
    [
        ["list", "--json"],
        ["stats", "**", "--since", "1h", "--json"],
        ["stats", "**", "--json"],
        ["doctor", "--json"],
        ["metrics", "--once"],
    ],
    ids=" ".join,
)
def test_no_listing_shows_the_queues_of_the_history(
    world: World, process: Process, command: list[str]
) -> None:
    process.client.create_queue("orders").producer().send(b"x")
    world.go_on(process.sampler, steps=2)
    assert process.client.queues(FOLDER) != ()
    done = CliRunner().invoke(main, ["--url", world.url, *command])
    assert "orders" in done.stdout
    assert "_shardq/" not in done.stdout


def test_no_pattern_receives_or_removes_the_rows_of_the_history(world: World, process: Process) -> None:
    queue = process.client.create_queue("orders", max_deliveries=None)
    queue.producer().send(b"x")
    world.go_on(process.sampler, steps=2)
    world.clock.advance(200 * 365 * 86_400)  # even when they are due
    with process.client.consumer(["**"]) as consumer:
        assert consumer.pop_many(1_000).bodies == [b"x"]
    queue.producer().send(b"y")
    done = CliRunner().invoke(main, ["--url", world.url, "purge", "**", "--yes", "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"purged": {"orders": 1}, "failed": {}})


@pytest.mark.parametrize("folder", ["shop/", "_shardq/shop", ""])
def test_a_folder_that_may_have_queues_of_the_application_is_refused(process: Process, folder: str) -> None:
    with pytest.raises(shardq.errors.InvalidSetting, match="folder"):
        Sampler(process.client, folder=folder)
    with pytest.raises(shardq.errors.InvalidSetting, match="folder"):
        read_history(process.client, folder=folder)


def test_a_sampler_in_the_background_takes_steps_until_it_is_closed(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_queue("orders").producer().send(b"x")
        with Sampler(client, interval=1.0) as sampler:
            sampler.start()
            sampler.start()
            assert [each.name for each in threading.enumerate()].count("shardq-history") == 1
            deadline = time.monotonic() + 30
            while read_history(client, "orders", since=60).is_empty and time.monotonic() < deadline:
                time.sleep(0.1)
        assert not sampler.is_sampler
        assert read_history(client, "orders", since=60).points[-1].ready == 1
