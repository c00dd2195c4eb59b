"""Single sends from many threads of one process, which the producer joins into bundles."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import shardq
from shardq.bench.load import Load
from shardq.bench.result import Sample
from shardq.bench.sending import send_from
from shardq.bench.stage import Stage

__all__ = ["send_threads"]


def send_threads(stage: Stage, load: Load) -> Sample:
    """Messages per second stored by ``threads`` that share a producer with ``linger``."""
    with stage.queue() as place:
        return send_from(place, load, _from_threads)


def _from_threads(queue: shardq.Queue, items: Sequence[bytes], load: Load) -> None:
    shares = [items[start :: load.threads] for start in range(load.threads)]
    with queue.producer(linger=load.linger) as producer, ThreadPoolExecutor(load.threads) as threads:

        def send(share: Sequence[bytes]) -> None:
            for body in share:
                producer.send(body)

        list(threads.map(send, shares))
