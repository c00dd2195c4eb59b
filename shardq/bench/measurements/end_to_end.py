"""Producers and consumers at work together, each a process."""

from __future__ import annotations

from shardq.bench.load import Load
from shardq.bench.processes import Job, rate, run_together
from shardq.bench.receiving import check_all_received, receiving
from shardq.bench.result import Sample
from shardq.bench.sending import send_bulk, sending
from shardq.bench.stage import Stage

__all__ = ["end_to_end"]


def end_to_end(stage: Stage, load: Load) -> Sample:
    """Messages per second through the queue, to the last ack; ``processes`` producers and as many consumers."""
    with stage.queue() as place:
        producers = [Job(sending, (place, load, send_bulk))] * load.processes
        consumers = [Job(receiving, (place, load))] * load.processes
        spans = run_together(producers + consumers)
        received = spans[load.processes :]
        check_all_received(received, load.messages)
        return Sample(rate(received))
