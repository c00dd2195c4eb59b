"""What must hold in a shard of groups, after every request.

The last byte of a bundle's id is its number. Its tens are the group, and the numbers of a group are in the order of the
sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardq.storage.cassandra.groups.rows import Group, decode_behind, decode_group, leases_of, rows_of
from shardq.storage.cassandra.rows import BEHIND, BUNDLE, DUE_INDEX, GROUP, LEASE, READY, Slice
from shardq.storage.requests import Claim, Span
from tests.model.modelled_table import Key, Row
from tests.model.places import Message, Place, Violation, replace

__all__ = ["allows", "check", "messages"]

_INDEXES = (READY, LEASE, DUE_INDEX)


def messages(partition: Mapping[Key, Row]) -> Iterator[tuple[Message, Place]]:
    """Where each message is that the groups name."""
    for group in _groups(partition):
        for number, each in enumerate(group.members):
            state, holder = ("held", group.token) if number < group.held else ("ready", b"")
            yield from _located(partition, each.slice, Place(state, holder, each.due, each.slice.deliveries))
    for key, row in partition.items():
        if key[0] == BEHIND and row.exists:
            for one in decode_behind(row.value("value")):
                yield from _located(partition, one, Place("ready", b"", one.due, one.deliveries))


def check(partition: Mapping[Key, Row]) -> None:
    """Raise Violation unless each group is in the order of its sends, and found by its first message alone."""
    expected: dict[Any, bytes] = {}
    for lease in leases_of(_groups(partition)):
        expected |= {lease.key: lease.value, lease.due_row: b""}
    for group in _groups(partition):
        expected |= rows_of(group)
        order = [(each.slice.bundle_id[-1], each.slice.first) for each in group.members]
        if order != sorted(set(order)):
            raise Violation(f"group {group.name} is out of order: {order}")
    found = {key: row.value("value") for key, row in partition.items() if key[0] in _INDEXES and row.exists}
    if found != expected:
        differs = dict(found.items() ^ expected.items())
        raise Violation(f"the indexes of groups are not as the groups are: {sorted(differs)}")


def allows(
    method: str,
    request: Any,
    before: Mapping[Message, Place],
    message: Message,
    now: Place | None,
    latest: int,
) -> bool:
    """Tell whether a call may move a message there."""
    was = before[message]
    if method == "claim":
        return now is not None and _may_claim(request, before, message, now, latest)
    if was.state != "held" or was.holder not in {span.token for span in request.spans}:
        return False
    named = any(_names(span, message, was.holder) for span in request.spans)
    if method == "acknowledge":
        return named and now is None
    if now is None:
        return False
    if method == "extend":
        return named and replace(now, due=was.due) == was
    back = was.deliveries - (not named)  # what is held behind is given back uncounted
    return method == "release" and (now.state, now.deliveries) == ("ready", back)


def _may_claim(
    request: Claim, before: Mapping[Message, Place], message: Message, now: Place, latest: int
) -> bool:
    was = before[message]
    if was.holder == request.token:
        return replace(now, due=was.due) == was
    if was.state == "held" and _front_of(before, message).due > latest:
        return False
    if now.state == "held":
        may = was.state == "held" or was.due <= latest
        return may and now.holder == request.token and now.deliveries == was.deliveries + 1
    return was.state == "held" and now.deliveries == was.deliveries  # behind what was taken over


def _front_of(before: Mapping[Message, Place], message: Message) -> Place:
    """The first message of the same group, where the lease counts."""
    same = [each for each in before if each[0][-1] // 10 == message[0][-1] // 10]
    return before[min(same, key=lambda each: (each[0][-1], each[1]))]


def _names(span: Span, message: Message, holder: bytes) -> bool:
    bundle_id, position = message
    return (span.bundle_id, span.token) == (bundle_id, holder) and 0 <= position - span.first < span.count


def _groups(partition: Mapping[Key, Row]) -> Iterator[Group]:
    for key, row in partition.items():
        if key[0] == GROUP and row.exists:
            yield decode_group(row.value("value"))


def _located(partition: Mapping[Key, Row], one: Slice, place: Place) -> Iterator[tuple[Message, Place]]:
    if not partition.get((BUNDLE, 0, 0, one.bundle_id, 0), Row()).value("value"):
        raise Violation(f"the bundle {one.bundle_id.hex()} is lost")
    for position in range(one.first, one.end):
        yield (one.bundle_id, position), place
