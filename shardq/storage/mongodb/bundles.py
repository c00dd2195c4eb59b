"""Storing bundles: one document for each, known by its id for as long as a repetition may come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.mongodb.changing import attempts
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.documents import inserted
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.requests import Append, Bundle

__all__ = ["append", "put"]

_CHUNK_BYTES = 16 << 20
_CHUNK_BUNDLES = 1000


def append(session: Session, collections: Open, request: Append) -> None:
    """Store the bundles; raises QueueNotFound."""
    rows = ShardRows(session, request.shard)
    for index, chunk in enumerate(_chunks(request.bundles)):
        try:
            put(rows, collections, chunk)
        except StoreUnavailable as error:
            if index and error.retryable:
                raise OutcomeUnknown(
                    f"a part of an append to shard {request.shard} is stored: repeat it"
                ) from error
            raise


def put(rows: ShardRows, collections: Open, bundles: Iterable[Bundle]) -> None:
    """Insert the bundles into the shard's collection, which is opened when it is not."""
    documents = [inserted(bundle) for bundle in bundles]
    for _ in attempts(rows.shard):
        if rows.insert(documents, collections.uuid(rows.shard)):
            return
        collections.is_not(rows.shard)


def _chunks(bundles: Iterable[Bundle]) -> Iterator[list[Bundle]]:
    chunk: list[Bundle] = []
    size = 0
    for bundle in bundles:
        if chunk and (size + len(bundle.data) > _CHUNK_BYTES or len(chunk) == _CHUNK_BUNDLES):
            yield chunk
            chunk, size = [], 0
        chunk.append(bundle)
        size += len(bundle.data)
    if chunk:
        yield chunk
