"""A batch is acked when Spark has committed it, and never before."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import shardq
from shardq.spark import stream_upkeep
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of
from shardq.spark.stream_upkeep import CommitLog
from tests.processes import eventually

Started = tuple[ClaimStream, dict[str, Any]]

END = {"incarnation": "i", "seq": 7, "plan": {}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


class Checkpoint:
    """What Spark writes about the progress of a query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plan(self, batch: int, *ends: dict[str, Any] | None) -> None:
        lines = ["v1", '{"batchWatermarkMs":0}', *("-" if end is None else json.dumps(end) for end in ends)]
        self._write("offsets", batch, "\n".join(lines))

    def commit(self, batch: int) -> None:
        self._write("commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')

    def _write(self, kind: str, batch: int, text: str) -> None:
        (self.folder / kind).mkdir(parents=True, exist_ok=True)
        (self.folder / kind / f".{batch}.crc").write_bytes(b"crc")
        (self.folder / kind / str(batch)).write_text(text)


def test_a_batch_is_committed_when_the_newest_commit_has_reached_its_end(checkpoint) -> None:
    log = CommitLog(str(checkpoint.folder))
    assert not log.has(END)
    checkpoint.plan(3, None, {"incarnation": "other", "seq": 9}, END | {"seq": 6})
    checkpoint.commit(3)
    assert not log.has(END)
    checkpoint.plan(4, None, {"incarnation": "other", "seq": 9}, END)
    assert not log.has(END)
    checkpoint.commit(4)
    assert log.has(END)
    assert log.has(END | {"seq": 6})
    assert not log.has(END | {"seq": 8})
    assert CommitLog(checkpoint.folder.as_uri()).has(END)
    assert CommitLog(f"file:{checkpoint.folder}").has(END)
    assert pickle.loads(pickle.dumps(log)).has(END)


def test_a_log_that_is_not_understood_commits_nothing(checkpoint) -> None:
    checkpoint.plan(0, {"seq": 7}, {"incarnation": "i"})
    checkpoint.commit(0)
    (checkpoint.folder / "commits" / "1.tmp").write_text("v1")
    assert not CommitLog(str(checkpoint.folder)).has(END)
    (checkpoint.folder / "offsets" / "0").write_bytes(b"\xff\xfe[7]\n7\n")
    assert not CommitLog(str(checkpoint.folder)).has(END)


def test_a_checkpoint_that_python_cannot_read_is_refused_with_the_remedy() -> None:
    with pytest.raises(shardq.InvalidSetting, match="leave it out of readStream"):
        CommitLog("dbfs://somewhere/checkpoint")


@pytest.fixture
def started(url: str, queue, checkpoint, monkeypatch) -> Iterator[Callable[..., Started]]:
    """A stream whose batch of ten messages is read, and the end of the batch."""
    monkeypatch.setattr(stream_upkeep, "FINISH_POLL_SECONDS", 0.01)
    readers: list[ClaimStream] = []

    def start(**options: Any) -> Started:
        queue.producer().send_many([b"x"] * 10)
        chosen = ClaimStreamOptions(
            url=url, queue=queue.name, checkpoint_location=str(checkpoint.folder), **options
        )
        reader = ClaimStream(chosen, schema_of(chosen))
        readers.append(reader)
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadMaxRows(100))
        tasks = reader.partitions(begin, end)
        assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 10
        checkpoint.plan(0, end)
        return reader, end

    yield start
    for reader in readers:
        reader.stop()


def looks(monkeypatch) -> list[bool]:
    """What readers find when they look for the commit."""
    seen: list[bool] = []
    has = CommitLog.has
    monkeypatch.setattr(CommitLog, "has", lambda log, end: seen.append(has(log, end)) or seen[-1])
    return seen


def test_a_batch_is_acked_when_it_is_committed_and_not_before(
    started, queue, checkpoint, monkeypatch
) -> None:
    reader, _ = started()
    seen = looks(monkeypatch)
    assert eventually(lambda: len(seen) >= 3)
    assert queue.counts().in_flight == 10
    checkpoint.commit(0)
    assert eventually(lambda: queue.counts().in_flight == 0)
    reader.stop()
    assert seen.count(True) == 1


def test_a_checkpoint_that_cannot_be_read_for_a_while_makes_an_ack_late(
    started, queue, checkpoint, monkeypatch
) -> None:
    reader, end = started()
    tries: list[int] = []

    def broken(*_: object) -> bool:
        tries.append(1)
        raise PermissionError("no")

    with monkeypatch.context() as for_a_while:
        for_a_while.setattr(CommitLog, "has", broken)
        checkpoint.commit(0)
        assert eventually(lambda: len(tries) >= 2)
        assert queue.counts().in_flight == 10
    assert eventually(lambda: queue.counts().in_flight == 0)
    assert reader.latestOffset(end, ReadMaxRows(100)) == end


def test_messages_that_were_lost_by_the_commit_fail_the_query_at_its_next_trigger(
    started, queue, checkpoint, caplog
) -> None:
    reader, end = started(fail_on_lease_loss=True)
    tasks = reader.partitions(reader.initialOffset(), end)
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    queue.release([row["receipt"] for row in rows])
    taken = queue.consumer().receive(10, wait=5.0)
    assert len(taken) == 10
    checkpoint.commit(0)
    assert eventually(lambda: "were not acked" in caplog.text)
    taken.ack()
    with pytest.raises(shardq.LeaseLost, match="10 messages of batch 1"):
        reader.latestOffset(end, ReadMaxRows(100))


def test_manual_acks_stay_with_the_job(started, queue, checkpoint, monkeypatch) -> None:
    reader, _ = started(ack_mode="manual")
    seen = looks(monkeypatch)
    checkpoint.commit(0)
    assert eventually(lambda: True in seen)
    reader.stop()
    assert queue.counts().in_flight == 10


def test_a_batch_that_was_committed_a_moment_ago_is_acked_when_the_query_ends(
    started, queue, checkpoint, monkeypatch
) -> None:
    monkeypatch.setattr(stream_upkeep, "FINISH_POLL_SECONDS", 3_600.0)
    open_ended, _ = started()
    open_ended.stop()
    assert queue.counts().in_flight == 10
    committed, _ = started(group="other")
    checkpoint.commit(0)
    committed.stop()
    assert queue.counts().in_flight == 10
    assert queue.counts().ready == 0
