"""A link: the queue that it takes from, those that it sends to, and its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shardq.base.callables import check_runs
from shardq.base.wording import kind_of, shown
from shardq.message import Message
from shardq.outcome import Backoff
from shardq.pipelines.errors import DuplicateLink, InvalidPipeline, PipelineCycle, UndeclaredTarget

__all__ = ["Link", "LinkFunction"]

LinkFunction = Callable[[Message], Any]


class Link(msgspec.Struct, frozen=True):
    """A link of a :class:`Pipeline`, as :meth:`Pipeline.link` declared it."""

    source: str
    targets: tuple[str, ...]  # empty: nothing goes on
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
        """What pictures call its function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def target(self, named: str | None) -> str:
        """The queue to which something goes. Raises UndeclaredTarget."""
        if named is None and len(self.targets) == 1:
            return self.targets[0]
        if named not in self.targets or named is None:
            raise UndeclaredTarget(
                f"{self.label} of the link from {self.source!r} sends to {shown(named)}: return Forward with one of "
                f"{list(self.targets)}, or None to drop the message"
            )
        return named
