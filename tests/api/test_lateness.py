"""What is late is due, and could be received, by the store's clock. What waits behind a retry is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result

import shardq
from shardq.base.clock import from_datetime
from shardq.cli.commands.doctor import examine
from shardq.cli.main import main
from shardq.cli.stats_view import Snapshot, total_of
from shardq.testing import ManualClock
from shardq.worker import Worker


def test_a_message_behind_a_retry_that_is_not_due_is_not_late(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("mail", max_deliveries=20)
    for body in (b"greylisted", b"next", b"last"):
        queue.producer().send(body, group="customer")

    def handler(message: shardq.Message) -> None:
        if message.body == b"greylisted" and message.deliveries == 1:
            raise shardq.Retry(after=600)

    Worker(queue, handler, idle_exit=0).run()
    clock.advance(400)
    assert Worker(queue, handler, idle_exit=0).run().worked == 0
    assert queue.counts().late_seconds(client.now()) == 0
    assert found(client) == {"mail": True, "mail.dead": True}
    assert total_of(Snapshot.take(client, queue)).late_seconds == 0
    clock.advance(900)
    assert queue.counts().late_seconds(client.now()) == pytest.approx(700, abs=1)
    assert found(client)["mail"] is False
    assert total_of(Snapshot.take(client, queue)).late_seconds == pytest.approx(700, abs=1)
    for _ in range(3):
        Worker(queue, handler, idle_exit=0).run()
    assert queue.counts().late_seconds(client.now()) == 0


def found(client: shardq.Client, late_after: float | None = None) -> dict[str, bool]:
    """Whether each queue is in time, as far as the doctor says."""
    checks, _ = examine(client, None, late_after)
    return {check.subject: check.ok for check in checks if check.name == "oldest due"}


@pytest.mark.parametrize("start", [datetime(2001, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)])
def test_lateness_is_by_the_clock_of_the_store(url: str, start: datetime) -> None:
    clock = ManualClock(from_datetime(start))
    with shardq.connect(url, clock=clock) as client:
        queue = client.create_queue("q", visibility_timeout=30)
        queue.producer().send(b"x")
        clock.advance(100)
        total = total_of(Snapshot.take(client, queue))
        assert (round(total.late_seconds), round(total.oldest_seconds or 0)) == (100, 100)
        assert found(client)["q"] is True
        clock.advance(250)
        assert found(client)["q"] is False


def test_the_bound_can_be_chosen(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("q", visibility_timeout=30)
    queue.producer().send(b"x")
    clock.advance(310)
    assert [found(client, bound)["q"] for bound in (None, 60, 600)] == [False, False, True]
    queue.alter(visibility_timeout=60)
    assert found(client)["q"] is True  # ten visibility timeouts


def run(url: str, arguments: Sequence[str]) -> Result:
    return CliRunner().invoke(main, ["--url", url, *arguments])


def test_the_commands_tell_it(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_queue("q").producer().send(b"x")
        client.create_queue("idle")
    told: dict[str, Any] = json.loads(run(url, ["stats", "q", "--json"]).stdout)
    assert told["late_seconds"] > 0
    assert "late" in run(url, ["stats", "q"]).stdout
    assert json.loads(run(url, ["stats", "idle", "--json"]).stdout)["late_seconds"] == 0
    assert run(url, ["doctor", "q", "--late-after", "1h"]).exit_code == 0
    assert run(url, ["doctor", "q", "--late-after", "0.000001"]).exit_code == 1
