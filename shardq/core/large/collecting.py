"""Removing large bodies that no message has any more.

A message is the truth: a body is free if its owners' entries name no message that is stored. These rules make this
safe:

- **An owner's entry is written before its message is**, by every send, move and copy. So it is there for as long as
  the message is.
- **Owners are read from the oldest to the youngest**: a message that was moved meanwhile is found in its new queue.
- **A body is left alone for** `GRACE` **after any part or entry of it was written**. It is read a second time after no
  message was found, and left alone if something was written meanwhile.
- **Entries are removed last**, so that the next sweep finds the rest of one that died.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from shardq.base.large_body import LargeBody
from shardq.base.log import Log
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.large.layout import (
    BODIES,
    GRACE,
    body_of,
    existing_bodies_queue,
    is_owner,
    owner_id,
    owner_in,
    part_id,
    shard_of,
)
from shardq.errors import InvalidMessage, QueueNotFound
from shardq.storage.requests import Bundle, Peek, StoredSlice, Sweep
from shardq.storage.writing import optional

__all__ = ["collect_bodies", "remove_body"]

_log = Log(__name__)

_PAGE = 1_000


def collect_bodies(context: QueueContext) -> int:
    """Remove bodies that no message has, and that were not written for `GRACE`, in the store of a queue.

    Returns how many parts. The cost grows with the number of parts that are stored, of which only the ids are read.
    """
    bodies = existing_bodies_queue(context)
    if bodies is None:
        return 0
    removed = 0
    for shard in bodies.retry(bodies.store.shards, BODIES):
        removed += _collect(bodies, shard)
    while bodies.retry(bodies.store.sweep, Sweep(BODIES, 0)):
        pass
    return removed


def remove_body(context: QueueContext, body: LargeBody, message_id: str | None) -> None:
    """Remove a body whose message has left, unless another message may have it. The next sweep finds leftovers.

    Without a message it is one that was never sent.
    """
    with optional(), context.retry.within(0):
        bodies = existing_bodies_queue(context)
        if bodies is None:
            return
        own = None if message_id is None else owner_id(body.id, message_id)
        owners = list(_owners(bodies, body))
        others = [entry for entry in owners if entry.id != own]
        if any(map(_is_young(bodies), others)) or _is_owned(bodies, others):
            return
        if _ids(_owners(bodies, body)) != _ids(owners):  # a message was moved meanwhile
            return
        parts = [part_id(body.id, number) for number in range(body.parts)]
        _remove(bodies, shard_of(body.id), [*parts, *(entry.id for entry in owners)])


def _owners(bodies: QueueContext, body: LargeBody) -> Iterator[Bundle]:
    """Yield the entries of a body's owners, which come before all parts."""
    found = slices(bodies, Peek(shard_of(body.id), _PAGE, bodies=False))
    for piece in takewhile(lambda piece: is_owner(piece.bundle.id), found):
        if body_of(piece.bundle.id) == body.id:
            yield piece.bundle


def _collect(bodies: QueueContext, shard: Shard) -> int:
    stored = _stored(bodies, shard)
    if not stored:
        bodies.retry(bodies.store.drop_if_empty, shard)
        return 0
    is_young = _is_young(bodies)
    nobodys = [
        body
        for body, found in stored.items()
        if not any(map(is_young, found)) and not _is_owned(bodies, found)
    ]
    again = _stored(bodies, shard) if nobodys else {}
    removed = 0
    for body in nobodys:
        if _ids(again.get(body, ())) == _ids(stored[body]):
            removed += _remove(bodies, shard, _ids(stored[body]))
    return removed


def _stored(bodies: QueueContext, shard: Shard) -> dict[bytes, list[Bundle]]:
    """Read all that is stored of each body of a shard, without its content."""
    found: dict[bytes, list[Bundle]] = defaultdict(list)
    for piece in slices(bodies, Peek(shard, _PAGE, bodies=False)):
        found[body_of(piece.bundle.id)].append(piece.bundle)
    return found


def _is_young(bodies: QueueContext) -> _Younger:
    return _Younger(bodies.store.now() - GRACE)


class _Younger:
    """Returns the bodies that were written after a moment."""

    def __init__(self, moment: int) -> None:
        self._moment = moment

    def __call__(self, bundle: Bundle) -> bool:
        return bundle.enqueued_at > self._moment


def _is_owned(bodies: QueueContext, found: Iterable[Bundle]) -> bool:
    """Return whether a message is stored that has the body."""
    owners = sorted((each for each in found if is_owner(each.id)), key=lambda each: each.enqueued_at)
    return any(_find_owner(bodies, entry.id) is not None for entry in owners)


def _find_owner(bodies: QueueContext, entry: bytes) -> StoredSlice | None:
    place = MessageId(shard_of(body_of(entry)), entry, 0)
    found = bodies.retry(bodies.store.find, place.shard, entry, place.position)
    try:
        owner = None if found is None else owner_in(found)
    except InvalidMessage as error:
        _log.error("a large body is kept, as its owner cannot be read: %s is damaged: %s", place, error)
        return found
    if owner is None:
        return None
    try:
        return bodies.retry(bodies.store.find, owner.shard, owner.bundle_id, owner.position)
    except QueueNotFound:
        return None


def _ids(found: Iterable[Bundle]) -> list[bytes]:
    """Sort the ids with the parts first: their numbers are the lower ones."""
    return sorted(bundle.id for bundle in found)


def _remove(bodies: QueueContext, shard: Shard, ids: Sequence[bytes]) -> int:
    """Remove parts, the last one first, and then the entries; returns how many parts."""
    parts = [each for each in ids if not is_owner(each)]
    for each in reversed(parts):
        bodies.retry(bodies.store.remove, shard, each, 0)
    for each in ids:
        if is_owner(each):
            bodies.retry(bodies.store.remove, shard, each, 0)
    return len(parts)
