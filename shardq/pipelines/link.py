"""A link: its source, its targets, its function, and the types that the function returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from shardq.base.callables import check_runs
from shardq.base.outgoing_message import HeaderValue
from shardq.base.texts import kind_of, shown
from shardq.client.outcome import Backoff
from shardq.core.message import Message
from shardq.core.sending.prepared import are_several
from shardq.errors import InvalidSetting

__all__ = [
    "DanglingEnd",
    "DuplicateLink",
    "Forward",
    "InvalidPipeline",
    "Link",
    "LinkFunction",
    "PipelineCycle",
    "Split",
    "UndeclaredTarget",
]


class InvalidPipeline(InvalidSetting):
    """Raised for a pipeline that cannot run."""


class DuplicateLink(InvalidPipeline):
    """Raised when a queue has two links, or a link names a queue twice."""


class PipelineCycle(InvalidPipeline):
    """Raised when the links of a pipeline lead back to a queue."""


class DanglingEnd(InvalidPipeline):
    """Raised when no link takes the messages of another link, and their queue is not declared as an output."""


class UndeclaredTarget(InvalidPipeline):
    """Raised when the function of a link does not name one of the link's queues. It is a failure of the message."""


LinkFunction = Callable[[Message], Any]


class Link(msgspec.Struct, frozen=True):
    """A link of a :class:`Pipeline`, as :meth:`Pipeline.link` declared it."""

    source: str
    targets: tuple[str, ...]  # empty: no message is sent on
    function: LinkFunction
    retry: Backoff | None = None

    def __post_init__(self) -> None:
        for name in (self.source, *self.targets):
            if not isinstance(name, str) or not name:
                raise InvalidPipeline(
                    f"queue={shown(name)} of a link is {kind_of(name)}: give the name of a queue"
                )
        if self.retry is not None and not isinstance(self.retry, Backoff):
            raise InvalidPipeline(
                f"retry={shown(self.retry)} of the link from {self.source!r}: give a shardq.Backoff"
            )
        check_runs(f"function of the link from {self.source!r}", self.function)
        twice = [name for name in self.targets if self.targets.count(name) > 1]
        if twice:
            raise DuplicateLink(f"the link from {self.source!r} names {twice[0]!r} twice: name it once")
        if self.source in self.targets:
            raise PipelineCycle(
                f"the link from {self.source!r} leads to itself: return shardq.Retry or shardq.Snooze to have a "
                "message again"
            )

    @property
    def label(self) -> str:
        """The name of its function in pictures."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def target(self, named: str | None) -> str:
        """Return the queue to which a message is sent. Raises UndeclaredTarget."""
        if named is None and len(self.targets) == 1:
            return self.targets[0]
        if named not in self.targets or named is None:
            raise UndeclaredTarget(
                f"{self.label} of the link from {self.source!r} sends to {shown(named)}: return Forward with one of "
                f"{list(self.targets)}, or None to drop the message"
            )
        return named


class Forward(msgspec.Struct, frozen=True):
    """Send the message on to a queue of the link; with only one, ``queue`` may be left out.

    A body, headers and priority that are None are unchanged. ``delay`` is in seconds. A value that cannot be sent is a
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
    """Send several messages on in place of one: bodies, or :class:`Forward` with other changes.

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
