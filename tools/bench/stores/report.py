"""All that a run gave, and what it ran on: to be printed or kept."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import msgspec

from .result import Result

__all__ = ["Machine", "Report", "this_machine"]


class Machine(msgspec.Struct, frozen=True):
    """What matters for comparing figures, and nothing that tells whose machine it is."""

    cores: int
    system: str
    processor: str
    python: str
    shardq: str

    def __str__(self) -> str:
        return f"{self.cores} cores ({self.processor}), {self.system}, {self.python}, shardq {self.shardq}"


def this_machine() -> Machine:
    """The machine that this runs on."""
    return Machine(
        cores=os.cpu_count() or 1,
        system=platform.system(),
        processor=platform.machine(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        shardq=version("shardq"),
    )


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run, and where it ran."""

    machine: Machine
    store: str
    quick: bool
    results: tuple[Result, ...]

    def of(self, name: str) -> list[Result]:
        """The results of one measurement, by its name."""
        return [result for result in self.results if result.name == name]
