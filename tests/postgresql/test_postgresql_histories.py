"""Claims, acks, appends, releases, removals and moves of several clients, in random orders of their statements.

Time stands still, so no lease expires. What is checked holds in every order.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

import shardq
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.requests import Bundle, Extend, Fenced, Span
from tests.postgresql.histories import History, World
from tests.postgresql.mutations import MUTATIONS, MUTATIONS_OF_GROUPS
from tests.postgresql.stepped_clients import STEPPED
from tests.steps import MINUTE, persist

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(600)]

HISTORIES = 25


@contextmanager
def opened(postgresql_url: str) -> Iterator[World]:
    schema = f"t{os.urandom(5).hex()}"
    world = World(f"{postgresql_url}?schema={schema}&{STEPPED}")
    with world.scheduler.installed():
        yield world
    for store in world.stores:
        store.close()
    world.monitor.execute(f"DROP SCHEMA {schema} CASCADE")
    world.monitor.close()


@pytest.fixture(scope="module")
def world(postgresql_url: str) -> Iterator[World]:
    with opened(postgresql_url) as world:
        yield world


def claim_only(history: History, store: PostgresStore, chance: random.Random, _: int, __: Bundle) -> None:
    """Claim few messages at a time, and keep them."""
    for _take in range(3):
        history.take(store, chance.randint(1, 4))


def claim_and_ack(
    history: History, store: PostgresStore, chance: random.Random, faults: int, _shared: Bundle
) -> None:
    """Claim, and ack all or the messages one by one."""
    for _ in range(2):
        spans = history.take(store, chance.randint(1, 4))
        if chance.random() < 0.5:
            spans = [
                Span(each.bundle_id, each.first + at, 1, each.token)
                for each in spans
                for at in range(each.count)
            ]
        for part in [spans] if chance.random() < 0.5 else [[each] for each in spans]:
            if part:
                history.ack(store, part, faults=faults)


def anything(
    history: History, store: PostgresStore, chance: random.Random, faults: int, shared: Bundle
) -> None:
    """Send, also what others send too, claim, and ack, move, release, ack late or keep it."""
    if chance.random() < 0.5:
        history.send(store, shared)
    if chance.random() < 0.5:
        history.send(store, history.bundle(chance), fresh=True)
    for _ in range(2):
        spans = history.take(store, chance.randint(1, 8))
        for number, span in enumerate(spans):
            dice = chance.random()
            if dice < 0.3:
                history.ack(store, [span], faults=faults)
            elif dice < 0.45:
                history.move(store, [span], faults=faults)
            elif dice < 0.8:
                released = history.release(store, spans[number:])
                for late in filter(None, [released[:-1], released]):  # the last one may be cut
                    history.ack_late(store, late)
                break


def anything_with_parts(
    history: History, store: PostgresStore, chance: random.Random, faults: int, _shared: Bundle
) -> None:
    """Claim, cut what was got, extend it, and ack, remove or keep some parts at a time."""
    for _ in range(2):
        parts: list[Span] = []
        for span in history.take(store, chance.randint(1, 8)):
            border = chance.randint(1, span.count)
            parts.append(Span(span.bundle_id, span.first, border, span.token))
            if border < span.count:
                parts.append(Span(span.bundle_id, span.first + border, span.count - border, span.token))
        if parts and chance.random() < 0.3:
            assert persist(partial(store.extend, Extend(history.shard, tuple(parts), MINUTE))) == Fenced()
        if chance.random() < 0.3:
            chance.shuffle(parts)
        while parts:
            size, dice = chance.randint(1, 3), chance.random()
            some, parts = parts[:size], parts[size:]
            if dice < 0.6:
                history.ack(store, some, faults=faults)
            elif dice < 0.8:
                history.ack_within(store, some, commits=chance.random() < 0.7)
            elif dice < 0.9:
                history.remove(store, some[0])


Work = Callable[[History, PostgresStore, random.Random, int, Bundle], None]


def play(world: World, seed: int, do: Work, *, grouped: bool = False, faults: int = 0) -> History:
    """Let the clients run against each other."""
    history = History(world, seed, grouped=grouped, more=3 if do is claim_only else 0)
    shared = history.bundle(random.Random(seed))
    work = [
        partial(do, history, store, random.Random(f"{seed}.{number}"), faults, shared)
        for number, store in enumerate(world.stores)
    ]
    world.scheduler.run(work, random.Random(seed), faults=faults)
    return history


def check_order(history: History) -> None:
    """What no claim took comes after what they took, and then none of them got less than it wanted."""
    left = history.never_taken
    assert left == history.first[len(history.first) - len(left) :], "later messages went first"
    assert not (left and history.is_short), "a claim missed messages that nobody took"
    assert not history.overtaken, "a claim left messages to a later one and took those behind them"


@pytest.mark.parametrize("do", [claim_only, claim_and_ack])
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_claims_leave_out_nothing_that_comes_before_what_they_take(world: World, seed: int, do: Work) -> None:
    history = play(world, seed, do)
    check_order(history)
    history.check_end()


@pytest.mark.parametrize("faults", [0, 2], ids=["", "with terminated connections"])
@pytest.mark.parametrize("grouped", [False, True], ids=["", "of groups"])
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_order_of_statements_loses_or_doubles_a_message(
    world: World, seed: int, grouped: bool, faults: int
) -> None:
    play(world, seed, anything, grouped=grouped, faults=faults).check_end()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_order_of_acks_of_parts_loses_a_message_or_leaves_a_part(world: World, seed: int) -> None:
    play(world, seed, anything_with_parts).check_end()


@pytest.mark.parametrize(
    ("name", "grouped"),
    [*((name, False) for name in MUTATIONS), *((name, True) for name in MUTATIONS_OF_GROUPS)],
)
def test_a_defect_is_found_by_some_history(postgresql_url: str, name: str, grouped: bool) -> None:
    defect = MUTATIONS_OF_GROUPS[name] if grouped else MUTATIONS[name]
    kinds: Sequence[Work] = (claim_and_ack, anything)
    if not grouped:
        kinds = (claim_only, *kinds, anything_with_parts)
    found = pytest.raises((AssertionError, shardq.ShardqError))
    with opened(postgresql_url) as world, defect(), found as error:
        for seed in range(HISTORIES):
            for do in kinds:
                history = play(world, seed, do, grouped=grouped)
                if do in {claim_only, claim_and_ack} and not grouped:
                    check_order(history)
                history.check_end()
    assert not isinstance(error.value, shardq.StoreUnavailable)
