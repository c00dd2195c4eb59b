"""A dead letter that becomes a dead letter again keeps where it came from. Dead letters never run in a circle."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from tests.tasks.sums import Sums


def dead_lettered(queue: shardq.Queue, reason: str) -> shardq.Message:
    (message,) = queue.consumer().receive(1)
    message.dead_letter(reason)
    return message


def test_it_goes_back_step_by_step_to_the_queue_that_it_came_from(client: shardq.Client) -> None:
    names = ["q", "q.dead", "q.dead.dead", "q.dead.dead.dead"]
    sent = client.create_queue("q").producer().send(b"x", headers={"own": 1}, group="g")
    for number, name in enumerate(names[:3]):
        dead_lettered(client.queue(name), f"reason {number}")
    for name, reason, came in zip(names[3:0:-1], (2, 1, 0), names[2::-1], strict=True):
        (letter,) = client.queue(name).peek()
        marks = {key: letter.headers[key] for key in ("own", "shardq-queue", "shardq-reason")}
        assert marks == {"own": 1, "shardq-queue": came, "shardq-reason": f"reason {reason}"}
        assert client.queue(came).redrive() == 1
    (again,) = client.queue("q").consumer().receive(1)
    assert (again.headers, again.group, again.body) == ({"own": 1}, "g", b"x")
    assert sent.startswith("q:")


def test_it_goes_back_to_one_of_several_queues_that_share_a_dead_letter_queue(client: shardq.Client) -> None:
    for name in ("a", "b"):
        client.create_queue(name, dead_letter_queue="shared").producer().send(name.encode())
        dead_lettered(client.queue(name), "one")
    for _ in range(2):
        dead_lettered(client.queue("shared"), "two")
    assert (client.queue("a").redrive(), client.queue("shared").redrive()) == (0, 2)
    assert (client.queue("a").redrive(), client.queue("b").redrive()) == (1, 1)
    assert [client.queue(name).peek()[0].body for name in ("a", "b")] == [b"a", b"b"]


def test_a_redrive_logs_how_many_dead_letters_others_hold(client: shardq.Client, caplog) -> None:
    queue = client.create_queue("q")
    queue.producer().send_many([b"x"] * 3)
    queue.consumer().receive(3).dead_letter("one")
    with client.queue("q.dead").consumer() as consumer:
        held = consumer.receive(2)
        assert (queue.redrive(), caplog.messages[-1][:30]) == (1, "2 dead letters in q.dead are h")
        assert (queue.redrive(), caplog.messages[-1][:30]) == (0, "2 dead letters in q.dead are h")
        held.release()
    caplog.clear()
    assert queue.redrive(1) == 1
    assert queue.redrive() == 1
    assert caplog.messages == []


def test_a_letter_that_fails_again_and_again_in_one_queue_does_not_grow(client: shardq.Client) -> None:
    client.create_queue("q").producer().send(b"x")
    dead_lettered(client.queue("q"), "one")
    sizes = []
    for _ in range(4):
        dead_lettered(client.queue("q.dead"), "two")
        sizes.append(len(str(client.queue("q.dead.dead").peek()[0].headers)))
        assert client.queue("q.dead").redrive() == 1
    assert max(sizes) == min(sizes)
    assert client.queue("q").redrive() == 1


def test_a_header_that_an_application_wrote_under_that_name_is_no_failure(client: shardq.Client) -> None:
    client.create_queue("q").producer().send(b"x", headers={"shardq-before": "{no json"})
    dead_lettered(client.queue("q"), "one")
    assert client.queue("q").redrive() == 1


def test_a_task_that_is_a_dead_letter_twice_is_told_under_its_first_id(
    client: shardq.Client, url: str
) -> None:
    sums = Sums(client)
    result = sums.fail.send(1)
    sums.tasks.drain()
    dead_lettered(client.queue("others.dead"), "again")
    (letter,) = client.queue("others.dead.dead").peek()
    told = CliRunner().invoke(main, ["--url", url, "task", "show", letter.id, "--json"])
    assert json.loads(told.stdout)["sent_as"] == result.id


@pytest.mark.parametrize("by", ["create", "alter"])
def test_queues_whose_dead_letters_would_run_in_a_circle_are_refused(client: shardq.Client, by: str) -> None:
    client.create_queue("a", dead_letter_queue="b")
    client.queue("b").alter(max_deliveries=3, dead_letter_queue="c")
    if by == "alter":
        with pytest.raises(shardq.InvalidSetting, match="c -> a -> b -> c"):
            client.queue("c").alter(max_deliveries=3, dead_letter_queue="a")
        assert client.queue("c").settings.dead_letter_queue is None
        client.queue("c").alter(dead_letter_queue="a")  # from which none goes on automatically
        with pytest.raises(shardq.InvalidSetting, match="c -> a -> b -> c"):
            client.queue("c").alter(max_deliveries=3)
    else:
        client.delete_queue("c")
        with pytest.raises(shardq.InvalidSetting, match="c -> a -> b -> c"):
            client.create_queue("c", dead_letter_queue="a")
        assert not client.exists("c")


def test_a_default_dead_letter_queue_may_close_the_circle(client: shardq.Client) -> None:
    client.create_queue("x.dead", dead_letter_queue="x")
    client.delete_queue("x")
    with pytest.raises(shardq.InvalidSetting, match=r"x -> x\.dead -> x"):
        client.create_queue("x")
    assert not client.exists("x")


@pytest.mark.parametrize("name", ["orders.dead", "graves"])
def test_a_redrive_of_a_dead_letter_queue_names_the_queue_to_redrive(
    client: shardq.Client, name: str
) -> None:
    orders = client.create_queue("orders", dead_letter_queue=name)
    orders.producer().send(b"tea")
    dead_lettered(orders, "cold")
    with pytest.raises(shardq.QueueNotFound, match="`shardq redrive orders` moves the messages"):
        client.queue(name).redrive()
    assert orders.redrive() == 1


def test_a_redrive_of_a_queue_without_dead_letters_moves_none(client: shardq.Client) -> None:
    assert client.create_queue("plain", max_deliveries=None).redrive() == 0
    assert client.create_queue("not.dead", max_deliveries=None).redrive() == 0
