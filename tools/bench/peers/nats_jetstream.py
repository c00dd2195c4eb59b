"""NATS JetStream with a stream in files, each write of which is synced before it is answered.

In bulk, batches that are stored as a whole, which the server syncs once. The server pushes what is stored to the one
who receives, up to a number that is not acked yet, and keeps it in the stream after the ack.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..peer import AT_ONCE, JOINED, SILENCE, PeerMissing
from ..server import Server, find_program, free_port

try:
    import nats
    from nats.js.api import ConsumerConfig, StorageType, StreamConfig
except ImportError as error:
    raise PeerMissing("nats-py is not installed") from error

PROGRAM = Path(__file__).parents[3] / ".venv-bench" / "bin" / "nats-server"
CONFIGURATION = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/data", sync_interval: {sync} }}
"""
NAME, BATCH, AHEAD = "bench", 500, 2_000
PATIENCE = 30.0

Answer = TypeVar("Answer")


class NatsJetstream:
    name = "NATS JetStream, sync always"
    durability = "fsync"
    sends = "a file stream with sync_interval always: synced before the answer; atomic batches of 500 in bulk"
    receives = "pushed, up to 2,000 ahead; an ack for each, the last of a batch answered"
    share = 0.3
    wakes = "deliveries that the server pushes"
    threads = JOINED
    takes_one = True
    wins = "the server pushes ahead what it has in memory; of the acks only the last is answered"
    sync = "always"

    def open(self, folder: Path) -> None:
        self.place = free_port()
        (folder / "nats.conf").write_text(
            CONFIGURATION.format(port=self.place, folder=folder, sync=self.sync)
        )
        program = find_program("nats-server", str(PROGRAM))
        self._server = Server([program, "-c", "nats.conf"], folder=folder)
        self._server.wait_until(lambda: socket.create_connection(("127.0.0.1", self.place)).close())
        self.join(self.place)
        config = StreamConfig(name=NAME, subjects=[NAME], storage=StorageType.FILE, allow_atomic=True)
        self._run(self._stream.add_stream(config))

    def join(self, place: int) -> None:
        """With a loop of its own, which runs only while it is asked for something."""
        self._loop = asyncio.new_event_loop()
        self._subscription: Any = None
        self._arrived: deque[Any] = deque()
        self._news = asyncio.Event()
        self._client = self._run(nats.connect(f"nats://127.0.0.1:{place}", allow_reconnect=False))
        self._stream = self._client.jetstream(timeout=PATIENCE)

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), BATCH):
            self._run(self._send_batch(bodies[start : start + BATCH]))

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        self._run(self._send_each(bodies))

    def receive(self, count: int, batch: int) -> int:
        return self._run(self._receive(count, batch))

    def receiving(self) -> Iterator[Sequence[bytes]]:
        while True:
            messages = self._run(self._take(AT_ONCE, SILENCE))
            yield [message.data for message in messages]
            self._run(self._ack(messages))

    def leave(self) -> None:
        self._run(self._client.close())
        self._loop.close()

    def close(self) -> None:
        self.leave()
        self._server.stop()

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._loop.run_until_complete(work)

    async def _send_batch(self, bodies: Sequence[bytes]) -> None:
        name = secrets.token_hex(8)
        for number, body in enumerate(bodies, 1):
            headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
            if number < len(bodies):
                await self._client.publish(NAME, body, headers=headers)
            else:
                await self._stream.publish(NAME, body, headers={**headers, "Nats-Batch-Commit": "1"})

    async def _send_each(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await self._stream.publish(NAME, body)

    async def _receive(self, count: int, batch: int) -> int:
        size = 0
        while count > 0:
            messages = await self._take(min(count, batch), PATIENCE)
            if not messages:
                raise RuntimeError(f"{count} messages did not come")
            size += sum(len(message.data) for message in messages)
            await self._ack(messages)
            count -= len(messages)
        return size

    async def _take(self, count: int, wait: float) -> list[Any]:
        """Up to so many messages; at least one, unless none comes in time."""
        if self._subscription is None:
            config = ConsumerConfig(max_ack_pending=AHEAD)
            self._subscription = await self._stream.subscribe(
                NAME, durable="workers", cb=self._on_message, manual_ack=True, config=config
            )
        if not self._arrived:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), wait)
            except TimeoutError:
                return []
        return [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]

    async def _on_message(self, message: Any) -> None:
        self._arrived.append(message)
        self._news.set()

    async def _ack(self, messages: Sequence[Any]) -> None:
        for message in messages[:-1]:
            await message.ack()
        for message in messages[-1:]:
            await message.ack_sync(timeout=PATIENCE)
