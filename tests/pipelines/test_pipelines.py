"""Pipelines: what their links send on, what they refuse, and what they count."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.client.outcome import Backoff
from shardq.pipelines import (
    DanglingEnd,
    DuplicateLink,
    Forward,
    InvalidPipeline,
    LinkRate,
    LinkReport,
    Pipeline,
    PipelineCycle,
    PipelineReport,
    PipelineWorker,
    Split,
    UndeclaredTarget,
    depths_of,
    rates_of,
    throughput,
)
from shardq.pipelines.drawing import as_dot, as_mermaid, as_svg, as_text, with_rates
from shardq.testing import ManualClock
from shardq.worker import WorkerReport


def same(message: shardq.Message) -> Any:
    return message.body


PIPELINE = Pipeline("clean").link("raw", ["good", "bad"], same).sink("good", same).output("bad")


@pytest.fixture
def queues(client: shardq.Client) -> Iterator[shardq.Client]:
    for name in ("raw", "good", "bad"):
        client.create_queue(name, shards=1, time_shards=1, max_deliveries=2, retry_delay=60)
    yield client
    client.close()


def run(client: shardq.Client, function: Any, **options: Any) -> PipelineReport:
    pipeline = Pipeline("p").link("raw", ["good", "bad"], function, **options).output("good", "bad")
    return PipelineWorker(pipeline, client, idle_exit=0).run()


def bodies(client: shardq.Client, queue: str) -> list[Any]:
    return [message.body for message in client.queue(queue).peek()]


def test_what_goes_on_keeps_headers_priority_and_the_moment_of_its_first_send(
    queues: shardq.Client, clock: ManualClock
) -> None:
    queues.queue("raw").producer().send(b"a", headers={"h": 1}, priority=2, ttl=100)
    (before,) = queues.queue("raw").peek()
    clock.advance(5)
    run(queues, lambda message: Forward("good", b"b", delay=3))
    (message,) = queues.queue("good").peek()
    assert (message.body, message.headers, message.priority) == (b"b", {"h": 1}, 2)
    assert message.enqueued_at == before.enqueued_at
    assert message.expires_at == before.expires_at
    assert bodies(queues, "raw") == []


def test_the_parts_of_a_split_are_new_messages_that_expire_when_it_would_have(
    queues: shardq.Client, clock: ManualClock
) -> None:
    queues.queue("raw").producer().send(b"a", headers={"h": 1}, priority=2, ttl=100)
    (before,) = queues.queue("raw").peek()
    clock.advance(5)
    report = run(
        queues, lambda message: Split([Forward("good", b"1"), Forward("bad", headers={}, priority=7)])
    )
    (good,), (bad,) = queues.queue("good").peek(), queues.queue("bad").peek()
    assert (good.body, good.headers, good.priority) == (b"1", {"h": 1}, 2)
    assert (bad.body, bad.headers, bad.priority) == (b"a", {}, 7)
    assert good.enqueued_at > before.enqueued_at
    assert before.expires_at is not None
    assert good.expires_at is not None
    assert abs((good.expires_at - before.expires_at).total_seconds()) < 0.01
    assert report.links["raw"] == LinkReport(worked=1, sent=2)


def test_none_drops_a_message_and_so_does_a_split_without_parts(queues: shardq.Client) -> None:
    queues.queue("raw").producer().send_many([b"a", b"b"])
    report = run(queues, lambda message: None if message.body == b"a" else Split([]))
    assert report.links["raw"] == LinkReport(worked=2, dropped=2)
    assert [bodies(queues, name) for name in ("raw", "good", "bad")] == [[], [], []]


def test_a_failure_is_tried_again_after_the_delay_of_its_link_and_becomes_a_dead_letter(
    queues: shardq.Client, clock: ManualClock
) -> None:
    queues.queue("raw").producer().send(b"a")

    def fail(message: shardq.Message) -> Any:
        raise ValueError("no such thing")

    retry = Backoff(10, 10)
    assert run(queues, fail, retry=retry).links["raw"].failed == 1
    clock.advance(11)
    assert run(queues, fail, retry=retry).dead_lettered == 1
    (letter,) = queues.queue("raw.dead").peek()
    assert "no such thing" in str(letter.headers)


@pytest.mark.parametrize(
    ("outcome", "report"),
    [
        (shardq.Retry(after=1), LinkReport(failed=1)),
        (shardq.DeadLetter("bad"), LinkReport(failed=1)),
        (shardq.Snooze(9), LinkReport(put_off=1)),
        (shardq.Discard("old"), LinkReport(dropped=1)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("raises", [True, False], ids=["raised", "returned"])
def test_outcomes_mean_what_they_mean_to_workers(
    queues: shardq.Client, outcome: shardq.Outcome, report: LinkReport, raises: bool
) -> None:
    queues.queue("raw").producer().send(b"a")

    def function(message: shardq.Message) -> Any:
        if raises:
            raise outcome
        return outcome

    assert run(queues, function).links["raw"] == report


@pytest.mark.parametrize("returned", [Forward("elsewhere"), b"to one of two", Split([Forward("good"), b"?"])])
def test_a_function_that_names_no_queue_of_its_link_fails_and_sends_nothing(
    queues: shardq.Client, returned: Any
) -> None:
    queues.queue("raw").producer().send(b"a")
    report = run(queues, lambda message: returned)
    assert report.failed == 1
    assert UndeclaredTarget.__name__ in str(report.last_failure)
    assert bodies(queues, "good") == []


def test_of_a_split_with_a_part_that_cannot_be_sent_nothing_is_sent(queues: shardq.Client) -> None:
    queues.queue("bad").alter(max_message_bytes=1_024)
    queues.queue("raw").producer().send(b"a")
    report = run(queues, lambda message: Split([Forward("good", b"1"), Forward("bad", b"x" * 2_000)]))
    assert report.links["raw"] == LinkReport(failed=1)
    assert bodies(queues, "good") == []


@pytest.mark.parametrize("returned", [Forward("good"), Split([Forward("good"), Forward("bad")])])
def test_a_target_that_is_paused_puts_messages_off_and_costs_them_no_delivery(
    queues: shardq.Client, clock: ManualClock, returned: Any
) -> None:
    queues.queue("good").pause(delivery=False, sends=True)
    queues.queue("raw").producer().send(b"a")
    for _ in range(5):
        assert run(queues, lambda message: returned).links["raw"] == LinkReport(put_off=1)
        clock.advance(6)
    queues.queue("good").resume()
    assert run(queues, lambda message: returned).links["raw"].worked == 1
    assert bodies(queues, "good") == [b"a"]


def test_a_sink_keeps_what_its_function_returns_as_the_result(queues: shardq.Client) -> None:
    raw = queues.queue("raw")
    raw.alter(keep_results=True, history_retention=3_600)
    sent = raw.producer().send(b"a")
    PipelineWorker(Pipeline("p").sink("raw", lambda message: b"done"), queues, idle_exit=0).run()
    found = raw.get(sent)
    assert found is not None
    assert found.result == b"done"


def test_a_chain_of_links_runs_in_one_worker_and_counts_each(queues: shardq.Client) -> None:
    queues.queue("raw").producer().send_many([b"1", b"2"])
    pipeline = Pipeline("p").link("raw", "good", same).link("good", "bad", same).output("bad")
    report = PipelineWorker(pipeline, queues, idle_exit=0).run()
    assert report.links == {"raw": LinkReport(worked=2, sent=2), "good": LinkReport(worked=2, sent=2)}
    total = sum([report, report], WorkerReport())
    assert isinstance(total, PipelineReport)
    assert total.links["good"].sent == 4


@pytest.mark.parametrize(
    ("pipeline", "error", "named"),
    [
        (Pipeline("p"), InvalidPipeline, "no links"),
        (Pipeline("p").link("a", "b", same), DanglingEnd, "'b'"),
        (Pipeline("p").sink("a", same).output("c"), DanglingEnd, "'c'"),
        (Pipeline("p").link("a", "b", same).sink("b", same).output("b"), DuplicateLink, "'b'"),
        (
            Pipeline("p").link("a", "b", same).link("b", "c", same).link("c", "b", same),
            PipelineCycle,
            "b -> c -> b",
        ),
    ],
    ids=["empty", "dangling", "output of nothing", "output of a link", "cycle"],
)
def test_a_graph_that_cannot_work_is_refused_by_name(
    pipeline: Pipeline, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        pipeline.check()


def test_links_that_cannot_work_are_refused_when_they_are_declared() -> None:
    async def later(message: shardq.Message) -> None: ...

    pipeline = Pipeline("p").link("a", "b", same)
    with pytest.raises(DuplicateLink, match="'a' already"):
        pipeline.sink("a", same)
    with pytest.raises(DuplicateLink, match="'c' twice"):
        pipeline.link("b", ["c", "c"], same)
    with pytest.raises(PipelineCycle, match="itself"):
        pipeline.link("b", "b", same)
    with pytest.raises(InvalidPipeline, match="no target"):
        pipeline.link("b", [], same)
    with pytest.raises(shardq.InvalidSetting, match="async"):
        pipeline.link("b", "c", later)
    with pytest.raises(shardq.InvalidSetting, match="list of bodies"):
        Split(b"one")


def test_a_queue_that_does_not_exist_is_named_before_anything_runs(client: shardq.Client) -> None:
    client.create_queue("raw")
    with pytest.raises(shardq.QueueNotFound, match="'good'"):
        PipelineWorker(PIPELINE, client)
    client.close()


def test_pictures_name_queues_functions_sinks_and_outputs() -> None:
    assert as_text(PIPELINE) == "clean\nraw  same\n  -> good  same  (sink)\n  -> bad  (output)"
    assert '"raw"' in as_dot(PIPELINE)
    assert as_mermaid(PIPELINE).startswith("flowchart LR\n")


def test_pictures_tell_what_waits_in_each_queue_and_how_fast_it_grows(queues: shardq.Client) -> None:
    for number in range(3):
        queues.queue("raw").producer().send(b"x", delay=60 * number)
    queues.queue("good").pause()
    before = depths_of(PIPELINE, queues)
    first = before[0]
    assert (first.queue, first.ready, first.delayed, first.dead) == ("raw", 1, 2, 0)
    run(queues, lambda _: shardq.DeadLetter("no"))
    now = with_rates(before, depths_of(PIPELINE, queues), 2.0)
    assert (now[0].waiting, now[0].dead, now[0].per_second, now[1].per_second) == (2, 1, -0.5, 0)
    assert depths_of(PIPELINE, queues, interval=0.01)[0].per_second == 0
    text = as_text(PIPELINE, now)
    assert "raw  same  0 ready -0.5/s, 2 delayed, 1 dead\n" in text
    assert "good  same  (sink)  0 ready +0.0/s, paused" in text
    mermaid = as_mermaid(PIPELINE, now)
    assert 's0["raw<br>2 -0.5/s"]:::dead' in mermaid
    assert 's0 -->|"same"| s1' in mermaid
    assert ":::paused" in mermaid
    assert '"raw" [label="raw\\n2 -0.5/s"];' in as_dot(PIPELINE, now)
    drawn = ElementTree.fromstring(as_svg(PIPELINE, now))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}g")) == 4
    assert len(drawn.findall("{http://www.w3.org/2000/svg}path")) == 3


def test_links_tell_how_many_messages_a_second_went_through_them_lately(
    queues: shardq.Client, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "NOTE_SECONDS", 0.0)
    assert rates_of(PIPELINE, queues) == {}
    one = Pipeline(PIPELINE.name).link("raw", "bad", same).output("bad")
    for _ in range(2):  # two workers, one after the other
        queues.queue("raw").producer().send_many([b"x"] * 4)
        PipelineWorker(one, queues, idle_exit=0).run()
    assert rates_of(PIPELINE, queues)["raw"].worked > 0
    assert rates_of(PIPELINE, queues)["raw"].sent > 0
    assert rates_of(Pipeline("other").link("raw", "bad", same).output("bad"), queues) == {}
    known = {"raw": LinkRate("raw", worked=96.04, sent=0.0)}
    assert as_text(PIPELINE, (), known).startswith("clean\nraw  same 96.0/s\n  -> good  same 0.0/s  (sink)\n")
    assert '|"same 96.0/s"|' in as_mermaid(PIPELINE, (), known)
    assert "same 96.0/s" in as_svg(PIPELINE, (), known) and "same 96.0/s" in as_dot(PIPELINE, (), known)
    clock.advance(throughput.COUNTED_SECONDS + 1)
    assert rates_of(PIPELINE, queues) == {}
    queues.queue("raw").producer().send(b"x")
    PipelineWorker(one, queues, idle_exit=0).run()
    (note,) = queues.queue(throughput.QUEUE).peek(10)  # those of the workers before are gone
    assert note.headers == {"pipeline": "clean"}


def test_a_queue_is_drawn_behind_all_that_lead_to_it() -> None:
    pipeline = Pipeline("p").sink("end", same).link("late", "end", same)
    pipeline.link("early", ["end", "late"], same).link("a<b", "late", same)
    mermaid = as_mermaid(pipeline)
    names = re.findall(r'\["([^"]*)"\]', mermaid)
    assert names.index("late") < names.index("end")
    assert "a#lt;b" in names
    ElementTree.fromstring(as_svg(pipeline))


def test_the_command_line_draws_a_pipeline_with_its_depths(url: str, tmp_path: Path) -> None:
    name = "tests.pipelines.test_pipelines:PIPELINE"
    command = ["--url", url, "pipeline", "show", name]
    with shardq.connect(url) as client:
        for queue in PIPELINE.queues:
            client.create_queue(queue)
        client.queue("raw").producer().send(b"x")
    told = CliRunner().invoke(main, [*command, "--depths", "--interval", "0.01", "--json"])
    assert json.loads(told.output)["queues"][0]["per_second"] == 0
    assert json.loads(told.output)["links"][0]["targets"] == ["good", "bad"]
    assert json.loads(told.output)["links"][0]["worked_per_second"] == 0
    path = tmp_path / "flow.svg"
    assert CliRunner().invoke(main, [*command, "--depths", "--svg", str(path)]).output == ""
    assert ">1</text>" in path.read_text()
    assert CliRunner().invoke(main, [*command, "--svg", "-"]).output.startswith("<svg")
    assert "1 ready" in CliRunner().invoke(main, [*command, "--depths"]).output
    assert CliRunner().invoke(main, [*command, "--interval", "1"]).exit_code == 2


def test_the_command_line_shows_checks_and_runs_a_pipeline(url: str) -> None:
    command = ["--url", url, "pipeline"]
    name = "tests.pipelines.test_pipelines:PIPELINE"
    shown = CliRunner().invoke(main, [*command, "show", name])
    assert "(sink)" in shown.output
    missing = CliRunner().invoke(main, [*command, "check", name])
    assert missing.exit_code == 3
    with shardq.connect(url) as client:
        for queue in PIPELINE.queues:
            client.create_queue(queue)
    assert CliRunner().invoke(main, [*command, "check", name]).exit_code == 0
    assert CliRunner().invoke(main, [*command, "show", "no.such:thing"]).exit_code == 2


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (
            lambda pipeline: pipeline.link("a", None, same),
            "target=None of the link from 'a' is a NoneType: give",
        ),
        (lambda pipeline: pipeline.link("a", 7, same), "target=7 of the link from 'a' is an int: give"),
        (
            lambda pipeline: pipeline.link("a", {"b"}, same),
            "target={'b'} of the link from 'a' is a set: give",
        ),
        (lambda pipeline: pipeline.link("a", b"b", same), "queue=98 of a link is an int: give the name"),
        (
            lambda pipeline: pipeline.link(["a"], "b", same),
            r"queue=\['a'\] of a link is a list: give the name",
        ),
        (
            lambda pipeline: pipeline.output(["b", "c"]),
            r"output=\['b', 'c'\] of pipeline 'p' is a list: give names",
        ),
        (lambda pipeline: pipeline.output(7), "output=7 of pipeline 'p' is an int: give names"),
        (lambda pipeline: pipeline.output(""), "output='' of pipeline 'p' is a str: give names"),
    ],
)
def test_what_is_no_name_of_a_queue_is_refused_where_it_is_declared(
    declare: Callable[[Any], object], text: str
) -> None:
    with pytest.raises(InvalidPipeline, match=text):
        declare(Pipeline("p"))
