"""Permits of one limit: messages of one shard, each in a bundle that has always the same id.

The first 16 permits are bundles of their own. Each further bundle holds as many permits as there are before it. Thus
many permits are few rows, and a changed number of permits never needs another cut.

These rules keep the number of permits that are held within the limit:

- **A permit always has the same id.** However often and by whatever client the permits are made, each exists once, as
  a store holds a bundle once. A store also remembers removed messages for 15 minutes. So a permit that is removed
  while it is held is made again only when its lease has expired.
- **A released permit has its old place again**, which is long ago. So it is free at once, though the clock was ahead
  at its release. The token of a claim has its moment. A caller that finds no permit shortens the lease of a claim that
  lies in the future. It then lasts as long from now as it was claimed for.
- **A permit that a hint hides is found.** A caller that finds no permit probes their shard without hints, every ten
  seconds at most. This finds the permits of a client that was killed within a release.
- **Only permits with a number below the limit are used.** Others, which were made under a higher limit, are put aside
  for some seconds by the client that claims them. A permit is never finished, so that a limit can be raised again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.base.clock import seconds
from shardq.base.log import Log
from shardq.base.outgoing_message import Bundle
from shardq.base.shard import INTERNAL, Shard, check_queue_name
from shardq.core.browsing import slices
from shardq.core.context.counters import MutableCounters
from shardq.core.context.identity import ConsumerIdentity, moment_in
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Retry, claim_patiently
from shardq.core.held import HeldSlice, count_of, first_of
from shardq.core.sending.appending import PERMIT, append
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.core.settings import QueueSettings
from shardq.core.settling.leases import JUMP, shorten_leases
from shardq.core.settling.operations import EXTEND, HOLD, RETURN
from shardq.core.settling.settle import SettleRun
from shardq.storage.bundles import BundleData, encode_bundle, repeatable_bundle_id
from shardq.storage.requests import Claim, Peek, QueueRecord, StoredSlice
from shardq.storage.store import Store
from shardq.storage.writing import reporting_done

__all__ = [
    "MOST_PERMITS",
    "PERMITS_FOLDER",
    "Block",
    "Blocks",
    "Permits",
    "blocks_of",
    "create_permits_queue",
    "permits_queue",
]

_log = Log(__name__)

MOST_PERMITS = 1_024
_SINGLES = 16
_MOMENT = 1_767_225_600_000_000  # of all permits: their ids differ by the number of their first permit
_DUE = 946_684_800_000_000  # of all permits: long ago
PERMITS_FOLDER = f"{INTERNAL}permits/"
"""Where the queues of permits are, under the names of their limits. They are listed as all of shardq's own queues."""
_ASIDE = 5_000_000  # microseconds for which a permit that is beyond the limit is put aside
_MADE_AGAIN = 10_000_000  # until permits are made again where none is free: somebody may have removed them
_CLAIMS = 3  # at most, to find permits behind those that are beyond the limit
_PATIENCE = 1.0  # seconds for which releasing is repeated: permits come back automatically
_PAGE = 2 * MOST_PERMITS
_LONGEST = 11 * 86_400_000_000  # microseconds for which a permit is held: longer than a message can be


class Block(msgspec.Struct, frozen=True):
    """Permits ``first`` .. ``first + count - 1``, which are one bundle."""

    first: int
    count: int


def blocks_of(permits: int) -> list[Block]:
    """Return the blocks that hold this number of permits. The last one may hold more."""
    blocks: list[Block] = []
    first = 0
    while first < permits:
        blocks.append(Block(first, 1 if first < _SINGLES else first))
        first += blocks[-1].count
    return blocks


class Blocks:
    """The bundles of the permits of one queue. Another ``kind`` of permits has other bundles."""

    def __init__(self, queue: str, kind: str = "") -> None:
        self._queue, self._kind = queue, kind
        self._firsts = {self._id(block): block.first for block in blocks_of(MOST_PERMITS)}

    def bundles(self, permits: int) -> list[Bundle]:
        """Return the bundles that hold this number of permits. They are equal for all clients, as a store may need."""
        return [
            Bundle(self._id(block), 0, _DUE, _DUE, block.count, encode_bundle(BundleData(_bodies(block))))
            for block in blocks_of(permits)
        ]

    def number(self, bundle_id: bytes, position: int) -> int:
        """Return the number of the permit that a message is, or one beyond all permits if it is none."""
        return self._firsts.get(bundle_id, MOST_PERMITS) + position

    def _id(self, block: Block) -> bytes:
        return repeatable_bundle_id(_MOMENT, block.first, "permits", self._queue, self._kind)


def _bodies(block: Block) -> list[bytes]:
    return [b"%d" % number for number in range(block.first, block.first + block.count)]


def permits_queue(limit: str) -> str:
    """Return the queue of a limit's permits. Raises InvalidName."""
    return check_queue_name(PERMITS_FOLDER + check_queue_name(limit))


def create_permits_queue(store: Store, retry: Retry, limit: str, settings: QueueSettings) -> bool:
    """Create the queue of a limit's permits if it is missing: one shard, and no dead letters; True when it was."""
    name = permits_queue(limit)
    plain = settings.change({"shards": 1, "time_shards": 1, "max_deliveries": None})
    created = retry(store.create_queue, QueueRecord.new(name, plain.encode()))
    with reporting_done(lambda: f"queue {name!r} is created: repeat the call" if created else ""):
        retry(store.create_shards, plain.layout.all_shards(name))
    return created


class Permits:
    """The permits of one limit, for one user of them. Safe for threads.

    ``context`` is that of their queue. Permits of another ``kind`` in the same queue are others.
    """

    def __init__(self, context: QueueContext, owner: ConsumerIdentity, kind: str = "") -> None:
        # Operations on permits do not count as operations on messages.
        self._context = msgspec.structs.replace(context, counters=MutableCounters(), hooks=None)
        self._owner, self._blocks = owner, Blocks(context.name, kind)
        self.queue = context.name
        self.limit = context.name.removeprefix(PERMITS_FOLDER)
        self._shard = Shard(context.name, 0, 0)
        self._made, self._made_at = 0, -(10**18)

    def take(self, count: int, limit: int, lease: int, period: int | None = None) -> list[HeldSlice]:
        """Claim up to ``count`` of the permits below a limit, for ``lease`` microseconds; makes those that are missing.

        ``period`` is for how long they are held once they are used, if that is not the lease. Raises QueueNotFound when
        their queue does not exist.
        """
        taken = self._find(count, limit, lease)
        missing = count - count_of(taken)
        if missing and self._is_time_to_make(limit, urgent=not taken):
            made = self.make(limit, period or lease)
            if made or (not taken and self._offers_one()):
                taken += self._find(missing, limit, lease)
        return taken

    def make(self, limit: int, usual: int | None = None) -> bool:
        """Store the permits below the limit that are missing; False if there are none.

        ``usual`` is for how many microseconds they are held in general; None: a lease that was shortened before is not
        shortened again. Raises QueueNotFound when their queue does not exist.
        """
        now = self._context.store.now()
        found = list(slices(self._context, Peek(self._shard, _PAGE, bodies=False)))
        known = {piece.bundle.id for piece in found}
        shorten_leases(
            self._context, [(self._shard, piece) for piece in found], lambda piece: _lasted(piece, now, usual)
        )
        missing = [bundle for bundle in self._blocks.bundles(limit) if bundle.id not in known]
        if missing:
            append(self._context, PERMIT, [PlannedBundle.of(self._shard, bundle) for bundle in missing])
        self._made, self._made_at = limit, now
        return bool(missing)

    def release(self, held: Sequence[HeldSlice], delay: int = 0) -> int:
        """Release permits, to be taken again after a delay; returns how many another holder has by now.

        Permits that cannot be released come back when their lease expires.
        """
        with self._context.retry.within(_PATIENCE):
            settling = SettleRun(self._context, RETURN, duration=delay).run(
                [piece.select() for piece in held]
            )
        if settling.failures:
            error = settling.failures.error(f"permits of {self._context.name!r} were not released")
            _log.warning("they come back when their lease expires: %s", error)
        return settling.lost_count

    def spend(self, held: Sequence[HeldSlice], period: int) -> int:
        """Let permits come back ``period`` microseconds from now; returns how many come back then, or later.

        They stay held, so that it is known since when.
        """
        until = self._context.store.now() + period
        with self._context.retry.within(_PATIENCE):
            settling = SettleRun(self._context, EXTEND, duration=period).run(
                [piece.select() for piece in held]
            )
        if not settling.failures:
            return settling.done_count
        error = settling.failures.error(f"permits of {self._context.name!r} were not extended")
        _log.warning("they come back when their lease expires: %s", error)
        return count_of([piece for piece in held if piece.lease_until >= until])

    def hold(self, held: Sequence[HeldSlice], lease: int) -> int:
        """Hold permits for ``lease`` microseconds from now, or longer; returns how many are lost.

        Raises the error of the store.
        """
        until = self._context.store.now() + lease
        settling = SettleRun(self._context, HOLD, duration=lease).run([piece.select() for piece in held])
        for selection in settling.done:
            selection.held.lease_until = max(until, selection.held.lease_until)
        if settling.failures:
            raise settling.failures.error(f"permits of {self._context.name!r} were not extended")
        return settling.lost_count

    def now(self) -> int:
        """Return the time of the store."""
        return self._context.store.now()

    def held(self) -> int:
        """Count the permits that are held now."""
        return self._context.retry(self._context.store.count, self._shard).in_flight

    def seconds_until_free(self) -> float | None:
        """Return the seconds until a permit comes back automatically.

        0 if one is free now, None if none is known to come back.
        """
        (probe,) = self._context.retry(self._context.store.probe, [self._shard])
        if probe.priority is not None:
            return 0.0
        return None if probe.next_due is None else seconds(max(0, probe.next_due - self._context.store.now()))

    @property
    def signals(self) -> bool:
        """True when a signal reports each release of a permit, in any process."""
        return self._context.store.capabilities.signals

    def _find(self, count: int, limit: int, lease: int) -> list[HeldSlice]:
        """Claim permits; put aside those that are beyond the limit, and look on when there were such."""
        taken: list[HeldSlice] = []
        wanted = missing = count
        for _ in range(_CLAIMS):
            below, beyond = self._sorted(self._claim(wanted, lease), limit)
            found, surplus = first_of(below, missing)
            taken += found
            missing -= count_of(found)
            if beyond:
                self.release(beyond, _ASIDE)
            if surplus:
                self.release(surplus)
            if not missing or not beyond:
                break
            wanted = missing if taken else MOST_PERMITS
        return taken

    def _claim(self, count: int, lease: int) -> list[HeldSlice]:
        token = self._owner.token(self.now())
        request = Claim(self._shard, token, count, lease, self._owner.name, started=False)
        claimed = claim_patiently(self._context.retry, self._context.store, request)
        return [
            HeldSlice(self._shard, piece, token, claimed.lease_until, started=False)
            for piece in claimed.slices
        ]

    def _sorted(self, claimed: Sequence[HeldSlice], limit: int) -> tuple[list[HeldSlice], list[HeldSlice]]:
        """Sort out the permits that are below the limit, and the others."""
        below: list[HeldSlice] = []
        beyond: list[HeldSlice] = []
        for piece in claimed:
            first = self._blocks.number(piece.bundle.id, piece.first)
            count = max(0, min(piece.count, limit - first))
            if count:
                below.append(piece.part(0, count))
            if count < piece.count:
                beyond.append(piece.part(count, piece.count - count))
        return below, beyond

    def _offers_one(self) -> bool:
        """Return whether a permit is free, by a probe without hints: no consumer probes the queue of permits so."""
        (probe,) = self._context.retry(self._context.store.probe, [self._shard], deep=True)
        return probe.priority is not None

    def _is_time_to_make(self, limit: int, *, urgent: bool) -> bool:
        """Return whether this client has not made this number yet.

        When it is urgent, again unless it did so a moment ago.
        """
        now = self._context.store.now()
        return limit > self._made or (urgent and not self._made_at <= now < self._made_at + _MADE_AGAIN)


def _lasted(piece: StoredSlice, now: int, usual: int | None) -> int | None:
    """Return for how long a permit was claimed while the clock was ahead; None for one that was claimed in time.

    One whose lease was shortened while the clock was put right in part does not have it any more: it was the usual
    time.
    """
    moment = now if piece.token is None else moment_in(piece.token)
    lasted = piece.due - moment
    # The token of an older client tells no moment, but some number.
    if moment <= now + JUMP:
        return None
    if 0 < lasted <= _LONGEST:
        return lasted
    return usual if usual is not None and piece.due > now + usual + JUMP else None
