"""Claiming the next batch while the last one is acked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from shardq.base.clock import seconds
from shardq.base.log import Log
from shardq.base.waits import BackgroundThread, ChangeNotifier
from shardq.core.context.retry import Retry
from shardq.core.held import HeldSlice, first_of
from shardq.core.receiving.receiving import Receiving
from shardq.core.receiving.registering import CLAIM_PATIENCE
from shardq.errors import ShardqError
from shardq.storage.per_process import forks

__all__ = ["Overlap"]

_log = Log(__name__)

LONGEST_WAIT = 1.0  # seconds


class _Claim:
    def __init__(self) -> None:
        self.held: list[HeldSlice] | None = None  # None while it is under way, or released
        self.thread = BackgroundThread("shardq-overlap")


class Overlap:
    """Has messages claimed while those before them are acked, so that two requests take the time of one.

    They are for the consumer's next read. If that does not come within a second, or a quarter of their lease, they are
    released in their places, without a delivery. So other consumers do not wait for them longer. A process that ends
    meanwhile leaves them claimed and their delivery counted, as one that ends while it reads does.
    """

    def __init__(
        self, retry: Retry, receiving: Receiving, return_uncounted: Callable[[Sequence[HeldSlice]], None]
    ) -> None:
        self._retry, self._receiving, self._return_held = retry, receiving, return_uncounted
        self.claiming = threading.Lock()
        """Held while a thread claims: one does at a time."""
        self._lock = threading.RLock()
        self._changes = ChangeNotifier(self._lock)
        self.claim: _Claim | None = None
        """The claim that was begun last and not taken."""
        self._last: _Claim | None = None
        self._generation = forks.count
        self._left = False

    def begin(self, limit: int) -> None:
        """Claim up to ``limit`` messages in another thread, unless a claim was begun and not taken. Returns at once."""
        with self._lock:
            if self.claim is not None or self._left or self._generation != forks.count:
                return
            claim = self.claim = self._last = _Claim()
            new = claim.thread.prepare(partial(self._run, claim, limit))
        if new is None or not claim.thread.begin(new):
            self._end(claim)

    def take(self, limit: int) -> list[HeldSlice]:
        """Return up to ``limit`` of the messages that were claimed; the others are released.

        Waits for a claim under way. If there are none and the caller claims itself, it MUST hold :attr:`claiming`
        before it calls: else a claim that begins in between would hide due messages from it.
        """
        wanted, surplus = first_of(self._take(), limit)
        self._return_uncounted(surplus)
        return self._receiving.unexpired(wanted)

    def return_uncounted(self) -> None:
        """Release claimed messages that were not taken."""
        self._return_uncounted(self._take())

    def leave(self) -> None:
        """Stop claiming, and release claimed messages that were not taken."""
        with self._lock:
            self._left = True
        self.return_uncounted()
        if self._last is not None and self._generation == forks.count:
            self._last.thread.join()

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
                self._return_uncounted(held)
            finally:
                self._end(claim)

    def _end(self, claim: _Claim) -> None:
        """End the waits for a claim that gives nothing."""
        with self._lock:
            claim.held = []
            if self.claim is claim:
                self.claim = None
        self._changes.notify_all()

    def _fill(self, limit: int) -> list[HeldSlice]:
        """Claim messages; none while the consumer claims itself, or when it fails.

        Nor while a claim may have acked messages: only a read may repeat that, as they cannot be released.
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
            if claim.held is None and not claim.thread.has_ended:
                return ()
            if self.claim is not claim:
                return ([],)
            self.claim = None
            return (claim.held or [],)  # none: who began it was interrupted before its thread was started

        (taken,) = self._changes.wait_for(take)
        self._changes.notify_all()
        return taken

    def _return_uncounted(self, held: Sequence[HeldSlice]) -> None:
        if not held:
            return
        try:
            self._return_held(held)
        except ShardqError as error:
            _log.warning(
                "messages that were claimed during an ack come back when their lease expires: %s", error
            )
