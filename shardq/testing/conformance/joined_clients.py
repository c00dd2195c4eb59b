"""Contract: clients within a transaction of the application, also with keys, groups, bounds and tasks."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from shardq.core.message import Message
from shardq.errors import InvalidSetting, QueueFull, UnsupportedByStore
from shardq.storage.abilities import TransactionEnded
from shardq.tasks import Tasks, chain
from shardq.testing.conformance.applications import ApplicationContract, Applications
from shardq.testing.conformance.transactions import LONG, JoiningContract, ends, needs_transactions
from shardq.testing.harness import ApplicationTransaction
from shardq.testing.seam import expire_caches

__all__ = ["JoinedClientContract"]

T = TypeVar("T")

PATIENCE = 60.0  # seconds until a new transaction sees what was made beside it


class JoinedClientContract(ApplicationContract, JoiningContract):
    """Clients of the public API that join a transaction of the application."""

    def test_a_client_is_refused_by_type_where_nothing_can_be_joined(self, apps: Applications) -> None:
        refusal = InvalidSetting if apps.capabilities.transactions else UnsupportedByStore
        apps.client.create_queue(apps.name)
        with pytest.raises(refusal):
            apps.client.transaction(connection="no connection")

    @ends
    @needs_transactions
    def test_a_client_sends_and_settles_in_a_transaction(
        self, apps: Applications, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        begun.roll_back()
        queue = apps.client.create_queue(
            apps.name, shards=1, time_shards=1, visibility_timeout=apps.seconds(LONG)
        )
        queue.producer().send(b"one")
        (held,) = queue.consumer().receive(1)
        begun.begin()
        with apps.client.transaction(connection=begun.connection) as within:
            within.queue(apps.name).producer().send_many([b"two", b"three"])
            within.queue(apps.name).ack([held.receipt])
        before = apps.other.queue(apps.name).counts()
        self._end(begun, commits=commits)
        after = apps.other.queue(apps.name).counts()
        assert (before.ready, before.in_flight) == (0, 1)
        assert (after.ready, after.in_flight) == ((2, 0) if commits else (0, 1))

    @needs_transactions
    def test_a_client_in_a_transaction_answers_pings_and_joins_no_other(
        self, apps: Applications, begun: ApplicationTransaction
    ) -> None:
        with apps.client.transaction(connection=begun.connection) as within:
            within.ping(timeout=PATIENCE)
            with pytest.raises(UnsupportedByStore, match="within a transaction itself"):
                within.transaction(connection=begun.connection)

    @needs_transactions
    def test_a_purge_is_done_or_refused_whatever_the_queue_holds(
        self, apps: Applications, begun: ApplicationTransaction
    ) -> None:
        begun.roll_back()
        names = apps.name, f"{apps.name}/unused"
        used, _ = (apps.client.create_queue(each) for each in names)
        used.producer().send(b"one")
        begun.begin()
        refused = list[str]()
        with apps.client.transaction(connection=begun.connection) as within:
            for each in names:
                try:
                    within.queue(each).purge()
                except UnsupportedByStore:
                    refused.append(each)
        begun.roll_back()
        assert len(refused) != 1
        assert self._ready(apps) == 1

    @ends
    @needs_transactions
    def test_keys_and_groups_stand_or_fall_with_the_transaction(
        self, apps: Applications, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        begun.roll_back()
        producer = apps.client.create_queue(apps.name, shards=1, time_shards=1).producer()
        group = "a" if apps.capabilities.groups else None
        producer.send(b"before", group=group)
        begun.begin()

        def send() -> tuple[list[str], list[str]]:
            with apps.client.transaction(connection=begun.connection) as within:
                sender = within.queue(apps.name).producer()
                once = [sender.send(b"once", dedupe_key="once") for _ in range(2)]
                one = [sender.send(b"one", unique_key="one") for _ in range(2)]
                for body in (b"1", b"2"):
                    sender.send(body, group=group)
            return once, one

        once, one = self._undisturbed(begun, send)
        self._end(begun, commits=commits)
        again = [producer.send(b"once", dedupe_key="once"), producer.send(b"one", unique_key="one")]
        assert (once[0], one[0]) == (once[1], one[1])
        assert (again == [once[0], one[0]]) is commits
        found = self._received(apps)
        sent = [b"before", b"1", b"2"] if commits else [b"before"]
        assert [
            each.raw for each in found if each.group == group and each.raw not in (b"once", b"one")
        ] == sent
        assert len(found) == len(sent) + 2

    @ends
    @needs_transactions
    def test_tasks_and_workflows_are_sent_in_a_transaction(
        self, apps: Applications, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        """Send also to a queue that is not there yet; each call joins the transaction anew."""
        tasks = Tasks()
        tasks.bind(apps.client)

        @tasks.task(queue=apps.name, keep_result=0)
        def deliver(number: int) -> int:
            return number

        def send() -> None:
            begun.write()
            deliver.send(1, transaction=begun.connection)
            tasks.send_many([deliver.signature(2), deliver.signature(3)], transaction=begun.connection)
            chain(deliver.signature(4), deliver.then()).send(transaction=begun.connection)

        self._undisturbed(begun, send)
        before = self._ready(apps)
        self._end(begun, commits=commits)
        assert (before, self._ready(apps), begun.written) == (0, 4 if commits else 0, commits)

    @ends
    @needs_transactions
    def test_clients_that_join_one_transaction_see_what_the_others_have_done(
        self, apps: Applications, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        begun.roll_back()
        queue = apps.client.create_queue(
            apps.name, shards=1, time_shards=1, max_messages=2, history_retention=apps.seconds(LONG)
        )
        queue.producer().send(b"held")
        (held,) = queue.consumer(visibility_timeout=apps.seconds(LONG)).receive(1)
        begun.begin()

        def send() -> set[str]:
            ids = set[str]()
            for client in (apps.client, apps.other):
                with client.transaction(connection=begun.connection) as within:
                    ids.add(within.queue(apps.name).producer().send(b"one", unique_key="one"))
            with apps.other.transaction(connection=begun.connection) as within:
                sender = within.queue(apps.name)
                sender.ack([held.receipt])
                sender.producer().send(b"two")
                with pytest.raises(QueueFull):
                    sender.producer().send(b"three")
            return ids

        assert len(self._undisturbed(begun, send)) == 1
        self._end(begun, commits=commits)
        queue = apps.other.queue(apps.name)
        assert apps.until(
            lambda: queue.counts().processed == commits
        )  # a store may show the history a little later
        assert (queue.counts().ready, queue.counts().in_flight) == ((2, 0) if commits else (0, 1))

    @ends
    @needs_transactions
    @pytest.mark.parametrize("bounds", [{"max_messages": 3}, {"max_bytes": 3_300}], ids=["messages", "bytes"])
    def test_a_bound_counts_what_the_transaction_has_sent(
        self, apps: Applications, begun: ApplicationTransaction, *, commits: bool, bounds: dict[str, int]
    ) -> None:
        """Each call joins the transaction anew, or counts again. A rollback makes the room free again."""
        begun.roll_back()
        queue = apps.client.create_queue(apps.name, shards=1, time_shards=1)
        queue.alter(**bounds)  # type: ignore[arg-type]
        queue.producer().send(bytes(1_000))
        begun.begin()

        def fill() -> None:
            with apps.client.transaction(connection=begun.connection) as within:
                sender = within.queue(apps.name)
                sender.producer().send(bytes(1_000))
                expire_caches(sender)
                sender.producer().send(bytes(1_000))
                expire_caches(sender)
                with pytest.raises(QueueFull):
                    sender.producer().send(bytes(1_000))

        self._undisturbed(begun, fill)
        with pytest.raises(QueueFull):
            self._send_within(apps, begun, bytes(1_000))
        self._end(begun, commits=commits)
        begun.begin()
        if commits:
            with pytest.raises(QueueFull):
                self._send_within(apps, begun, bytes(1_000))
        else:
            self._undisturbed(begun, fill)
        begun.roll_back()
        assert self._ready(apps) == (3 if commits else 1)

    @ends
    @needs_transactions
    def test_the_oldest_make_room_for_what_transactions_have_sent(
        self, apps: Applications, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        """Each transaction makes room for itself, or for those before it. A rollback has dropped nothing."""
        begun.roll_back()
        queue = apps.client.create_queue(
            apps.name, shards=1, time_shards=1, max_messages=3, overflow="drop_oldest"
        )
        queue.producer().send_many([b"1", b"2", b"3"])
        for body in (b"4", b"5", b"6", b"7"):
            apps.advance(1)  # the order of what was sent at one moment is any
            expire_caches(queue)
            begun.begin()
            self._undisturbed(begun, partial(self._send_within, apps, begun, body))
            self._end(begun, commits=commits)
        bodies = [message.body for message in apps.other.queue(apps.name).peek(10)]
        if commits:
            assert bodies[-3:] == [b"5", b"6", b"7"]
            assert len(bodies) <= 4
        else:
            assert bodies == [b"1", b"2", b"3"]

    def _send_within(self, apps: Applications, begun: ApplicationTransaction, body: bytes) -> None:
        with apps.client.transaction(connection=begun.connection) as within:
            within.queue(apps.name).producer().send(body)

    def _undisturbed(self, begun: ApplicationTransaction, do: Callable[[], T]) -> T:
        """Do it, and again from the begin of the transaction where the store made something for it outside.

        The snapshot of a new transaction may still be older than what was made: the drivers repeat it for minutes, too.
        """
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return do()
            except TransactionEnded:
                if time.monotonic() > until:
                    raise
                begun.roll_back()
                time.sleep(0.05)
                begun.begin()

    def _received(self, apps: Applications) -> list[Message]:
        found: list[Message] = []
        with apps.other.queue(apps.name).consumer() as consumer:
            while batch := consumer.receive(10, wait=2.0 if apps.harness.real_time else 0.0):
                found += batch
                batch.ack()
        return found

    def _ready(self, apps: Applications) -> int:
        return apps.other.queue(apps.name).counts().ready if apps.other.exists(apps.name) else 0
