"""Producers and consumers of clients with hooks, which run around their calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from shardq.base.outgoing_message import OutgoingMessage
from shardq.client.consumer import Consumer
from shardq.client.producer import Producer, SendArguments
from shardq.core.held import HeldSlice
from shardq.core.hooks import HookCall, Hooks, stamped, with_headers
from shardq.core.receiving.idling import NothingYet

__all__ = ["consumer_class", "producer_class"]


def producer_class(hooks: Hooks | None) -> type[Producer]:
    """Return the class of the producers of a client."""
    return Producer if hooks is None else ObservedProducer


def consumer_class(hooks: Hooks | None) -> type[Consumer]:
    """Return the class of the consumers of a client."""
    return Consumer if hooks is None else ObservedConsumer


class ObservedProducer(Producer):
    """A producer whose sends hooks run around."""

    def send(self, body: Any, **options: Unpack[SendArguments]) -> str:
        """Store one message, as :meth:`Producer.send` does."""
        hooks, name = self._observed
        call = HookCall(operation="send", queue=name)
        with hooks.around(call):
            if isinstance(body, OutgoingMessage):
                body = stamped(hooks, name, body)
            else:
                options["headers"] = with_headers(hooks, name, options.get("headers"))
            sent = super().send(body, **options)
            call.ids = [sent]
        return sent

    def send_many(self, bodies: Iterable[Any], **options: Any) -> Sequence[str]:
        """Store many messages, as :meth:`Producer.send_many` does."""
        hooks, name = self._observed
        call = HookCall(operation="send", queue=name, batch=True)
        with hooks.around(call):
            options["headers"] = with_headers(hooks, name, options.get("headers"))
            call.ids = super().send_many(bodies, **options)
        return call.ids

    @property
    def _observed(self) -> tuple[Hooks, str]:
        assert self._context.hooks is not None
        return self._context.hooks, self._context.name


class ObservedConsumer(Consumer):
    """A consumer whose receives and pops hooks run around."""

    def _receive(self, limit: int, wait: float, *, finish: bool = False) -> Sequence[HeldSlice]:
        hooks = self._context.hooks
        assert hooks is not None
        held: Sequence[HeldSlice] = ()
        pause: NothingYet | None = None
        call = HookCall(operation="receive", queue=self._given[0], batch=limit > 1)
        with hooks.around(call):
            try:
                held = super()._receive(limit, wait, finish=finish)
            except NothingYet as nothing:  # no error: its caller waits, and receives again
                pause = nothing
            if held:
                batch = self._batch(held)
                call.queue, call.messages = batch.queue or call.queue, list(batch)
        if pause is not None:
            raise pause
        return held
