"""What looking costs on Cassandra, where nobody is told of a message: bare reads beside idle consumers."""

from __future__ import annotations

import time
from collections.abc import Callable

from cassandra.cluster import Session

from shardq.bench.consumers import SETTLING_SECONDS
from shardq.bench.load import Load
from shardq.bench.processes import Job, Ready
from shardq.bench.result import Sample
from shardq.bench.stage import Stage
from shardq.bench.wording import IDLE_WITH_SERVER

from ..cassandra_server import connect
from ..idling import beside_server, idle_with_server
from ..usage import Usage
from .cassandra import CONTROL, KEYSPACE, READY
from .floor import Floor, Size, Taken

POLLS = 12  # a second, as ten idle consumers of shardq make together
SHARDS = [f"idle:{number}" for number in range(8)]
ONE = f"SELECT taken FROM entry WHERE shard = '{SHARDS[0]}' AND kind = {CONTROL} AND due = 0 AND id = 0x"
ALL = f"""
    SELECT shard, due, id FROM entry WHERE shard IN ? AND kind = {READY} AND due >= 0 AND due <= ?
    PER PARTITION LIMIT 4
"""


def floor(url: str, size: Size, usage: Usage) -> Floor:
    """Percent of a core of clients and server, the server's above what it takes alone."""
    load = Load(processes=size.processes, seconds=size.seconds)

    def bare(poll: Callable[..., float]) -> Callable[[], Taken]:
        return lambda: _taken(beside_server([Job(poll, (size.seconds,))], usage, size.seconds))

    statements = {
        f"{POLLS} reads of one row a second": bare(one_row),
        f"{POLLS} reads of {len(SHARDS)} partitions a second": bare(all_partitions),
    }
    own = lambda: _taken(idle_with_server(Stage(url), usage, load))  # noqa: E731
    return Floor(kind=IDLE_WITH_SERVER, own=own, bare=statements, is_rate=False)


def one_row(ready: Ready, seconds: float) -> float:
    """Seconds of a core that a client takes which reads one row again and again."""
    session = connect(KEYSPACE)
    read = session.prepare(ONE).bind(())
    return _polling(ready, session, lambda: read, seconds)


def all_partitions(ready: Ready, seconds: float) -> float:
    """The same of one that looks at the beginning of all shards."""
    session = connect(KEYSPACE)
    read = session.prepare(ALL)
    return _polling(ready, session, lambda: read.bind((SHARDS, time.time_ns() // 1_000)), seconds)


def _polling(ready: Ready, session: Session, read: Callable[[], object], seconds: float) -> float:
    def poll(count: int) -> None:
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / POLLS - time.monotonic()))
            session.execute(read())

    ready()
    poll(round(POLLS * SETTLING_SECONDS))
    before = time.process_time()
    poll(round(POLLS * seconds))
    used = time.process_time() - before
    session.cluster.shutdown()
    return used


def _taken(sample: Sample) -> Taken:
    clients = sample.figures[0].value
    return Taken(sample.value, clients, sample.value - clients)
