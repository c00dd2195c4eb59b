"""Answers of the JSON API. All durations are in seconds, all times in UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from shardq.tasks.views import TaskView, WorkflowView

__all__ = [
    "Changed",
    "ChecksView",
    "ConsumerView",
    "ConsumersView",
    "DeadLetterView",
    "DeadLettersView",
    "FindingView",
    "LimitView",
    "LimitsView",
    "MessageView",
    "MessagesView",
    "OverviewView",
    "QueueDetail",
    "QueueRow",
    "QueuesView",
    "Reason",
    "Scanned",
    "ScheduleView",
    "SchedulesView",
    "SentView",
    "ShardView",
    "ShardsView",
    "SubscriptionView",
    "SystemView",
    "TasksView",
    "TopicView",
    "TopicsView",
    "WorkflowDetail",
    "WorkflowsView",
]


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by state."""

    ready: int = 0
    delayed: int = 0
    in_flight: int = 0

    @property
    def backlog(self) -> int:
        """Return how many messages are not processed."""
        return self.ready + self.delayed + self.in_flight


class QueueRow(Depth, frozen=True, kw_only=True):
    """A queue with its counts. ``dead`` is None where it has no dead-letter queue; ``error`` says why it is unread."""

    name: str
    processed: int = 0
    dead: int | None = None
    dead_letter_queue: str | None = None
    consumers: int = 0
    oldest: datetime | None = None
    late_seconds: float = 0.0
    delivery_paused: bool = False
    sends_paused: bool = False
    error: str | None = None


class QueuesView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of queues. ``total`` is how many match; ``counted`` how many of them have counts yet.

    ``counted_at`` is when all were counted last; None when they were counted for this answer, or not yet.
    """

    queues: list[QueueRow]
    total: int
    page: int
    pages: int
    counted: int
    counted_at: datetime | None


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """All queues together. Those that are not ``counted`` yet are not in the sums."""

    queues: int
    counted: int
    counted_at: datetime | None
    ready: int
    delayed: int
    in_flight: int
    dead: int
    consumers: int
    late_seconds: float
    busiest: list[QueueRow]
    attention: list[str]


class QueueDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its counts and settings."""

    queue: QueueRow
    settings: dict[str, Any]


class ShardView(Depth, frozen=True, kw_only=True):
    """A shard. ``level`` is 0 for an empty one, else 1 to 9 on a scale of logarithms up to the largest."""

    time_shard: int
    shard: int
    grouped: bool
    oldest: datetime | None
    level: int


class ShardsView(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of a queue, by depth or by age. ``written`` is the time shard that new messages go to."""

    queue: str
    by: Literal["depth", "age"]
    shards: int
    time_shards: int
    time_shard_seconds: float
    written: int
    states: list[ShardView]


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message. ``body`` is only there when it was asked for: JSON, text or base64, as ``encoding`` says."""

    id: str
    queue: str
    state: Literal["ready", "delayed", "in_flight", "processed"]
    priority: int
    headers: dict[str, Any]
    due: datetime
    enqueued_at: datetime
    deliveries: int
    size: int
    group: str | None = None
    unique_key: str | None = None
    dedupe_key: str | None = None
    expires_at: datetime | None = None
    owner: str | None = None
    blocked: str | None = None
    encoding: Literal["json", "text", "base64", "large", "masked"] | None = None
    truncated: bool = False
    body: Any = None


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages match, out of the first ``scanned`` of the queue; ``complete`` if those were all."""

    queue: str
    matching: int
    scanned: int
    complete: bool
    page: int
    pages: int


class MessagesView(Scanned, frozen=True, kw_only=True):
    """A page of the messages that match."""

    messages: list[MessageView]


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: where it comes from, why it was given up, and after how many deliveries."""

    message: MessageView
    reason: str
    source: str | None
    original_id: str | None
    deliveries: int | None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one reason."""

    reason: str
    count: int
    newest: datetime


class DeadLettersView(Scanned, frozen=True, kw_only=True):
    """A page of the dead letters that match, and the reasons of all that were scanned."""

    reasons: list[Reason]
    dead_letters: list[DeadLetterView]


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of a queue, and what it holds there."""

    queue: str
    id: str
    name: str | None
    host: str | None
    pid: int | None
    since: datetime | None
    last_seen: datetime | None
    alive: bool
    held: int
    held_until: datetime | None


class ConsumersView(msgspec.Struct, frozen=True, kw_only=True):
    """Consumers of the first ``queues`` queues of ``total``."""

    consumers: list[ConsumerView]
    queues: int
    total: int


class SubscriptionView(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription; its lag is what it has not acked."""

    name: str
    filter: str
    queue: str
    ready: int
    delayed: int
    in_flight: int
    lag: int
    filling: bool
    missed: float


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule without its message's body."""

    id: str
    queue: str
    cron: str | None
    every: float | None
    at: datetime | None
    time_zone: str
    until: datetime | None
    count: int | None
    overlap: str
    catch_up: str
    paused: bool
    next: datetime | None
    last: datetime | None
    sent: int
    skipped: int


class SchedulesView(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules."""

    schedules: list[ScheduleView]


class TasksView(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that wait, run, or are dead letters. Not ``complete``: some messages were not read."""

    tasks: list[TaskView]
    matching: int
    complete: bool


class WorkflowsView(msgspec.Struct, frozen=True, kw_only=True):
    """The newest workflows."""

    workflows: list[WorkflowView]


class WorkflowDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a workflow; none when it is not known, or is kept no longer."""

    id: str
    steps: list[TaskView]


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic with its subscriptions."""

    name: str
    retention: float
    subscriptions: list[SubscriptionView]


class TopicsView(msgspec.Struct, frozen=True, kw_only=True):
    """All topics."""

    topics: list[TopicView]


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """A limit: of a queue, or a semaphore with its permits."""

    name: str
    kind: Literal["in flight", "rate", "waiting messages", "waiting bytes", "semaphore"]
    limit: str
    used: int | None
    most: int | None


class LimitsView(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the first ``queues`` queues of ``total``, and the semaphores."""

    limits: list[LimitView]
    queues: int
    total: int


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about the health of the store, or of a queue, which ``subject`` names."""

    subject: str = "store"
    name: str
    state: Literal["ok", "warning", "note", "wrong"]
    value: str
    remedy: str


class ChecksView(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of `shardq doctor`; ``wrong`` is how many are not in order."""

    wrong: int
    findings: list[FindingView]


class SystemView(msgspec.Struct, frozen=True, kw_only=True):
    """The store, its clock, and what is found about its health."""

    version: str
    store: str
    store_time: datetime
    clock_offset_seconds: float
    findings: list[FindingView]


class SentView(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a message that was sent."""

    id: str


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How many things an action has changed, and whether there may be more to change with the same call."""

    changed: int
    more: bool = False
