"""Random histories of two clients that use groups, keys, limits, moves and expiry on one store keep every promise.

Also where requests and answers are lost all the time, and repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

import shardq
from shardq.base.outgoing_message import lane_of
from shardq.base.receipt import MessageId
from shardq.core.browsing import find_slice
from shardq.storage.opening import open_store
from shardq.testing import FaultPlan, ManualClock
from shardq.testing.seam import context_of
from tests.api.expectations import QUEUES, Expectations, Hold, Sent
from tests.api.recording import Record, RecordedStore

STEPS = 120
ALL = 100_000
PATIENCE = 30.0  # seconds for which requests are repeated
ACTIONS = {
    "send": 30,
    "send_many": 6,
    "receive": 30,
    "ack": 22,
    "release": 6,
    "give_back": 4,
    "extend": 3,
    "ack_receipt": 3,
    "dead_letter": 2,
    "redrive": 2,
    "forward": 3,
    "rewrite": 2,
    "pop": 2,
    "remove": 2,
    "purge": 0.3,
    "sweep": 1,
    "alter": 1,
    "pass_time": 10,
}
GIVING_UP = ACTIONS | {
    "dead_letter": 15,
    "redrive": 8,
    "release": 10,
    "remove": 4,
    "send_many": 12,
    "forward": 0,
}


class History(Expectations):
    """Two clients with three consumers each, and what is expected of the two queues."""

    def __init__(
        self,
        url: str,
        clock: ManualClock,
        seed: int,
        *,
        prefetch: bool,
        lost: float,
        most_lanes: int,
        blocks: bool,
        actions: Mapping[str, float] = ACTIONS,
        grouped: float = 0.5,
        dice: random.Random | None = None,
    ) -> None:
        """``lost`` is the probability with which a request fails; ``grouped`` that with which a message has a group."""
        self.dice = dice or random.Random(seed)
        self.actions, self.grouped = actions, grouped
        self.most_lanes, self.blocks = most_lanes, blocks
        plans = [FaultPlan(probability=lost, seed=2 * seed + number) for number in range(2)]
        self.record = Record(clock)
        stores = [RecordedStore(open_store(url, clock), plan, self.record) for plan in plans]
        clients = [shardq.Client(store, retry_seconds=PATIENCE) for store in stores]
        super().__init__(clients, clock, self.dice.choice([None, 3, 7]))
        self.max_deliveries = self.dice.choice([2, 3, None])
        for name in QUEUES:
            self.clients[0].create_queue(name, **self._settings())
        self.ahead = [5 if prefetch else 0, self.dice.choice([0, 5]) if prefetch else 0]
        self.consumers = [
            consumer
            for client, ahead in zip(self.clients, self.ahead, strict=True)
            for consumer in (
                client.queue(QUEUES[0]).consumer(prefetch=ahead),
                client.queue(QUEUES[1]).consumer(),
                client.consumer(QUEUES),
            )
        ]
        self.numbers = 0

    def _settings(self) -> dict[str, Any]:
        return {
            "shards": self.dice.choice([1, 2]),
            "time_shards": self.dice.choice([1, 3]),
            "time_shard_seconds": 5,
            "visibility_timeout": 10,
            "max_deliveries": self.max_deliveries,
            "max_in_flight": self.limit,
            "retry_delay": 0,
            "group_concurrency": self.dice.randint(1, self.most_lanes),
            "history_retention": self.dice.choice([0, 100]),
            "on_dead_letter": "block" if self.blocks else "skip",
            "dead_letter_expired": self.dice.random() < 0.3,
        }

    def run(self) -> None:
        """Do what the dice say. What was done is a note of the error, if there is one."""
        try:
            for _ in range(STEPS):
                (name,) = self.dice.choices(list(self.actions), list(self.actions.values()))
                self.record.add(f"-- {name}")
                action: Callable[[], None] = getattr(self, name)
                action()
            for consumer in self.consumers:
                consumer.close()
            self.drain()
        except Exception as error:
            error.add_note(str(self.record))
            raise

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def queue(self) -> shardq.Queue:
        return self.dice.choice(self.clients).queue(self.dice.choice(QUEUES))

    def next_body(self) -> bytes:
        self.numbers += 1
        return b"%d" % self.numbers

    # -- what may happen

    def send(self) -> None:
        queue, body, options = self.queue(), self.next_body(), self._options()
        try:
            identity = queue.producer().send(body, **options)
        except shardq.UniqueKeyTaken:
            return
        stored = queue.get(identity)
        if stored is None or stored.body != body:  # the id of the message that has the key
            return
        ttl = options.get("ttl")
        expires = None if ttl is None else self.now() + options.get("delay", 0) + ttl
        self.sent[body] = Sent(queue.name, self._lane(queue, identity), self.numbers, expires)
        if options.get("on_conflict") == "replace":
            there = {message.body for name in QUEUES for message in self.clients[0].queue(name).peek(1000)}
            self.end(set(self.sent) - there)

    def send_many(self) -> None:
        """Those with a dedupe key may be duplicates; all others are stored."""
        queue, sent = self.queue(), dict[bytes, tuple[int, dict[str, Any]]]()
        for _ in range(self.dice.choice([1, 3, 20])):
            options = self._options()
            options.pop("unique_key", None)
            options.pop("on_conflict", None)
            body = self.next_body()  # first: its number is its place
            sent[body] = self.numbers, options
        with queue.producer(bundle_messages=self.dice.choice([2, 500])) as producer:
            producer.send_many(
                shardq.OutgoingMessage(body=body, **options) for body, (_, options) in sent.items()
            )
        there = {message.body: message.id for message in queue.peek(ALL)}
        for body, (place, options) in sent.items():
            assert body in there or "dedupe_key" in options
            if body in there:
                expires = self.now() + options.get("delay", 0) + options["ttl"] if "ttl" in options else None
                self.sent[body] = Sent(queue.name, self._lane(queue, there[body]), place, expires)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.dice.random() < self.grouped:
            options["group"] = self.dice.choice(["g1", "g2", "g3"])
        else:
            options["priority"] = self.dice.choice([1, 5])
        if self.dice.random() < 0.3:
            options["unique_key"] = self.dice.choice(["k1", "k2"])
            options["on_conflict"] = self.dice.choice(["keep", "raise", "replace"])
        elif self.dice.random() < 0.2:
            options["dedupe_key"] = self.dice.choice(["d1", "d2"]) + (options.get("group") or "")
        if self.dice.random() < 0.15:
            options["ttl"] = self.dice.choice([3, 30])
        if self.dice.random() < 0.2:
            options["delay"] = self.dice.choice([1, 6])
        return options

    def receive(self) -> None:
        number = self.dice.randrange(len(self.consumers))
        self.take(number, self.dice.choice([1, 3, 10]))

    def take(self, number: int, limit: int, wait: float = 0.0) -> shardq.Batch:
        batch = self.consumers[number].receive(limit, wait=wait)
        self.record.add(f"consumer {number} has", batch.bodies, [message.id[-8:] for message in batch])
        for message in batch:
            self.check_delivered(message)
            self.held[message.body] = Hold(number, batch, message)
        self.lapse()  # what was claimed ahead may be handed out behind a lease that is over
        for message in batch:
            if message.group is not None:
                self.check_group(message, number, batch)
        self.check_limit()
        return batch

    def ack(self) -> None:
        self.end(self._settle(lambda part: part.ack()))

    def dead_letter(self) -> None:
        self._given_up(self._settle(lambda part: part.dead_letter("why")))

    def ack_receipt(self) -> None:
        mine = [body for body in self.held if self.is_held(body)]
        if mine:
            body = self.dice.choice(mine)
            self.dice.choice(self.clients).queue(self.sent[body].queue).ack([self.held[body].message.receipt])
            self.end([body])

    def redrive(self) -> None:
        """Who claims ahead makes dead letters at any time."""
        if not any(self.ahead):
            self._redrive(self.queue())

    def _redrive(self, queue: shardq.Queue) -> int:
        """Dead letters are messages again: at the ends of their groups, and without a ttl."""
        letters, blocking = self.dead_letters(queue.name), queue.peek(ALL, blocked=True)
        redriven = queue.redrive()
        assert redriven == len(letters) + len(blocking)
        for message in blocking:
            self.sent[message.body].expires = None
        for body in letters:
            self.numbers += 1
            self.held.pop(body, None)
            sent = self.sent[body]
            sent.ended, sent.place, sent.expires = False, self.numbers, None
        self._look_for_lanes(queue, letters)
        return redriven

    def dead_letters(self, name: str) -> list[bytes]:
        try:
            return [message.body for message in self.clients[0].queue(f"{name}.dead").peek(ALL)]
        except shardq.QueueNotFound:
            return []

    def alter(self) -> None:
        lanes = self.dice.randint(1, self.most_lanes)
        self.queue().alter(
            shards=self.dice.choice([1, 2, 4]), time_shards=self.dice.choice([1, 3]), group_concurrency=lanes
        )

    def extend(self) -> None:
        self._settle(lambda part: part.extend(8))

    def release(self) -> None:
        delay = self.dice.choice([0, 2])
        for hold in self._let_go(self._settle(lambda part: part.release(delay=delay))):
            if self.max_deliveries is not None and hold.message.deliveries >= self.max_deliveries:
                self._given_up([hold.message.body])

    def _given_up(self, bodies: Sequence[bytes]) -> None:
        """They are dead letters; or block their groups, and nobody is handed what comes after them."""
        blocking = [body for body in bodies if self.blocks and self.sent[body].group is not None]
        for body in blocking:
            self._let_go([body])
            if not any(self.sent[other].is_before(self.sent[body]) for other in self.held):
                self.sent[body].expires = None  # else it does not block until they are settled
        self.end([body for body in bodies if body not in blocking])

    def give_back(self) -> None:
        self._let_go(self._settle(lambda part: part.release(delay=self.dice.choice([0, 2]), count=False)))

    def forward(self) -> None:
        other = dict(zip(QUEUES, reversed(QUEUES), strict=True))
        moved = self._settle(lambda part: part.forward(other[part.queue or ""]))
        for body in moved:
            self.numbers += 1
            sent = self.sent[body]
            sent.queue, sent.place = other[sent.queue], self.numbers
            self.held.pop(body)
        if moved:
            self._look_for_lanes(self.clients[0].queue(self.sent[moved[0]].queue), moved)

    def rewrite(self) -> None:
        body = self.next_body()
        settled = self._settle(lambda part: part[0].release(body=body), most=1)
        for old in settled:
            sent = self.sent[old]
            self.sent[body] = Sent(sent.queue, sent.lane, sent.place, sent.expires)
            self._let_go([old])
            self.end([old])

    def _lane(self, queue: shardq.Queue, identity: str) -> str | None:
        found = find_slice(context_of(queue), MessageId.parse(identity, queue.name))
        lane = None if found is None else found.bundle.group or None
        assert lane is None or lane_of(lane) < self.most_lanes
        return lane

    def _look_for_lanes(self, queue: shardq.Queue, moved: Sequence[bytes]) -> None:
        """Note the lanes of what has moved into a queue."""
        for message in queue.peek(ALL):
            if message.body in moved:
                self.sent[message.body].lane = self._lane(queue, message.id)

    def _settle(self, do: Callable[[shardq.Batch], None], most: int = 10) -> list[bytes]:
        """Do this with some of what a consumer holds. Answer what it was done with."""
        mine = [hold for body, hold in self.held.items() if self.is_held(body)]
        if not mine:
            return []
        batch = self.dice.choice(mine).batch
        whole = [hold.message for hold in mine if hold.batch is batch]
        part = whole[: self.dice.randrange(1, min(most, len(whole)) + 1)]
        if self.dice.random() < 0.3:
            part = [self.dice.choice(whole)]
        bodies = [message.body for message in part]
        try:
            do(batch.part(part))
        except shardq.LeaseLost as error:
            lost = {message.body for message in error.messages}
            for body in lost:
                if (hold := self.held.pop(body, None)) is not None:
                    self.void_behind(body, hold.consumer)
            return [body for body in bodies if body not in lost]
        return bodies

    def _let_go(self, bodies: Iterable[bytes]) -> list[Hold]:
        """Forget these, and what the same consumer holds behind them."""
        gone = [(body, self.held.pop(body)) for body in bodies if body in self.held]
        for body, hold in gone:
            for other in [other for other in self.held if self.sent[body].is_before(self.sent[other])]:
                if self.sent[body].group is not None and self.held[other].consumer == hold.consumer:
                    self.held.pop(other)
        return [hold for _, hold in gone]

    def pop(self) -> None:
        batch = self.consumers[self.dice.choice([1, 2, 4, 5])].pop_many(self.dice.choice([1, 3]))
        for message in batch:
            self.check_delivered(message)
        self.end(batch.bodies)

    def remove(self) -> None:
        queue = self.queue()
        waiting = list(queue.peek(50))
        if waiting and self._removals_are_seen():
            message = self.dice.choice(waiting)
            if queue.remove(message.id):
                self.end([message.body])

    def purge(self) -> None:
        queue = self.queue()
        if self._removals_are_seen():
            queue.purge()
            self.end([body for body, sent in self.sent.items() if sent.queue == queue.name])

    def _removals_are_seen(self) -> bool:
        """Tell whether the store is asked before a message that was claimed ahead is handed out."""
        return self.max_deliveries is not None or not any(self.ahead)

    def sweep(self) -> None:
        self.queue().sweep()

    def pass_time(self) -> None:
        self.clock.advance(self.dice.choice([0.5, 2, 6, 12]))
        self.lapse()

    def drain(self) -> None:
        """See that every message that did not end is received, or is a dead letter, and that nothing else is left."""
        for _ in range(self.numbers):
            self.clock.advance(20)
            redriven = [self._redrive(self.clients[0].queue(name)) for name in QUEUES if self.blocks]
            if not sum([self._drain_once(name) for name in QUEUES]) + sum(redriven):
                break
        dead = {body for name in QUEUES for body in self.dead_letters(name)}
        for body, sent in self.sent.items():
            assert sent.ended or body in dead or sent.expires is not None, f"{body!r} is lost"
        for name in QUEUES:
            counts = self.clients[0].queue(name).counts()
            assert (counts.ready, counts.delayed, counts.in_flight) == (0, 0, 0)

    def _drain_once(self, name: str) -> int:
        found = 0
        with self.clients[0].queue(name).consumer() as consumer:
            while batch := consumer.receive(100):
                assert not [body for body in batch.bodies if self.sent[body].ended]
                batch.ack()
                self.end(batch.bodies)
                found += len(batch)
        return found


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("most_lanes", [1, 4])
@pytest.mark.parametrize("lost", [0.0, 0.05])
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_features_that_are_used_together_keep_their_promises(
    url: str, clock: ManualClock, seed: int, prefetch: bool, lost: float, most_lanes: int, blocks: bool
) -> None:
    history = History(url, clock, seed, prefetch=prefetch, lost=lost, most_lanes=most_lanes, blocks=blocks)
    try:
        history.run()
    finally:
        history.close()


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_nothing_overtakes_what_blocks_its_group(
    url: str, clock: ManualClock, seed: int, prefetch: bool
) -> None:
    """Most messages have a group, and many are given up, redriven and removed."""
    history = History(
        url,
        clock,
        seed,
        prefetch=prefetch,
        lost=0.05 * (seed % 2),
        most_lanes=1 + seed % 3,
        blocks=True,
        actions=GIVING_UP,
        grouped=0.9,
    )
    try:
        history.run()
    finally:
        history.close()
