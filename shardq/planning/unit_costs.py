"""What one unit of work costs a client and a server: measured, and kept with its source."""

from __future__ import annotations

from importlib import resources

import msgspec

from shardq.errors import InvalidSetting

__all__ = ["Cost", "Sides", "UnitCosts", "unit_costs"]


class Cost(msgspec.Struct, frozen=True):
    """Microseconds of processor time."""

    message: float
    bundle: float
    kilobyte: float  # of bodies
    claim: float = 0.0

    def of_message(self, *, size: int, bundle: float, per_claim: float) -> float:
        """What a message costs with its share of the bundle and of the claim."""
        return self.message + self.bundle / bundle + self.kilobyte * size / 1000 + self.claim / per_claim


class Sides(msgspec.Struct, frozen=True):
    """The cost to the client's process, and to all nodes together when each row has one copy."""

    client: Cost
    server: Cost


class UnitCosts(msgspec.Struct, frozen=True):
    """The unit costs of a store."""

    send: Sides
    receive: Sides  # and ack
    append_ms: float  # by the clock, when nothing is in the way
    claim_and_ack_ms: float
    source: str  # the command that measured it, and on what


_decoder = msgspec.json.Decoder(dict[str, UnitCosts])


def unit_costs(store: str) -> UnitCosts:
    """Return what was measured of a store; raises InvalidSetting when nothing was."""
    text = resources.files("shardq.planning").joinpath("unit_costs.json").read_bytes()
    known = _decoder.decode(text)
    if store not in known:
        raise InvalidSetting(
            f"store {store!r} has no measured unit costs: use one of {', '.join(sorted(known))}, or measure "
            "with tools/scaling/measure.py"
        )
    return known[store]
