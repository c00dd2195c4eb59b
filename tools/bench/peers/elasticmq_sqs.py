"""ElasticMQ through boto3, as programs for Amazon SQS use it: batches of 10, some requests in flight at a time.

SQS takes text, so bodies are sent in base64.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..peer import SHARED, PeerMissing

try:
    import boto3
    from botocore.config import Config
except ImportError as error:
    raise PeerMissing("boto3 is not installed") from error

VARIABLE = "SHARDQ_TEST_ELASTICMQ_URL"
BATCH, IN_FLIGHT = 10, 4  # 10 is the most that SQS takes
LONG_POLL = 1  # seconds; the shortest that there is


class ElasticmqSqs:
    name = "ElasticMQ, boto3"
    durability = "memory only"
    sends = "answered by the server, which keeps them in memory only; batches of 10 in bulk, 4 in flight"
    receives = "batches of 10 under a lease, deleted together; 4 in flight"
    share = 0.1
    wakes = "long polls"
    threads = SHARED
    takes_one = False  # those in flight together are taken together
    wins = "messages are in memory only"

    def open(self, folder: Path) -> None:
        if VARIABLE not in os.environ:
            raise PeerMissing(f"{VARIABLE} is not set: run it with tools/servers/elasticmq.py run")
        self.place = os.environ[VARIABLE]
        self.join(self.place)

    def join(self, place: str) -> None:
        self._client = boto3.client(
            "sqs",
            endpoint_url=place,
            region_name="elasticmq",
            aws_access_key_id="x",
            aws_secret_access_key="x",
            config=Config(max_pool_connections=IN_FLIGHT, retries={"total_max_attempts": 1}),
        )
        self._queue = self._client.create_queue(QueueName="bench")["QueueUrl"]
        self._threads = ThreadPoolExecutor(IN_FLIGHT)

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        batches = (bodies[start : start + BATCH] for start in range(0, len(bodies), BATCH))
        list(self._threads.map(self._send, batches))

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._client.send_message(QueueUrl=self._queue, MessageBody=_as_text(body))

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while count > 0:
            requests = min(IN_FLIGHT, -(-count // BATCH))
            taken = [body for part in self._threads.map(self._take, range(requests)) for body in part]
            if not taken:
                raise RuntimeError(f"{count} messages did not come")
            size += sum(map(len, taken))
            count -= len(taken)
        return size

    def receiving(self) -> Iterator[Sequence[bytes]]:
        while True:
            messages = self._claim(wait=LONG_POLL)
            yield list(map(_body, messages))
            self._ack(messages)

    def leave(self) -> None:
        self._threads.shutdown()
        self._client.close()

    def close(self) -> None:
        self._client.delete_queue(QueueUrl=self._queue)
        self.leave()

    def _send(self, bodies: Iterable[bytes]) -> None:
        entries = [{"Id": str(place), "MessageBody": _as_text(body)} for place, body in enumerate(bodies)]
        _check(self._client.send_message_batch(QueueUrl=self._queue, Entries=entries))

    def _take(self, _: int) -> list[bytes]:
        messages = self._claim(wait=0)
        self._ack(messages)
        return list(map(_body, messages))

    def _claim(self, wait: int) -> list[dict[str, str]]:
        """Up to ten messages; ``wait`` for the first so many seconds."""
        answer = self._client.receive_message(
            QueueUrl=self._queue, MaxNumberOfMessages=BATCH, WaitTimeSeconds=wait
        )
        found: list[dict[str, str]] = answer.get("Messages", [])
        return found

    def _ack(self, messages: Sequence[dict[str, str]]) -> None:
        if messages:
            entries = [{"Id": each["MessageId"], "ReceiptHandle": each["ReceiptHandle"]} for each in messages]
            _check(self._client.delete_message_batch(QueueUrl=self._queue, Entries=entries))


def _as_text(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")


def _body(message: dict[str, str]) -> bytes:
    return base64.b64decode(message["Body"])


def _check(answer: dict[str, object]) -> None:
    """Each part of a batch may fail by itself."""
    if answer.get("Failed"):
        raise RuntimeError(f"the server refused a part of a batch: {answer['Failed']}")
