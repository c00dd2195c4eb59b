"""The rows of a shard's wide row, as values. Their kinds are described in ``schema/cassandra/``."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from shardq.storage.requests import Bundle

__all__ = [
    "BEHIND",
    "BUNDLE",
    "CONTROL",
    "DUE_INDEX",
    "DUE_WATERMARK",
    "GROUP",
    "HISTORY",
    "HISTORY_WATERMARK",
    "LEASE",
    "MOVE",
    "READY",
    "SOON",
    "BundleRow",
    "Control",
    "ControlRow",
    "CursorPosition",
    "Head",
    "HistoryRow",
    "Kept",
    "Key",
    "Ready",
    "Slice",
    "Tally",
    "control_row",
    "decode_carried",
    "decode_control",
    "decode_head",
    "decode_kept",
    "decode_move",
    "decode_ready",
    "decode_tally",
    "due_row_of",
    "encode",
    "has_due_row",
    "id_time",
]

# Due, bundle id, position: where a ready row is within its priority.
CursorPosition: TypeAlias = tuple[int, bytes, int]

CONTROL, LEASE, READY, BUNDLE, HISTORY, DUE_INDEX, MOVE, GROUP, BEHIND = range(9)
# Among a shard's low watermarks; those before are of the priorities.
DUE_WATERMARK, HISTORY_WATERMARK = 10, 11
SOON = 50_000  # a bundle that is due so soon after it was made is looked for among the ready ones, without a due row


class Key(NamedTuple):
    """The clustering key of a row."""

    kind: int
    priority: int
    due: int
    id: bytes
    first: int


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """Messages ``first`` .. ``first + count - 1`` of a bundle of ``total``."""

    bundle_id: bytes
    first: int
    count: int
    deliveries: int
    priority: int
    total: int
    enqueued_at: int
    due: int  # of the bundle
    inline: bool = False  # the bundle has no separate row, see `bodies.is_inline`
    unstarted: bool = False  # held: not counted yet; released: it takes its place in the order again
    expires_at: int | None = None  # of the bundle
    size: int = 0  # of the bundle's data, in bytes; sends of older clients have none

    @property
    def share(self) -> int:
        """The bytes of the bundle's data that these messages have."""
        return self.size * self.count // self.total

    @property
    def end(self) -> int:
        """The position after its last message."""
        return self.first + self.count

    def part(self, first: int, end: int) -> Slice:
        """Return the messages between two positions that lie within it."""
        if (first, end) == (self.first, self.end):
            return self
        return msgspec.structs.replace(self, first=first, count=end - first)

    def bundle(self, data: bytes) -> Bundle:
        """Return the bundle that the slice is of, with its data."""
        sent = (self.priority, self.due, self.enqueued_at, self.total)
        return Bundle(self.bundle_id, *sent, data, self.expires_at)


class _ReadyValue(msgspec.Struct, frozen=True, array_like=True):
    count: int
    total: int
    enqueued_at: int
    expires_at: int | None = None
    size: int = 0


class Ready(msgspec.Struct, frozen=True):
    """A slice that is not claimed yet."""

    key: Key
    count: int
    total: int
    enqueued_at: int
    seen: bytes | None = None
    written_at: int = 0
    data: bytes | None = None  # of an inline bundle
    expires_at: int | None = None
    size: int = 0  # of the bundle's data

    @property
    def place(self) -> tuple[int, int, bytes, int]:
        """The order of claims."""
        return self.key[1:]

    @property
    def slice(self) -> Slice:
        """The slice before its first delivery."""
        return Slice(
            self.key.id,
            self.key.first,
            self.count,
            0,
            self.key.priority,
            self.total,
            self.enqueued_at,
            self.key.due,
            self.data is not None,
            expires_at=self.expires_at,
            size=self.size,
        )

    @property
    def value(self) -> bytes:
        """The value that is stored."""
        return encode(_ReadyValue(self.count, self.total, self.enqueued_at, self.expires_at, self.size))

    def part(self, first: int, end: int) -> Ready:
        """Return the messages between two positions that lie within it."""
        if (first, end - first) == (self.key.first, self.count):
            return self
        return msgspec.structs.replace(self, key=self.key._replace(first=first), count=end - first, seen=None)


class Head(msgspec.Struct, frozen=True, array_like=True):
    """A bundle without its data."""

    priority: int
    due: int
    enqueued_at: int
    count: int
    expires_at: int | None = None
    group: str = ""
    place: int = 0  # of its first message among those of the group, when it was sent

    @classmethod
    def of(cls, bundle: Bundle, place: int = 0) -> Head:
        """Make the head of a bundle."""
        sent = (bundle.priority, bundle.due, bundle.enqueued_at, bundle.count)
        return cls(*sent, bundle.expires_at, bundle.group, place)

    def bundle(self, bundle_id: bytes, data: bytes) -> Bundle:
        """Return the bundle."""
        sent = (self.priority, self.due, self.enqueued_at, self.count)
        return Bundle(bundle_id, *sent, data, self.expires_at, self.group)


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a bundle that are kept as processed."""

    processed_at: int
    first: int
    count: int
    deliveries: int

    @property
    def end(self) -> int:
        """The position after its last message."""
        return self.first + self.count


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """How many messages of a bundle are neither finished nor given up, and which of them are processed."""

    left: int
    kept: tuple[Kept, ...] = ()


class Control(msgspec.Struct, frozen=True, array_like=True):
    """The notices of a shard's clients to each other: low watermarks, and late messages."""

    watermarks: tuple[int, ...] = (0,) * 12
    """Before them no ready row of priority 0 .. 9 is due, no due row of a lease row, and nothing kept was processed."""
    late: int = 0  # changes with everything that comes where clients may have read already
    within: tuple[
        tuple[bytes, int], ...
    ] = ()  # bundle and position from where on the low watermarks of priorities are

    @property
    def places(self) -> tuple[CursorPosition, ...]:
        """The low watermarks of the priorities, as full places."""
        within = self.within or ((b"", 0),) * DUE_WATERMARK
        return tuple([(due, *rest) for due, rest in zip(self.watermarks, within, strict=False)])


class ControlRow(msgspec.Struct, frozen=True):
    """The control row; its defaults are those of a shard that was never claimed from."""

    control: Control = Control()
    seen: bytes | None = None
    taken: bytes | None = None  # changes whenever ready rows are taken
    turn_at: int = 0  # every later conditional write has a later time than this
    taken_at: int = 0  # when ready rows were last taken


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_ready = msgspec.msgpack.Decoder(_ReadyValue).decode
decode_head = msgspec.msgpack.Decoder(Head).decode
decode_kept = msgspec.msgpack.Decoder(Kept).decode
decode_tally = msgspec.msgpack.Decoder(Tally).decode
decode_carried = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
decode_move = msgspec.msgpack.Decoder(int).decode
decode_control = msgspec.msgpack.Decoder(Control).decode


def id_time(bundle_id: bytes) -> int:
    """Return when a bundle's id was made: its first 48 bits are milliseconds."""
    return int.from_bytes(bundle_id[:6], "big") * 1000


def has_due_row(due: int, bundle_id: bytes) -> bool:
    """Return whether the bundle was delayed when it was made. It follows from the bundle alone."""
    return due > id_time(bundle_id) + SOON


def due_row_of(due: int, bundle_id: bytes) -> Key:
    """Return the key at which a delayed bundle is found by its due time."""
    return Key(DUE_INDEX, 1, due, bundle_id, 0)


class BundleRow(msgspec.Struct, frozen=True):
    """A bundle as it is stored."""

    id: bytes
    head: Head
    tally: Tally
    seen_head: bytes
    seen_tally: bytes | None
    data: bytes = b""

    @property
    def bundle(self) -> Bundle:
        """The bundle as it was sent."""
        return self.head.bundle(self.id, self.data)


class HistoryRow(msgspec.Struct, frozen=True):
    """A slice that is kept as processed."""

    key: Key
    kept: Kept


def control_row(
    value: bytes | None, taken: bytes | None, taken_at: int | None, _turn: bytes | None, turn_at: int | None
) -> ControlRow:
    """Return the control row of its columns."""
    control = decode_control(value) if value else Control()
    return ControlRow(control, value, taken, turn_at or 0, taken_at or 0)
