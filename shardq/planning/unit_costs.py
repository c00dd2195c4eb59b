"""Measured costs of one unit of work, to a client and to a server."""

from __future__ import annotations

from importlib import resources

import msgspec

from shardq.base.texts import shown
from shardq.errors import InvalidSetting

__all__ = ["Cost", "UnitCosts", "unit_costs"]


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
