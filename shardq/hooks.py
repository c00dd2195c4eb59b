"""Hooks: an application is called before and after sends and acks."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base.callables import check_runs
from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.texts import shown
from shardq.errors import InvalidSetting
from shardq.message import Message

__all__ = ["Hooks", "check_hooks"]


class Hooks:
    """Derive a class from this, override the methods that you need, and pass an instance to :func:`shardq.connect`.

    If a ``before`` hook raises, nothing is stored or acked, and the caller gets the error. Hooks run in the thread of
    the caller. When sends of several threads are stored together, hooks run in the thread that stores them. If
    ``before_send`` raises then, it is called again for each message alone, so that other threads' messages are stored.

    Hooks are called for ``send``, ``send_many`` and acks. They are not called for messages that are moved, redriven,
    replayed or copied, nor for Spark. For an ack by receipt each message is read from the store first, which costs one
    request per message; its body is bytes. Messages that are not stored any more are not shown.
    """

    def before_send(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        """Act before messages are stored together."""

    def after_send(self, queue: str, messages: Sequence[OutgoingMessage], ids: Sequence[str]) -> None:
        """Act after messages were stored, with their ids."""

    def before_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Act before messages are acked."""

    def after_ack(self, queue: str, messages: Sequence[Message]) -> None:
        """Act after messages were acked. Lost messages are left out."""


def check_hooks(hooks: object) -> None:
    """Raise InvalidSetting unless these are None, or hooks that can be called."""
    if hooks is None:
        return
    if not isinstance(hooks, Hooks):
        raise InvalidSetting(
            f"hooks={shown(hooks)}: give an instance of a class that is derived from shardq.Hooks"
        )
    for name in ("before_send", "after_send", "before_ack", "after_ack"):
        check_runs("hook", getattr(hooks, name))
