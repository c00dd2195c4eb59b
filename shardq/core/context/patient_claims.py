"""Claims that are made again while others get ahead of them, for those who do not come back soon."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from shardq.core.context.queue_context import QueueContext
from shardq.storage.requests import Claim, Claimed

__all__ = ["claim_patiently", "patiently"]

T = TypeVar("T")

_PAUSES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)  # seconds; each is made up to half longer or shorter


def claim_patiently(context: QueueContext, request: Claim) -> Claimed:
    """Claim, and again while the answer is that others were quicker; after about 0.8 seconds the last answer counts."""
    return patiently(lambda: context.retry(context.store.claim, request), lambda claimed: claimed.contended)


def patiently(claim: Callable[[], T], is_contended: Callable[[T], bool]) -> T:
    """The same for claims of any kind."""
    for pause in _PAUSES:
        claimed = claim()
        if not is_contended(claimed):
            return claimed
        time.sleep(pause * random.uniform(0.5, 1.5))
    return claim()
