"""Contract: changes in a transaction of the application stand with its commit, and are gone with its rollback."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar, cast

import pytest

from shardq.base.shard import Shard
from shardq.core.message import Message
from shardq.errors import Closed, InvalidSetting, QueueNotFound, UnsupportedByStore
from shardq.storage.abilities import TransactionalStore, TransactionEnded
from shardq.storage.keys import KeyChange
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    DedupeEntry,
    Extend,
    Fenced,
    Forward,
    QueueRecord,
    Release,
    Span,
)
from shardq.storage.store import Store
from shardq.tasks import Tasks, chain
from shardq.testing.conformance.applications import ApplicationContract, Applications
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.harness import ApplicationTransaction, StoreHarness
from shardq.testing.messages import of_bundle

__all__ = ["TransactionContract"]

T = TypeVar("T")

needs_transactions = pytest.mark.usefixtures("transactions")
ends = pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
LONG = 600.0  # seconds of a lease that does not run out
PATIENCE = 60.0  # until a new transaction sees what was made beside it


class TransactionContract(ApplicationContract, Contract):
    """The requests of a store within a transaction of the application."""

    @pytest.fixture
    def transactions(self, harness: StoreHarness) -> None:
        """Skip a test on a store that takes no part in transactions, before anything is made for it."""
        store = harness.open()
        store.ping()  # which tells what a server's members can do
        takes_part = store.capabilities.transactions
        harness.finish(store)
        if not takes_part:
            pytest.skip("the store takes no part in transactions of the application")

    @pytest.fixture
    def begun(self, bench: Bench) -> Iterator[ApplicationTransaction]:
        """Begin a transaction on a storage in which the bench's shard was used before."""
        self._use_once(bench, bench.shard)
        begun = bench.harness.begin()
        yield begun
        begun.close()

    @ends
    @needs_transactions
    def test_what_is_appended_in_a_transaction_stands_or_falls_with_it(
        self, bench: Bench, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        bundle = bench.bundle(3)
        begun.write()
        bench.append(bundle, by=self._within(bench, begun))
        assert (bench.waiting(), bench.other.count(bench.shard).ready) == ([], 0)
        self._end(begun, commits=commits)
        assert bench.claim().messages == (of_bundle(bundle) if commits else [])
        assert begun.written == commits

    @ends
    @needs_transactions
    def test_what_is_settled_in_a_transaction_stands_or_falls_with_it(
        self, bench: Bench, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        begun.roll_back()
        bundle = bench.given(3)
        taken = bench.claim(lease=LONG)
        begun.begin()
        within = self._within(bench, begun)
        assert not within.acknowledge(Acknowledge(bench.shard, (taken.span(0, 1),))).lost
        assert not within.release(Release(bench.shard, (taken.span(1, 1),), 0)).lost
        assert not within.extend(Extend(bench.shard, (taken.span(2, 1),), bench.duration(2 * LONG))).lost
        assert (bench.waiting(), bench.held()) == ([], of_bundle(bundle))
        self._end(begun, commits=commits)
        assert bench.waiting() == (of_bundle(bundle, 1, 1) if commits else [])
        assert bench.held() == (of_bundle(bundle, 2) if commits else of_bundle(bundle))
        fenced = bench.ack(*taken.spans)
        assert (len(fenced.lost) + len(fenced.gone) > 0) == commits

    @ends
    @needs_transactions
    def test_what_is_forwarded_in_a_transaction_stands_or_falls_with_it(
        self, bench: Bench, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        begun.roll_back()
        source, target, bundle = bench.given(2), self._target(bench), bench.bundle(2)
        taken = bench.claim(lease=LONG)
        begun.begin()
        assert not self._forward(bench, begun, taken.spans, target, bundle).lost
        assert (bench.held(), bench.waiting(target)) == (of_bundle(source), [])
        self._end(begun, commits=commits)
        assert bench.held() == ([] if commits else of_bundle(source))
        assert bench.claim(shard=target).messages == (of_bundle(bundle) if commits else [])

    @needs_transactions
    def test_a_forward_of_what_is_lost_leaves_nothing_in_the_transaction(
        self, bench: Bench, begun: ApplicationTransaction
    ) -> None:
        begun.roll_back()
        source, target = bench.given(1), self._target(bench)
        begun.begin()
        spans = (Span(source.id, 0, 1, b"the token of nobody"[:16]),)
        fenced = self._forward(bench, begun, spans, target, bench.bundle())
        assert fenced.lost or fenced.gone
        begun.commit()
        assert (bench.waiting(), bench.waiting(target)) == (of_bundle(source), [])

    @needs_transactions
    def test_a_request_that_fails_leaves_nothing_in_the_transaction(
        self, bench: Bench, begun: ApplicationTransaction
    ) -> None:
        within, bundle = self._within(bench, begun), bench.bundle(2)
        bench.append(bundle, by=within)
        with pytest.raises((QueueNotFound, TransactionEnded)) as failed:
            within.append(Append(Shard(bench.new_name(), 0, 0), (bench.bundle(),)))
        ended = isinstance(failed.value, TransactionEnded)
        self._end(begun, commits=not ended)
        assert bench.claim().messages == ([] if ended else of_bundle(bundle))

    @needs_transactions
    def test_what_cannot_be_in_a_transaction_is_refused_by_type_and_not_done(
        self, bench: Bench, begun: ApplicationTransaction
    ) -> None:
        begun.roll_back()
        bundle, name = bench.given(2), bench.new_name()
        begun.begin()
        within = self._within(bench, begun)
        claim = Claim(bench.shard, b"the token of one"[:16], 2, bench.duration(LONG))
        for ask in (
            lambda: within.reserve_keys(bench.queue, [DedupeEntry("k", "m1")], bench.duration(LONG)),
            lambda: within.compare_and_set_keys(bench.queue, [KeyChange("k", None, "v1")]),
            lambda: within.create_queue(QueueRecord(name, b"settings", 1)),
            lambda: within.claim(claim),
            lambda: within.purge(bench.shard),
        ):
            with suppress(UnsupportedByStore):
                ask()
        begun.roll_back()
        assert bench.store.load_queue(name) is None
        assert bench.other.list_keys(bench.queue) == ()
        entry = DedupeEntry("k", "m2")
        assert bench.other.reserve_keys(bench.queue, [entry], bench.duration(LONG)) == (entry,)
        taken = bench.claim()
        assert (taken.messages, taken.deliveries) == (of_bundle(bundle), {1})

    @needs_transactions
    def test_to_close_what_has_joined_a_transaction_does_not_end_it(
        self, bench: Bench, begun: ApplicationTransaction
    ) -> None:
        within = self._within(bench, begun)
        bench.append(bench.bundle(), by=within)
        within.close()
        assert bench.waiting() == []
        begun.roll_back()
        assert bench.claim().messages == []

    @ends
    @needs_transactions
    def test_nothing_is_done_by_what_had_joined_a_transaction_that_is_over(
        self, bench: Bench, begun: ApplicationTransaction, *, commits: bool
    ) -> None:
        within = self._within(bench, begun)
        self._end(begun, commits=commits)
        with pytest.raises(Closed):
            bench.append(bench.bundle(), by=within)
        assert bench.claim().messages == []

    @needs_transactions
    def test_what_is_in_no_transaction_is_not_joined(
        self, bench: Bench, begun: ApplicationTransaction
    ) -> None:
        begun.roll_back()
        store = cast("TransactionalStore", bench.store)
        for connection in (begun.connection, "no connection"):
            with pytest.raises(InvalidSetting):
                store.within(connection)

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

    def _within(self, bench: Bench, begun: ApplicationTransaction) -> Store:
        return cast("TransactionalStore", bench.store).within(begun.connection)

    def _forward(
        self,
        bench: Bench,
        begun: ApplicationTransaction,
        spans: tuple[Span, ...],
        target: Shard,
        *bundles: Bundle,
    ) -> Fenced:
        request = Forward(Acknowledge(bench.shard, spans), Append(target, bundles))
        return self._within(bench, begun).forward(request)

    def _end(self, begun: ApplicationTransaction, *, commits: bool) -> None:
        begun.commit() if commits else begun.roll_back()

    def _target(self, bench: Bench) -> Shard:
        """Return a shard of another queue, used before."""
        target = bench.shard_of(bench.new_queue())
        self._use_once(bench, target)
        return target

    def _use_once(self, bench: Bench, shard: Shard) -> None:
        """Let the shard have what its first message brings, which not every store does in a transaction."""
        bench.given(shard=shard)
        bench.ack(*bench.claim(shard=shard).spans, shard=shard)
