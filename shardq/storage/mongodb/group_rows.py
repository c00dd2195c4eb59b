"""Reading and writing the documents of a shard of groups, in a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bson.binary import Binary

from shardq.storage.mongodb.documents import GROUP, PLACE, WITHOUT_BODIES, Document, Row, decode
from shardq.storage.mongodb.faults import write_error
from shardq.storage.mongodb.shard_rows import (
    BY_ID,
    GROUP_INDEX,
    OTHER_COLLECTION,
    CollectionGone,
    ShardRows,
    chunks,
)

__all__ = ["GroupRows"]

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
