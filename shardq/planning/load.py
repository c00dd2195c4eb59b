"""What a load costs when so many messages go together."""

from __future__ import annotations

import math

import msgspec

from shardq.planning.unit_costs import Cost, UnitCosts
from shardq.planning.wanted import Wanted

__all__ = ["BUNDLE_BYTES", "BUNDLE_MESSAGES", "PLANNED", "Load", "load"]

PLANNED = 0.5
"""The part of what can be that is planned for; the rest is for peaks, failed nodes and compaction."""

BUNDLE_BYTES = 262_144  # a producer's limits, unless they are set otherwise
BUNDLE_MESSAGES = 500
_CLAIM_MESSAGES = 500
_WAITING = (
    0.25  # part of the latency for which a bundle waits for its messages, and a consumer for those of a claim
)
_ROWS_OF_BUNDLE = 4  # ready row, bundle, holding and alarm


class Load(msgspec.Struct, frozen=True):
    """A load with its sizes and costs; processor time in microseconds."""

    wanted: Wanted
    costs: UnitCosts
    bundle: int  # messages
    per_claim: int  # messages
    producers: int
    consumers: int

    @property
    def send_cost(self) -> float:
        """Of a producer for a message."""
        return self._of_message(self.costs.send.client)

    @property
    def receive_cost(self) -> float:
        """Of a consumer for a message."""
        return self._of_message(self.costs.receive.client)

    @property
    def server_cost(self) -> float:
        """Of all nodes for a message. Every copy is counted as a whole, though reads do not go to all."""
        sides = (self.costs.send.server, self.costs.receive.server)
        return sum(self._of_message(side) for side in sides) * self.wanted.copies

    @property
    def bytes_a_second(self) -> float:
        """Of bodies."""
        return self.wanted.rate * self.wanted.size

    @property
    def claims_a_second(self) -> float:
        """Each with its ack."""
        return self.wanted.rate / self.per_claim

    @property
    def tombstones_a_second(self) -> float:
        """Rows that are deleted."""
        return self.wanted.rate / self.bundle * _ROWS_OF_BUNDLE

    def _of_message(self, cost: Cost) -> float:
        return cost.of_message(size=self.wanted.size, bundle=self.bundle, per_claim=self.per_claim)


def load(wanted: Wanted, costs: UnitCosts) -> Load:
    """Find sizes that fit together.

    Large bundles need few processes, but among many processes less comes to each within the latency. So it begins with
    the largest bundles and claims, and goes down until they are filled.
    """
    bundle = min(BUNDLE_MESSAGES, max(1, BUNDLE_BYTES // wanted.size))
    per_claim = max(bundle, _CLAIM_MESSAGES)
    while True:
        found = _with_processes(Load(wanted, costs, bundle, per_claim, 1, 1))
        filled = max(1, int(wanted.rate * wanted.latency * _WAITING / found.producers))
        come = max(1, int(wanted.rate * wanted.latency * _WAITING / found.consumers))
        if bundle <= filled and per_claim <= come:
            return found
        bundle, per_claim = min(bundle, filled), min(per_claim, come)


def _with_processes(one: Load) -> Load:
    wanted = one.wanted
    return msgspec.structs.replace(
        one,
        producers=_processes(wanted.rate * one.send_cost),
        consumers=wanted.consumers or _processes(wanted.rate * one.receive_cost),
    )


def _processes(microseconds_a_second: float) -> int:
    return max(1, math.ceil(microseconds_a_second / 1e6 / PLANNED))
