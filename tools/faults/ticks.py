"""A queue that a schedule sends to: each occurrence takes place once, and what was missed is no burst."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise

import shardq
from shardq.client import Client

from .history import Delivery, Event, Log, Phase, read_history
from .offence import SHOWN, Offence
from .stage import Stage
from .waiting import wait_until_empty

__all__ = ["create_ticks", "finish_ticks", "judge_ticks", "start_ticks", "ticked_queue"]

CONSUMERS = 2
EVERY = 1.0  # seconds
DECIDED = 90.0  # seconds; within so many, an occurrence that was decided upon is sent by whoever is there
LATE = timedelta(seconds=10)  # by which a clock may be wrong: on SQLite it goes back by up to 5 seconds


def ticked_queue(queue: str) -> str:
    """The queue, and the schedule, of a queue under test."""
    return f"{queue}.ticks"


def create_ticks(client: Client, queue: str, lease: float) -> None:
    """Create the queue and its schedule. Nothing is dead-lettered."""
    name = ticked_queue(queue)
    client.create_queue(name, shards=2, time_shards=2, visibility_timeout=lease, max_deliveries=None)
    client.schedules.create(name, queue=name, every=EVERY)


def start_ticks(stage: Stage, queue: str) -> None:
    """Start the consumers, which keep the schedule going."""
    for number in range(1, CONSUMERS + 1):
        stage.start("tick", f"t{number}", queue=ticked_queue(queue))


def finish_ticks(stage: Stage, client: Client, queue: str, seconds: float) -> list[str]:
    """End the schedule, write down how many occurrences it had, and let all be received; tells of what is left."""
    name, until = ticked_queue(queue), time.monotonic() + seconds
    while (sent := _paused(client, name)) is None and time.monotonic() < until:
        time.sleep(0.2)
    if sent is None:
        return ["the schedule could not be paused"]
    log = stage.folder / "schedule.jsonl"
    Log(log).write(
        Event(at=time.monotonic_ns(), actor=name, number=1, verb="ticked", phase=Phase.OK, note=str(sent))
    )
    stage.logs.append(log)
    _wait_for(stage, sent, min(until, time.monotonic() + DECIDED))
    problems = wait_until_empty(client.queue(name), until - time.monotonic())
    stage.end("tick")
    return problems


def _paused(client: Client, name: str) -> int | None:
    with suppress(shardq.StoreUnavailable, shardq.OutcomeUnknown):
        return client.schedules.pause(name).sent
    return None


def _wait_for(stage: Stage, sent: int, until: float) -> None:
    """Wait until so many occurrences were received; the verdict tells of those that never are."""
    logs = [path for path in stage.logs if path.name.startswith("t")]
    while time.monotonic() < until and len(_ticks(read_history(logs))) < sent:
        time.sleep(0.5)


def judge_ticks(events: Sequence[Event]) -> list[Offence]:
    """Occurrences that took place twice, were decided upon and never came, or came in a burst."""
    ticks = _ticks(events)
    found = {
        "one occurrence twice": [
            moment for moment, each in ticks.items() if len({one.id for one in each}) > 1
        ],
        "occurrences closer than their pace": _close(sorted(ticks)),
        "a burst of occurrences": list(_in_bursts(ticks)),
    }
    offences = [
        Offence(promise, len(moments), {each: _history(events, each) for each in moments[:SHOWN]})
        for promise, moments in found.items()
        if moments
    ]
    decided = [event for event in events if event.verb == "ticked"]
    lost = sum(int(event.note) for event in decided) - len(ticks) if decided else 0
    return offences + (
        [Offence("occurrences lost", lost, {"the schedule": tuple(decided)})] if lost > 0 else []
    )


def _ticks(events: Sequence[Event]) -> dict[str, list[Delivery]]:
    """What was received, by the moment of its occurrence."""
    found: dict[str, list[Delivery]] = defaultdict(list)
    for event in events:
        for each in event.deliveries if event.verb == "tick" else ():
            found[each.body].append(each)
    return dict(found)


def _close(moments: Sequence[str]) -> list[str]:
    """Moments that are less than the period after the one before them."""
    return [
        later
        for one, later in pairwise(moments)
        if datetime.fromisoformat(later) - datetime.fromisoformat(one) < timedelta(seconds=EVERY)
    ]


def _in_bursts(ticks: dict[str, list[Delivery]]) -> Iterator[str]:
    """Moments whose message was sent after the next one but one was due: it is decided only after this one was sent."""
    moments = sorted(ticks)
    for moment, after in zip(moments, moments[2:], strict=False):
        sent = min(each.due for each in ticks[moment]) / 1e6
        if sent > (datetime.fromisoformat(after) + LATE).timestamp():
            yield moment


def _history(events: Sequence[Event], moment: str) -> tuple[Event, ...]:
    return tuple(event for event in events if any(each.body == moment for each in event.deliveries))
