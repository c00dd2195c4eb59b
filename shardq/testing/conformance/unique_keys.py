"""Contract: the value under a unique key is compared and set, and stays until then."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from functools import partial

import pytest

from shardq.errors import QueueNotFound
from shardq.storage.keys import KeyChange, KeyEntry
from shardq.storage.requests import DedupeEntry
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.conformance.dedupe import KEYS
from shardq.testing.conformance.together import run_together

__all__ = ["UniqueKeyContract"]


class UniqueKeyContract(Contract):
    """Exchanging and listing the entries of unique keys."""

    def test_nothing_stands_under_a_key_that_was_never_entered(self, bench: Bench) -> None:
        assert self._look(bench) is None
        assert self._exchange(bench, "v1", None) is None
        assert self._exchange(bench, "v1", "v2") is None
        assert self._look(bench) is None

    def test_a_new_key_is_entered(self, bench: Bench) -> None:
        assert self._exchange(bench, None, "v1") == "v1"
        assert self._look(bench) == "v1"

    def test_a_key_that_is_taken_is_not_entered_again(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        assert self._exchange(bench, None, "v2") == "v1"
        assert self._look(bench) == "v1"

    def test_an_entry_is_changed_by_whoever_names_what_stands(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        (standing,) = bench.other.compare_and_set_keys(bench.queue, [KeyChange("k", "v1", "v2")])
        assert standing == "v2"
        assert self._look(bench) == "v2"

    def test_an_entry_is_not_changed_by_whoever_names_something_else(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        assert self._exchange(bench, "v0", "v2") == "v1"
        assert self._exchange(bench, "v", "v2") == "v1"
        assert self._look(bench) == "v1"

    def test_an_entry_is_removed_by_whoever_names_what_stands_only(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        assert self._exchange(bench, "v0", None) == "v1"
        assert self._exchange(bench, "v1", None) is None
        assert self._look(bench) is None
        assert self._exchange(bench, None, "v2") == "v2"

    @pytest.mark.parametrize(("before", "after"), [(None, "v2"), ("v1", "v2"), ("v1", None)])
    def test_a_repeated_change_is_told_what_the_first_one_made(
        self, bench: Bench, before: str | None, after: str | None
    ) -> None:
        if before is not None:
            self._exchange(bench, None, before)
        assert self._exchange(bench, before, after) == after
        assert self._exchange(bench, before, after) == after
        assert self._look(bench) == after

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
        assert self._look(bench) == "v1"
        assert bench.store.list_keys(other) == (KeyEntry("k", "v2"),)

    def test_an_entry_outlives_sweeps_and_the_windows_of_dedupe_keys(self, bench: Bench) -> None:
        bench.store.reserve_keys(bench.queue, [DedupeEntry("k", "m1")], bench.duration(5))
        self._exchange(bench, None, "v1")
        bench.advance(60)
        bench.sweep()
        assert self._look(bench) == "v1"

    @exact_time
    def test_an_entry_stands_for_years(self, bench: Bench) -> None:
        self._exchange(bench, None, "v1")
        for _ in range(3):
            bench.advance(10 * 365 * 86_400)
            bench.sweep()
        assert self._look(bench) == "v1"

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
        assert standing[0] == self._look(bench) != "v"

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

    def _look(self, bench: Bench, key: str = "k") -> str | None:
        (standing,) = bench.other.compare_and_set_keys(bench.queue, [KeyChange(key, None, None)])
        return standing

    def _listed(self, bench: Bench) -> list[KeyEntry]:
        return sorted(bench.other.list_keys(bench.queue))
