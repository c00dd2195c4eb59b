"""Opening a client by the URL of its store."""

from __future__ import annotations

from shardq.base.clock import Clock, SystemClock
from shardq.base.texts import kind_of, shown
from shardq.client.client import Client
from shardq.core.context.retry import RETRY_SECONDS
from shardq.core.hooks import Hooks, Observer, check_observer
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import ObservedStore

__all__ = ["connect"]


def connect(
    url: str,
    *,
    hooks: Hooks | None = None,
    observer: Observer | None = None,
    retry_seconds: float = RETRY_SECONDS,
    clock: Clock | None = None,
) -> Client:
    """Open the store that a URL names. Nothing is created, and no connection is made, before it is needed.

    ``sqlite:///queue.db`` is a file in the current folder, ``sqlite:////var/lib/queue.db`` an absolute path.
    ``memory://`` is of this client alone, and ``memory://name`` of this process: both end with their clients. Calls
    that fail with a retryable error are repeated for ``retry_seconds`` before the error is raised. One attempt to
    connect takes at most half of that, within 2 to 10 seconds. Timeouts in the URL override this. ``observer`` is
    notified of the duration of each request. ``clock`` is for tests. Raises InvalidSetting.
    """
    check_number("retry_seconds", retry_seconds, 0.0, 3_600.0)
    if clock is not None and not callable(getattr(clock, "now", None)):
        raise InvalidSetting(
            f"clock={shown(clock)} is {kind_of(clock)}: give one such as shardq.testing.ManualClock()"
        )
    check_observer(observer)
    store = open_store(url, clock or SystemClock(), retry_seconds=retry_seconds)
    if observer is not None:
        store = ObservedStore(store, url.partition(":")[0], observer)
    return Client(store, hooks=hooks, observer=observer, retry_seconds=retry_seconds)
