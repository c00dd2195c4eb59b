"""Contract: the held messages of a group are its front part, and one claim holds all of them."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from msgspec.structs import replace

from shardq.storage.requests import BLOCKED, Acknowledge, Bundle, Claim, Fenced, Span
from shardq.storage.store import Store
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.groups import GroupedContract, many
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["GroupLeaseContract"]


class GroupLeaseContract(GroupedContract):
    """Leases of groups: released, run out, extended, taken over."""

    def test_a_released_message_comes_first_again(self, grouped: Bench) -> None:
        bundle, later = grouped.given(2), grouped.given()
        taken = grouped.claim(1)
        grouped.release(*taken.spans)
        again = grouped.claim(by=grouped.other)
        assert again.messages == of_bundles(bundle, later)
        assert again.slices[0].deliveries == 2

    def test_the_group_waits_for_a_retry(self, grouped: Bench) -> None:
        bundle, later = grouped.given(), grouped.given()
        grouped.release(*grouped.claim(1).spans, delay=20)
        other = grouped.given(group="b")
        taken = grouped.claim(by=grouped.other)
        assert taken.messages == of_bundle(other)
        grouped.ack(*taken.spans)
        grouped.advance(30)
        assert grouped.claim(by=grouped.other).messages == of_bundles(bundle, later)

    @pytest.mark.parametrize("delay", [0, 20])
    @pytest.mark.parametrize("started", [True, False])
    def test_a_release_gives_back_what_is_held_behind(
        self, grouped: Bench, delay: float, started: bool
    ) -> None:
        first, middle, last = grouped.given(2), grouped.given(), grouped.given(2)
        taken = grouped.claim(started=started)
        assert grouped.release(taken.span(1, 1), delay=delay, started=started) == Fenced()
        assert grouped.held() == of_bundle(first, 0, 1)
        fenced = grouped.ack(*taken.spans)
        assert sorted(of_spans(fenced.lost)) == sorted([*of_bundle(first, 1), *of_bundles(middle, last)])
        assert (grouped.claim(lease=30, by=grouped.other).messages == []) is (delay > 0)
        grouped.advance(60)
        again = grouped.claim(by=grouped.other)
        assert again.messages == [*of_bundle(first, 1), *of_bundles(middle, last)]

    def test_a_group_waits_for_a_message_that_blocks_it(self, grouped: Bench) -> None:
        first, later = grouped.given(), grouped.given()
        front, _ = grouped.claim().spans
        assert grouped.extend(front, blocks=True) == Fenced()
        grouped.advance(60)
        assert grouped.claim(by=grouped.other).messages == []
        assert [(each.bundle.id, each.blocks) for each in grouped.peek()] == [
            (first.id, True),
            (later.id, False),
        ]
        assert [(each.bundle.id, each.token) for each in grouped.peek(held=True)] == [(first.id, BLOCKED)]
        assert grouped.ack(*_blocked(front)) == Fenced()
        assert grouped.claim(by=grouped.other).messages == of_bundle(later)

    def test_what_blocks_a_group_is_lost_to_the_claim_that_held_it(self, grouped: Bench) -> None:
        bundle, later = grouped.given(3), grouped.given()
        taken = grouped.claim(2)
        blocks = taken.span(1, 1)
        assert grouped.extend(blocks, blocks=True) == Fenced()
        for client in (grouped.store, grouped.other):
            assert grouped.ack(blocks, by=client) == Fenced(lost=(blocks,))
            assert grouped.release(blocks, by=client) == Fenced(lost=(blocks,))
            assert grouped.extend(blocks, lease=1, by=client) == Fenced(lost=(blocks,))
            assert grouped.extend(blocks, blocks=True, by=client) == Fenced(lost=(blocks,))
        assert grouped.forward((blocks,), grouped.bundle(), in_place=True) == Fenced(lost=(blocks,))
        assert grouped.ack(*taken.spans) == Fenced(lost=(blocks,))
        assert grouped.held() == of_bundle(bundle, 1, 1)
        instead = grouped.bundle()
        assert grouped.forward(_blocked(blocks), instead, in_place=True) == Fenced()
        assert grouped.forward(_blocked(blocks), instead, in_place=True) == Fenced(lost=_blocked(blocks))
        again = grouped.claim(by=grouped.other)
        assert again.messages == [*of_bundle(instead), *of_bundle(bundle, 2), *of_bundle(later)]

    def test_a_repeated_claim_leaves_out_what_blocks_its_group(self, grouped: Bench) -> None:
        first, other = grouped.given(3), grouped.given(group="b")
        taken = grouped.claim(lease=5)
        grouped.extend(taken.span(1, 1), blocks=True)
        again = grouped.claim(token=taken.token, lease=5)
        assert sorted(again.messages) == sorted([*of_bundle(first, 0, 1), *of_bundle(other)])
        grouped.ack(*again.spans)
        new = grouped.given(group="b")
        assert grouped.claim(token=taken.token, lease=5).messages == of_bundle(new)
        grouped.advance(10)
        assert grouped.claim(by=grouped.other).messages == of_bundle(new)
        assert grouped.held() == sorted([*of_bundle(first, 1, 1), *of_bundle(new)])

    @pytest.mark.parametrize("starts", [True, False])
    def test_a_message_that_blocks_gives_back_what_is_held_behind(self, grouped: Bench, starts: bool) -> None:
        first, middle, last = grouped.given(3), grouped.given(), grouped.given(2)
        other = grouped.given(group="b")
        taken = grouped.claim(started=not starts)
        blocks = taken.span(1, 1)
        assert grouped.extend(blocks, starts=starts, blocks=True) == Fenced()
        assert grouped.held() == [*of_bundle(first, 0, 2), *of_bundle(other)]
        behind = [*of_bundle(first, 2), *of_bundles(middle, last)]
        later = [span for span in taken.spans if span.bundle_id in (middle.id, last.id)]
        for use in (grouped.extend, grouped.release, grouped.ack):
            assert sorted(of_spans(use(taken.span(2, 1), *later).lost)) == behind
        grouped.advance(30)
        assert grouped.claim(by=grouped.other).messages == []
        assert grouped.ack(taken.span(0, 1), *_blocked(blocks)) == Fenced()
        again = grouped.claim(by=grouped.other)
        assert (again.messages, again.deliveries) == (behind, {1})

    def test_messages_that_block_together_stay_so_up_to_the_first_other_one(self, grouped: Bench) -> None:
        bundle, later = grouped.given(5), grouped.given()
        taken = grouped.claim()
        grouped.ack(taken.span(1, 1))
        kept = (taken.span(0, 1), taken.span(2, 1))
        assert grouped.extend(*kept, taken.span(4, 1), blocks=True) == Fenced()
        assert grouped.held() == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 2, 1)]
        assert grouped.ack(*_blocked(*kept)) == Fenced()
        assert grouped.claim(by=grouped.other).messages == [*of_bundle(bundle, 3), *of_bundle(later)]

    def test_what_blocks_goes_back_with_what_is_before_it(self, grouped: Bench) -> None:
        bundle = grouped.given(2)
        taken = grouped.claim()
        grouped.extend(taken.span(1, 1), blocks=True)
        assert grouped.release(taken.span(0, 1)) == Fenced()
        assert grouped.ack(*_blocked(taken.span(1, 1))) == Fenced(lost=_blocked(taken.span(1, 1)))
        assert grouped.claim(by=grouped.other).messages == of_bundle(bundle)

    def test_what_is_given_back_from_behind_is_not_counted(self, grouped: Bench) -> None:
        first, later = grouped.given(), grouped.given(2)
        taken = grouped.claim()
        grouped.release(taken.span(0, 1), delay=5)
        grouped.advance(10)
        counted = {each.bundle.id: each.deliveries for each in grouped.claim().slices}
        assert counted == {first.id: 2, later.id: 1}

    def test_what_a_release_names_is_counted_wherever_it_is(self, grouped: Bench) -> None:
        bundle = grouped.given(3)
        taken = grouped.claim()
        grouped.release(taken.span(0, 1), taken.span(2, 1))
        found = {
            each.first + i: each.deliveries for each in grouped.claim().slices for i in range(each.count)
        }
        assert found == {0: 2, 1: 1, 2: 2}
        del bundle

    def test_a_release_in_one_group_leaves_the_others_held(self, grouped: Bench) -> None:
        bundles = many(grouped, ["a", "b", "a", "b"])
        taken = grouped.claim()
        (of_a,) = [span for span in taken.spans if span.bundle_id == bundles[0].id]
        grouped.release(of_a)
        assert grouped.held() == of_bundles(bundles[1], bundles[3])

    def test_a_later_message_that_is_given_back_waits_behind_the_front(self, grouped: Bench) -> None:
        bundle = grouped.given(3)
        taken = grouped.claim()
        grouped.release(taken.span(2, 1), delay=20)
        assert grouped.claim(by=grouped.other).messages == []
        grouped.ack(taken.span(0, 2))
        assert grouped.claim(by=grouped.other).messages == []
        grouped.advance(30)
        assert grouped.claim(by=grouped.other).messages == of_bundle(bundle, 2)

    def test_when_a_lease_runs_out_the_group_comes_again_in_order(self, grouped: Bench) -> None:
        bundles = [grouped.given(2), grouped.given(), grouped.given()]
        grouped.claim(3, lease=5)
        grouped.advance(10)
        again = grouped.claim(by=grouped.other)
        assert again.messages == of_bundles(*bundles)
        assert [each.deliveries for each in again.slices] == [2, 2, 1]

    def test_a_later_message_whose_lease_runs_out_waits_for_the_front(self, grouped: Bench) -> None:
        first, second = grouped.given(), grouped.given()
        taken = grouped.claim(lease=5)
        grouped.extend(taken.span(0, 1), lease=60)
        grouped.advance(10)
        assert grouped.claim(by=grouped.other).messages == []
        grouped.ack(taken.span(0, 1))
        assert grouped.claim(by=grouped.other).messages == of_bundle(second)
        del first

    @pytest.mark.parametrize("limit", [1, 2, 1000])
    def test_who_takes_the_front_over_takes_all_that_was_held(self, grouped: Bench, limit: int) -> None:
        bundles = [grouped.given(2), grouped.given(), grouped.given(2), grouped.given()]
        taken = grouped.claim(5, lease=5)
        grouped.extend(*taken.spans[1:], lease=500)
        grouped.advance(10)
        other = grouped.claim(limit, by=grouped.other)
        assert other.messages == of_bundles(*bundles)[:limit]
        assert grouped.held() == sorted(other.messages)
        lost = grouped.ack(*taken.spans).lost
        assert sorted(of_spans(lost)) == of_bundles(*bundles)[:5]
        assert grouped.claim().messages == []
        grouped.ack(*other.spans, by=grouped.other)
        assert grouped.claim().messages == of_bundles(*bundles)[limit:]

    def test_who_takes_the_front_over_takes_what_follows_while_there_is_room(self, grouped: Bench) -> None:
        bundles = [grouped.given(5), *(grouped.given() for _ in range(5))]
        grouped.claim(5, lease=5)
        grouped.advance(10)
        other = grouped.claim(8, by=grouped.other)
        assert other.messages == of_bundles(*bundles)[:8]

    def test_a_lease_that_ran_out_counts_while_nobody_took_the_front(self, grouped: Bench) -> None:
        bundles = [grouped.given(2), grouped.given()]
        taken = grouped.claim(lease=5)
        grouped.advance(10)
        assert grouped.ack(taken.span(1, 1)) == Fenced()
        assert grouped.extend(taken.span(0, 1), *taken.spans[1:]) == Fenced()
        assert grouped.claim(by=grouped.other).messages == []
        assert grouped.held() == [*of_bundle(bundles[0], 0, 1), *of_bundle(bundles[1])]

    @pytest.mark.parametrize("limit", [1, 2, 1000])
    def test_what_is_started_behind_a_lease_that_is_over_goes_with_the_front(
        self, grouped: Bench, limit: int
    ) -> None:
        bundles = [grouped.given(), grouped.given(), grouped.given()]
        taken = grouped.claim(lease=5, started=False)
        first, second, third = taken.spans
        assert grouped.extend(first, lease=5, starts=True) == Fenced()
        grouped.advance(10)
        assert grouped.extend(second, lease=500, starts=True) == Fenced()
        other = grouped.claim(limit, by=grouped.other)
        assert other.messages == of_bundles(*bundles)[:limit]
        assert grouped.held() == sorted(other.messages)
        assert sorted(of_spans(grouped.extend(third, lease=500, starts=True).lost)) == of_bundle(bundles[2])
        assert sorted(of_spans(grouped.ack(first, second).lost)) == of_bundles(*bundles[:2])
        assert grouped.claim().messages == []

    def test_what_was_not_started_is_not_counted_when_it_is_taken_over(self, grouped: Bench) -> None:
        grouped.given(2)
        grouped.claim(lease=5, started=False)
        grouped.advance(10)
        taken = grouped.claim(1)
        assert taken.deliveries == {1}
        grouped.ack(*taken.spans)
        assert grouped.claim().deliveries == {1}

    def test_an_extension_keeps_the_order(self, grouped: Bench) -> None:
        bundle, later = grouped.given(3), grouped.given()
        taken = grouped.claim(3, lease=5)
        assert grouped.extend(*taken.spans, lease=30, starts=True) == Fenced()
        grouped.extend(taken.span(2, 1), lease=1)
        grouped.advance(10)
        assert grouped.claim(by=grouped.other).messages == []
        grouped.ack(taken.span(0, 2))
        assert grouped.claim(by=grouped.other).messages == [*of_bundle(bundle, 2), *of_bundle(later)]

    def test_clients_that_work_at_once_keep_every_group_in_order(self, grouped: Bench) -> None:
        sent: dict[str, list[Bundle]] = {}
        for bundle in many(grouped, [f"g{number % 5}" for number in range(60)]):
            sent.setdefault(bundle.group, []).append(bundle)
        done: dict[str, list[bytes]] = {group: [] for group in sent}
        working: set[str] = set()
        guard = threading.Lock()

        def work(store: Store) -> None:
            while any(len(done[group]) < len(sent[group]) for group in sent):
                token = os.urandom(16)
                claim = partial(store.claim, Claim(grouped.shard, token, 4, grouped.duration(600)))
                taken = grouped.persist(claim).slices
                groups = {each.bundle.group for each in taken}
                with guard:
                    assert not groups & working, "two claims hold one group"
                    working.update(groups)
                    for each in taken:
                        done[each.bundle.group].append(each.bundle.id)
                    working.difference_update(groups)
                spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in taken)
                grouped.persist(partial(store.acknowledge, Acknowledge(grouped.shard, spans)))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, [grouped.store, grouped.other, grouped.store, grouped.other]))
        assert done == {group: [each.id for each in bundles] for group, bundles in sent.items()}
        assert grouped.leftovers() == {}


def _blocked(*spans: Span) -> tuple[Span, ...]:
    """Return the same messages, as ones that block their groups."""
    return tuple(replace(span, token=BLOCKED) for span in spans)
