"""A flight, and the message that it travels in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shardq.base.unreadable import UNREADABLE
from shardq.errors import InvalidMessage

__all__ = ["COLUMNS", "FLIGHTS", "Flight", "FlightMessage", "parse_flight"]


class Flight(msgspec.Struct, frozen=True, gc=False):
    """One row of the data set, column by column. Delays are minutes; None: cancelled, diverted or not recorded."""

    year: int
    month: int
    day: int
    dep_time: int | None
    sched_dep_time: int
    dep_delay: int | None
    arr_time: int | None
    sched_arr_time: int
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    hour: int
    minute: int
    time_hour: str


class FlightMessage(msgspec.Struct, frozen=True, gc=False):
    """A flight with its row number, from 1, and the time at which its producer took it up."""

    row: int
    sent_at: float
    flight: Flight


COLUMNS = Flight.__struct_fields__


def parse_flight(cells: Sequence[str]) -> Flight:
    """The flight of a row of text cells; raises ValueError naming the column that cannot be read."""
    named = {column: None if cell == "NA" else cell for column, cell in zip(COLUMNS, cells, strict=True)}
    return msgspec.convert(named, Flight, strict=False)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(FlightMessage)


class _FlightCodec:
    """Flights as JSON: a codec of an application's own, which can be pickled for the processes of a pool."""

    def encode(self, value: Any) -> bytes:
        return _encoder.encode(value)

    def decode(self, body: bytes) -> FlightMessage:
        try:
            return _decoder.decode(body)
        except UNREADABLE as error:
            raise InvalidMessage(f"body {body[:60]!r} is no flight: {error}") from error


FLIGHTS = _FlightCodec()
