"""A load, the measured costs of one unit of work, and the cost of a load in bundles and claims."""

from __future__ import annotations

import math
from importlib import resources

import msgspec

from shardq.base.texts import shown
from shardq.errors import InvalidSetting

__all__ = [
    "BUNDLE_BYTES",
    "BUNDLE_MESSAGES",
    "PLANNED",
    "Cost",
    "Load",
    "UnitCosts",
    "Wanted",
    "load",
    "unit_costs",
]


class Cost(msgspec.Struct, frozen=True):
    """The cost of a message, a bundle, a kilobyte and a claim, in microseconds of processor time."""

    message: float
    bundle: float
    kilobyte: float  # of bodies
    claim: float = 0.0

    def of_message(self, *, size: int, bundle: float, per_claim: float) -> float:
        """Return the cost of a message of ``size`` bytes, with its share of its bundle and of its claim."""
        return self.message + self.bundle / bundle + self.kilobyte * size / 1000 + self.claim / per_claim


class Sides(msgspec.Struct, frozen=True):
    """The cost to the client's process, and to all nodes together when each row has one copy."""

    client: Cost
    server: Cost


class UnitCosts(msgspec.Struct, frozen=True):
    """The unit costs of a store. ``source`` is the command that measured them, and on what machine."""

    send: Sides
    receive: Sides  # and ack
    append_ms: float  # by the clock, when nothing is in the way
    claim_and_ack_ms: float
    waiting_client: float  # microseconds a second of a consumer that waits
    waiting_server: float  # and of the servers meanwhile
    source: str


_decoder = msgspec.json.Decoder(dict[str, UnitCosts])


def unit_costs(store: str) -> UnitCosts:
    """Return the unit costs of a store. Raises InvalidSetting when they were not measured."""
    text = resources.files("shardq.planning").joinpath("unit_costs.json").read_bytes()
    known = _decoder.decode(text)
    if not isinstance(store, str) or store not in known:
        raise InvalidSetting(
            f"store {shown(store)} has no measured unit costs: use one of {', '.join(sorted(known))}, or measure "
            "with tools/scaling/measure.py"
        )
    return known[store]


PLANNED = 0.5
"""The share of each resource that is planned for; the rest is kept for peaks, failed nodes and compaction."""

BUNDLE_BYTES = 262_144  # a producer's limits, unless they are set otherwise
BUNDLE_MESSAGES = 500
_CLAIM_MESSAGES = 500
_WAITING = 0.25  # of the latency: a bundle waits for its messages, and a consumer for those of a claim
_ROWS_OF_BUNDLE = 4  # ready row, bundle, lease row and due-index row


class Wanted(msgspec.Struct, frozen=True):
    """The load that a queue is planned for. Raises InvalidSetting when a number is out of range."""

    rate: float  # messages a second, sent, received and acked
    size: int  # bytes of a body
    latency: float = 1.0  # seconds from the send to the receive
    store: str = "cassandra"
    consumers: int | None = None  # processes; None: as many as are needed
    copies: int = 3  # of each row, on a cluster
    cores: int = 8  # of a node

    def __post_init__(self) -> None:
        for name in ("rate", "size", "latency", "copies", "cores"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < 1e12:
                raise InvalidSetting(
                    f"{name}={shown(value)} is out of range: give a number above 0 and below 1e12"
                )
        count = self.consumers
        if count is not None and (not isinstance(count, int) or not 1 <= count < 1e12):
            raise InvalidSetting(
                f"consumers={shown(count)} is out of range: give a whole number from 1, below 1e12, or leave it out"
            )


class Load(msgspec.Struct, frozen=True):
    """A load with its sizes and costs. Costs are microseconds of processor time."""

    wanted: Wanted
    costs: UnitCosts
    bundle: int  # messages
    per_claim: int  # messages
    producers: int
    consumers: int

    @property
    def send_cost(self) -> float:
        """The cost of a message to a producer."""
        return self._of_message(self.costs.send.client)

    @property
    def receive_cost(self) -> float:
        """The cost of a message to a consumer."""
        return self._of_message(self.costs.receive.client)

    @property
    def server_cost(self) -> float:
        """The cost of a message to all nodes. Every copy counts in full, although a read does not use all copies."""
        sides = (self.costs.send.server, self.costs.receive.server)
        return sum(self._of_message(side) for side in sides) * self.wanted.copies

    @property
    def receiving(self) -> float:
        """The time that all consumers take in a second. Each takes a little while it waits."""
        return self.wanted.rate * self.receive_cost + self.consumers * self.costs.waiting_client

    @property
    def serving(self) -> float:
        """The time that all nodes take in a second. Every copy counts in full."""
        waiting = self.consumers * self.costs.waiting_server * self.wanted.copies
        return self.wanted.rate * self.server_cost + waiting

    @property
    def bytes_a_second(self) -> float:
        """The bytes of all bodies that are sent in a second."""
        return self.wanted.rate * self.wanted.size

    @property
    def claims_a_second(self) -> float:
        """Claims in a second; each is followed by its ack."""
        return self.wanted.rate / self.per_claim

    @property
    def tombstones_a_second(self) -> float:
        """Rows that are deleted in a second."""
        return self.wanted.rate / self.bundle * _ROWS_OF_BUNDLE

    def _of_message(self, cost: Cost) -> float:
        return cost.of_message(size=self.wanted.size, bundle=self.bundle, per_claim=self.per_claim)


def load(wanted: Wanted, costs: UnitCosts) -> Load:
    """Find a bundle size and a claim size that fit the load.

    Large bundles cost little, so they need few processes. But the more processes there are, the fewer messages each
    gets within the latency. So the search begins with the largest sizes and lowers them until they are filled. A
    consumer that keeps up claims each bundle as it comes; it claims more at a time only when it would be too busy.
    """
    bundle = min(BUNDLE_MESSAGES, max(1, BUNDLE_BYTES // wanted.size))
    most = max(bundle, _CLAIM_MESSAGES)
    while True:
        found = _with_processes(Load(wanted, costs, bundle, most, 1, 1))
        filled, come = (
            max(1, int(wanted.rate * wanted.latency * _WAITING / processes))
            for processes in (found.producers, found.consumers)
        )
        if bundle <= filled and most <= max(bundle, come):
            return _keeping_up(found)
        bundle = min(bundle, filled)
        most = max(bundle, min(most, come))


def _with_processes(one: Load) -> Load:
    wanted = one.wanted
    return msgspec.structs.replace(
        one,
        producers=_processes(wanted.rate * one.send_cost),
        consumers=wanted.consumers or _processes(wanted.rate * one.receive_cost, one.costs.waiting_client),
    )


def _keeping_up(found: Load) -> Load:
    """Lower the messages of a claim to those of a bundle, or to what leaves the consumers as idle as planned."""
    lower = msgspec.structs.replace(found, per_claim=found.bundle)
    while lower.per_claim < found.per_claim and lower.receiving > 1e6 * PLANNED * lower.consumers:
        lower = msgspec.structs.replace(lower, per_claim=min(found.per_claim, 2 * lower.per_claim))
    return lower


def _processes(microseconds_a_second: float, waiting: float = 0.0) -> int:
    return max(1, math.ceil(microseconds_a_second / (1e6 * PLANNED - waiting)))
