"""Publishing over pika's asynchronous connection, as its documentation advises for throughput.

With confirms, up to WINDOW messages are on their way at a time; it is done when the server has confirmed them
all. Without, it is done when the server has answered a question that came after them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pika

WINDOW = 2_000
CHUNK = 500
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


class Publisher:
    """One connection, driven by the calls of :meth:`publish`."""

    def __init__(self, parameters: pika.ConnectionParameters, queue: str, *, confirms: bool) -> None:
        self._queue, self._confirms = queue, confirms
        self._confirmed = self._published = 0
        self._bodies: Sequence[bytes] = ()
        self._sent = 0
        self._ready = False
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)
        self._run_until_idle()

    def publish(self, bodies: Sequence[bytes]) -> None:
        """Send them all, and return when that is done."""
        self._bodies, self._sent = bodies, 0
        self._connection.ioloop.add_callback_threadsafe(self._pump)
        self._run_until_idle()

    def close(self) -> None:
        self._connection.add_on_close_callback(lambda *_: self._connection.ioloop.stop())
        self._connection.close()
        self._run_until_idle()

    def _run_until_idle(self) -> None:
        self._connection.ioloop.start()

    def _idle(self, *_: object) -> None:
        self._connection.ioloop.stop()

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        if self._confirms:
            channel.confirm_delivery(self._on_confirm, callback=self._idle)
        else:
            self._idle()

    def _on_confirm(self, frame: pika.frame.Method) -> None:
        if frame.method.NAME == pika.spec.Basic.Nack.NAME:
            raise RuntimeError("the server refused a message")
        confirmed = frame.method.delivery_tag
        self._confirmed = confirmed if frame.method.multiple else max(self._confirmed, confirmed)
        self._pump()

    def _pump(self) -> None:
        """Publish what the window allows, a chunk at a time, so that the connection can write and read between."""
        room = WINDOW - (self._published - self._confirmed) if self._confirms else CHUNK
        for body in itertools.islice(self._bodies, self._sent, self._sent + min(room, CHUNK)):
            self._channel.basic_publish("", self._queue, body, PERSISTENT)
            self._sent += 1
            self._published += 1
        if self._sent < len(self._bodies):
            if not self._confirms:
                self._connection.ioloop.call_later(0, self._pump)
        elif not self._confirms:
            self._channel.queue_declare(self._queue, passive=True, callback=self._idle)
        elif self._confirmed == self._published:
            self._idle()
