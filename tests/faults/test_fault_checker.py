"""Each verdict of the checker, on a history written by hand, with the harmless history beside it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.written_history import Script, delivery
from tools.faults.history import Phase


def sent_and_acked(script: Script) -> None:
    script.send("m", 0)
    script.settle("ack", "m", 2, script.receive(delivery(), 1))


def test_a_message_that_is_sent_delivered_and_acked_is_in_order(script: Script) -> None:
    sent_and_acked(script)
    verdict = script.judge()
    assert verdict.kept
    assert (verdict.figures["sent"], verdict.figures["delivered"], verdict.figures["acked"]) == (1, 1, 1)


# -- lost and found


def test_a_confirmed_message_that_nobody_gets_is_lost(script: Script) -> None:
    script.send("m", 0)
    assert script.broken() == ["lost"]


def test_a_message_whose_send_is_unknown_may_be_lost_or_recovered(script: Script) -> None:
    script.send("gone", 0, phase=Phase.UNKNOWN)
    script.send("never answered", 1, phase=None)
    script.send("m", 2, phase=Phase.UNKNOWN)
    script.settle("ack", "m", 4, script.receive(delivery(), 3))
    verdict = script.judge()
    assert verdict.kept
    assert verdict.figures["send unknown"] == 3
    assert verdict.figures["recovered"] == 1


def test_a_message_that_nobody_sent_is_unexpected(script: Script) -> None:
    script.settle("ack", "m", 2, script.receive(delivery(), 1))
    assert script.broken() == ["unexpected"]


def test_a_send_that_failed_must_not_have_stored_anything(script: Script) -> None:
    script.send("absent", 0, phase=Phase.FAILED)
    assert script.broken() == []
    script.send("m", 0, phase=Phase.FAILED)
    script.settle("ack", "m", 2, script.receive(delivery(), 1))
    assert script.broken() == ["failed but stored"]


def test_a_delivered_message_that_nobody_acked_and_that_is_gone_is_lost_in_the_middle(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    assert script.broken() == ["lost in the middle"]


def test_a_failed_or_lost_ack_does_not_finish_a_message(script: Script) -> None:
    script.send("m", 0)
    batch = script.receive(delivery(), 1)
    script.settle("ack", "m", 2, batch, phase=Phase.FAILED)
    script.settle("ack", "m", 3, batch, phase=Phase.LOST)
    assert script.broken() == ["lost in the middle"]


def test_an_ack_that_was_never_answered_may_have_finished_the_message(script: Script) -> None:
    script.send("m", 0)
    script.settle("ack", "m", 2, script.receive(delivery(), 1), phase=None)
    assert script.broken() == []


def test_a_message_under_two_ids_was_stored_twice(script: Script) -> None:
    sent_and_acked(script)
    script.settle("ack", "m", 1.6, script.receive(delivery(bundle="b2"), 1.5, actor="b"), actor="b")
    assert "stored twice" in script.broken()


def test_what_is_left_after_the_drain_is_in_flight_for_ever_or_not_delivered(script: Script) -> None:
    script.send("m", 0)
    script.send("n", 0)
    assert script.broken(m="in_flight", n="ready") == ["in flight for ever", "not delivered any more"]


# -- duplicates


def test_a_second_delivery_after_the_lease_is_a_duplicate_with_a_cause(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.settle("ack", "m", 13, script.receive(delivery(count=2), 11.5, actor="b"), actor="b")
    verdict = script.judge()
    assert verdict.kept
    assert verdict.figures["delivered again: lease over"] == 1


def test_a_second_delivery_after_a_release_is_a_duplicate_with_a_cause(script: Script) -> None:
    script.send("m", 0)
    script.settle("release", "m", 2, script.receive(delivery(), 1))
    script.settle("ack", "m", 4, script.receive(delivery(count=2), 3, actor="b"), actor="b")
    verdict = script.judge()
    assert verdict.kept
    assert verdict.figures["delivered again: released"] == 1


def test_a_second_delivery_within_the_lease_means_that_two_hold_the_message(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.settle("ack", "m", 6, script.receive(delivery(count=2), 5, actor="b"), actor="b")
    assert script.broken() == ["held by two"]


def test_a_lease_that_is_over_by_the_stores_clock_is_over(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.settle("ack", "m", 6, script.receive(delivery(count=2), 5, actor="b", shift=300), actor="b")
    assert script.broken() == []


def test_an_extended_lease_counts_from_its_extension(script: Script) -> None:
    script.send("m", 0)
    script.settle("extend", "m", 8, script.receive(delivery(), 1), seconds=20)
    script.settle("ack", "m", 16, script.receive(delivery(count=2), 15, actor="b"), actor="b")
    assert script.broken() == ["held by two"]


def test_every_delivery_has_a_number_of_its_own(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.settle("ack", "m", 13, script.receive(delivery(), 12, actor="b"), actor="b")
    assert script.broken() == ["deliveries not counted"]


def test_one_receive_gives_a_message_once(script: Script) -> None:
    script.send("m", 0)
    batch = script.receive([delivery(), delivery(count=2)], 1, took=12)
    script.settle("ack", "m", 14, batch)
    assert script.broken() == ["twice in a batch"]


# -- acks and the fence


def test_who_asks_after_an_ack_has_returned_does_not_get_the_message(script: Script) -> None:
    sent_and_acked(script)
    script.receive(delivery(count=2), 20, actor="b")
    assert script.broken() == ["acked but redelivered"]


def test_a_message_whose_ack_was_confirmed_is_no_dead_letter_however_often_the_ack_was_repeated(
    script: Script,
) -> None:
    script.send("m", 0)
    for number in (1, 2, 3):
        batch = script.receive(delivery(count=number), number * 12)
    script.settle("ack", "m", 37, batch, repeated=True)
    script.receive(delivery(count=3), 60, verb="bury")
    assert script.broken() == ["acked but redelivered"]


def test_who_asked_before_the_ack_had_returned_may_get_the_message(script: Script) -> None:
    script.send("m", 0)
    batch = script.receive(delivery(), 1)
    script.receive(delivery(count=2), 11, actor="b", took=5)
    script.settle("ack", "m", 12, batch, took=3)
    assert script.broken() == []


def test_an_ack_is_not_confirmed_to_a_holder_whose_message_is_somebody_elses(script: Script) -> None:
    script.send("m", 0)
    batch = script.receive(delivery(), 1)
    script.receive(delivery(count=2), 12, actor="b")
    script.settle("ack", "m", 13, batch)
    assert script.broken() == ["acked past the fence"]


def test_a_late_ack_that_is_told_so_is_in_order(script: Script) -> None:
    script.send("m", 0)
    batch = script.receive(delivery(), 1)
    other = script.receive(delivery(count=2), 12, actor="b")
    script.settle("ack", "m", 13, batch, phase=Phase.LOST)
    script.settle("ack", "m", 14, other, actor="b")
    assert script.broken() == []


# -- time


def test_a_delayed_message_is_not_delivered_early(script: Script) -> None:
    script.send("m", 0, delay=5)
    script.settle("ack", "m", 4.5, script.receive(delivery(), 4))
    assert script.broken() == ["delivered early"]


def test_a_delay_goes_by_the_stores_clock(script: Script) -> None:
    script.send("m", 0, delay=5)
    script.settle("ack", "m", 4.5, script.receive(delivery(), 4, shift=3))
    assert script.broken() == []


def test_a_released_message_is_not_delivered_before_the_delay_of_its_release(script: Script) -> None:
    script.send("m", 0)
    script.settle("release", "m", 2, script.receive(delivery(), 1), seconds=5)
    script.settle("ack", "m", 4, script.receive(delivery(count=2), 3, actor="b"), actor="b")
    assert script.broken() == ["delivered early"]


# -- dead letters


def test_a_dead_letter_was_delivered_as_often_as_the_queue_allows(script: Script) -> None:
    script.send("m", 0)
    for number in (1, 2, 3):
        script.receive(delivery(count=number), number * 12)
    script.receive(delivery(count=3), 60, verb="bury")
    assert script.broken() == []


def test_a_message_that_was_delivered_less_often_is_dead_lettered_wrongly(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.receive(delivery(count=3), 60, verb="bury")
    assert script.broken() == ["dead lettered wrongly"]


def test_a_delivery_that_may_have_been_counted_ahead_counts(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.receive(delivery(count=2), 15)
    script.receive(delivery(count=3), 60, verb="bury")
    assert script.broken() == ["dead lettered wrongly"]
    script.claim_ahead(30, verb="start", phase=Phase.UNKNOWN)
    assert script.broken() == []


def test_deliveries_that_nobody_saw_count_where_a_receive_is_unknown(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.receive((), 15, phase=None)
    script.receive((), 30, phase=Phase.UNKNOWN)
    script.receive(delivery(count=3), 60, verb="bury")
    assert script.broken() == []


def test_a_message_is_not_delivered_more_often_than_the_queue_allows(script: Script) -> None:
    script.send("m", 0)
    script.settle("ack", "m", 3, script.receive(delivery(count=4), 1))
    assert script.broken() == ["delivered too often"]


# -- order


def two_of_a_shard(script: Script, *, late: float = 0.0) -> None:
    script.send("first", late)
    script.send("second", 0)
    script.settle("ack", "second", 3, script.receive(delivery("second", priority=5), 2), actor="a")
    script.settle("ack", "first", 5, script.receive(delivery("first", priority=1, bundle="b2"), 4), actor="a")


def test_a_waiting_message_is_not_passed_by_one_that_sorts_after_it(script: Script) -> None:
    two_of_a_shard(script)
    assert script.broken() == ["out of order"]


def test_a_message_that_was_sent_after_the_other_was_claimed_is_not_passed(script: Script) -> None:
    two_of_a_shard(script, late=3.5)
    assert script.broken() == []


def test_reads_that_overlap_have_no_order(script: Script) -> None:
    script.send("first", 0)
    script.send("second", 0)
    for body, priority, at in (("second", 5, 2.0), ("first", 1, 2.5)):
        batch = script.receive(delivery(body, priority=priority, bundle=body), at, actor=body, took=1)
        script.settle("ack", body, 5, batch, actor=body)
    assert script.broken() == []


# -- claimed ahead


def test_what_was_claimed_ahead_before_others_were_sent_may_pass_them(script: Script) -> None:
    later = delivery("second", priority=5)
    script.send("second", 0)
    script.claim_ahead(1, later)
    script.send("first", 2)
    script.settle("ack", "second", 4, script.receive(later, 3))
    script.settle("ack", "first", 6, script.receive(delivery("first", priority=1, bundle="b2"), 5))
    assert script.broken() == []


def test_what_is_claimed_ahead_must_not_pass_what_waits(script: Script) -> None:
    later = delivery("second", priority=5)
    script.send("first", 0)
    script.send("second", 0)
    script.claim_ahead(1, later)
    script.settle("ack", "second", 4, script.receive(later, 3))
    script.settle("ack", "first", 6, script.receive(delivery("first", priority=1, bundle="b2"), 5))
    assert script.broken() == ["out of order"]


def test_what_waits_with_somebody_who_claimed_it_ahead_may_be_passed(script: Script) -> None:
    script.claim_ahead(1, delivery("first", priority=1, bundle="b2"))
    two_of_a_shard(script)
    assert script.broken() == []


def test_what_a_claim_ahead_got_that_was_not_answered_is_decided_for_the_queue(script: Script) -> None:
    script.claim_ahead(1, phase=None)
    two_of_a_shard(script)
    assert script.broken() == []


def test_a_claim_ahead_that_changed_nothing_excuses_nothing(script: Script) -> None:
    script.claim_ahead(1, phase=Phase.FAILED)
    two_of_a_shard(script)
    assert script.broken() == ["out of order"]


def test_a_lease_counts_from_the_moment_at_which_the_message_was_handed_out(script: Script) -> None:
    script.send("m", 0)
    script.claim_ahead(1, delivery())
    script.receive(delivery(), 9)
    script.settle("ack", "m", 16, script.receive(delivery(count=2), 15, actor="b"), actor="b")
    assert script.broken() == ["held by two"]


def test_a_message_that_was_due_when_it_was_claimed_ahead_may_come_after_the_clock_went_back(
    script: Script,
) -> None:
    script.send("m", 0, delay=5)
    script.claim_ahead(1, delivery(), shift=5)
    script.settle("ack", "m", 3, script.receive(delivery(), 2))
    assert script.broken() == []


def test_a_lease_counts_from_the_claim_where_that_counted_the_delivery(script: Script) -> None:
    script.send("m", 0)
    script.claim_ahead(1, delivery(), verb="take")
    script.receive(delivery(), 9)
    script.settle("ack", "m", 16, script.receive(delivery(count=2), 15, actor="b"), actor="b")
    assert script.broken() == []


def test_what_was_claimed_before_it_was_acked_by_somebody_else_may_be_handed_out_after_it(
    script: Script,
) -> None:
    script.send("m", 0)
    script.claim_ahead(1, delivery(), verb="take")
    script.settle("ack", "m", 13, script.receive(delivery(count=2), 12, actor="b"), actor="b")
    script.receive(delivery(), 20)
    assert script.broken() == []


def test_what_was_claimed_after_it_was_acked_is_redelivered(script: Script) -> None:
    script.send("m", 0)
    script.settle("ack", "m", 3, script.receive(delivery(), 2, actor="b"), actor="b")
    script.claim_ahead(15, delivery(count=2), verb="take")
    script.receive(delivery(count=2), 20)
    assert script.broken() == ["acked but redelivered"]


def test_a_delivery_that_a_claim_counted_and_nobody_handed_out_counts(script: Script) -> None:
    script.send("m", 0)
    script.receive(delivery(), 1)
    script.claim_ahead(15, delivery(count=2), verb="take")
    script.receive(delivery(count=3), 60, verb="bury")
    assert script.broken() == ["dead lettered wrongly"]
    script.claim_ahead(30, delivery(count=3), verb="take")
    assert script.broken() == []


# -- any queue that keeps its promises passes


@settings(deadline=None)
@given(st.data())
def test_whatever_a_correct_queue_does_is_in_order(data: st.DataObject) -> None:
    """Messages of one shard, delivered in order by one consumer after the other, some again after their lease."""
    script, now = Script(), 1.0
    ranks = sorted(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12)))
    for number, _ in enumerate(ranks):
        script.send(f"m{number}", 0, phase=data.draw(st.sampled_from((Phase.OK, Phase.UNKNOWN, None))))
    for number, priority in enumerate(ranks):
        for count in range(1, data.draw(st.integers(1, 3)) + 1):
            seen = delivery(f"m{number}", count, priority=priority, position=number)
            batch = script.receive(seen, now, actor=f"c{count}")
            now += 11
        phase = data.draw(st.sampled_from((Phase.OK, Phase.UNKNOWN, None)))
        script.settle("ack", f"m{number}", now, batch, actor=f"c{count}", phase=phase)
        now += 1
    assert script.broken() == []


# -- moved, and never worked on


def test_what_was_sent_to_the_side_queue_and_arrived_once_is_in_order(script: Script) -> None:
    script.send("s", 0, verb="supply")
    script.send("unknown", 0, verb="supply", phase=Phase.UNKNOWN)
    script.send("never answered", 0, verb="supply", phase=None)
    script.receive(delivery("s"), 5, verb="carry")
    for at in (20, 90):  # the second time because the first was not answered
        script.receive(delivery("s", bundle="b7"), at, verb="arrive")
    assert script.broken() == []


def test_a_message_that_arrived_under_two_ids_was_moved_twice(script: Script) -> None:
    script.send("s", 0, verb="supply")
    script.receive([delivery("s", bundle=each) for each in ("b7", "b8")], 20, verb="arrive")
    assert script.broken() == ["moved twice"]


def test_a_message_of_the_side_queue_that_did_not_arrive_is_lost_on_the_move(script: Script) -> None:
    script.send("s", 0, verb="supply")
    script.receive(delivery("s"), 5, verb="carry")
    assert script.broken() == ["lost on the move"]


def test_two_dead_letters_of_a_message_are_one_too_many(script: Script) -> None:
    script.send("m", 0)
    for number in (1, 2, 3):
        script.receive(delivery(count=number), number * 12)
    script.receive([delivery(count=3, bundle=each) for each in ("b7", "b8")], 60, verb="bury")
    assert script.broken() == ["dead lettered twice"]
