from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty

from ..mongodb_server import clear, url
from ..peer import JOINED, POLL_SECONDS, POLLED, SILENCE, PeerMissing

try:
    from kombu import Connection
except ImportError as error:
    raise PeerMissing("kombu is not installed") from error


class KombuMongodb:
    name = "kombu, mongodb transport"
    durability = "majority of one, journal fsync"
    sends = "answered by the server, majority and journal"
    receives = "findAndDelete of one message at a time, before it is worked on"
    share = 0.02
    wakes = POLLED
    threads = JOINED
    takes_one = True
    wins = "a message is taken out without a lease: what a crash interrupts is lost"
    place = None

    def open(self, folder: Path) -> None:
        clear("bench_kombu")
        self.join(self.place)

    def join(self, place: None) -> None:
        server, _, options = url().partition("?")
        address = f"{server.rpartition('/')[0]}/bench_kombu?{options}&w=majority&journal=true"
        self._connection = Connection(address, transport_options={"polling_interval": POLL_SECONDS})
        self._queue = self._connection.SimpleQueue("bench", serializer="raw", compression=None)

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body, content_type="application/data", content_encoding="binary")

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        self.send_bulk(bodies)

    def receive(self, count: int, batch: int) -> int:
        size = 0
        for _ in range(count):
            message = self._queue.get(timeout=10)
            size += len(message.body)
            message.ack()
        return size

    def receiving(self) -> Iterator[Sequence[bytes]]:
        while True:
            try:
                message = self._queue.get(timeout=SILENCE)
            except Empty:
                yield []
                continue
            yield [message.body]
            message.ack()

    def leave(self) -> None:
        self._queue.close()
        self._connection.close()

    def close(self) -> None:
        self.leave()
        clear("bench_kombu")
