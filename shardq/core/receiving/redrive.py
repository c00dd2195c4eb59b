"""Sending dead letters back to the queue that they came from."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from shardq.base.clock import microseconds
from shardq.codec import BYTES
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.receiving.receiving import Receiving
from shardq.core.receiving.unblocking import unblock
from shardq.core.sending.doors import REDRIVE, admit, too_large
from shardq.core.sending.planned_bundles import sizes
from shardq.core.settling.dead_letters import came_from, existing_dead_letters
from shardq.core.settling.lease_keeper import LeaseKeeper
from shardq.core.settling.moves import BackToSource, unmarked
from shardq.core.settling.settle import give_back_unseen
from shardq.core.settling.settlement import Settlement
from shardq.errors import InvalidMessage, LeaseLost, ShardqError
from shardq.held import HeldSlice, Selection, SettleState
from shardq.storage.writing import telling_done

__all__ = ["redrive"]

_log = logging.getLogger(__name__)

REDRIVE_LEASE_SECONDS = 60.0
REDRIVE_BATCH = 1_000


def redrive(target: QueueContext, limit: int) -> int:
    """Move up to so many of a queue's dead letters back to it, as new messages; returns how many.

    Those that block their groups go first, each in its place. Each is moved as `forward` moves; after a crash,
    repeating it moves the rest. Dead letters of other queues are held until it ends, so that each is claimed once.
    What was claimed and not moved is given back, whatever stopped it. What is damaged in the store stays a dead letter;
    what somebody removes meanwhile does not count. Raises QueuePaused. Raises MessageTooLarge at the end if some are
    above the queue's limit; they stay dead letters. Raises OutcomeUnknown when the store fails after some were moved.
    """
    admit(target, REDRIVE)
    moved, largest = unblock(target, limit), 0

    def done() -> str:
        return f"{moved} dead letters are moved: repeat the call for the others" if moved else ""

    with telling_done(done):
        source = existing_dead_letters(target)
        if source is None:
            return moved
        settlement = Settlement(source, BYTES)
        with _holding(source, settlement) as hold:
            while moved < limit and (held := hold()):
                letters = list(_readable(target, held))
                largest = max([largest, *(each.largest for each in letters)])
                own = _first(letters, limit - moved)
                try:
                    with suppress(LeaseLost):  # somebody has removed them
                        settlement.move(own, BackToSource(source, target))
                finally:
                    moved += sum(len(each.in_states(SettleState.FINISHED).positions) for each in own)
    if moved < limit and largest > target.settings.max_message_bytes:
        raise too_large(target, largest)
    return moved


@contextmanager
def _holding(source: QueueContext, settlement: Settlement) -> Iterator[Callable[[], list[HeldSlice]]]:
    """What claims dead letters, the next ones at each call, and holds them until the end. Gives back what is open."""
    receiving = Receiving(
        [source],
        ConsumerIdentity.make(f"redrive-{secrets.token_hex(4)}", microseconds(REDRIVE_LEASE_SECONDS)),
        visibility_timeout=REDRIVE_LEASE_SECONDS,
        limited=False,
    )
    claimed: list[HeldSlice] = []
    keeper = LeaseKeeper(settlement, source.retry, lambda: microseconds(REDRIVE_LEASE_SECONDS))

    def hold() -> list[HeldSlice]:
        claimed[:] = [piece for piece in claimed if piece.open]
        held = receiving.fill(REDRIVE_BATCH, thorough=True)
        claimed.extend(held)
        keeper.keep(held)
        return held

    try:
        yield hold
    except BaseException:
        with suppress(ShardqError):  # what ended the redrive is what the caller has to know
            give_back_unseen(source, claimed)
        raise
    else:
        give_back_unseen(source, claimed)
    finally:
        keeper.stop()
        receiving.resign()


def _first(letters: Sequence[_Letters], limit: int) -> list[Selection]:
    """Up to so many of the letters that fit, in their order."""
    selections = []
    for each in letters:
        selections.append(Selection(each.piece, each.fitting[:limit]))
        limit -= len(selections[-1].positions)
    return selections


def _readable(target: QueueContext, held: Sequence[HeldSlice]) -> Iterator[_Letters]:
    for piece in held:
        try:
            yield _Letters(target, piece)
        except InvalidMessage as error:
            _log.error("dead letter %s cannot be redriven: %s", piece.message_id(0), error)


class _Letters:
    """Which dead letters of a held slice came from a queue and fit into it, and how large its largest one is there."""

    def __init__(self, target: QueueContext, piece: HeldSlice) -> None:
        self.piece = piece
        headers = piece.messages.headers or [None] * piece.count
        own = [position for position in range(piece.count) if came_from(headers[position]) == target.name]
        size = sizes(unmarked(piece.messages))
        limit = target.settings.max_message_bytes
        self.fitting = [position for position in own if size[position] <= limit]
        self.largest = max((size[position] for position in own), default=0)
