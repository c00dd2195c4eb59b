"""From send to receive at a fixed rate, whatever the queue does: an open loop.

Every message has a moment at which it is to be sent, and its latency counts from then, also where the sender was
late because an earlier send took long. So a stall is seen in all the messages that it held up, not in one: no
coordinated omission.
"""

from __future__ import annotations

from collections.abc import Callable

from shardq.bench.load import Load
from shardq.bench.percentiles import latencies
from shardq.bench.processes import Job, run_together
from shardq.bench.result import Sample
from shardq.bench.stage import Place, Stage
from shardq.bench.stamps import collecting, count_at_rate, send_at_rate

__all__ = ["latency_fixed_rate"]


def latency_fixed_rate(stage: Stage, load: Load) -> Sample:
    """Milliseconds from the moment at which a message was to be sent to its receipt in another process."""
    with stage.queue() as place:
        jobs = [Job(_send, (place, load)), Job(collecting, (place, count_at_rate(load)))]
        return latencies(run_together(jobs)[1])


def _send(ready: Callable[[], float], place: Place, load: Load) -> None:
    with place.open() as queue, queue.producer() as producer:
        send_at_rate(ready(), load, producer.send)
