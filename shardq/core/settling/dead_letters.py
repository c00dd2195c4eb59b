"""The dead-letter queue: where messages go that were delivered too often, or that a worker gave up."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.base.codec import UNREADABLE
from shardq.base.outgoing_message import Headers, group_of, lane_of, stored_group
from shardq.base.shard import DEAD_LETTER_SUFFIX, MAX_NAME_LENGTH
from shardq.base.texts import kind_of, shown
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Retry
from shardq.core.held import Selection
from shardq.core.settings import QueueSettings
from shardq.errors import InvalidName, InvalidSetting, QueueNotFound, UnsupportedByStore
from shardq.storage.requests import QueueRecord
from shardq.storage.store import Store
from shardq.storage.writing import reporting_done

__all__ = [
    "EXHAUSTED",
    "EXPIRED",
    "LONGEST_REASON",
    "REFUSED",
    "came_from",
    "check_dead_letter_chain",
    "check_dead_letter_queue",
    "check_reason",
    "create_dead_letter_queue",
    "dead_letter_context",
    "dead_letter_headers",
    "dead_letter_name",
    "deliveries_before",
    "drop_dead_letter_queue",
    "existing_dead_letters",
    "group_before",
    "origin",
    "original_group",
    "original_headers",
]

EXHAUSTED = "delivered too often"
EXPIRED = "expired"

_QUEUE, _ID, _DELIVERIES, REASON = "shardq-queue", "shardq-id", "shardq-deliveries", "shardq-reason"
_GROUP, _LANE = "shardq-group", "shardq-lane"
_BEFORE = "shardq-before"
"""Of a dead letter that became one again: a JSON list of the marks that it had before, the oldest first."""

LONGEST_REASON = 500  # characters
_MARKS = frozenset((_QUEUE, _ID, _DELIVERIES, REASON, _GROUP, _LANE))

REFUSED = (InvalidName, InvalidSetting, UnsupportedByStore)
"""Errors of a store that does not take a queue, also when it is asked again. Nothing is left of such a queue."""
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(list[dict[str, str | int]])


def dead_letter_name(queue: str, settings: QueueSettings) -> str:
    """Return the name of a queue's dead-letter queue. Raises InvalidName when the default one would be too long."""
    if settings.dead_letter_queue is None and len(queue) + len(DEAD_LETTER_SUFFIX) > MAX_NAME_LENGTH:
        raise InvalidName(
            f"the dead-letter queue of {queue[:20]!r}... would have a name of {len(queue) + len(DEAD_LETTER_SUFFIX)} "
            f"characters: name it with dead_letter_queue, give the queue a name of at most "
            f"{MAX_NAME_LENGTH - len(DEAD_LETTER_SUFFIX)}, or set max_deliveries=None"
        )
    return settings.dead_letter_queue or queue + DEAD_LETTER_SUFFIX


def check_dead_letter_queue(queue: str, settings: QueueSettings) -> None:
    """Raise InvalidSetting when a queue's dead letters would go to the queue itself.

    Raises InvalidName when its dead-letter queue could not be named.
    """
    if settings.dead_letter_queue == queue:
        raise InvalidSetting(
            f"dead_letter_queue={queue!r} is the queue itself, which would deliver its dead letters for ever: "
            "name another queue"
        )
    if settings.has_dead_letters:
        dead_letter_name(queue, settings)


def check_dead_letter_chain(store: Store, retry: Retry, queue: str, settings: QueueSettings) -> None:
    """Raise InvalidSetting when a queue's dead letters would come back to it by the queues that exist.

    A queue from which no dead letter moves automatically (``max_deliveries=None``) ends the chain.
    """
    path = [queue]
    while settings.has_dead_letters:
        path.append(dead_letter_name(path[-1], settings))
        if path[-1] == queue:
            raise InvalidSetting(
                f"the dead letters of {queue!r} would come back to it, {' -> '.join(path)}, and be delivered for ever: "
                "name another dead_letter_queue, or set max_deliveries=None for one of these queues"
            )
        if path[-1] in path[:-1] or (record := retry(store.load_queue, path[-1])) is None:
            return
        settings = QueueSettings.decode(record.settings, record.name)


def create_dead_letter_queue(store: Store, retry: Retry, queue: str, settings: QueueSettings) -> bool:
    """Create a queue's dead-letter queue if it is missing: one shard, and no further dead letters.

    Returns whether it was missing. It expires as the queue does, when there are no dead letters, and keeps events for
    as long. Nothing is left of one that the store refuses. Raises OutcomeUnknown when it is created in part.
    """
    name = dead_letter_name(queue, settings)
    plain = QueueSettings(
        shards=1,
        time_shards=1,
        max_deliveries=None,
        max_message_bytes=settings.max_message_bytes,
        expires=settings.expires,
        events=settings.events,
    )
    record = QueueRecord.new(name, plain.encode())
    created = retry(store.create_queue, record)
    try:
        with reporting_done(lambda: f"queue {name!r} is created: repeat the call" if created else ""):
            retry(store.create_shards, plain.layout.all_shards(name))
    except REFUSED:
        if created:
            retry(store.drop_queue, name, record)
        raise
    return created


def drop_dead_letter_queue(store: Store, retry: Retry, queue: str, settings: QueueSettings) -> None:
    """Drop the dead-letter queue that was created just now for a change which is refused."""
    name = dead_letter_name(queue, settings)
    if (record := retry(store.load_queue, name)) is not None:
        retry(store.drop_queue, name, record)


def existing_dead_letters(source: QueueContext) -> QueueContext | None:
    """Open a queue's dead-letter queue; None if it is missing."""
    try:
        return source.sibling(dead_letter_name(source.name, source.settings))
    except QueueNotFound:
        return None


def dead_letter_context(source: QueueContext) -> QueueContext:
    """Open a queue's dead-letter queue; created if it is missing."""
    found = existing_dead_letters(source)
    if found is None:
        create_dead_letter_queue(source.store, source.retry, source.name, source.settings)
        found = source.sibling(dead_letter_name(source.name, source.settings))
    return found


def dead_letter_headers(
    before: Headers | None, queue: str, identity: str, deliveries: int, reason: str, group: str = ""
) -> Headers:
    """Return the headers of a dead letter: those before, and queue, id, deliveries, group, lane and the reason.

    One that was a dead letter already keeps the earlier marks. Those of an earlier turn in the same queue are dropped.
    """
    plain = {name: value for name, value in (before or {}).items() if name not in _MARKS and name != _BEFORE}
    earlier = _earlier(before)
    if marks := {name: value for name, value in (before or {}).items() if name in _MARKS}:
        earlier = [*earlier, marks]
    turn = next((place for place, marks in enumerate(earlier) if marks.get(_QUEUE) == queue), len(earlier))
    headers: Headers = {
        **plain,
        _QUEUE: queue,
        _ID: identity,
        _DELIVERIES: deliveries,
        REASON: reason[:LONGEST_REASON],
    }
    if name := group_of(group):
        headers[_GROUP] = name
    if lane := lane_of(group):
        headers[_LANE] = lane
    if earlier[:turn]:
        headers[_BEFORE] = _ENCODER.encode(earlier[:turn]).decode()
    return headers


def check_reason(reason: object, name: str = "reason") -> str:
    """Return the reason as a header can carry it: bytes that are no text, as in file names, are escaped.

    Raises InvalidSetting when it is not a str.
    """
    if not isinstance(reason, str):
        raise InvalidSetting(f"{name}={shown(reason)} is {kind_of(reason)}: give a str")
    return reason.encode("utf-8", "backslashreplace").decode("utf-8")


def came_from(headers: Headers | None) -> str | None:
    """Return the queue that a dead letter was in last."""
    name = (headers or {}).get(_QUEUE)
    return name if isinstance(name, str) else None


def origin(headers: Headers | None) -> str | None:
    """Return the id that a dead letter had before it became one, the first time."""
    identity = _first_marks(headers).get(_ID)
    return identity if isinstance(identity, str) else None


def deliveries_before(headers: Headers | None) -> int | None:
    """Return how often a dead letter had been delivered before it became one, the first time."""
    deliveries = _first_marks(headers).get(_DELIVERIES)
    return deliveries if isinstance(deliveries, int) else None


def group_before(headers: Headers | None) -> str:
    """Return the group that a dead letter had, with its lane, as it was stored; "" for none."""
    group, lane = (headers or {}).get(_GROUP), (headers or {}).get(_LANE)
    name = group_of(group) if isinstance(group, str) else None
    return stored_group(name, lane if isinstance(lane, int) else 0) if name else ""


def original_group(selection: Selection) -> str:
    """Return the group that selected dead letters had when they were sent; "" for none.

    Those of a bundle had one group.
    """
    headers = selection.held.messages.headers
    return group_before(headers[selection.positions[0]]) if headers and selection.positions else ""


def original_headers(headers: Headers | None) -> Headers | None:
    """Return a dead letter's headers as they were in its last queue, where it may have been a dead letter already."""
    kept = {name: value for name, value in (headers or {}).items() if name not in _MARKS and name != _BEFORE}
    if earlier := _earlier(headers):
        kept |= earlier[-1]
        if earlier[:-1]:
            kept[_BEFORE] = _ENCODER.encode(earlier[:-1]).decode()
    return kept or None


def _earlier(headers: Headers | None) -> Sequence[Headers]:
    """Return the marks that a dead letter had before the present ones, the oldest first; none if they are damaged."""
    try:
        return _DECODER.decode((headers or {}).get(_BEFORE) or "[]")  # type: ignore[arg-type,return-value]
    except (*UNREADABLE, TypeError):
        return []


def _first_marks(headers: Headers | None) -> Headers:
    earlier = _earlier(headers)
    return earlier[0] if earlier else headers or {}
