"""Copies of a shard that are made again: stored once, or refused where that cannot be known."""

from __future__ import annotations

import pytest

import shardq
from shardq.core import browsing
from shardq.core.context.queue_context import QueueContext
from shardq.spark.jobs.copies import Copied, begin_copy, copy_shard, hash_of_shard, resume_copy
from shardq.storage.requests import Append, Peek, PeekPage
from shardq.testing import ManualClock
from shardq.testing.seam import context_of, store_of

BODIES = [b"%02d" % number for number in range(30)]


class Died(BaseException):
    """The process ended."""


@pytest.fixture
def source(client: shardq.Client) -> shardq.Queue:
    queue = client.create_queue("source", shards=1, time_shards=1)
    queue.producer(bundle_messages=3).send_many(BODIES)
    return queue


@pytest.fixture
def target(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("target", shards=3)


def copy(source: shardq.Queue, target: shardq.Queue, run: str) -> Copied:
    (state,) = source.shard_states()
    return copy_shard(context_of(source), state.shard, context_of(target), run)


def dying(target: QueueContext, appends: int, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the process end after so many appends."""
    left, append = [appends], target.store.append

    def counted(request: Append) -> None:
        if not left[0]:
            raise Died
        left[0] -= 1
        append(request)

    monkeypatch.setattr(target.store, "append", counted)
    return monkeypatch


def bodies(queue: shardq.Queue) -> list[bytes]:
    return sorted(message.body for message in queue.peek(100))


def test_an_interrupted_copy_is_gone_on_with_and_everything_is_there_once(
    source: shardq.Queue, target: shardq.Queue, clock: ManualClock
) -> None:
    run = begin_copy(context_of(target))
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Died):
        dying(context_of(target), 2, patched)
        copy(source, target, run)
    assert 0 < len(bodies(target)) < len(BODIES)
    clock.advance(3_600)
    assert resume_copy(context_of(target)) == run
    assert copy(source, target, run) == hash_of_shard(context_of(source), source.shard_states()[0].shard)
    assert bodies(target) == BODIES


@pytest.mark.parametrize("acked", [False, True])
def test_a_copy_is_refused_when_somebody_received_from_the_source_meanwhile(
    source: shardq.Queue, target: shardq.Queue, clock: ManualClock, acked: bool
) -> None:
    run = begin_copy(context_of(target))
    copy(source, target, run)
    batch = source.consumer().receive(4)
    if acked:
        batch.ack()
    clock.advance(60)
    with pytest.raises(shardq.ReplayConflict):
        copy(source, target, run)
    assert bodies(target) == BODIES


def test_the_last_run_is_the_one_that_is_gone_on_with(
    client: shardq.Client, source: shardq.Queue, target: shardq.Queue
) -> None:
    first = begin_copy(context_of(target))
    copy(source, target, first)
    target.purge()
    source.consumer().receive(1).ack()
    second = begin_copy(context_of(target))
    assert resume_copy(context_of(target)) == second != first
    client.delete_queue("target")
    with pytest.raises(shardq.InvalidSetting):
        resume_copy(context_of(client.create_queue("target")))


def test_the_history_of_many_shards_is_not_read_ahead_without_a_bound(
    client: shardq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a history of 20 MB in ten shards
    queue = client.create_queue("q", shards=10, time_shards=1, history_retention=3_600)
    queue.producer(bundle_messages=2).send_many(b"%03d" % number * 33_333 for number in range(200))
    order = []
    for batch in queue.consumer().batches(7, wait=0):
        order += [message.id for message in batch]
        batch.ack()
    read, peek = [], store_of(queue).peek

    def counted(request: Peek) -> PeekPage:
        page = peek(request)
        read.append(sum(len(piece.bundle.data) for piece in page.slices))
        return page

    monkeypatch.setattr(store_of(queue), "peek", counted)
    monkeypatch.setattr(browsing, "READ_AHEAD_BYTES", 4_000_000)
    # When its first message is read
    history = queue.history()
    first = next(history)
    # Then no more is in memory than there is room for, and in the end all of it was read
    assert len(read) == 10
    assert sum(read) <= 4_000_000
    assert sorted([first.id, *(message.id for message in history)]) == sorted(order)
