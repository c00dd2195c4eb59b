"""The settings of a queue. The store keeps them, every client uses the same, and they can change at any time."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, Literal, TypedDict, get_args, get_origin, get_type_hints

import msgspec

from shardq.base.codec import UNREADABLE
from shardq.base.log import Log
from shardq.base.rate import MOST_MESSAGES, Rate
from shardq.base.shard import Layout, check_queue_name
from shardq.base.texts import kind_of, plain, shown
from shardq.errors import InvalidName, InvalidSetting, UnreadableSettings
from shardq.storage.store import Capabilities

__all__ = [
    "ONE_SHARD",
    "OnDeadLetter",
    "Overflow",
    "QueueSettings",
    "QueueSettingsArguments",
    "check_number",
    "check_store",
    "check_uncounted",
    "warn_of_differences",
]

_log = Log(__name__)

_YEAR = 366 * 86_400.0

Overflow = Literal["reject", "drop_oldest"]
"""The treatment of a message that is sent to a full queue."""

OnDeadLetter = Literal["skip", "block"]
"""The action of a group when one of its messages is given up."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """How a queue is laid out and how it delivers messages. All durations are in seconds.

    ``shards``
        concurrency shards in each time shard; with more, more producers and consumers can work at once (1 .. 10,000)
    ``time_shards``
        how many time shards the ring has (1 .. 10,000)
    ``time_shard_seconds``
        the time for which a time shard of the ring is written before the next one
    ``visibility_timeout``
        the lease: a message that is not acked within this time is redelivered
    ``max_deliveries``
        a message that was delivered this often without an ack moves to the dead-letter queue; None: never
    ``dead_letter_queue``
        the name of the dead-letter queue; None: ``<queue>.dead``
    ``on_dead_letter``
        the action of a group when one of its messages is given up: skip moves the message to the dead-letter queue and
        continues; block keeps the message and waits until :meth:`~shardq.Queue.redrive` or a removal
    ``retry_delay``
        the time until workers try a failed message again; it doubles with each delivery, and half of it is random
    ``max_retry_delay``
        the longest such time
    ``retention``
        a message that is older than this is dropped instead of delivered; None: messages stay until they are acked
    ``expires``
        the time after which the queue is deleted if it was empty and unused; None: never
    ``dead_letter_expired``
        whether messages whose ``ttl`` or ``retention`` has ended move to the dead-letter queue instead of being dropped
    ``history_retention``
        the time for which acked messages can be read and replayed; 0: acked messages are not kept
    ``keep_results``
        whether the results that messages are acked with are kept, for as long as the messages are in the history
    ``events``
        the time for which the events of messages are kept, see :meth:`~shardq.Queue.trace`; None: no events are kept
    ``dedupe_window``
        the time for which a second message with the same dedupe key is not stored
    ``max_message_bytes``
        the largest size of a message, body and headers together
    ``max_messages``
        the number of pending messages, ready or delayed; None: any number
    ``max_bytes``
        the bytes of pending messages, bodies and headers; None: any number
    ``overflow``
        the treatment of a message that is sent to a full queue: reject raises QueueFull, drop_oldest makes room for it
    ``max_in_flight``
        the largest number of messages that all consumers together have received and not settled; None: any number
    ``group_concurrency``
        the number of messages of a group that are worked on at once, each in a lane that is in order (1 .. 1,000); with
        1 the whole group is in order
    ``rate_limit``
        the largest number of messages that all consumers together receive in any period, such as 100/s or 6000/m;
        None: any number
    ``delivery_paused``
        whether deliveries are stopped: see :meth:`~shardq.Queue.pause`
    ``sends_paused``
        whether new messages are refused: see :meth:`~shardq.Queue.pause`
    """

    shards: int = 8
    time_shards: int = 10
    time_shard_seconds: float = 30.0
    visibility_timeout: float = 30.0
    max_deliveries: int | None = 5
    dead_letter_queue: str | None = None
    on_dead_letter: OnDeadLetter = "skip"
    retry_delay: float = 1.0
    max_retry_delay: float = 300.0
    retention: float | None = None
    expires: float | None = None
    dead_letter_expired: bool = False
    history_retention: float = 0.0
    keep_results: bool = False
    events: float | None = None
    dedupe_window: float = 300.0
    max_message_bytes: int = 1_048_576
    max_messages: int | None = None
    max_bytes: int | None = None
    overflow: Overflow = "reject"
    max_in_flight: int | None = None
    group_concurrency: int = 1
    rate_limit: str | None = None
    delivery_paused: bool = False
    sends_paused: bool = False

    @property
    def has_dead_letters(self) -> bool:
        """True when messages may move to the dead-letter queue automatically."""
        return self.max_deliveries is not None or self.dead_letter_expired

    @property
    def is_bounded(self) -> bool:
        """True when only so much may wait in the queue."""
        return self.max_messages is not None or self.max_bytes is not None

    @property
    def is_limited(self) -> bool:
        """True when only so much may be received."""
        return self.max_in_flight is not None or self.rate_limit is not None

    @property
    def layout(self) -> Layout:
        """The ring of shards to which messages are written."""
        return Layout(self.shards, self.time_shards, self.time_shard_seconds)

    def encode(self) -> bytes:
        """Encode the settings as a store keeps them: JSON, which people can read in the store too."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, stored: bytes, queue: str) -> QueueSettings:
        """Decode the settings that a store kept of a queue. Raises UnreadableSettings, which names the queue."""
        try:
            return _decoder.decode(stored)
        except UNREADABLE as error:
            raise UnreadableSettings(
                f"the stored settings of queue {queue!r} cannot be read ({error}): {stored[:80]!r}; use the version of "
                "shardq that wrote them, or restore a backup"
            ) from error

    def change(self, changes: Mapping[str, Any]) -> QueueSettings:
        """Return a checked copy with some settings changed. Raises InvalidSetting for the first one that is wrong."""
        for name, value in changes.items():
            _check(name, value)
        changed = msgspec.structs.replace(self, **{name: plain(value) for name, value in changes.items()})
        if changed.keep_results and not changed.history_retention:
            raise InvalidSetting(
                "keep_results=True with history_retention=0.0 keeps nothing: results are kept with the history, so set "
                "history_retention too, or keep_results=False"
            )
        return changed


# Made with the module, as all of shardq's: msgspec (0.22) ends the process with a segmentation fault when two threads
# are the first to decode a struct. One thread reads what the other has not filled in yet.
_decoder = msgspec.json.Decoder(QueueSettings)


class _OneShard(TypedDict):
    shards: int
    time_shards: int
    max_deliveries: None


ONE_SHARD: Final[_OneShard] = {"shards": 1, "time_shards": 1, "max_deliveries": None}
"""The settings of a small queue that a package makes for itself: one shard, and no dead letters."""


class QueueSettingsArguments(TypedDict, total=False):
    """Some of the :class:`QueueSettings`, as keyword arguments of ``create_queue`` and ``alter``."""

    shards: int
    time_shards: int
    time_shard_seconds: float
    visibility_timeout: float
    max_deliveries: int | None
    dead_letter_queue: str | None
    on_dead_letter: OnDeadLetter
    retry_delay: float
    max_retry_delay: float
    retention: float | None
    expires: float | None
    dead_letter_expired: bool
    history_retention: float
    keep_results: bool
    events: float | None
    dedupe_window: float
    max_message_bytes: int
    max_messages: int | None
    max_bytes: int | None
    overflow: Overflow
    max_in_flight: int | None
    group_concurrency: int
    rate_limit: str | None
    delivery_paused: bool
    sends_paused: bool


def check_store(settings: QueueSettings, capabilities: Capabilities) -> None:
    """Raise InvalidSetting when the store cannot hold a queue with these settings."""
    count = settings.shards * settings.time_shards
    if count > capabilities.max_shards:
        raise InvalidSetting(
            f"shards={settings.shards} x time_shards={settings.time_shards} makes {count} shards: "
            f"this store takes at most {capabilities.max_shards}"
        )
    if settings.max_message_bytes > capabilities.max_message_bytes:
        raise InvalidSetting(
            f"max_message_bytes={settings.max_message_bytes}: this store takes at most {capabilities.max_message_bytes}"
        )


def check_number(name: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Raise InvalidSetting unless the value is a number (``whole``: an int) within low .. high."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        kind = "a whole number" if whole else "a number"
        raise InvalidSetting(
            f"{name}={shown(value)} is {kind_of(value)}: give {kind} from {low:.16g} to {high:.16g}"
        )
    if not low <= value <= high:  # a NaN is in no range
        raise InvalidSetting(f"{name}={shown(value)} is out of range: give {low:.16g} to {high:.16g}")


_TYPES = get_type_hints(QueueSettings)
_WHOLE = {
    "shards": (1, 10_000),
    "time_shards": (1, 10_000),
    "max_deliveries": (1, 10_000),
    "max_message_bytes": (1, 2**40),
    "max_messages": (1, 2**53),
    "max_bytes": (1, 2**53),
    "max_in_flight": (1, MOST_MESSAGES),
    "group_concurrency": (1, 1_000),
}
_SECONDS = {
    "time_shard_seconds": (0.1, 30 * 86_400.0),
    "visibility_timeout": (0.05, 7 * 86_400.0),
    "retry_delay": (0.0, 7 * 86_400.0),
    "max_retry_delay": (0.0, 7 * 86_400.0),
    "retention": (1.0, 10 * _YEAR),
    "expires": (30.0, 10 * _YEAR),
    "history_retention": (0.0, 10 * _YEAR),
    "events": (60.0, 10 * _YEAR),
    "dedupe_window": (1.0, _YEAR),
}


def _check(name: str, value: Any) -> None:
    kind = _TYPES.get(name)
    if value is None and NoneType in get_args(kind):
        return
    if name in _WHOLE:
        check_number(name, value, *_WHOLE[name], whole=True)
    elif name in _SECONDS:
        check_number(name, value, *_SECONDS[name])
    elif get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise InvalidSetting(f"{name}={shown(value)}: give one of {', '.join(get_args(kind))}")
    elif name == "rate_limit":
        Rate.parse(value)
    elif name == "dead_letter_queue":
        _check_queue(name, value)
    elif kind is bool:
        if not isinstance(value, bool):
            raise InvalidSetting(f"{name}={shown(value)} is {kind_of(value)}: give True or False")
    else:
        check_setting_name(name)


def check_setting_name(name: str) -> None:
    """Raise InvalidSetting for what is not a setting of a queue."""
    if name not in QueueSettings.__struct_fields__:
        known = ", ".join(QueueSettings.__struct_fields__)
        raise InvalidSetting(f"{shown(name)} is not a setting of a queue: use one of {known}")


def _check_queue(name: str, value: object) -> None:
    try:
        check_queue_name(value)
    except InvalidName as error:
        raise InvalidSetting(f"{name}: {error}") from error


def warn_of_differences(
    what: str, kept: Mapping[str, object], given: Mapping[str, object], remedy: str
) -> None:
    """Warn of each setting that was given for something that exists with another one: that is never changed by this.

    So it is for all that a call creates if it is missing: queues, tasks, schedules, semaphores, topics, subscriptions.
    """
    for name, value in given.items():
        if kept[name] != value:
            _log.warning(
                "%s exists with %s=%s: %s was not applied; %s",
                what,
                name,
                shown(kept[name]),
                shown(value),
                remedy,
            )


def check_uncounted(**given: object) -> None:
    """Raise InvalidSetting for arguments that an uncounted release does not take."""
    for name, value in given.items():
        if value is not None:
            raise InvalidSetting(
                f"{name}={shown(value)} with count=False, which is for work not begun: leave one out"
            )
