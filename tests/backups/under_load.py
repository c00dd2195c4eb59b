"""Producers and workers beside a backup, and what a restored queue must have by the record of what they did."""

from __future__ import annotations

import math
import os
import pwd
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import shardq
from tests.docs.pages import DOCS, blocks
from tests.terminal import PROGRAM
from tools.faults.assignment import Assignment
from tools.faults.history import Event, Phase, read_history
from tools.faults.role import name_of
from tools.faults.stage import Stage

__all__ = [
    "Moments",
    "Times",
    "broken",
    "check_restored",
    "commands",
    "go_on",
    "loaded",
    "program",
    "run_commands",
    "times_of",
]

QUEUE, PILE = "crash", "pile"
"""What clients send and ack, and what they only send: so some messages wait however fast they are."""

LEASE = 5.0
ENDLESS = 1_000_000  # messages: producers send until they are killed
PATIENCE = 60.0
ENOUGH = 50  # messages of which something must be known, or the test says nothing


class Moments(msgspec.Struct):
    """When a backup started and ended, in nanoseconds of ``time.monotonic``."""

    started: int = 0
    ended: int = 0

    @contextmanager
    def around(self) -> Iterator[None]:
        """Note the time before and after the block."""
        self.started = time.monotonic_ns()
        yield
        self.ended = time.monotonic_ns()


@contextmanager
def loaded(client: shardq.Client, url: str, folder: Path, *, rate: float = 200.0) -> Iterator[Stage]:
    """Let clients of the fault campaign send and ack during the block, and something of both before it.

    They end with it. ``rate`` is that of each of two producers, in messages a second.
    """
    for name in (QUEUE, PILE):
        client.create_queue(
            name, shards=4, time_shards=4, time_shard_seconds=5, visibility_timeout=LEASE, max_deliveries=None
        )
    template = Assignment(
        role="", name="", seed=0, log="", dial="", url=url, queue=QUEUE, rate=rate, lease=LEASE
    )
    stage = Stage(folder, template, "0")
    try:
        stage.start("produce", PILE, messages=ENDLESS, queue=PILE)
        stage.start("produce", QUEUE, messages=ENDLESS)
        stage.start("work", "worker")
        go_on(stage)
        yield stage
        go_on(stage)  # so that what came after the backup would be seen
    finally:
        stage.kill("produce", "work")
        stage.end()


def go_on(stage: Stage) -> None:
    """Wait until more messages were sent that stay, and more of the others acked."""
    began = time.monotonic_ns()
    while min(_since(began, stage, "send", PILE), _since(began, stage, "ack", "worker")) < ENOUGH:
        assert time.monotonic_ns() < began + PATIENCE * 1e9, "the clients do not send and ack"
        assert stage.deaths() == []
        time.sleep(0.1)


def _since(moment: int, stage: Stage, verb: str, place: str) -> int:
    done = (each for each in read_history(stage.logs) if each.verb == verb and each.actor.startswith(place))
    return sum(len(each.bodies) for each in done if each.phase is Phase.OK and each.at > moment)


Times = Mapping[str, Mapping[str, Sequence[int]]]
"""When each message was about to be sent or acked, and when that was confirmed, by what it was."""

_NAMES = {
    ("send", Phase.INVOKE): "sending",
    ("send", Phase.OK): "sent",
    ("ack", Phase.INVOKE): "acking",
    ("ack", Phase.OK): "acked",
}


def times_of(events: Iterable[Event]) -> Times:
    """Return the moments of a history, in nanoseconds of ``time.monotonic``."""
    found: dict[str, dict[str, list[int]]] = {name: {} for name in _NAMES.values()}
    for event in events:
        if name := _NAMES.get((event.verb, event.phase)):
            for body in event.bodies:
                found[name].setdefault(body, []).append(event.at)
    return found


def broken(times: Times, backup: Moments, restored: Mapping[str, int]) -> dict[str, list[str]]:
    """Name every broken promise of a backup, with examples of the messages."""
    never = [math.inf]
    was_there = {
        body
        for body, (sent, *_) in times["sent"].items()
        if sent < backup.started and min(times["acking"].get(body, never)) > backup.ended
    }
    was_acked = {body for body, acked in times["acked"].items() if min(acked) < backup.started}
    was_not_sent = {body for body, sending in times["sending"].items() if min(sending) > backup.ended}
    assert min(len(was_there), len(was_acked), len(was_not_sent)) >= ENOUGH, "the load was too small to tell"
    found = {
        "lost": was_there - restored.keys(),
        "acked before and there": was_acked & restored.keys(),
        "sent later and there": was_not_sent & restored.keys(),
        "never sent": restored.keys() - times["sending"].keys(),
        "twice": {body for body, count in restored.items() if count > 1},
    }
    return {name: sorted(bodies)[:5] for name, bodies in found.items() if bodies}


def check_restored(client: shardq.Client, done: Stage, backup: Moments) -> None:
    """Check restored queues against what was done, and that a consumer gets each of their messages once."""
    queues = [client.queue(name) for name in (QUEUE, PILE)]
    restored = Counter(name_of(message.body) for queue in queues for message in queue.peek(1_000_000))
    assert not broken(times_of(read_history(done.logs)), backup, restored)
    received, until = Counter[str](), time.monotonic() + PATIENCE
    with client.consumer([queue.name for queue in queues]) as consumer:
        while received.total() < restored.total():
            assert time.monotonic() < until, f"{received.total()} of {restored.total()} messages came"
            batch = consumer.receive(500, wait=2 * LEASE)  # leases of before have to expire
            received.update(map(name_of, batch.bodies))
            batch.ack()
        assert not consumer.receive(1)
    assert received == restored


def commands(*words: str) -> str:
    """Return the one block of commands on the page of backups that has all these words."""
    (found,) = [
        text for info, text in blocks(DOCS / "backups.md") if not info and all(word in text for word in words)
    ]
    return found


def program(folder: Path, name: str, *command: str | Path) -> None:
    """Make a program of this name in a folder, which runs a command with its own arguments behind it."""
    file = folder / name
    file.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    file.chmod(0o755)


def run_commands(text: str, *programs: Path, user: str | None = None, **variables: object) -> None:
    """Type commands into a shell, with these variables, and the folders of programs before all others."""
    group: dict[str, Any] = {}
    if user is not None and os.getuid() == 0:
        group = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    path = os.pathsep.join(map(str, (*programs, Path(PROGRAM).parent, os.environ["PATH"])))
    done = subprocess.run(
        ["sh", "-e", "-c", text],
        env=os.environ | {name: str(value) for name, value in variables.items()} | {"PATH": path},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        **group,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert "has failed" not in done.stderr, done.stderr
