"""Whether the executor still waits for this task.

When a step before the sink fails, Spark closes the connection to the sink's Python worker and does not end the
worker. An Arrow stream that is cut off between two batches looks like one that has ended, so the worker would take
the rows that came so far for the whole partition. What tells the two apart is the connection: at a true end the
executor keeps it open, waiting for the result.
"""

from __future__ import annotations

import inspect
import logging
import select

from pyspark import TaskContext

from shardq.errors import ShardqError

__all__ = ["TaskAbandoned", "check_lifeline"]

_log = logging.getLogger(__name__)

_NAMES = ("outfile", "sock_file")  # of the connection, in the functions of pyspark.worker that called us


class TaskAbandoned(ShardqError):
    """Raised in a task that nobody waits for any more; its rows may be a part of the partition only."""


def check_lifeline() -> None:
    """Raise TaskAbandoned when the executor has given this task up. For the thread that runs the task."""
    descriptor = _connection()
    if descriptor is None:
        if TaskContext.get() is not None:
            _log.warning("this version of PySpark does not show whether an executor still waits for its task")
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    if poll.poll(0):
        raise TaskAbandoned("Spark has given this task up: nothing more of it is sent")


def _connection() -> int | None:
    """The file descriptor of the connection to the executor."""
    frame = inspect.currentframe()
    while frame is not None:
        for name in _NAMES:
            found = frame.f_locals.get(name)
            if found is not None and hasattr(found, "fileno"):
                return int(found.fileno())
        frame = frame.f_back
    return None
