from __future__ import annotations

from functools import cache

from django.conf import settings

import shardq


@cache
def client() -> shardq.Client:
    """The client of this process. Threads and forked processes may use it."""
    return shardq.connect(settings.SHARDQ_URL)


def orders() -> shardq.Queue:
    return client().queue("orders")
