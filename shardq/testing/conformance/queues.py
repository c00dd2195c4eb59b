"""Contracts: queues are created, loaded, updated, listed and dropped.

They have every name that may be given, and no name reaches another queue's data.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

from functools import partial

import pytest

from shardq.base.shard import INTERNAL, MAX_NAME_LENGTH, check_queue_name
from shardq.errors import InvalidName
from shardq.storage.requests import DedupeEntry, QueueRecord, Sweep
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, run_together
from shardq.testing.messages import of_bundle

__all__ = ["NameContract", "QueueContract"]

HOSTILE = [
    "{}:0:0",
    "{}:1",
    "{}%",
    "{}'; DROP TABLE entry; --",
    '{}"."',
    "{} OR 1=1",
    "{}$where",
    "{}é漢",
    "{}/../x",
    "{} ",
]


class QueueContract(Contract):
    """The records of queues."""

    def test_a_created_queue_is_loaded_by_another_client(self, bench: Bench) -> None:
        record = QueueRecord(bench.new_name(), bytes(range(256)), 1)
        assert bench.store.create_queue(record) is True
        bench.queues.append(record.name)
        assert bench.other.load_queue(record.name) == record

    def test_a_queue_without_settings_is_loaded_as_such(self, bench: Bench) -> None:
        record = QueueRecord(bench.new_name(), b"", 1)
        assert bench.store.create_queue(record)
        bench.queues.append(record.name)
        assert bench.other.load_queue(record.name) == record

    def test_a_queue_that_was_never_created_is_none(self, bench: Bench) -> None:
        assert bench.store.load_queue(bench.new_name()) is None

    def test_a_taken_name_is_refused_and_the_first_queue_stays(self, bench: Bench) -> None:
        assert bench.other.create_queue(QueueRecord(bench.queue, b"another", 7)) is False
        assert bench.store.load_queue(bench.queue) == QueueRecord(bench.queue, b"settings", 1)

    def test_one_of_many_that_create_the_same_queue_succeeds(self, bench: Bench) -> None:
        name = bench.new_name()
        bench.queues.append(name)
        records = [QueueRecord(name, bytes([i]), 1) for i in range(6)]
        clients = [bench.store, bench.other] * 3
        created = run_together([partial(c.create_queue, r) for c, r in zip(clients, records, strict=True)])
        assert created.count(True) == 1
        assert bench.store.load_queue(name) == records[created.index(True)]

    def test_an_update_of_the_stored_version_replaces_the_record(self, bench: Bench) -> None:
        assert bench.store.update_queue(QueueRecord(bench.queue, b"new", 2)) is True
        assert bench.other.load_queue(bench.queue) == QueueRecord(bench.queue, b"new", 2)

    @pytest.mark.parametrize("version", [0, 1, 3, 100])
    def test_an_update_of_another_version_changes_nothing(self, bench: Bench, version: int) -> None:
        assert bench.store.update_queue(QueueRecord(bench.queue, b"new", version)) is False
        assert bench.other.load_queue(bench.queue) == QueueRecord(bench.queue, b"settings", 1)

    def test_an_update_of_a_missing_queue_creates_nothing(self, bench: Bench) -> None:
        name = bench.new_name()
        assert bench.store.update_queue(QueueRecord(name, b"new", 1)) is False
        assert bench.store.update_queue(QueueRecord(name, b"new", 2)) is False
        assert bench.other.load_queue(name) is None

    def test_one_of_many_updates_of_a_version_succeeds(self, bench: Bench) -> None:
        records = [QueueRecord(bench.queue, bytes([i]), 2) for i in range(6)]
        clients = [bench.store, bench.other] * 3
        updated = run_together([partial(c.update_queue, r) for c, r in zip(clients, records, strict=True)])
        assert updated.count(True) == 1
        assert bench.store.load_queue(bench.queue) == records[updated.index(True)]

    def test_queues_are_listed_in_order_by_prefix(self, bench: Bench) -> None:
        stem = bench.new_name()
        names = [bench.new_queue(f"{stem}{end}") for end in ("b", "a", "", "-c", "a.1")]
        assert bench.other.list_queues(stem) == tuple(sorted(names))
        assert bench.other.list_queues(f"{stem}a") == (f"{stem}a", f"{stem}a.1")
        assert bench.other.list_queues(f"{stem}x") == ()
        assert set(names) <= set(bench.other.list_queues())
        assert list(bench.other.list_queues()) == sorted(bench.other.list_queues())

    def test_a_prefix_is_taken_literally(self, bench: Bench) -> None:
        stem = bench.new_name()
        bench.new_queue(f"{stem}_1")
        bench.new_queue(f"{stem}x1")
        assert bench.store.list_queues(f"{stem}_") == (f"{stem}_1",)
        for prefix in ("%", "_" * len(stem), f"{stem}%", f"{stem}.*", ".*", "^", "\\", "'", "[a-z]", "*"):
            assert bench.store.list_queues(prefix) == ()

    def test_names_that_differ_in_case_are_different_queues(self, bench: Bench) -> None:
        stem = bench.new_name()
        lower, upper = bench.new_queue(f"{stem}-case"), bench.new_queue(f"{stem}-CASE")
        assert bench.store.list_queues(f"{stem}-c") == (lower,)
        bundle = bench.given(2, shard=bench.shard_of(lower))
        assert bench.claim(shard=bench.shard_of(upper)).messages == []
        bench.drop(upper)
        assert bench.claim(shard=bench.shard_of(lower)).slices[0].bundle == bundle

    @pytest.mark.parametrize("pattern", HOSTILE)
    def test_a_hostile_name_is_refused_or_kept_apart(self, bench: Bench, pattern: str) -> None:
        bundle = bench.given(2)
        name = pattern.format(bench.queue)
        try:
            created = bench.store.create_queue(QueueRecord(name, b"", 1))
        except InvalidName:
            assert bench.other.load_queue(bench.queue) is not None
        else:
            assert created
            assert bench.other.load_queue(name) == QueueRecord(name, b"", 1)
            bench.given(3, shard=bench.shard_of(name))
            assert bench.store.purge(bench.shard_of(name)) == 3
            bench.drop(name)
        assert bench.claim().slices[0].bundle == bundle


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
            bench.register_consumer(f"of {shard.queue}", 100, shard.queue)
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
