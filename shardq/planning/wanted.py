"""What a queue is to do."""

from __future__ import annotations

import msgspec

from shardq.errors import InvalidSetting

__all__ = ["Wanted"]


class Wanted(msgspec.Struct, frozen=True):
    """A load and how soon its messages are to arrive. Raises InvalidSetting when a number is not positive."""

    rate: float  # messages a second, sent, received and acked
    size: int  # bytes of a body
    latency: float = 1.0  # seconds from the send to the receive
    store: str = "cassandra"
    consumers: int | None = None  # processes; as many as are needed without it
    copies: int = 3  # of each row, on a cluster
    cores: int = 8  # of a node

    def __post_init__(self) -> None:
        for name in ("rate", "size", "latency", "copies", "cores"):
            value = getattr(self, name)
            if not 0 < value < 1e12:
                raise InvalidSetting(f"{name}={value!r} is not a positive number: give one above 0")
        if self.consumers is not None and self.consumers < 1:
            raise InvalidSetting(f"consumers={self.consumers} is too few: give 1 or more, or leave it out")
