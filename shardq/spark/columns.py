"""Which columns a sink takes, and a batch of rows as arrays that can be hashed, sorted and sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from shardq.base.codec import UNREADABLE
from shardq.base.outgoing_message import DEFAULT_PRIORITY, OutgoingMessage
from shardq.core.sending.prepared import (
    LAST_MOMENT,
    MAX_DELAY_SECONDS,
    MAX_TTL_SECONDS,
    MIN_TTL_SECONDS,
    prepare_options,
)
from shardq.errors import InvalidMessage, InvalidSetting
from shardq.spark.options import SendOptions
from shardq.spark.roles import columns_by_role, hash_of, mixed, nulls, numbers_of, objects
from shardq.topics.filters import SUBJECT, check_subject

__all__ = ["NOTHING", "Columns", "Names", "Rows", "headers_of", "names_of"]

NOTHING = np.iinfo(np.int64).min
"""Stands for null among due times, delays and ttls."""

_YEAR = 31_556_952_000_000  # microseconds
_BOUNDS = {"delay": (0.0, MAX_DELAY_SECONDS), "ttl": (MIN_TTL_SECONDS, MAX_TTL_SECONDS)}
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(dict[str, Any])


class Names(msgspec.Struct, array_like=True, frozen=True):
    """The names that a row has, as texts."""

    group: str | None = None
    dedupe_key: str | None = None
    unique_key: str | None = None


_decode_names = msgspec.msgpack.Decoder(Names).decode


class Rows(msgspec.Struct, frozen=True):
    """Rows as arrays of one length. ``headers`` and ``names`` are packed as MessagePack; empty: none."""

    bodies: Any  # of bytes objects
    identities: Any  # uint64: equal for equal rows
    headers: Any = None  # of bytes objects
    priorities: Any = None  # int64
    dues: Any = None  # int64 microseconds, or NOTHING
    lanes: Any = None  # int64
    delays: Any = None  # as the due times
    ttls: Any = None  # as the due times
    names: Any = None  # of bytes objects

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def columns(self) -> tuple[Any, ...]:
        """All arrays."""
        return (
            self.bodies, self.identities, self.headers, self.priorities, self.dues, self.lanes, self.delays,
            self.ttls, self.names,
        )  # fmt: skip

    def pick(self, where: Any) -> Rows:
        """Pick the rows of a slice, or of an array of places."""
        return Rows(*(None if column is None else column[where] for column in self.columns))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Join rows one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(*(None if column[0] is None else np.concatenate(column) for column in columns))


class Columns(msgspec.Struct, frozen=True):
    """The names of the columns that are read; None: the rows have no such column."""

    body: str
    id: str | None
    priority: str | None
    due: str | None
    headers: str | None
    key: str | None
    queue: str
    delay: str | None = None
    ttl: str | None = None
    group: str | None = None
    dedupe_key: str | None = None
    unique_key: str | None = None
    subject: str | None = None

    @classmethod
    def of(cls, schema: StructType, options: SendOptions) -> Columns:
        """Find the columns; raises InvalidSetting naming the first that is missing, unknown or of another type."""
        chosen = {
            "body": options.body_column, "id": options.id_column, "priority": options.priority_column,
            "due": options.due_column, "headers": options.headers_column, "key": options.key_column,
            "delay": options.delay_column, "ttl": options.ttl_column, "group": options.group_column,
            "dedupe_key": options.dedupe_key_column, "unique_key": options.unique_key_column,
            "subject": options.subject_column,
        }  # fmt: skip
        names = columns_by_role(schema, chosen, topic=options.topic)
        if options.key_column is not None and options.shard_by != "key":
            raise InvalidSetting(
                f"option keyColumn={options.key_column!r} is not used with shardBy={options.shard_by}: add option "
                "shardBy=key, or leave it out"
            )
        if options.shard_by == "key" and options.topic is not None:
            raise InvalidSetting(
                "option shardBy='key' is for queues, and a topic has no shards: leave it out"
            )
        if options.shard_by == "key" and names["key"] is None:
            raise InvalidSetting("shardBy=key needs a column 'key': name one with keyColumn")
        if options.shard_by == "key" and names["group"] is not None:
            raise InvalidSetting(
                f"shardBy=key and column {names['group']!r} both decide on the shard: leave shardBy out, as a group "
                "always keeps its order, or drop the column"
            )
        lane = names["key"] if options.shard_by == "key" else None
        return cls(**(names | {"key": lane}), queue=options.queue)  # type: ignore[arg-type]

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """Convert a batch to arrays; raises InvalidMessage for a null body or a value that a message cannot have."""
        bodies = objects(batch.column(self.body))
        if batch.column(self.body).null_count:
            raise InvalidMessage(f"column {self.body!r} is null in a row: filter such rows out")
        headers = self._headers(batch)
        priorities = (
            None if self.priority is None else _priorities(batch.column(self.priority), self.priority)
        )
        dues = None if self.due is None else _dues(batch.column(self.due), self.due)
        delays, ttls = self._seconds(batch, "delay"), self._seconds(batch, "ttl")
        if delays is not None and dues is not None:
            self._check_moments(delays, dues)
        names = self._names(batch)
        lanes = (
            None if self.key is None else (hash_of(batch.column(self.key)) >> np.uint64(33)).astype(np.int64)
        )
        ids = None if self.id is None else batch.column(self.id)
        identities = None if ids is None else hash_of(ids)
        if ids is None or ids.null_count:  # a row without an id is identified by its content
            whole = mixed(numbers_of(bodies), headers, priorities, dues, delays, ttls, names, lanes)
            identities = whole if ids is None else np.where(nulls(ids), whole, identities)
        return Rows(bodies, identities, headers, priorities, dues, lanes, delays, ttls, names)

    def _headers(self, batch: pa.RecordBatch) -> Any:
        made: list[dict[str, Any] | None] = [None] * batch.num_rows
        if self.headers is not None:
            column = batch.column(self.headers)
            made = (
                _unpacked(column) if pa.types.is_binary(column.type) else _dictionaries(column, self.headers)
            )
            for one in filter(None, made):
                _check_one(self.headers, "headers", one, self.queue)
        elif self.subject is None:
            return None
        if self.subject is not None:
            made = list(map(_with_subject, made, _texts(batch, self.subject)))
        return _packed([one or None for one in made])

    def _seconds(self, batch: pa.RecordBatch, role: str) -> Any:
        """Convert a column of seconds to microseconds."""
        name = getattr(self, role)
        if name is None:
            return None
        column, (least, most) = batch.column(name), _BOUNDS[role]
        seconds, missing = column.cast(pa.float64()).to_numpy(zero_copy_only=False), nulls(column)
        for wrong in seconds[~missing & ~((seconds >= least) & (seconds <= most))][:1].tolist():
            _check_one(name, role, wrong, self.queue)
        micros = np.rint(np.where(missing, 0, seconds) * 1_000_000).astype(np.int64)
        return np.where(missing, NOTHING, micros)

    def _check_moments(self, delays: Any, dues: Any) -> None:
        for place in np.flatnonzero((delays > 0) & (dues != NOTHING))[:1].tolist():
            raise InvalidMessage(
                f"column {self.delay!r} is {delays[place] / 1_000_000:g} in a row that has a {self.due!r}, too: give "
                "one of them, and null for the other"
            )

    def _names(self, batch: pa.RecordBatch) -> Any:
        chosen = {role: getattr(self, role) for role in Names.__struct_fields__}
        if not any(chosen.values()):
            return None
        texts = {role: _texts(batch, name) for role, name in chosen.items()}
        for role, name in chosen.items():
            for text in set(texts[role]) - {None} if name is not None else ():
                _check_one(name, role, text, self.queue)
        found = [Names(*row) for row in zip(*texts.values(), strict=True)]
        for one in found:
            if one.dedupe_key is not None and one.unique_key is not None:
                raise InvalidMessage(
                    f"column {self.dedupe_key!r} is {one.dedupe_key!r} in a row that has a {self.unique_key!r}, too: "
                    "give one of them, and null for the other"
                )
        return _packed([None if one == Names() else one for one in found])


def headers_of(packed: bytes) -> dict[str, Any] | None:
    """Unpack headers; raises InvalidMessage."""
    if not packed:
        return None
    try:
        return _decoder.decode(packed)
    except UNREADABLE as error:
        raise InvalidMessage(f"packed headers {packed[:40]!r} are no MessagePack map: {error}") from error


def names_of(packed: bytes) -> Names:
    """Unpack names."""
    return _decode_names(packed) if packed else Names()


def _check_one(column: str, role: str, value: Any, queue: str) -> None:
    """Raise InvalidMessage, naming the column, if a message cannot have this value."""
    try:
        prepare_options(OutgoingMessage(body=b"", **{role: value}), queue)
    except InvalidMessage as error:
        raise InvalidMessage(f"column {column!r}: {error}") from error


def _packed(values: Sequence[Any]) -> Any:
    packed = np.empty(len(values), dtype=object)
    packed[:] = [b"" if one is None else _encoder.encode(one) for one in values]
    return packed


def _texts(batch: pa.RecordBatch, name: str | None) -> list[str | None]:
    if name is None:
        return [None] * batch.num_rows
    texts: list[str | None] = batch.column(name).cast(pa.string()).to_pylist()
    return texts


def _priorities(column: pa.Array, name: str) -> Any:
    priorities = column.cast(pa.int64()).fill_null(DEFAULT_PRIORITY).to_numpy()
    wrong = priorities[(priorities < 0) | (priorities > 9)]
    if len(wrong):
        raise InvalidMessage(
            f"column {name!r}: priority {wrong[0]}: give a whole number from 0 (first) to 9 (last)"
        )
    return priorities


def _dues(column: pa.Array, name: str) -> Any:
    dues = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(NOTHING).to_numpy()
    for late in dues[dues > LAST_MOMENT][:1].tolist():
        years = 1970 + late // _YEAR
        raise InvalidMessage(
            f"column {name!r} is about the year {years}: give a moment before the year 10000 in UTC"
        )
    return dues


def _dictionaries(column: pa.MapArray, name: str) -> list[dict[str, Any] | None]:
    keys, items = column.keys.to_numpy(zero_copy_only=False).tolist(), column.items
    if items.null_count:
        raise InvalidMessage(f"column {name!r}: a header is null: leave it out of the map")
    values = items.to_numpy(zero_copy_only=False).tolist()
    ends = column.offsets.to_pylist()
    present = column.is_valid().to_pylist()
    return [
        dict(zip(keys[start:end], values[start:end], strict=True)) if there else None
        for start, end, there in zip(ends[:-1], ends[1:], present, strict=True)
    ]


def _unpacked(column: pa.Array) -> list[dict[str, Any] | None]:
    return [headers_of(packed) if packed else None for packed in objects(column)]


def _with_subject(headers: Mapping[str, Any] | None, subject: str | None) -> dict[str, Any] | None:
    """Return the headers of a message with its subject among them; raises InvalidMessage for one that is none."""
    checked = check_subject(subject)
    return dict(headers or {}) if checked is None else {**(headers or {}), SUBJECT: checked}
