"""The limits of a queue over all of its consumers: max_in_flight and rate_limit.

A consumer takes permits before it claims, claims at most as many messages as it has permits for, and releases the
surplus permits. So messages beyond the limit wait in the queue, and no delivery of them is counted. The permits of a
consumer that dies come back when their lease expires.

A limit counts the messages that a consumer is handed. A message of a claim whose answer was lost counts when it is
found, as no consumer works on it before.
"""

from __future__ import annotations

from collections.abc import Callable

from shardq.base.rate import Rate
from shardq.base.shard import MAX_NAME_LENGTH
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Retry
from shardq.core.held import HeldSlice
from shardq.core.limits.permits import PERMITS_FOLDER, Permits, create_permits_queue, permits_queue
from shardq.core.limits.shares import (
    Allowance,
    InFlightShare,
    RateShare,
    TakeShare,
    Window,
    permit_lease,
    units,
)
from shardq.core.settings import QueueSettings
from shardq.errors import InvalidName, InvalidSetting, QueueNotFound
from shardq.storage.requests import QueueRecord
from shardq.storage.store import Store

__all__ = ["PermitPace", "QueueLimits", "check_limits", "check_unlimited", "drop_permits", "limit_names"]

LONGEST_SECONDS = 5.0  # until the next look: a signal may have been missed, or the limit raised
FIRST_POLL_SECONDS = 0.005  # of a store without signals; each look that finds nothing doubles it
LAST_POLL_SECONDS = 0.25


class PermitPace:
    """Decides when to look for a permit again: when the next lease ends, and else now and then."""

    def __init__(self) -> None:
        self._poll = FIRST_POLL_SECONDS

    def reset(self) -> None:
        """Poll quickly again, after a permit was taken."""
        self._poll = FIRST_POLL_SECONDS

    def until_next_poll(self, permits: Permits) -> float:
        """Return the seconds until the next poll, unless a signal ends the wait."""
        self._poll, poll = min(2 * self._poll, LAST_POLL_SECONDS), self._poll
        if not permits.signals:
            return poll
        free = permits.seconds_until_free()
        return LONGEST_SECONDS if free is None else max(poll, min(free, LONGEST_SECONDS))


_IN_FLIGHT, _RATE = ".in-flight", ".rate"


def limit_names(queue: str) -> tuple[str, str]:
    """Return the names of a queue's limits: that of its messages in flight, and that of its rate."""
    return queue + _IN_FLIGHT, queue + _RATE


def check_limits(queue: str, settings: QueueSettings) -> None:
    """Raise InvalidName when the permits of a limit that is set cannot have a queue."""
    for setting, suffix in (("max_in_flight", _IN_FLIGHT), ("rate_limit", _RATE)):
        longest = MAX_NAME_LENGTH - len(PERMITS_FOLDER + suffix)
        if getattr(settings, setting) is not None and len(queue) > longest:
            raise InvalidName(
                f"{setting}={getattr(settings, setting)!r}: queue {queue[:20]!r}... has a name of {len(queue)} "
                f"characters, to which {PERMITS_FOLDER!r} and {suffix!r} are added for that of its permits: give it a "
                f"name of at most {longest}, or set {setting}=None"
            )


def check_unlimited(queue: str, settings: QueueSettings) -> None:
    """Raise InvalidSetting when a queue has limits: for what cannot keep them."""
    for name in ("max_in_flight", "rate_limit"):
        if (value := getattr(settings, name)) is not None:
            raise InvalidSetting(
                f"queue {queue!r} has {name}={value}, which claims by name cannot keep: set it to None, "
                "or receive with consumers"
            )


def drop_permits(store: Store, retry: Retry, queue: str) -> tuple[str, ...]:
    """Remove the permits of a deleted queue's limits; returns the names of their queues.

    Permits of a queue that exists again are in use, and stay: older ones are dropped before a queue is created. A queue
    that is created between this check and the drop makes new permits, so more messages may be in flight until then. A
    semaphore of such a name stays, too.
    """
    permits = {PERMITS_FOLDER + limit for limit in limit_names(queue)}
    found = permits.intersection(retry(store.list_queues, f"{PERMITS_FOLDER}{queue}."))
    records = (retry(store.load_queue, name) for name in found)
    over = [record for record in records if record is not None and not _is_semaphore(record)]
    if not over or retry(store.load_queue, queue) is not None:  # it is looked for after they were read
        return ()
    for record in over:
        retry(store.drop_queue, record.name, record)
    return tuple(record.name for record in over)


def _is_semaphore(record: QueueRecord) -> bool:
    return QueueSettings.decode(record.settings, record.name).max_in_flight is not None


class QueueLimits:
    """The limits of a queue, for one of its consumers. ``lease`` is that of its messages, in microseconds."""

    def __init__(self, context: QueueContext, owner: ConsumerIdentity, lease: Callable[[], int]) -> None:
        self._context, self._owner, self._lease = context, owner, lease
        self._known: dict[tuple[str, str], Permits] = {}
        self._incarnation = 0  # of the queue
        self._pace = PermitPace()
        self._blocked: Permits | None = None

    def allowance(self, settings: QueueSettings) -> Allowance:
        """Return the claims that a read may make now."""
        take: list[TakeShare] = []
        if settings.max_in_flight is not None:
            take.append(self._in_flight(Window.of_number(settings.max_in_flight)))
        if settings.rate_limit is not None:
            take.append(self._rate(Window.of_rate(Rate.parse(settings.rate_limit))))
        return Allowance(self._context, take)

    def begin(self) -> None:
        """Begin another read: permits may have come back."""
        self._blocked = None

    @property
    def blocked(self) -> bool:
        """True when this read found something to claim, and no permit."""
        return self._blocked is not None

    @property
    def waits_for(self) -> str | None:
        """The queue of the permits that were missing."""
        return None if self._blocked is None else self._blocked.queue

    def seconds_until_free(self) -> float | None:
        """Return the seconds until the missing permits may be there, unless a signal comes first."""
        return None if self._blocked is None else self._pace.until_next_poll(self._blocked)

    def _in_flight(self, window: Window) -> TakeShare:
        def take(messages: int) -> InFlightShare:
            permits = self._permits(self._context.name + _IN_FLIGHT)
            held = self._take(permits, window, messages, permit_lease(self._lease()))
            return InFlightShare(permits, held, window.weight)

        return take

    def _rate(self, window: Window) -> TakeShare:
        def take(messages: int) -> RateShare:
            permits = self._permits(self._context.name + _RATE, str(window.period))
            lease = window.period + permit_lease(self._lease())
            held = self._take(permits, window, messages, lease, window.period)
            return RateShare(permits, held, window.weight, window.period)

        return take

    def _take(
        self, permits: Permits, window: Window, messages: int, lease: int, period: int | None = None
    ) -> list[HeldSlice]:
        wanted = units(messages, window.weight)
        try:
            held = permits.take(wanted, window.permits, lease, period)
        except QueueNotFound:  # deleted meanwhile, maybe with the queue itself
            self._create(permits.limit)
            held = permits.take(wanted, window.permits, lease, period)
        if held:
            self._pace.reset()
        else:
            self._blocked = permits
        return held

    def _permits(self, limit: str, kind: str = "") -> Permits:
        if self._incarnation != (incarnation := self._context.live.created_again):
            self._known, self._incarnation = {}, incarnation  # the permits were deleted with the queue
        place = limit, kind
        known = self._known.get(place)
        if known is None:
            try:
                context = self._context.sibling(permits_queue(limit))
            except QueueNotFound:
                self._create(limit)
                context = self._context.sibling(permits_queue(limit))
            known = self._known[place] = Permits(context, self._owner, kind)
        return known

    def _create(self, limit: str) -> None:
        """Create the queue of a limit's permits; raises QueueNotFound when the queue that they are for is gone."""
        live, store, retry = self._context.live, self._context.store, self._context.retry
        live.refresh()
        create_permits_queue(store, retry, limit, QueueSettings())
        try:
            live.refresh()
        except QueueNotFound:  # who deleted it meanwhile may not have seen the permits
            drop_permits(store, retry, self._context.name)
            raise
