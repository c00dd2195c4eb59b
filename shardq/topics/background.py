"""Relaying beside consumers and publishers: one thread for each topic that a client has opened.

The record of the queue names this as a background job of its consumers (:mod:`shardq.core.context.queue_records`). So
workers of a pool, and consumers of several queues, which know of no topic, have it relayed by a thread of their
process.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.base.waits import BackgroundThread, Flag
from shardq.client.consumer import Consumer
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.errors import Closed, QueueNotFound, ShardqError
from shardq.storage.per_process import PerProcess
from shardq.topics.names import topic_of_job
from shardq.topics.relay import Relay

__all__ = ["Background", "background_of", "relay_beside"]

_log = Log(__name__)

_WAIT_SECONDS = 5.0  # for messages; it also looks as often for what a relay that died has left
LINGER_SECONDS = 1.0  # a publisher relays what no consumer's process has relayed by then
IDLE_SECONDS = 30.0  # without anything to do the thread ends
_LONGEST_PAUSE = 30.0
_END_SECONDS = 3.0  # for which the end of a client waits for a round
_AGAIN_SECONDS = 30.0
_SERVED_SECONDS = 90.0


class Background:
    """Relays in a thread while consumers of the topic live in this process, and after something was published."""

    def __init__(self, open_relay: Callable[[], Relay], close: Callable[[], None]) -> None:
        self._open_relay, self._close = open_relay, close
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread = BackgroundThread("shardq-relay")
        self._news, self._ended = Flag(), Flag()
        self._relay_at_work: Relay | None = None
        self._published = False
        self._until = 0.0  # by time.monotonic

    def serve(self, consumer: Consumer) -> None:
        """Relay for as long as the consumer is in use."""
        with self._lock:
            self._consumers.add(consumer)
        self._start()

    def serve_for(self, seconds: float) -> None:
        """Relay for so long."""
        with self._lock:
            self._until = max(self._until, time.monotonic() + seconds)
        self._start()

    def published(self) -> None:
        """Relay in a while, if no other thread has."""
        if self._published and not self._thread.has_ended:
            return
        with self._lock:
            self._published = True
        self._start()

    def end(self) -> None:
        """Relay no more, and wait until the round at hand has ended: others can take its messages then."""
        self._ended.set()
        self._news.set()
        if (relay := self._relay_at_work) is not None:
            relay.stop()
        self._thread.join(_END_SECONDS)

    def _start(self) -> None:
        """Start the thread if there is none. Where it cannot be started, published messages are relayed later."""
        with self._lock:
            self._news.set()
            new = self._thread.prepare(self._run)
        if new is not None:
            self._thread.begin(new)

    def _run(self) -> None:
        try:
            self.relay_until_idle()
        except QueueNotFound:  # the topic is deleted
            pass
        except Closed:
            self._close()  # again: messages that this thread waited with meanwhile are released too
        finally:
            with self._lock:
                self._thread.forget()

    def relay_until_idle(self) -> None:
        """Relay in this thread until nothing came for a while. Raises Closed, or QueueNotFound for a deleted topic."""
        faults = 0
        while not self._ended.is_set() and self._goes_on():
            try:
                with_relay(self._open_relay, self._relay)
                faults = 0
            except (Closed, QueueNotFound):
                raise
            except ShardqError as error:
                faults, self._published = faults + 1, True
                _log.warning("messages of a topic are relayed later: %s", error)
                self._ended.wait(min(2.0**faults, _LONGEST_PAUSE))

    def _is_in_use(self) -> bool:
        return bool(self._consumers) or time.monotonic() < self._until

    def _goes_on(self) -> bool:
        """Wait for something to do; False when nothing came for a while, and the thread is to end."""
        if not self._is_in_use() and not self._published and not self._news.wait(IDLE_SECONDS):
            with self._lock:
                if not self._news.is_set():
                    self._thread.forget()
                    return False
        self._news.clear()
        return True

    def _relay(self, relay: Relay) -> None:
        self._relay_at_work = relay  # before the check whether it is to end
        try:
            self._run_rounds(relay)
        finally:
            self._relay_at_work = None

    def _run_rounds(self, relay: Relay) -> None:
        while not self._ended.is_set():
            if self._is_in_use():
                self._published = False
                relay.run(wait=_WAIT_SECONDS)
            elif self._published:
                self._ended.wait(LINGER_SECONDS)
                self._published = False
                relay.run()
            else:
                return


def background_of(contexts: QueueContexts, topic: str) -> PerProcess[Background]:
    """Return the background of a topic: one for all who have opened it with the client, or within its transactions."""
    outside = contexts.outside or contexts  # threads have no part in a transaction
    own = PerProcess(lambda: Background(lambda: Relay(outside, topic), outside.close))
    return outside.background.setdefault(topic, own)


def with_relay(open_relay: Callable[[], Relay], use: Callable[[Relay], None]) -> None:
    """Use a relay, and close it."""
    relay = open_relay()
    try:
        use(relay)
    finally:
        relay.close()


def relay_beside(contexts: QueueContexts, context: QueueContext, job: str) -> int:
    """Let a thread relay while the topic is received from; returns when to ask for it again, in microseconds."""
    name = topic_of_job(job)
    if name is not None and contexts.outside is None:
        background_of(contexts, name).get().serve_for(_SERVED_SECONDS)
    return context.store.now() + microseconds(_AGAIN_SECONDS)
