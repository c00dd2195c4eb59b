"""A note for people when the store does not answer, while the command still tries."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from shardq.cli.printing import note
from shardq.errors import ShardqError, StoreUnavailable

if TYPE_CHECKING:
    from shardq.storage.store import Store

__all__ = ["warn_if_unreachable"]

QUIET_SECONDS = 3.0  # that a command may take without anybody wondering
PING_SECONDS = 5.0


def warn_if_unreachable(store: Store) -> threading.Timer:
    """Ping the store a moment from now, and write why there is no answer; cancel the timer when the command ends."""
    timer = threading.Timer(QUIET_SECONDS, _report, [store])
    timer.daemon = True
    timer.start()
    return timer


def _report(store: Store) -> None:
    from shardq.core.pinging import ping  # noqa: PLC0415 - most commands have ended before

    try:
        ping(store, PING_SECONDS)
    except StoreUnavailable as error:
        note(f"shardq: still trying: {error}")
    except ShardqError:
        return  # the command meets it too
