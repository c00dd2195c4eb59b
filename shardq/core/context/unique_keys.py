"""Unique keys: which message of a queue has a key.

The message is the truth, and the entry of the key only points at it. An entry of a message that is gone counts for
nothing. So no step is needed when a message leaves: its key is free at once.

- A message is stored as the *incoming* one. It has the key when the entry is changed to say so.
- A message is handed out only while it has its key. A message that loses a race for a key is never received.
- A replaced message is removed before the one that took its place is handed out.

Every decision is one compare-and-set of the entry, so any client can take or complete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import msgspec

from shardq.base.clock import microseconds
from shardq.base.receipt import MessageId
from shardq.core.context.event_writer import Entry
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Answer
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.bundles import made_at
from shardq.storage.keys import KeyChange
from shardq.storage.requests import EntryState, StoredSlice, expired
from shardq.storage.writing import optional

__all__ = ["Holder", "Owner", "UniqueKeys", "release_keys", "sweep_keys"]

_TRIES = 1_000  # each that fails means that somebody else was faster
_PAGE = 500
_UNDER_WAY = 60_000_000  # microseconds for which a sweep leaves what a sender reserved


class Holder(msgspec.Struct, frozen=True):
    """The ids of messages that are stored under a key; empty where there is none."""

    current: str = ""  # has the key, if it is stored
    incoming: str = ""  # gets the key once it is stored
    replaced: str = ""  # has lost the key, and is to be removed

    def encode(self) -> str:
        """Encode the text of the entry."""
        return f"{self.current} {self.incoming} {self.replaced}"

    @classmethod
    def decode(cls, value: str) -> Holder:
        """Read :meth:`encode`."""
        return cls(*value.split(" "))

    @property
    def granted(self) -> Holder:
        """The entry when the incoming message has the key."""
        return Holder(self.incoming, replaced=self.current)

    def is_young(self, now: int, age: int) -> bool:
        """Return whether the incoming message was made less than ``age`` microseconds ago."""
        return bool(self.incoming) and now - made_at(MessageId.parse(self.incoming).bundle_id) < age


class Owner(msgspec.Struct, frozen=True):
    """The message that has a key, as it was found while the entry was so. The key is free where there is no message."""

    entry: Holder | None
    id: str = ""
    message: StoredSlice | None = None


class UniqueKeys:
    """The unique keys of one queue."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context

    def exchange(self, key: str, before: Holder | None, after: Holder | None) -> Holder | None:
        """Change an entry if it is as it was seen; returns what stands then."""
        (latest,) = self.exchange_all([(key, before, after)])
        return latest

    def exchange_all(
        self, changes: Sequence[tuple[str, Holder | None, Holder | None]]
    ) -> list[Holder | None]:
        """Change the entries of several keys, each for itself."""
        wanted = [KeyChange(key, _text(before), _text(after)) for key, before, after in changes]
        context = self._context
        found = context.retry(context.store.compare_and_set_keys, context.name, wanted) if wanted else ()
        return [None if value is None else Holder.decode(value) for value in found]

    def read(self, key: str) -> Holder | None:
        """Read the entry of a key."""
        return self.exchange(key, None, None)

    def find(self, identity: str) -> StoredSlice | None:
        """Find a message that is pending or in flight; None when it is gone, or too old to be delivered."""
        place, context = MessageId.parse(identity), self._context
        found = context.retry(context.store.find, place.shard, place.bundle_id, place.position)
        if found is None or found.state is EntryState.PROCESSED:
            return None
        return None if found.state is not EntryState.IN_FLIGHT and self._has_expired(found) else found

    def owner(self, key: str) -> Owner:
        """Find the owner of a key."""
        return self.owner_of(key, self.read(key))

    def owner_of(self, key: str, entry: Holder | None) -> Owner:
        """Find the owner of a key, given its last known entry. Completes changes that others began."""
        for _ in range(_TRIES):
            if entry is None:
                return Owner(None)
            if entry.replaced:
                entry = self._without_replaced(key, entry)
            elif entry.current and (message := self.find(entry.current)) is not None:
                return Owner(entry, entry.current, message)
            elif entry.incoming and self.find(entry.incoming) is not None:
                entry = self.exchange(key, entry, entry.granted)
            else:
                return Owner(entry)
        raise _busy(key)

    def enter_incoming(self, key: str, identity: str, incoming: str) -> None:
        """Enter a message as the incoming one after one that has the key, or from which no other has taken it."""
        entry: Holder | None = Holder(identity)
        wanted = Holder(identity, incoming)
        for _ in range(_TRIES):
            latest = self.exchange(key, entry, wanted)
            if latest == wanted or (latest is not None and latest.current != identity):
                return
            entry = latest
        raise _busy(key)

    def grant(
        self, wanted: Sequence[tuple[str, str]], *, entry: Holder | None = None, delivering: bool = False
    ) -> list[bool]:
        """Give each key to its message, which is stored, unless another one has it by now; returns which got theirs.

        When the messages are being delivered, other messages can no longer take their keys; one that was replaced does
        not have its key. ``entry`` is the last known entry of the key of a single message.
        """
        guesses: dict[tuple[str, str], Holder | None] = {
            pair: entry or (Holder(pair[1]) if delivering else Holder(incoming=pair[1])) for pair in wanted
        }
        granted: set[tuple[str, str]] = set()
        for _ in range(_TRIES):
            if not guesses:
                return [pair in granted for pair in wanted]
            pairs = list({pair[0]: pair for pair in guesses}.values())  # a key is asked for once at a time
            changes = [(pair[0], guesses[pair], _granted(guesses[pair], pair[1])) for pair in pairs]
            for pair, found in zip(pairs, self.exchange_all(changes), strict=True):
                latest = self._without_replaced(pair[0], found) if _is_held(found, pair[1]) else found
                replaced = latest is not None and latest.replaced == pair[1]
                if (replaced and not delivering) or (
                    _is_held(latest, pair[1]) and not (delivering and latest.incoming)
                ):
                    granted.add(pair)
                    del guesses[pair]
                elif latest is None or pair[1] in (latest.current, latest.incoming):
                    guesses[pair] = latest
                else:
                    del guesses[pair]
        raise _busy(next(iter(guesses))[0])

    def _without_replaced(self, key: str, entry: Holder) -> Holder | None:
        """Remove the message that was replaced, if there is one; returns what stands then."""
        if not entry.replaced:
            return entry
        if self._remove(entry.replaced).value and self._context.keeps_events:
            event = Entry("replaced", entry.replaced, text=f"message {entry.current} has its unique key")
            self._context.events.record(self._context, [event])
        return self.exchange(key, entry, msgspec.structs.replace(entry, replaced=""))

    def remove(self, identity: str) -> bool:
        """Remove a message; False when it was not stored. Raises OutcomeUnknown when that is not known."""
        answer = self._remove(identity)
        if answer.after_unknown and not answer.value:
            raise OutcomeUnknown(f"message {identity} was removed now, or had left the queue before")
        return answer.value

    def _remove(self, identity: str) -> Answer[bool]:
        place, context = MessageId.parse(identity), self._context
        return context.retry.ask(context.store.remove, place.shard, place.bundle_id, place.position)

    def _has_expired(self, found: StoredSlice) -> bool:
        now, retention = self._context.store.now(), self._context.settings.retention
        return expired(found.bundle, now, None if retention is None else now - microseconds(retention))


def release_keys(context: QueueContext, finished: Sequence[tuple[str, str]]) -> None:
    """Remove the entries of finished messages. Entries that are left count for nothing, and are swept."""
    with optional(), context.retry.within(0):
        UniqueKeys(context).exchange_all(
            [(key, Holder(identity), None) for key, identity in dict(finished).items()]
        )


def sweep_keys(context: QueueContext, *, everything: bool = False) -> int:
    """Remove the entries of messages that are gone; returns how many.

    It continues for as long as half of a page is to be removed; with ``everything`` to the end.
    """
    keys, after, removed = UniqueKeys(context), "", 0
    while page := context.retry(context.store.list_keys, context.name, after, _PAGE):
        found = sum(_sweep(keys, each.key, Holder.decode(each.value), context.store.now()) for each in page)
        removed, after = removed + found, page[-1].key
        if not everything and 2 * found < len(page):
            break
    return removed


def _sweep(keys: UniqueKeys, key: str, entry: Holder, now: int) -> bool:
    if entry.is_young(now, _UNDER_WAY):
        return False
    owner = keys.owner_of(key, entry)
    return owner.message is None and owner.entry is not None and keys.exchange(key, owner.entry, None) is None


def _is_held(entry: Holder | None, identity: str) -> TypeGuard[Holder]:
    return entry is not None and entry.current == identity


def _text(entry: Holder | None) -> str | None:
    return None if entry is None else entry.encode()


def _granted(entry: Holder | None, identity: str) -> Holder:
    """Return the entry for a message that has the key."""
    return entry.granted if entry is not None and entry.incoming == identity else Holder(identity)


def _busy(key: str) -> StoreUnavailable:
    return StoreUnavailable(f"unique key {key!r} is changed by others all the time: try again")
