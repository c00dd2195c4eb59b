"""Messages of each kind in a queue of their own, and whether a restored store has them and their rules."""

from __future__ import annotations

import json
import subprocess
from collections import Counter

import shardq
from tests.terminal import PROGRAM

__all__ = ["check_kept", "check_report", "keep"]

QUEUE = "kept"
HOUR = 3600.0


def keep(client: shardq.Client) -> dict[str, str]:
    """Send messages of each kind, ack one, hold one, and create a schedule; returns the ids of those with keys."""
    queue = client.create_queue(
        QUEUE,
        shards=2,
        time_shards=1,
        visibility_timeout=HOUR,
        dedupe_window=24 * HOUR,
        history_retention=HOUR,
    )
    with queue.producer() as producer, queue.consumer() as consumer:
        for body in (b"acked", b"held"):
            producer.send(body, priority=0)
            (message,) = consumer.receive(1, wait=10)
            assert message.body == body
            if body == b"acked":
                message.ack()
        producer.send_many([b"first", b"second", b"third"], group="g")
        producer.send(b"later", delay=HOUR)
        ids = {
            "deduplicated": producer.send(b"deduplicated", dedupe_key="k"),
            "unique": producer.send(b"unique", unique_key="k"),
        }
    client.schedules.create("hourly", queue=QUEUE, every=HOUR, body=b"tick")
    return ids


def check_report(url: str) -> None:
    """Check that the doctor says what came back of that queue."""
    told = subprocess.run(
        [PROGRAM, "--url", url, "doctor", QUEUE, "--restored", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    checks = {each["name"]: each for each in json.loads(told.stdout)["checks"] if each["subject"] == QUEUE}
    assert checks["messages"]["value"] == "5 ready, 1 delayed, 1 in flight, 1 acked"
    assert checks["leases"]["value"].startswith("1 message of 1 consumer, the last lease expires in ")
    assert checks["sent ahead"]["value"] == "none"


def check_kept(client: shardq.Client, ids: dict[str, str]) -> None:
    """Check that the messages came back once and in their order, with their keys, leases, history and schedule."""
    queue = client.queue(QUEUE)
    waiting = [b"first", b"second", b"third", b"later", b"deduplicated", b"unique", b"held"]
    assert Counter(message.body for message in queue.peek(100)) == Counter(waiting)
    assert [message.body for message in queue.history()] == [b"acked"]
    assert client.schedules.get("hourly").next is not None
    with queue.producer() as producer:
        producer.send(b"new")
        assert producer.send(b"again", dedupe_key="k") == ids["deduplicated"]
        assert producer.send(b"again", unique_key="k") == ids["unique"]
    (holder,) = (message.owner for message in queue.peek(100) if message.body == b"held")
    assert holder is not None
    assert queue.evict(holder, force=True) == 1
    received: list[bytes] = []
    with queue.consumer() as consumer:
        while batch := consumer.receive(10, wait=10 if len(received) < len(waiting) else 0):
            received += batch.bodies
            batch.ack()
    assert Counter(received) == Counter({*waiting, b"new"} - {b"later"})
    assert [body for body in received if body in waiting[:3]] == waiting[:3]
