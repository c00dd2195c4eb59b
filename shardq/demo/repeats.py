"""Flights that were worked more than once, and why."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from shardq.demo.harvest import Harvest, WorkerRecords

__all__ = ["Repeats", "find_repeats"]


class Repeats(msgspec.Struct, frozen=True):
    """Flights with more than one result, by the reason."""

    killed: int  # a worker was killed between the result and the ack
    lease_lost: int  # a worker was told at the ack that its lease had run out
    unexplained: int  # neither: acked, and delivered again all the same

    @property
    def total(self) -> int:
        """All flights that were worked more than once."""
        return self.killed + self.lease_lost + self.unexplained


def find_repeats(harvest: Harvest) -> Repeats:
    """Count the flights that were worked more than once."""
    reasons: defaultdict[int, list[str]] = defaultdict(list)
    for worker in harvest.workers:
        fates = {batch: _fate(worker, batch) for batch in {result.batch for result in worker.results}}
        for result in worker.results:
            reasons[result.row].append(fates[result.batch])
    again = [fates for fates in reasons.values() if len(fates) > 1]
    killed = sum("killed" in fates for fates in again)
    lost = sum("lost" in fates and "killed" not in fates for fates in again)
    return Repeats(killed, lost, len(again) - killed - lost)


def _fate(worker: WorkerRecords, batch: int) -> str:
    ack = worker.acks.get(batch)
    if ack is None:
        return "killed"
    return "lost" if ack.lost else "acked"
