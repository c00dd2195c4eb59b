"""A pipeline in processes of its own: what they did is added up, and Ctrl-C ends them as it ends workers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.pipelines import Pipeline, PipelinePool, PipelineReport
from tests.terminal import in_terminal


def shout(message: shardq.Message) -> Any:
    return message.body.upper()


def linger(message: shardq.Message) -> Any:
    time.sleep(600)


QUICK = Pipeline("quick").link("raw", "loud", shout).link("loud", "out", shout).output("out")
SLOW = Pipeline("slow").link("raw", "out", linger).output("out")
NAME = "tests.pipelines.test_pipeline_processes:"


@pytest.fixture
def sent(url: str) -> str:
    """The URL of a store where three messages wait for a pipeline."""
    with shardq.connect(url) as client:
        for name in ("raw", "loud", "out"):
            client.create_queue(name, shards=1, time_shards=1)
        client.queue("raw").producer().send_many([b"a", b"b", b"c"])
    return url


def waiting(url: str) -> list[Any]:
    with shardq.connect(url) as client:
        return sorted(message.body for message in client.queue("out").peek(10))


def test_several_processes_take_every_message_through_all_links_and_are_added_up(sent: str) -> None:
    report = PipelinePool(sent, NAME + "QUICK", processes=2, idle_exit=0.5).run()
    assert isinstance(report.total, PipelineReport)
    assert {source: link.sent for source, link in report.total.links.items()} == {"raw": 3, "loud": 3}
    assert waiting(sent) == [b"A", b"B", b"C"]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_the_command_tells_what_each_link_did(sent: str, form: list[str]) -> None:
    ended = CliRunner().invoke(
        main, ["--url", sent, "pipeline", "run", NAME + "QUICK", "--idle-exit", "200ms", *form]
    )
    assert ended.exit_code == 0, ended.output
    if form:
        assert json.loads(ended.stdout)["total"]["links"]["loud"]["sent"] == 3
    else:
        assert "loud: 3 worked, 3 sent, 0 dropped, 0 failed, 0 put off" in ended.stderr


def test_ctrl_c_twice_ends_the_pipeline_at_once_and_says_what_is_in_flight(sent: str) -> None:
    seen, code = in_terminal(
        ["pipeline", "run", NAME + "SLOW"], sent, ctrl_c=("3 in flight", "ends after those at hand")
    )
    assert code == 130, seen
    assert "ended at once with 3 messages in flight" in seen
    assert waiting(sent) == []
