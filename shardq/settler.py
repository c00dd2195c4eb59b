"""What settles received messages: the methods of messages and batches call it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from shardq.errors import InvalidSetting
from shardq.held import HeldSlice, Selection
from shardq.outgoing_message import HeaderValue
from shardq.wording import kind_of, shown

if TYPE_CHECKING:
    from shardq.message import Message

__all__ = ["Settler", "check_results"]


class Settler(Protocol):
    """Settles received messages. Each call settles all that is still held, then raises LeaseLost."""

    def ack(self, selections: Sequence[Selection], results: Sequence[tuple[Selection, Any]] = ()) -> None:
        """Finish messages, single ones of them with a result."""
        ...

    def release(self, selections: Sequence[Selection], delay: float, reason: str | None) -> None:
        """Give messages back, deliverable again after so many seconds; those delivered too often are dead letters."""
        ...

    def give_back(self, selections: Sequence[Selection], delay: float) -> None:
        """Give messages back without counting this delivery, deliverable again after so many seconds."""
        ...

    def is_last(self, held: HeldSlice) -> bool:
        """True when its messages become dead letters if they are released."""
        ...

    def is_lost(self, held: HeldSlice, position: int) -> bool:
        """True when one of its messages is held no longer, or its lease is over."""
        ...

    def extend(self, selections: Sequence[Selection], seconds: float) -> None:
        """Hold messages for so many seconds from now on."""
        ...

    def forward(
        self,
        selections: Sequence[Selection],
        queue: str,
        *,
        body: Any = None,
        headers: Mapping[str, HeaderValue] | None = None,
        delay: float = 0.0,
        priority: int | None = None,
        atomic: bool,
    ) -> None:
        """Move messages to another queue of the same client. What is None stays as it is."""
        ...

    def dead_letter(self, selections: Sequence[Selection], reason: str) -> None:
        """Move messages to the dead-letter queue."""
        ...

    def replace(self, selection: Selection, value: Any, delay: float, *, keeps_due: bool = False) -> None:
        """Exchange messages for new ones with another body, which may keep their due time."""
        ...

    def note(self, selection: Selection, text: str, *, failed: bool) -> None:
        """Tell of messages in the log of their queue's events."""
        ...

    def messages(self, selection: Selection) -> list[Message]:
        """The selected messages as an application sees them."""
        ...

    def bodies(self, selection: Selection) -> list[Any]:
        """The selected messages' bodies."""
        ...

    def open(self, held: HeldSlice) -> io.BufferedReader:
        """The large body of the only message of a slice, as a file."""
        ...


def check_results(results: object) -> None:
    """Raise InvalidSetting for what is neither None nor results of single messages."""
    if not isinstance(results, Mapping | None):
        raise InvalidSetting(
            f"results={shown(results)} is {kind_of(results)}: give a mapping of messages, or of their receipts, "
            "to their results"
        )
