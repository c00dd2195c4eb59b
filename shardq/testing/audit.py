"""The audit: the rows that are stored for a queue, against the messages that the port shows of it.

A store may keep hints, directories and due indexes; the audit uses none of them. Messages that it finds in the rows
and not through the port are hidden. Rows that remain when a queue was drained and swept are left behind.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator

from shardq.base.shard import Shard
from shardq.storage.requests import (
    Acknowledge,
    Claim,
    Claimed,
    EntryState,
    Peek,
    Span,
    StoredSlice,
    Sweep,
)
from shardq.storage.store import Store
from shardq.testing.harness import RawQueue, RawState
from shardq.testing.messages import Message, of_entries, of_slices, of_spans

__all__ = ["broken_rows", "drain", "hidden", "remains"]

_NOT_FINISHED = (RawState.WAITING, RawState.HELD)
_AT_ONCE = 1000
_LEASE = 60_000_000
_FOREVER = 2**62
_TRIES = 500  # of 10 ms: for a shard that another client has locked


def broken_rows(raw: RawQueue) -> list[str]:
    """Name what contradicts itself in the rows, at a moment at which no client is at work."""
    found = [f"a stray: {stray}" for stray in raw.strays]
    stored: Counter[Message] = Counter()
    for shard in raw.shards:
        entries, bodies = raw.entries.get(shard, ()), raw.bodies.get(shard, ())
        used = {entry.bundle_id for entry in entries}
        stored.update(of_spans(entries))
        found += [f"{shard}: messages of {each.hex()} without a bundle" for each in used - set(bodies)]
        empty = {entry.bundle_id for entry in entries if not entry.count}
        found += [f"{shard}: an entry of {each.hex()} for no messages" for each in empty]
        found += [f"{shard}: bundle {each.hex()} without messages" for each in set(bodies) - used]
        if shard not in raw.listed:
            found.append(f"{shard} holds {len(entries)} entries and is not in the directory")
    doubled = [message for message, times in stored.items() if times > 1]
    return found + [f"message {position} of {each.hex()} is stored twice" for each, position in doubled]


def hidden(raw: RawQueue, store: Store) -> list[str]:
    """Name what is stored and not counted, listed or offered by the store, when no client is at work."""
    found: list[str] = []
    for shard in raw.shards:
        entries = raw.entries.get(shard, ())
        stored, kept = of_entries(entries, *_NOT_FINISHED), of_entries(entries, RawState.PROCESSED)
        counts = store.count(shard)
        counted = counts.ready + counts.delayed + counts.in_flight
        if (counted, counts.processed) != (len(stored), len(kept)):
            found.append(f"{shard} holds {len(stored)} messages and {len(kept)} processed: {counts}")
        for processed, there in ((False, stored), (True, kept)):
            if sorted(of_slices(_listed(store, shard, processed=processed))) != there:
                found.append(f"{shard} lists other messages than it holds, processed: {processed}")
        if stored and all(store.probe([shard], deep=deep)[0].empty for deep in (False, True)):
            found.append(f"{shard} holds {len(stored)} messages and offers none")
    return found


def drain(queue: str, store: Store) -> list[str]:
    """Take all messages that are due, purge the rest and sweep; name what was due and did not come."""
    found: list[str] = []
    for shard in store.shards(queue):
        slices = _listed(store, shard, processed=False)
        ready = [each for each in slices if each.state is EntryState.READY]
        held_up = {each.bundle.group for each in slices if each.state is not EntryState.READY} - {""}
        due = of_slices(each for each in ready if each.bundle.group not in held_up)
        came = set(_deliver(store, shard, len(of_slices(ready))))
        missed = set(due) - came
        if missed:
            found.append(f"{shard} did not deliver {len(missed)} of {len(due)} messages that were due")
        if not came.issuperset(of_slices(slices)):
            store.purge(shard)
    for _ in range(_AT_ONCE):
        if not store.sweep(Sweep(queue, _FOREVER)):
            break
    return found


def remains(raw: RawQueue) -> list[str]:
    """Name what is stored although the queue was drained and swept."""
    left = [f"left after a sweep: {stray}" for stray in raw.strays]
    for shard in raw.shards:
        entries, bodies = raw.entries.get(shard, ()), raw.bodies.get(shard, ())
        left.append(f"{shard} holds {len(entries)} entries and {len(bodies)} bundles after a sweep")
    return left


def _listed(store: Store, shard: Shard, *, processed: bool) -> list[StoredSlice]:
    slices: list[StoredSlice] = []
    after = b""
    while True:
        page = store.peek(Peek(shard, _AT_ONCE, after=after, processed=processed, bodies=False))
        slices += page.slices
        after = page.after
        if not after:
            return slices


def _deliver(store: Store, shard: Shard, due: int) -> Iterator[Message]:
    """Claim and finish due messages, until ``due`` came or no more do."""
    while due > 0:
        token = os.urandom(16)
        slices = _claim(store, Claim(shard, token, _AT_ONCE, _LEASE)).slices
        if not slices:
            return
        spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)
        store.acknowledge(Acknowledge(shard, spans))
        taken = of_slices(slices)
        due -= len(taken)
        yield from taken


def _claim(store: Store, request: Claim) -> Claimed:
    claimed = store.claim(request)
    for _ in range(_TRIES):
        if not claimed.contended:
            break
        time.sleep(0.01)
        claimed = store.claim(request)
    return claimed
