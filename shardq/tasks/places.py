"""The entry that tells where the messages of the first steps of a workflow or bucket are."""

from __future__ import annotations

from collections.abc import Sized
from datetime import datetime

import msgspec

__all__ = ["FEWEST", "Place", "Places", "are_enough", "read_places", "write_places"]

FEWEST = 8  # steps for which an entry is worth writing


class Place(msgspec.Struct, frozen=True, array_like=True):
    """The id of the message of a step, and when it is due."""

    id: str
    due: datetime


Places = dict[int, Place]  # by the numbers of the steps


def are_enough(steps: Sized) -> bool:
    """False for so few first steps that each is sent with a key."""
    return len(steps) >= FEWEST


def write_places(places: Places) -> bytes:
    """The entry, as it is stored."""
    return _ENCODER.encode(places)


def read_places(stored: bytes) -> Places:
    """Read the entry that tells where the first steps are."""
    return _DECODER.decode(stored)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Places)
