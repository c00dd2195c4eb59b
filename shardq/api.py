"""Everything that ``import shardq`` offers. ``shardq`` loads this file when one of these names is used first."""

from __future__ import annotations

from shardq.base.clock import Clock
from shardq.base.codec import BYTES, JSON, MSGPACK, TEXT, Codec
from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import Headers, HeaderValue, OnConflict, OutgoingMessage, RetryToken
from shardq.base.receipt import MessageId, Receipt
from shardq.base.shard import Layout, Shard
from shardq.client.batch import Batch
from shardq.client.client import Client
from shardq.client.connecting import connect
from shardq.client.consumer import Consumer
from shardq.client.outcome import Backoff, DeadLetter, Discard, Outcome, Retry, Snooze
from shardq.client.patterns import QueuePattern
from shardq.client.producer import Producer, SendArguments
from shardq.client.queue import Queue
from shardq.client.semaphore import Permit, Semaphore, SemaphoreState
from shardq.core.consumer_states import ConsumerState
from shardq.core.context.counters import Counters
from shardq.core.counts import QueueCounts, ShardState
from shardq.core.hooks import AllHooks, HookCall, Hooks, Observer
from shardq.core.logs.event_log import Event, EventKind
from shardq.core.message import Message, StoredMessage
from shardq.core.selecting import MessageFilter
from shardq.core.settings import OnDeadLetter, Overflow, QueueSettings, QueueSettingsArguments
from shardq.core.settling.editing import EditArguments
from shardq.errors import (
    BodyNotFound,
    Closed,
    ConsumerAlive,
    ConsumerNotFound,
    InvalidCursor,
    InvalidMessage,
    InvalidName,
    InvalidReceipt,
    InvalidSetting,
    LeaseLost,
    MessageNotPending,
    MessageTooLarge,
    OutcomeUnknown,
    PartialSend,
    PermitLost,
    PermitTimeout,
    QueueExists,
    QueueFull,
    QueueNotFound,
    QueuePaused,
    RepeatTooLate,
    ReplayConflict,
    ScheduleExists,
    ScheduleNotFound,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
    UniqueKeyTaken,
    UnreadableSettings,
    UnsupportedByStore,
)
from shardq.storage.requests import EntryState, Finding

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "TEXT",
    "AllHooks",
    "Backoff",
    "Batch",
    "BodyNotFound",
    "Client",
    "Clock",
    "Closed",
    "Codec",
    "Consumer",
    "ConsumerAlive",
    "ConsumerNotFound",
    "ConsumerState",
    "Counters",
    "DeadLetter",
    "Discard",
    "EditArguments",
    "EntryState",
    "Event",
    "EventKind",
    "Finding",
    "HeaderValue",
    "Headers",
    "HookCall",
    "Hooks",
    "InvalidCursor",
    "InvalidMessage",
    "InvalidName",
    "InvalidReceipt",
    "InvalidSetting",
    "LargeBody",
    "Layout",
    "LeaseLost",
    "Message",
    "MessageFilter",
    "MessageId",
    "MessageNotPending",
    "MessageTooLarge",
    "Observer",
    "OnConflict",
    "OnDeadLetter",
    "Outcome",
    "OutcomeUnknown",
    "OutgoingMessage",
    "Overflow",
    "PartialSend",
    "Permit",
    "PermitLost",
    "PermitTimeout",
    "Producer",
    "Queue",
    "QueueCounts",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "QueuePattern",
    "QueuePaused",
    "QueueSettings",
    "QueueSettingsArguments",
    "Receipt",
    "RepeatTooLate",
    "ReplayConflict",
    "Retry",
    "RetryToken",
    "ScheduleExists",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Semaphore",
    "SemaphoreState",
    "SendArguments",
    "Shard",
    "ShardState",
    "ShardqError",
    "Snooze",
    "StoreUnavailable",
    "StoredMessage",
    "UniqueKeyTaken",
    "UnreadableSettings",
    "UnsupportedByStore",
    "connect",
]
