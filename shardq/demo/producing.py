"""A producer process: sends its part of the flights."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import shardq
from shardq.demo.board import Board
from shardq.demo.dataset import read_rows
from shardq.demo.errors import DataUnavailable
from shardq.demo.flight import FLIGHTS, FlightMessage, parse_flight
from shardq.demo.plan import Plan
from shardq.demo.records import RecordFile, Sent

__all__ = ["produce"]

SEND = 1_000  # messages of one bulk send


def produce(plan: Plan, board: Board, place: int) -> None:
    """Send the rows of this producer, in bulk, and write down when the store had confirmed them."""
    first, last = plan.part(place)
    rows = read_rows(plan.data)
    for _ in islice(rows, first):
        pass
    messages = _messages(islice(rows, last - first), first + 1)
    with shardq.connect(plan.url) as client, RecordFile(plan.records / f"sent-{place}.jsonl") as records:
        producer = client.queue(plan.queue).producer(codec=FLIGHTS)
        board.producers_ready[place] = 1
        board.wait_for_start()
        while not board.stopped and board.sent[place] < last - first:
            ids = producer.send_many(islice(messages, SEND))
            records.append(_sent(ids))
            board.sent[place] += len(ids)


def _messages(rows: Iterator[list[str]], first: int) -> Iterator[FlightMessage]:
    for number, row in enumerate(rows, first):
        try:
            flight = parse_flight(row)
        except ValueError as error:
            raise DataUnavailable(f"row {number} of the flights cannot be read: {error}") from error
        yield FlightMessage(number, time.time(), flight)


def _sent(ids: Sequence[str]) -> list[Sent]:
    """How many went where: an id begins with the name of its shard."""
    now = time.time()
    shards = Counter(identity.rsplit(":", 2)[0] for identity in ids)
    return [_to_shard(now, name, messages) for name, messages in shards.items()]


def _to_shard(now: float, name: str, messages: int) -> Sent:
    _, time_shard, shard = name.split(":")
    return Sent(now, int(time_shard), int(shard), messages)
