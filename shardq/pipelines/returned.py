"""What the function of a link returns, beside a body, None and the outcomes of handlers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shardq.base.outgoing_message import HeaderValue
from shardq.base.wording import kind_of, shown
from shardq.core.sending.prepared import are_several
from shardq.errors import InvalidSetting

__all__ = ["Forward", "Split"]


class Forward(msgspec.Struct, frozen=True):
    """The message goes on to a queue of the link; with only one, ``queue`` may be left out.

    What is None stays as it was: body, headers and priority. ``delay`` is in seconds. What cannot be sent is a
    failure of the message.

    >>> Forward("paid", delay=60)
    Forward(queue='paid', body=None, headers=None, priority=None, delay=60)
    """

    queue: str | None = None
    body: Any = None
    headers: Mapping[str, HeaderValue] | None = None  # all of them; empty: none any more
    priority: int | None = None
    delay: float = 0.0


class Split:
    """Several messages go on in place of one: bodies, or :class:`Forward` for what else is to be different.

    Each part is sent once, however often the link is repeated, if the function returns the same parts in the same
    order each time. Without any part the message is dropped. Raises InvalidSetting for one body, the parts of which
    would be sent.

    >>> len(Split([b"a", b"b"]).parts)
    2
    """

    def __init__(self, parts: Iterable[Any]) -> None:
        if not are_several(parts):
            raise InvalidSetting(
                f"parts={shown(parts)} of a Split is {kind_of(parts)}: give a list of bodies, or return "
                "the body itself"
            )
        self.parts = tuple(each if isinstance(each, Forward) else Forward(body=each) for each in parts)

    def __repr__(self) -> str:
        return f"Split({list(self.parts)!r})"
