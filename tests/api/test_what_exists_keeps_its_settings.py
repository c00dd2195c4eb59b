"""One rule: what exists keeps its settings, and a warning tells of each that a call gives otherwise."""

from __future__ import annotations

import logging.config
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import shardq
from shardq.cli.main import main
from shardq.tasks import Tasks, chain

Release = Callable[[shardq.Client, int], object]

RELEASES: dict[str, tuple[Release, str]] = {
    "a queue": (
        lambda client, number: client.create_queue("q", exist_ok=True, visibility_timeout=10 + number),
        "queue 'q' exists with visibility_timeout=11.0: 12 was not applied; `alter` changes it",
    ),
    "the cron expression of a schedule": (
        lambda client, number: client.schedules.create("s", queue="q", cron=f"{number} 2 * * *", exist_ok=True),
        "schedule 's' exists with cron='1 2 * * *': '2 2 * * *' was not applied; `client.schedules.alter` changes it",
    ),
    "the period of a schedule": (
        lambda client, number: client.schedules.create("s", queue="q", every=60 * number, exist_ok=True),
        "schedule 's' exists with every=60.0: 120.0 was not applied",
    ),
    "the body of a schedule": (
        lambda client, number: client.schedules.create(
            "s", queue="q", cron="@daily", body=b"v%d" % number, exist_ok=True
        ),
        "schedule 's' exists with body=b'v1': b'v2' was not applied",
    ),
    "the end of a schedule": (
        lambda client, number: client.schedules.create(
            "s", queue="q", cron="@daily", until=datetime(2100 + number, 1, 1, tzinfo=UTC), exist_ok=True
        ),
        "schedule 's' exists with until=",
    ),
    "an option that a schedule has no more": (
        lambda client, number: client.schedules.create(
            "s", queue="q", cron="@daily", count=5 if number == 1 else None, exist_ok=True
        ),
        "schedule 's' exists with count=5: None was not applied",
    ),
    "the queue of a schedule": (
        lambda client, number: client.schedules.create(
            "s", queue="q" if number == 1 else "other", cron="@daily", exist_ok=True
        ),
        "schedule 's' exists with queue='q': 'other' was not applied; delete it to create it there",
    ),
    "the permits of a semaphore": (
        lambda client, number: client.semaphore("smtp", permits=number),
        "semaphore 'smtp' exists with permits=1: 2 was not applied; `alter` changes it",
    ),
    "the lease of a semaphore": (
        lambda client, number: client.semaphore("smtp", permits=1, lease=10 * number),
        "semaphore 'smtp' exists with lease=10.0: 20.0 was not applied",
    ),
    "a topic": (
        lambda client, number: client.create_topic("news", retention=60 * number, exist_ok=True),
        "topic 'news' exists with retention=60.0: 120.0 was not applied; `topic.alter` changes it",
    ),
    "a subscription": (
        lambda client, number: client.create_topic("news", exist_ok=True).subscribe("mail", max_deliveries=number),
        "subscription 'mail' of topic 'news' exists with max_deliveries=1: 2 was not applied; "
        "`subscription.queue.alter` changes it",
    ),
    "the rate limit of a task": (
        lambda client, number: sent(client, rate_limit=f"{number}/s"),
        "queue 'mail' of task 'job' exists with rate_limit='1/s': '2/s' was not applied; "
        "`shardq alter mail --rate-limit 2/s` changes it",
    ),
    "a rate limit that is new": (
        lambda client, number: sent(client, rate_limit=None if number == 1 else "2/s"),
        "queue 'mail' of task 'job' exists with rate_limit=None: '2/s' was not applied",
    ),
    "the attempts of a task": (
        lambda client, number: sent(client, retry=6 * number),
        "queue 'mail' of task 'job' exists with max_deliveries=6: 12 was not applied; the task is tried less often",
    ),
    "the schedule of a task": (
        lambda client, number: job(client).schedule("s", every=60 * number, exist_ok=True),
        "schedule 's' exists with every=60.0: 120.0 was not applied",
    ),
}  # fmt: skip


def job(client: shardq.Client, **options: Any) -> shardq.tasks.Task[[], None, None]:
    tasks = Tasks()
    tasks.bind(client)

    @tasks.task(queue="mail", **options)
    def job() -> None: ...

    return job


def sent(client: shardq.Client, **options: Any) -> None:
    job(client, **options).send()


@pytest.fixture
def queues(client: shardq.Client) -> shardq.Client:
    client.create_queue("q", visibility_timeout=11)
    client.create_queue("other")
    return client


@pytest.mark.parametrize(("release", "text"), RELEASES.values(), ids=RELEASES)
def test_a_new_release_is_told_which_of_its_settings_are_not_applied(
    queues: shardq.Client, url: str, release: Release, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # the second time nothing differs
        release(queues, 1)
        assert caplog.text == ""
    with shardq.connect(url) as other:
        release(other, 2)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert text in caplog.records[0].getMessage()


def test_a_semaphore_that_is_opened_twice_with_other_permits_warns_once(
    client: shardq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.semaphore("smtp", permits=1)
    for _ in range(2):
        client.semaphore("smtp", permits=2)
    assert [each.getMessage() for each in caplog.records] == [
        "semaphore 'smtp' exists with permits=1: 2 was not applied; `alter` changes it"
    ]


def test_a_semaphore_that_was_created_again_with_other_permits_warns(
    client: shardq.Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.semaphore("smtp", permits=1)
    client.delete_queue("_shardq/permits/smtp")
    with shardq.connect(url) as other:
        other.semaphore("smtp", permits=2)
    client.semaphore("smtp", permits=1)
    assert "semaphore 'smtp' exists with permits=2: 1 was not applied" in caplog.text


@pytest.mark.parametrize(("release", "text"), RELEASES.values(), ids=RELEASES)
def test_a_new_release_is_told_so_after_logging_was_configured(
    queues: shardq.Client,
    url: str,
    release: Release,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    release(queues, 1)
    for each in logging.root.manager.loggerDict.values():
        if isinstance(each, logging.Logger):
            monkeypatch.setattr(each, "disabled", each.disabled)
    logging.config.dictConfig({"version": 1})  # which disables all loggers
    with shardq.connect(url) as other:
        release(other, 2)
    assert text in caplog.text


def test_a_release_that_gives_no_setting_is_told_nothing(
    client: shardq.Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.semaphore("smtp", permits=1, lease=6.0)
    client.create_topic("news", retention=60.0)
    with shardq.connect(url) as other:
        assert other.semaphore("smtp", permits=1).lease == 6.0
        assert other.create_topic("news", exist_ok=True).retention == 60.0
    assert caplog.text == ""


def test_a_task_that_is_sent_to_another_queue_creates_it_with_its_limits(
    client: shardq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = Tasks()
    tasks.bind(client)

    @tasks.task(queue="mail", rate_limit="50/s", retry=9)
    def deliver(number: int) -> int:
        return number

    @tasks.task(queue="begin")
    def begin() -> int:
        return 1

    @tasks.task(queue="slow", rate_limit="5/s")
    def slow() -> None: ...

    deliver.options(queue="a").send(1)
    deliver.options(queue="b").send_many([deliver.options(queue="b").signature(1)])
    chain(deliver.options(queue="c").signature(1)).send()
    deliver.options(queue="d").map(range(450)).send()
    deliver.signature(1).schedule("s", every=60)
    chain(begin.signature(), deliver.options(queue="e").then()).send()
    tasks.drain(queues=["begin"])
    for name in ("a", "b", "c", "d", "e", "mail"):
        settings = client.queue(name).settings
        assert (name, settings.rate_limit, settings.max_deliveries) == (name, "50/s", 9)
    assert client.queue("begin").settings.rate_limit is None
    assert caplog.text == ""
    for _ in range(3):
        slow.options(queue="mail").send()
    assert caplog.text.count("queue 'mail' of task 'slow' exists with rate_limit='50/s': '5/s'") == 1


def test_equal_rates_that_are_written_otherwise_do_not_differ(
    client: shardq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    sent(client, rate_limit="60/m")
    sent(client, rate_limit="60/60s")
    assert caplog.text == ""


def test_the_command_that_changes_a_semaphore_tells_of_nothing(
    client: shardq.Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.semaphore("smtp", permits=1)
    with pytest.raises(SystemExit):
        main(["--url", url, "semaphore", "smtp", "--permits", "2"])
    assert caplog.text == ""
    assert client.semaphore("smtp").state().permits == 2
