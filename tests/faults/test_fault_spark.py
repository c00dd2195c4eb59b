"""The client of a campaign that sends by Spark: its tasks fail and are tried again, and each row is one message."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq
from tools.faults.assignment import Assignment
from tools.faults.dial import Dial
from tools.faults.history import Event, Phase, read_history
from tools.faults.receiving import delivery_of
from tools.faults.recorder import Recorder
from tools.faults.role import name_of
from tools.faults.rules import Promise
from tools.faults.stage import Actor
from tools.faults.verdict import judge

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # half a minute where nothing else runs

ROWS = (
    200  # of two jobs: in one of them the column id repeats itself, in the other one it is named by idColumn
)


@pytest.fixture(autouse=True)
def _java() -> None:
    if shutil.which("java") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Java")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[shardq.Queue]:
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db") as client:
        yield client.create_queue("q", shards=4, time_shards=1, visibility_timeout=600)


def send_by_spark(folder: Path, defect: str) -> list[Event]:
    """Let the client do its work; returns what it wrote down."""
    log = folder / "j1.1.jsonl"
    log.touch()
    told = Assignment(
        role="spark", name="j1.1", seed=2, url=f"sqlite:///{folder}/queue.db", queue="q", log=str(log),
        dial=str(folder / "dial"), messages=ROWS, defect=defect,
    )  # fmt: skip
    with Actor(told, folder).process as client:
        ended = client.wait(timeout=300)
    assert ended == 0, (folder / "j1.1.err").read_text()
    return read_history([log])


def receive_all(queue: shardq.Queue, folder: Path) -> list[Event]:
    """Receive and ack everything; returns what was written down of that."""
    told = Assignment(role="", name="w1.1", seed=1, url="", queue="q", log=str(folder / "log"), dial="")
    with shardq.connect(f"sqlite:///{folder}/queue.db") as client, queue.consumer() as consumer:
        record = Recorder(told, Dial(folder / "dial"), client)
        record.invoke("receive")
        while batch := consumer.receive(1_000):
            number = record.number
            record.outcome("receive", Phase.OK, deliveries=[delivery_of(message) for message in batch])
            record.settle("ack", [name_of(message.raw) for message in batch], batch.ack, batch=number)
            record.invoke("receive")
    return read_history([folder / "log"])


@pytest.mark.parametrize(("defect", "broken"), [("", []), ("AcksBeforeStoring", ["lost"])])
def test_rows_whose_tasks_failed_are_messages_once_and_lost_ones_are_found(
    queue: shardq.Queue, tmp_path: Path, defect: str, broken: list[str]
) -> None:
    sent = send_by_spark(tmp_path, defect)
    failed = Counter(event.note for event in sent if event.verb == "fail-task")
    assert failed == {"raised": 3, "killed": 1}  # each of two tasks of two jobs, as the seed says
    events = sorted([*sent, *receive_all(queue, tmp_path)], key=lambda event: event.at)
    verdict = judge(events, Promise(lease=600))
    assert [offence.promise for offence in verdict.offences] == broken
    assert verdict.figures["sent"] == ROWS
    assert verdict.figures["tasks of Spark that failed"] == 4
