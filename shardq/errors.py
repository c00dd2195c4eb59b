"""What can go wrong, as one tree.

::

    ShardqError
    ├── QueueNotFound        the queue does not exist
    ├── QueueExists          the queue exists already
    ├── QueuePaused          the queue takes no messages now
    ├── InvalidName          a queue's name cannot be used
    ├── InvalidSetting       a setting of a queue, client, producer or consumer cannot be used
    ├── InvalidMessage       a body, header, priority, delay or key cannot be stored
    │   └── MessageTooLarge  a message is above the queue's limit
    ├── InvalidReceipt       an id or receipt is malformed, or belongs to another queue
    ├── LeaseLost            the claim on some messages is no longer the caller's
    ├── PartialSend          a bulk send stopped part way
    ├── RepeatTooLate        a message may be stored already, and it is too late to repeat its send
    ├── ReplayConflict       a part of a run that is repeated is not what it was
    ├── StoreUnavailable     the store could not be reached; nothing was changed
    ├── OutcomeUnknown       the store did not say whether it did what was asked
    ├── SchemaMismatch       the store's schema is missing or of another version
    └── UnsupportedByStore   the store cannot do this

Every error has a stable ``code`` for programs and says whether the same call may be repeated (``retryable``).
Its text names the thing, the value and the remedy. A driver's exception is the ``__cause__``, never raised
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from shardq.outgoing_message import OutgoingMessage

__all__ = [
    "InvalidMessage",
    "InvalidName",
    "InvalidReceipt",
    "InvalidSetting",
    "LeaseLost",
    "MessageTooLarge",
    "OutcomeUnknown",
    "PartialSend",
    "QueueExists",
    "QueueNotFound",
    "QueuePaused",
    "RepeatTooLate",
    "ReplayConflict",
    "SchemaMismatch",
    "ShardqError",
    "StoreUnavailable",
    "UnsupportedByStore",
]


class ShardqError(Exception):
    """The root of every error that shardq raises."""

    code: ClassVar[str] = "error"
    retryable: bool = False


class QueueNotFound(ShardqError):
    """Raised when the named queue does not exist in the store."""

    code = "queue_not_found"


class QueueExists(ShardqError):
    """Raised when a queue is created under a name that is taken."""

    code = "queue_exists"


class QueuePaused(ShardqError):
    """Raised when a message is sent to a queue whose sends are paused."""

    code = "queue_paused"
    retryable = True


class InvalidName(ShardqError):
    """Raised when a queue's name is empty, too long or has characters other than ``A-Z a-z 0-9 . _ -``."""

    code = "invalid_name"


class InvalidSetting(ShardqError):
    """Raised when a setting or an argument is of the wrong type or out of its range."""

    code = "invalid_setting"


class InvalidMessage(ShardqError):
    """Raised when a message cannot be stored as it is; nothing of it was stored."""

    code = "invalid_message"


class MessageTooLarge(InvalidMessage):
    """Raised when body and headers together are above the queue's ``max_message_bytes``."""

    code = "message_too_large"


class InvalidReceipt(ShardqError):
    """Raised when a message id or a receipt is malformed or belongs to another queue."""

    code = "invalid_receipt"


class LeaseLost(ShardqError):
    """Raised when some messages are no longer the caller's to ack, extend or release.

    ``messages`` holds them: the :class:`~shardq.Message` objects, or the receipts where receipts were given.
    Everything else in the same call was done. A lost message is somebody else's now, or will be delivered
    again: its work should be dropped, or be harmless when done twice.
    """

    code = "lease_lost"

    def __init__(self, text: str, messages: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.messages = tuple(messages)


class PartialSend(ShardqError):
    """Raised when a bulk send stopped before its end.

    ``stored`` holds the ids of the messages that the store confirmed. ``unsent`` holds the others, in their
    order; those that may be stored all the same keep their ids: passing it to ``send_many`` again cannot duplicate
    any of them, whatever had become of the attempt. Where the input was an iterator, what had not been drawn from
    it is still in it. The cause is ``__cause__``.
    """

    code = "partial_send"
    retryable = True

    def __init__(self, text: str, stored: Sequence[str], unsent: Sequence[OutgoingMessage]) -> None:
        super().__init__(text)
        self.stored = stored
        self.unsent = unsent


class RepeatTooLate(ShardqError):
    """Raised when a message that may be stored already is sent again too late: nothing of it was stored now.

    A store remembers for 15 minutes what was sent and finished; after that a repeated send would deliver it again.
    Shardq refuses one minute earlier. :meth:`shardq.Queue.get` shows whether the message waits.
    """

    code = "repeat_too_late"


class ReplayConflict(ShardqError):
    """Raised when a part of a run is sent again and its messages are not those of the attempt before.

    Nothing of the attempt that finds it is stored: what the one before has stored cannot be told from it.
    """

    code = "replay_conflict"


class StoreUnavailable(ShardqError):
    """Raised when the store could not be reached or refused the request; nothing was changed by it.

    ``retryable`` is False where repeating cannot help: a corrupted file, a full disk, wrong credentials.
    """

    code = "store_unavailable"

    def __init__(self, text: str, *, retryable: bool = True) -> None:
        super().__init__(text)
        self.retryable = retryable


class OutcomeUnknown(ShardqError):
    """Raised when the store did not answer in time: the change was made, or it was not.

    Acks, releases and extensions can be repeated as they are. To repeat a send, send what is in ``unsent``: the
    message of the call, under the id that it may be stored under. A new send of the same body would be another
    message. The library repeated the operation for a while before raising this.
    """

    code = "outcome_unknown"
    retryable = True

    def __init__(self, text: str, *, unsent: Sequence[OutgoingMessage] = ()) -> None:
        super().__init__(text)
        self.unsent = tuple(unsent)


class SchemaMismatch(ShardqError):
    """Raised when the store has no shardq schema, or that of another version of shardq."""

    code = "schema_mismatch"


class UnsupportedByStore(ShardqError):
    """Raised when the store that holds the queue cannot do what was asked."""

    code = "unsupported_by_store"
