"""Suggestions for unknown options, and moments among the options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches

from shardq.base.clock import from_datetime
from shardq.errors import InvalidSetting

__all__ = ["FOREVER", "moment_of", "nearest"]

_CLOSE = 0.75  # so much of the letters has to agree

_ELSEWHERE = {  # in Spark's sources for Kafka, Kinesis and files, and in SQS: letters only, in lower case
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
    "maxtriggerdelay": "maxTriggerDelaySeconds",
    "maxbytespertrigger": "maxMessagesPerTrigger",
    "maxfilespertrigger": "maxMessagesPerTrigger",
    "maxrecordsperfetch": "maxMessagesPerTrigger",
    "maxnumberofmessages": "maxMessagesPerTrigger",
    "batchsize": "maxMessagesPerTrigger bundleMessages",
    "bootstrapservers": "url",
    "queueurl": "url",
    "endpoint": "url",
    "subscribe": "queue",
    "path": "queue",
    "table": "queue",
    "streamname": "queue",
    "groupid": "group",
    "groupidprefix": "group",
    "consumergroup": "group",
    "startingoffsets": "since",
    "startingtimestamp": "since",
    "endingoffsets": "until",
    "endingtimestamp": "until",
    "failondataloss": "failOnLeaseLoss",
    "visibilitytimeout": "leaseSeconds",
    "visibilitytimeoutseconds": "leaseSeconds",
    "select": "columns",
    "rowspersecond": "throughputRowsPerSec",
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known option that was probably meant; None: nothing is near."""
    letters = re.sub("[^a-z0-9]", "", name.lower().removeprefix("kafka."))
    by_letters = {option.lower(): option for option in known}
    for option in _ELSEWHERE.get(letters, "").split():
        if option.lower() in by_letters:
            return option
    near = get_close_matches(letters, by_letters, n=1, cutoff=_CLOSE)
    return by_letters[near[0]] if near else None


FOREVER = 2**62
"""A moment that does not come, in microseconds."""


def moment_of(name: str, text: str | None, default: int) -> int:
    """Return a moment in ISO 8601 as microseconds; raises InvalidSetting."""
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidSetting(
            f"option {name}={text!r} is not a moment: give ISO 8601, such as 2026-01-31T08:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise InvalidSetting(f"option {name}={text!r} has no time zone: end it with Z for UTC")
    return from_datetime(moment)
