"""Pipelines on every store: what a worker that died before its acks had sent on is not sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import shardq
from shardq.base.clock import SystemClock
from shardq.pipelines import Forward, Pipeline, PipelineWorker, Split
from shardq.storage.opening import open_store
from tests.dying_store import Died
from tests.pipelines.dying import FragileStore


class DiesBeforeAcks(FragileStore):
    """Ends its client before the first ack, of a move or of a split."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if method == "acknowledge":
            raise Died
        return super().call(method, *args, **kwargs)


def step_by_step(kind: type[FragileStore], url: str) -> shardq.Client:
    """A client of a store that moves nothing between shards in one step."""
    store = kind(open_store(url, SystemClock()))
    store.in_one_step = False
    return shardq.Client(store, retry_seconds=0.0)


def test_what_went_on_before_a_worker_died_is_not_sent_again(
    any_url: str, connect_any: Callable[[], shardq.Client], name: str
) -> None:
    client = connect_any()
    source, middle, end = (f"{name}-{each}" for each in ("in", "mid", "out"))
    for queue in (source, middle, end):
        client.create_queue(queue, shards=1, time_shards=1, visibility_timeout=1.5)
    pipeline = (
        Pipeline("p")
        .link(source, [middle, end], lambda message: parts(message.body))
        .link(middle, end, lambda message: message.body + b"!")
        .output(end)
    )

    def parts(body: bytes) -> Any:
        return Split([Forward(middle, b"1"), Forward(end, b"2")]) if body == b"s" else Forward(middle, body)

    for first, second in ((b"s", b"a"), (b"b", b"c")):
        client.queue(source).producer().send_many([first, second])
        mortal = step_by_step(DiesBeforeAcks, any_url)
        with suppress(Died):
            PipelineWorker(pipeline, mortal, batch=2, idle_exit=0, keep_leases=False).run()
        with suppress(Died):
            mortal.close()
    with step_by_step(FragileStore, any_url) as sound:
        PipelineWorker(pipeline, sound, batch=1, idle_exit=2.0).run()
    arrived: list[bytes] = []
    with client.queue(end).consumer() as consumer:
        while batch := consumer.receive(10, wait=0.5):
            arrived += batch.bodies
            batch.ack()
    assert Counter(arrived) == Counter([b"1!", b"2", b"a!", b"b!", b"c!"])
    assert client.queue(source).peek() == client.queue(middle).peek() == []
