"""A connection that breaks at any command of any operation, before it is carried out or after."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Claim
from tests.mongodb.lossy_proxy import LossyProxy
from tests.steps import EXPECTED, MINUTE, STEPS, claim, clear, counted, persist, prepared

pytestmark = pytest.mark.server


@pytest.mark.parametrize("carried_out", [False, True], ids=["request lost", "response lost"])
@pytest.mark.parametrize("step", list(STEPS))
@pytest.mark.parametrize("time_shard", [0, GROUP_TIME_SHARD], ids=["", "of groups"])
def test_a_step_that_is_repeated_after_a_broken_connection_neither_loses_nor_doubles(
    open_store: Callable[..., MongoStore],
    store: MongoStore,
    shard: Shard,
    proxy: LossyProxy,
    proxied: str,
    step: str,
    carried_out: bool,
    time_shard: int,
) -> None:
    if time_shard and not store.capabilities.groups:
        pytest.skip("a single server has no groups")
    shard = Shard(shard.queue, time_shard, 0)
    failing = open_store(proxied)
    for fail_at in range(60):
        given = prepared(step, store, shard)
        # When the connection breaks at one of its commands, and the step is repeated
        proxy.arm(fail_at, carried_out=carried_out)
        persist(partial(STEPS[step], failing, shard, given))
        failed = proxy.failed
        proxy.arm(-1)
        # Then the shard is as after one call
        assert counted(store, shard) == EXPECTED[step], proxy.commands
        if step == "claim":
            again = claim(failing, Claim(shard, given.token, 4, MINUTE)).slices
            assert [(each.first, each.count, each.deliveries) for each in again] == [(0, 3, 1), (0, 1, 1)]
        clear(store, shard)
        if not failed:
            return
    pytest.fail("the step has no end")
