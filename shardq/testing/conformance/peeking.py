"""Contract: peek, find and count show what is stored and change nothing."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import pytest
from msgspec.structs import replace

from shardq.errors import InvalidCursor
from shardq.storage.requests import EntryState, Peek, ShardCounts, StoredSlice
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_slices

__all__ = ["PeekContract"]


class PeekContract(Contract):
    """Looking without touching."""

    def test_peek_shows_every_state(self, bench: Bench) -> None:
        held = bench.given(2)
        bench.claim()
        ready, delayed = bench.given(3, priority=1), bench.given(1, priority=1, delay=600)
        shown = {each.bundle.id: each for each in bench.peek()}
        assert {key: each.state for key, each in shown.items()} == {
            held.id: EntryState.IN_FLIGHT,
            ready.id: EntryState.READY,
            delayed.id: EntryState.DELAYED,
        }
        assert shown[ready.id].bundle == ready
        assert (shown[held.id].deliveries, shown[ready.id].deliveries) == (1, 0)
        assert (shown[ready.id].due, shown[delayed.id].due) == (ready.due, delayed.due)

    def test_peek_shows_ready_messages_in_the_order_of_a_claim(self, bench: Bench) -> None:
        for priority in (4, 0, 2, 0):
            bench.given(2, priority=priority)
        peeked = of_slices(bench.peek())
        assert peeked == bench.claim().messages

    def test_peek_changes_nothing(self, bench: Bench) -> None:
        bundle = bench.given(3)
        before = bench.harness.raw_entries(bench.shard)
        for limit in (1, 2, 1000):
            bench.store.peek(Peek(bench.shard, limit))
        assert sorted(bench.harness.raw_entries(bench.shard)) == sorted(before)
        taken = bench.claim()
        assert taken.messages == of_bundle(bundle)
        assert taken.deliveries == {1}

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
    def test_pages_show_every_slice_once(self, bench: Bench, limit: int) -> None:
        bench.append(*[bench.bundle(1 + i % 4, priority=i % 3, delay=(i % 2) * 60) for i in range(15)])
        taken = bench.claim(7)
        bench.ack(taken.span(0, 1))
        peeked = of_slices(bench.peek(limit))
        assert len(set(peeked)) == len(peeked)
        assert sorted(peeked) == bench.stored()

    def test_a_cursor_of_no_page_is_refused(self, bench: Bench) -> None:
        bench.given(2)
        for processed in (False, True):
            with pytest.raises(InvalidCursor):
                bench.store.peek(Peek(bench.shard, 1, after=b"no cursor", processed=processed))

    def test_a_page_has_no_more_than_its_limit_but_for_the_last_slice(self, bench: Bench) -> None:
        bench.append(*[bench.bundle(3) for _ in range(5)])
        page = bench.store.peek(Peek(bench.shard, 4))
        assert [each.count for each in page.slices] == [3, 3]
        assert page.after

    def test_the_last_page_has_no_cursor(self, bench: Bench) -> None:
        assert bench.store.peek(Peek(bench.shard, 10)).after == b""
        bench.given(3)
        page = bench.store.peek(Peek(bench.shard, 10))
        assert (len(page.slices), page.after) == (1, b"")

    @pytest.mark.parametrize("processed", [False, True])
    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_peek_without_bodies_shows_the_same_but_for_the_data(
        self, bench: Bench, limit: int, processed: bool
    ) -> None:
        bench.append(*[bench.bundle(1 + i % 4, priority=i % 3, delay=(i % 2) * 600) for i in range(12)])
        bench.ack(*bench.claim(5).spans, keep=True)
        bench.claim(4, lease=600)
        bench.release(*bench.claim(3).spans, delay=600)
        shown = bench.peek(limit, processed=processed)
        assert len(shown) > 1
        assert all(each.bundle.data for each in shown)
        bare = [replace(each, bundle=replace(each.bundle, data=b"")) for each in shown]
        assert bench.peek(limit, processed=processed, bodies=False) == bare

    def test_a_look_shows_the_claim_that_holds_a_message_and_whether_its_delivery_counts(
        self, bench: Bench
    ) -> None:
        bundle = bench.given(4)
        bench.given(1, delay=600)
        one, two = bench.claim(1, lease=600), bench.claim(2, lease=600, started=False)
        bench.release(*bench.claim(1).spans, delay=60)
        expected = [(one.token, True), (two.token, False)]
        for bodies in (True, False):
            held = [each for each in bench.peek(bodies=bodies) if each.state is EntryState.IN_FLIGHT]
            assert sorted((each.token, each.started) for each in held) == sorted(expected)
        found = [bench.store.find(bench.shard, bundle.id, place) for place in (0, 1)]
        assert [each and (each.token, each.started) for each in found] == expected
        waiting = [each for each in bench.peek() if each.state is not EntryState.IN_FLIGHT]
        assert {(each.token, each.started) for each in waiting} == {(None, True)}

    def test_nobody_holds_what_was_given_back_acked_or_is_free_again(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim(lease=20)
        bench.ack(taken.span(0, 1), keep=True)
        bench.release(taken.span(1, 1))
        bench.advance(30)
        assert {each.token for each in (*bench.peek(), *bench.peek(processed=True))} == {None}
        assert bench.store.peek(Peek(bench.shard, 10, held=True)).slices == ()

    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_a_look_at_a_time_shows_what_is_due_then_and_nothing_else(self, bench: Bench, limit: int) -> None:
        century = 100 * 365 * 86_400
        delays = (-5, 0, 600, 600, 660, 720, century, century + 1)
        bundles = [bench.bundle(1 + i % 3, priority=i % 2, delay=each) for i, each in enumerate(delays)]
        bench.append(*bundles)
        moments = sorted(each.due for each in bundles)
        for since, until in ((0, 3), (2, 6), (3, 3), (5, 7), (7, 7)):
            first, end = moments[since], moments[until] + 1
            wanted = sorted((e.priority, e.due, e.id) for e in bundles if first <= e.due < end)
            for bodies in (True, False):
                shown = _due_within(bench, first, end, limit, bodies=bodies)
                assert [(e.bundle.priority, e.due, e.bundle.id) for e in shown] == wanted
                assert all(bool(each.bundle.data) == bodies for each in shown)
        assert _due_within(bench, moments[-1] + 1, moments[-1] + 2, limit) == []

    def test_a_look_at_a_time_shows_nothing_that_is_held_beyond_it(self, bench: Bench) -> None:
        bundle, other = bench.given(2), bench.given(1)
        bench.claim(1, lease=600)
        first, end = bundle.due, other.due + 1
        assert all(first <= each.due < end for each in _due_within(bench, first, end, 10))
        assert other.id in {each.bundle.id for each in _due_within(bench, first, end, 10)}

    @pytest.mark.parametrize("limit", [1, 2, 1000])
    def test_a_look_at_what_is_held_shows_all_of_it_and_nothing_else(self, bench: Bench, limit: int) -> None:
        bench.append(*[bench.bundle(1 + i % 4, priority=i % 3) for i in range(12)])
        tokens = {bench.claim(3, lease=600).token for _ in range(4)}
        late = bench.claim(2, lease=10)
        bench.release(*bench.claim(2).spans, delay=60)
        bench.advance(15)
        for bodies in (True, False):
            held = bench.peek(limit, bodies=bodies, held=True)
            assert len(set(of_slices(held))) == sum(each.count for each in held) == 12
            assert {each.token for each in held} == tokens
            assert {each.state for each in held} == {EntryState.IN_FLIGHT}
            assert all(bool(each.bundle.data) is bodies for each in held)
        assert late.token not in tokens

    def test_find_shows_the_slice_of_a_message_in_any_state(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = bench.claim(4)
        bench.ack(taken.span(1, 1))
        bench.release(taken.span(0, 1), delay=60)
        bench.ack(taken.span(2, 1), keep=True)
        states = {i: self._state(bench, bundle.id, i) for i in range(7)}
        assert states == {
            0: EntryState.DELAYED,
            1: None,
            2: EntryState.PROCESSED,
            3: EntryState.IN_FLIGHT,
            4: EntryState.READY,
            5: EntryState.READY,
            6: None,
        }

    def test_find_shows_bundle_deliveries_and_due_time(self, bench: Bench) -> None:
        bundle = bench.given(3, priority=2)
        until = bench.claim(1).claimed.lease_until
        held = bench.other.find(bench.shard, bundle.id, 0)
        rest = bench.other.find(bench.shard, bundle.id, 2)
        assert held is not None
        assert rest is not None
        assert held.bundle == rest.bundle == bundle
        assert (held.first, held.count, held.deliveries, held.due) == (0, 1, 1, until)
        assert (rest.first, rest.count, rest.deliveries, rest.due) == (1, 2, 0, bundle.due)

    def test_messages_that_are_looked_for_together_are_found_as_each_alone(self, bench: Bench) -> None:
        bundle, other, gone = bench.given(6), bench.given(2, priority=1), bench.given(1, priority=2)
        taken = bench.claim(3, lease=600)
        bench.ack(taken.span(0, 1), keep=True)
        bench.ack(taken.span(1, 1))
        bench.store.remove(bench.shard, gone.id, 0)
        places = [(bundle.id, 5), (gone.id, 0), (other.id, 1), *((bundle.id, each) for each in range(7))]
        places += [(other.id, 0), (bytes(16), 0), (bundle.id, 2)]
        found = bench.other.find_many(bench.shard, places)
        assert found == tuple(bench.other.find(bench.shard, *each) for each in places)
        assert [each and each.state for each in found[3:8]] == [
            EntryState.PROCESSED,
            None,
            EntryState.IN_FLIGHT,
            EntryState.READY,
            EntryState.READY,
        ]
        assert bench.other.find_many(bench.shard, []) == ()

    def test_find_sees_only_its_shard(self, bench: Bench) -> None:
        bundle = bench.given(1)
        assert bench.store.find(bench.shard_of(bench.queue, 1, 0), bundle.id, 0) is None
        assert bench.store.find(bench.shard, bench.bundle().id, 0) is None

    def test_count_tells_the_messages_by_state(self, bench: Bench) -> None:
        bench.given(5)
        bench.given(2, delay=60)
        sent = bench.peek()[0].bundle
        taken = bench.claim(3)
        assert bench.other.count(bench.shard) == ShardCounts(
            ready=2, delayed=2, in_flight=3, processed=0, oldest=sent.enqueued_at, ready_since=sent.due
        )
        bench.ack(taken.span(0, 2), keep=True)
        counts = bench.other.count(bench.shard)
        assert (counts.ready, counts.delayed, counts.in_flight, counts.processed) == (2, 2, 1, 2)

    @pytest.mark.parametrize("size", [10, 1_000, 20_000])
    def test_count_measures_what_is_ready_or_delayed_when_it_is_asked_to(
        self, bench: Bench, size: int
    ) -> None:
        def measured() -> int | None:
            return bench.other.count(bench.shard, sizes=True).bytes

        assert measured() == 0
        bundles = [
            bench.bundle(data=bytes(size)),
            bench.bundle(4, data=bytes(4 * size)),
            bench.bundle(2, delay=600, data=bytes(2 * size)),
        ]
        bench.append(*bundles)
        assert bench.other.count(bench.shard).bytes is None
        assert measured() == 7 * size
        taken = bench.claim(3, lease=20)
        assert measured() == 4 * size
        bench.ack(taken.span(0, 1), keep=True)
        bench.release(taken.span(0, 1, of=1))
        assert measured() == 5 * size
        bench.advance(30)  # the last lease expires
        assert measured() == 6 * size
        bench.ack(*bench.claim().spans)
        assert measured() == 2 * size
        bench.store.purge(bench.shard)
        assert measured() == 0

    def test_count_of_an_empty_shard_is_nothing(self, bench: Bench) -> None:
        assert bench.store.count(bench.shard) == ShardCounts()
        assert bench.store.count(bench.shard_of(bench.queue, 4, 4)) == ShardCounts()

    def test_a_delayed_message_is_counted_as_ready_when_it_is_due(self, bench: Bench) -> None:
        bench.given(2, delay=20)
        bench.advance(30)
        counts = bench.store.count(bench.shard)
        assert (counts.ready, counts.delayed) == (2, 0)

    def test_the_oldest_is_the_one_sent_first(self, bench: Bench) -> None:
        first = bench.given(1, priority=9)
        bench.advance(10)
        second = bench.given(1, priority=0)
        assert bench.store.count(bench.shard).oldest == first.enqueued_at
        bench.store.remove(bench.shard, first.id, 0)
        assert bench.store.count(bench.shard).oldest == second.enqueued_at

    def test_messages_are_ready_since_they_are_due_and_not_while_they_are_delayed_or_held(
        self, bench: Bench
    ) -> None:
        later = bench.given(1, delay=20)
        counts = bench.store.count(bench.shard)
        assert (counts.oldest, counts.ready_since) == (later.enqueued_at, None)
        bench.advance(30)
        assert bench.store.count(bench.shard).ready_since == later.due
        until = bench.claim(1, lease=30).claimed.lease_until
        assert bench.store.count(bench.shard).ready_since is None
        bench.advance(31)
        assert bench.store.count(bench.shard).ready_since == until

    def _state(self, bench: Bench, bundle_id: bytes, position: int) -> EntryState | None:
        found = bench.other.find(bench.shard, bundle_id, position)
        if found is None:
            return None
        assert found.first <= position < found.first + found.count
        return found.state


def _due_within(
    bench: Bench, since: int, until: int, limit: int, *, bodies: bool = True
) -> list[StoredSlice]:
    """Read pending messages that are due within a time, page by page."""
    found: list[StoredSlice] = []
    after = b""
    while True:
        request = Peek(bench.shard, limit, after, since=since, until=until, bodies=bodies)
        page = bench.store.peek(request)
        found += page.slices
        if not (after := page.after):
            return found
