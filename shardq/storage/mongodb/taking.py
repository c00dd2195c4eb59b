"""The statements by which a claim takes what it has chosen, each on the condition that it is as it was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shardq.storage.mongodb.changing import condition, setting
from shardq.storage.mongodb.documents import (
    COUNT,
    COUNTED,
    DELIVERIES,
    DUE,
    HISTORY,
    SLICES,
    TOKEN,
    UNSTARTED,
    Document,
    Row,
    Slice,
    state_of,
)
from shardq.storage.mongodb.repeated_claims import held_under
from shardq.storage.mongodb.shard_rows import ShardRows, Statement
from shardq.storage.mongodb.slicing import Piece
from shardq.storage.requests import Claim

__all__ = ["hold_again", "statements_of"]


def hold_again(rows: ShardRows, held: list[Row], request: Claim, until: int) -> list[Row]:
    """Give the token's messages a fresh lease."""
    changes = []
    for row in held:
        slices = tuple(
            msgspec.structs.replace(each, due=until) if each.token == request.token else each
            for each in row.slices
        )
        changes.append(_statement(row, slices))
    if rows.change(changes) < len(held):
        held = held_under(rows, request.token)
    return held


def statements_of(pieces: Sequence[Piece], request: Claim, now: int) -> Iterator[Statement]:
    """Join bundles that are alike into one statement; each is changed only if it is as it was seen."""
    until = now + request.lease
    by_row: dict[bytes, list[Piece]] = {}
    for piece in pieces:
        by_row.setdefault(piece.row.id, []).append(piece)
    alike: dict[tuple[int, int], list[bytes]] = {}
    for taken in by_row.values():
        row = taken[0].row
        if row.is_whole and taken[0].slice == row.slices[0]:
            alike.setdefault((row.raw[DELIVERIES], row.count), []).append(row.id)
        else:
            yield _statement(row, _after(row, taken, request, until))
    for (deliveries, count), ids in alike.items():
        seen = {DUE: {"$lte": now}, DELIVERIES: deliveries, COUNT: count, SLICES: None, HISTORY: None}
        held = {DUE: until, DELIVERIES: deliveries + request.started, COUNTED: -count, TOKEN: request.token}
        started: Document = {"$set": held, "$unset": {UNSTARTED: 1}}
        update = started if request.started else {"$set": held | {UNSTARTED: True}}
        yield Statement({"_id": {"$in": ids}} | seen, update)


def _after(row: Row, taken: Sequence[Piece], request: Claim, until: int) -> tuple[Slice, ...]:
    """Return the bundle's slices after the claim."""
    ends = {piece.slice.first: piece.slice.end for piece in taken}
    slices: list[Slice] = []
    for each in row.slices:
        end = ends.get(each.first, each.first)
        if end > each.first:
            counted = each.deliveries + request.started
            held = Slice(each.first, end - each.first, until, counted, request.token, not request.started)
            slices.append(held)
        if end < each.end:
            slices.append(each.part(end, each.end))
    return tuple(slices)


def _statement(row: Row, slices: tuple[Slice, ...]) -> Statement:
    state = state_of(row.count, slices, row.kept)
    return Statement({"_id": row.id} | condition(row), setting(row, state))
