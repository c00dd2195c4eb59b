"""Points at which an application can look on: before and after sends and acks."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.message import Message
from shardq.outgoing_message import OutgoingMessage

__all__ = ["Hooks"]


class Hooks:
    """Derive from this, override what is of interest, and pass it to :func:`shardq.connect`.

    A hook that raises before a send or an ack stops it: nothing is stored or acked, and the caller gets the
    error. Hooks run in the caller's thread; with ``linger`` in that of the sender who writes the bundle.

    For an ack by receipt each message is read from the store first, at the cost of a request; its body is bytes. What
    is not stored any more is not shown.
    """

    def before_send(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        """The messages of a bundle are about to be stored."""

    def after_send(self, queue: str, messages: Sequence[OutgoingMessage], ids: Sequence[str]) -> None:
        """The messages were stored under these ids."""

    def before_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """The messages are about to be acked."""

    def after_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """The messages were acked; those whose lease was lost are left out."""
