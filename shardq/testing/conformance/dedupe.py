"""Contract: a dedupe key stands for one message during its window."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from functools import partial

import pytest

from shardq.storage.requests import DedupeEntry
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.conformance.together import run_together

__all__ = ["DedupeContract"]

KEYS = [
    "a",
    "it's",
    '"x"',
    "a;DROP TABLE dedupe;--",
    "é",
    "漢字",
    "a\0b",
    "%",
    "_",
    "$ne",
    " ",
    "k" * 500,
    "{'$gt': ''}",
]


class DedupeContract(Contract):
    """Reserving and confirming keys."""

    def test_a_new_key_stands_for_the_given_message_unconfirmed(self, bench: Bench) -> None:
        assert self._reserve(bench, DedupeEntry("k", "m1")) == (DedupeEntry("k", "m1", False),)

    def test_a_taken_key_stands_for_the_first_message(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"))
        standing = bench.other.reserve_keys(bench.queue, [DedupeEntry("k", "m2")], bench.duration(60))
        assert standing == (DedupeEntry("k", "m1"),)

    def test_a_repeated_reservation_stands(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"))
        assert self._reserve(bench, DedupeEntry("k", "m1")) == (DedupeEntry("k", "m1"),)

    def test_a_confirmed_key_is_told_as_such(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"), DedupeEntry("j", "m2"))
        bench.other.confirm_keys(bench.queue, [DedupeEntry("k", "m1")])
        standing = self._reserve(bench, DedupeEntry("k", "m3"), DedupeEntry("j", "m4"))
        assert standing == (DedupeEntry("k", "m1", True), DedupeEntry("j", "m2", False))

    def test_confirming_what_is_not_reserved_does_nothing(self, bench: Bench) -> None:
        bench.store.confirm_keys(bench.queue, [DedupeEntry("k", "m1"), DedupeEntry("j", "m2")])
        bench.store.confirm_keys(bench.queue, [])
        assert self._reserve(bench, DedupeEntry("k", "m1")) == (DedupeEntry("k", "m1", False),)

    def test_a_key_is_confirmed_for_the_message_that_it_stands_for_only(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"))
        bench.other.confirm_keys(bench.queue, [DedupeEntry("k", "m2")])
        assert self._reserve(bench, DedupeEntry("k", "m3")) == (DedupeEntry("k", "m1", False),)

    def test_a_confirmed_key_stands_within_its_window(self, bench: Bench) -> None:
        self._stands_for(bench, 300, pause=60)

    @exact_time
    def test_a_confirmed_key_stands_for_longer_than_finished_bundles_are_remembered(
        self, bench: Bench
    ) -> None:
        self._stands_for(bench, 1800, pause=800)

    def test_of_several_keys_those_are_confirmed_that_stand_for_their_message(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("a", "m1"), DedupeEntry("b", "m2"), DedupeEntry("c", "m3"))
        bench.store.confirm_keys(
            bench.queue, [DedupeEntry("a", "m1"), DedupeEntry("b", "other"), DedupeEntry("c", "m3")]
        )
        standing = self._reserve(bench, *[DedupeEntry(key, "new") for key in "abc"])
        assert [entry.confirmed for entry in standing] == [True, False, True]

    def test_new_and_taken_keys_are_answered_in_their_order(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("b", "m1"))
        standing = self._reserve(bench, *[DedupeEntry(key, f"new {key}") for key in "cab"])
        assert standing == (DedupeEntry("c", "new c"), DedupeEntry("a", "new a"), DedupeEntry("b", "m1"))

    def test_a_key_that_is_given_twice_stands_for_the_first(self, bench: Bench) -> None:
        standing = self._reserve(bench, DedupeEntry("k", "m1"), DedupeEntry("k", "m2"))
        assert standing == (DedupeEntry("k", "m1"), DedupeEntry("k", "m1"))

    def test_many_keys_are_reserved_at_once(self, bench: Bench) -> None:
        entries = [DedupeEntry(f"key {i}", f"m{i}") for i in range(1200)]
        assert self._reserve(bench, *entries) == tuple(entries)
        bench.store.confirm_keys(bench.queue, entries)
        assert all(entry.confirmed for entry in self._reserve(bench, *entries))

    def test_no_keys_are_no_work(self, bench: Bench) -> None:
        assert self._reserve(bench) == ()

    def test_a_key_is_free_again_after_its_window(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"), window=20)
        bench.store.confirm_keys(bench.queue, [DedupeEntry("k", "m1")])
        bench.advance(30)
        assert self._reserve(bench, DedupeEntry("k", "m2")) == (DedupeEntry("k", "m2", False),)
        assert self._reserve(bench, DedupeEntry("k", "m3")) == (DedupeEntry("k", "m2", False),)

    def test_a_key_that_is_reserved_for_no_time_is_free_at_once(self, bench: Bench) -> None:
        assert self._reserve(bench, DedupeEntry("k", "m1"), window=0) == (DedupeEntry("k", "m1", False),)
        assert self._reserve(bench, DedupeEntry("k", "m2")) == (DedupeEntry("k", "m2", False),)

    def test_a_reservation_for_no_time_shows_what_stands_and_leaves_it(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"))
        bench.store.confirm_keys(bench.queue, [DedupeEntry("k", "m1")])
        for _ in range(2):
            assert self._reserve(bench, DedupeEntry("k", "m2"), window=0) == (DedupeEntry("k", "m1", True),)
        assert self._reserve(bench, DedupeEntry("k", "m3")) == (DedupeEntry("k", "m1", True),)

    @exact_time
    def test_the_window_counts_from_the_first_reservation(self, bench: Bench) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"), window=60)
        bench.advance(59.999999)
        assert self._reserve(bench, DedupeEntry("k", "m2")) == (DedupeEntry("k", "m1"),)
        bench.advance(0.000001)
        assert self._reserve(bench, DedupeEntry("k", "m3")) == (DedupeEntry("k", "m3"),)

    def test_the_keys_of_queues_are_separate(self, bench: Bench) -> None:
        other = bench.new_queue(bench.queue + "1")
        self._reserve(bench, DedupeEntry("k", "m1"))
        standing = bench.store.reserve_keys(other, [DedupeEntry("k", "m2")], bench.duration(60))
        assert standing == (DedupeEntry("k", "m2"),)
        bench.store.confirm_keys(other, [DedupeEntry("k", "m2")])
        assert self._reserve(bench, DedupeEntry("k", "m3")) == (DedupeEntry("k", "m1", False),)

    @pytest.mark.parametrize("key", KEYS)
    def test_a_key_may_be_any_text(self, bench: Bench, key: str) -> None:
        assert self._reserve(bench, DedupeEntry(key, "m1")) == (DedupeEntry(key, "m1"),)
        bench.store.confirm_keys(bench.queue, [DedupeEntry(key, "m1")])
        assert self._reserve(bench, DedupeEntry(key, "m2")) == (DedupeEntry(key, "m1", True),)

    def test_keys_that_look_alike_are_different(self, bench: Bench) -> None:
        keys = ["k", "K", "k ", " k", "k\0", "\u00e9", "e\u0301", "", "1", "01"]
        entries = [DedupeEntry(key, f"m{i}") for i, key in enumerate(keys)]
        assert self._reserve(bench, *entries) == tuple(entries)

    def test_one_of_many_that_reserve_a_key_at_once_gets_it(self, bench: Bench) -> None:
        clients = [bench.store, bench.other] * 3
        standing = run_together(
            [
                partial(
                    bench.persist,
                    partial(client.reserve_keys, bench.queue, [DedupeEntry("k", f"m{i}")], 60_000_000),
                )
                for i, client in enumerate(clients)
            ]
        )
        assert len(set(standing)) == 1

    def _stands_for(self, bench: Bench, window: float, *, pause: float) -> None:
        self._reserve(bench, DedupeEntry("k", "m1"), window=window)
        bench.store.confirm_keys(bench.queue, [DedupeEntry("k", "m1")])
        for _ in range(2):
            bench.advance(pause)
            bench.sweep()
            assert self._reserve(bench, DedupeEntry("k", "m2"), window=5) == (DedupeEntry("k", "m1", True),)
            bench.other.confirm_keys(bench.queue, [DedupeEntry("k", "m2"), DedupeEntry("k", "m1")])

    def _reserve(self, bench: Bench, *entries: DedupeEntry, window: float = 60) -> tuple[DedupeEntry, ...]:
        return bench.store.reserve_keys(bench.queue, entries, bench.duration(window))
