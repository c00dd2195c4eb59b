"""Messages that were claimed ahead and wait to be handed out."""

from __future__ import annotations

from collections import deque

import msgspec

from shardq.held import HeldSlice, first_of

__all__ = ["WaitingRoom"]


class _Waiting(msgspec.Struct, frozen=True):
    piece: HeldSlice
    since: float


class WaitingRoom:
    """Holds up to ``size`` messages in their order, each for a limited time. For a caller that has its own lock.

    When messages had to leave unserved it takes no more than were served in that time, and doubles that
    whenever somebody had to wait for a message since.
    """

    def __init__(self, size: int) -> None:
        self._size = self._most = size
        self._waiting: deque[_Waiting] = deque()
        self._messages = 0
        self._served = 0  # messages, since the last one left unserved
        self._emptied = False  # they have just left unserved, so that nothing waits

    def __len__(self) -> int:
        return self._messages

    @property
    def room(self) -> int:
        """For how many messages it is worth while to claim: none, or at least half of those it may hold."""
        free = self._most - len(self)
        return free if 2 * free >= self._most else 0

    @property
    def pieces(self) -> list[HeldSlice]:
        """All that wait."""
        return [waiting.piece for waiting in self._waiting]

    def add(self, held: list[HeldSlice], now: float) -> None:
        """Let these wait behind the others."""
        self._emptied = False
        self._messages += sum(piece.count for piece in held)
        self._waiting.extend(_Waiting(piece, now) for piece in held)

    def take(self, limit: int) -> tuple[list[HeldSlice], list[HeldSlice], list[HeldSlice]]:
        """Messages to be handed out, the slices that they are of, and what is left of the last one to wait on."""
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
            limit -= sum(part.count for part in parts)
        count = sum(piece.count for piece in taken)
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

    def clear(self) -> list[HeldSlice]:
        """Take out everything."""
        held = self.pieces
        self._waiting.clear()
        self._messages = 0
        return held
