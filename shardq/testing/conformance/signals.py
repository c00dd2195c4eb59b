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
        assert isinstance(bench.store.wait(bench.queue, 0.01), bool)
        assert isinstance(bench.store.wait(bench.queue, 0), bool)

    def test_an_append_by_another_thread_ends_a_wait(self, bench: Bench) -> None:
        assert self._woken(bench, bench.store) is True

    def test_an_append_through_another_client_of_this_process_ends_a_wait(self, bench: Bench) -> None:
        assert self._woken(bench, bench.other) is True

    def test_a_release_by_another_thread_ends_a_wait(self, bench: Bench) -> None:
        bench.given()
        taken = bench.claim()
        with ThreadPoolExecutor(1) as pool:
            woken = self._wait(pool, bench)
            bench.release(*taken.spans)
            assert woken.result(timeout=GUARD) is True

    def test_an_append_between_two_waits_is_not_missed(self, bench: Bench) -> None:
        for _ in range(5):
            bench.store.wait(bench.queue, 0)
            bench.given()
            assert bench.store.wait(bench.queue, LONG) is True

    def test_every_waiting_thread_is_woken(self, bench: Bench) -> None:
        with ThreadPoolExecutor(4) as pool:
            woken = [self._wait(pool, bench) for _ in range(4)]
            bench.given()
            assert [each.result(timeout=GUARD) for each in woken] == [True] * 4

    def test_two_threads_that_wake_each_other_in_turn_never_miss_a_signal(self, bench: Bench) -> None:
        # Given two threads that answer each other's messages, each in a queue of its own
        there = bench.shard_of(bench.new_queue())

        def player(mine: Shard, theirs: Shard, serves: bool) -> int:
            bench.store.wait(mine.queue, 0)
            if serves:
                bench.given(shard=theirs)
            for _ in range(25):
                while not (spans := bench.claim(1, shard=mine).spans):
                    assert bench.store.wait(mine.queue, LONG), "a signal was missed"
                bench.ack(*spans, shard=mine)
                bench.given(shard=theirs)
            return 25

        with ThreadPoolExecutor(2) as pool:
            played = [
                pool.submit(player, bench.shard, there, True),
                pool.submit(player, there, bench.shard, False),
            ]
            assert [each.result(timeout=GUARD * 2) for each in played] == [25, 25]

    def _woken(self, bench: Bench, by: Store) -> bool:
        with ThreadPoolExecutor(1) as pool:
            woken = self._wait(pool, bench)
            bench.append(bench.bundle(), by=by)
            return woken.result(timeout=GUARD)

    def _wait(self, pool: ThreadPoolExecutor, bench: Bench) -> Future[bool]:
        """Start a thread that waits; what is appended after this is after the thread's last wait."""
        prepared: Future[bool] = Future()

        def wait() -> bool:
            bench.store.wait(bench.queue, 0)
            prepared.set_result(True)
            return bench.store.wait(bench.queue, LONG)

        woken = pool.submit(wait)
        prepared.result(timeout=GUARD)
        return woken
