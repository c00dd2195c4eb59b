"""A batch of received messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, overload

from shardq.base.clock import to_datetime
from shardq.base.texts import kind_of, shown
from shardq.core.held import COUNT, HeldSlice, Selection, SettleState, in_states
from shardq.core.message import Message, Settler
from shardq.core.settings import check_uncounted
from shardq.core.settling.receipts import check_results
from shardq.errors import InvalidSetting

__all__ = ["Batch"]

_UNTOUCHED = attrgetter("held.untouched")


class Batch(Sequence[Message]):
    """The messages of one bulk read, to be settled together or one by one.

    Each method settles the messages that are not settled yet. So a worker can release the messages that failed, and
    then ack the batch. A method settles all messages that the consumer still holds, then raises LeaseLost with the
    others.
    """

    def __init__(
        self, held: Sequence[HeldSlice], settler: Settler, acking: Callable[[], None] | None = None
    ) -> None:
        counts = [*map(COUNT, held)]
        self._selections = tuple(map(Selection, held, map(range, counts)))
        self._settler = settler
        self._acking = acking  # called when all of it is about to be acked
        self._length: int = sum(counts)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @property
    def bodies(self) -> list[Any]:
        """The bodies, in the order of the messages; raises InvalidMessage when the codec cannot read one.

        This is the fast way to read a large batch: no message objects are made.
        """
        return [body for selection in self._selections for body in self._settler.bodies(selection)]

    @property
    def queue(self) -> str | None:
        """The name of the queue that the messages are from; None for an empty batch."""
        return self._selections[0].held.shard.queue if self._selections else None

    @property
    def lease_until(self) -> datetime | None:
        """When the first lease expires, by the store's clock; None for an empty batch."""
        moments = (selection.lease_until for selection in self._selections)
        first = min((moment for moment in moments if moment is not None), default=None)
        return None if first is None else to_datetime(first)

    def part(self, messages: Iterable[Message]) -> Batch:
        """Return some of the messages as a batch of their own, to be settled without the others.

        Raises InvalidSetting for a message of another batch.
        """
        if not isinstance(messages, Iterable):
            raise InvalidSetting(
                f"messages={shown(messages)} is {kind_of(messages)}: give a list of messages of this batch"
            )
        chosen: dict[HeldSlice, set[int]] = {}
        for message in messages:
            held, position = self._place(message)
            chosen.setdefault(held, set()).add(position)
        part = Batch((), self._settler)
        part._selections = tuple(Selection(held, sorted(positions)) for held, positions in chosen.items())
        part._length = sum(map(len, chosen.values()))
        if part._length == self._length:
            part._acking = self._acking
        return part

    def ack(self, *, results: Mapping[Message, Any] | None = None) -> None:
        """Finish the messages: they are never delivered again. It can be repeated. Raises LeaseLost.

        ``results`` are those of single messages, as in :meth:`shardq.Message.ack`. When one cannot be kept, no message
        is acked.
        """
        chosen = () if results is None else self._chosen(results)
        if self._acking is not None:
            self._acking()
        self._settler.ack(self._open, chosen)

    def release(self, *, delay: float = 0.0, reason: str | None = None, count: bool = True) -> None:
        """Release the messages: they are redelivered after ``delay`` seconds. Raises LeaseLost.

        Those of which this was the last delivery go to the dead-letter queue, as in :meth:`shardq.Message.release`.
        With ``count=False`` this delivery is not counted, as when the work has not begun. Raises InvalidSetting for a
        reason with that.
        """
        if count:
            self._settler.release(self._open, delay, reason)
        else:
            check_uncounted(reason=reason)
            self._settler.return_uncounted(self._open, delay)

    def extend(self, seconds: float) -> None:
        """Extend the leases of the messages, to ``seconds`` from now. Raises LeaseLost."""
        self._settler.extend(self._open, seconds)

    def forward(
        self, queue: str, *, delay: float = 0.0, priority: int | None = None, atomic: bool = True
    ) -> None:
        """Move the messages to another queue, as :meth:`shardq.Message.forward` does.

        The messages of one shard are moved in order, in atomic steps of up to the bytes that the store takes at once.
        """
        self._settler.forward(self._open, queue, delay=delay, priority=priority, atomic=atomic)

    def dead_letter(self, reason: str) -> None:
        """Move the messages to the dead-letter queue now. Raises LeaseLost."""
        self._settler.dead_letter(self._open, reason)

    def _chosen(self, results: Mapping[Message, Any]) -> list[tuple[Selection, Any]]:
        check_results(results)
        return [(self._selected(message), value) for message, value in results.items() if value is not None]

    @property
    def _open(self) -> Sequence[Selection]:
        if all(map(_UNTOUCHED, self._selections)):
            return self._selections
        return in_states(self._selections, SettleState.OPEN, SettleState.LOST)

    def _selected(self, message: Message) -> Selection:
        held, position = self._place(message)
        return Selection(held, [position])

    def _place(self, message: Message) -> tuple[HeldSlice, int]:
        try:
            return self._places[message]
        except (KeyError, TypeError):  # what is not a message need have no hash
            raise InvalidSetting(f"{shown(message)} is not of this batch: settle it with its own") from None

    @cached_property
    def _places(self) -> dict[Message, tuple[HeldSlice, int]]:
        """Where each message is."""
        places = [(selection.held, place) for selection in self._selections for place in selection.positions]
        return dict(zip(self._messages, places, strict=True))

    @cached_property
    def _messages(self) -> list[Message]:
        return [message for selection in self._selections for message in self._settler.messages(selection)]

    def __repr__(self) -> str:
        return f"<Batch of {self._length} messages>"
