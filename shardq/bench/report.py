"""All that a run gave, to be printed or kept."""

from __future__ import annotations

import msgspec

from shardq.bench.machine import Machine
from shardq.bench.result import Result

__all__ = ["Report"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run, and where it ran."""

    machine: Machine
    store: str
    quick: bool
    results: tuple[Result, ...]

    def encode(self) -> bytes:
        """The report as JSON, for people and programs."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @classmethod
    def decode(cls, text: bytes) -> Report:
        """The report out of JSON; raises msgspec's errors when it is none."""
        return msgspec.json.decode(text, type=cls)

    def of(self, name: str) -> list[Result]:
        """The results of one measurement, by its name."""
        return [result for result in self.results if result.name == name]
