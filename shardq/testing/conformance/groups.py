"""Contract: the messages of a group are delivered in the order of their appends, one claim at a time.

It is for stores whose ``capabilities.groups`` says that they have groups.
"""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from collections.abc import Sequence

import pytest

from shardq.base.shard import GROUP_TIME_SHARD
from shardq.storage.requests import Bundle, Fenced, Finish
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_bundles, of_slices

__all__ = ["GroupContract", "GroupedContract", "many"]


class GroupedContract(Contract):
    """Tests of a shard of groups, in which a bundle is of group "a" unless it is said."""

    @pytest.fixture
    def grouped(self, bench: Bench) -> Bench:
        """Let the bench work in a shard of groups."""
        if not bench.store.capabilities.groups:
            pytest.skip("the store has no groups")
        bench.shard, bench.group = bench.shard_of(bench.queue, GROUP_TIME_SHARD, 3), "a"
        return bench


def many(bench: Bench, groups: Sequence[str]) -> list[Bundle]:
    """Make and store a bundle of one message for each group, in one append."""
    bundles = [bench.bundle(group=group) for group in groups]
    bench.append(*bundles)
    return bundles


class GroupContract(GroupedContract):
    """Order, and what holds a group up."""

    def test_the_order_is_that_of_the_appends_whatever_the_ids(self, grouped: Bench) -> None:
        bundles = [grouped.bundle(1 + i % 2) for i in range(6)]
        for bundle in reversed(bundles):
            grouped.append(bundle)
        assert grouped.claim(by=grouped.other).messages == of_bundles(*reversed(bundles))

    def test_the_bundles_of_an_append_are_in_its_order(self, grouped: Bench) -> None:
        late, soon = grouped.bundle(), grouped.bundle(2)
        grouped.append(soon, late)
        assert grouped.claim().messages == of_bundles(soon, late)

    def test_every_slice_comes_with_its_group(self, grouped: Bench) -> None:
        bundle = grouped.given(3, group="zürich \N{SNOWMAN} 1")
        assert grouped.claim(1).slices[0].bundle == bundle
        assert {each.bundle.group for each in grouped.peek()} == {bundle.group}
        found = grouped.store.find(grouped.shard, bundle.id, 2)
        assert found is not None
        assert found.bundle == bundle

    @pytest.mark.parametrize(
        "group", ["A", "a ", " a", "a\0", "a\0b", "\0", "aa", "'", "é", "e\u0301", "x" * 200]
    )
    def test_groups_of_other_names_are_other_groups(self, grouped: Bench, group: str) -> None:
        first, second = grouped.given(), grouped.given()
        others = [grouped.given(group=group), grouped.given(group=group)]
        held = [grouped.claim(2), grouped.claim(2)]
        assert sorted(held[0].messages) == of_bundles(first, others[0])
        assert held[1].messages == []
        grouped.ack(*held[0].spans)
        assert sorted(grouped.claim().messages) == of_bundles(second, others[1])

    def test_none_is_delivered_while_an_earlier_one_is_in_flight(self, grouped: Bench) -> None:
        first, second = grouped.given(), grouped.given()
        taken = grouped.claim(1)
        assert taken.messages == of_bundle(first)
        assert grouped.claim(by=grouped.other).messages == []
        later = grouped.given()
        assert grouped.claim(by=grouped.other).messages == []
        grouped.ack(*taken.spans)
        assert grouped.claim(by=grouped.other).messages == of_bundles(second, later)

    def test_other_groups_go_on(self, grouped: Bench) -> None:
        first = many(grouped, ["a", "b", "c"])
        second = many(grouped, ["a", "b", "c"])
        held = {each.bundle.group: each for each in grouped.claim(3).slices}
        assert set(held) == {"a", "b", "c"}
        taken = grouped.claim(3)
        assert taken.messages == []
        again = grouped.store.find(grouped.shard, first[1].id, 0)
        assert again is not None
        new = grouped.given(group="d")
        assert grouped.claim(by=grouped.other).messages == of_bundle(new)
        del second

    def test_a_group_that_is_acked_goes_on_while_another_one_is_held(self, grouped: Bench) -> None:
        many(grouped, ["a", "b"])
        second = many(grouped, ["a", "b"])
        taken = grouped.claim(2)
        (of_b,) = [index for index, each in enumerate(taken.slices) if each.bundle.group == "b"]
        grouped.ack(taken.span(0, 1, of=of_b))
        assert grouped.claim(by=grouped.other).messages == of_bundle(second[1])

    @pytest.mark.parametrize("limit", [1, 1000])
    def test_a_look_at_what_is_held_shows_the_front_of_each_group(self, grouped: Bench, limit: int) -> None:
        many(grouped, ["a", "b", "a", "b", "b", "c"])
        taken = grouped.claim(4, lease=600)
        held = grouped.peek(limit, held=True)
        assert sorted(of_slices(held)) == sorted(taken.messages)
        assert {each.token for each in held} == {taken.token}

    def test_a_claim_with_room_takes_what_follows_in_order(self, grouped: Bench) -> None:
        bundles = many(grouped, ["a", "b", "a", "a", "b"])
        taken = grouped.claim(5)
        for group in "ab":
            came = [each.bundle.id for each in taken.slices if each.bundle.group == group]
            assert came == [each.id for each in bundles if each.group == group]
        assert grouped.claim().messages == []

    def test_a_claim_of_few_messages_takes_the_first_ones_of_groups(self, grouped: Bench) -> None:
        bundles = many(grouped, ["a", "a", "b", "b", "c"])
        assert grouped.claim(3).messages == of_bundles(bundles[0], bundles[2], bundles[4])

    def test_the_rest_of_a_split_slice_waits_for_the_front(self, grouped: Bench) -> None:
        bundle = grouped.given(5)
        taken = grouped.claim(2)
        assert taken.messages == of_bundle(bundle, 0, 2)
        assert grouped.waiting() == of_bundle(bundle, 2)
        assert grouped.claim(by=grouped.other).messages == []
        grouped.ack(taken.span(0, 1))
        assert grouped.claim(by=grouped.other).messages == []
        grouped.ack(taken.span(1, 1))
        rest = grouped.claim(by=grouped.other)
        assert rest.messages == of_bundle(bundle, 2)
        assert rest.deliveries == {1}

    def test_acks_out_of_order_let_the_group_go_on_when_nothing_before_is_left(self, grouped: Bench) -> None:
        bundle, later = grouped.given(3), grouped.given()
        taken = grouped.claim(3)
        for position in (1, 2):
            assert grouped.ack(taken.span(position, 1)) == Fenced()
            assert grouped.claim(by=grouped.other).messages == []
        assert grouped.held() == of_bundle(bundle, 0, 1)
        grouped.ack(taken.span(0, 1))
        assert grouped.claim(by=grouped.other).messages == of_bundle(later)

    def test_what_is_acked_in_the_middle_is_left_out(self, grouped: Bench) -> None:
        bundle = grouped.given(4)
        taken = grouped.claim(lease=5)
        grouped.ack(taken.span(1, 2))
        grouped.advance(10)
        assert grouped.claim(by=grouped.other).messages == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 3)]

    def test_a_later_message_that_is_due_waits_for_an_earlier_one_that_is_not(self, grouped: Bench) -> None:
        delayed, due = grouped.given(delay=30), grouped.given()
        assert grouped.claim().messages == []
        grouped.advance(40)
        assert grouped.claim(by=grouped.other).messages == of_bundles(delayed, due)

    def test_a_claim_goes_on_as_far_as_messages_are_due(self, grouped: Bench) -> None:
        due, delayed, last = grouped.given(), grouped.given(delay=30), grouped.given()
        taken = grouped.claim()
        assert taken.messages == of_bundle(due)
        grouped.ack(*taken.spans)
        assert grouped.claim(by=grouped.other).messages == []
        grouped.advance(40)
        assert grouped.claim(by=grouped.other).messages == of_bundles(delayed, last)

    def test_priorities_order_groups_and_not_their_messages(self, grouped: Bench) -> None:
        low = grouped.given(priority=8)
        high = grouped.given(priority=1)
        other = grouped.given(priority=5, group="b")
        assert grouped.claim(1).messages == of_bundle(other)
        assert grouped.claim().messages == of_bundles(low, high)

    def test_a_repeated_append_neither_moves_nor_doubles_a_message(self, grouped: Bench) -> None:
        first, second = grouped.given(), grouped.given()
        grouped.append(first, by=grouped.other)
        taken = grouped.claim(1)
        grouped.append(first, second)
        grouped.ack(*taken.spans)
        grouped.append(first)
        assert grouped.claim().messages == of_bundle(second)

    def test_a_repeated_claim_holds_the_same_in_order(self, grouped: Bench) -> None:
        bundles = many(grouped, ["a", "b", "a", "b", "a"])
        taken = grouped.claim(4)
        again = grouped.claim(4, token=taken.token, by=grouped.other)
        assert sorted(again.messages) == sorted(taken.messages)
        for group in "ab":
            came = [each.bundle.id for each in again.slices if each.bundle.group == group]
            assert came == [each.id for each in bundles if each.group == group][: len(came)]
        assert grouped.claim(by=grouped.other).messages == []

    def test_a_claim_may_finish_and_the_group_goes_on(self, grouped: Bench) -> None:
        bundles = [grouped.given(2), grouped.given()]
        came = []
        for _ in range(3):
            taken = grouped.claim(1, finish=Finish())
            came += taken.messages
            grouped.ack(
                *(span for span, each in zip(taken.spans, taken.slices, strict=True) if not each.finished)
            )
        assert came == of_bundles(*bundles)

    def test_an_append_that_follows_the_last_message_is_delivered(self, grouped: Bench) -> None:
        for _ in range(3):
            bundle = grouped.given()
            taken = grouped.claim()
            assert taken.messages == of_bundle(bundle)
            grouped.ack(*taken.spans)
        assert grouped.leftovers() == {}
