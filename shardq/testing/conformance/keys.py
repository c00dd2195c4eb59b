"""Contracts: a dedupe key stands for one message during its window.

The value under a unique key is compared and set, and stays until then.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

from functools import partial

import pytest

from shardq.errors import QueueNotFound
from shardq.storage.keys import KeyChange, KeyEntry
from shardq.storage.requests import DedupeEntry
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time, run_together

__all__ = ["DedupeContract", "UniqueKeyContract"]

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

    @pytest.mark.parametrize("window", [0.0, -30 * 365 * 86_400.0])
    def test_a_key_that_is_reserved_for_no_time_is_free_at_once(self, bench: Bench, window: float) -> None:
        assert self._reserve(bench, DedupeEntry("k", "m1"), window=window) == (DedupeEntry("k", "m1", False),)
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


class UniqueKeyContract(Contract):
    """Exchanging and listing the entries of unique keys."""

    def test_nothing_stands_under_a_key_that_was_never_entered(self, bench: Bench) -> None:
        assert self._stored_value(bench) is None
        assert self._exchange(bench, "v1", None) is None
        assert self._exchange(bench, "v1", "v2") is None
        assert self._stored_value(bench) is None

    def test_a_new_key_is_entered(self, bench: Bench) -> None:
        assert self._exchange(bench, None, "v1") == "v1"
        assert self._stored_value(bench) == "v1"

    def test_a_key_that_is_taken_is_not_entered_again(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        assert self._exchange(bench, None, "v2") == "v1"
        assert self._stored_value(bench) == "v1"

    def test_an_entry_is_changed_by_whoever_names_what_stands(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        (standing,) = bench.other.compare_and_set_keys(bench.queue, [KeyChange("k", "v1", "v2")])
        assert standing == "v2"
        assert self._stored_value(bench) == "v2"

    def test_an_entry_is_not_changed_by_whoever_names_something_else(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        assert self._exchange(bench, "v0", "v2") == "v1"
        assert self._exchange(bench, "v", "v2") == "v1"
        assert self._stored_value(bench) == "v1"

    def test_an_entry_is_removed_by_whoever_names_what_stands_only(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        assert self._exchange(bench, "v0", None) == "v1"
        assert self._exchange(bench, "v1", None) is None
        assert self._stored_value(bench) is None
        assert self._exchange(bench, None, "v2") == "v2"

    @pytest.mark.parametrize(("before", "after"), [(None, "v2"), ("v1", "v2"), ("v1", None)])
    def test_a_repeated_change_is_told_what_the_first_one_made(
        self, bench: Bench, before: str | None, after: str | None
    ) -> None:
        if before is not None:
            self._exchange(bench, None, before)
        assert self._exchange(bench, before, after) == after
        assert self._exchange(bench, before, after) == after
        assert self._stored_value(bench) == after

    def test_of_several_changes_those_are_made_whose_entry_stands(self, bench: Bench) -> None:
        bench.store.compare_and_set_keys(bench.queue, [KeyChange(key, None, "old") for key in "abd"])
        changes = [
            KeyChange("a", "old", "new"),
            KeyChange("b", "other", "new"),
            KeyChange("c", None, "new"),
            KeyChange("d", "old", None),
            KeyChange("e", "old", None),
        ]
        assert bench.other.compare_and_set_keys(bench.queue, changes) == ("new", "old", "new", None, None)
        assert self._listed(bench) == [KeyEntry("a", "new"), KeyEntry("b", "old"), KeyEntry("c", "new")]

    def test_no_changes_are_no_work(self, bench: Bench) -> None:
        assert bench.store.compare_and_set_keys(bench.queue, []) == ()

    @pytest.mark.parametrize("key", KEYS)
    def test_a_unique_key_may_be_any_text(self, bench: Bench, key: str) -> None:
        assert self._exchange(bench, None, "v1", key=key) == "v1"
        assert self._exchange(bench, "v1", "v2", key=key) == "v2"
        assert self._listed(bench) == [KeyEntry(key, "v2")]

    def test_unique_keys_that_look_alike_are_different(self, bench: Bench) -> None:
        keys = ["k", "K", "k ", " k", "k\0", "\u00e9", "e\u0301", "1", "01"]
        changes = [KeyChange(key, None, f"v{i}") for i, key in enumerate(keys)]
        assert bench.store.compare_and_set_keys(bench.queue, changes) == tuple(each.after for each in changes)

    def test_unique_keys_and_dedupe_keys_are_separate(self, bench: Bench) -> None:
        entry = DedupeEntry("k", "m1")
        bench.store.reserve_keys(bench.queue, [entry], bench.duration(60))
        assert self._exchange(bench, None, "v1") == "v1"
        assert bench.store.reserve_keys(bench.queue, [entry], bench.duration(60)) == (entry,)
        assert self._listed(bench) == [KeyEntry("k", "v1")]

    def test_the_unique_keys_of_queues_are_separate(self, bench: Bench) -> None:
        other = bench.new_queue(bench.queue + "1")
        self._exchange(bench, None, "v1")
        assert bench.store.compare_and_set_keys(other, [KeyChange("k", None, "v2")]) == ("v2",)
        assert self._stored_value(bench) == "v1"
        assert bench.store.list_keys(other) == (KeyEntry("k", "v2"),)

    def test_an_entry_outlives_sweeps_and_the_windows_of_dedupe_keys(self, bench: Bench) -> None:
        bench.store.reserve_keys(bench.queue, [DedupeEntry("k", "m1")], bench.duration(5))
        self._exchange(bench, None, "v1")
        bench.advance(60)
        bench.sweep()
        assert self._stored_value(bench) == "v1"

    @exact_time
    def test_an_entry_stands_for_years(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        for _ in range(3):
            bench.advance(10 * 365 * 86_400)
            bench.sweep()
        assert self._stored_value(bench) == "v1"

    def test_entries_are_listed_page_by_page(self, bench: Bench) -> None:
        changes = [KeyChange(f"key {i}", None, f"v{i}") for i in range(250)]
        bench.store.compare_and_set_keys(bench.queue, changes)
        found: list[KeyEntry] = []
        while page := bench.other.list_keys(bench.queue, found[-1].key if found else "", 40):
            assert len(page) <= 40
            found += page
        assert sorted(found) == sorted(KeyEntry(each.key, each.after or "") for each in changes)

    def test_the_listing_goes_on_after_a_key_that_was_removed_meanwhile(self, bench: Bench) -> None:
        bench.store.compare_and_set_keys(bench.queue, [KeyChange(f"key {i}", None, "v") for i in range(30)])
        seen: list[str] = []
        while page := bench.store.list_keys(bench.queue, seen[-1] if seen else "", 4):
            seen += [each.key for each in page]
            bench.store.compare_and_set_keys(bench.queue, [KeyChange(each.key, "v", None) for each in page])
        assert sorted(seen) == sorted(f"key {i}" for i in range(30))
        assert bench.store.list_keys(bench.queue) == ()

    def test_a_dropped_queue_takes_its_unique_keys_with_it(self, bench: Bench) -> None:
        name = bench.new_queue(bench.queue + "1")
        bench.store.compare_and_set_keys(name, [KeyChange("k", None, "v1")])
        bench.drop(name)
        with pytest.raises(QueueNotFound):
            bench.other.compare_and_set_keys(name, [KeyChange("k", None, "v2")])
        bench.queues.remove(name)
        bench.new_queue(name)
        assert bench.other.list_keys(name) == ()
        assert bench.other.compare_and_set_keys(name, [KeyChange("k", None, "v3")]) == ("v3",)

    def test_of_many_that_enter_a_key_at_once_one_does(self, bench: Bench) -> None:
        standing = self._at_once(bench, None)
        assert len(set(standing)) == 1

    def test_of_many_that_change_an_entry_at_once_one_does(self, bench: Bench) -> None:
        self._exchange(bench, None, "v")
        standing = self._at_once(bench, "v")
        assert len(set(standing)) == 1
        assert standing[0] == self._stored_value(bench) != "v"

    def _at_once(self, bench: Bench, before: str | None) -> list[str | None]:
        clients = [bench.store, bench.other] * 3
        return [
            standing
            for (standing,) in run_together(
                [
                    partial(
                        bench.persist,
                        partial(client.compare_and_set_keys, bench.queue, [KeyChange("k", before, f"v{i}")]),
                    )
                    for i, client in enumerate(clients)
                ]
            )
        ]

    def _exchange(self, bench: Bench, before: str | None, after: str | None, *, key: str = "k") -> str | None:
        (standing,) = bench.store.compare_and_set_keys(bench.queue, [KeyChange(key, before, after)])
        return standing

    def _stored_value(self, bench: Bench, key: str = "k") -> str | None:
        (standing,) = bench.other.compare_and_set_keys(bench.queue, [KeyChange(key, None, None)])
        return standing

    def _listed(self, bench: Bench) -> list[KeyEntry]:
        return sorted(bench.other.list_keys(bench.queue))
