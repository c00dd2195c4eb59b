"""Claiming the next batch while the last one is acked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from shardq.base.clock import seconds
from shardq.base.waits import ChangeNotifier, is_over, start
from shardq.core.context.retry import Retry
from shardq.core.receiving.receiving import Receiving
from shardq.core.receiving.registering import CLAIM_PATIENCE
from shardq.errors import ShardqError
from shardq.held import HeldSlice, first_of
from shardq.storage.per_process import forks

__all__ = ["Overlap"]

_log = logging.getLogger(__name__)

LONGEST_WAIT = 1.0  # seconds


class _Claim:
    held: list[HeldSlice] | None = None  # None while it is under way, or given back


class Overlap:
    """Has messages claimed while those before them are acked, so that two requests take the time of one.

    They are for the consumer's next read. If that does not come within a second, or a quarter of their lease, they
    are released in their places, without a delivery, so that nobody else waits for them longer. A process that ends
    meanwhile leaves them claimed and their delivery counted, as one that ends while it reads does.
    """

    def __init__(
        self, retry: Retry, receiving: Receiving, give_back: Callable[[Sequence[HeldSlice]], None]
    ) -> None:
        self._retry, self._receiving, self._give_back_held = retry, receiving, give_back
        self.claiming = threading.Lock()
        """Held while a thread claims: one does at a time."""
        self._lock = threading.RLock()
        self._changes = ChangeNotifier(self._lock)
        self.claim: _Claim | None = None
        """The claim that was begun last and not taken."""
        self._thread: threading.Thread | None = None
        self._generation = forks.count
        self._left = False

    def begin(self, limit: int) -> None:
        """Claim up to so many messages in another thread, unless that was begun and not taken. Returns at once."""
        with self._lock:
            if self.claim is not None or self._left or self._generation != forks.count:
                return
            claim = self.claim = _Claim()
            thread = self._thread = threading.Thread(
                target=self._run, args=(claim, limit), name="shardq-overlap", daemon=True
            )
        with suppress(RuntimeError):  # the interpreter is about to end, or there are too many threads
            start(thread, partial(self._end, claim))

    def take(self, limit: int) -> list[HeldSlice]:
        """Up to so many of the messages that were claimed; the others are released. Waits for a claim under way.

        Who claims for itself if there are none holds :attr:`claiming` from before: else a claim that begins in between
        would hide from it what is due.
        """
        wanted, surplus = first_of(self._take(), limit)
        self._give_back(surplus)
        return self._receiving.unexpired(wanted)

    def give_back(self) -> None:
        """Release what was claimed and not taken."""
        self._give_back(self._take())

    def leave(self) -> None:
        """Claim nothing more, and release what was claimed and not taken."""
        with self._lock:
            self._left = True
        self.give_back()
        if self._thread is not None and self._generation == forks.count:
            with suppress(RuntimeError):  # it could not be started
                self._thread.join()

    def _run(self, claim: _Claim, limit: int) -> None:
        held: list[HeldSlice] = []
        try:
            held = self._fill(limit)
        finally:
            claim.held = held
            self._changes.notify_all()
            patience = min(LONGEST_WAIT, seconds(self._receiving.lease_of(held)) / 4)
            self._changes.wait_for(lambda: self.claim is not claim or not held, patience)
            with self._lock:
                taken = self.claim is not claim
                if not taken:
                    claim.held = None  # who reads now waits until they are free again
        if not taken:
            try:
                self._give_back(held)
            finally:
                self._end(claim)

    def _end(self, claim: _Claim) -> None:
        """Let nobody wait for a claim that gives nothing."""
        with self._lock:
            claim.held = []
            if self.claim is claim:
                self.claim = None
        self._changes.notify_all()

    def _fill(self, limit: int) -> list[HeldSlice]:
        """What is claimed now: nothing while the consumer claims for itself, or when it fails.

        Nor while a claim may have acked messages: only a read may repeat that, as they cannot be given back.
        """
        if not self.claiming.acquire(blocking=False):
            return []
        try:
            if any(queue.may_have_finished for queue in self._receiving.queues.values()):
                return []
            with self._retry.within(CLAIM_PATIENCE):
                return self._receiving.fill(limit, thorough=False)
        except ShardqError as error:
            _log.debug("nothing was claimed during an ack: %s", error)
            return []
        finally:
            self.claiming.release()

    def _take(self) -> list[HeldSlice]:
        claim = self.claim
        if claim is None or self._generation != forks.count:
            return []

        def take() -> tuple[list[HeldSlice], ...]:
            """Take the claim under the lock, so that its thread does not give it back at the same time."""
            if claim.held is None and not is_over(self._thread):
                return ()
            if self.claim is not claim:
                return ([],)
            self.claim = None
            return (claim.held or [],)  # none: who began it was interrupted before its thread was started

        (taken,) = self._changes.wait_for(take)
        self._changes.notify_all()
        return taken

    def _give_back(self, held: Sequence[HeldSlice]) -> None:
        if not held:
            return
        try:
            self._give_back_held(held)
        except ShardqError as error:
            _log.warning("what was claimed during an ack comes back when its lease is over: %s", error)
