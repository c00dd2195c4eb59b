"""All that the processes of a run wrote down, read back."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shardq.demo.plan import Plan
from shardq.demo.records import Ack, Result, Sent, read_records

__all__ = ["Harvest", "WorkerRecords", "read_harvest"]


class WorkerRecords(msgspec.Struct, frozen=True):
    """What one worker wrote: its results, and its acks by the number of the batch."""

    results: list[Result]
    acks: dict[int, Ack]


class Harvest(msgspec.Struct, frozen=True):
    """The records of all producers, and of the workers in their places."""

    sent: list[Sent]
    workers: list[WorkerRecords]

    def results(self) -> Iterator[Result]:
        """Every result of every worker."""
        for worker in self.workers:
            yield from worker.results


def read_harvest(plan: Plan) -> Harvest:
    """The records of a run that is over."""
    sent = [
        record
        for place in range(plan.producers)
        for record in read_records(plan.records / f"sent-{place}.jsonl", Sent)
    ]
    return Harvest(sent, [_worker(plan, place) for place in range(plan.worker_places)])


def _worker(plan: Plan, place: int) -> WorkerRecords:
    results = read_records(plan.records / f"results-{place}.jsonl", Result)
    acks = read_records(plan.records / f"acks-{place}.jsonl", Ack)
    return WorkerRecords(results, {ack.batch: ack for ack in acks})
