"""The order within groups: which bundle is the first of its group, and the ones after it.

A bundle has its place in its group. The one with the lowest place has its own due time in the claim index; all others
are ``BEHIND``. A document for each group that has messages has the place of what is appended next. A change of a group
is a transaction that writes it, so of two changes of a group at one time one is tried again. It goes with the last
message of the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

from bson import encode
from bson.binary import Binary
from pymongo.client_session import ClientSession

from shardq.base.shard import Shard
from shardq.storage.mongodb import queues
from shardq.storage.mongodb.changing import Change, attempts, finish
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import (
    BEHIND,
    DUE,
    GROUP,
    MOVED,
    NEXT,
    PLACE,
    STAMP,
    STATE,
    WITHOUT_BODIES,
    Document,
    Row,
    decode,
    inserted,
    moved_field,
    position_fields,
    state_of,
)
from shardq.storage.mongodb.faults import write_error
from shardq.storage.mongodb.shard_rows import (
    BY_ID,
    GROUP_INDEX,
    OTHER_COLLECTION,
    CollectionGone,
    ShardRows,
    Statement,
    chunks,
)
from shardq.storage.mongodb.transactions import PATIENT, transact
from shardq.storage.requests import Bundle

__all__ = ["GroupRows", "Groups", "document_of", "in_transaction"]

_AT_ONCE = 1000
_PAGE = 100


class GroupRows(ShardRows):
    """The documents of one shard of groups."""

    def group(self, group: str) -> Iterator[Row]:
        """Yield the bundles of a group that are not finished, by their places, read as far as it takes."""
        after = -1
        while found := self.find({GROUP: group, PLACE: {"$gt": after}}, hint=GROUP_INDEX, limit=_PAGE):
            yield from found
            after = found[-1].raw[PLACE]

    def first_of_groups(self, documents: Sequence[bytes], limit: int) -> Iterator[Row]:
        """Yield the first ``limit`` bundles of each group, by their places.

        The groups are known by their documents' ids.
        """
        found: Document = {
            "from": self.name,
            "localField": GROUP,
            "foreignField": GROUP,
            "pipeline": [
                {"$match": {PLACE: {"$gt": -1}}},
                {"$sort": {PLACE: 1}},
                {"$limit": limit},
                {"$project": WITHOUT_BODIES},
            ],
            "as": "rows",
        }
        for chunk in chunks(documents):
            stages = [{"$match": {"_id": {"$in": chunk}}}, {"$lookup": found}, {"$project": {"rows": 1}}]
            for each in self.aggregate(stages, hint=BY_ID):
                yield from map(decode, each["rows"])

    def write(self, updates: Sequence[Document], uuid: Binary) -> None:
        """Carry updates out, in a transaction. Raises CollectionGone when this is not the collection with the uuid."""
        for start in range(0, len(updates), _AT_ONCE):
            chunk = updates[start : start + _AT_ONCE]
            for detail in self.update(chunk, ordered=True, collectionUUID=uuid).get("writeErrors", ()):
                if detail["code"] == OTHER_COLLECTION:
                    raise CollectionGone
                raise write_error(detail, str(self.session.address))


_DOCUMENT = bytes(16)  # before the name of a group: its document, as no id of a bundle or claim is longer

T = TypeVar("T")


class Groups:
    """The reads of one transaction about the groups of a shard, and its writes when it has decided."""

    def __init__(self, rows: GroupRows, uuid: Binary | None) -> None:
        self.rows = rows
        self._uuid = uuid
        self._read: dict[bytes, Row] = {}
        self._changes: dict[bytes, Change] = {}
        self._touched: set[str] = set()
        self._next: dict[str, int] = {}  # where something is appended
        self._inserted: list[tuple[Bundle, int]] = []
        self._reordered: set[str] = set()
        self._behind: dict[bytes, bool] = {}  # what changes in that
        self.notes: list[Document] = []  # updates beside those of bundles and groups
        self.moments: dict[int, int] = {}  # by priority, the first from which something is due now
        self.advanced: set[str] = set()  # groups in which what was behind is the first now

    def read(self, ids: Iterable[bytes]) -> dict[bytes, Row]:
        """Return bundles as they are stored, without their data; each is read once."""
        wanted = list(ids)
        self._read |= self.rows.read(each for each in wanted if each not in self._read)
        return {each: self._read[each] for each in wanted if each in self._read}

    def follow(self, group: str) -> Iterator[Row]:
        """Return the bundles of a group that are stored, by their places."""
        for row in self.rows.group(group):
            self._read[row.id] = row
            yield row

    def first(self, groups: Iterable[str], limit: int) -> dict[str, list[Row]]:
        """Return the first ``limit`` stored bundles of each group, by their places."""
        found: dict[str, list[Row]] = {group: [] for group in groups}
        if found:
            for row in self.rows.first_of_groups([document_of(group) for group in found], limit):
                self._read[row.id] = row
                found[row.group].append(row)
        return found

    def now(self, row: Row) -> Change:
        """Return what a bundle holds with what was decided."""
        return self._changes.get(row.id) or Change(row.slices, row.kept)

    def change(self, row: Row, new: Change, *, ends: bool = False) -> None:
        """Let a bundle hold something else; ``ends``: the stay of some of its messages ends."""
        before = self._changes.get(row.id)
        moved = (*(before.moved if before else ()), *new.moved)
        slices = tuple(sorted(new.slices, key=lambda each: each.first))
        self._changes[row.id] = Change(slices, new.kept, moved)
        self._touched.add(row.group)
        if ends:
            self._reordered.add(row.group)

    def append(self, bundles: Sequence[Bundle], places: Sequence[int] = ()) -> None:
        """Let bundles follow the last of their groups, or the first of them stand at places that are free."""
        groups = {bundle.group: document_of(bundle.group) for bundle in bundles}
        found = self.rows.read([*(bundle.id for bundle in bundles), *groups.values()])
        for bundle, given in zip_longest(bundles, places):
            if bundle.id in found:
                continue
            group = bundle.group
            known = found.get(groups[group])
            following = self._next.get(group, known.raw[NEXT] if known else 0)
            place = following if given is None else given
            self._inserted.append((bundle, place))
            self._next[group] = max(following, place + bundle.count)
            if known is None or given is not None:
                self._reordered.add(group)

    def write(self) -> bool:
        """Write what was decided; False when that is nothing. Raises CollectionGone."""
        if not self._changes and not self._inserted and not self.notes:
            return False
        if self._uuid is None:
            raise CollectionGone
        over = self._set_in_order()
        updates = [*self.notes, *self._of_groups(over), *self._of_bundles()]
        if updates:
            self.rows.write(updates, self._uuid)
        self.rows.delete([document_of(group) for group in over])
        documents = [
            inserted(bundle) | {GROUP: bundle.group} | self._position_fields(bundle, place)
            for bundle, place in self._inserted
        ]
        any_shape = self.rows.session.transaction is not None  # what is closed stays so until its end
        if documents and not self.rows.insert(documents, self._uuid, any_shape=any_shape):
            raise CollectionGone
        return True

    def announce(self, client: Client) -> None:
        """Announce late messages, and end waits for groups that continue, when it is stored."""
        client.cursors.due_again(self.rows.shard, self.moments)
        if self.advanced:
            client.signals.announce(queues.parted(self.rows.shard.queue)[0])

    def _position_fields(self, bundle: Bundle, place: int) -> Document:
        behind = self._behind.get(bundle.id, True)
        if not behind:
            self._is_due(bundle.priority, bundle.due)
        return {DUE: bundle.due + (BEHIND if behind else 0), PLACE: place}

    def _set_in_order(self) -> set[str]:
        """Find the first bundle of each group that may have another one; return the groups that have none."""
        here: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for key, new in self._changes.items():
            row = self._read[key]
            here[row.group] += [(row.base + each.first, key) for each in new.slices[:1]]
        for bundle, place in self._inserted:
            here[bundle.group].append((place, bundle.id))
        for row in self._first_unchanged():
            here[row.group].append((row.raw[PLACE], row.id))
        over = {group for group in self._reordered if not here[group]}
        for group in self._reordered - over:
            _, first = min(here[group])
            self._behind |= {key: key != first for _, key in here[group]}
            if first in self._read and self._read[first].is_behind:
                self.change(self._read[first], self.now(self._read[first]))
                self.advanced.add(group)
        return over

    def _first_unchanged(self) -> Iterator[Row]:
        """Return the first bundle of each group beside those that are changed."""
        changed = Counter(self._read[key].group for key in self._changes)
        alike: dict[int, list[str]] = defaultdict(list)  # so that no group is read far because of another one
        for group in self._reordered & changed.keys():
            alike[changed[group].bit_length() // 3].append(group)
        for groups in alike.values():
            most = max(changed[group] for group in groups)
            for rows in self.first(groups, most + 1).values():
                yield from [row for row in rows if row.id not in self._changes][:1]

    def _of_groups(self, over: set[str]) -> Iterator[Document]:
        for group, following in self._next.items():
            change = {"$set": {GROUP: group, NEXT: following}, "$inc": {STAMP: 1}}
            yield Statement({"_id": document_of(group)}, change).encoded(upsert=True)
        if touched := self._touched - self._next.keys() - over:
            ids = [document_of(group) for group in touched]
            yield Statement({"_id": {"$in": ids}}, {"$inc": {STAMP: 1}}).encoded(multi=True)

    def _of_bundles(self) -> Iterator[Document]:
        """Join bundles that are changed alike into one update."""
        alike: dict[bytes, tuple[Document, list[bytes]]] = {}
        for key, new in self._changes.items():
            update = self._update(self._read[key], new)
            if update:
                alike.setdefault(encode(update), (update, []))[1].append(key)
        for update, ids in alike.values():
            yield Statement({"_id": {"$in": ids}}, update).encoded(multi=True)

    def _update(self, row: Row, new: Change) -> Document:
        """Return the update to what a bundle shall hold, of the fields that differ."""
        state = state_of(row.count, new.slices, new.kept)
        if not state:
            return finish(0, (*row.moved, *new.moved))
        if new.slices:
            behind = self._behind.get(row.id, row.is_behind)
            state |= position_fields(row.base, new.slices, behind=behind)
            if not behind:
                self._is_due(row.priority, state[DUE])
        if new.moved:
            state[MOVED] = moved_field((*row.moved, *new.moved))
        changed = {field: value for field, value in state.items() if row.raw.get(field) != value}
        gone = {field: 1 for field in (*STATE, PLACE) if field in row.raw and field not in state}
        return ({"$set": changed} if changed else {}) | ({"$unset": gone} if gone else {})

    def _is_due(self, priority: int, due: int) -> None:
        self.moments[priority] = min(due, self.moments.get(priority, due))


def in_transaction(
    client: Client,
    shard: Shard,
    do: Callable[[Groups], T],
    pauses: Sequence[float] = PATIENT,
    *,
    opens: bool = False,
) -> T:
    """Decide and write in one transaction; say so where something is due late.

    With ``opens`` the shard's collection is made and opened first; that raises QueueNotFound. In a transaction of the
    application it is decided once, and raises CollectionGone.
    """
    find = client.collections.uuid if opens else client.collections.seen
    if client.session.transaction is not None:  # of the application, whose end announces due messages
        own = Groups(GroupRows(client.session, shard), find(shard))
        result = do(own)
        own.write()
        return result
    for _ in attempts(shard):
        try:
            done, groups = _transacted(client, shard, find(shard), do, pauses)
        except CollectionGone:
            client.collections.is_not(shard)
        else:
            groups.announce(client)
            return done
    raise AssertionError("attempts have no other end")


def _transacted(
    client: Client, shard: Shard, uuid: Binary | None, do: Callable[[Groups], T], pauses: Sequence[float]
) -> tuple[T, Groups]:
    def once(transaction: ClientSession) -> tuple[tuple[T, Groups], bool]:
        groups = Groups(GroupRows(client.session, shard, transaction), uuid)
        done = do(groups)
        return (done, groups), groups.write()

    return transact(client.session, shard, once, pauses)


def document_of(group: str) -> bytes:
    """Return the id of the document of a group."""
    return _DOCUMENT + group.encode()
