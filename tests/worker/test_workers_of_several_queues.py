"""A worker of several queues works on each with its own handler and settings, and none of them stops the others."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq import Message, Queue
from shardq.testing.seam import expire_caches
from shardq.worker import Worker, WorkerPool

NAMES = ("urgent", "usual", "bulk")


@pytest.fixture
def queues(client: shardq.Client) -> list[Queue]:
    deliveries = {"urgent": 1, "usual": 2, "bulk": 10}
    return [
        client.create_queue(name, shards=1, time_shards=1, retry_delay=0, max_deliveries=deliveries[name])
        for name in NAMES
    ]


def fill(queues: Sequence[Queue], count: int) -> None:
    for queue in queues:
        with queue.producer() as producer:
            producer.send_many([queue.name.encode()] * count)


def names_of(handled: list[Message]) -> list[str]:
    return [message.queue for message in handled]


def test_one_handler_works_all_queues_off(queues: list[Queue]) -> None:
    fill(queues, 30)
    handled: list[Message] = []

    report = Worker(queues, handled.append, idle_exit=0).run()

    assert report.worked == 90
    assert {name: names_of(handled).count(name) for name in NAMES} == dict.fromkeys(NAMES, 30)
    assert all(queue.counts().ready == queue.counts().in_flight == 0 for queue in queues)


def test_each_queue_has_the_handler_that_is_given_for_it(queues: list[Queue]) -> None:
    fill(queues, 5)
    handled: dict[str, list[Message]] = {name: [] for name in NAMES}

    Worker(queues, {name: handled[name].append for name in NAMES}, idle_exit=0).run()

    assert {name: names_of(handled[name]) for name in NAMES} == {name: [name] * 5 for name in NAMES}


def test_queues_take_turns_by_their_weights(queues: list[Queue]) -> None:
    fill(queues, 12)
    handled: list[Message] = []

    Worker(queues, handled.append, batch=1, weights={"urgent": 4}, idle_exit=0).run()

    assert names_of(handled[:12]).count("urgent") == 8


def test_in_strict_order_a_queue_waits_for_those_before_it(queues: list[Queue]) -> None:
    fill(queues, 5)
    handled: list[Message] = []

    Worker(queues, handled.append, batch=2, order="strict", idle_exit=0).run()

    assert names_of(handled) == [name for name in NAMES for _ in range(5)]


def test_the_settings_of_each_queue_decide_how_often_its_messages_are_tried(queues: list[Queue]) -> None:
    fill(queues[:2], 1)
    tried: list[str] = []

    def handler(message: Message) -> None:
        tried.append(message.queue)
        raise ValueError("never")

    report = Worker(queues, handler, idle_exit=0.2).run()

    assert sorted(tried) == ["urgent", "usual", "usual"]
    assert (report.failed, report.dead_lettered) == (3, 2)


def test_a_worker_that_is_stopped_gives_back_what_it_has_not_started_in_every_queue(
    queues: list[Queue],
) -> None:
    queues[0].alter(max_deliveries=5)  # a message at its last delivery is held alone
    fill(queues, 3)
    stopped: list[Worker] = []
    worker = Worker(queues, lambda _: stopped[0].stop())
    stopped.append(worker)

    report = worker.run()

    assert (report.worked, report.returned) == (1, 2)
    assert sum(queue.counts().ready for queue in queues) == 8
    assert sum(queue.counts().in_flight for queue in queues) == 0


def test_a_queue_that_is_deleted_while_its_messages_are_worked_does_not_stop_the_others(
    client: shardq.Client, queues: list[Queue], caplog: pytest.LogCaptureFixture
) -> None:
    fill(queues, 2)
    done = threading.Event()
    handled: list[Message] = []

    def handler(message: Message) -> None:
        handled.append(message)
        if message.queue == "usual":
            client.delete_queue("usual")
            expire_caches(queues[1])
            raise ValueError("it is gone")
        if names_of(handled).count("bulk") == 3:
            done.set()

    worker = Worker(queues, handler, batch=1, order="strict")
    running = threading.Thread(target=worker.run)
    running.start()
    queues[2].producer().send(b"later")
    assert done.wait(30)
    worker.stop()
    running.join()
    assert names_of(handled) == ["urgent", "urgent", "usual", "bulk", "bulk", "bulk"]
    assert "messages were not settled: queue 'usual' does not exist" in caplog.text


def test_a_worker_that_ends_by_itself_tells_of_a_queue_that_is_gone(
    client: shardq.Client, queues: list[Queue]
) -> None:
    fill([queues[0], queues[2]], 2)
    client.delete_queue("usual")
    handled: list[Message] = []

    with pytest.raises(shardq.QueueNotFound, match="'usual'"):
        Worker(queues, handled.append, idle_exit=0.1).run()

    assert sorted(names_of(handled)) == ["bulk", "bulk", "urgent", "urgent"]


def test_a_paused_queue_is_named_and_the_others_are_worked(
    queues: list[Queue], caplog: pytest.LogCaptureFixture
) -> None:
    fill(queues, 1)
    queues[1].pause()

    assert Worker(queues, lambda _: None, idle_exit=0).run().worked == 2
    assert "queue usual is paused" in caplog.text


WRONG: list[tuple[str, Any, Mapping[str, Any]]] = [
    ("no handler", {"urgent": print, "usual": print}, {}),
    ("'letters'", dict.fromkeys((*NAMES, "letters"), print), {}),
    ("weights name 'letters'", print, {"weights": {"letters": 2}}),
    ("order='random'", print, {"order": "random"}),
    ("knows no weights", print, {"order": "strict", "weights": {"urgent": 2}}),
    ("give a weight by the name", print, {"weights": [3, 1, 1]}),
    ("handler", {**dict.fromkeys(NAMES, print), "bulk": 7}, {}),
]


@pytest.mark.parametrize(("text", "handler", "options"), WRONG, ids=[each[0] for each in WRONG])
def test_what_makes_no_sense_is_refused_by_a_worker_and_by_a_pool(
    url: str, queues: list[Queue], text: str, handler: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=text):
        Worker(queues, handler, **options)
    with pytest.raises(shardq.InvalidSetting, match=text):
        WorkerPool(url, NAMES, handler, **options)


@pytest.mark.parametrize("names", ["bulk", ["bulk"]])
def test_a_worker_that_is_given_names_instead_of_queues_says_what_it_takes(names: Any) -> None:
    with pytest.raises(shardq.InvalidSetting, match="a worker takes opened queues"):
        Worker(names, print)


def test_queues_that_are_none_or_named_twice_or_of_two_clients_are_refused(
    url: str, queues: list[Queue]
) -> None:
    with pytest.raises(shardq.InvalidSetting, match="list of names"):
        Worker([], print)
    with pytest.raises(shardq.InvalidSetting, match="named twice"):
        Worker([queues[0], queues[0]], print)
    with shardq.connect(url) as other, pytest.raises(shardq.InvalidSetting, match="two clients"):
        Worker([queues[0], other.queue("usual")], print, idle_exit=0).run()


def test_the_processes_of_a_pool_work_on_all_queues(url: str, queues: list[Queue], handlers: str) -> None:
    fill(queues, 100)
    by_queue = {
        "urgent": f"{handlers}:nothing",
        "usual": f"{handlers}:nothing",
        "bulk": f"{handlers}:nothing",
    }

    report = WorkerPool(url, NAMES, by_queue, processes=2, idle_exit=0.5, weights={"bulk": 2}).run()

    assert (report.total.worked, report.total.in_flight) == (300, 0)


def test_a_pool_that_is_given_a_queue_that_does_not_exist_says_so(url: str, queues: list[Queue]) -> None:
    with pytest.raises(shardq.QueueNotFound, match="'letters'"):
        WorkerPool(url, ["urgent", "letters"], "builtins:print", idle_exit=0).run()


def test_a_process_that_dies_leaves_the_messages_of_every_queue_to_the_next_one(
    url: str, client: shardq.Client, handlers: str, tmp_path: Path
) -> None:
    for name in NAMES:
        queue = client.create_queue(name, shards=1, time_shards=1, visibility_timeout=1)
        queue.producer().send_many([str(tmp_path / "died").encode()] * 3)

    report = WorkerPool(url, NAMES, f"{handlers}:die_once", idle_exit=3).run()

    assert (report.total.worked, report.restarts) == (9, 1)
