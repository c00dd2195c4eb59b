"""The errors of tasks. They are in the tree of :mod:`shardq.errors`."""

from __future__ import annotations

import msgspec

from shardq.base.texts import text_of
from shardq.errors import InvalidMessage, ShardqError
from shardq.worker.policy import LONGEST_TEXT, short_trace, trace_of

__all__ = [
    "ArgumentsRejected",
    "Failure",
    "ResultMissing",
    "ResultRejected",
    "ResultTimeout",
    "TaskCancelled",
    "TaskFailed",
    "TaskTimeout",
    "UnknownTask",
    "WaitRejected",
]

LONGEST_TRACEBACK = 16_000  # characters of a traceback that a result keeps: the end of it


class Failure(msgspec.Struct, frozen=True):
    """Why a task failed for good: the class and the text of its error, where it was raised, and at which delivery.

    ``call`` is the task with a summary of its arguments, up to 200 characters.
    """

    kind: str
    text: str
    traceback: str = ""
    deliveries: int = 0
    call: str = ""

    @classmethod
    def of(cls, error: BaseException, deliveries: int, call: str = "") -> Failure:
        """Return the part of an error that is kept. Its traceback begins with the function of the task."""
        text, raised = text_of(error), trace_of(error)
        trace = short_trace(error, raised) if raised else ""
        kind = type(error).__name__
        shown = "" if text == kind else text[:LONGEST_TEXT]
        return cls(kind, shown, trace[-LONGEST_TRACEBACK:], deliveries, call)

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


class ArgumentsRejected(InvalidMessage):
    """Raised when arguments of a task cannot be sent, or are not those that its function takes.

    A sender gets it before anything is stored. At a worker it makes the message a dead letter: the function has changed
    since the task was sent.
    """


class UnknownTask(ShardqError):
    """The reason of a dead letter whose task the worker does not know: it was renamed, or its module is not loaded."""


class TaskFailed(ShardqError):
    """Raised by :meth:`Result.get` when the task has failed for good. ``failure`` says why."""

    def __init__(self, text: str, failure: Failure | None = None) -> None:
        super().__init__(text)
        self.failure = failure or Failure("", text)


class TaskCancelled(ShardqError):
    """Raised by :meth:`Result.get` of a task that was cancelled, and by :meth:`CurrentTask.check` in one."""


class TaskTimeout(ShardqError):
    """Raised in a task that runs for longer than its ``timeout``. It is a failure like any other, and tried again."""


class ResultTimeout(ShardqError):
    """Raised when a task has not ended within the time that the caller would wait for its result.

    The task continues.
    """

    retryable = True


class WaitRejected(ShardqError):
    """Raised in a task that would wait for another one without a timeout: its worker may have no thread to run that.

    The task fails for good.
    """


class ResultMissing(ShardqError):
    """Raised when a task is no longer in its queue and has no result.

    A result is kept for ``keep_result`` seconds only. Or the task was removed, has expired, or went to the dead-letter
    queue because the processes that worked on it died.
    """


class ResultRejected(ShardqError):
    """Raised when the result of a task cannot be stored, or is not of the type that its function declares."""
