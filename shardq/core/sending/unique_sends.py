"""Storing messages that have a unique key: while another message of the key is in the queue, they are not stored.

The key is entered for the incoming message, the message is stored, and the key is given to it. A sender takes
over a key that is entered for a message that does not come. The overtaken sender learns that when it asks for its key,
and removes its message, which was not received (:mod:`shardq.core.context.unique_keys`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from shardq.base.clock import microseconds
from shardq.base.outgoing_message import OnConflict
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.unique_keys import Holder, Owner, UniqueKeys
from shardq.core.sending.appending import SEND, AppendPolicy, append, check_age
from shardq.core.sending.planned_bundles import PlannedBundle, grouped_by_shard
from shardq.errors import Closed, OutcomeUnknown, QueueNotFound, ShardqError, StoreUnavailable, UniqueKeyTaken
from shardq.storage.abilities import TransactionEnded
from shardq.storage.bundles import made_at
from shardq.storage.requests import EntryState

__all__ = ["UniqueSend"]

_TRIES = 100  # each that fails means that another sender was faster
_PAUSE = 0.01  # seconds between reads of a key that is entered for a message which may be on its way
_PATIENCE = 1.0  # seconds for which such a message is waited for, and how old it is when it no longer is


class UniqueSend:
    """Stores messages, each in a separate bundle, and returns the result of each."""

    def __init__(self, context: QueueContext, policy: AppendPolicy = SEND) -> None:
        self._context, self._keys, self._policy = context, UniqueKeys(context), policy
        self.ids: dict[int, str] = {}  # by place in the input
        self.duplicates = 0  # that were not stored, as another message has their key
        # The first one, or one after which some may be stored; nothing is stored after it
        self.error: BaseException | None = None
        self.pending: list[PlannedBundle] = []  # those that are not stored, as far as is known
        self.doubtful: set[bytes] = set()  # those of them that may be stored all the same

    def run(self, bundles: Iterable[PlannedBundle]) -> None:
        """Store them: those of different keys together, those of one key one after the other."""
        rest = list(bundles)
        while rest:
            first = {_key(planned): planned for planned in reversed(rest)}
            now = [planned for planned in rest if first[_key(planned)] is planned]
            rest = [planned for planned in rest if first[_key(planned)] is not planned]
            if self.error is None:
                self._store_all(now)
            else:
                self._fail(now, self.error)

    def _store_all(self, bundles: Sequence[PlannedBundle]) -> None:
        """Store those whose keys are free, with one request for all their keys; then the others, one by one.

        Of a group, what follows one whose key is not free is among the others: a group keeps its order.
        """
        wanted = [(_key(planned), None, Holder(incoming=_id(planned))) for planned in bundles]
        try:
            found = self._keys.exchange_all(wanted)
        except BaseException as error:
            self._fail(bundles, error)
            return
        together: list[PlannedBundle] = []
        others: list[tuple[PlannedBundle, Holder | None, bool]] = []
        held_up: set[str] = set()
        for planned, entry in zip(bundles, found, strict=True):
            own = planned.again or _is_for(entry, planned)
            if own and planned.group not in held_up:
                together.append(planned)
                continue
            others.append((planned, entry, own))
            held_up.update({planned.group} - {""})
        self._store_own(together)
        for planned, entry, own in others:
            if own:
                self._store_own([planned])
            else:
                self._contend(planned, entry)

    def _store_own(self, bundles: Sequence[PlannedBundle]) -> None:
        """Store messages for which their keys are entered, under other ids where they lost them meanwhile."""
        for planned in self._store(bundles):
            self._contend(self._renamed(planned), None)

    def _contend(self, planned: PlannedBundle, entry: Holder | None) -> None:
        """Store a message although something else was seen under its key, or do what it says about that."""
        try:
            self._take(planned, entry)
        except BaseException as error:
            self._fail([planned], error)

    def _take(self, planned: PlannedBundle, entry: Holder | None) -> None:
        key, until = _key(planned), time.monotonic() + _PATIENCE
        for _ in range(_TRIES):
            owner = self._owner(planned, entry)
            if owner.message is not None and self._is_refused(planned, owner):
                return
            if self._is_awaited(owner.entry, until):
                time.sleep(_PAUSE)
                entry = self._keys.read(key)
                continue
            incoming = Holder(owner.id, _id(planned))
            entry = self._keys.exchange(key, owner.entry, incoming)
            if entry == incoming and incoming.current:
                entry = self._check_waiting(key, incoming)
            if entry is not None and entry.incoming == incoming.incoming:
                if not self._store([planned], entry):
                    return
                planned, entry = self._renamed(planned), None
        raise StoreUnavailable(f"unique key {key!r} is taken by others all the time: try again")

    def _owner(self, planned: PlannedBundle, entry: Holder | None) -> Owner:
        """Find the owner of the key.

        An owner that is to be replaced, by no other message yet, is read when that is entered.
        """
        if entry == Holder(entry.current if entry else "") and _conflict(planned) == "replace":
            return Owner(entry, entry.current)
        return self._keys.owner_of(_key(planned), entry)

    def _is_refused(self, planned: PlannedBundle, owner: Owner) -> bool:
        """Return whether the id of the message that has the key is the answer; raises UniqueKeyTaken."""
        assert owner.message is not None
        conflict = _conflict(planned)
        in_flight = owner.message.state is EntryState.IN_FLIGHT
        if conflict == "raise" or (conflict == "replace" and in_flight):
            raise self._taken(_key(planned), owner.id, in_flight=in_flight)
        if conflict == "keep":
            self.ids[planned.places[0]] = owner.id
            self.duplicates += 1
            self._context.counters.add(deduplicated=1)
        return conflict == "keep"

    def _check_waiting(self, key: str, entry: Holder) -> Holder | None:
        """Read a message that is to be replaced again.

        A consumer that receives it from now on finds the entry, and keeps the key. Returns the present entry. A
        message that has left the queue is not replaced: it may be in the history.
        """
        found = self._keys.find(entry.current)
        if found is None:
            return self._keys.exchange(key, entry, Holder(incoming=entry.incoming))
        if found.state is EntryState.IN_FLIGHT:
            self._keys.exchange(key, entry, Holder(entry.current))
            raise self._taken(key, entry.current, in_flight=True)
        return entry

    def _store(self, bundles: Sequence[PlannedBundle], entry: Holder | None = None) -> list[PlannedBundle]:
        """Store messages for which keys are entered; returns those that lost theirs meanwhile, and were removed.

        One that may be stored is stored again first: then it is there unless it was finished.
        """
        stored: list[PlannedBundle] = []
        for group in grouped_by_shard(bundles):
            if self.error is not None:
                self._fail(group, self.error)
                continue
            try:
                append(self._context, self._policy, group)
                stored += group
            except BaseException as error:
                refused = isinstance(error, ShardqError) and not isinstance(error, OutcomeUnknown)
                self._fail(group, error, doubtful=not refused)
        try:
            granted = self._keys.grant([(_key(each), _id(each)) for each in stored], entry=entry)
        except BaseException as error:
            self._fail(stored, _unknown(error), doubtful=True)
            return []
        self.ids |= {
            planned.places[0]: _id(planned) for planned, own in zip(stored, granted, strict=True) if own
        }
        lost = [planned for planned, own in zip(stored, granted, strict=True) if not own]
        return [planned for planned in lost if self._is_removed(planned)]

    def _is_removed(self, planned: PlannedBundle) -> bool:
        """Remove a message that lost its key. If it is gone, it had its key, and has left the queue since."""
        try:
            if self._keys.find(_id(planned)) is not None and self._keys.remove(_id(planned)):
                return True
            check_age(self._context, planned.shard, planned.id, made_at(planned.id))
        except BaseException as error:
            self._fail([planned], _unknown(error), doubtful=True)
        else:
            self.ids[planned.places[0]] = _id(planned)
        return False

    def _renamed(self, planned: PlannedBundle) -> PlannedBundle:
        """Give the message another id: a removed message is not stored again."""
        identity = self._context.ids.new(self._context.store.now())
        return msgspec.structs.replace(planned, id=identity, again=False)

    def _is_awaited(self, entry: Holder | None, until: float) -> bool:
        """Return whether another message that gets the key may be on its way."""
        young = entry is not None and entry.is_young(self._context.store.now(), microseconds(_PATIENCE))
        return young and time.monotonic() < until

    def _taken(self, key: str, identity: str, *, in_flight: bool) -> UniqueKeyTaken:
        state = "is in flight" if in_flight else "waits"
        return UniqueKeyTaken(
            f"unique key {key!r} of queue {self._context.name!r} is taken: message {identity} {state}; "
            "send it when that one is done, or with another key",
            identity,
            in_flight=in_flight,
        )

    def _fail(
        self, bundles: Iterable[PlannedBundle], error: BaseException, *, doubtful: bool = False
    ) -> None:
        if self.error is None or (isinstance(error, OutcomeUnknown) and isinstance(self.error, Exception)):
            self.error = error
        for planned in bundles:
            self.pending.append(planned)
            if doubtful or planned.again:
                self.doubtful.add(planned.id)


def _key(planned: PlannedBundle) -> str:
    assert planned.unique_key is not None
    return planned.unique_key


def _conflict(planned: PlannedBundle) -> OnConflict:
    return planned.sends[0].on_conflict if planned.sends else "keep"


def _id(planned: PlannedBundle) -> str:
    return str(planned.message_id(0))


def _is_for(entry: Holder | None, planned: PlannedBundle) -> bool:
    return entry is not None and _id(planned) in (entry.current, entry.incoming)


def _unknown(error: BaseException) -> BaseException:
    """Return the error of a message that was stored, while it is unknown whether it had its key.

    One whose queue is gone may have been received before.
    """
    if isinstance(error, TransactionEnded) or not isinstance(
        error, StoreUnavailable | Closed | QueueNotFound
    ):
        return error
    unknown = OutcomeUnknown(f"the message was stored, and may not have its unique key: {error}")
    unknown.__cause__ = error
    return unknown
