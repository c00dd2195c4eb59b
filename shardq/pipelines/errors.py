"""Errors of pipelines. Their tree is in :mod:`shardq.errors`."""

from __future__ import annotations

from shardq.errors import InvalidSetting

__all__ = ["DanglingEnd", "DuplicateLink", "InvalidPipeline", "PipelineCycle", "UndeclaredTarget"]


class InvalidPipeline(InvalidSetting):
    """Raised for a pipeline that cannot run."""


class DuplicateLink(InvalidPipeline):
    """Raised when a queue has two links, or a link names a queue twice."""


class PipelineCycle(InvalidPipeline):
    """Raised when the links of a pipeline lead back to a queue."""


class DanglingEnd(InvalidPipeline):
    """Raised when no link takes what a link sends, and the queue is not declared as an output."""


class UndeclaredTarget(InvalidPipeline):
    """Raised when the function of a link does not name one of the link's queues. It is a failure of the message."""
