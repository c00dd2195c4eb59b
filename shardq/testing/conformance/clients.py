"""Contracts: a client sets up the schema, survives a fork, keeps what it confirmed, and closes.

The live consumers of a queue are known.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import pytest

from shardq.errors import SchemaMismatch
from shardq.storage.records import REMEMBERED, SeenConsumer
from shardq.storage.requests import Append, Finding, QueueRecord
from shardq.storage.store import Capabilities, Store
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time, run_together
from shardq.testing.harness import StoreHarness
from shardq.testing.messages import of_bundle, of_bundles

__all__ = ["ClientContract", "ConsumerContract"]


class ClientContract(Contract):
    """The life of a client: schema, fork, close."""

    @pytest.fixture
    def empty(self, harness: StoreHarness) -> Store:
        """Open a store without a schema."""
        store = harness.open_empty()
        if store is None:
            pytest.skip("the harness has no empty storage")
        return store

    def test_a_ping_is_answered(self, bench: Bench) -> None:
        bench.store.ping()

    def test_a_ping_needs_no_schema(self, empty: Store) -> None:
        empty.ping()
        empty.close()

    def test_a_store_tells_what_it_can_do(self, bench: Bench) -> None:
        capabilities = bench.store.capabilities
        assert isinstance(capabilities, Capabilities)
        assert capabilities.max_message_bytes >= 1
        assert capabilities.max_shards >= 1

    def test_all_clients_go_by_one_clock(self, bench: Bench) -> None:
        """Compare the clocks of clients, on which contracts with two of them depend."""
        moments = [client.now() for client in (bench.store, bench.other) * 3]
        assert moments == sorted(moments)

    def test_creating_the_schema_again_changes_nothing(self, bench: Bench) -> None:
        bundle = bench.given(2)
        run_together([bench.store.create_schema, bench.other.create_schema] * 3)
        assert bench.claim().messages == of_bundle(bundle)

    def test_many_clients_create_the_schema_at_once(self, empty: Store) -> None:
        run_together([empty.create_schema] * 4)
        assert empty.create_queue(QueueRecord("q", b"", 1))
        empty.close()

    def test_the_first_queue_brings_the_schema(self, empty: Store) -> None:
        assert empty.create_queue(QueueRecord("q", b"settings", 1)) is True
        assert empty.load_queue("q") == QueueRecord("q", b"settings", 1)
        empty.close()

    def test_diagnose_works_without_a_schema_and_makes_none(self, empty: Store) -> None:
        findings = empty.diagnose()
        assert findings
        assert all(isinstance(finding, Finding) for finding in findings)
        assert self._load(empty) is None
        empty.close()

    def test_a_schema_of_a_later_version_is_refused(self, harness: StoreHarness, empty: Store) -> None:
        assert empty.create_queue(QueueRecord("q", b"", 1))
        if not harness.raw_newer_schema():
            pytest.skip("the harness cannot change the schema's version")
        with pytest.raises(SchemaMismatch):
            empty.create_schema()
        with pytest.raises(SchemaMismatch):
            empty.load_queue("q")
        empty.close()

    def test_diagnose_changes_nothing(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.claim(1)
        before = sorted(bench.harness.raw_entries(bench.shard))
        assert all(finding.name and finding.value for finding in bench.store.diagnose())
        assert sorted(bench.harness.raw_entries(bench.shard)) == before
        assert bench.stored() == of_bundle(bundle)

    def test_closing_twice_is_harmless(self, bench: Bench) -> None:
        bench.other.close()
        bench.other.close()
        bench.other = bench.harness.open()

    def test_closing_one_client_leaves_the_others_working(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.other.close()
        assert bench.claim().messages == of_bundle(bundle)
        bench.other = bench.harness.open()

    def test_what_was_confirmed_survives_the_end_of_its_process(self, bench: Bench) -> None:
        bundle = bench.bundle(3)
        self._in_child(lambda: bench.harness.open().append(Append(bench.shard, (bundle,))))
        assert bench.waiting() == of_bundle(bundle)
        assert bench.claim().messages == of_bundle(bundle)

    def test_a_client_works_on_both_sides_of_a_fork(self, bench: Bench) -> None:
        # Given a client that is in use
        first, second, third = bench.given(1), bench.bundle(2), bench.bundle(1)
        # When a forked child uses it too
        self._in_child(lambda: bench.append(second))
        # Then it works in the parent as before
        bench.append(third)
        assert bench.claim().messages == of_bundles(first, second, third)

    def test_a_child_takes_what_the_parent_sent_and_the_parent_goes_on(self, bench: Bench) -> None:
        bundle = bench.given(4)
        self._in_child(lambda: bench.ack(*bench.claim(3).spans))
        assert bench.stored() == of_bundle(bundle, 3)
        bench.ack(*bench.claim().spans)
        assert bench.leftovers() == {}

    def _in_child(self, do: Callable[[], object]) -> None:
        """Do it in a forked child that ends without any cleaning up."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later Pythons warn of threads that another test may have left
            child = os.fork()
        if not child:
            try:
                do()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def _load(self, store: Store) -> QueueRecord | None:
        try:
            return store.load_queue("q")
        except SchemaMismatch:
            return None


class ConsumerContract(Contract):
    """Registering and deregistering."""

    def test_a_consumer_sees_itself(self, bench: Bench) -> None:
        assert self._register(bench, "one") == ("one",)

    def test_consumers_see_each_other_in_order(self, bench: Bench) -> None:
        self._register(bench, "b")
        bench.other.register_consumer([bench.queue], "c", bench.duration(60))
        assert self._register(bench, "a") == ("a", "b", "c")

    def test_registering_again_changes_nothing_but_the_lifetime(self, bench: Bench) -> None:
        self._register(bench, "one", 20)
        bench.advance(10)
        assert self._register(bench, "one", 20) == ("one",)
        bench.advance(15)
        assert self._register(bench, "two") == ("one", "two")

    def test_a_consumer_that_does_not_come_back_is_no_longer_live(self, bench: Bench) -> None:
        self._register(bench, "one", 10)
        self._register(bench, "two", 100)
        bench.advance(20)
        assert self._register(bench, "three") == ("three", "two")

    @exact_time
    def test_a_lifetime_ends_exactly_at_its_end(self, bench: Bench) -> None:
        self._register(bench, "one", 10)
        bench.advance(9.999999)
        assert self._register(bench, "two") == ("one", "two")
        bench.advance(0.000001)
        assert self._register(bench, "two") == ("two",)

    def test_a_consumer_that_registered_while_the_clock_was_ahead_is_not_live(self, bench: Bench) -> None:
        self._register(bench, "ahead", 3600)
        self._register(bench, "right", 100)
        assert self._register(bench, "asking", 60) == ("asking", "right")
        assert [each.consumer for each in bench.store.seen_consumers(bench.queue)] == [
            "ahead",
            "asking",
            "right",
        ]

    def test_a_consumer_that_deregistered_is_no_longer_live(self, bench: Bench) -> None:
        self._register(bench, "one")
        self._register(bench, "two")
        bench.other.deregister_consumer(bench.queue, "one")
        assert self._register(bench, "two") == ("two",)

    def test_deregistering_is_harmless_when_repeated(self, bench: Bench) -> None:
        bench.store.deregister_consumer(bench.queue, "stranger")
        self._register(bench, "one")
        bench.store.deregister_consumer(bench.queue, "one")
        bench.store.deregister_consumer(bench.queue, "one")
        assert self._register(bench, "one") == ("one",)

    def test_the_consumers_of_queues_are_separate(self, bench: Bench) -> None:
        other = bench.new_queue(bench.queue + "1")
        self._register(bench, "one")
        assert bench.register_consumer("two", 60, other) == ("two",)
        bench.store.deregister_consumer(other, "one")
        assert self._register(bench, "one") == ("one",)

    def test_a_consumer_is_registered_in_several_queues_at_once_and_told_of_each(self, bench: Bench) -> None:
        # Given queues that hold something, consumers of which some are gone, and one that does not exist
        queues = [bench.queue, bench.new_queue(), bench.new_queue(bench.queue + "1")]
        shards = [bench.shard_of(queue, 2, place) for place, queue in enumerate(queues)]
        for shard in shards:
            bench.given(shard=shard)
        bench.register_consumer("gone", 10, *queues)
        bench.register_consumer("b", 100, queues[1])
        bench.advance(20)
        # When a consumer is registered in all
        registrations = bench.store.register_consumer(
            [*queues, f"{bench.queue}-absent"], "a", bench.duration(60)
        )
        # Then it knows of each what others would tell
        assert registrations[-1] is None
        for queue, each, live in zip(queues, registrations, (("a",), ("a", "b"), ("a",)), strict=False):
            assert each is not None
            assert each.record == bench.other.load_queue(queue)
            assert each.shards == bench.other.shards(queue) != ()
            assert each.consumers == live

    def test_registering_in_many_queues_is_no_different(self, bench: Bench) -> None:
        queues = [bench.queue, *(bench.new_queue() for _ in range(24))]
        for name in ("one", "two", "one"):
            registrations = bench.store.register_consumer(queues, name, bench.duration(60))
        assert [each and each.consumers for each in registrations] == [("one", "two")] * 25
        assert bench.store.register_consumer([], "one", bench.duration(60)) == ()

    def test_a_queue_that_is_created_again_has_no_consumer_of_before(self, bench: Bench) -> None:
        other = bench.new_queue()
        bench.store.register_consumer([bench.queue, other], "before", bench.duration(600))
        bench.given()
        bench.other.drop_queue(bench.queue)
        (gone, there) = bench.store.register_consumer([bench.queue, other], "after", bench.duration(600))
        assert gone is None
        assert there is not None
        assert bench.other.create_queue(QueueRecord(bench.queue, b"again", 1))
        (registrations, _) = bench.store.register_consumer([bench.queue, other], "after", bench.duration(600))
        assert registrations is not None
        assert (registrations.record.settings, registrations.consumers, registrations.shards) == (
            b"again",
            ("after",),
            (),
        )

    def test_a_name_may_be_any_text(self, bench: Bench) -> None:
        names = ("it's", '"; DROP TABLE consumer; --', "é漢", "%", "One", "one")
        for name in names:
            live = self._register(bench, name)
        assert live == tuple(sorted(names))

    def test_who_was_registered_is_known_when_it_is_no_longer_live(self, bench: Bench) -> None:
        began = bench.store.now()
        self._register(bench, "b", 10)
        self._register(bench, "a", 600)
        bench.advance(20)
        self._register(bench, "a", 600)
        seen = bench.other.seen_consumers(bench.queue)
        assert [each.consumer for each in seen] == ["a", "b"]
        assert seen[1].until <= began + bench.duration(20) < seen[0].until

    def test_who_deregistered_or_is_of_another_queue_is_not_known(self, bench: Bench) -> None:
        other = bench.new_queue(bench.queue + "1")
        bench.register_consumer("one", 60, bench.queue, other)
        bench.store.deregister_consumer(other, "one")
        assert bench.store.seen_consumers(other) == ()
        assert [each.consumer for each in bench.store.seen_consumers(bench.queue)] == ["one"]
        assert bench.store.seen_consumers(f"{bench.queue}-absent") == ()

    def test_a_sweep_leaves_who_is_remembered(self, bench: Bench) -> None:
        self._register(bench, "one", 10)
        bench.advance(20)
        bench.sweep()
        assert [each.consumer for each in bench.store.seen_consumers(bench.queue)] == ["one"]

    @exact_time
    def test_who_is_long_gone_is_forgotten(self, bench: Bench) -> None:
        self._register(bench, "one", 10)
        bench.advance(10 + REMEMBERED / 1_000_000 - 1)
        (one,) = bench.store.seen_consumers(bench.queue)
        assert one == SeenConsumer("one", one.until)
        bench.advance(1)
        assert bench.store.seen_consumers(bench.queue) == ()

    def test_a_queue_that_is_created_again_knows_nobody_of_before(self, bench: Bench) -> None:
        self._register(bench, "before", 600)
        bench.other.drop_queue(bench.queue)
        assert bench.other.create_queue(QueueRecord(bench.queue, b"again", 1))
        self._register(bench, "after", 600)
        assert [each.consumer for each in bench.store.seen_consumers(bench.queue)] == ["after"]

    def _register(self, bench: Bench, name: str, lifetime: float = 60) -> tuple[str, ...]:
        return bench.register_consumer(name, lifetime)
