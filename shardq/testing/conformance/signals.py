"""Contract: a waiting consumer is woken."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from shardq.sharding.shard import Shard
from shardq.storage.store import Store
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract

__all__ = ["SignalContract"]

LONG = 50.0  # real seconds that no wait of these tests should last
GUARD = 30.0  # real seconds after which a test gives up


class SignalContract(Contract):
    """Waiting and being woken. Times are real ones here; none is measured."""

    def test_a_wait_ends_although_the_stores_clock_stands_still(self, bench: Bench) -> None:
        assert set(bench.store.wait([bench.queue], 0.01)) <= {bench.queue}
        assert set(bench.store.wait([bench.queue], 0)) <= {bench.queue}

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
        for _ in range(5):
            bench.store.wait([bench.queue], 0)
            bench.given()
            assert bench.store.wait([bench.queue], LONG) == (bench.queue,)

    def test_an_append_to_a_queue_that_was_created_again_is_not_missed(self, bench: Bench) -> None:
        queue = bench.new_queue()
        shard = bench.shard_of(queue)
        bench.given(shard=shard)
        bench.store.wait([queue], 0)
        for _ in range(3):
            record = bench.other.load_queue(queue)
            assert record is not None
            assert bench.other.drop_queue(queue)
            assert bench.other.create_queue(record)
            bench.append(bench.bundle(), shard=shard, by=bench.other)
            assert bench.store.wait([queue], LONG) == (queue,)

    def test_every_waiting_thread_is_woken(self, bench: Bench) -> None:
        with ThreadPoolExecutor(4) as pool:
            woken = [self._wait(pool, bench) for _ in range(4)]
            bench.given()
            assert [each.result(timeout=GUARD) for each in woken] == [{bench.queue}] * 4

    def test_two_threads_that_wake_each_other_in_turn_never_miss_a_signal(self, bench: Bench) -> None:
        # Given two threads that answer each other's messages, each in a queue of its own
        there = bench.shard_of(bench.new_queue())

        def player(mine: Shard, theirs: Shard, serves: bool) -> int:
            bench.store.wait([mine.queue], 0)
            if serves:
                bench.given(shard=theirs)
            for _ in range(25):
                while not (spans := bench.claim(1, shard=mine).spans):
                    assert bench.store.wait([mine.queue], LONG), "a signal was missed"
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

    def test_a_wait_names_every_queue_that_it_has_news_of(self, bench: Bench) -> None:
        first, second = bench.queue, bench.new_queue()
        bench.store.wait([first, second], 0)
        for queue in (second, first):
            bench.given(shard=bench.shard_of(queue))
        told: set[str] = set()
        while told != {first, second} and (news := bench.store.wait([first, second], LONG)):
            told.update(news)
        assert told == {first, second}

    def test_a_wait_for_one_queue_takes_no_news_of_another(self, bench: Bench) -> None:
        first, second = bench.queue, bench.new_queue()
        bench.store.wait([first, second], 0)
        for queue in (first, second):
            bench.given(shard=bench.shard_of(queue))
        assert bench.store.wait([first], LONG) == (first,)
        assert second in self._news_of(bench, second, first, second)

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

    def _news_of(self, bench: Bench, queue: str, *queues: str) -> set[str]:
        """What is told until the queue is, or nothing any more: news of others may be told again."""
        told: set[str] = set()
        while queue not in told and (news := bench.store.wait(queues, LONG)):
            told.update(news)
        return told

    def _wait(self, pool: ThreadPoolExecutor, bench: Bench, *queues: str) -> Future[set[str]]:
        """Start a thread that waits for news of the first queue; what is appended after this is news to it."""
        prepared: Future[bool] = Future()
        names = queues or (bench.queue,)

        def wait() -> set[str]:
            bench.store.wait(names, 0)
            prepared.set_result(True)
            return self._news_of(bench, names[0], *names[1:] or names)

        woken = pool.submit(wait)
        prepared.result(timeout=GUARD)
        return woken
