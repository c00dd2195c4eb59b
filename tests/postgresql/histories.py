"""What several clients do on PostgreSQL at once, and what has to be there after it."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from functools import partial
from itertools import count

import psycopg

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Fenced,
    Forward,
    QueueRecord,
    Release,
    Span,
)
from shardq.testing import BundleFactory, ManualClock
from shardq.testing.messages import Message, of_bundle, of_spans
from tests.postgresql.stepped_clients import STEPPED, Scheduler
from tests.steps import MINUTE, claim, persist

__all__ = ["History", "World"]

CLIENTS, LONG = 3, b"x" * 2000
QUEUE = "histories"
LEFT = """
    SELECT (SELECT count(*) FROM @slice WHERE shard_key > 0) + (SELECT count(*) FROM @bundle_data WHERE shard_key > 0)
"""
FINISHED = "SELECT DISTINCT bundle_id FROM @finished WHERE first < 0"


class World:
    """The stores of the clients, in a schema of their own."""

    def __init__(self, url: str) -> None:
        self.clock, self.schema = ManualClock(), parse(url)[0].schema
        self.conninfo = parse(url.replace(f"&{STEPPED}", ""))[0].conninfo
        self.stores = [PostgresStore(parse(url)[0], clock=self.clock, pool_size=2) for _ in range(CLIENTS)]
        self.make = BundleFactory(self.stores[0].now)
        assert self.stores[0].create_queue(QueueRecord(QUEUE, b"", 1))
        self.monitor = psycopg.connect(parse(url)[0].conninfo, autocommit=True)
        self.scheduler = Scheduler(self.monitor)


class History:
    """What clients were answered, and what has to be there for it. It is checked as they go."""

    def __init__(self, world: World, seed: int, *, grouped: bool = False, more: int = 0) -> None:
        self.world, self.grouped, chance = world, grouped, random.Random(seed)
        self.shard, self.target = Shard(QUEUE, GROUP_TIME_SHARD if grouped else 0, 0), Shard(QUEUE, 1, 0)
        self._lock = threading.Lock()
        self._groups: dict[bytes, str] = {}
        self._sent = set[bytes]()
        self._open = set[Message]()  # to be delivered at the end
        self._held = set[Message]()
        self._of_group: dict[str, list[Message]] = {}
        self._leaving = set[Message]()  # whose ack, release or move has begun
        self.is_short = False  # a claim got less than it wanted
        self._moments = count()
        self._claims: list[tuple[int, int, list[Message]]] = []  # when each began and ended, and what it got
        self.first: list[Message] = []  # what was there before, in the order of delivery
        for _ in range(chance.randint(1, 6) + more):
            bundle = self.bundle(chance)
            self.send(world.stores[0], bundle)
            self.first = sorted([*self.first, *of_bundle(bundle)])

    @property
    def never_taken(self) -> list[Message]:
        """Return what was there before and no claim took."""
        return [each for each in self.first if each not in self._held]

    @property
    def overtaken(self) -> list[tuple[list[Message], list[Message]]]:
        """Return what claims got, in pairs: the second began after the first had ended, and got earlier messages."""
        return [
            (before, after)
            for _, ended, before in self._claims
            for began, _, after in self._claims
            if ended < began and before and after and after[0] < before[-1]
        ]

    def bundle(self, chance: random.Random) -> Bundle:
        """Make a bundle, of one of two groups if there are any, whose data may be stored beside its row."""
        group = chance.choice("ab") if self.grouped else ""
        data = chance.choice([b"x", LONG])
        bundle = self.world.make(chance.randint(1, 5), group=group, data=data)
        self._groups[bundle.id] = group
        return bundle

    def send(self, store: PostgresStore, bundle: Bundle, *, fresh: bool = False) -> None:
        with self._lock:
            self._sent.add(bundle.id)
            if bundle.id not in {each[0] for each in self._held | self._leaving}:
                self._open.update(of_bundle(bundle))
        attempts = iter([fresh])  # a repetition is not the first one
        persist(lambda: store.append(Append(self.shard, (bundle,), fresh=next(attempts, False))))

    def take(self, store: PostgresStore, limit: int) -> list[Span]:
        token, began = os.urandom(16), next(self._moments)
        slices = persist(lambda: claim(store, Claim(self.shard, token, limit, MINUTE))).slices
        spans = [Span(each.bundle.id, each.first, each.count, token) for each in slices]
        got = of_spans(spans)
        with self._lock:
            self._claims.append((began, next(self._moments), sorted(got)))
            assert not self._held.intersection(got), "a message is held twice"
            for message in got if self.grouped else ():
                before = self._of_group.setdefault(self._groups[message[0]], [])
                assert all(each in self._leaving or each in got for each in before), "a group is held twice"
                before.append(message)
            self._held.update(got)
            self.is_short = self.is_short or len(got) < limit
        return spans

    def ack(self, store: PostgresStore, spans: Sequence[Span], *, faults: int) -> None:
        self._leave(spans)
        fenced = persist(lambda: store.acknowledge(Acknowledge(self.shard, tuple(spans))))
        assert faults or fenced == Fenced(), "an ack of the holder is refused"
        with self._lock:
            self._open.difference_update(of_spans(spans))

    def ack_within(self, store: PostgresStore, spans: Sequence[Span], *, commits: bool) -> None:
        """Ack them one after the other in a transaction of the application."""
        self._leave(spans)
        with psycopg.connect(self.world.conninfo) as app:
            joined = store.within(app)
            for span in sorted(spans):
                assert joined.acknowledge(Acknowledge(self.shard, (span,))) == Fenced()
            if not commits:
                app.rollback()
                return
        with self._lock:
            self._open.difference_update(of_spans(spans))

    def remove(self, store: PostgresStore, span: Span) -> None:
        for bundle_id, position in of_spans([span]):
            assert persist(partial(store.remove, self.shard, bundle_id, position))
            with self._lock:
                self._open.discard((bundle_id, position))

    def move(self, store: PostgresStore, spans: Sequence[Span], *, faults: int) -> None:
        self._leave(spans)
        new = self.world.make(1)
        forward = Forward(Acknowledge(self.shard, tuple(spans)), Append(self.target, (new,)))
        fenced = persist(lambda: store.forward(forward))
        assert faults or fenced == Fenced(), "a move of the holder is refused"
        with self._lock:
            self._open.difference_update(of_spans(spans))
            self._open.update(of_bundle(new))

    def release(self, store: PostgresStore, spans: Sequence[Span]) -> list[Span]:
        """Release them; of groups the first one, and what is held behind it in its group goes with it."""
        group = self._groups[spans[0].bundle_id]
        released = [each for each in spans if self._groups[each.bundle_id] == group]
        self._leave(released)
        with self._lock:
            self._held.difference_update(of_spans(released))
        asked = tuple(released[:1] if self.grouped else released)
        persist(lambda: store.release(Release(self.shard, asked)))
        return released

    def ack_late(self, store: PostgresStore, spans: Sequence[Span]) -> None:
        """Ack what was released: others may hold it by now."""
        fenced = persist(lambda: store.acknowledge(Acknowledge(self.shard, tuple(spans))))
        refused = sorted(of_spans([*fenced.lost, *fenced.gone]))
        assert refused == sorted(of_spans(spans)), "an ack after the release is accepted"

    def _leave(self, spans: Sequence[Span]) -> None:
        with self._lock:
            self._leaving.update(of_spans(spans))

    def check_end(self) -> None:
        """Take what is left when all leases have ended: each message once, and nothing is stored of the others."""
        store, left = self.world.stores[0], list[Message]()
        self.world.clock.advance(2 * MINUTE / 1e6)
        for shard in (self.shard, self.target):
            while True:
                token = os.urandom(16)
                slices = claim(store, Claim(shard, token, 100, MINUTE)).slices
                spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)
                if not spans:
                    break
                left += of_spans(spans)
                assert store.acknowledge(Acknowledge(shard, spans)) == Fenced()
        assert sorted(left) == sorted(self._open), "what was not finished is delivered, once"
        ((rows,),) = store.session.read(lambda sql: sql.all(LEFT))
        assert rows == 0, "nothing is stored of what was finished"
        known = {bundle_id for (bundle_id,) in store.session.read(lambda sql: sql.all(FINISHED))}
        assert self._sent <= known, "a finished bundle is not known as such"
