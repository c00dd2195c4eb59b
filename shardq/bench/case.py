"""One measurement with its load."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shardq.bench.load import Load
from shardq.bench.result import Sample
from shardq.bench.stage import Stage

__all__ = ["Case"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement, its unit and what it is given to do; ``rounds`` at most, for those that take long."""

    name: str
    unit: str
    measure: Callable[[Stage, Load], Sample]
    load: Load
    rounds: int = 100
