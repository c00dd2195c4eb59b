"""The answer to a claim of a test, with the token that holds it."""

from __future__ import annotations

from dataclasses import dataclass

from shardq.storage.requests import Claimed, ClaimedSlice, Span
from shardq.testing.messages import Message, of_slices

__all__ = ["Taken"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A claim's token and answer."""

    token: bytes
    claimed: Claimed

    @property
    def slices(self) -> tuple[ClaimedSlice, ...]:
        """The slices, in the order in which they were handed out."""
        return self.claimed.slices

    @property
    def messages(self) -> list[Message]:
        """The messages, in the order in which they were handed out."""
        return of_slices(self.slices)

    @property
    def deliveries(self) -> set[int]:
        """The delivery counts that occur."""
        return {each.deliveries for each in self.slices}

    @property
    def spans(self) -> tuple[Span, ...]:
        """Everything in it, for an ack, extension or release."""
        return tuple(Span(each.bundle.id, each.first, each.count, self.token) for each in self.slices)

    def span(self, first: int, count: int, *, of: int = 0) -> Span:
        """Return a span of ``count`` messages from ``first`` on, in the bundle of slice number ``of``."""
        return Span(self.slices[of].bundle.id, first, count, self.token)
