"""What is expected of messages that are sent, received and settled at random, and what no consumer may be handed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

import shardq
from shardq.base.outgoing_message import group_of
from shardq.testing import ManualClock

__all__ = ["QUEUES", "Expectations", "Hold", "Sent"]

QUEUES = ("a", "b/x@1")


class Sent(msgspec.Struct):
    """What is known of a message that is stored."""

    queue: str
    lane: str | None  # of its group, which is in order
    place: int
    expires: float | None = None
    ended: bool = False

    @property
    def group(self) -> str | None:
        return None if self.lane is None else group_of(self.lane)

    def is_before(self, other: Sent) -> bool:
        same = (self.queue, self.lane) == (other.queue, other.lane)
        return same and not self.ended and self.place < other.place


class Hold(msgspec.Struct):
    """A message that a consumer was handed."""

    consumer: int
    batch: shardq.Batch
    message: shardq.Message
    is_void: bool = False  # the lease of an earlier message of its group ran out


class Expectations:
    """All that was sent, who holds what of it, and the rules for what is delivered."""

    def __init__(self, clients: list[shardq.Client], clock: ManualClock, limit: int | None) -> None:
        self.clients, self.clock, self.limit = clients, clock, limit
        self.sent: dict[bytes, Sent] = {}
        self.held: dict[bytes, Hold] = {}

    def now(self) -> float:
        return self.clock.now() / 1e6

    def is_held(self, body: bytes) -> bool:
        hold = self.held.get(body)
        if hold is None or hold.is_void or self.sent[body].ended:
            return False
        return self.until(hold) > self.now()

    def until(self, hold: Hold) -> float:
        return hold.message.lease_until.timestamp()

    def lapse(self) -> None:
        """Note that whoever lost a message to the end of its lease may lose what it holds behind it in its group.

        It goes with the message to whoever claims that, whenever it was handed out, and however long its own lease is.
        """
        for body, hold in self.held.items():
            if self.until(hold) <= self.now():
                self.void_behind(body, hold.consumer)

    def void_behind(self, body: bytes, consumer: int) -> None:
        """Note that a consumer which lost this has lost what it holds behind it in its group."""
        for other, hold in self.held.items():
            if self.sent[body].lane is not None and self.sent[body].is_before(self.sent[other]):
                hold.is_void = hold.is_void or hold.consumer == consumer

    def end(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            self.sent[body].ended = True
            self.held.pop(body, None)

    def check_delivered(self, message: shardq.Message) -> None:
        sent = self.sent[message.body]
        assert not sent.ended, f"{message.body!r} is delivered after its end"
        assert not self.is_held(message.body), f"{message.body!r} is held twice"
        assert (message.queue, message.group, message.lane) == (sent.queue, sent.group, sent.lane)
        assert sent.expires is None or self.now() <= sent.expires + 1e-3, f"{message.body!r} has expired"

    def check_group(self, message: shardq.Message, consumer: int, batch: shardq.Batch) -> None:
        mine = self.sent[message.body]
        for body, sent in self.sent.items():
            hold = self.held.get(body)
            own = hold is not None and (hold.batch is batch or hold.consumer == consumer)
            if (sent.queue, sent.lane) == (mine.queue, mine.lane) and self.is_held(body):
                assert own, f"{body!r} and {message.body!r} of one lane are held by two consumers"
            if sent.is_before(mine) and not own and not (sent.expires and sent.expires <= self.now()):
                there = self.clients[0].queue(sent.queue).peek(1000)
                assert body not in {other.body for other in there}, f"{message.body!r} overtook {body!r}"
        bodies = [self.sent[other.body].place for other in batch if other.lane == message.lane]
        assert bodies == sorted(bodies)

    def check_limit(self) -> None:
        for name in QUEUES:
            in_flight = sum(self.is_held(body) for body, sent in self.sent.items() if sent.queue == name)
            assert self.limit is None or in_flight <= self.limit
