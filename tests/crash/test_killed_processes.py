"""Producers and workers that are killed, or stopped for longer than their lease, at random moments."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shardq
from tests.crash.followed import followed, succeeded
from tests.processes import running
from tools.faults.stage import Stage

ROUNDS = int(os.environ.get("SHARDQ_CRASH_ROUNDS", "4"))
LEASE = 0.6
SECONDS = 4.0
ENOUGH = 100  # messages to be sent, however long processes take to start

HOLDER = """
import sys, shardq

with shardq.connect(sys.argv[1]) as client, client.queue("crash").consumer() as consumer:
    batch = consumer.receive(60, wait=10)
    print(len(batch), flush=True)
    sys.stdin.readline()
    try:
        batch.ack()
    except shardq.LeaseLost as error:
        print(*(message.body.decode() for message in error.messages))
"""


def torment(stage: Stage, dice: random.Random) -> None:
    """Kill and pause clients at random, always replacing the dead."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or succeeded(stage)["send"] < ENOUGH:
        time.sleep(dice.random() * 0.3)
        victim = dice.choice(stage.actors)
        if dice.random() < 0.6:
            stage.replace(victim, signal.SIGKILL)
        else:  # as a long pause of its machine would
            victim.send(signal.SIGSTOP)
            time.sleep(LEASE * dice.choice([0.3, 1.3]))
            victim.send(signal.SIGCONT)


def test_a_worker_that_was_stopped_for_longer_than_its_lease_acks_nothing_and_is_told(url: str) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("crash", visibility_timeout=LEASE)
        with queue.producer() as producer:
            producer.send_many(f"m{number}".encode() for number in range(40))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with running([sys.executable, "-c", HOLDER, url], **pipes) as holder:
            assert holder.stdin is not None and holder.stdout is not None
            assert holder.stdout.readline() == "40\n"
            holder.send_signal(signal.SIGSTOP)
            thief = queue.consumer(visibility_timeout=60).receive(25, wait=30)
            holder.send_signal(signal.SIGCONT)
            holder.stdin.close()
            lost = holder.stdout.read().split()
            assert holder.wait(timeout=30) == 0
        assert len(thief) == 25
        assert sorted(lost) == sorted(message.body.decode() for message in thief)
        assert queue.counts().in_flight == 25
        thief.ack()
        assert queue.peek() == []  # the others were acked


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
        with followed(queue, url, tmp_path, lease=LEASE, rate=300.0, seed=seed) as stage:
            torment(stage, random.Random(seed))
        queue.sweep()
    assert_nothing_is_left(tmp_path / "queue.db")


def assert_nothing_is_left(path: Path) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for table in ("slice", "bundle_data"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    database.close()
