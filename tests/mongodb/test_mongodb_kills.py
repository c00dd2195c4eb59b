"""A client that is killed between any two commands of any operation."""

from __future__ import annotations

from functools import partial

import pytest
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.mongodb.url import parse
from shardq.storage.requests import Sweep
from tests.mongodb.intents import let_intents_lapse
from tests.mongodb.lossy_proxy import LossyProxy
from tests.steps import EXPECTED, STEPS, Given, clear, counted, prepared

pytestmark = [pytest.mark.server, pytest.mark.long]


def parts_of(step: str, before: tuple[int, int, int]) -> set[tuple[int, int, int]]:
    """What a step that was cut short may leave: some bundles as before, the others as after."""
    ready, held, processed = before
    return {
        "append": {(0, 0, 0), (3, 0, 0), (5, 0, 0)},
        "claim": {(8, 0, 0), (5, 3, 0), (7, 1, 0)},
        "acknowledge": {before, (ready, 1, 0), (ready, 3, 0)},
        "keep": {before, (ready, 1, 3), (ready, 3, 1)},
        "release": {before, (ready + 3, 1, processed), (ready + 1, held - 1, processed)},
        "purge": {before, (0, 3, 0), (4, 1, 0)},
    }.get(step, {before})


def _act(step: str, proxied: str, shard: Shard, given: Given) -> None:
    STEPS[step](MongoStore(parse(proxied)), shard, given)


@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", list(STEPS))
def test_a_client_killed_at_any_command_leaves_every_message_in_one_piece(
    store: MongoStore,
    shard: Shard,
    database: Database,
    proxy: LossyProxy,
    proxied: str,
    step: str,
    carried_out: bool,
) -> None:
    for fail_at in range(60):
        given = prepared(step, store, shard)
        before = counted(store, shard)
        # When a client is killed at one of the commands of a step
        act = partial(_act, step, proxied, shard, given)
        killed = proxy.kill_at(fail_at, act, carried_out=carried_out)
        # Then, after a sweep, each bundle is as before or as after
        let_intents_lapse(database)
        while store.sweep(Sweep(shard.queue, 0)):
            pass
        after = counted(store, shard)
        if step == "forward":  # messages whose forward was undone come back
            assert after in (EXPECTED[step], before, (8, 0, 0)), (fail_at, proxy.commands)
        else:
            assert after in parts_of(step, before) | {EXPECTED[step]}, (fail_at, proxy.commands)
        assert killed or after == EXPECTED[step]
        clear(store, shard)
        if not killed:
            return
    pytest.fail("the step has no end")


def test_what_a_client_killed_in_a_forward_has_hidden_is_found_by_the_next_deep_look(
    store: MongoStore, shard: Shard, database: Database, proxy: LossyProxy, proxied: str
) -> None:
    for fail_at in range(60):
        given = prepared("forward", store, shard)
        before = counted(store, shard)
        killed = proxy.kill_at(fail_at, partial(_act, "forward", proxied, shard, given))
        let_intents_lapse(database)
        store.probe([shard], deep=True)
        assert counted(store, shard) in (EXPECTED["forward"], before, (8, 0, 0)), (fail_at, proxy.commands)
        assert database["shardq.intent"].count_documents({}) == 0
        clear(store, shard)
        if not killed:
            return
    pytest.fail("the step has no end")
