"""Contract: appended messages are stored, once."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import msgspec
import pytest

from shardq.errors import QueueNotFound
from shardq.storage.requests import Append, Bundle, ShardCounts
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_bundles

__all__ = ["AppendContract"]

MIB = 1024 * 1024


class _Noted(Bundle, frozen=True, kw_only=True):
    note: object


class AppendContract(Contract):
    """Storing bundles."""

    def test_appended_messages_are_in_the_storage(self, bench: Bench) -> None:
        first, second = bench.bundle(3), bench.bundle(1, priority=9)
        bench.append(first, second)
        assert bench.waiting() == of_bundles(first, second)
        assert bench.harness.raw_bundles(bench.shard) > 0

    def test_another_client_gets_the_bundle_as_it_was_given(self, bench: Bench) -> None:
        bundle = bench.given(3, priority=4)
        taken = bench.claim(by=bench.other)
        (claimed,) = taken.slices
        assert claimed.bundle == bundle
        assert (claimed.first, claimed.count, claimed.deliveries) == (0, 3, 1)

    def test_what_a_sender_notes_in_a_bundle_is_not_stored(self, bench: Bench) -> None:
        bundle = bench.make(2, priority=4)
        bench.append(_Noted(*msgspec.structs.astuple(bundle), note=object()))
        (claimed,) = bench.claim(by=bench.other).slices
        assert claimed.bundle == bundle

    @pytest.mark.parametrize(
        "data",
        [b"", b"\0", bytes(range(256)), b"'; DROP TABLE entry; --", b"\xff" * 70_000, b"x" * MIB],
        ids=["empty", "nul", "every byte", "sql", "70 kB", "1 MiB"],
    )
    def test_any_bytes_come_back_unchanged(self, bench: Bench, data: bytes) -> None:
        bundle = bench.make(2, data=data)
        bench.append(bundle)
        assert bench.claim(by=bench.other).slices[0].bundle.data == data

    def test_the_largest_message_that_the_store_names_is_taken(self, bench: Bench) -> None:
        data = b"m" * min(bench.store.capabilities.max_message_bytes, 16 * MIB)
        bundle = bench.make(1, data=data)
        bench.append(bundle)
        assert bench.claim(by=bench.other).slices[0].bundle == bundle

    def test_a_bundle_may_hold_thousands_of_messages(self, bench: Bench) -> None:
        bundle = bench.given(5000)
        assert bench.store.count(bench.shard).ready == 5000
        taken = bench.claim(4999, by=bench.other)
        assert taken.messages == of_bundle(bundle, 0, 4999)
        bench.ack(*taken.spans)
        assert bench.waiting() == of_bundle(bundle, 4999)

    def test_many_bundles_are_appended_at_once(self, bench: Bench) -> None:
        bundles = [bench.bundle(1 + i % 3) for i in range(300)]
        bench.append(*bundles)
        assert bench.claim(10_000).messages == of_bundles(*bundles)

    def test_a_repeated_append_adds_nothing(self, bench: Bench) -> None:
        bundle = bench.given(3)
        bench.append(bundle)
        bench.append(bundle, by=bench.other)
        assert bench.waiting() == of_bundle(bundle)
        assert bench.claim().messages == of_bundle(bundle)
        assert bench.claim().messages == []

    def test_what_was_appended_as_fresh_is_known_when_it_comes_again(self, bench: Bench) -> None:
        bundle = bench.make(3)
        bench.store.append(Append(bench.shard, (bundle,), fresh=True))
        bench.other.append(Append(bench.shard, (bundle,)))
        assert bench.waiting() == of_bundle(bundle)
        bench.ack(*bench.claim().spans)
        bench.other.append(Append(bench.shard, (bundle,)))
        assert bench.stored() == []

    def test_a_fresh_append_that_comes_after_its_repetition_stores_nothing(self, bench: Bench) -> None:
        if not bench.harness.late_requests:
            pytest.skip("no request comes after its client has given it up")
        bundle = bench.make(3)
        late = Append(bench.shard, (bundle,), fresh=True)
        bench.store.append(late)
        taken = bench.claim(2)
        bench.ack(taken.span(0, 1))
        bench.other.append(late)
        assert bench.held() == of_bundle(bundle, 1, 1)
        assert bench.waiting() == of_bundle(bundle, 2)
        bench.ack(taken.span(1, 1), *bench.claim().spans)
        bench.other.append(late)
        assert bench.stored() == []

    def test_a_repeated_append_adds_only_what_was_not_stored(self, bench: Bench) -> None:
        first, second = bench.bundle(2), bench.bundle(3)
        bench.append(first)
        bench.append(first, second)
        assert bench.waiting() == of_bundles(first, second)

    def test_a_repeated_append_leaves_held_messages_held(self, bench: Bench) -> None:
        bundle = bench.given(4)
        taken = bench.claim(3)
        bench.append(bundle, by=bench.other)
        assert bench.held() == of_bundle(bundle, 0, 3)
        assert bench.claim().messages == of_bundle(bundle, 3)
        assert bench.ack(*taken.spans).lost == ()

    def test_a_repeated_append_does_not_revive_what_was_acked_of_a_bundle(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim(4)
        bench.ack(taken.span(0, 1), taken.span(2, 1))
        bench.append(bundle, by=bench.other)
        assert bench.stored() == [*of_bundle(bundle, 1, 1), *of_bundle(bundle, 3, 2)]

    def test_a_repeated_append_does_not_revive_a_finished_bundle(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.ack(*bench.claim().spans)
        bench.append(bundle)
        bench.append(bundle, by=bench.other)
        assert bench.stored() == []
        assert bench.claim().messages == []
        assert bench.store.count(bench.shard) == ShardCounts()

    def test_a_repeated_append_does_not_revive_a_removed_message(self, bench: Bench) -> None:
        bundle = bench.given(1)
        assert bench.store.remove(bench.shard, bundle.id, 0)
        bench.append(bundle, by=bench.other)
        assert bench.stored() == []

    @exact_time
    def test_a_finished_bundle_is_remembered_for_15_minutes(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.advance(3600)
        bench.ack(*taken.spans)
        bench.advance(15 * 60 - 1)
        bench.sweep()
        bench.append(bundle, by=bench.other)
        assert bench.stored() == []

    def test_a_repeated_append_does_not_double_what_the_history_keeps(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.ack(*bench.claim().spans, keep=True)
        bench.append(bundle, by=bench.other)
        assert bench.stored() == []
        assert bench.history() == of_bundle(bundle)

    def test_a_missing_queue_is_told_and_nothing_is_stored(self, bench: Bench) -> None:
        shard = bench.shard_of(bench.new_name())
        with pytest.raises(QueueNotFound):
            bench.store.append(Append(shard, (bench.bundle(), bench.bundle())))
        assert not bench.harness.raw_entries(shard)
        assert not bench.harness.raw_bundles(shard)

    def test_the_shards_of_a_queue_are_separate(self, bench: Bench) -> None:
        shards = [
            bench.shard_of(bench.queue, *place) for place in ((1, 11), (11, 1), (0, 1), (1, 0), (111, 0))
        ]
        bundles = [bench.given(2, shard=shard) for shard in shards]
        assert bench.claim().messages == []
        for shard, bundle in zip(shards, bundles, strict=True):
            assert bench.stored(shard) == of_bundle(bundle)
            assert bench.claim(shard=shard).messages == of_bundle(bundle)
