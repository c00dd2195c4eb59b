"""Sending dead letters and processed messages on their way again."""

from __future__ import annotations

import secrets
from contextlib import suppress

import msgspec

from shardq.browsing import history_slices
from shardq.codec import BYTES
from shardq.context.queue_context import QueueContext
from shardq.errors import ShardqError
from shardq.held import HeldSlice, Pick
from shardq.receiving.claiming import Receiving
from shardq.sending.admission import check_sizes, check_takes_messages, sizes
from shardq.sending.outgoing import too_large
from shardq.settling.dead_letters import came_from, dead_letter_context
from shardq.settling.moves import BackToSource, unmarked
from shardq.settling.settlement import Settlement
from shardq.storage.bundle_data import decode_bundle, encode_bundle
from shardq.storage.bundle_id import derive_bundle_id
from shardq.storage.requests import Append, Bundle

__all__ = ["redrive", "replay"]

REDRIVE_LEASE_SECONDS = 60.0
REDRIVE_BATCH = 1_000


def redrive(target: QueueContext, limit: int) -> int:
    """Move up to so many of a queue's dead letters back to it, as new messages; returns how many.

    Each is moved as `forward` moves; after a crash, repeating it moves the rest. What it claimed and did not move is
    given back, whatever stopped it. Raises QueuePaused; MessageTooLarge
    when all others were moved and some are above the queue's limit by now, which stay dead letters.
    """
    check_takes_messages(target)
    source = dead_letter_context(target)
    receiving = Receiving(source, f"redrive-{secrets.token_hex(4)}", visibility_timeout=REDRIVE_LEASE_SECONDS)
    settlement = Settlement(source, BYTES)
    moved = largest = 0
    claimed: list[HeldSlice] = []
    try:
        while moved < limit:
            held = receiving.fill(min(REDRIVE_BATCH, limit - moved), thorough=True)
            if not held:
                break
            claimed += held
            letters = [_Letters(target, piece) for piece in held]
            own = [Pick(piece, each.fitting) for piece, each in zip(held, letters, strict=True)]
            largest = max(largest, *(each.largest for each in letters))
            settlement.move(own, BackToSource(source, target))
            moved += sum(len(pick.positions) for pick in own)
            claimed = [piece for piece in claimed if piece.open]
    except BaseException:
        with suppress(ShardqError):  # what ended the redrive is what the caller has to know
            _give_back(settlement, claimed)
        raise
    else:
        _give_back(settlement, claimed)
    finally:
        receiving.resign()
    if largest > target.settings.max_message_bytes:
        raise too_large(largest, target.settings.max_message_bytes, target.name)
    return moved


def replay(source: QueueContext, target: QueueContext, since: int, until: int) -> int:
    """Send copies of processed messages to a queue; returns how many.

    Raises QueuePaused or MessageTooLarge; the copies that were sent before stay sent.
    """
    run = secrets.token_hex(8)
    sent = 0
    check_takes_messages(target)
    for _, piece in history_slices(source, since, until):
        now = target.store.now()
        messages = decode_bundle(piece.bundle.data).slice(piece.first, piece.count)
        check_takes_messages(target)
        check_sizes(target, messages)
        data = encode_bundle(msgspec.structs.replace(messages, move_key=None))
        identity = derive_bundle_id(piece.bundle.id, "replay", run, str(piece.first), str(piece.due))
        shard = target.placement.choose(target.settings.layout, now, piece.count)
        bundle = Bundle(identity, piece.bundle.priority, now, now, piece.count, data)
        target.retry(target.store.append, Append(shard, (bundle,)))
        target.counters.add(sent=piece.count)
        sent += piece.count
    return sent


class _Letters:
    """Which dead letters of a held slice came from a queue and fit into it, and how large its largest one is there."""

    def __init__(self, target: QueueContext, piece: HeldSlice) -> None:
        headers = piece.messages.headers or [None] * piece.count
        own = [position for position in range(piece.count) if came_from(headers[position]) == target.name]
        size = sizes(unmarked(piece.messages))
        limit = target.settings.max_message_bytes
        self.fitting = [position for position in own if size[position] <= limit]
        self.largest = max((size[position] for position in own), default=0)


def _give_back(settlement: Settlement, claimed: list[HeldSlice]) -> None:
    settlement.release([piece.pick() for piece in claimed], 0.0, started=False)
