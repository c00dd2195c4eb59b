"""One point of the growth: messages sent, claimed at that size, received and acked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import shardq

from .stores.claims import time_claims
from .stores.load import Load
from .stores.processes import Job, rate, run_together
from .stores.result import Figure, Sample
from .stores.stage import Stage
from .stores.throughput import check_all_received, receiving, sending

CALL = 100_000  # messages of a call, so that no list of ids grows with the load
CLAIM, RECEIVE, SEND = "claim, ms", "receive and ack, messages/s", "send, messages/s"
FIGURES = (SEND, RECEIVE, CLAIM)
MICROSECONDS = 1_000_000


def grow(stage: Stage, load: Load) -> Sample:
    """Microseconds for a message, from the call of send to the ack, by all processes together; and what it is made of.

    All messages wait when claims are timed and receiving begins. The queue has one time shard.
    """
    with stage.queue(shards=load.shards, time_shards=1) as place:
        sent = rate(run_together([Job(sending, (place, load, send_in_parts))] * load.processes))
        with place.open() as queue:
            claim = time_claims(queue, load)
        spans = run_together([Job(receiving, (place, load))] * load.processes)
    check_all_received(spans, load.messages)
    received = rate(spans)
    figures = (Figure(SEND, sent), Figure(RECEIVE, received), Figure(CLAIM, claim))
    return Sample(MICROSECONDS / sent + MICROSECONDS / received, figures)


def counted(
    measure: Callable[[Stage, Load], Sample], counts: Callable[[], Mapping[str, int]]
) -> Callable[[Stage, Load], Sample]:
    """The same measurement; what the server counted meanwhile becomes figures of its samples."""

    def measure_and_count(stage: Stage, load: Load) -> Sample:
        before = counts()
        sample = measure(stage, load)
        counted = (Figure(name, number - before[name]) for name, number in counts().items())
        return Sample(sample.value, (*sample.figures, *counted))

    return measure_and_count


def send_in_parts(queue: shardq.Queue, items: Sequence[bytes], _: Load) -> None:
    """Bulk sends, none of them too large."""
    with queue.producer() as producer:
        for start in range(0, len(items), CALL):
            producer.send_many(items[start : start + CALL])
