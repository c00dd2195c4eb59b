"""The queues of a consumer that follows patterns: which they are, and when that is to be found out again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from shardq.base.clock import seconds
from shardq.base.patterns import NamePattern
from shardq.core.context.catalogue import CATALOGUE, MatchedQueues, create_catalogue
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.receiving.claiming import QueueClaims
from shardq.core.receiving.registering import ENLIST_INTERVAL, deregister
from shardq.errors import OutcomeUnknown, QueueNotFound, StoreUnavailable
from shardq.storage.records import QueueRecord, Registration

__all__ = ["LIST_INTERVAL", "Following"]

_log = logging.getLogger(__name__)

LIST_INTERVAL = 60_000_000
"""Microseconds after which the queues are listed whatever the catalogue says: its version is a hint."""

MOST_LEFT = 1_000


class Following:
    """The queues that names and patterns stand for, for one consumer and one thread at a time.

    A consumer registers in the catalogue with its queues, in the same request, and gets its version in the answer. The
    queues are listed when that is another one, and once a minute.
    """

    name = CATALOGUE

    def __init__(
        self, catalogue: QueueContext, wanted: Sequence[str | NamePattern], consumer: ConsumerIdentity
    ) -> None:
        self.catalogue, self._wanted, self._consumer = catalogue, wanted, consumer.text
        self._matched = MatchedQueues(catalogue.store, catalogue.retry)
        self._registered_at = self._listed_at = -(10**18)
        self._told: QueueRecord | None = None
        self._listed: QueueRecord | None = None
        self._applied: frozenset[str] | None = None
        self.found: Mapping[str, str] = {}
        """Which name or pattern stands for each queue."""
        self.left: dict[str, QueueClaims] = {}
        """Of queues that were deleted: messages of them may still be held."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The names and patterns."""
        return tuple(each.text if isinstance(each, NamePattern) else each for each in self._wanted)

    def has_to_register(self, now: int) -> bool:
        """Return True every five seconds."""
        if self._registered_at <= now < self._registered_at + ENLIST_INTERVAL:
            return False
        self._registered_at = now
        return True

    def registered(self, told: Registration | None) -> None:
        """Take over the answer about the catalogue; None if the catalogue was deleted."""
        self._told = None if told is None else told.record
        if told is None:
            create_catalogue(self.catalogue.store, self.catalogue.retry)

    def seconds_until_due(self) -> float:
        """Return the seconds until the consumer has to register."""
        return max(0.0, seconds(self._registered_at + ENLIST_INTERVAL - self.catalogue.store.now()))

    def update(self, now: int, queues: dict[str, QueueClaims], make: Callable[..., QueueClaims]) -> bool:
        """Make ``queues`` those that there are now, if it is time to list them; True if they are others than before.

        If they cannot be listed, the consumer continues with the queues that it has. Raises StoreUnavailable or
        OutcomeUnknown if it has never had any.
        """
        is_known = self._told is not None and self._told == self._listed
        if is_known and self._listed_at <= now < self._listed_at + LIST_INTERVAL:
            return False
        told = self._told
        try:
            found = self._matched.find(self._wanted, told)
            self._take_over(found, queues, make)
        except (StoreUnavailable, OutcomeUnknown) as error:
            if self._listed_at < 0:
                raise
            _log.warning("the queues that %s match were not listed: %s", ", ".join(self.texts), error)
            return False
        self._listed, self._listed_at = told, now
        if queues.keys() == self._applied:
            return False
        self._applied, self.found = frozenset(queues), found
        _log.info("%s: %d queues match", ", ".join(self.texts), len(queues))
        return True

    def _take_over(
        self, found: Mapping[str, str], queues: dict[str, QueueClaims], make: Callable[..., QueueClaims]
    ) -> None:
        """Add the queues that were found, and drop the others.

        A consumer keeps only queues from expiring that it names.
        """
        for name in found:
            with suppress(QueueNotFound):  # deleted since it was listed
                if name not in queues:
                    queues[name] = make(self.catalogue.sibling(name), uses=name in self._wanted)
        for name in queues.keys() - found.keys():
            self.left[name] = queues[name]
            del queues[name]
            self.left[name].deregister()
        for name in list(self.left)[: max(0, len(self.left) - MOST_LEFT)]:
            del self.left[name]

    def deregister(self) -> None:
        """Follow no longer."""
        deregister(self.catalogue, self._consumer)
