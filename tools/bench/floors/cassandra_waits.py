"""What waiting costs on Cassandra, where nobody is told of a message: bare reads, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cassandra.cluster import Session

from ..cassandra_server import connect
from ..stores.processes import Job, Ready
from .cassandra import CONTROL, KEYSPACE, READY
from .floor import Size
from .waiting import polling

POLLS = 12  # a second, as ten idle consumers of shardq make together
SHARDS = [f"idle:{number}" for number in range(8)]
ONE = f"SELECT taken FROM entry WHERE shard = '{SHARDS[0]}' AND kind = {CONTROL} AND due = 0 AND id = 0x"
ALL = f"""
    SELECT shard, due, id FROM entry WHERE shard IN ? AND kind = {READY} AND due >= 0 AND due <= ?
    PER PARTITION LIMIT 4
"""


def clients(size: Size, _: Path) -> Mapping[str, Sequence[Job]]:
    """One client each, which polls as often as all consumers together."""
    return {
        f"{POLLS} reads of one row a second": [Job(one_row, (size.seconds,))],
        f"{POLLS} reads of {len(SHARDS)} partitions a second": [Job(all_partitions, (size.seconds,))],
    }


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
    used = polling(ready, lambda: session.execute(read()), 0, 1 / POLLS, seconds)
    session.cluster.shutdown()
    return used
