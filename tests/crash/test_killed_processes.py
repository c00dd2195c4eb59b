"""Producers and workers that are killed, or stopped for longer than their lease, at random moments."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest

import shardq
from tests.crash.ledger import Ledger
from tests.crash.stage import Stage, drain, wait_for

ROUNDS = int(os.environ.get("SHARDQ_CRASH_ROUNDS", "6"))
LEASE = 0.6
SECONDS = 2.5
ENOUGH = 100  # messages to be sent, however long processes take to start


def torment(stage: Stage, dice: random.Random) -> None:
    """Kill and pause actors at random, always replacing the dead."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(dice.random() * 0.3)
        victim = dice.randrange(len(stage.actors))
        if dice.random() < 0.6:
            stage.start(stage.kill(victim))
        else:
            stage.pause(victim, LEASE * dice.choice([0.3, 1.3]))


def test_a_worker_that_was_stopped_for_longer_than_its_lease_acks_nothing_and_is_told(
    tmp_path: Path, url: str
) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("crash", visibility_timeout=LEASE)
        with queue.producer() as producer:
            producer.send_many(f"m{number}".encode() for number in range(40))
        stage = Stage(tmp_path, url, 0)
        try:
            stage.start("hold")
            holder = stage.actors[0][1]
            wait_for(lambda: "received" in stage.logs[0].read_text())
            os.kill(holder.pid, signal.SIGSTOP)
            thief = queue.consumer(visibility_timeout=60).receive(25, wait=30)
            os.kill(holder.pid, signal.SIGCONT)
            assert holder.wait(timeout=30) == 0
        finally:
            stage.end("hold")
        events = Ledger(stage.logs).times
        stolen = {message.body.decode() for message in thief}
        assert len(stolen) == 25
        assert set(events["lost"]) == stolen
        assert set(events["acked"]) == {f"m{number}" for number in range(40)} - stolen
        assert queue.counts().in_flight == 25
        thief.ack()
        assert queue.peek() == []


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_every_message_is_accounted_for_whoever_dies(tmp_path: Path, url: str, seed: int) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue(
            "crash",
            shards=3,
            time_shards=4,
            time_shard_seconds=0.5,
            visibility_timeout=LEASE,
            max_deliveries=None,
        )
        stage = Stage(tmp_path, url, seed)
        try:
            for role in ("produce", "produce", "work", "work", "work"):
                stage.start(role)
            torment(stage, random.Random(seed))
            wait_for(lambda: len(Ledger(stage.logs).times["sent"]) > ENOUGH)
            stage.end("produce")
            drain(queue)
        finally:
            stage.end("produce")
            stage.end("work")
        queue.sweep()
    assert_nothing_is_left(tmp_path / "queue.db")
    ledger = Ledger(stage.logs)
    assert len(ledger.times["sent"]) > ENOUGH
    assert not ledger.problems()


def assert_nothing_is_left(path: Path) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for table in ("slice", "bundle_data"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    database.close()
