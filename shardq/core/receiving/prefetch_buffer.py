"""Messages that were claimed ahead of a consumer and wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

import msgspec

from shardq.base.log import Log
from shardq.core.held import HeldSlice, count_of, first_of
from shardq.core.receiving.claiming import QueueClaims
from shardq.core.settling.engine import SettleEngine
from shardq.errors import ShardqError

__all__ = ["Ahead", "PrefetchBuffer"]

_log = Log(__name__)


class _Waiting(msgspec.Struct, frozen=True):
    piece: HeldSlice
    since: float


class PrefetchBuffer:
    """Holds up to ``size`` messages in their order, each for a limited time. For a caller that has its own lock.

    After messages had to leave because they were not taken, it holds no more than were taken in the time before. That
    is doubled each time that it is found empty.
    """

    def __init__(self, size: int) -> None:
        self._size = self._most = size
        self._waiting: deque[_Waiting] = deque()
        self._messages = 0
        self._served = 0  # messages taken since some last had to leave
        self._emptied = False  # nothing waits because all had to leave

    def __len__(self) -> int:
        return self._messages

    @property
    def free(self) -> int:
        """How many messages to claim: none, or at least half of those it may hold."""
        free = self._most - len(self)
        return free if 2 * free >= self._most else 0

    @property
    def pieces(self) -> list[HeldSlice]:
        """All slices that wait."""
        return [waiting.piece for waiting in self._waiting]

    def add(self, held: Sequence[HeldSlice], now: float) -> None:
        """Let these wait behind the others."""
        self._emptied = False
        self._messages += count_of(held)
        self._waiting.extend(_Waiting(piece, now) for piece in held)

    def put_back(self, held: Sequence[HeldSlice], now: float) -> None:
        """Let these wait again behind the others, and behind them what follows them in their groups."""
        groups = {piece.bundle.group for piece in held} - {""}
        following = self._take(lambda piece: piece.bundle.group in groups)
        self.add(held, now)
        self._messages += count_of([waiting.piece for waiting in following])
        self._waiting.extend(following)

    def take_groups(self, groups: Collection[str]) -> list[HeldSlice]:
        """Take out all that waits of some groups."""
        return [waiting.piece for waiting in self._take(lambda piece: piece.bundle.group in groups)]

    def _take(self, is_meant: Callable[[HeldSlice], bool]) -> list[_Waiting]:
        taken: list[_Waiting] = []
        others: deque[_Waiting] = deque()
        for waiting in self._waiting:
            (taken if is_meant(waiting.piece) else others).append(waiting)
        self._waiting = others
        self._messages -= count_of([waiting.piece for waiting in taken])
        return taken

    def take(self, limit: int) -> tuple[list[HeldSlice], list[HeldSlice], list[HeldSlice]]:
        """Return the messages to hand out, the slices that they are of, and the waiting rest of the last slice."""
        if not self._waiting:
            self._most = self._most if self._emptied else min(self._size, 2 * self._most)
        taken: list[HeldSlice] = []
        left: list[HeldSlice] = []
        rest: list[HeldSlice] = []
        while self._waiting and limit > 0:
            waiting = self._waiting.popleft()
            parts, rest = first_of([waiting.piece], limit)
            self._waiting.extendleft(_Waiting(piece, waiting.since) for piece in rest)
            left.append(waiting.piece)
            taken += parts
            limit -= count_of(parts)
        count = count_of(taken)
        self._served += count
        self._messages -= count
        return taken, left, rest

    def overdue(self, before: float) -> list[HeldSlice]:
        """Take out everything when anything has waited since before that moment."""
        if not any(waiting.since <= before for waiting in self._waiting):
            return []
        held = self.clear()
        self._most, self._served, self._emptied = max(1, min(self._most, self._served)), 0, True
        return held

    def take_others(self, incarnation: int) -> list[HeldSlice]:
        """Take out all that was claimed from another incarnation of the queue."""
        return [waiting.piece for waiting in self._take(lambda piece: piece.incarnation != incarnation)]

    def clear(self) -> list[HeldSlice]:
        """Take out everything."""
        held = self.pieces
        self._waiting.clear()
        self._messages = 0
        return held


class Ahead:
    """The messages that are claimed ahead from one queue."""

    def __init__(self, claims: QueueClaims, engine: SettleEngine, size: int) -> None:
        self.name, self.context, self.engine = claims.name, claims.context, engine
        self.buffer = PrefetchBuffer(size)
        self._claims = claims
        self._oldest = 0  # the oldest incarnation of the queue that a waiting message may be of

    @property
    def lease(self) -> int:
        """For how long messages are held, in microseconds, as far as is known."""
        return self._claims.known_lease

    @property
    def has_candidates(self) -> bool:
        """True when there is a shard to claim from."""
        return self._claims.has_candidates

    def add(self, held: Sequence[HeldSlice], now: float, *, again: bool) -> None:
        """Let these wait, maybe ``again``: behind the others."""
        oldest = min(piece.incarnation for piece in held)
        self._oldest = min(self._oldest, oldest) if len(self.buffer) else oldest
        (self.buffer.put_back if again else self.buffer.add)(held, now)

    def take_older(self) -> list[HeldSlice]:
        """Take out the messages that were claimed before the queue was created again, as far as is known."""
        incarnation = self.context.live.created_again
        if self._oldest == incarnation:
            return []
        self._oldest = incarnation
        return self.buffer.take_others(incarnation)

    def return_uncounted(self, held: Sequence[HeldSlice]) -> None:
        """Release messages that no thread has started to work on."""
        try:
            self.engine.return_uncounted([piece.select() for piece in held])
        except ShardqError as error:
            _log.warning("messages that were claimed ahead come back when their lease expires: %s", error)
