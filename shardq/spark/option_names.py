"""What an option that is not known was meant to be: one that is spelled nearly so, or that has its role elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest"]

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
    """The known option that was probably meant; None: nothing is near."""
    letters = re.sub("[^a-z0-9]", "", name.lower().removeprefix("kafka."))
    by_letters = {option.lower(): option for option in known}
    for option in _ELSEWHERE.get(letters, "").split():
        if option.lower() in by_letters:
            return option
    near = get_close_matches(letters, by_letters, n=1, cutoff=_CLOSE)
    return by_letters[near[0]] if near else None
