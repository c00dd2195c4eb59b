"""Latency against load: an open loop whose rate doubles until a queue does not keep up with it.

The messages come from threads that each send one at a time and wait until it is done, as the threads of an application
do; a message's time counts from the moment at which it was to be sent, so what waits for a thread counts too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from .latency import PeerKind, collect, send_first
from .peer import last_words
from .rounds import BODY_BYTES, Rounds
from .singles import SENDERS, senders
from .starting import Entry
from .stores.latency import latencies, send_at_rate
from .stores.load import Load
from .stores.processes import Job, run_together
from .stores.result import Figure, Result, Sample, summarize
from .stores.wording import LOADED

FIRST_RATE, LAST_RATE = 125.0, 64_000.0
LATE = 0.1  # of the time that the load lasts: where the last messages take longer, a queue does not keep up
LAST = 0.2  # of the messages
KEEPS_UP = "keeps up"
MODULES = (  # whose latency under load is measured
    *("shardq_sqlite", "shardq_cassandra", "shardq_mongodb", "shardq_postgresql"),
    *("rabbitmq_confirmed", "redis_streams", "postgres_skip_locked", "nats_jetstream", "kafka_flushed"),
)


def run_loads(
    entries: Sequence[Entry], plan: Rounds, *, say: Callable[[str], None]
) -> tuple[list[Result], list[str]]:
    """Results for each queue up to the first rate with which it does not keep up, and why queues failed."""
    results: list[Result] = []
    failed: list[str] = []
    for entry in entries if plan.load_seconds else ():
        peer = entry.peer
        if type(peer).__module__.rpartition(".")[2] not in MODULES:
            continue
        peer.leave()
        try:
            results.extend(_rising(entry, plan.load_seconds, say))
        except Exception as reason:  # one queue's failure must not cost the others' figures
            failed.append(f"{peer.name} under load (failed: {last_words(str(reason))})")
        finally:
            peer.join(peer.place)
    return results, failed


def _rising(entry: Entry, seconds: float, say: Callable[[str], None]) -> Iterator[Result]:
    peer = entry.peer
    for rate in _rates():
        load = Load(body_bytes=BODY_BYTES, rate=rate, seconds=seconds, threads=SENDERS)
        say(f"{LOADED}: {peer.name}, {rate:g} messages/s")
        sample = under_load(type(peer), peer.place, load)
        yield summarize(LOADED, "ms", load, [sample], subject=peer.name)
        if not sample.figures[-1].value:
            return


def _rates() -> Iterator[float]:
    doubled = (FIRST_RATE * 2**power for power in itertools.count())
    return itertools.takewhile(lambda rate: rate <= LAST_RATE, doubled)


def under_load(kind: PeerKind, place: Any, load: Load) -> Sample:
    """Percentiles in milliseconds, and as the last figure 1 where the queue keeps up. Raises BenchmarkFailed."""
    joining = (kind, place, load)
    seconds = run_together([Job(_send, joining), Job(collect, joining)])[1]
    sample = latencies(seconds)
    return Sample(sample.value, (*sample.figures, Figure(KEEPS_UP, float(keeps_up(seconds, load)))))


def keeps_up(seconds: Sequence[float], load: Load) -> bool:
    """Whether the last of the latencies, in the order of arrival, are short beside the time that the load lasts."""
    last = seconds[-max(1, int(len(seconds) * LAST)) :]
    return median(last) <= LATE * load.seconds


def _send(ready: Callable[[], float], kind: PeerKind, place: Any, load: Load) -> None:
    """Each thread sends every so many-th message."""
    peer = kind()
    peer.join(place)
    with senders(peer, place, load.threads) as sends, ThreadPoolExecutor(load.threads) as threads:
        send_first(peer, load)
        began = ready()
        done = [
            threads.submit(send_at_rate, began, load, send, first=number, every=load.threads)
            for number, send in enumerate(sends)
        ]
        for each in done:
            each.result()
    peer.leave()
