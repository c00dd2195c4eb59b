"""How the names of queues go from process to process."""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Protocol

from shardq.storage.requests import Finding

__all__ = ["Line", "OpenLine"]


class Line(Protocol):
    """Carries names of queues to all who listen. Safe for threads, and in forked children."""

    @property
    def name(self) -> str:
        """What it is and where, without a login, for the log."""
        ...

    @property
    def may_block(self) -> bool:
        """True when ``tell`` may take long while the store is well: no thread that sends may call it then."""
        ...

    def tell(self, queues: Collection[str]) -> bool:
        """Pass the names on. False, and no error, when they have to be told again."""
        ...

    def listen(self) -> Generator[Collection[str]]:
        """What is told from now on.

        The first item comes when the line stands, and one every few seconds, of no names if there are none. The end
        comes, without an error, when the line is broken.
        """
        ...


class OpenLine(Line, Protocol):
    """A line that a URL names, with connections of its own."""

    def diagnose(self) -> Finding:
        """Whether the line stands, for ``shardq doctor``."""
        ...

    def close(self) -> None:
        """Give up the connections of this process; the line may be used again."""
        ...
