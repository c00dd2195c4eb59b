"""The queue whose messages ask for something, and a semaphore: keys are kept once, groups in order, permits counted."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations

import shardq
from shardq.client import Client

from .blocks import behind_blocks
from .history import Event, Phase
from .offence import SHOWN, Offence
from .stage import Stage

__all__ = [
    "PERMITS",
    "REPLACED",
    "UNIQUE_KEYS",
    "asked_queue",
    "create_asked",
    "finish_asked",
    "judge_asked",
    "permits_of",
    "start_askers",
]

SHARE = 10  # one message there for so many in the queue under test
ASKERS, ANSWERERS, PERMITTED = 2, 2, 3
PERMITS = 2
UNIQUE_KEYS, REPLACED = 8, (6, 7)  # of these keys a waiting message may be replaced, so it may not come
KEPT_BACK = 60.0  # seconds; a message without its unique key is put off for longer than a send is
SECOND = 1_000_000_000


def asked_queue(queue: str) -> str:
    """The queue of a queue under test whose messages ask for something."""
    return f"{queue}.asked"


def permits_of(queue: str) -> str:
    """The semaphore of that queue's clients."""
    return f"{queue}.semaphore"


def create_asked(client: Client, queue: str, lease: float) -> None:
    """Create the queue and the semaphore. What is given up there blocks its group."""
    name = asked_queue(queue)
    client.create_queue(
        name,
        shards=3,
        time_shards=2,
        visibility_timeout=lease,
        dedupe_window=86_400.0,
        max_deliveries=None,
        on_dead_letter="block",
        max_in_flight=50,
    )
    client.semaphore(permits_of(name), permits=PERMITS, lease=lease)


def start_askers(stage: Stage, queue: str, messages: int, seconds: float) -> None:
    """Start the clients of the queue; all of them that send go through the same keys."""
    name, count = asked_queue(queue), messages // SHARE // ASKERS
    for number in range(1, ASKERS + 1):
        stage.start("ask", f"q{number}", queue=name, messages=count, rate=count / seconds)
    for number in range(1, ANSWERERS + 1):
        stage.start("answer", f"n{number}", queue=name)
    for number in range(1, PERMITTED + 1):
        stage.start("permit", f"h{number}", queue=name)


def finish_asked(stage: Stage, client: Client, queue: str, seconds: float) -> list[str]:
    """Let everything be answered, and the clients leave; tells of what is left."""
    asked, until = client.queue(asked_queue(queue)), time.monotonic() + seconds
    left: object = "it could not be counted"
    while left and time.monotonic() < until:
        with suppress(shardq.StoreUnavailable, shardq.OutcomeUnknown):
            left = _left(asked)
        time.sleep(0.2)
    stage.end("answer", "permit")
    if left:
        return [f"the asked queue was not drained in time: {left}"]
    asked.purge()  # what was put off, because it lost its unique key to another message, was never confirmed
    return []


def _left(queue: shardq.Queue) -> list[str]:
    """What is still to come."""
    counts = queue.counts()
    if not counts.ready + counts.delayed + counts.in_flight:
        return []
    return [f"{each.body!r} {each.state.value}" for each in queue.peek(1_000) if not _is_put_off(each)]


def _is_put_off(stored: shardq.StoredMessage) -> bool:
    far = stored.due.timestamp() > time.time() + KEPT_BACK
    return stored.body.startswith(b"u") and stored.state is shardq.EntryState.DELAYED and far


@dataclass(slots=True)
class _Asked:
    """A message that was received, or confirmed, as far as is known."""

    body: str = ""
    answers: list[Event] = field(default_factory=list)  # receives that gave it
    finished: float = float("inf")  # the earliest moment at which it can have left the queue

    @property
    def came(self) -> float:
        """When it was there for sure."""
        return min((each.at for each in self.answers), default=float("inf"))

    @property
    def key(self) -> str:
        return self.body.partition("-")[0]


@dataclass(slots=True)
class _Send:
    """A send and its result."""

    invoked: Event
    outcome: Event | None = None

    @property
    def id(self) -> str | None:
        """The id that it returned."""
        return self.outcome.note if self.outcome and self.outcome.phase is Phase.OK else None

    @property
    def body(self) -> str:
        return self.invoked.bodies[0]

    @property
    def group(self) -> str:
        return self.body.partition("-")[0]

    @property
    def name(self) -> str:
        return _name(self.body, str(self.id))


def judge_asked(events: Sequence[Event], promise_tolerance: float) -> list[Offence]:
    """What was lost, what a key let in twice, what came out of order in its group, and permits beyond their number."""
    sends, asked = _sends(events), _asked(events)
    found = {
        "asked and lost": _lost(sends, asked),
        "two messages of a dedupe key": _doubled(asked),
        "two messages of a unique key at a time": _beside(asked),
        "out of order in its group": _out_of_order(sends, asked),
        "received behind a block": behind_blocks(events, _sent_after(sends)),
        "more permits than there are": _beyond(events, promise_tolerance),
    }
    return [
        Offence(name, len(bodies), {body: _history(events, asked, body) for body in bodies[:SHOWN]})
        for name, bodies in found.items()
        if bodies
    ]


def _sends(events: Sequence[Event]) -> list[_Send]:
    sends: dict[tuple[str, int], _Send] = {}
    for event in events:
        if event.verb == "ask" and event.phase is Phase.INVOKE:
            sends[event.actor, event.number] = _Send(event)
        elif event.verb == "ask":
            sends[event.actor, event.number].outcome = event
    return list(sends.values())


def _asked(events: Sequence[Event]) -> dict[str, _Asked]:
    """The messages that were received, by their names."""
    found: dict[str, _Asked] = defaultdict(_Asked)
    names: dict[str, str] = {}  # by id
    for event in events:
        if event.verb == "answer":
            for each in event.deliveries:
                name = names[each.id] = _name(each.body, each.id)
                found[name].body = each.body
                found[name].answers.append(event)
        elif event.verb == "finish" and event.phase is Phase.INVOKE:
            for identity in event.bodies:
                one = found[names.get(identity, identity)]
                one.finished = min(one.finished, event.at)
    return dict(found)


def _name(body: str, identity: str) -> str:
    """What stays the same of a message: of one with a group its body, as it has another id when it is redriven."""
    return body if body.startswith("g") else identity


def _lost(sends: Sequence[_Send], asked: Mapping[str, _Asked]) -> list[str]:
    """Everything was received in the end, but for what may have been replaced."""
    return sorted(
        {
            each.body
            for each in sends
            if each.id is not None and each.name not in asked and not _may_be_replaced(each.body)
        }
    )


def _may_be_replaced(body: str) -> bool:
    key = body.partition("-")[0]
    return key.startswith("u") and int(key[1:]) in REPLACED


def _doubled(asked: Mapping[str, _Asked]) -> list[str]:
    ids: dict[str, list[_Asked]] = defaultdict(list)
    for each in asked.values():
        if each.key.startswith("d"):
            ids[each.key].append(each)
    return sorted(each.body for same in ids.values() if len(same) > 1 for each in same)


def _beside(asked: Mapping[str, _Asked]) -> list[str]:
    """One came while the other was in the queue: it had come before, and nobody can have finished it."""
    keys: dict[str, list[_Asked]] = defaultdict(list)
    for each in asked.values():
        if each.key.startswith("u") and not _may_be_replaced(each.body):
            keys[each.key].append(each)
    return sorted(
        max(one, other, key=lambda each: each.came).body
        for same in keys.values()
        for one, other in combinations(same, 2)
        if max(one.came, other.came) < min(one.finished, other.finished)
    )


def _out_of_order(sends: Sequence[_Send], asked: Mapping[str, _Asked]) -> list[str]:
    """One came while an earlier one of its group, whose send had returned before its own began, was not finished."""
    came = [each for each in sends if each.id is not None and each.name in asked]
    return sorted({body for group in _groups(came) for body in _passers(group, asked)})


def _groups(sends: Sequence[_Send]) -> list[list[_Send]]:
    groups: dict[str, list[_Send]] = defaultdict(list)
    for each in sends:
        if each.body.startswith("g"):
            groups[each.group].append(each)
    return list(groups.values())


def _sent_after(sends: Sequence[_Send]) -> Callable[[str, str], bool]:
    """Whether a message was sent to the group of another one when the send of that had returned, by their bodies."""
    by_body = {each.body: each for each in sends}

    def is_later(earlier: str, later: str) -> bool:
        one, other = by_body.get(earlier), by_body.get(later)
        if one is None or other is None or one.outcome is None or one.group != other.group:
            return False
        return one.outcome.at < other.invoked.at

    return is_later


def _passers(group: Sequence[_Send], asked: Mapping[str, _Asked]) -> Iterator[str]:
    for number, later in enumerate(group):
        message = asked[later.name]
        for earlier in group[:number]:
            assert earlier.outcome is not None
            before = asked[earlier.name]
            if earlier.outcome.at < later.invoked.at and any(
                answer.at < before.finished and not _holds_both(answer, before, message.body)
                for answer in message.answers
            ):
                yield message.body


def _holds_both(answer: Event, before: _Asked, later: str) -> bool:
    """True when its client had the earlier message before the later one, as it may have claimed them together."""
    bodies = [each.body for each in answer.deliveries]
    if before.body in bodies:
        return bodies.index(before.body) < bodies.index(later)
    return any(each.actor == answer.actor and each.at < answer.at for each in before.answers)


def _beyond(events: Sequence[Event], tolerance: float) -> list[str]:
    """Moments at which more permits were held than there are, by clients whose leases cannot have been over."""
    ends: dict[str, float] = {}  # of the lease of each client that has one, by the store's clock
    asked: dict[str, Event] = {}
    found = []
    for event in events:
        ends = {actor: end for actor, end in ends.items() if event.store_time < end}
        if event.verb == "take-permit" and event.phase is Phase.INVOKE:
            asked[event.actor] = event
        elif event.verb == "give-permit":
            ends.pop(event.actor, None)
        elif event.verb == "take-permit" and event.phase is Phase.OK:
            lease = (float(event.note) - tolerance) * SECOND
            end = asked[event.actor].store_time + lease
            if event.store_time < end:
                ends[event.actor] = end
            if len(ends) > PERMITS:
                found.append(f"{event.actor} {event.number}")
    return found


def _history(events: Sequence[Event], asked: Mapping[str, _Asked], body: str) -> tuple[Event, ...]:
    ids = {identity for identity, each in asked.items() if each.body == body}
    return tuple(
        event
        for event in events
        if body in (*event.bodies, f"{event.actor} {event.number}")
        or ids.intersection(event.bodies)
        or any(each.body == body for each in event.deliveries)
    )
