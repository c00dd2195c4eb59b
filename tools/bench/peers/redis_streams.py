"""Redis streams with a consumer group, pipelined as its documentation recommends, with hiredis as the parser.

everysec: the log is written at once and fsynced once a second, so a power failure may undo the last second.
Acked entries stay in the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..peer import AT_ONCE, SHARED, SILENCE, PeerMissing
from ..server import Server, find_program, free_port

try:
    import redis
except ImportError as error:
    raise PeerMissing("redis is not installed") from error

BATCH = 500
STREAM, GROUP, CONSUMER = "bench", "workers", "one"


class RedisStreams:
    name = "Redis streams, hiredis"
    durability = "fsync once a second"
    sends = "AOF everysec, which is not an fsync per write; pipelines of 500 in bulk"
    receives = "XREADGROUP by 500, XACK of 500"
    share = 1.0
    wakes = "XREADGROUP that blocks"
    threads = SHARED
    takes_one = True
    wins = "the stream is in memory, in one process that waits for no disk"
    fsync = "everysec"

    def open(self, folder: Path) -> None:
        self.place = free_port()
        options = ["--port", str(self.place), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        aof = ["--appendonly", "yes", "--appendfsync", self.fsync, "--auto-aof-rewrite-percentage", "0"]
        self._server = Server([find_program("redis-server"), *options, *aof], folder=folder)
        self.join(self.place)
        self._server.wait_until(self._redis.ping)
        self._redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    def join(self, place: int) -> None:
        self._redis = self._connect(place)

    def _connect(self, port: int) -> redis.Redis:
        return redis.Redis(port=port)

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), BATCH):
            pipeline = self._redis.pipeline(transaction=False)
            for body in bodies[start : start + BATCH]:
                pipeline.xadd(STREAM, {b"body": body})
            pipeline.execute()

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._redis.xadd(STREAM, {b"body": body})

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while count > 0:
            answer = self._redis.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=min(count, batch))
            entries = _entries(answer)
            size += sum(len(fields[b"body"]) for _, fields in entries)
            self._redis.xack(STREAM, GROUP, *(identity for identity, _ in entries))
            count -= len(entries)
        return size

    def receiving(self) -> Iterator[Sequence[bytes]]:
        while True:
            entries = _entries(
                self._redis.xreadgroup(
                    GROUP, CONSUMER, {STREAM: ">"}, count=AT_ONCE, block=int(SILENCE * 1_000)
                )
            )
            yield [fields[b"body"] for _, fields in entries]
            if entries:
                self._redis.xack(STREAM, GROUP, *(identity for identity, _ in entries))

    def leave(self) -> None:
        self._redis.close()

    def close(self) -> None:
        self.leave()
        self._server.stop()


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream; the client answers with a dict or a list, by protocol version."""
    if not answer:
        return []
    if isinstance(answer, dict):
        (found,) = answer.values()
        entries = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    else:
        ((_, entries),) = answer
    return list(entries)
