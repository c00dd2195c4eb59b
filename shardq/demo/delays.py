"""Arrival delays by carrier."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["CarrierDelays", "delays_by_carrier"]


class CarrierDelays(msgspec.Struct):
    """A carrier's flights and their arrival delays, in minutes; flights that never arrived have none."""

    flights: int = 0
    arrived: int = 0
    total: int = 0
    longest: int | None = None

    def add(self, delay: int | None) -> None:
        """Count one flight in."""
        self.flights += 1
        if delay is not None:
            self.arrived += 1
            self.total += delay
            self.longest = delay if self.longest is None else max(self.longest, delay)

    @property
    def mean(self) -> float | None:
        """The mean delay; None when no flight arrived."""
        return self.total / self.arrived if self.arrived else None


def delays_by_carrier(flights: Iterable[tuple[str, int | None]]) -> dict[str, CarrierDelays]:
    """The delays of each carrier, by its code, in alphabetical order, of flights given as carrier and delay."""
    carriers: dict[str, CarrierDelays] = {}
    for carrier, delay in flights:
        carriers.setdefault(carrier, CarrierDelays()).add(delay)
    return dict(sorted(carriers.items()))
