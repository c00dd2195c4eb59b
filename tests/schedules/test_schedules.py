"""A schedule sends each occurrence once, to whatever consumer is there, and nothing in a burst."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.schedules.occurrences import FOLDER, send_due_occurrence
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import context_of, expire_caches
from shardq.worker import Worker

WHEN = "shardq-scheduled-for"


def received(consumer: shardq.Consumer) -> list[shardq.Message]:
    messages = []
    while batch := consumer.receive(10):
        messages += list(batch)
        batch.ack()
    return messages


def seconds(messages: list[shardq.Message], client: shardq.Client) -> list[float]:
    """How many seconds ago the occurrences were."""
    from datetime import datetime

    moments = [datetime.fromisoformat(str(message.headers[WHEN])) for message in messages]
    return [(client.now() - moment).total_seconds() for moment in moments]


def test_each_occurrence_sends_one_message_with_its_options(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.schedules.create(
        "tick", queue="q", every=60, body={"a": 1}, codec=shardq.JSON, headers={"h": b"1", "n": 2}, priority=2
    )
    consumer = client.queue("q").consumer(codec=shardq.JSON)
    other = client.queue("q").consumer(codec=shardq.JSON)
    assert received(consumer) == []
    for _ in range(3):
        clock.advance(59)
        assert received(consumer) + received(other) == []
        clock.advance(1)
        (message,) = received(other) + received(consumer)
        assert (message.body, message.priority) == ({"a": 1}, 2)
        assert message.headers["h"] == b"1"
        assert message.headers["shardq-schedule"] == "tick"
        assert message.headers[WHEN] == client.now().isoformat()
    assert client.schedules.get("tick").sent == 3


def test_what_nobody_was_there_for_takes_place_once(client: shardq.Client, clock: ManualClock) -> None:
    client.schedules.create("one", queue="q", every=60)
    client.schedules.create("none", queue="q", cron="0 * * * *", catch_up="none")
    clock.advance(86_400 + 30)
    messages = received(client.queue("q").consumer())
    assert [message.headers["shardq-schedule"] for message in messages] == ["one"]
    assert seconds(messages, client) == [30]
    clock.advance(30)
    assert len(received(client.queue("q").consumer())) == 1  # and goes on at its pace


def test_a_schedule_ends_after_its_count_or_its_last_moment(
    client: shardq.Client, clock: ManualClock
) -> None:
    until = client.now() + timedelta(seconds=130)
    client.schedules.create("counted", queue="q", every=60, count=2)
    client.schedules.create("bounded", queue="q", every=60, until=until)
    client.schedules.create("once", queue="q", at=client.now() + timedelta(seconds=60))
    consumer, found = client.queue("q").consumer(), []
    for _ in range(6):
        clock.advance(60)
        found += [message.headers["shardq-schedule"] for message in received(consumer)]
    assert sorted(found) == ["bounded", "bounded", "counted", "counted", "once"]
    assert [schedule.next for schedule in client.schedules.list()] == [None] * 3


def test_what_was_missed_beyond_the_end_does_not_take_place(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.schedules.create("b", queue="q", every=60, until=client.now() + timedelta(seconds=130))
    clock.advance(1_000)
    assert seconds(received(client.queue("q").consumer()), client) == [880]
    assert client.schedules.get("b").next is None


def test_overlap_is_skipped_while_the_last_message_is_not_finished(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.schedules.create("s", queue="q", every=60, overlap="skip")
    consumer = client.queue("q").consumer(visibility_timeout=600)
    clock.advance(60)
    batch = consumer.receive(10)
    assert len(batch) == 1
    clock.advance(60)
    assert not consumer.receive(10)  # in flight
    batch.release()
    clock.advance(60)
    assert len(received(consumer)) == 1  # it waited
    assert (client.schedules.get("s").sent, client.schedules.get("s").skipped) == (1, 2)
    clock.advance(60)
    assert len(received(consumer)) == 1


def test_a_paused_schedule_does_nothing_and_resumes_with_what_comes(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.schedules.create("s", queue="q", every=60)
    consumer = client.queue("q").consumer()
    client.schedules.pause("s")
    clock.advance(150)
    assert received(consumer) == []
    assert client.schedules.resume("s").next == client.now() + timedelta(seconds=30)
    client.schedules.resume("s")
    assert received(consumer) == []
    clock.advance(30)
    assert len(received(consumer)) == 1


def test_a_queue_that_takes_no_sends_gets_one_message_when_it_does(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.schedules.create("s", queue="q", every=60)
    queue = client.queue("q")
    consumer = queue.consumer()
    queue.pause(sends=True)
    for _ in range(5):
        clock.advance(60)
        assert received(consumer) == []
    queue.resume()
    assert len(received(consumer)) == 1


def test_a_change_holds_from_now_on(client: shardq.Client, clock: ManualClock) -> None:
    client.schedules.create("s", queue="q", every=3_600, count=3)
    consumer = client.queue("q").consumer()
    assert received(consumer) == []
    changed = client.schedules.alter("s", every=10, body=b"new", count=None)
    assert (changed.every, changed.next) == (10, client.now() + timedelta(seconds=10))
    clock.advance(10)
    assert [message.body for message in received(consumer)] == [b"new"]
    client.schedules.alter("s", cron="@hourly", time_zone="Europe/Berlin")
    clock.advance(10)
    assert received(consumer) == []
    for wrong in (
        {"queue": "p"},
        {"cron": "x"},
        {"every": 5, "cron": "@daily"},
        {"count": 0},
        {"overlap": "no"},
    ):
        before = client.schedules.get("s")
        with pytest.raises(shardq.InvalidSetting):
            client.schedules.alter("s", **wrong)
        assert client.schedules.get("s") == before


def test_run_now_sends_beside_the_occurrences(client: shardq.Client, clock: ManualClock) -> None:
    client.schedules.create("s", queue="q", every=60, body=b"x")
    client.schedules.pause("s")
    identity = client.schedules.trigger("s")
    (message,) = received(client.queue("q").consumer())
    assert (message.id, message.body) == (identity, b"x")
    assert client.schedules.get("s").sent == 0


def test_purging_the_queue_leaves_its_schedules(client: shardq.Client, clock: ManualClock) -> None:
    client.schedules.create("s", queue="q", every=60)
    client.queue("q").purge()
    clock.advance(60)
    assert len(received(client.queue("q").consumer())) == 1


def test_a_queue_that_is_deleted_takes_its_schedules_with_it(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.schedules.create("s", queue="q", every=60)
    client.delete_queue("q")
    assert client.schedules.list() == ()
    with pytest.raises(shardq.ScheduleNotFound):
        client.schedules.get("s")
    assert [name for name in client.queues("_shardq/") if "schedules" in name] == []
    client.create_queue("q", shards=1, time_shards=1)
    clock.advance(60)
    assert received(client.queue("q").consumer()) == []
    client.schedules.create("s", queue="q", every=60)
    clock.advance(60)
    assert len(received(client.queue("q").consumer())) == 1


@pytest.mark.parametrize("by_a_consumer", [False, True])
def test_a_queue_that_expires_takes_its_schedules_with_it(
    client: shardq.Client, clock: ManualClock, by_a_consumer: bool
) -> None:
    client.create_queue("a/1", expires=60, shards=1, time_shards=1)
    client.schedules.create("s", queue="a/1", every=3_600)
    client.schedules.create("t", queue="q", every=3_600)
    other = client.create_queue("a/2", expires=60, shards=1, time_shards=1).consumer()
    for _ in range(40):
        clock.advance(65)
        if not by_a_consumer:
            client.delete_expired_queues("a/1")
        expire_caches(other)
        other.receive(1)
    assert not client.exists("a/1")
    assert [name for name in client.queues("_shardq/") if "schedules" in name] == ["_shardq/schedules/t"]
    assert [each.id for each in client.schedules.list()] == ["t"]


@pytest.mark.parametrize("days", [None, 30], ids=["without an end", "beyond its end"])
def test_a_clock_that_was_far_ahead_for_a_while_does_not_silence_a_schedule(
    tmp_path: Path, days: int | None
) -> None:
    start = ManualClock().now()
    clocks = [ManualClock(start), ManualClock(start + 90 * 86_400_000_000), ManualClock(start)]
    right, wrong, other = (
        shardq.connect(f"sqlite:///{tmp_path}/q.db?synchronous=normal", clock=clock) for clock in clocks
    )
    right.create_queue("q", shards=1, time_shards=1)
    until = None if days is None else right.now() + timedelta(days=days)
    right.schedules.create("hourly", queue="q", cron="@hourly", until=until)
    right.schedules.create("minutely", queue="q", every=60, until=until)
    sent = received(wrong.queue("q").consumer())
    assert len(sent) == 2
    for clock in (clocks[0], clocks[2]):
        clock.advance(7_200)
    received(right.queue("q").consumer())
    clocks[0].advance(3_600)
    clocks[2].advance(3_570)  # their clocks differ by less than a minute
    found = received(right.queue("q").consumer()) + received(other.queue("q").consumer())
    assert sorted(message.headers["shardq-schedule"] for message in found) == ["hourly", "minutely"]
    for client in (right, wrong, other):
        client.close()


@pytest.mark.parametrize(
    ("step", "options"),
    [
        (60, {"every": 60, "count": 2}),
        (60, {"every": 60, "until": 130}),
        (1, {"every": 1, "until": 130}),
        (60, {"every": 3_600, "until": 4_000}),
        (60, {"every": 60, "until": 500_000, "count": 2}),
        (60, {"cron": "* * * * *", "until": 130}),
        (86_400, {"cron": "0 0 1 1 *", "until": 400 * 86_400}),
        (60, {"at": 60}),
        (60, {"at": 60, "until": 500_000}),
    ],
    ids=str,
)
@pytest.mark.parametrize("apart", [-59, 0, 59])
def test_a_schedule_that_is_over_stays_so_and_nothing_is_written_of_it(
    url: str,
    client: shardq.Client,
    clock: ManualClock,
    step: float,
    options: dict[str, Any],
    apart: int,
) -> None:
    begin, moments = client.now(), ("at", "until")
    given: dict[str, Any] = {
        name: begin + timedelta(seconds=each) if name in moments else each for name, each in options.items()
    }
    client.schedules.create("s", queue="q", **given)
    context, name = context_of(client.queue("q")), f"{FOLDER}s"
    for _ in range(500):
        if client.schedules.get("s").next is None:
            break
        clock.advance(step)
        send_due_occurrence(context, name)
    before = context.store.load_queue(name)
    assert client.schedules.get("s").next is None
    with shardq.connect(url, clock=ManualClock(clock.now() + apart * 1_000_000)) as other:
        for _ in range(3):
            send_due_occurrence(context_of(other.queue("q")), name)
    assert context.store.load_queue(name) == before


def test_changing_settings_of_the_queue_keeps_its_schedules(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.schedules.create("s", queue="q", every=60)
    client.queue("q").alter(retention=3_600)
    clock.advance(60)
    assert len(received(client.queue("q").consumer())) == 1


def test_schedules_are_found_listed_and_deleted(client: shardq.Client, clock: ManualClock) -> None:
    client.create_queue("p")
    made = [
        client.schedules.create(name, queue=queue, every=60) for name, queue in (("b", "q"), ("a/x", "p"))
    ]
    assert client.schedules.list() == (made[1], made[0])
    assert client.schedules.list("q") == (made[0],)
    assert client.queues() == ("p", "p.dead", "q", "q.dead")
    with pytest.raises(shardq.ScheduleExists, match="schedule 'b' exists already"):
        client.schedules.create("b", queue="p", every=5)
    assert client.schedules.create("b", queue="p", every=5, exist_ok=True) == made[0]
    client.schedules.delete("b")
    with pytest.raises(shardq.ScheduleNotFound):
        client.schedules.delete("b")
    clock.advance(60)
    assert received(client.queue("q").consumer()) == []
    assert client.queues(FOLDER) == (f"{FOLDER}a/x",)


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("s", {"queue": "none", "every": 5}, shardq.QueueNotFound),
        ("s/../:", {"queue": "q", "every": 5}, shardq.InvalidName),
        ("x" * 81, {"queue": "q", "every": 5}, shardq.InvalidName),
        (5, {"queue": "q", "every": 5}, shardq.InvalidName),
        ("s", {"queue": "q", "every": 5, "count": 0}, shardq.InvalidSetting),
        ("s", {"queue": "q", "every": 5, "overlap": "maybe"}, shardq.InvalidSetting),
        ("s", {"queue": "q", "every": 5, "catch_up": "all"}, shardq.InvalidSetting),
        ("s", {"queue": "q", "every": 5, "priority": 10}, shardq.InvalidMessage),
        ("s", {"queue": "q", "every": 5, "headers": {"a": []}}, shardq.InvalidMessage),
        ("s", {"queue": "q", "every": 5, "body": "text"}, shardq.InvalidMessage),
        ("s", {"queue": "q", "every": 5, "body": b"x" * 70_000}, shardq.InvalidMessage),
        ("s", {"queue": "q", "every": 5, "ttl": -1}, shardq.InvalidMessage),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_stored(
    client: shardq.Client, name: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.schedules.create(name, **options)
    assert client.queues("_shardq/") == ()


def test_moments_in_the_past_are_refused(client: shardq.Client) -> None:
    past = client.now() - timedelta(seconds=1)
    with pytest.raises(shardq.InvalidSetting, match=r"at=.* is in the past: it is"):
        client.schedules.create("s", queue="q", at=past)
    with pytest.raises(shardq.InvalidSetting, match=r"until=.* is before the first occurrence, at "):
        client.schedules.create("s", queue="q", every=5, until=past)


@pytest.mark.parametrize("option", ["at", "until"])
@pytest.mark.parametrize("moment", [datetime.min, datetime.max])
@pytest.mark.parametrize("hours", [-14, 0, 14])
def test_moments_beyond_what_can_be_computed_with_are_refused(
    client: shardq.Client, option: str, moment: datetime, hours: int
) -> None:
    moment = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    given: dict[str, Any] = {option: moment} | ({"every": 5} if option == "until" else {})
    with pytest.raises(shardq.InvalidSetting, match=f"{option}=.*give a moment from the year 1970 to 9000"):
        client.schedules.create("s", queue="q", **given)


def test_a_consumer_of_several_queues_and_a_pop_keep_them_going(
    client: shardq.Client, clock: ManualClock
) -> None:
    client.create_queue("p")
    client.schedules.create("s", queue="q", every=60)
    client.schedules.create("t", queue="p", every=60)
    clock.advance(60)
    assert client.queue("q").consumer().pop() is not None
    assert len(received(client.consumer(["p", "q"]))) == 1
    clock.advance(60)
    assert len(received(client.consumer(["p", "q"]))) == 2


def test_a_consumer_that_prefetches_keeps_them_going(client: shardq.Client, clock: ManualClock) -> None:
    client.schedules.create("s", queue="q", every=60, count=2)
    with client.queue("q").consumer(prefetch=2) as consumer:
        for _ in range(2):
            clock.advance(60)
            (message,) = consumer.receive(1, wait=30)
            message.ack()
    assert client.schedules.get("s").sent == 2


def test_a_worker_keeps_them_going(client: shardq.Client, clock: ManualClock) -> None:
    client.schedules.create("s", queue="q", every=60, count=3)
    clock.advance(60)

    def handle(message: shardq.Message) -> None:
        if len(found) == 2:
            worker.stop()
        found.append(message.id)
        clock.advance(60)

    found: list[str] = []
    worker = Worker(client.queue("q"), handle)
    worker.run()
    assert len(set(found)) == client.schedules.get("s").sent == 3


def test_a_schedule_that_cannot_be_kept_going_is_in_no_messages_way(
    client: shardq.Client,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client.schedules.create("s", queue="q", every=60)
    client.queue("q").producer().send(b"x")
    clock.advance(60)

    def fail(*_: object) -> str:
        raise KeyError("no time zones")

    with monkeypatch.context() as patched:
        patched.setattr("shardq.schedules.occurrences.send_once", fail)
        assert [message.body for message in received(client.queue("q").consumer())] == [b"x"]
    assert "_shardq/schedules/s was not attended to: KeyError" in caplog.text
    clock.advance(3)
    assert len(received(client.queue("q").consumer())) == 1


class Counting(WrappedStore):
    """Counts the requests."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    def call(self, method: str, do: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(method)
        return super().call(method, do, *args, **kwargs)


def test_a_schedule_that_is_not_due_costs_nothing(
    client: shardq.Client, url: str, clock: ManualClock
) -> None:
    store = Counting(open_store(url, clock))
    with shardq.Client(store) as counted:
        consumer = counted.queue("q").consumer()
        consumer.receive()

        def requests() -> list[str]:
            counted.queue("q")  # reads its settings
            store.asked.clear()
            consumer.receive()
            return [method for method in store.asked if method != "now"]

        plain = requests()
        client.schedules.create("s", queue="q", every=600)
        assert requests() == [*plain[:0], "load_queue", *plain]  # it is read once
        assert requests() == plain
        clock.advance(1)
        assert requests() == plain


@pytest.mark.parametrize(("overlap", "looks"), [("allow", []), ("skip", ["find"])])
def test_an_occurrence_costs_as_many_requests_as_is_said(
    client: shardq.Client, url: str, clock: ManualClock, overlap: Any, looks: list[str]
) -> None:
    store = Counting(open_store(url, clock))
    client.schedules.create("s", queue="q", every=60, overlap=overlap)
    with shardq.Client(store) as counted:
        for _ in range(2):
            clock.advance(60)
            context = context_of(counted.queue("q"))
            store.asked.clear()
            send_due_occurrence(context, FOLDER + "s")
            asked = sorted(each for each in store.asked if each != "now")
            received(client.queue("q").consumer())
    sends = ["append", "confirm_keys", "reserve_keys"]
    assert asked == sorted(["load_queue", "update_queue", "update_queue", *sends, *looks])


class Slow(WrappedStore):
    """Takes longer to send than a schedule waits."""

    clock: ManualClock

    def call(self, method: str, do: Any, *args: Any, **kwargs: Any) -> Any:
        if method == "append":
            self.clock.advance(3)
        return super().call(method, do, *args, **kwargs)


def test_a_schedule_that_is_faster_than_its_store_does_not_keep_consumers_from_receiving(
    client: shardq.Client, url: str, clock: ManualClock
) -> None:
    client.schedules.create("s", queue="q", every=1)
    clock.advance(1)
    store = Slow(open_store(url, clock))
    store.clock = clock
    with shardq.Client(store) as slow, slow.queue("q").consumer() as consumer:
        for _ in range(3):
            assert len(consumer.receive(10)) <= 1
    assert client.schedules.get("s").sent == 3


def test_a_time_zone_goes_with_a_cron_expression_only(client: shardq.Client) -> None:
    client.schedules.create("s", queue="q", cron="@daily", time_zone="Europe/Berlin")
    assert client.schedules.alter("s", cron="@hourly").time_zone == "Europe/Berlin"
    assert client.schedules.alter("s", every=60).time_zone == "UTC"
    with pytest.raises(shardq.InvalidSetting, match="'Europe/Berlin' has no effect without cron"):
        client.schedules.alter("s", time_zone="Europe/Berlin")
    assert client.schedules.alter("s", cron="@daily", time_zone="Europe/Berlin").time_zone == "Europe/Berlin"
