"""Sending dead letters back to the queue that they came from, and unblocking groups."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from shardq.base.callables import check_runs
from shardq.base.clock import microseconds
from shardq.base.codec import BYTES
from shardq.base.log import Log
from shardq.base.receipt import MessageId
from shardq.base.shard import DEAD_LETTER_SUFFIX, Shard
from shardq.core.browsing import blocked_slices, browse, held_stored, read_properties
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.counts import shard_states
from shardq.core.held import HeldSlice, Selection, SettleState
from shardq.core.receiving.receiving import Receiving
from shardq.core.selecting import MessageFilter, takes_blocked, takes_dead_letter
from shardq.core.sending.appending import REDRIVE, admit, too_large
from shardq.core.sending.planned_bundles import sizes
from shardq.core.settling.dead_letters import came_from, dead_letter_name, existing_dead_letters
from shardq.core.settling.engine import SettleEngine
from shardq.core.settling.leases import LeaseKeeper
from shardq.core.settling.moves import BackToSource, Unblock, unmarked
from shardq.core.settling.settle import release_uncounted
from shardq.errors import InvalidMessage, InvalidName, LeaseLost, QueueNotFound, ShardqError
from shardq.storage.writing import reporting_done

__all__ = ["redrive", "unblock"]

_log = Log(__name__)
REDRIVE_LEASE_SECONDS = 60.0
REDRIVE_BATCH = 1_000


def unblock(context: QueueContext, limit: int, wanted: MessageFilter | None = None) -> int:
    """Let up to ``limit`` blocked messages be delivered again, as new messages in their places; returns how many.

    Those of a group go together. Where they are large, the last ones go first, as the first one releases the messages
    behind it. A group in which something is damaged in the store blocks on, until that is removed. So does a group that
    is blocked by a message that is not ``wanted``.
    """
    engine = SettleEngine(context, BYTES, by_receipt=True)
    moved = 0
    with reporting_done(lambda: f"{moved} messages are delivered again: repeat the call" if moved else ""):
        for group in _by_group(context):
            if wanted is not None and not _takes_all(context, group, wanted):
                continue
            chosen = _first([(held, list(range(held.count))) for held in group], limit - moved)
            try:
                with suppress(LeaseLost):  # somebody else was first
                    engine.move(chosen, Unblock(context))
            finally:
                moved += sum(len(each.in_states(SettleState.RELEASED).positions) for each in chosen)
            if moved >= limit:
                break
    return moved


def _takes_all(context: QueueContext, group: Iterable[HeldSlice], wanted: MessageFilter) -> bool:
    return all(
        takes_blocked(wanted, context, held, position) for held in group for position in range(held.count)
    )


def _by_group(context: QueueContext) -> list[list[HeldSlice]]:
    """Return blocking messages, by group. A damaged message stays, so its group must stay blocked."""
    groups: dict[tuple[Shard, str], list[HeldSlice]] = {}
    damaged: set[tuple[Shard, str]] = set()
    for shard, piece in blocked_slices(context):
        group = shard, piece.bundle.group
        try:
            groups.setdefault(group, []).append(read_properties(held_stored(shard, piece)))
        except InvalidMessage as error:
            damaged.add(group)
            _log.error(
                "message %s blocks its group, and cannot be redriven: %s",
                MessageId(shard, piece.bundle.id, piece.first),
                error,
            )
    return [held for group, held in groups.items() if group not in damaged]


def redrive(
    target: QueueContext,
    limit: int,
    wanted: MessageFilter | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Move up to ``limit`` of a queue's dead letters back to it, as new messages; returns how many.

    Those that block their groups go first, each in its place. Each is moved as `forward` moves; after a crash,
    repeating it moves the rest. Dead letters of other queues are held until it ends, so that each is claimed once.
    Messages that were claimed and not moved are released at its end. Those that somebody else holds stay, which is
    logged. Damaged messages stay dead letters; messages that are removed meanwhile do not count. Raises QueuePaused.
    Raises MessageTooLarge at the end if some are above the queue's limit; they stay dead letters. Raises QueueNotFound
    for a dead-letter queue. Raises OutcomeUnknown when the store fails after some were moved.
    """
    if progress is not None:
        check_runs("progress", progress)
    admit(target, REDRIVE)
    moved, largest = unblock(target, limit, wanted), 0

    def done() -> str:
        return f"{moved} dead letters are moved: repeat the call for the others" if moved else ""

    with reporting_done(done), _counted(target, lambda: moved):
        source = existing_dead_letters(target)
        if source is None:
            if not moved:
                _check_is_source(target)
            return moved
        engine = SettleEngine(source, BYTES)
        with _claiming(source, engine) as claim_next:
            while moved < limit and (held := claim_next()):
                pieces = list(_readable(target, held, wanted))
                largest = max([largest, *(each.largest for each in pieces)])
                own = _first([(each.piece, each.fitting) for each in pieces], limit - moved)
                try:
                    with suppress(LeaseLost):  # somebody has removed them
                        engine.move(own, BackToSource(source, target))
                finally:
                    moved += sum(len(each.in_states(SettleState.FINISHED).positions) for each in own)
                if progress is not None:
                    progress(moved)
    if moved < limit:
        _report_held(source)
        if largest > target.settings.max_message_bytes:
            raise too_large(target, largest)
    return moved


def _report_held(source: QueueContext) -> None:
    """Log that dead letters stay which somebody else holds. An error of the store is none of the redrive."""
    with suppress(ShardqError):
        if held := sum(state.counts.in_flight for state in shard_states(source)):
            _log.warning(
                "%d dead letters in %s are held by another redrive or consumer, and stay: redrive again when it has "
                "ended or its leases have expired",
                held,
                source.name,
            )


def _check_is_source(target: QueueContext) -> None:
    """Raise QueueNotFound for a dead-letter queue, whose messages go back to another queue."""
    marked = None
    with suppress(InvalidMessage):  # one that is damaged
        marked = next((came_from(first.headers) for first in browse(target, BYTES, 1)), None)
    for name in (target.name.removesuffix(DEAD_LETTER_SUFFIX), marked):
        if name is not None and name != target.name:
            with suppress(QueueNotFound, InvalidName):
                settings = target.sibling(name).settings
                if dead_letter_name(name, settings) == target.name:
                    break
    else:
        return
    raise QueueNotFound(
        f"queue {target.name!r} has no dead-letter queue {dead_letter_name(target.name, target.settings)!r}: "
        f"`shardq redrive {name}` moves the messages of {target.name!r} back, as does `redrive` of the queue {name!r}"
    )


@contextmanager
def _counted(target: QueueContext, moved: Callable[[], int]) -> Iterator[None]:
    """Count what was moved in the block, whatever ends it."""
    try:
        yield
    finally:
        target.counters.add(redriven=moved())


@contextmanager
def _claiming(source: QueueContext, engine: SettleEngine) -> Iterator[Callable[[], list[HeldSlice]]]:
    """Return a function that claims the next dead letters at each call.

    They are held until the end, and released then.
    """
    receiving = Receiving(
        [source],
        ConsumerIdentity.make(f"redrive-{secrets.token_hex(4)}", microseconds(REDRIVE_LEASE_SECONDS)),
        visibility_timeout=REDRIVE_LEASE_SECONDS,
        limited=False,
    )
    claimed: list[HeldSlice] = []
    keeper = LeaseKeeper(engine, source.retry, lambda: microseconds(REDRIVE_LEASE_SECONDS))

    def claim_next() -> list[HeldSlice]:
        claimed[:] = [piece for piece in claimed if piece.open]
        held = receiving.fill(REDRIVE_BATCH, thorough=True)
        claimed.extend(held)
        keeper.keep(held)
        return held

    try:
        yield claim_next
    except BaseException:
        with suppress(ShardqError):  # what ended the redrive is what the caller has to know
            release_uncounted(source, claimed)
        raise
    else:
        release_uncounted(source, claimed)
    finally:
        keeper.stop()
        receiving.deregister()


def _first(pieces: Iterable[tuple[HeldSlice, list[int]]], limit: int) -> list[Selection]:
    """Select up to ``limit`` messages, in their order."""
    selections = []
    for held, positions in pieces:
        if chosen := positions[:limit]:
            selections.append(Selection(held, chosen))
            limit -= len(chosen)
    return selections


def _readable(
    target: QueueContext, held: Sequence[HeldSlice], wanted: MessageFilter | None
) -> Iterator[_DeadLetters]:
    for piece in held:
        try:
            yield _DeadLetters(target, piece, wanted)
        except InvalidMessage as error:
            _log.error("dead letter %s cannot be redriven: %s", piece.message_id(0), error)


class _DeadLetters:
    """Which dead letters of a held slice came from a queue and fit into it, and how large its largest one is there."""

    def __init__(self, target: QueueContext, piece: HeldSlice, wanted: MessageFilter | None) -> None:
        self.piece = piece
        headers = piece.messages.headers or [None] * piece.count
        own = [
            position
            for position in range(piece.count)
            if came_from(headers[position]) == target.name
            and (wanted is None or takes_dead_letter(wanted, piece, position))
        ]
        size = sizes(unmarked(piece.messages))
        limit = target.settings.max_message_bytes
        self.fitting = [position for position in own if size[position] <= limit]
        self.largest = max((size[position] for position in own), default=0)
