"""A rate: a number of messages in a period, as in ``100/s``."""

from __future__ import annotations

import re
from typing import Self

import msgspec

from shardq.base.texts import shown
from shardq.errors import InvalidSetting

__all__ = ["MOST_MESSAGES", "Rate"]

MOST_MESSAGES = 1_000_000

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_TEXT = re.compile(r"([0-9]{1,7})/([0-9]{0,3})([smhd])")


class Rate(msgspec.Struct, frozen=True):
    """At most ``messages`` in any ``seconds``.

    >>> Rate.parse("6000/m")
    Rate(messages=6000, seconds=60)
    """

    messages: int
    seconds: int

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read a rate: messages, a slash, and s, m, h or d, or a number of them. Raises InvalidSetting."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidSetting(
                f"rate_limit={shown(text)} is not a rate: give messages and a period, such as '100/s', '6000/m' or "
                "'10/30s'"
            )
        messages, number, unit = int(match[1]), int(match[2] or 1), match[3]
        if not 1 <= messages <= MOST_MESSAGES:
            raise InvalidSetting(
                f"rate_limit={text!r} has {messages} messages: give 1 to {MOST_MESSAGES:,}; pause the queue to stop it"
            )
        if not 1 <= number * _SECONDS[unit] <= 7 * 86_400:
            raise InvalidSetting(f"rate_limit={text!r} has a period out of range: give 1 second to 7 days")
        return cls(messages, number * _SECONDS[unit])
