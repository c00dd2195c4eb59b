"""Contract: many threads at once neither lose nor double a message."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from shardq.storage.store import Store
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time, run_together
from shardq.testing.messages import BundleFactory, Message, Taken, of_bundle, of_bundles, of_spans

__all__ = ["ConcurrencyContract"]

_SENDS, _MESSAGES = 60, 10  # of each sender, of each bundle

_Place: TypeAlias = tuple[int, int, bytes, int]  # priority, due, bundle id, position


class _Timed(NamedTuple):
    """A claim with the moments between which it was made."""

    began: float
    ended: float
    places: list[_Place]  # in their order


def _places(taken: Taken) -> list[_Place]:
    return [
        (each.bundle.priority, each.bundle.due, each.bundle.id, position)
        for each in taken.slices
        for position in range(each.first, each.first + each.count)
    ]


class ConcurrencyContract(Contract):
    """Races."""

    def test_consumers_of_one_shard_share_its_messages(self, bench: Bench) -> None:
        # Given bundles of several sizes and four consumers on two clients, each with its own limit
        bundles = [bench.bundle(1 + i % 7, priority=i % 3) for i in range(60)]
        bench.append(*bundles)
        clients = [bench.store, bench.other] * 2
        # When they drain the shard together
        taken = run_together([partial(self._drain, bench, c, 3 + i) for i, c in enumerate(clients)])
        # Then each message was handed to exactly one
        assert sorted(message for each in taken for message in each) == of_bundles(*bundles)
        assert bench.leftovers() == {}

    def test_producers_and_consumers_work_beside_each_other(self, bench: Bench) -> None:
        bundles = [[bench.bundle(1 + i % 4) for i in range(25)] for _ in range(2)]

        def produce(mine: int, client: Store) -> list[Message]:
            for bundle in bundles[mine]:
                bench.persist(partial(bench.append, bundle, by=client))
            return []

        taken = run_together(
            [
                partial(produce, 0, bench.store),
                partial(produce, 1, bench.other),
                partial(self._drain, bench, bench.store, 5, 40),
                partial(self._drain, bench, bench.other, 2, 40),
            ]
        )
        rest = self._drain(bench, bench.store, 100)
        handed_out = [message for each in (*taken, rest) for message in each]
        assert sorted(handed_out) == sorted(of_bundles(*bundles[0], *bundles[1]))
        assert bench.leftovers() == {}

    def test_no_claim_passes_over_what_it_could_have_taken(self, bench: Bench) -> None:
        """Claim while others take, cut and send messages, also ones that go first."""
        stored: dict[bytes, float] = {}
        claims: list[_Timed] = []
        clients = [bench.store, bench.other] * 2
        senders = [
            partial(self._send, bench, client, stored, seed) for seed, client in enumerate(clients[:2])
        ]
        run_together(
            [
                *senders,
                *(partial(self._take, bench, c, stored, claims, seed) for seed, c in enumerate(clients)),
            ]
        )
        passed_over = [
            place
            for later in claims
            for place in later.places
            if any(
                stored[place[2]] < each.began and each.ended < later.began and place < each.places[-1]
                for each in claims
            )
        ]
        assert passed_over == []
        assert len({place for each in claims for place in each.places}) == 2 * _SENDS * _MESSAGES

    def _send(self, bench: Bench, client: Store, stored: dict[bytes, float], seed: int) -> None:
        dice, make = random.Random(seed), BundleFactory(client.now)
        for _ in range(_SENDS):
            bundle = make(_MESSAGES, priority=dice.randrange(10))
            bench.persist(partial(bench.append, bundle, by=client))
            stored[bundle.id] = time.monotonic()

    def _take(
        self, bench: Bench, client: Store, stored: dict[bytes, float], claims: list[_Timed], seed: int
    ) -> None:
        """Claim and ack until all is sent and nothing is left."""
        dice = random.Random(seed)
        done = False
        while not done:
            all_sent, began = len(stored) == 2 * _SENDS, time.monotonic()
            claim = partial(bench.claim, dice.choice((1, 7, 25)), lease=600, token=os.urandom(16), by=client)
            taken = bench.persist(claim)
            if taken.spans:
                claims.append(_Timed(began, time.monotonic(), sorted(_places(taken))))
            bench.persist(partial(bench.ack, *taken.spans, by=client))
            done = all_sent and not taken.spans

    def test_an_append_repeated_at_the_same_time_stores_once(self, bench: Bench) -> None:
        for _ in range(5):
            bundles = [bench.bundle(2), bench.bundle(3)]
            run_together(
                [
                    partial(bench.persist, partial(bench.append, *bundles, by=client))
                    for client in (bench.store, bench.other, bench.store)
                ]
            )
            assert bench.waiting() == of_bundles(*bundles)
            bench.store.purge(bench.shard)

    def test_a_claim_repeated_at_the_same_time_holds_no_more_than_its_limit(self, bench: Bench) -> None:
        for _ in range(5):
            bundle = bench.given(9)
            token = os.urandom(16)
            taken = run_together(
                [
                    partial(bench.persist, partial(bench.claim, 4, token=token, by=client))
                    for client in (bench.store, bench.other, bench.store)
                ]
            )
            assert [each.messages for each in taken] == [of_bundle(bundle, 0, 4)] * 3
            assert {d for each in taken for d in each.deliveries} == {1}
            assert bench.waiting() == of_bundle(bundle, 4)
            bench.store.purge(bench.shard)

    @exact_time
    def test_a_late_ack_and_a_new_claim_never_both_succeed(self, bench: Bench) -> None:
        for _ in range(15):
            # Given a claim that ran out
            bundle = bench.given(4)
            stale = bench.claim(lease=5)
            bench.advance(10)
            # When it is acked while another client claims
            lost, taken = run_together(
                [partial(self._late_ack, bench, stale), partial(self._claim_once, bench, bench.other)]
            )
            # Then the messages are either done or the other's
            assert lost == taken
            assert lost in ([], of_bundle(bundle))
            assert bench.held() == lost
            bench.store.purge(bench.shard)

    def test_ack_release_and_remove_of_a_message_leave_the_shard_consistent(self, bench: Bench) -> None:
        for _ in range(10):
            bundle = bench.given(3)
            taken = bench.claim()
            calls: list[Callable[[], object]] = [
                lambda taken=taken: bench.ack(*taken.spans),  # type: ignore[misc]
                lambda taken=taken: bench.release(*taken.spans, by=bench.other),  # type: ignore[misc]
                partial(bench.other.remove, bench.shard, bundle.id, 1),
            ]
            repeated: list[Callable[[], object]] = [partial(bench.persist, call) for call in calls]
            run_together(repeated)
            bench.check_books()
            assert (bench.harness.raw_bundles(bench.shard) > 0) == bool(bench.stored())
            assert (bundle.id, 1) not in bench.stored()
            bench.store.purge(bench.shard)
            assert bench.leftovers() == {}

    def test_a_purge_beside_consumers_leaves_nothing(self, bench: Bench) -> None:
        bench.append(*[bench.bundle(3) for _ in range(40)])
        run_together(
            [
                partial(self._drain, bench, bench.store, 4),
                partial(self._drain, bench, bench.other, 5),
                partial(self._purge, bench),
            ]
        )
        assert bench.stored() == []
        assert bench.leftovers() == {}

    def _drain(self, bench: Bench, client: Store, limit: int, patience: int = 1) -> list[Message]:
        """Claim and ack until nothing was there ``patience`` times in a row; return what was handed out."""
        messages: list[Message] = []
        empty = 0
        while empty < patience:
            taken = self._claim(bench, client, limit)
            empty = 0 if taken.spans else empty + 1
            messages += taken.messages
            bench.persist(partial(bench.ack, *taken.spans, by=client))
        return messages

    def _claim(self, bench: Bench, client: Store, limit: int) -> Taken:
        token = os.urandom(16)
        return bench.persist(partial(bench.claim, limit, token=token, lease=3600, by=client))

    def _purge(self, bench: Bench) -> list[Message]:
        bench.persist(partial(bench.other.purge, bench.shard))
        return []

    def _claim_once(self, bench: Bench, client: Store) -> list[Message]:
        return sorted(self._claim(bench, client, 100).messages)

    def _late_ack(self, bench: Bench, stale: Taken) -> list[Message]:
        fenced = bench.persist(partial(bench.ack, *stale.spans))
        return sorted(of_spans((*fenced.lost, *fenced.gone)))
