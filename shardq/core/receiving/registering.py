"""Counting a consumer among the live ones of its queues, which also returns their changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from shardq.base.log import Log
from shardq.core.context.identity import REGISTRATION_LIFETIME
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Retry
from shardq.core.sharding.surveying import in_groups
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.records import Registration
from shardq.storage.store import Store

__all__ = ["CLAIM_PATIENCE", "REGISTER_INTERVAL", "Registered", "RegistrationTimer", "deregister", "register"]

_log = Log(__name__)

REGISTER_INTERVAL = 5_000_000  # microseconds
CLAIM_PATIENCE = 0.2  # seconds for which what fails is repeated before the rest is gone on with
REGISTERED_AT_ONCE = 100  # queues in one request
GIVE_UP_AFTER = 7  # requests that fail without one that succeeds: the whole store is unreachable


class Registered(Protocol):
    """A queue in which a consumer registers."""

    @property
    def name(self) -> str:
        """The queue's name."""

    def registered(self, registration: Registration | None) -> None:
        """Take over the answer; None if there is no such queue."""


class RegistrationTimer:
    """Decides when a consumer registers in a queue again."""

    registered_at = -(10**18)
    """Microseconds; when it registered last."""

    def has_to_register(self, now: int) -> bool:
        """Return True every five seconds, when this consumer is to be counted among the live ones of the queue."""
        if self.registered_at <= now < self.registered_at + REGISTER_INTERVAL:
            return False
        self.registered_at = now
        return True


def register(store: Store, retry: Retry, queues: Sequence[Registered], consumer: str, name: str) -> None:
    """Count the consumer as a live one of each queue, and let each take over the answer about it.

    Messages come first: if this fails, the shards are shared as before. ``name`` is the consumer's in logs.
    """
    starts = range(0, len(queues), REGISTERED_AT_ONCE)
    groups = [queues[start : start + REGISTERED_AT_ONCE] for start in starts]
    try:
        with retry.within(CLAIM_PATIENCE):
            answers, failed = in_groups(groups, partial(_register, store, retry, consumer), GIVE_UP_AFTER)
    except (StoreUnavailable, OutcomeUnknown) as error:
        _log.warning("consumer %s was not counted: %s", name, error)
        return
    for queue, why in failed:
        _log.warning("consumer %s was not counted in queue %s: %s", name, queue.name, why)
    for queue, known in answers:
        queue.registered(known)


def _register(
    store: Store, retry: Retry, consumer: str, queues: Sequence[Registered]
) -> list[tuple[Registered, Registration | None]]:
    names = [queue.name for queue in queues]
    answers = retry(store.register_consumer, names, consumer, REGISTRATION_LIFETIME)
    return list(zip(queues, answers, strict=True))


def deregister(context: QueueContext, consumer: str) -> None:
    """Count the consumer as a live one no longer."""
    with suppress(ShardqError), context.retry.within(0):  # the store forgets a silent consumer anyway
        context.retry(context.store.deregister_consumer, context.name, consumer)
