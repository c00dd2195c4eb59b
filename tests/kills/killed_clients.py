"""What has to hold on every store when a client dies between any two of its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.requests import Append
from shardq.testing import BundleFactory
from shardq.testing.messages import Message, of_bundle
from tests.kills.killers import Killer
from tests.kills.operations import OPERATIONS, Given, Operation, group_in, prepare
from tests.kills.scene import MOST, Scene

__all__ = ["KilledClients"]


@pytest.mark.timeout(600)
class KilledClients:
    """A store's tests provide the fixture ``killer``."""

    @pytest.fixture
    def scene(self, killer: Killer) -> Iterator[Scene]:
        scene = Scene(killer)
        yield scene
        scene.close()

    @pytest.mark.parametrize("repeated", [False, True], ids=["given up", "repeated"])
    @pytest.mark.parametrize("name", list(OPERATIONS))
    @pytest.mark.parametrize("grouped", [False, True], ids=["alone", "of a group"])
    def test_an_operation_that_is_cut_short_loses_hides_and_doubles_nothing(
        self, scene: Scene, name: str, repeated: bool, grouped: bool
    ) -> None:
        operation = OPERATIONS[name]
        if grouped and not scene.healthy.capabilities.groups:
            pytest.skip("the store has no groups")
        if operation.across and not scene.healthy.capabilities.forward_across_shards:
            pytest.skip("the store does not forward across shards")
        if operation.together and not scene.healthy.capabilities.settle_across_shards:
            pytest.skip("the store does not settle across shards")
        for requests in scene.killer.every_third(MOST):
            queue = scene.new_queue() if operation.alone else scene.queue
            shard = Shard(queue, GROUP_TIME_SHARD if grouped else 0, requests)
            given = prepare(operation, scene.healthy, shard, scene.lease)
            killed = scene.killer.run(lambda store, given=given: operation.act(store, given), requests)  # type: ignore[misc]
            found = self._live_on(scene, operation, given, repeated=repeated)
            check(operation, given, found, certain=repeated or not killed)
            if operation.alone:
                assert scene.audit(shard.queue) == []
            if not killed:
                break
        else:
            pytest.fail("the operation has no end")
        assert scene.audit() == []

    def _live_on(
        self, scene: Scene, operation: Operation, given: Given, *, repeated: bool
    ) -> Counter[Message]:
        """A client that knew the shard before sends on, and a new one receives; returns what that gets."""
        heir = scene.harness.open()
        try:
            if repeated:
                scene.persist(lambda: operation.act(heir, given))
            more = BundleFactory(heir.now)(2, group=group_in(given.shard))
            scene.healthy.append(Append(given.shard, (more,)))
            found = scene.delivered(heir, given.shard, *([given.beside] if operation.across else []))
        finally:
            heir.close()
        for message in of_bundle(more):
            assert found.pop(message, 0) == 1, "what was sent afterwards did not come once"
        return found


def check(operation: Operation, given: Given, found: Counter[Message], *, certain: bool) -> None:
    """Compare what came with what was there before and is there after."""
    doubled = {message for message, times in found.items() if times > 1}
    assert not doubled, f"delivered twice: {doubled}"
    before = given.all if operation.stored else set()
    after = operation.after(given)
    came = set(found)
    assert came <= before | after, f"what nobody sent came: {came - before - after}"
    if certain:
        assert came == after, f"lost: {after - came}, came back: {came - after}"
    assert came >= before & after, f"lost: {(before & after) - came}"
    for bundle in (*given.bundles, given.new) if operation.whole else ():
        own = set(of_bundle(bundle))
        assert came & own in (before & own, after & own), "a bundle was changed by halves"
