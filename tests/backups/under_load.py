"""Clients of the fault campaign beside a backup, and what a restored store must have by their history."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shardq
from tests.docs.pages import DOCS, blocks
from tests.terminal import PROGRAM
from tools.faults.assignment import Assignment
from tools.faults.dial import true_monotonic_ns
from tools.faults.history import Delivery, Event, Log, Phase, read_history
from tools.faults.lives import Life, Lives
from tools.faults.role import name_of
from tools.faults.saved import judge_saved
from tools.faults.stage import Stage

__all__ = ["check_restored", "commands", "go_on", "loaded", "program", "run_commands", "saving"]

QUEUE, PILE = "busy", "pile"
"""What clients send and ack, and what they only send: so some messages wait however fast they are."""

LEASE = 5.0
PATIENCE = 60.0
ENDLESS = 1_000_000  # messages
ENOUGH = 50  # messages of which something must be known, or the test says nothing
SAVED = "saved.jsonl"


@contextmanager
def loaded(client: shardq.Client, url: str, folder: Path, *, rate: float = 300.0) -> Iterator[Stage]:
    """Let clients send and ack in processes during the block, and something of both before it. They end with it.

    ``rate`` is of each of two producers, in messages a second.
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
        stage.start("produce", "pile", messages=ENDLESS, queue=PILE)
        stage.start("produce", "busy", messages=ENDLESS)
        stage.start("work", "worker")
        go_on(stage)
        yield stage
        go_on(stage)  # so that what came after the backup would be seen
    finally:
        stage.kill("produce", "work")
        stage.end()


def go_on(stage: Stage) -> None:
    """Wait until more messages were sent that stay, and more of the others acked."""
    began, until = true_monotonic_ns(), time.monotonic() + PATIENCE
    while True:
        done: Counter[str] = Counter()
        for event in read_history(stage.logs):
            if event.phase is Phase.OK and event.at > began:
                done[f"{event.actor.partition('.')[0]} {event.verb}"] += len(event.bodies)
        if min(done["pile send"], done["worker ack"]) >= ENOUGH:
            return
        assert time.monotonic() < until, f"the clients did only this: {done}"
        assert stage.deaths() == []
        time.sleep(0.1)


@contextmanager
def saving(stage: Stage) -> Iterator[None]:
    """Write down when a backup starts and ends, as a client of the campaign does."""
    path = stage.folder / SAVED
    stage.logs.append(path)
    log = Log(path)
    log.write(_of_backup("save", Phase.INVOKE))
    yield
    log.write(_of_backup("save", Phase.OK))


def _of_backup(verb: str, phase: Phase, *deliveries: Delivery) -> Event:
    return Event(
        at=true_monotonic_ns(),
        actor="saving",
        number=1,
        verb=verb,
        phase=phase,
        bodies=("backup",),
        deliveries=deliveries,
    )


def check_restored(client: shardq.Client, stage: Stage) -> None:
    """Check restored queues against the history, and that a consumer gets each of their messages once."""
    found = [message for name in (QUEUE, PILE) for message in client.queue(name).peek(ENDLESS)]
    restored = [Delivery(name_of(each.body), each.id, each.priority, 0, each.deliveries) for each in found]
    Log(stage.folder / SAVED).write(_of_backup("restored", Phase.OK, *restored))
    events = read_history(stage.logs)
    _check_enough(events)
    broken = [
        f"{each.promise}: {each.count}, {list(each.histories)}" for each in judge_saved(events, Lives(events))
    ]
    assert not broken, "\n".join(broken)
    received, until = Counter[bytes](), time.monotonic() + PATIENCE
    with client.consumer([QUEUE, PILE]) as consumer:
        while received.total() < len(found):
            assert time.monotonic() < until, f"{received.total()} of {len(found)} messages came"
            batch = consumer.receive(500, wait=2 * LEASE)  # leases of before have to expire
            received.update(batch.bodies)
            batch.ack()
        assert not consumer.receive(1)
    assert received == Counter(message.body for message in found)


def _check_enough(events: list[Event]) -> None:
    """Check that messages were kept and acked before the backup, and others sent after it."""
    started, ended = (event.at for event in events if event.verb == "save")
    lives = list(Lives(events).by_body.values())
    waiting = [life for life in lives if _sent_before(life, started) and not life.settlings]
    acked = [life for life in lives if any(ack.ended < started for ack in life.settled("ack", Phase.OK))]
    later = [life for life in lives if life.sending and life.sending.invoked.at > ended]
    assert min(map(len, (waiting, acked, later))) >= ENOUGH


def _sent_before(life: Life, moment: int) -> bool:
    return life.sending is not None and life.sending.ended < moment


def commands(*words: str) -> str:
    """Return the one block of commands on the page of backups that has all these words."""
    texts = [text for info, text in blocks(DOCS / "backups.md") if not info]
    (found,) = [text for text in texts if all(word in text for word in words)]
    return found


def program(folder: Path, name: str, *command: str | Path) -> None:
    """Make a program of this name in a folder, which runs a command with its own arguments behind it."""
    file = folder / name
    file.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    file.chmod(0o755)


def run_commands(
    text: str, variables: Mapping[str, object], *, programs: Sequence[Path] = (), user: str | None = None
) -> None:
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
