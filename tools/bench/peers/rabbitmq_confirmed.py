"""RabbitMQ with publisher confirms: the server confirms a persistent message once it is on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from ..peer import JOINED, SILENCE, PeerMissing

try:
    import pika

    from ..rabbitmq_publisher import PERSISTENT, Publisher
    from ..rabbitmq_server import RabbitmqServer, connect, parameters
except ImportError as error:
    raise PeerMissing("pika is not installed") from error

BATCH = 500
QUEUE = "bench"


class RabbitmqConfirmed:
    name = "RabbitMQ, confirms"
    durability = "fsync"
    sends = "persistent, confirmed by the server after its fsync; asynchronous confirms in bulk"
    receives = "prefetch 500, one ack for 500"
    share = 0.4
    wakes = "deliveries that the server pushes"
    threads = JOINED
    takes_one = True
    wins = "the server pushes ahead what it has in memory, and an ack is not answered"
    confirms = True
    arguments: ClassVar[dict[str, str]] = {}

    def open(self, folder: Path) -> None:
        self._server = RabbitmqServer(folder)
        self.place = self._server.port
        self.join(self.place)

    def join(self, place: int) -> None:
        self._connection = connect(place)
        channel = self._connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments=self.arguments)
        channel.basic_qos(prefetch_count=BATCH)
        self._receiving = channel
        self._publisher = Publisher(parameters(place), QUEUE, confirms=self.confirms)
        self._singles = self._connection.channel()
        if self.confirms:
            self._singles.confirm_delivery()

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._publisher.publish(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._singles.basic_publish("", QUEUE, body, PERSISTENT)
        self._singles.queue_declare(QUEUE, passive=True)

    def receive(self, count: int, batch: int) -> int:
        received = size = 0

        def on_message(
            channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, _: object, body: bytes
        ) -> None:
            nonlocal received, size
            received += 1
            size += len(body)
            if received % batch == 0 or received == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if received == count:
                channel.stop_consuming()

        self._receiving.basic_consume(QUEUE, on_message)
        self._receiving.start_consuming()
        return size

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for method, _, body in self._receiving.consume(QUEUE, inactivity_timeout=SILENCE):
            yield [] if method is None else [body]
            if method is not None:
                self._receiving.basic_ack(method.delivery_tag)

    def leave(self) -> None:
        self._publisher.close()
        self._connection.close()

    def close(self) -> None:
        self.leave()
        self._server.stop()
