"""Messages at their last attempt are held alone, so that another message's crash does not use up that attempt."""

from __future__ import annotations

from shardq.batch import Batch
from shardq.message import Message

__all__ = ["Caution", "set_apart"]


def set_apart(batch: Batch, last: Message | None) -> tuple[Batch, Batch | None]:
    """Return what a process may hold of a batch, and what it has to release uncounted before it begins anything.

    ``last`` is a message of the batch at its last attempt: if the process dies, that message becomes a dead letter. So
    it is held alone, or the message that it waits for in its group. Without one all of the batch may be held.
    """
    if last is None or len(batch) == 1:
        return batch, None
    first = last
    if last.lane is not None:
        first = next(message for message in batch if message.lane == last.lane)
    return batch.part([first]), batch.part(message for message in batch if message != first)


class Caution:
    """How many messages a worker may hold: few after it received one at its last attempt, as others often follow.

    ``patience`` is the number of reads without such a message after which any number may be held again.
    """

    def __init__(self, patience: int) -> None:
        self._patience, self._reads = patience, 0
        self.most: int | None = None  # None: any number

    def limit(self, most: int | None) -> None:
        """Take note of a read: because of what it found ``most`` messages may be held; None: of nothing special."""
        self._reads = self._reads - 1 if most is None else self._patience
        if self._reads <= 0:
            self.most = None
        elif most is not None:
            self.most = most
