"""Contract: each occurrence of a schedule is one message, whatever the number of clients that keep it going."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from functools import partial

from shardq.client.consumer import Consumer
from shardq.errors import ScheduleExists
from shardq.testing.conformance.applications import ApplicationContract, Applications
from shardq.testing.conformance.together import run_together

__all__ = ["ScheduleContract"]


class ScheduleContract(ApplicationContract):
    """Schedules of a queue that clients consume at the same time."""

    def test_each_tick_is_one_message(self, apps: Applications) -> None:
        consumers = self._consumers(apps)
        apps.client.schedules.create(apps.name, queue=apps.name, every=1, count=3, body=b"x")
        ticks: list[object] = []

        def all_came() -> bool:
            for received in run_together([partial(self._ticks, each) for each in consumers]):
                ticks.extend(received)
            return len(ticks) >= 3

        assert apps.until(all_came)
        all_came()
        assert len(ticks) == len(set(ticks)) == 3
        schedule = apps.other.schedules.get(apps.name)
        assert (schedule.sent, schedule.next) == (3, None)

    def test_a_tick_of_a_client_that_died_comes_to_another(self, apps: Applications) -> None:
        self._consumers(apps)
        apps.client.schedules.create(apps.name, queue=apps.name, every=1, count=1, body=b"x")
        apps.kill(apps.client)
        consumer = apps.other.queue(apps.name).consumer()
        assert apps.until(lambda: len(self._ticks(consumer)) == 1)
        assert self._ticks(consumer) == []

    def test_of_several_clients_that_create_a_schedule_one_does(self, apps: Applications) -> None:
        self._consumers(apps)

        def create(number: int) -> bool:
            client = (apps.client, apps.other)[number % 2]
            try:
                client.schedules.create(apps.name, queue=apps.name, cron="@daily", body=b"%d" % number)
            except ScheduleExists:
                return False
            return True

        created = run_together([partial(create, number) for number in range(4)])
        assert created.count(True) == 1
        assert apps.other.schedules.get(apps.name).body == b"%d" % created.index(True)

    def _consumers(self, apps: Applications) -> list[Consumer]:
        """Return a consumer in each of two clients, of a queue that nothing was sent to."""
        apps.client.create_queue(apps.name, shards=1, time_shards=1)
        return [client.queue(apps.name).consumer() for client in (apps.client, apps.other)]

    def _ticks(self, consumer: Consumer) -> list[object]:
        """Receive and ack what there is; return which occurrences it was."""
        batch = consumer.receive(10)
        batch.ack()
        return [message.headers["shardq-scheduled-for"] for message in batch]
