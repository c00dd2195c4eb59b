"""``shardq stats --since``, and the switch of what keeps the history."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.cli.queue_history import drawn, keeping_history
from shardq.history import Sampler, read_history
from shardq.metrics import Metrics
from shardq.testing import ManualClock, ManualTimer
from tests.cli.conftest import Shell


@pytest.fixture
def sampled(jobs: Shell) -> Shell:
    """Make a queue with the history of 20 minutes, until now."""
    steps = 80
    clock, timer, metrics = ManualClock(SystemClock().now() - steps * 15_000_000), ManualTimer(), Metrics()
    with shardq.connect(jobs.url, clock=clock, observer=metrics) as client:
        queue, sampler = client.queue("jobs"), Sampler(client, measures=metrics.measures, timer=timer)
        with queue.producer() as producer, queue.consumer() as consumer:
            for step in range(steps):
                producer.send_many([b"x"] * round(1_200 * (1 + math.sin(step / 12))))
                batch = consumer.receive(900)
                metrics.handled("jobs", {"worked": len(batch)}, [0.02 * step] * 10)
                batch.ack()
                clock.advance(15)
                timer.advance(15)
                sampler.step()
        sampler.close()
    return jobs


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Sampler]:
    """Return the samplers that are started. They take no samples."""
    found: list[Sampler] = []

    def start(sampler: Sampler) -> None:
        found.append(sampler)

    monkeypatch.setattr(Sampler, "start", start)
    return found


def test_a_history_is_drawn_in_at_most_80_columns(sampled: Shell) -> None:
    lines = sampled.ok("stats", "jobs", "--since", "20m").stdout.splitlines()
    assert lines[0] == "jobs, 30 s a column"
    assert max(map(len, lines)) <= 80
    labels = [line[:9].strip() for line in lines[1:]]
    assert labels[:4] == ["ready", "in flight", "in", "out"]
    assert {"wait p95", "work p95"} <= set(labels)
    assert "delayed" not in labels
    ready = lines[1]
    assert "█" in ready
    assert "▁" in ready
    assert ready.rstrip().rpartition("max ")[2].replace(",", "").replace("k", "").replace(".", "").isdigit()


def test_no_history_of_any_length_is_drawn_wider(sampled: Shell) -> None:
    with shardq.connect(sampled.url) as client:
        for minutes in (1, 7, 60, 61, 240, 700, 1_440):
            history = read_history(client, "jobs", since=minutes * 60.0, points=48)
            assert max(map(len, drawn(history))) <= 80, minutes


def test_the_history_is_json_with_rates_and_durations(sampled: Shell) -> None:
    found = sampled.json("stats", "jobs", "--since", "20m")
    assert (found["queue"], found["step"], found["incoming_estimated"]) == ("jobs", 30.0, False)
    point = found["points"][-5]
    assert point["outgoing"] == 60
    assert set(point["wait"]) == {"p50", "p95"}


def test_all_queues_together_and_each_of_a_pattern_are_drawn(sampled: Shell) -> None:
    sampled.ok("create", "jobs.of-a-customer-with-a-long-name.invoices")
    total = sampled.ok("stats", "--since", "20m").stdout.splitlines()
    assert total[0] == "all queues, 30 s a column"
    assert re.match("ready +▁.*█", total[1])
    assert sampled.json("stats", "--since", "20m")["queue"] is None
    lines = sampled.ok("stats", "jobs*", "--since", "24h").stdout.splitlines()
    assert lines[0] == "messages, 60 min a column"
    assert [line.split()[0] for line in lines[1:]] == ["jobs", "jobs.of-a-customer-with-a-l…"]
    assert lines[2].endswith("unknown")
    assert max(map(len, lines)) <= 80
    found = sampled.json("stats", "jobs*", "--since", "20m")["queues"]
    assert [each["queue"] for each in found] == ["jobs", "jobs.of-a-customer-with-a-long-name.invoices"]


@pytest.mark.parametrize("queues", [("jobs",), ("jobs*",), ()])
def test_where_nothing_was_sampled_only_a_note_says_how_samples_are_taken(
    jobs: Shell, queues: tuple[str, ...]
) -> None:
    result = jobs.ok("stats", *queues, "--since", "1h")
    assert result.stdout == ""
    assert "nothing was sampled" in result.stderr
    assert "`shardq pipeline run`" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("jobs", "--since", "2d"), 2, "since=172800"),
        (("jobs", "--since", "1h", "--watch"), 2, "--since does not go with --watch"),
        (("x*", "--since", "1h"), 3, "no queue matches 'x*'"),
        ((), 2, "Missing argument 'QUEUE|PATTERN'"),
        (("missing", "--since", "1h"), 3, "queue 'missing' does not exist"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    jobs: Shell, arguments: tuple[str, ...], code: int, text: str
) -> None:
    result = jobs("stats", *arguments)
    assert (result.exit_code, text in result.output) == (code, True), result.output


def test_nothing_keeps_the_history_of_no_store() -> None:
    with keeping_history(None):
        pass


def test_workers_take_part_unless_they_are_told_not_to(
    jobs: Shell, started: list[Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = ("work", "jobs", "--exec", "true", "--idle-exit", "0.1s")
    jobs.ok("send", "jobs", "x")
    jobs.ok(*work)
    assert len(started) == 1
    jobs.ok(*work, "--no-history")
    monkeypatch.setenv("SHARDQ_HISTORY", "off")
    jobs.ok(*work)
    assert len(started) == 1


@pytest.mark.parametrize(("option", "samplers"), [((), 1), (("--no-history",), 0)])
def test_the_metrics_of_queues_take_part_unless_they_are_told_not_to(
    jobs: Shell,
    started: list[Sampler],
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
    samplers: int,
) -> None:
    monkeypatch.setattr("shardq.cli.commands.metrics.stop_signals", lambda end: nullcontext(end()))
    jobs.ok("metrics", "--port", "0", *option)
    assert len(started) == samplers


@pytest.mark.parametrize("command", [("serve",), ("ui", "--no-browser")])
@pytest.mark.parametrize(("option", "samplers"), [((), 1), (("--no-history",), 0), (("--read-only",), 0)])
def test_a_service_takes_part_unless_it_may_not_write(
    jobs: Shell,
    started: list[Sampler],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    option: tuple[str, ...],
    samplers: int,
) -> None:
    monkeypatch.setattr("shardq.cli.commands.serve.serve", lambda plan, on_start: on_start("http://here"))
    jobs.ok(*command, *option)
    assert len(started) == samplers
