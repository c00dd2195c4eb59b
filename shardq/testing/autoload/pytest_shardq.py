"""The fixtures of shardq for pytest, which finds them here automatically when shardq is installed.

pytest imports this before anything else: it imports nothing of shardq until a fixture is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from shardq import Client, StoredMessage
    from shardq.tasks import InlineTasks, Tasks
    from shardq.testing import ManualClock


@pytest.fixture
def shardq_clock() -> ManualClock:
    """Return the clock of the store.

    It begins with the present, and stands still until ``shardq_clock.advance(seconds)``.
    """
    from shardq.base.clock import SystemClock  # noqa: PLC0415 - as all imports here: see above
    from shardq.testing import ManualClock  # noqa: PLC0415

    return ManualClock(SystemClock().now())


@pytest.fixture
def shardq_url() -> str:
    """Return the URL of the store: in memory, and new for each test. Override it to run tests on another store."""
    return f"memory://test-{uuid.uuid4().hex}"


@pytest.fixture
def shardq_client(shardq_url: str, shardq_clock: ManualClock) -> Iterator[Client]:
    """Open a client of the store, on the clock of the test."""
    import shardq  # noqa: PLC0415

    with shardq.connect(shardq_url, clock=shardq_clock) as client:
        yield client


@pytest.fixture
def shardq_sent(shardq_client: Client) -> Callable[[str], list[StoredMessage]]:
    """Return ``shardq_sent("orders")``: the pending messages of a queue, in the order of their sends."""
    from shardq.client.queue_internals import waiting_in  # noqa: PLC0415

    return lambda queue: waiting_in(shardq_client.queue(queue))


@pytest.fixture
def shardq_tasks(shardq_client: Client) -> Iterator[Callable[[Tasks], InlineTasks]]:
    """Return ``shardq_tasks(app)``: an app whose tasks are sent to the store of the test, and run within it."""
    from shardq.tasks import InlineTasks  # noqa: PLC0415

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(InlineTasks(app, shardq_client))
