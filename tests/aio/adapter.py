"""The asyncio client behind the names of the sync one: with `-p tests.aio.adapter` the tests of that run on it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

import shardq
import shardq.aio
from shardq.aio.threads import Wraps
from shardq.testing.seam import sync_of

OF_THE_SYNC_CLIENT = {
    # claiming ahead
    "test_a_prefetching_consumer_delivers_everything_once",
    "test_prefetch_is_bounded_and_gives_back_what_was_not_started",
    "test_what_expires_while_it_is_claimed_ahead_is_not_handed_out",
    "test_a_receive_that_finds_only_expired_messages_ahead_looks_at_the_queue",
    "test_a_dead_letter_tells_how_often_it_was_delivered_however_often_it_was_tried_to_make_it_one",
    # workers, and forked children
    "test_a_worker_acks_with_what_its_handler_returns",
    "test_workers_tell_what_failed_and_what_was_put_off",
    "test_another_process_is_told_too",
    # types that the seam asks for, and futures of this adapter that keep what they return
    "test_a_keeper_that_comes_too_late_does_not_make_an_ack_look_well",
    "test_what_was_settled_is_freed_at_once",
}
"""Tests of what the asyncio client has not."""

METHODS = {"settings", "permits", "lease", "lost", "last_delivery", "retention"}
"""What is a property of the sync client and a coroutine here."""


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function in the loop, await what is to be awaited, and return the result as a test sees it."""

        async def called() -> Any:
            found = function(*map(_inner, args), **{name: _inner(value) for name, value in kwargs.items()})
            return await found if inspect.isawaitable(found) else found

        try:
            return self.shown(asyncio.run_coroutine_threadsafe(called(), self._loop).result())
        except shardq.LeaseLost as error:
            error.messages = tuple(map(self.shown, error.messages))
            raise

    def shown(self, value: Any) -> Any:
        """Return what a test sees of a value."""
        if isinstance(value, shardq.aio.Batch):
            return SyncBatch(self, value)
        if isinstance(value, Wraps):
            return Sync(self, value)
        if inspect.isasyncgen(value):
            return self._iterated(value)
        if isinstance(value, list):
            return [self.shown(each) for each in value]
        return value

    def _iterated(self, values: Any) -> Iterator[Any]:
        end = object()
        try:
            while (value := self.call(anext, values, end)) is not end:
                yield value
        finally:
            self.call(values.aclose)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Sync:
    """An object of the asyncio client, whose coroutines are awaited."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._loop, self.inner = loop, inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by the seam
            return getattr(sync_of(self.inner), name)
        if name in METHODS:
            return self._loop.call(getattr(self.inner, name))
        found = getattr(self.inner, name)
        if callable(found):
            return lambda *args, **kwargs: self._loop.call(found, *args, **kwargs)
        return self._loop.shown(found)

    def __enter__(self) -> Any:
        entered = self._loop.call(self.inner.__aenter__)
        return self if getattr(entered, "inner", None) is self.inner else entered

    def __exit__(self, *error: Any) -> None:
        self._loop.call(self.inner.__aexit__, *error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sync) and bool(self.inner == other.inner)

    def __hash__(self) -> int:
        return hash(self.inner)


class SyncBatch(Sync, Sequence[Any]):
    """A batch."""

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: Any) -> Any:
        return self._loop.shown(self.inner[index])

    __hash__ = Sync.__hash__


def _inner(value: Any) -> Any:
    if isinstance(value, Sync):
        return value.inner
    if type(value) is dict:
        return {_inner(key): each for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_inner, value))
    return value


def pytest_configure(config: pytest.Config) -> None:
    """Let tests connect with the asyncio client."""
    loop = Loop()
    shardq.connect = partial(_connected, loop)
    config.add_cleanup(loop.close)


def _connected(loop: Loop, url: str, **options: Any) -> Any:
    return Sync(loop, shardq.aio.connect(url, **options))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what the asyncio client has not."""
    items[:] = [item for item in items if getattr(item, "originalname", item.name) not in OF_THE_SYNC_CLIENT]
