"""Contract: a waiting consumer is woken."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from shardq.base.shard import Shard
from shardq.storage.listening import Waiter
from shardq.storage.store import Store
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract

__all__ = ["SignalContract"]

LONG = 50.0  # real seconds that no wait of these tests should last
GUARD = 30.0  # real seconds after which a test gives up


class SignalContract(Contract):
    """Waiting and being woken. Times are real ones here; none is measured."""

    def test_a_wait_ends_although_the_stores_clock_stands_still(self, bench: Bench) -> None:
        waiter = Waiter(bench.store)
        assert set(waiter.wait([bench.queue], 0.01)) <= {bench.queue}
        assert set(waiter.wait([bench.queue], 0)) <= {bench.queue}

    def test_an_append_by_another_thread_ends_a_wait(self, bench: Bench) -> None:
        assert self._woken(bench, bench.store) == {bench.queue}

    def test_an_append_through_another_client_of_this_process_ends_a_wait(self, bench: Bench) -> None:
        assert self._woken(bench, bench.other) == {bench.queue}

    def test_a_release_by_another_thread_ends_a_wait(self, bench: Bench) -> None:
        bench.given()
        taken = bench.claim()
        with ThreadPoolExecutor(1) as pool:
            woken = self._wait(pool, bench)
            bench.release(*taken.spans)
            assert woken.result(timeout=GUARD) == {bench.queue}

    def test_an_append_between_two_waits_is_not_missed(self, bench: Bench) -> None:
        waiter = Waiter(bench.store)
        for _ in range(5):
            waiter.wait([bench.queue], 0)
            bench.given()
            assert waiter.wait([bench.queue], LONG) == (bench.queue,)

    def test_an_append_to_a_queue_that_was_created_again_is_not_missed(self, bench: Bench) -> None:
        queue = bench.new_queue()
        shard = bench.shard_of(queue)
        bench.given(shard=shard)
        waiter = Waiter(bench.store)
        waiter.wait([queue], 0)
        for _ in range(3):
            record = bench.other.load_queue(queue)
            assert record is not None
            assert bench.other.drop_queue(queue)
            assert bench.other.create_queue(record)
            bench.append(bench.bundle(), shard=shard, by=bench.other)
            assert waiter.wait([queue], LONG) == (queue,)

    def test_every_waiting_thread_is_woken(self, bench: Bench) -> None:
        with ThreadPoolExecutor(4) as pool:
            woken = [self._wait(pool, bench) for _ in range(4)]
            bench.given()
            assert [each.result(timeout=GUARD) for each in woken] == [{bench.queue}] * 4

    def test_any_number_of_receivers_listen_with_one_thread(self, bench: Bench) -> None:
        # Given as many receivers as no process has threads for
        woken: list[int] = []
        listeners = [bench.store.listen(partial(woken.append, number)) for number in range(300)]
        for listener in listeners:
            listener.news([bench.queue])
        before, until = threading.active_count(), time.monotonic() + GUARD
        woken.clear()
        # When something comes, then each is woken, and has news. A line that is heard only now wakes some before that.
        while len(set(woken)) < len(listeners) and time.monotonic() < until:
            for listener in listeners:
                while listener.news([bench.queue]):
                    pass
            assert threading.active_count() <= before + 1
            woken.clear()
            bench.given()
            patience = time.monotonic() + 2
            while len(set(woken)) < len(listeners) and time.monotonic() < patience:
                time.sleep(0.01)
        assert set(woken) == set(range(300))
        assert all(listener.news([bench.queue]) == (bench.queue,) for listener in listeners)

    def test_who_rests_is_woken_no_more(self, bench: Bench) -> None:
        woken: list[str] = []
        resting, listening = (
            bench.store.listen(partial(woken.append, name)) for name in ("rests", "listens")
        )
        waiter = Waiter(bench.store)
        for each in (resting, listening):
            while each.news([bench.queue]):
                pass
        while waiter.wait([bench.queue], 0):
            pass
        resting.rest()
        woken.clear()
        bench.given()
        assert self._news_of(waiter, bench.queue, bench.queue)
        assert "rests" not in woken

    def test_two_threads_that_wake_each_other_in_turn_never_miss_a_signal(self, bench: Bench) -> None:
        # Given two threads that answer each other's messages, each in its own queue
        there = bench.shard_of(bench.new_queue())

        def player(mine: Shard, theirs: Shard, serves: bool) -> int:
            waiter = Waiter(bench.store)
            waiter.wait([mine.queue], 0)
            if serves:
                bench.given(shard=theirs)
            for _ in range(25):
                while not (spans := bench.claim(1, shard=mine).spans):
                    assert waiter.wait([mine.queue], LONG), "a signal was missed"
                bench.ack(*spans, shard=mine)
                bench.given(shard=theirs)
            return 25

        with ThreadPoolExecutor(2) as pool:
            played = [
                pool.submit(player, bench.shard, there, True),
                pool.submit(player, there, bench.shard, False),
            ]
            assert [each.result(timeout=GUARD * 2) for each in played] == [25, 25]

    def test_an_append_to_any_of_several_queues_ends_a_wait_for_all_of_them(self, bench: Bench) -> None:
        queues = [bench.queue, *(bench.new_queue() for _ in range(3))]
        for queue in reversed(queues):
            with ThreadPoolExecutor(1) as pool:
                woken = self._wait(pool, bench, queue, *queues)
                bench.given(shard=bench.shard_of(queue))
                assert queue in woken.result(timeout=GUARD)

    def test_news_name_every_queue_that_has_some(self, bench: Bench) -> None:
        first, second = bench.queue, bench.new_queue()
        listener = bench.store.listen(lambda: None)
        while listener.news([first, second]):
            pass
        for queue in (second, first):
            bench.given(shard=bench.shard_of(queue))
        assert set(listener.news([first, second])) == {first, second}
        listener.rest()

    def test_a_wait_for_one_queue_takes_no_news_of_another(self, bench: Bench) -> None:
        first, second = bench.queue, bench.new_queue()
        waiter = Waiter(bench.store)
        waiter.wait([first, second], 0)
        for queue in (first, second):
            bench.given(shard=bench.shard_of(queue))
        assert waiter.wait([first], LONG) == (first,)
        assert second in self._news_of(waiter, second, first, second)

    def test_a_queue_that_does_not_exist_is_waited_for_in_vain_and_keeps_no_other_one(
        self, bench: Bench
    ) -> None:
        absent = f"{bench.queue}-absent"
        with ThreadPoolExecutor(1) as pool:
            woken = self._wait(pool, bench, bench.queue, absent, bench.queue)
            bench.given()
            assert bench.queue in woken.result(timeout=GUARD)

    def _woken(self, bench: Bench, by: Store) -> set[str]:
        with ThreadPoolExecutor(1) as pool:
            woken = self._wait(pool, bench)
            bench.append(bench.bundle(), by=by)
            return woken.result(timeout=GUARD)

    def _news_of(self, waiter: Waiter, queue: str, *queues: str) -> set[str]:
        """Return the news until the queue is among them, or there are none: news of others may be repeated."""
        seen: set[str] = set()
        while queue not in seen and (news := waiter.wait(queues, LONG)):
            seen.update(news)
        return seen

    def _wait(self, pool: ThreadPoolExecutor, bench: Bench, *queues: str) -> Future[set[str]]:
        """Start a thread that waits for news of the first queue; what is appended after this is news to it."""
        prepared: Future[bool] = Future()
        names = queues or (bench.queue,)

        def wait() -> set[str]:
            waiter = Waiter(bench.store)
            waiter.wait(names, 0)
            prepared.set_result(True)
            return self._news_of(waiter, names[0], *names[1:] or names)

        woken = pool.submit(wait)
        prepared.result(timeout=GUARD)
        return woken
