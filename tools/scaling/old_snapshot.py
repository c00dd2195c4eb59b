"""What a claim on PostgreSQL costs after many single messages have passed, while an old snapshot keeps their dead rows.

    python tools/servers/postgresql.py run -- .venv/bin/python tools/scaling/old_snapshot.py --url {url}

Messages are sent, claimed and acked one row each, in batches, and the queue is swept once a minute. Before them and
after each part of them, claims of one message are measured: the entries of indexes that they read, most of which are
dead, and the time. The first figures of a line are those of claims right after the messages: a claim crosses the dead
entries of the last three to five seconds, and those of leases that would end then. The others are those of claims when
the watermarks have passed both. The exit code is 1 when the time at rest has grown by more than --most.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from statistics import median
from typing import NamedTuple

import psycopg

from shardq.base.shard import Shard
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Acknowledge, Append, Claim, QueueRecord, Span, Sweep
from shardq.testing import BundleFactory

BATCH, BODY = 500, b"x" * 512
LEASE = 10  # seconds
CLAIMS = 30  # of one message, of which one measurement is made
REST = LEASE + 10.0  # seconds until the low watermarks have passed the ends of leases
PARTS = 5

_ENTRIES = """
    SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relid = '@slice'::regclass
"""
_DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = '@slice'::regclass"
_FLUSH = "SELECT pg_stat_force_next_flush()"


class Cost(NamedTuple):
    """Of one claim."""

    entries: float
    milliseconds: float

    def __str__(self) -> str:
        return f"{self.entries:.0f} entries, {self.milliseconds:.2f} ms"


class Passing:
    """A queue of one shard, through which messages pass."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(parse(url)[0])
        self._shard = Shard(f"old-snapshot-{os.urandom(4).hex()}", 0, 0)
        self.store.create_queue(QueueRecord(self._shard.queue, b"", 1))
        self._make = BundleFactory(self.store.now)

    def send(self, count: int) -> None:
        """Send single messages in one request."""
        bundles = tuple(self._make(data=BODY) for _ in range(count))
        self.store.append(Append(self._shard, bundles, fresh=True))

    def consume(self, limit: int) -> int:
        """Claim and ack messages; returns how many."""
        spans = self._claim(limit)
        if spans:
            self.store.acknowledge(Acknowledge(self._shard, spans))
        return len(spans)

    def run(self, messages: int) -> None:
        """Let messages pass, with the sweeps of a consumer."""
        swept = 0.0
        for _ in range(0, messages, BATCH):
            if time.monotonic() > swept + 60:
                self.store.sweep(Sweep(self._shard.queue, 0))
                swept = time.monotonic()
            self.send(BATCH)
            if self.consume(BATCH) != BATCH:
                raise SystemExit("a message that was sent could not be claimed")

    def claim_cost(self) -> Cost:
        """Measure claims of one message each."""
        self.send(CLAIMS)
        before, times, spans = self._statistic(_ENTRIES), list[float](), list[Span]()
        for _ in range(CLAIMS):
            began = time.perf_counter()
            spans += self._claim(1)
            times.append(time.perf_counter() - began)
        entries = self._statistic(_ENTRIES) - before
        self.store.acknowledge(Acknowledge(self._shard, tuple(spans)))
        return Cost(entries / CLAIMS, 1000 * median(times))

    def rest(self) -> None:
        """Let the watermarks follow, by a message now and then."""
        until = time.monotonic() + REST
        while time.monotonic() < until:
            self.send(1)
            self.consume(1)
            time.sleep(0.2)

    def dead(self) -> int:
        """Return how many dead rows the server counts."""
        return self._statistic(_DEAD)

    def close(self) -> None:
        """Delete the queue."""
        self.store.drop_queue(self._shard.queue)
        self.store.close()

    def _claim(self, limit: int) -> tuple[Span, ...]:
        token = os.urandom(16)
        slices = self.store.claim(Claim(self._shard, token, limit, LEASE * 1_000_000)).slices
        return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)

    def _statistic(self, query: str) -> int:
        def read(sql: Sql) -> int:
            sql.all(_FLUSH)  # the only connection in use has counted all
            ((number,),) = sql.all(query)
            return int(number)

        return self.store.session.read(read)


def main() -> None:
    options = _options()
    passing = Passing(options.url)
    with psycopg.connect(parse(options.url)[0].conninfo) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")  # from here on nothing is removed
        passing.rest()
        start = passing.claim_cost()
        print(f"at the start: {start}", flush=True)
        for part in range(1, PARTS + 1):
            began = time.perf_counter()
            passing.run(options.messages // PARTS)
            rate = options.messages / PARTS / (time.perf_counter() - began)
            at_once = passing.claim_cost()
            passing.rest()
            cost = passing.claim_cost()
            passed = part * options.messages // PARTS
            print(
                f"{passed:10,} passed, {rate:6,.0f}/s: {at_once}; at rest {cost}; {passing.dead():,} dead rows",
                flush=True,
            )
        other.rollback()
    passing.close()
    grown = cost.milliseconds / start.milliseconds
    print(
        f"a claim takes {grown:.2f} times as long, and reads {cost.entries - start.entries:.0f} entries more"
    )
    print(f"{os.getloadavg()[1]:.0f} processes shared {os.cpu_count()} cores")
    sys.exit(grown > options.most)


def _options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--url", required=True, help="a schema of its own, on a server of its own")
    words.add_argument("--messages", type=int, default=300_000)
    words.add_argument("--most", type=float, default=1.5, help="times as long as a claim may take in the end")
    return words.parse_args()


if __name__ == "__main__":
    main()
