"""A schedule, as users see it and as it is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from shardq.base.clock import seconds, to_datetime
from shardq.base.outgoing_message import DEFAULT_PRIORITY, Headers, OutgoingMessage
from shardq.schedules.timing import Timing

__all__ = ["MOMENT_HEADER", "CatchUp", "Overlap", "Plan", "Schedule"]

Overlap = Literal["allow", "skip"]
"""Whether an occurrence takes place while the message of the last one still waits or is in flight."""

CatchUp = Literal["one", "none"]
"""The rule for occurrences that were missed: the last of them takes place late, or none does."""

ID_HEADER, MOMENT_HEADER = "shardq-schedule", "shardq-scheduled-for"
GRACE = 60_000_000
"""Microseconds. Later than that an occurrence was missed."""

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(dict).decode


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is at a moment. Made by :class:`~shardq.schedules.Schedules`.

    ``next`` is when its next occurrence is, None when it has ended. Nothing takes place while it is ``paused``.
    """

    id: str
    queue: str
    cron: str | None
    every: float | None  # seconds
    at: datetime | None
    time_zone: str
    until: datetime | None
    count: int | None
    overlap: Overlap
    catch_up: CatchUp
    body: bytes
    headers: Headers
    priority: int
    group: str | None
    ttl: float | None
    paused: bool
    next: datetime | None
    last: datetime | None  # the occurrence that took place last
    last_message: str | None  # its id
    sent: int  # occurrences that took place
    skipped: int  # that did not, because of ``overlap``


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored, with its progress. Moments are in microseconds."""

    queue: str
    life: str  # tells it from others of its id, before and after
    timing: Timing
    until: int | None = None
    count: int | None = None
    overlap: Overlap = "allow"
    catch_up: CatchUp = "one"
    body: bytes = b""
    headers: bytes = _pack({})  # as MessagePack: JSON has no bytes
    priority: int = DEFAULT_PRIORITY
    group: str | None = None
    ttl: float | None = None
    paused: bool = False
    next: int | None = None
    pending: int | None = None  # an occurrence that takes place: its message may be sent or not yet
    decided: int = 0  # when it was decided that it does
    last: int | None = None
    last_message: str | None = None
    sent: int = 0
    skipped: int = 0

    def within(self, moment: int | None) -> int | None:
        """Return the moment, or None if the schedule has ended by then."""
        over = self.count is not None and self.sent >= self.count
        if over or moment is None or (self.until is not None and moment > self.until):
            return None
        return moment

    def following(self, now: int) -> int | None:
        """Return the first occurrence after now, as the schedule continues from ``next``."""
        if self.next is None or self.next > now:
            return self.next
        return self.within(self.timing.after(self.timing.latest(self.next, now)))

    def brought_near(self, now: int) -> Plan:
        """Return the schedule with no next occurrence that is too far ahead, as when a clock was wrong and is put back.

        Within a minute clocks may differ: then it would decide twice upon one occurrence.
        """
        assert self.next is not None
        near = self.timing.after(now + GRACE)
        if near is None or self.next <= near:
            return self
        return msgspec.structs.replace(self, next=self.within(near))

    def reopened(self, now: int) -> Plan:
        """Return the ended schedule with its next occurrence, if there is one: a clock was wrong, and is put back.

        An occurrence within a minute may have taken place by another clock, so it is left out. One that the wrong clock
        has sent is not sent again within 7 days: its key is remembered.
        """
        if self.until is None or self.timing.at is not None:
            return self
        return msgspec.structs.replace(self, next=self.within(self.timing.after(now + GRACE)))

    def turned(self, now: int, *, waits: bool) -> Plan:
        """Decide missed occurrences when ``next`` is due, and return the schedule with the next one ahead.

        ``waits`` means that the message of the last occurrence is still there.
        """
        assert self.next is not None
        end = now if self.until is None else min(now, self.until)
        occurrence = self.timing.latest(self.next, end)
        if self.catch_up == "none" and now - occurrence > GRACE:
            return msgspec.structs.replace(self, next=self.following(now))
        if waits:
            return msgspec.structs.replace(self, next=self.following(now), skipped=self.skipped + 1)
        taken = msgspec.structs.replace(self, sent=self.sent + 1)
        return msgspec.structs.replace(
            taken, next=taken.following(now), pending=occurrence, decided=now, last=occurrence
        )

    def message(self, name: str, moment: int) -> OutgoingMessage:
        """Make the message of an occurrence."""
        marks = {ID_HEADER: name, MOMENT_HEADER: to_datetime(moment).isoformat()}
        headers = _unpack(self.headers) | marks
        return OutgoingMessage(
            body=self.body, headers=headers, priority=self.priority, group=self.group, ttl=self.ttl
        )

    def shown(self, name: str) -> Schedule:
        """Return the schedule as users see it."""
        return Schedule(
            id=name,
            queue=self.queue,
            cron=self.timing.cron,
            every=None if self.timing.every is None else seconds(self.timing.every),
            at=_datetime(self.timing.at),
            time_zone=self.timing.time_zone,
            until=_datetime(self.until),
            count=self.count,
            overlap=self.overlap,
            catch_up=self.catch_up,
            body=self.body,
            headers=_unpack(self.headers),
            priority=self.priority,
            group=self.group,
            ttl=self.ttl,
            paused=self.paused,
            next=_datetime(self.next),
            last=_datetime(self.last),
            last_message=self.last_message,
            sent=self.sent,
            skipped=self.skipped,
        )


def _datetime(moment: int | None) -> datetime | None:
    return None if moment is None else to_datetime(moment)
