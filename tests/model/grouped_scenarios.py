"""Clients of one shard of groups."""

from __future__ import annotations

from msgspec.structs import replace

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.requests import Bundle
from tests.model.exploration import START, Scenario
from tests.model.modelled_table import Database
from tests.model.promises import sent
from tests.model.scenarios import LEASE, SECOND, bundle, consumer, producer, renewing, returning, script, used

__all__ = ["GROUPED_SCENARIOS"]

GROUPED = Shard("q", GROUP_TIME_SHARD, 3)


def of_group(number: int, count: int = 1, *, due: int = START) -> Bundle:
    """The bundle of this number, whose tens are its group."""
    return replace(bundle(number, count, due=due), group=str(number // 10))


def waiting(*bundles: Bundle) -> Database:
    """These were sent, in this order, to a shard whose low watermarks a claim has no reason to raise."""
    return sent(used(shard=GROUPED), GROUPED, START, *bundles)


GROUPED_SCENARIOS: dict[str, Scenario] = {
    "two consumers of groups and a sender": Scenario(
        (
            script(consumer("A", 1, 2, shard=GROUPED)),
            script(consumer("B", 2, shard=GROUPED)),
            script(producer("P", of_group(13), of_group(22), shard=GROUPED)),
        ),
        waiting(of_group(11, 2), of_group(12), of_group(21)),
        ticks=(LEASE + SECOND,),
        faults=1,
        shards=(str(GROUPED),),
    ),
    "one claim of groups under one name by two processes": Scenario(
        (
            script(consumer("A", 1, 1, shard=GROUPED)),
            script(consumer("A'", 1, 1, shard=GROUPED)),
            script(producer("P", of_group(31, due=START - SECOND), shard=GROUPED)),
        ),
        waiting(of_group(11), of_group(21)),
        faults=1,
        shards=(str(GROUPED),),
    ),
    "groups that are given back": Scenario(
        (script(renewing("A", 1, shard=GROUPED)), script(returning("B", 2, shard=GROUPED))),
        waiting(of_group(11), of_group(12, 2), of_group(21)),
        ticks=(LEASE + SECOND,),
        faults=1,
        shards=(str(GROUPED),),
    ),
}
