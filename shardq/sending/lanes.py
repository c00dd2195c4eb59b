"""Lanes: the parts of a group that may be worked on at once.

In a queue with ``group_concurrency`` N the messages of a group are spread over N lanes. For the store each of them is a
group of its own, in order, and all that is held of it is held by one claim. So at most N of a group are worked on at
once, and no store knows of it. The first lane has the group's name, as all groups of other queues do.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec

from shardq.outgoing_message import group_of, lane_of, stored_group
from shardq.sending.prepared import Send
from shardq.sharding.lane_turns import LaneTurns

__all__ = ["in_lanes", "lane_among", "lane_of_key"]


def in_lanes(sends: Sequence[Send], lanes: int, turns: LaneTurns) -> list[Send]:
    """The messages, one by one, with their lanes as groups.

    They follow each other round the lanes of their group. One with a key is always in the same lane, so that
    it is recognised when it is sent again. One that has an id was sent before, and its group names the lane.
    """
    return [_in_lane(each, lanes, turns) for send in sends for each in send.each()]


def lane_among(group: str, lanes: int) -> str:
    """The group of a moved message in a queue with so many lanes: its lane there is the remainder of the one before.

    So what was in one lane is in one lane there, and there are no more lanes than the queue has.
    """
    return stored_group(group_of(group) or "", lane_of(group) % lanes)


def lane_of_key(key: str, lanes: int) -> int:
    """The lane of a message with a key, whichever way it is sent."""
    return crc32(key.encode()) % lanes


def _in_lane(send: Send, lanes: int, turns: LaneTurns) -> Send:
    if not send.group or send.id is not None:
        return send
    key = send.unique_key or send.dedupe_key
    number = lane_of_key(key, lanes) if key else turns.next(send.group, lanes)
    return msgspec.structs.replace(send, group=stored_group(send.group, number))
