"""A topic with two subscriptions, one of which filters: each gets what it takes of what was published, and once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import shardq
from shardq.client import Client
from shardq.topics.names import log_of

from .history import Event, Phase
from .offence import SHOWN, Offence
from .stage import Stage

__all__ = ["SUBJECTS", "create_published", "finish_published", "judge_published", "start_publishers"]

SHARE = 20  # one message there for so many in the queue under test
PUBLISHERS = 2
SUBJECTS = ("week.day", "week.night")
FILTERS: Mapping[str, str | None] = {"all": None, "nights": "*.night"}  # of each subscription
YEAR = 365 * 86_400.0  # seconds; the mark of a relay is due later than that


def create_published(client: Client, queue: str, lease: float) -> None:
    """Create the topic, which is called as the queue under test, and its subscriptions. Nothing is dead-lettered."""
    topic = client.create_topic(queue)
    for name, taken in FILTERS.items():
        topic.subscribe(name, filter=taken, visibility_timeout=lease, max_deliveries=None)


def start_publishers(stage: Stage, client: Client, queue: str, messages: int, seconds: float) -> None:
    """Start clients that publish, and for each subscription one that receives. All of them relay."""
    topic, count = client.topic(queue), messages // SHARE // PUBLISHERS
    for number in range(1, PUBLISHERS + 1):
        stage.start("publish", f"u{number}", messages=count, rate=count / seconds)
    for number, name in enumerate(FILTERS, 1):
        stage.start("subscribe", f"v{number}", queue=topic.subscription(name).queue.name)


def finish_published(stage: Stage, client: Client, queue: str, seconds: float) -> list[str]:
    """Let everything be relayed and received, and the clients leave; tells of what is left."""
    topic, until = client.topic(queue), time.monotonic() + seconds
    queues = [client.queue(log_of(queue)), *(topic.subscription(name).queue for name in FILTERS)]
    left: object = "it could not be read"
    while left and time.monotonic() < until:
        with suppress(shardq.StoreUnavailable, shardq.OutcomeUnknown):
            left = [f"{each.id} {each.state.value}" for queue in queues for each in _left(queue)]
        time.sleep(0.2)
    stage.end("subscribe")
    return [f"the topic was not received in time: {left}"] if left else []


def _left(queue: shardq.Queue) -> list[shardq.StoredMessage]:
    return [each for each in queue.peek(1_000) if each.due.timestamp() < time.time() + YEAR]


def judge_published(events: Sequence[Event]) -> list[Offence]:
    """What a subscription did not get, got of nobody or against its filter, or got under two ids."""
    sent, got = _sent(events), _got(events)
    found: dict[str, set[str]] = defaultdict(set)
    for name in FILTERS if sent else ():
        taken = {body: phase for body, phase in sent.items() if _takes(name, body)}
        found["published and lost"] |= {
            body for body, phase in taken.items() if phase is Phase.OK and body not in got[name]
        }
        found["received against its filter"] |= {
            body for body in got[name] if taken.get(body, Phase.FAILED) is Phase.FAILED
        }
        found["published twice"] |= {body for body, ids in got[name].items() if len(ids) > 1}
    return [
        Offence(
            promise, len(bodies), {body: tuple(_history(events, body)) for body in sorted(bodies)[:SHOWN]}
        )
        for promise, bodies in found.items()
        if bodies
    ]


def _takes(subscription: str, body: str) -> bool:
    subject, taken = body.partition(" ")[0], FILTERS[subscription]
    return taken is None or subject.endswith(taken.removeprefix("*"))


def _sent(events: Sequence[Event]) -> dict[str, Phase]:
    """What was published, and whether it is there."""
    found: dict[str, Phase] = {}
    for event in events:
        if event.verb == "publish":
            phase = Phase.UNKNOWN if event.phase is Phase.INVOKE else event.phase
            found |= dict.fromkeys(event.bodies, phase)
    return found


def _got(events: Sequence[Event]) -> dict[str, dict[str, set[str]]]:
    """The ids of what each subscription received, by body."""
    found: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in FILTERS}
    for event in events:
        for each in event.deliveries if event.verb == "hear" else ():
            found[_subscription_of(each.id)][each.body].add(each.id)
    return found


def _subscription_of(identity: str) -> str:
    """A subscription's queue has its name in front of its incarnation, and an id begins with its queue."""
    return identity.split("/")[-2]


def _history(events: Sequence[Event], body: str) -> Iterator[Event]:
    for event in events:
        if event.verb in ("publish", "hear") and (
            body in event.bodies or any(each.body == body for each in event.deliveries)
        ):
            yield event
