"""Every error of shardq, as one tree.

::

    ShardqError
    ├── QueueNotFound          the queue does not exist
    │   ├── TopicNotFound         the topic does not exist (shardq.topics)
    │   └── SubscriptionNotFound  the topic has no subscription of that name (shardq.topics)
    ├── QueueExists            a queue of that name exists already
    │   ├── TopicExists           a topic of that name exists already (shardq.topics)
    │   └── SubscriptionExists    the subscription exists with another filter (shardq.topics)
    ├── QueuePaused            the queue refuses new messages while its sends are paused
    ├── QueueFull              as many messages or bytes wait in the queue as it may hold
    ├── InvalidName            a queue cannot have this name
    ├── InvalidSetting         a setting or an argument has the wrong type or is out of its range
    │   ├── UnreadableSettings    the stored settings of a queue are damaged, or of a later version
    │   ├── InvalidFilter         a subscription cannot have this filter (shardq.topics)
    │   └── InvalidPipeline       a pipeline cannot run (shardq.pipelines)
    │       ├── DuplicateLink     a queue has two links, or a link names a queue twice
    │       ├── PipelineCycle     the links lead back to a queue
    │       ├── DanglingEnd       nothing takes what a link sends
    │       └── UndeclaredTarget  a function names a queue that its link does not have
    ├── InvalidMessage         a body, header, priority, delay or key cannot be stored
    │   ├── MessageTooLarge    a message is larger than the queue allows
    │   └── ArgumentsRejected  arguments of a task are not what its function takes (shardq.tasks)
    ├── BodyNotFound           a part of a large body is not stored, or not any more
    ├── InvalidReceipt         a message id or receipt is malformed, or belongs to another queue
    ├── InvalidCursor          a cursor comes from another listing than the one it is given to
    ├── Closed                 a client, producer or consumer is used after it was closed
    ├── LeaseLost              the caller no longer holds some of the messages
    ├── MessageNotPending      a message is to be edited that is in flight, processed or gone
    ├── ScheduleNotFound       there is no schedule of this id
    ├── ScheduleExists         there is a schedule of this id already
    ├── ConsumerNotFound       the queue knows no consumer of this name or id
    ├── ConsumerAlive          the consumer may be at work, so what it holds is not given back
    ├── PermitLost             the caller no longer holds a permit of a semaphore
    ├── PermitTimeout          no permit of a semaphore came free in time
    ├── PartialSend            a bulk send stopped before its end
    ├── UniqueKeyTaken         another message of the queue has the unique key
    ├── RepeatTooLate          a message may be stored already, and its send can no longer be repeated safely
    ├── ReplayConflict         a repeated part of a run differs from its first attempt
    ├── StoreUnavailable       the store could not be reached; nothing was changed
    │   ├── Disturbed          other clients changed a group of MongoDB all the time (shardq.storage.mongodb)
    │   ├── Locked             another transaction keeps a lock for too long (shardq.storage)
    │   ├── TransactionEnded   nothing stands of a transaction of the application (shardq.storage)
    │   │   └── TransactionDisturbed  the driver may do all of it again (shardq.storage.mongodb)
    │   └── TombstonesRefused  Cassandra refused to read past so many tombstones (shardq.storage.cassandra)
    ├── OutcomeUnknown         the store did not say whether it made the change
    ├── SchemaMismatch         the store's schema is missing or of another version
    ├── UnsupportedByStore     the store cannot do this
    ├── WorkersFailing         the processes of a worker pool keep dying (shardq.worker)
    ├── CommandFailed          the command of a message failed (shardq.worker)
    ├── HandlerExited          a handler raised SystemExit or another BaseException (shardq.worker)
    ├── UnknownTask            a worker has no task of this name (shardq.tasks)
    ├── TaskFailed             a task has failed for good (shardq.tasks)
    ├── TaskCancelled          a task was cancelled (shardq.tasks)
    ├── TaskTimeout            a task ran for too long (shardq.tasks)
    ├── ResultTimeout          a task has not ended in time (shardq.tasks)
    ├── ResultMissing          a task has no result, and none will come (shardq.tasks)
    ├── ResultRejected         a result of a task cannot be stored or read (shardq.tasks)
    ├── WaitRejected           a task would wait for another one without a timeout (shardq.tasks)
    ├── JobFailed              Spark ended a job (shardq.spark)
    ├── Forbidden              a key of the HTTP service does not allow an action (shardq.service)
    ├── NotFound               a message that the HTTP service was asked for is not stored (shardq.service)
    ├── TaskAbandoned          Spark no longer waits for a task (shardq.spark)
    └── ProcessFailed          a child process failed, died, or was not ready in time (shardq.worker)

Every error has a stable ``code`` for programs, and ``retryable`` says whether the same call may be repeated. The text
names the thing, the value and the remedy. The exception of a driver is never raised itself: it is the ``__cause__``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from shardq.base.outgoing_message import OutgoingMessage

__all__ = [
    "BodyNotFound",
    "Closed",
    "ConsumerAlive",
    "ConsumerNotFound",
    "InvalidCursor",
    "InvalidMessage",
    "InvalidName",
    "InvalidReceipt",
    "InvalidSetting",
    "LeaseLost",
    "MessageNotPending",
    "MessageTooLarge",
    "OutcomeUnknown",
    "PartialSend",
    "PermitLost",
    "PermitTimeout",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "QueuePaused",
    "RepeatTooLate",
    "ReplayConflict",
    "ScheduleExists",
    "ScheduleNotFound",
    "SchemaMismatch",
    "ShardqError",
    "StoreUnavailable",
    "UniqueKeyTaken",
    "UnreadableSettings",
    "UnsupportedByStore",
]


class ShardqError(Exception):
    """The root of every error that shardq raises. The ``code`` of each is its name, as ``queue_not_found``."""

    code: ClassVar[str] = "error"
    retryable: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, text: str) -> None:
        super().__init__(text)


class QueueNotFound(ShardqError):
    """Raised when the named queue does not exist in the store."""


class QueueExists(ShardqError):
    """Raised when a queue is created and one of that name exists already."""


class QueuePaused(ShardqError):
    """Raised when a message is sent to a queue whose sends are paused."""

    retryable = True


class QueueFull(ShardqError):
    """Raised when messages are sent to a queue that holds as many as its ``max_messages`` or ``max_bytes`` allow.

    No message that the error is about was stored. ``messages`` and ``size``, in bytes, are those of the pending
    messages, as this client knew them. Send again when some of it was received.
    """

    retryable = True

    def __init__(self, text: str, *, messages: int = 0, size: int = 0) -> None:
        super().__init__(text)
        self.messages, self.size = messages, size


class InvalidName(ShardqError):
    """Raised when a name is empty or too long, does not begin with a letter or digit, or has other characters.

    A queue's name may have ``A-Z a-z 0-9 . _ - / @``.
    """


class InvalidSetting(ShardqError):
    """Raised when a setting or an argument has the wrong type or is out of its range."""


class UnreadableSettings(InvalidSetting):
    """Raised when the stored settings of a queue cannot be read: they are damaged, or of a later version of shardq."""


class InvalidMessage(ShardqError):
    """Raised when a message cannot be stored as it is. Nothing of it was stored.

    ``position`` is the place of the message among the bodies of a ``send_many``, from 0; None where there is one only.
    """

    position: int | None = None


class MessageTooLarge(InvalidMessage):
    """Raised when body and headers together are larger than the queue's ``max_message_bytes``."""


class BodyNotFound(ShardqError):
    """Raised when a part of a large body is not stored: its message has left the queue, or the body was never complete.

    The parts that were read before are not the whole body.
    """


class InvalidReceipt(ShardqError):
    """Raised when a message id or a receipt is malformed or belongs to another queue."""


class InvalidCursor(ShardqError):
    """Raised when a cursor comes from another listing than the one it is given to: start without a cursor."""


class Closed(ShardqError):
    """Raised when a client, producer or consumer is used after it was closed, or a consumer in a forked child.

    Queues, producers and consumers end with their client. Nothing was changed. Make another one.
    """


class LeaseLost(ShardqError):
    """Raised when the caller no longer holds some messages, so it cannot ack, extend or release them.

    ``messages`` holds them: :class:`~shardq.Message` objects, or receipts if receipts were given. The call was
    carried out for all other messages. Another consumer has a lost message now, or will receive it: drop the work on
    it, or make sure that doing it twice is harmless.
    """

    def __init__(self, text: str, messages: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.messages = tuple(messages)


class MessageNotPending(ShardqError):
    """Raised when a message is to be edited that does not wait: it is in flight, processed, or not stored any more.

    Nothing was changed.
    """


class ScheduleNotFound(ShardqError):
    """Raised for a schedule that does not exist, or whose queue was deleted."""


class ScheduleExists(ShardqError):
    """Raised when a schedule is created under an id that another one has."""


class ConsumerNotFound(ShardqError):
    """Raised for a consumer that the queue does not know, by its name or its id."""


class ConsumerAlive(ShardqError):
    """Raised when a consumer whose messages are to be released was seen not long ago, or may be at work.

    No message was released. Do it again later; or with ``force``, if you know that it is dead.
    """


class PermitLost(ShardqError):
    """Raised when a permit of a semaphore is no longer held: its lease has expired, or it was removed.

    Another holder may have it. Drop the work that it stood for, or make sure that doing it at the same time is
    harmless.
    """


class PermitTimeout(ShardqError):
    """Raised when no permit of a semaphore came free within the time that the caller would wait."""

    retryable = True


class PartialSend(ShardqError):
    """Raised when a bulk send stopped before its end.

    ``stored`` holds the ids of the messages that the store confirmed. ``unsent`` holds the other messages, in their
    order. Pass ``unsent`` to ``send_many`` again: no message is stored twice, even if the first attempt stored it. If
    the input was an iterator, the rest of the input is still in it. After a ``send_many``, ``positions`` are the places
    of ``unsent`` among its bodies, from 0. ``__cause__`` is the error that stopped the send.
    """

    retryable = True

    def __init__(
        self,
        text: str,
        stored: Sequence[str] = (),
        unsent: Sequence[OutgoingMessage] = (),
        positions: Sequence[int] = (),
    ) -> None:
        super().__init__(text)
        self.stored = stored
        self.unsent = unsent
        self.positions = positions


class UniqueKeyTaken(ShardqError):
    """Raised when a message is not stored because another one of the queue has its unique key.

    ``message_id`` is the id of the other one, and ``in_flight`` says whether a consumer holds it.
    """

    def __init__(self, text: str, message_id: str = "", *, in_flight: bool = False) -> None:
        super().__init__(text)
        self.message_id, self.in_flight = message_id, in_flight


class RepeatTooLate(ShardqError):
    """Raised when a message that may be stored already is sent again too late. This call stored nothing.

    A store remembers for 15 minutes which bundles were sent and finished. After that time a repeated send would
    deliver a message again, so shardq refuses it from 14 minutes on. :meth:`shardq.Queue.get` shows whether the
    message is stored.
    """


class ReplayConflict(ShardqError):
    """Raised when a part of a run is sent again with other messages than in its first attempt.

    The repeated attempt stored nothing.
    """


class StoreUnavailable(ShardqError):
    """Raised when the store could not be reached or refused the request. Nothing was changed.

    Where a batch has messages in several shards, this holds for those that the text counts; all others are settled.

    ``retryable`` is False if repeating cannot help: a corrupted file, a full disk, wrong credentials.
    """

    def __init__(self, text: str, *, retryable: bool = True) -> None:
        super().__init__(text)
        self.retryable = retryable


class OutcomeUnknown(ShardqError):
    """Raised when the store did not answer in time: it may have made the change or not.

    Also when it failed in the middle of a call, such as a purge: the text says how much was done.

    The library has already repeated the operation for a while. Acks, releases and extensions can be repeated as they
    are. To repeat a send, send the message in ``unsent``: it has the id under which it may be stored. A new send of the
    same body would be another message.
    """

    retryable = True

    def __init__(self, text: str, *, unsent: Sequence[OutgoingMessage] = ()) -> None:
        super().__init__(text)
        self.unsent = tuple(unsent)


class SchemaMismatch(ShardqError):
    """Raised when the store has no shardq schema, which is ``missing`` then, or that of another version of shardq."""

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


class UnsupportedByStore(ShardqError):
    """Raised when the queue's store cannot do this."""
