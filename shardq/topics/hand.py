"""The messages of the log that a relay has claimed, and that are in no round yet."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from shardq.base.clock import from_datetime, microseconds
from shardq.errors import LeaseLost, ShardqError
from shardq.message import Message
from shardq.topics.envelopes import MOST_BYTES
from shardq.topics.state import Round

__all__ = ["LEASE_SECONDS", "Hand"]

LEASE_SECONDS = 30.0


class Hand:
    """Messages that were claimed just now."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = {message.id: message for message in messages}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Iterable[Message]) -> None:
        """Take messages that were claimed just now beside those that are here."""
        self._messages.update((message.id, message) for message in messages)

    def next(self, now: int) -> list[Message]:
        """Those of one round. They are held now: what was claimed a while ago is held on to, or left out if lost.

        A while by the store's clock: while the machine is suspended, that of the process may stand still.
        """
        soon = now + microseconds(LEASE_SECONDS * 2 / 3)
        if any(from_datetime(message.lease_until) < soon for message in self._messages.values()):
            self._hold_on()
        chosen: list[Message] = []
        size = 0
        for message in self._messages.values():
            size += len(message.raw)
            if chosen and size > MOST_BYTES:
                break
            chosen.append(message)
        return chosen

    def entered(self, round_: Round | None) -> None:
        """Leave out what is in a round that was entered into the state."""
        receipts = set(round_.messages) if round_ is not None else ()
        self._messages = {
            each: message for each, message in self._messages.items() if message.receipt not in receipts
        }

    def ack(self, identity: str) -> bool:
        """Ack a message, which somebody else's round has; False when it is not here."""
        message = self._messages.pop(identity, None)
        if message is None:
            return False
        try:
            message.ack()
        except LeaseLost:
            return False
        return True

    def give_back(self) -> None:
        """Give back what is left."""
        for message in self._messages.values():
            with suppress(ShardqError):  # it comes back when its lease is over
                message.give_back()

    def _hold_on(self) -> None:
        for message in list(self._messages.values()):
            try:
                message.extend(LEASE_SECONDS)
            except LeaseLost:
                del self._messages[message.id]
