"""The threads that extend leases: one for each queue of which messages are held, and none for others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from weakref import WeakSet

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.context.retry import Retry
from shardq.core.held import HeldSlice, Selection
from shardq.core.settling.leases import LeaseKeeper, LeaseKeepers
from shardq.storage.requests import Bundle, ClaimedSlice
from tests.interrupted_starts import interrupt_after_start

LEASE = 0.3
PATIENCE = 10.0


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "shardq-lease-keeper"}


def test_a_thread_that_extends_leases_ends_with_them_and_another_one_begins_for_others(url: str) -> None:
    before = threads()
    with shardq.connect(url) as client:
        queue = client.create_queue("kept", visibility_timeout=LEASE)
        queue.producer().send_many([b"1", b"2"])
        with queue.consumer(keep_leases=True) as consumer:
            # When the only message is acked, then the thread ends, and the consumer has none
            batch = consumer.receive()
            (thread,) = threads() - before
            batch.ack()
            thread.join(PATIENCE)
            assert threads() <= before

            # When it receives another one, then another thread begins
            kept = consumer.receive()
            assert len(threads() - before) == 1
            kept.ack()
        assert threads() <= before


@pytest.mark.parametrize("use", [{"keep_leases": True}, {"prefetch": 10}], ids=str)
def test_a_consumer_of_patterns_keeps_no_thread_for_queues_that_are_deleted(
    url: str, use: dict[str, int]
) -> None:
    before = threads()
    with shardq.connect(url) as client, shardq.connect(url) as other:
        for number in range(3):
            queue = other.create_queue(f"mail/{number}", visibility_timeout=LEASE)
            queue.producer().send(b"x")
        with client.consumer(["mail/*"], **use) as consumer:  # type: ignore[arg-type]
            for _ in range(3):
                consumer.receive(wait=PATIENCE).ack()
            for number in range(3):
                other.delete_queue(f"mail/{number}")
            for thread in threads() - before:
                thread.join(PATIENCE)
            assert threads() <= before


class Keeping:
    """Extends nothing."""

    def keep(self, selections: Sequence[Selection], lease: int) -> None:
        """Do nothing."""


def make(_: str = "") -> LeaseKeeper:
    return LeaseKeeper(Keeping(), Retry(0), lambda: 30_000)


def piece_of(queue: str) -> HeldSlice:
    bundle = Bundle(b"%016d" % 1, 5, 0, 0, 1, b"")
    return HeldSlice(Shard(queue, 0, 0), ClaimedSlice(bundle, 0, 1, 1), b"token", 0)


def test_keepers_of_queues_of_which_nothing_is_held_are_forgotten() -> None:
    made = WeakSet[LeaseKeeper]()

    def make_and_note(queue: str) -> LeaseKeeper:
        made.add(keeper := make(queue))
        return keeper

    # Given a queue of which a message is held, and others of which messages were held
    keepers, kept = LeaseKeepers(make_and_note), piece_of("kept")
    keepers.keep([kept])
    before = threads()
    for number in range(20):
        keepers.keep([piece_of(f"mail/{number}")])
    for thread in threads() - before:
        thread.join(PATIENCE)

    # When a message of another one is held, then these two have keepers
    keepers.keep([piece_of("last")])
    assert len(made) == 2
    keepers.stop()


def test_leases_are_kept_by_a_later_thread_if_an_interrupt_came_before_one_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, keeper, kept = threads(), make(), piece_of("kept")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(threading.Thread, "start", interrupt)
        keeper.keep([kept])
    keeper.keep([piece_of("kept")])
    assert len(threads() - before) == 1
    keeper.stop()
    assert threads() <= before


def test_a_thread_that_had_begun_when_an_interrupt_came_ends_with_its_keepers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, keepers, kept = threads(), LeaseKeepers(make), piece_of("kept")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        interrupt_after_start(patched, "shardq-lease-keeper")
        keepers.keep([kept])
    assert len(threads() - before) == 1
    keepers.stop()
    assert threads() <= before


def test_messages_are_received_although_no_thread_can_begin_to_extend_their_leases(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = threads()
    with shardq.connect(url) as client:
        queue = client.create_queue("kept")
        queue.producer().send_many([b"1", b"2"])
        with queue.consumer(keep_leases=True) as consumer:

            def refuse(*_: object) -> None:
                raise RuntimeError("can't start new thread")

            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuse)
                first = consumer.receive()
            assert "end other threads" in caplog.text

            # When one can begin again, then the next receive begins it
            second = consumer.receive()
            assert len(threads() - before) == 1
            assert len(first) == len(second) == 1
