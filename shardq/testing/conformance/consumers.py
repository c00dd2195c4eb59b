"""Contract: the live consumers of a queue are known."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from shardq.storage.records import REMEMBERED, SeenConsumer
from shardq.storage.requests import QueueRecord
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time

__all__ = ["ConsumerContract"]


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
        bench.register_consumer("b", 600, queues[1])
        bench.advance(20)
        # When a consumer is registered in all
        told = bench.store.register_consumer([*queues, f"{bench.queue}-absent"], "a", bench.duration(60))
        # Then it knows of each what others would tell
        assert told[-1] is None
        for queue, each, live in zip(queues, told, (("a",), ("a", "b"), ("a",)), strict=False):
            assert each is not None
            assert each.record == bench.other.load_queue(queue)
            assert each.shards == bench.other.shards(queue) != ()
            assert each.consumers == live

    def test_registering_in_many_queues_is_no_different(self, bench: Bench) -> None:
        queues = [bench.queue, *(bench.new_queue() for _ in range(24))]
        for name in ("one", "two", "one"):
            told = bench.store.register_consumer(queues, name, bench.duration(60))
        assert [each and each.consumers for each in told] == [("one", "two")] * 25
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
        (told, _) = bench.store.register_consumer([bench.queue, other], "after", bench.duration(600))
        assert told is not None
        assert (told.record.settings, told.consumers, told.shards) == (b"again", ("after",), ())

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
