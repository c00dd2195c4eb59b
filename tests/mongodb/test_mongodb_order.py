"""The order of claims that meet others, who split a bundle between a claim's look and its taking."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown
from shardq.storage.listening import Waiter
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append, Claim, Claimed, Release, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000


@pytest.fixture
def meet(
    store: MongoStore, open_store: Callable[..., MongoStore], shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool], None]:
    """Store two bundles of ten; let the next claim meet another client's claim of four."""
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(count=10, priority=0), make(count=10, priority=1))))
    take, other = ShardRows.take, open_store()
    met: list[Claimed] = []

    def arrange(answered: bool) -> None:
        def interrupted(rows: ShardRows, *args: Any) -> int | None:
            if met:
                return take(rows, *args)
            met.append(Claimed((), 0))  # the other's own claim comes here too
            met[0] = other.claim(Claim(shard, os.urandom(16), 4, MINUTE))
            taken = take(rows, *args)
            if not answered:
                raise OutcomeUnknown("the response was lost; repeat the call")
            return taken

        monkeypatch.setattr(ShardRows, "take", interrupted)

    return arrange


def spans(claimed: Claimed) -> list[tuple[int, int, int]]:
    return [(each.bundle.priority, each.first, each.count) for each in claimed.slices]


@contextmanager
def outrun(
    store: MongoStore, other: MongoStore, shard: Shard, times: int
) -> Iterator[list[list[tuple[int, int, int]]]]:
    """Let another client claim a message before each of the store's first updates; what it got each time."""
    change, taken = ShardRows.update, list[list[tuple[int, int, int]]]()

    def interrupted(rows: ShardRows, *args: Any, **options: Any) -> Any:
        if rows.session is store.client.session and len(taken) < times:
            taken.append([])
            taken[-1] += spans(other.claim(Claim(shard, os.urandom(16), 1, MINUTE)))
        return change(rows, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRows, "update", interrupted)
        yield taken


def test_nothing_is_passed_over_that_others_left_of_a_bundle(
    store: MongoStore, shard: Shard, meet: Callable[[bool], None]
) -> None:
    meet(True)
    assert spans(store.claim(Claim(shard, os.urandom(16), 15, MINUTE))) == [(0, 4, 6), (1, 0, 5)]
    assert spans(store.claim(Claim(shard, os.urandom(16), 15, MINUTE))) == [(1, 5, 5)]


def test_nor_when_the_claim_is_repeated_after_its_response_was_lost(
    store: MongoStore, shard: Shard, meet: Callable[[bool], None]
) -> None:
    meet(False)
    claim = Claim(shard, os.urandom(16), 15, MINUTE)
    with pytest.raises(OutcomeUnknown):
        store.claim(claim)
    store.append(Append(shard, (BundleFactory(store.now)(count=1, priority=0),)))  # later than the claim
    assert spans(store.claim(claim)) == [(0, 4, 6), (1, 0, 5)]
    assert spans(store.claim(claim)) == [(0, 4, 6), (1, 0, 5)]


@pytest.mark.parametrize("quicker", range(1, 12))
def test_nothing_is_passed_over_however_often_others_are_quicker(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    quicker: int,
) -> None:
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(count=20, priority=0), make(count=10, priority=1))))
    with outrun(store, open_store(), shard, quicker) as taken:
        first = spans(store.claim(Claim(shard, os.urandom(16), 25, MINUTE)))
    assert taken == [[(0, number, 1)] for number in range(len(taken))]
    left = spans(store.claim(Claim(shard, os.urandom(16), 30, MINUTE)))
    assert first + left == sorted(first + left), "what was left comes before what was claimed"
    assert sum(count for *_, count in first + left) == 30 - len(taken)


@pytest.mark.parametrize("seen_late", [False, True])
def test_what_is_sent_meanwhile_and_goes_first_does_not_hide_what_was_passed_over(
    store: MongoStore, open_store: Callable[..., MongoStore], shard: Shard, seen_late: bool
) -> None:
    """Also when it was due before the claim began, and its append took its time."""
    make, other, change = BundleFactory(store.now), open_store(), ShardRows.update
    store.append(Append(shard, (make(count=20, priority=1), make(count=10, priority=2))))
    sent = make(count=50, priority=0) if seen_late else None
    begun: list[Claimed] = []

    def interrupted(rows: ShardRows, *args: Any, **options: Any) -> Any:
        if rows.session is store.client.session and not begun:
            begun.append(Claimed((), 0))
            begun.append(other.claim(Claim(shard, os.urandom(16), 4, MINUTE)))
            other.append(Append(shard, (sent or make(count=50, priority=0),)))
        return change(rows, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRows, "update", interrupted)
        first = spans(store.claim(Claim(shard, os.urandom(16), 25, MINUTE)))
    assert first == [(1, 4, 16), (2, 0, 5)]


@pytest.mark.parametrize("limit", [8, 10, 15])
@pytest.mark.parametrize("pieces", [1, 2])
def test_what_is_delivered_again_is_claimed_after_what_was_due_before_it(
    store: MongoStore, open_store: Callable[..., MongoStore], shard: Shard, pieces: int, limit: int
) -> None:
    """However early it was sent: it has its place by when it was given back."""
    make, other, token = BundleFactory(store.now), open_store(), os.urandom(16)
    again = make(count=6)
    store.append(Append(shard, (again,)))
    assert store.claim(Claim(shard, token, 6, MINUTE)).slices
    store.append(Append(shard, (make(count=8),)))
    size = 6 // pieces
    for first in range(0, 6, size):
        store.release(Release(shard, (Span(again.id, first, size, token),)))
    take, met = ShardRows.take, list[Claimed]()

    def interrupted(rows: ShardRows, *args: Any) -> int | None:
        if not met:
            met.append(Claimed((), 0))
            met.append(other.claim(Claim(shard, os.urandom(16), 1, MINUTE)))
        return take(rows, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRows, "take", interrupted)
        claimed = store.claim(Claim(shard, os.urandom(16), limit, MINUTE))
    sent = [each for each in claimed.slices if each.bundle.id != again.id]
    assert sum(each.count for each in sent) == 7, "it was passed over"
    assert sum(each.count for each in claimed.slices) <= limit


@pytest.mark.parametrize("quicker", [6, 8])
def test_what_a_claim_gives_back_wakes_others(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    quicker: int,
) -> None:
    """Others that were idle looked while it was held, and would not look again for seconds."""
    make = BundleFactory(store.now)
    waiting = open_store()
    store.append(Append(shard, (make(count=20, priority=0), make(count=10, priority=1))))
    waiter = Waiter(waiting)
    while waiter.wait([shard.queue], 0.3):
        pass

    with outrun(store, open_store(), shard, quicker) as taken:
        claimed = store.claim(Claim(shard, os.urandom(16), 25, MINUTE))
    assert sum(count for *_, count in spans(claimed)) < 25 and len(taken) == quicker
    assert waiter.wait([shard.queue], 5) == (shard.queue,)


@pytest.mark.parametrize("limit", [3, 4])
def test_a_change_that_comes_late_takes_no_more_than_the_limit(
    store: MongoStore, shard: Shard, limit: int
) -> None:
    """That of an attempt which got no answer, after a later attempt has taken what was sent meanwhile."""
    make, change = BundleFactory(store.now), ShardRows.change
    store.append(Append(shard, tuple(make(count=2, priority=1) for _ in range(3))))
    claim = Claim(shard, os.urandom(16), limit, MINUTE)
    late: list[Callable[[], int]] = []

    def lost(rows: ShardRows, *args: Any, **options: Any) -> int:
        if late:
            change(rows, *args, **options)
        late.append(partial(change, rows, *args, **options))
        raise OutcomeUnknown("the response was lost; repeat the call")

    take = ShardRows.take
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRows, "change", lost)
        patch.setattr(ShardRows, "take", lambda rows, begin, _, uuid: take(rows, begin, [], uuid))
        for priority in (1, 0):
            if not priority:
                store.append(Append(shard, tuple(make(count=2, priority=0) for _ in range(3))))
            with pytest.raises(OutcomeUnknown):
                store.claim(claim)
    late[0]()
    claimed = store.claim(claim)
    assert sum(each.count for each in claimed.slices) <= limit
    assert {each.bundle.priority for each in claimed.slices} == {0}
    left = store.claim(Claim(shard, os.urandom(16), 20, MINUTE))
    assert sum(each.count for each in (*claimed.slices, *left.slices)) == 12, "the rest is given back at once"
