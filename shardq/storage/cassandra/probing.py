"""What shards have to offer, without a body being read: a few requests for fifty shards together.

A full look reads from the floors of each shard; a glance reads the ready rows from where the last full look or claim
found nothing any more. A full look that finds a shard used up also raises its floors, so that whoever looks
next keeps off the tombstones. A deep look goes by none of that, and puts it right.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardq.sharding.shard import Shard
from shardq.storage.cassandra.deep_survey import DeepSurvey
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.sight import Sights
from shardq.storage.cassandra.survey import Survey
from shardq.storage.requests import Probe

__all__ = ["probe"]

_AT_ONCE = 50  # shards of one request


def probe(
    session: Session, sights: Sights, shards: Sequence[Shard], now: int, *, glance: bool, deep: bool = False
) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order.

    With ``glance`` only what is ready and unclaimed, with ``deep`` whatever hides it.
    """
    chunks = [shards[start : start + _AT_ONCE] for start in range(0, len(shards), _AT_ONCE)]
    surveys = [
        DeepSurvey(session, sights, chunk, now)
        if deep
        else Survey(session, sights, chunk, now, glance=glance)
        for chunk in chunks
    ]
    for survey in surveys:
        survey.ask_controls()
    for survey in surveys:
        survey.ask()
    for survey in surveys:
        survey.collect()
    return tuple(found for survey in surveys for found in survey.probes())
