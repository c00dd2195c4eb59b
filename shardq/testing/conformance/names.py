"""Contract: queues have every name that may be given, and no name reaches another queue's data."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import pytest

from shardq.base.shard import INTERNAL, MAX_NAME_LENGTH, check_queue_name
from shardq.errors import InvalidName
from shardq.storage.requests import DedupeEntry, QueueRecord, Sweep
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle

__all__ = ["NameContract"]

ODD = [
    "{}/a",
    "{}/a/b",
    "{}@a",
    "{}//",
    "{}@@",
    "{}@0f3a5c7e91",
    "{}@0f3a5c7e91ab",
    "{}@0f3a5c7e91@0f3a5c7e91ab",
    "{}.@/-_",
    "{}...a..b",
    "{}.@.",
    "{}.dead",
    INTERNAL + "{}/a",
]


class NameContract(Contract):
    """Queues beside ``bench.queue`` whose names begin with its name."""

    @pytest.mark.parametrize("pattern", ODD)
    def test_a_queue_with_an_odd_name_works_as_any_other(self, bench: Bench, pattern: str) -> None:
        name = bench.new_queue(check_queue_name(pattern.format(bench.queue)))
        shard = bench.shard_of(name, 3, 1)
        bundle = bench.given(2, shard=shard)
        assert bench.other.shards(name) == (shard,)
        assert bench.other.probe([shard])[0].due is not None
        assert bench.other.list_queues(name) == (name,)
        taken = bench.claim(shard=shard)
        assert taken.messages == of_bundle(bundle)
        bench.ack(*taken.spans, shard=shard)
        assert bench.forget(shard)
        assert bench.leftovers(name) == {}

    @pytest.mark.parametrize("pattern", ODD)
    def test_queues_whose_names_are_alike_are_kept_apart(self, bench: Bench, pattern: str) -> None:
        # Given two queues with the same shard, consumers and keys, the name of one of them within the other's
        name = bench.new_queue(pattern.format(bench.queue))
        there = bench.shard_of(name)
        bundles = {shard: bench.given(2, shard=shard) for shard in (bench.shard, there)}
        for shard in bundles:
            bench.store.reserve_keys(shard.queue, [DedupeEntry("k", f"of {shard}")], bench.duration(600))
            bench.register_consumer(f"of {shard.queue}", 600, shard.queue)
        # When both are swept
        for shard in bundles:
            bench.other.sweep(Sweep(shard.queue, 0))
        # Then each has what it had
        for shard, bundle in bundles.items():
            assert bench.other.shards(shard.queue) == (shard,)
            assert bench.register_consumer("x", 60, shard.queue, by=bench.other)[0] == f"of {shard.queue}"
            (entry,) = bench.other.reserve_keys(shard.queue, [DedupeEntry("k", "another")], 0)
            assert entry.message_id == f"of {shard}"
            assert bench.claim(shard=shard).messages == of_bundle(bundle)
        # And the end of one of them is not that of the other
        bench.drop(name)
        bench.other.sweep(Sweep(name, 0))
        assert bench.store.shards(bench.queue) == (bench.shard,)
        counts = bench.store.count(bench.shard)
        assert counts.ready + counts.in_flight == 2

    @pytest.mark.parametrize("pattern", ODD)
    def test_a_name_without_a_queue_reaches_nothing(self, bench: Bench, pattern: str) -> None:
        bench.given(2)
        name = pattern.format(bench.queue)
        there = bench.shard_of(name)
        assert bench.store.load_queue(name) is None
        assert bench.store.shards(name) == ()
        assert bench.store.count(there).ready == bench.store.purge(there) == 0
        assert not bench.store.drop_queue(name)
        bench.store.sweep(Sweep(name, 2**60))
        assert bench.store.count(bench.shard).ready == 2

    @pytest.mark.parametrize("length", [100, 101, MAX_NAME_LENGTH])
    def test_long_names_that_differ_in_their_last_character_are_different_queues(
        self, bench: Bench, length: int
    ) -> None:
        stem = bench.new_name().ljust(length - 1, "x")
        try:
            names = [bench.new_queue(f"{stem}{end}") for end in "ab"]
        except InvalidName:
            assert length > 100
            return
        bundle = bench.given(2, shard=bench.shard_of(names[0], 9, 9))
        assert bench.other.list_queues(stem) == tuple(names)
        assert bench.claim(shard=bench.shard_of(names[1], 9, 9)).messages == []
        assert bench.claim(shard=bench.shard_of(names[0], 9, 9)).slices[0].bundle == bundle

    def test_the_records_of_queues_whose_names_differ_in_a_sign_are_different(self, bench: Bench) -> None:
        stem = bench.new_name()
        records = [QueueRecord(f"{stem}{sign}1", sign.encode(), 1) for sign in "._-/@"]
        for record in records:
            assert bench.store.create_queue(record)
            bench.queues.append(record.name)
        assert [bench.other.load_queue(record.name) for record in records] == records
