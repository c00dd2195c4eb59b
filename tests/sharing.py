"""Several processes that claim and ack in the same shards."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardq.base.clock import SystemClock
from shardq.base.shard import Shard
from shardq.storage.opening import open_store
from shardq.storage.requests import Acknowledge, Claim, Span

MINUTE = 60_000_000


class Shared(NamedTuple):
    """What all of them did together."""

    messages: int
    claims: int
    contended: int


def share(url: str, shards: Sequence[Shard], processes: int) -> Shared:
    """Let processes consume until the shards are empty; each begins at another shard."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=_consume, args=(url, shards, number * len(shards) // processes, results))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    return Shared(*(sum(column) for column in zip(*told, strict=True)))


def _consume(url: str, shards: Sequence[Shard], first: int, results: Any) -> None:
    store = open_store(url, SystemClock())
    claims = contended = messages = idle = 0
    at = first
    while idle < len(shards):
        shard = shards[at % len(shards)]
        token = os.urandom(16)
        claimed = store.claim(Claim(shard, token, 100, MINUTE))
        claims, contended = claims + 1, contended + claimed.contended
        spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)
        store.acknowledge(Acknowledge(shard, spans))
        messages += sum(span.count for span in spans)
        idle = 0 if spans or claimed.contended else idle + 1
        at += 0 if spans else 1
    results.put((messages, claims, contended))
    store.close()
