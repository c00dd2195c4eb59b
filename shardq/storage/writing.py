"""Writing, for several stores: bundles too large for one write, writes that others get ahead of, partial work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from shardq.base.shard import Shard
from shardq.errors import Closed, OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.abilities import TransactionEnded
from shardq.storage.requests import Append, Bundle

__all__ = ["after_a_write", "append_in_parts", "attempts", "optional", "parts", "reporting_done"]


@contextmanager
def reporting_done(done: Callable[[], str]) -> Iterator[None]:
    """Raise OutcomeUnknown where the store fails, or the client is closed, after a part was done.

    ``done`` says in words what was; "" says that nothing was.
    """
    try:
        yield
    except TransactionEnded:  # nothing of it stands
        raise
    except (StoreUnavailable, OutcomeUnknown, Closed) as error:
        if not (what := done()):
            raise
        raise OutcomeUnknown(f"{what} ({error})") from error


@contextmanager
def optional() -> Iterator[None]:
    """Suppress errors of work that another call completes, but not the end of the application's transaction.

    A driver may end the block of a transaction without an error when the server has ended it before. So the application
    would believe that its own rows are stored.
    """
    try:
        yield
    except TransactionEnded:
        raise
    except ShardqError:
        pass


def after_a_write(begun: Callable[[], object] = lambda: True) -> AbstractContextManager[None]:
    """Add a note to errors, as :func:`reporting_done`, where a part of the work was done, or had ``begun``."""
    return reporting_done(lambda: "a part of it is done: repeat the call" if begun() else "")


def attempts(shard: Shard, pauses: Iterable[float]) -> Iterator[int]:
    """Count the attempts at a change that others may get ahead of; raises StoreUnavailable when there were enough.

    There is one attempt more than ``pauses``: after each comes a random part of a pause, in seconds.
    """
    yield 0
    for attempt, pause in enumerate(pauses, 1):
        time.sleep(random.uniform(0, pause))
        yield attempt
    raise StoreUnavailable(f"shard {shard} is changed by others all the time: try again")


def append_in_parts(
    request: Append, put: Callable[[list[Bundle]], object], *, most_bytes: int, most_bundles: int
) -> None:
    """Store the bundles in parts of bounded size; a part that fails makes the outcome of the whole unknown."""
    stored = 0
    with reporting_done(
        lambda: f"a part of an append to shard {request.shard} is stored: repeat it" if stored else ""
    ):
        for part in parts(request.bundles, most_bytes, most_bundles):
            put(part)
            stored += 1


def parts(bundles: Iterable[Bundle], most_bytes: int, most_bundles: int) -> Iterator[list[Bundle]]:
    """Cut them into parts of at most this number of bundles, and bytes of their data.

    One bundle may have more bytes.
    """
    part: list[Bundle] = []
    size = 0
    for bundle in bundles:
        if part and (size + len(bundle.data) > most_bytes or len(part) == most_bundles):
            yield part
            part, size = [], 0
        part.append(bundle)
        size += len(bundle.data)
    if part:
        yield part
