"""What can be done to held messages, and how the store's exceptions to each are read."""

from __future__ import annotations

import msgspec

from shardq.held import Fate

__all__ = ["ACK", "DEAD_LETTER", "EXTEND", "FORWARD", "KEEP", "RELEASE", "REPLACE", "START", "Verb"]


class Verb(msgspec.Struct, frozen=True):
    """How one of the operations ends, and what it means when a message is lost or gone.

    An attempt that was not answered may be the reason of what its repetition finds.
    """

    name: str
    counter: str
    fate: Fate  # of the messages that it was done to
    repeatable: bool = False  # doing it again to messages of that fate is harmless
    gone_is_done: bool = False  # what is gone within its lease has what the caller wanted
    unanswered_explains_gone: bool = False
    unanswered_explains_lost: bool = False
    moves: bool = (
        False  # all of a shard or nothing; what an unanswered attempt moved is lost and not stored any more
    )

    @property
    def barred(self) -> tuple[Fate, ...]:
        """The fates that forbid the operation."""
        barred = {Fate.LOST, Fate.RELEASED, Fate.FINISHED}
        return tuple(barred - {self.fate}) if self.repeatable else tuple(barred)


ACK = Verb("acked", "acked", Fate.FINISHED, repeatable=True, gone_is_done=True, unanswered_explains_gone=True)
RELEASE = Verb(
    "released",
    "released",
    Fate.RELEASED,
    repeatable=True,
    unanswered_explains_gone=True,
    unanswered_explains_lost=True,
)
EXTEND = Verb("extended", "extended", Fate.OPEN)
KEEP = Verb("extended", "extended", Fate.OPEN, gone_is_done=True)
START = Verb("handed out", "extended", Fate.OPEN)
FORWARD = Verb("forwarded", "forwarded", Fate.FINISHED, unanswered_explains_gone=True, moves=True)
DEAD_LETTER = Verb("dead-lettered", "dead_lettered", Fate.FINISHED, unanswered_explains_gone=True, moves=True)
REPLACE = Verb("released", "released", Fate.RELEASED, unanswered_explains_gone=True, moves=True)
