"""Storing bundles: one document for each, known by its id for as long as a repetition may come."""

from __future__ import annotations

from collections.abc import Iterable

from shardq.storage.mongodb import group_changes
from shardq.storage.mongodb.changing import attempts
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.documents import inserted
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.requests import Append, Bundle
from shardq.storage.writing import after_a_write, append_in_parts

__all__ = ["PART_BUNDLES", "PART_BYTES", "append", "put"]

PART_BYTES = 15 << 20
"""In one command, which may have 16 MiB: what else a document has is below 1 KiB."""

PART_BUNDLES = 1000


def append(client: Client, request: Append) -> None:
    """Store the bundles, and say so where they come late; raises QueueNotFound."""
    rows = ShardRows(client.session, request.shard)
    grouped = request.shard.is_grouped
    append_in_parts(
        request,
        lambda part: (
            group_changes.append(client, request.shard, part)
            if grouped
            else put(rows, client.collections, part)
        ),
        most_bytes=PART_BYTES,
        most_bundles=PART_BUNDLES,
    )
    if not grouped:
        client.cursors.stored(request.shard, request.bundles)


def put(rows: ShardRows, collections: Open, bundles: Iterable[Bundle]) -> None:
    """Insert the bundles into the shard's collection, which is opened when it is not."""
    documents = [inserted(bundle) for bundle in bundles]
    with after_a_write(lambda: rows.has_changed):  # the collection may be closed when some are inserted
        for _ in attempts(rows.shard):
            if rows.insert(documents, collections.uuid(rows.shard)):
                return
            collections.is_not(rows.shard)
