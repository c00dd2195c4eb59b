"""What the comparison asks of a queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

LONGEST_REASON = 200
SILENCE = 0.2  # seconds after which a receiver says that nothing came
POLL_SECONDS = 0.005
POLLED = f"looks again every {POLL_SECONDS * 1_000:g} ms"
SHARED, JOINED = "share one object", "join with an object each"  # threads that use a queue together
AT_ONCE = 100  # messages that a waiting receiver takes at once, where it can

Found = TypeVar("Found")


class PeerMissing(Exception):
    """Raised when a peer's packages or server are not installed."""


def last_words(output: str) -> str:
    """The last line of what a program printed, for the reason why it is missing; the page shows it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:LONGEST_REASON] if lines else "it said nothing"


def look_again(look: Callable[[], Found]) -> Iterator[Found]:
    """What each of many looks finds, for queues that tell nobody of a message; nothing after a silence."""
    while True:
        deadline = time.monotonic() + SILENCE
        while not (found := look()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        yield found


class Peer(Protocol):
    """A durable queue of bytes. Each method returns when everything that it was given is done.

    ``share`` is how much of the run's number of messages it gets, so that slow ones take no longer than fast ones.
    Other processes join the queue with an object of their own; one without ``wakes`` nobody joins.
    """

    name: str
    durability: str  # in a few words: what a send waits for on its way to the disk
    sends: str  # when a send counts as done
    receives: str  # how messages are received and acked
    share: float
    wakes: str  # what tells a waiting receiver of a message
    threads: str  # how several of a process use it: SHARED, JOINED, or "" where they are not asked to
    takes_one: bool  # receives a single message where it is asked for one
    wins: str  # why it is faster than shardq where it is
    place: Any  # what another process needs to join; set by ``open``

    def open(self, folder: Path) -> None:
        """Start with an empty queue, whose files are in the folder. Raises PeerMissing."""

    def join(self, place: Any) -> None:
        """Use the queue that another process has opened."""

    def send_bulk(self, bodies: Sequence[bytes]) -> None: ...

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        """Each after the one before is done."""

    def receive(self, count: int, batch: int) -> int:
        """Receive and ack so many messages, the fastest documented way; returns the bytes of their bodies.

        ``batch`` is how many are received and acked at a time, by those that can.
        """

    def receiving(self) -> Iterator[Sequence[bytes]]:
        """The bodies of what comes, as soon as it comes, acked when the next are asked for; none after a silence."""

    def leave(self) -> None:
        """End what ``join`` started."""

    def close(self) -> None:
        """End everything that ``open`` started."""


@runtime_checkable
class PopsMessages(Protocol):
    """A queue that can take a message out in one call: at most once."""

    def pop(self, count: int) -> None:
        """Take out so many, one by one."""


@runtime_checkable
class HoldsMessages(Protocol):
    """A queue whose messages any thread can ack, each by itself."""

    def hold(self, count: int) -> list[Callable[[], object]]:
        """Receive so many messages; what acks each of them."""
