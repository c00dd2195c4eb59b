"""What the checker says of what is built on queues: subscriptions, occurrences of schedules, large bodies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tools.faults.films import judge_films
from tools.faults.history import Delivery, Event, Phase
from tools.faults.offence import Offence
from tools.faults.published import judge_published
from tools.faults.ticks import judge_ticks

DAY, NIGHT = "week.day u1-1", "week.night u1-2"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Script:
    """Operations one after the other."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._at = itertools.count(1)

    def publish(self, *bodies: str, phase: Phase = Phase.OK) -> None:
        for body in bodies:
            number = next(self._at)
            self._event("publish", Phase.INVOKE, number, bodies=(body,))
            self._event("publish", phase, number, bodies=(body,))

    def hear(self, subscription: str, *bodies: str, copy: int = 1) -> None:
        identity = f"_shardq/topics/faults1/{subscription}/life:0:0:{copy}"
        self._event(
            "hear", Phase.OK, deliveries=[Delivery(each, f"{identity}:{each}", 5, 0, 1) for each in bodies]
        )

    def tick(self, second: float, *, identity: str = "", late: float = 0.0) -> None:
        moment = NOON + timedelta(seconds=second)
        sent = int((moment.timestamp() + late) * 1e6)
        self._event(
            "tick", Phase.OK, deliveries=[Delivery(moment.isoformat(), identity or str(second), 5, sent, 1)]
        )

    def end_schedule(self, *, after: int) -> None:
        self._event("ticked", Phase.OK, note=str(after))

    def film(self, *verbs: str, phase: Phase = Phase.OK, identity: str = "one") -> None:
        """What became of a large body: ``film`` is a send, what is not a verb is what was read."""
        for verb in verbs:
            known = verb in ("film", "pass", "watched")
            if not known:
                got = [Delivery("f1-1", identity, 5, 0, 1)]
                self._event("watch", Phase.OK, deliveries=got)
            number = next(self._at)
            name = verb if known else "view"
            self._event(name, Phase.INVOKE, number, bodies=("f1-1",))
            self._event(name, phase, number, bodies=("f1-1",), note="" if known else verb)

    def verdict(self, judge: Callable[[Sequence[Event]], list[Offence]]) -> dict[str, int]:
        return {each.promise: each.count for each in judge(self.events)}

    def _event(
        self,
        verb: str,
        phase: Phase,
        number: int = 1,
        *,
        bodies: tuple[str, ...] = (),
        deliveries: Sequence[Delivery] = (),
        note: str = "",
    ) -> None:
        more = {"bodies": bodies, "deliveries": tuple(deliveries), "note": note}
        self.events.append(
            Event(at=next(self._at), actor="u1.1", number=number, verb=verb, phase=phase, **more)  # type: ignore[arg-type]
        )


@pytest.fixture
def script() -> Script:
    return Script()


def test_each_subscription_gets_what_it_takes_also_several_times_under_one_id(script: Script) -> None:
    script.publish(DAY, NIGHT)
    script.hear("all", DAY, NIGHT)
    script.hear("all", DAY)
    script.hear("nights", NIGHT)
    assert script.verdict(judge_published) == {}


def test_what_was_published_for_sure_and_did_not_come_to_a_subscription_is_lost(script: Script) -> None:
    script.publish(DAY, NIGHT)
    script.publish("week.night u1-3", phase=Phase.UNKNOWN)
    script.hear("all", DAY, NIGHT)
    assert script.verdict(judge_published) == {"published and lost": 1}


def test_a_subscription_gets_nothing_that_its_filter_leaves_out_or_that_was_not_published(
    script: Script,
) -> None:
    script.publish(DAY)
    script.publish(NIGHT, phase=Phase.FAILED)
    script.hear("all", DAY, NIGHT)
    assert script.verdict(judge_published) == {"received against its filter": 1}
    script.hear("nights", DAY)
    assert script.verdict(judge_published) == {"received against its filter": 2}


def test_a_message_under_two_ids_was_copied_twice(script: Script) -> None:
    script.publish(DAY)
    script.hear("all", DAY)
    script.hear("all", DAY, copy=2)
    assert script.verdict(judge_published) == {"published twice": 1}


def test_occurrences_may_be_left_out_and_be_late(script: Script) -> None:
    for second, late in [(0, 0), (1, 0.3), (30, 0.9), (31, 40), (72, 0)]:
        script.tick(second, late=late)
    script.tick(72)
    script.end_schedule(after=5)
    assert script.verdict(judge_ticks) == {}


def test_an_occurrence_that_took_place_and_never_came_is_lost(script: Script) -> None:
    script.tick(0)
    script.end_schedule(after=3)
    assert script.verdict(judge_ticks) == {"occurrences lost": 2}


def test_an_occurrence_under_two_ids_took_place_twice(script: Script) -> None:
    script.tick(0, identity="one")
    script.tick(0, identity="other")
    assert script.verdict(judge_ticks) == {"one occurrence twice": 1}


def test_occurrences_that_are_closer_than_the_period_are_beside_their_pace(script: Script) -> None:
    script.tick(0)
    script.tick(0.4)
    assert script.verdict(judge_ticks) == {"occurrences closer than their pace": 1}


def test_all_that_was_missed_sent_at_once_is_a_burst(script: Script) -> None:
    for second in range(60):
        script.tick(second, late=60 - second)
    assert script.verdict(judge_ticks) == {"a burst of occurrences": 48}


def test_a_large_body_is_read_whole_moved_and_gone_once_it_is_acked(script: Script) -> None:
    script.film("film", "whole", "pass")
    script.film("whole", "watched", "gone", identity="two")
    assert script.verdict(judge_films) == {}


def test_a_large_body_that_nobody_read_is_lost_if_its_send_was_confirmed(script: Script) -> None:
    script.film("film", phase=Phase.UNKNOWN)
    assert script.verdict(judge_films) == {}
    script.film("film")
    assert script.verdict(judge_films) == {"large body lost": 1}


@pytest.mark.parametrize(
    ("history", "promise"),
    [
        (["film", "whole", "cut: 3 of 5 bytes", "watched"], "large body cut"),
        (["film", "gone", "whole", "watched"], "large body gone before its message"),
        (["whole", "watched"], "large body of nobody"),
    ],
)
def test_a_large_body_that_is_not_what_was_sent_breaks_a_promise(
    script: Script, history: list[str], promise: str
) -> None:
    script.film(*history)
    assert script.verdict(judge_films) == {promise: 1}


def test_a_large_body_under_two_ids_that_was_not_moved_is_stored_twice(script: Script) -> None:
    script.film("film", "whole")
    script.film("whole", identity="two")
    assert script.verdict(judge_films) == {"large body stored twice": 1}
