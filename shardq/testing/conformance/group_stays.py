"""Contract: whatever ends the stay of a message lets the next of its group go, and what looks show of groups."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from shardq.storage.listening import Waiter
from shardq.storage.requests import EntryState, Fenced, ShardCounts
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.groups import GroupedContract, many
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["GroupStayContract"]


class GroupStayContract(GroupedContract):
    """The end of the stay of a message in its group, and the answers of reads."""

    def test_a_removed_first_message_lets_the_next_go(self, grouped: Bench) -> None:
        first, second = grouped.given(2), grouped.given()
        assert grouped.store.remove(grouped.shard, first.id, 0)
        assert grouped.claim(1).messages == of_bundle(first, 1)
        assert grouped.other.remove(grouped.shard, first.id, 1)
        assert grouped.claim().messages == of_bundle(second)

    def test_a_removed_later_message_lets_nothing_go(self, grouped: Bench) -> None:
        first, second, third = grouped.given(), grouped.given(), grouped.given()
        taken = grouped.claim(1)
        assert grouped.store.remove(grouped.shard, second.id, 0)
        assert grouped.claim(by=grouped.other).messages == []
        grouped.ack(*taken.spans)
        assert grouped.claim(by=grouped.other).messages == of_bundle(third)
        del first

    def test_a_purge_takes_the_group_and_a_later_append_begins_it_anew(self, grouped: Bench) -> None:
        grouped.given(2)
        grouped.given()
        grouped.claim(1)
        assert grouped.store.purge(grouped.shard) == 3
        assert grouped.leftovers() == {}
        bundle = grouped.given()
        assert grouped.claim().messages == of_bundle(bundle)

    def test_a_message_that_goes_into_the_history_lets_the_next_go(self, grouped: Bench) -> None:
        first, second = grouped.given(), grouped.given()
        grouped.ack(*grouped.claim(1).spans, keep=True)
        assert grouped.claim().messages == of_bundle(second)
        assert [each.bundle for each in grouped.peek(processed=True)] == [first]

    def test_a_forward_elsewhere_lets_the_next_go(self, grouped: Bench) -> None:
        second = [grouped.given(), grouped.given()][1]
        taken = grouped.claim(1)
        moved = grouped.bundle(group="b")
        assert grouped.forward(taken.spans, moved) == Fenced()
        assert sorted(grouped.claim(by=grouped.other).messages) == sorted(of_bundles(second, moved))

    def test_a_forward_to_its_own_group_goes_to_the_end(self, grouped: Bench) -> None:
        second = [grouped.given(), grouped.given()][1]
        moved = grouped.bundle()
        assert grouped.forward(grouped.claim(1).spans, moved) == Fenced()
        assert grouped.claim(by=grouped.other).messages == of_bundles(second, moved)

    def test_a_forward_in_place_keeps_the_place_and_gives_back_what_is_behind(self, grouped: Bench) -> None:
        bundle, last = grouped.given(4), grouped.given()
        taken = grouped.claim()
        instead = grouped.bundle(delay=20)
        assert grouped.forward((taken.span(1, 1),), instead, in_place=True) == Fenced()
        assert grouped.held() == of_bundle(bundle, 0, 1)
        fenced = grouped.ack(*taken.spans)
        assert sorted(of_spans(fenced.lost)) == sorted([*of_bundle(bundle, 1), *of_bundle(last)])
        assert grouped.claim(by=grouped.other).messages == []
        grouped.advance(30)
        again = grouped.claim(by=grouped.other)
        assert again.messages == [*of_bundle(instead), *of_bundle(bundle, 2), *of_bundle(last)]
        assert again.deliveries == {1}

    def test_a_forward_in_place_of_neighbours_keeps_the_place_of_each(self, grouped: Bench) -> None:
        bundle, last = grouped.given(4), grouped.given()
        taken = grouped.claim()
        instead = [grouped.bundle() for _ in range(2)]
        spans = taken.span(1, 1), taken.span(2, 1)
        assert grouped.forward(spans, *instead, in_place=True) == Fenced()
        grouped.ack(taken.span(0, 1))
        again = grouped.claim(by=grouped.other)
        assert again.messages == [*of_bundles(*instead), *of_bundle(bundle, 3), *of_bundle(last)]

    def test_a_fenced_forward_in_place_changes_nothing(self, grouped: Bench) -> None:
        bundle = grouped.given(2)
        taken = grouped.claim()
        grouped.release(taken.span(0, 1))
        instead = grouped.bundle()
        assert of_spans(grouped.forward((taken.span(0, 1),), instead, in_place=True).lost) == of_bundle(
            bundle, 0, 1
        )
        assert grouped.claim(by=grouped.other).messages == of_bundle(bundle)

    def test_a_probe_leaves_out_what_is_behind(self, grouped: Bench) -> None:
        first, _ = grouped.given(delay=50), grouped.given(delay=5)
        assert (grouped.probe().due, grouped.probe().next_due) == (None, first.due)
        grouped.advance(10)
        assert (grouped.probe().due, grouped.probe().next_due) == (None, first.due)
        grouped.advance(50)
        assert grouped.probe().due == first.due
        until = grouped.claim(1).claimed.lease_until
        assert (grouped.probe().due, grouped.probe().next_due) == (None, until)
        assert (grouped.probe(deep=True).due, grouped.probe(deep=True).next_due) == (None, until)

    def test_counts_and_looks_show_what_is_behind_by_its_own_due_time(self, grouped: Bench) -> None:
        bundles = [grouped.given(2), grouped.given(), grouped.given(delay=60), grouped.given()]
        taken = grouped.claim(1)
        counts = grouped.other.count(grouped.shard)
        assert (counts.ready, counts.delayed, counts.in_flight) == (3, 1, 1)
        states = [(each.bundle.id, each.first, each.state) for each in grouped.peek(1)]
        assert states == [
            (bundles[0].id, 0, EntryState.IN_FLIGHT),
            (bundles[0].id, 1, EntryState.READY),
            (bundles[1].id, 0, EntryState.READY),
            (bundles[2].id, 0, EntryState.DELAYED),
            (bundles[3].id, 0, EntryState.READY),
        ]
        assert grouped.peek()[3].due == bundles[2].due
        found = grouped.store.find(grouped.shard, bundles[2].id, 0)
        assert found is not None
        assert (found.state, found.due) == (EntryState.DELAYED, bundles[2].due)
        grouped.ack(*taken.spans)

    def test_what_is_behind_is_not_ready_since_it_is_due(self, grouped: Bench) -> None:
        def since() -> int | None:
            return grouped.other.count(grouped.shard).ready_since

        first, second = grouped.given(), grouped.given()
        assert since() == first.due
        taken = grouped.claim(1)
        assert since() is None
        grouped.release(*taken.spans, delay=60)  # it is tried again later
        grouped.advance(10)
        assert since() is None
        other = grouped.given(group="b")
        assert since() == other.due
        grouped.ack(*grouped.claim(1).spans)
        grouped.advance(60)
        retried = since()
        assert retried is not None
        assert retried > second.due
        grouped.ack(*grouped.claim(1).spans)
        assert since() == second.due

    def test_what_waits_is_measured_wherever_it_is_in_its_group(self, grouped: Bench) -> None:
        def measured() -> int | None:
            return grouped.other.count(grouped.shard, sizes=True).bytes

        for size in (100, 20, 3):
            grouped.append(grouped.bundle(data=bytes(size)))
        assert measured() == 123
        grouped.claim(2, lease=20)
        assert measured() == 3
        grouped.advance(30)  # the lease expires
        assert measured() == 123

    def test_nothing_is_left_of_many_groups(self, grouped: Bench) -> None:
        many(grouped, [f"group {number % 40}" for number in range(200)])
        while taken := grouped.claim(30).spans:
            grouped.ack(*taken)
        assert grouped.leftovers() == {}
        assert grouped.other.count(grouped.shard) == ShardCounts()

    def test_a_wait_ends_when_the_next_becomes_deliverable(self, grouped: Bench) -> None:
        grouped.given()
        grouped.given()
        taken = grouped.claim(1)
        waiter = Waiter(grouped.store)
        waiter.wait([grouped.queue], 0)
        grouped.ack(*taken.spans)
        assert waiter.wait([grouped.queue], 30.0) == (grouped.queue,)
