"""The queues of a consumer that follows patterns: when they are listed, and which are new or deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from shardq.base.clock import seconds
from shardq.base.log import Log
from shardq.base.patterns import NamePattern
from shardq.core.context.catalogue import CATALOGUE, MatchedQueues, create_catalogue
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.receiving.claiming import QueueClaims
from shardq.core.receiving.registering import CLAIM_PATIENCE, REGISTER_INTERVAL, RegistrationTimer, deregister
from shardq.errors import (
    InvalidName,
    InvalidSetting,
    OutcomeUnknown,
    QueueNotFound,
    ShardqError,
    StoreUnavailable,
    UnsupportedByStore,
)
from shardq.storage.records import QueueRecord, Registration

__all__ = ["QueueDiscovery"]

_log = Log(__name__)

LIST_INTERVAL = 60_000_000
"""Microseconds after which the queues are listed whatever the catalogue says: its version is a hint."""

MOST_LEFT = 1_000


class QueueDiscovery(RegistrationTimer):
    """The queues that names and patterns stand for, for one consumer and one thread at a time.

    A consumer registers in the catalogue with its queues, in the same request, and gets its version in the answer. The
    queues are listed when that is another one, and once a minute. While it does not get the version, as the store
    fails, they are listed every five seconds.
    """

    name = CATALOGUE

    def __init__(
        self, catalogue: QueueContext, wanted: Sequence[str | NamePattern], consumer: ConsumerIdentity
    ) -> None:
        self.catalogue, self._wanted, self._consumer = catalogue, wanted, consumer.text
        self._matched = MatchedQueues(catalogue.store, catalogue.retry)
        self._record: QueueRecord | None = None
        # Of the last try to list the queues: the record, when, and whether it is repeated only for news.
        self._tried: QueueRecord | None = None
        self._tried_at, self._is_complete = -(10**18), False
        self._applied: frozenset[str] | None = None
        self.found: Mapping[str, str] = {}
        """Which name or pattern stands for each queue."""
        self.left: dict[str, QueueClaims] = {}
        """Of queues that were deleted: messages of them may still be held."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The names and patterns."""
        return tuple(each.text if isinstance(each, NamePattern) else each for each in self._wanted)

    def registered(self, registration: Registration | None) -> None:
        """Take over the answer about the catalogue; None if the catalogue was deleted."""
        self._record = None if registration is None else registration.record
        if registration is None:
            with suppress(ShardqError), self.catalogue.retry.within(CLAIM_PATIENCE):
                create_catalogue(self.catalogue.store, self.catalogue.retry)

    def seconds_until_due(self) -> float:
        """Return the seconds until the consumer has to register."""
        return max(0.0, seconds(self.registered_at + REGISTER_INTERVAL - self.catalogue.store.now()))

    def update(
        self,
        now: int,
        queues: dict[str, QueueClaims],
        make: Callable[..., QueueClaims],
        changed: Callable[[], None],
    ) -> bool:
        """Make ``queues`` those that there are now, if it is time to list them; True if they are others than before.

        Then ``changed`` is called. After an interrupt before it returns, the next update does all of it again.

        If they cannot be listed, the consumer continues with the queues that it has, and tries again five seconds
        later. A queue that cannot be opened is left out until then. Raises StoreUnavailable or OutcomeUnknown if the
        consumer has never had any queues.
        """
        record = self._record
        pause = LIST_INTERVAL if self._is_complete else REGISTER_INTERVAL
        if record == self._tried and self._tried_at <= now < self._tried_at + pause:
            return False
        found, failed = self.found, None
        try:
            with self.catalogue.retry.within(None if self._applied is None else CLAIM_PATIENCE):
                found = self._matched.find(self._wanted, record)
                failed = self._take_over(found, queues, make)
        except (StoreUnavailable, OutcomeUnknown) as error:
            failed = error
        if failed is not None:
            if self._applied is None:
                raise failed
            _log.warning("not all queues that %s match are followed: %s", ", ".join(self.texts), failed)
        is_other = found is not self.found and queues.keys() != self._applied
        if is_other:
            self.found = found
            changed()
            self._applied = frozenset(queues)
            _log.info("%s: %d queues match", ", ".join(self.texts), len(queues))
        self._tried, self._tried_at = record, now
        self._is_complete = record is not None and failed is None
        return is_other

    def _take_over(
        self, found: Mapping[str, str], queues: dict[str, QueueClaims], make: Callable[..., QueueClaims]
    ) -> ShardqError | None:
        """Add the queues that were found, and drop the others; returns the error of one that could not be opened.

        A consumer keeps only queues from expiring that it names.
        """
        failed: ShardqError | None = None
        for name in found:
            try:
                if name not in queues:
                    queues[name] = make(self.catalogue.sibling(name), uses=name in self._wanted)
            except QueueNotFound:  # deleted since it was listed
                pass
            except (InvalidName, InvalidSetting, UnsupportedByStore) as error:
                _log.warning("queue %s is left out: %s", name, error)
            except (StoreUnavailable, OutcomeUnknown) as error:
                failed = error
        for name in queues.keys() - found.keys():
            self.left[name] = queues[name]
            del queues[name]
            self.left[name].deregister()
        for name in list(self.left)[: max(0, len(self.left) - MOST_LEFT)]:
            del self.left[name]
        return failed

    def deregister(self) -> None:
        """Follow no longer."""
        deregister(self.catalogue, self._consumer)
