"""What is shown while a run goes on, and of its end."""

import io

import pytest
from rich.console import Console

from shardq.demo.check import delays_by_carrier
from shardq.demo.progress import Pace, Progress, live_view
from shardq.demo.records import Ack, Harvest, Sent, WorkerRecords
from shardq.demo.report import heat_map
from shardq.demo.summary import Spread
from shardq.demo.timeline import percentile, read_timeline
from tests.demo.test_demo_check import a_result, a_run


def printed(table, width=80):
    file = io.StringIO()
    console = Console(file=file, width=width)
    console.print(table)
    return file.getvalue()


def shown(console):
    with live_view(console, 1_000) as view:
        for seconds in (0.0, 0.3, 0.6, 1.2):
            view.show(Progress(seconds, 800, 300, 50, 9_000.0, 4_000.0))
        view.say("worker 1 was killed")
        for _ in range(2):
            view.show(Progress(1.3, 1_000, 1_000, 0, 9_000.0, 4_000.0))
    return console.file.getvalue()


def test_without_a_terminal_progress_is_a_line_a_second_and_one_at_the_end():
    lines = shown(Console(file=io.StringIO())).splitlines()

    assert len(lines) == 4
    assert lines[0] == "  0.0 s  sent 800 (9,000/s)  worked 300 (4,000/s)  50 in flight"
    assert lines[2] == "! worker 1 was killed"


def test_on_a_terminal_progress_is_bars_and_the_kill_stays_in_sight():
    text = shown(Console(file=io.StringIO(), force_terminal=True, width=100))

    assert "━" in text
    assert "worker 1 was killed" in text
    assert "4,000/s" in text


def test_rates_are_those_of_the_last_second():
    pace = Pace()

    assert pace.step(0, 0, 0).sent_rate == 0
    assert pace.step(1_000, 10, 0).sent_rate > pace.step(1_000, 10, 0).worked_rate > 0


def test_few_shards_are_shown_with_their_numbers():
    text = printed(heat_map(Spread([[1_000, 0], [0, 0], [250, 250]])))

    assert "█1,000" in text
    assert [line.split()[0] for line in text.splitlines()[1:3]] == ["0", "2"]  # 1 was not written
    assert "1,500" in text


@pytest.mark.parametrize("shards", [9, 100, 1_000])
def test_many_shards_fit_on_a_terminal(shards):
    text = printed(heat_map(Spread([[7] * shards])))

    assert "…" not in text
    assert f"{7 * shards:,}" in text


def test_spread_is_measured_by_the_fullest_shard():
    spread = Spread([[3, 1], [3, 1]])

    assert (spread.by_shard, spread.mean, spread.imbalance) == ([6, 2], 4.0, 1.5)


def test_percentiles_are_of_the_nearest_rank():
    assert [percentile(range(1, 101), share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([7.0], 0.5) == 7.0


def test_a_timeline_is_cut_out_of_the_records(tmp_path):
    worker = WorkerRecords(
        [a_result(1, batch=1), a_result(2, batch=2)], {1: Ack(1, 1.1, 1, 0), 2: Ack(2, 2.0, 1, 0)}
    )
    timeline = read_timeline(a_run(tmp_path), Harvest([Sent(1.0, 0, 0, 2)], [worker]))

    assert timeline.step == 0.25
    assert timeline.sent == [0, 0, 0, 0, 8, 0, 0, 0, 0]
    assert timeline.acked == [0, 0, 0, 0, 4, 0, 0, 0, 4]
    assert timeline.latency[8].p99 == 1.0
    assert timeline.latency[5] is None


def test_flights_that_did_not_arrive_have_no_delay():
    delays = delays_by_carrier([("UA", 4), ("UA", None), ("DL", None)])

    assert (delays["UA"].flights, delays["UA"].mean, delays["UA"].longest) == (2, 4.0, 4)
    assert (delays["DL"].flights, delays["DL"].mean, delays["DL"].longest) == (1, None, None)
