"""How a number of messages becomes a number of permits, and a rate a period after which permits come back."""

from __future__ import annotations

import msgspec

from shardq.base.rate import Rate
from shardq.core.limits.blocks import MOST_PERMITS

__all__ = ["Window", "units"]

_SECOND = 1_000_000


def units(messages: int, weight: int) -> int:
    """How many permits so many messages need, when each is for up to ``weight`` of them."""
    return -(-messages // weight)


class Window(msgspec.Struct, frozen=True):
    """So many permits, each for up to ``weight`` messages, which come back ``period`` microseconds after their use.

    There are at most 1,024 permits. Of a larger number each is for several messages. A larger rate is first divided
    over a shorter period, down to a second: 6,000 in a minute are 1,000 in ten seconds, which is stricter. Neither ever
    lets in more.

    >>> Window.of_rate(Rate.parse("6000/m"))
    Window(permits=1000, weight=1, period=10000000)
    >>> Window.of_number(2500)
    Window(permits=833, weight=3, period=0)
    """

    permits: int
    weight: int
    period: int

    @classmethod
    def of_number(cls, messages: int) -> Window:
        """For so many messages at a time."""
        weight = units(messages, MOST_PERMITS)
        return cls(messages // weight, weight, 0)

    @classmethod
    def of_rate(cls, rate: Rate) -> Window:
        """For a rate."""
        parts = min(units(rate.messages, MOST_PERMITS), rate.seconds)
        whole = cls.of_number(rate.messages // parts)
        return cls(whole.permits, whole.weight, rate.seconds * _SECOND // parts)
