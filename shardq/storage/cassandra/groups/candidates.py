"""Groups whose first slices may be taken, as their ready rows and lease rows tell."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shardq.storage.cassandra.groups.rows import decode_front, fronts_of
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import Place

__all__ = ["Candidate", "of_lease", "of_ready_row"]


class Candidate(msgspec.Struct, frozen=True):
    """A group, and what its ready row tells, if it has one.

    What that tells of the group is a hint: a client of before does not write it anew. A claim that was in vain reads
    the group. The data cannot be wrong, as a bundle never changes.
    """

    rank: tuple[int, int, bytes, int]
    group: bytes
    place: Place = (0, b"", 0)  # of the ready row, within its priority
    value: bytes = b""  # of the group, if it is short
    data: bytes | None = None  # of the bundle of the first slice, if it is small

    @property
    def priority(self) -> int:
        """That of the first slice."""
        return self.rank[0]

    @property
    def bundle_id(self) -> bytes:
        """The bundle of the first slice."""
        return self.rank[2]


def of_ready_row(
    priority: int, due: int, bundle_id: bytes, first: int, value: bytes, _written_at: int, data: bytes | None
) -> Candidate:
    """The group of a ready row."""
    front = decode_front(value)
    rank = (priority, front.due, bundle_id, first)
    return Candidate(rank, front.group, (due, bundle_id, first), front.value, data)


def of_lease(lapsed: LeaseRow) -> Iterator[Candidate]:
    """The groups of a lease row that is over."""
    for row_id, each in fronts_of(lapsed):
        yield Candidate((each.priority, lapsed.due, each.bundle_id, each.first), row_id)
