"""What the comparison asks of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

LONGEST_REASON = 200


class PeerMissing(Exception):
    """Raised when a peer's packages or server are not installed."""


def last_words(output: str) -> str:
    """The last line of what a program printed, for the reason why it is missing; the page shows it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:LONGEST_REASON] if lines else "it said nothing"


class Peer(Protocol):
    """A durable queue of bytes. Each method returns when everything that it was given is done.

    ``share`` is how much of the run's number of messages it gets, so that slow ones take no longer than fast ones.
    """

    name: str
    durability: str  # in a few words: what a send waits for on its way to the disk
    sends: str  # when a send counts as done
    receives: str  # how messages are received and acked
    share: float

    def open(self, folder: Path) -> None:
        """Start with an empty queue, whose files are in the folder. Raises PeerMissing."""

    def send_bulk(self, bodies: Sequence[bytes]) -> None: ...

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        """Each after the one before is done."""

    def receive(self, count: int, batch: int) -> int:
        """Receive and ack so many messages, the fastest documented way; returns the bytes of their bodies.

        ``batch`` is how many are received and acked at a time, by those that can.
        """

    def close(self) -> None:
        """End everything that ``open`` started."""
