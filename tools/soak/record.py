"""How a soak went, beside its samples."""

from __future__ import annotations

import msgspec

from ..bench.stores.report import Machine
from .plan import Plan

__all__ = ["Record"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``failure`` says what ended it early; the counts are those after the drain."""

    plan: Plan
    machine: Machine
    software: str
    sent: int
    received: int
    seconds: float
    failure: str = ""

    def encode(self) -> bytes:
        """As JSON, for people and programs."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def decode(cls, text: bytes) -> Record:
        """The record out of JSON."""
        return msgspec.json.decode(text, type=cls)
