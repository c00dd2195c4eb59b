"""Contract: a consumer of a pattern notices queues that other clients create and delete."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from shardq.testing.conformance.applications import ApplicationContract, Applications

__all__ = ["PatternContract"]

FOLLOW_SECONDS = 5


class PatternContract(ApplicationContract):
    """Names, patterns, and the catalogue that shows changes."""

    def test_a_pattern_matches_no_queue_for_dead_letters(self, apps: Applications) -> None:
        apps.client.create_queue(f"{apps.name}/a", dead_letter_queue=f"{apps.name}/failed")
        apps.other.create_queue(f"{apps.name}/b")
        assert apps.other.pattern(f"{apps.name}/*").names() == (f"{apps.name}/a", f"{apps.name}/b")

    def test_a_consumer_of_a_pattern_notices_what_another_client_creates_and_deletes(
        self, apps: Applications
    ) -> None:
        old, new = f"{apps.name}/old", f"{apps.name}/new"
        apps.client.create_queue(old, shards=1, time_shards=1).producer().send(b"1")
        with apps.other.consumer([f"{apps.name}/*"]) as consumer:
            first = consumer.receive()
            assert (first.queue, first.bodies) == (old, [b"1"])
            first.ack()
            apps.client.delete_queue(old)
            apps.client.create_queue(new, shards=1, time_shards=1).producer().send(b"2")
            if not apps.harness.real_time:
                apps.harness.advance(FOLLOW_SECONDS)
            second = consumer.receive(wait=4 * FOLLOW_SECONDS)
            assert (second.queue, second.bodies) == (new, [b"2"])
            second.ack()
            assert not consumer.receive()
