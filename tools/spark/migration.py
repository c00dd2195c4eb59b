"""A queue moves from MongoDB to Cassandra with `shardq spark migrate`, which is killed on the way and resumed.

    python tools/servers/mongodb.py run -- python tools/servers/cassandra.py run -- python tools/spark/migration.py

Ends with 0 when the migration was killed half-way, refused to begin again, ended well with `--resume`, and both queues
hold the same messages, which is compared here once more, message by message. One line for each step on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

from process_tree import killed_when

import shardq

SECONDS = 300.0
SOURCE, TARGET = "migrated", "arrived"


def main() -> None:
    options = _options()
    source_url, target_url = os.environ["SHARDQ_TEST_MONGODB_URL"], os.environ["SHARDQ_TEST_CASSANDRA_URL"]
    with shardq.connect(source_url) as client, shardq.connect(target_url) as other:
        source = client.create_queue(SOURCE, shards=8, time_shards=4, visibility_timeout=3_600.0)
        other.create_schema()
        held = _fill(source, options.messages)
        shell = str(Path(sys.executable).with_name("shardq"))
        command = [shell, "--url", source_url, "spark", "migrate", SOURCE, TARGET, "--to-url", target_url]
        _kill_on_the_way(command, other, options.messages // 5)
        before = other.queue(TARGET).counts()
        print(f"killed with {before.ready:,} of {options.messages:,} messages there", flush=True)
        assert 0 < before.ready < options.messages, "it was not killed half-way"
        refused = _run(command)
        assert refused.returncode == 2 and "holds messages already" in refused.stderr, refused.stderr
        print("refused to begin again", flush=True)
        resumed = _run([*command, "--resume", "--json"])
        assert resumed.returncode == 0, resumed.stderr
        print(f"resumed: {resumed.stdout.strip()}", flush=True)
        assert json.loads(resumed.stdout)["equal"]
        there, here = _sum_of(other.queue(TARGET)), _sum_of(source)
        print(f"compared: {here} and {there}", flush=True)
        assert there == here and here[0] == options.messages
        assert source.counts().in_flight == held
        for place, name in ((client, SOURCE), (other, TARGET)):
            place.delete_queue(name)


def _fill(queue: shardq.Queue, messages: int) -> int:
    """Messages of every kind; returns how many of them are held by a consumer."""
    body = b"x" * 480
    with queue.producer(bundle_messages=200) as producer:
        producer.send_many((b"%d " % number + body for number in range(messages - 400)), headers={"n": 1})
        producer.send_many([b"early %d" % number for number in range(100)], priority=0)
        producer.send_many([b"later %d" % number for number in range(100)], delay=3_600)
        for number in range(200):
            producer.send(b"single %d" % number, dedupe_key=f"k{number}")
    return len(queue.consumer().receive(150))


def _kill_on_the_way(command: list[str], target: shardq.Client, messages: int) -> None:
    """Kill the migration, its JVM and its workers, once so many messages are in the target."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def is_on_the_way() -> bool:
        return target.exists(TARGET) and target.queue(TARGET).counts().ready >= messages

    killed = killed_when(process, is_on_the_way, SECONDS)
    assert killed, f"it ended by itself with {process.returncode}"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def _sum_of(queue: shardq.Queue) -> tuple[int, int]:
    """How many messages, and the sum of their hashes."""
    count = total = 0
    for message in queue.peek(10_000_000):
        text = repr((message.body, sorted(message.headers.items()), message.priority, message.dedupe_key))
        total += int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
        count += 1
    return count, total


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=200_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
