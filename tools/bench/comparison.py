"""What a run leaves behind: the figures of shardq, those of the peers, and what the peers promise for them."""

from __future__ import annotations

from statistics import median

import msgspec

from .peer import Peer
from .stores.report import Report
from .stores.result import Result


class Promise(msgspec.Struct, frozen=True):
    """When a peer's send counts as done, how it receives, what tells a waiting receiver, and why it is fast."""

    name: str
    sends: str
    receives: str
    durability: str = ""
    wakes: str = ""
    wins: str = ""

    @classmethod
    def of(cls, peer: Peer) -> Promise:
        return cls(peer.name, peer.sends, peer.receives, peer.durability, peer.wakes, peer.wins)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A run of everything on one store; its page is made from it. ``software`` is what stores the messages.

    ``missing`` are queues that did not take part, ``left_out`` loads of the growth that would have taken too long.
    """

    report: Report
    store: str = "sqlite"
    software: str = ""
    promises: tuple[Promise, ...]
    missing: tuple[str, ...]
    peers: tuple[Result, ...]
    left_out: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def decode(cls, text: bytes) -> Comparison:
        return msgspec.json.decode(text, type=cls)

    def peer(self, name: str, kind: str) -> Result | None:
        """One peer's result."""
        found = [result for result in self.peers if (result.subject, result.name) == (name, kind)]
        return found[0] if found else None

    @property
    def ours(self) -> tuple[str, ...]:
        """The names under which shardq itself takes part; the first is how it comes."""
        return tuple(promise.name for promise in self.promises if promise.name.startswith("shardq"))

    def ratio(
        self, other: str, kind: str, *, own: str | None = None, other_kind: str | None = None
    ) -> float | None:
        """How many times as fast as the peer shardq is: the median of the rounds' ratios."""
        ours = self.peer(own or self.promises[0].name, kind)
        theirs = self.peer(other, other_kind or kind)
        if ours is None or theirs is None:
            return None
        return median(own / their for own, their in zip(ours.rounds, theirs.rounds, strict=True))
