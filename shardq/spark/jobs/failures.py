"""What went wrong in a job, without the stack traces of three languages around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from shardq import errors
from shardq.errors import ShardqError

__all__ = ["JobFailed", "explained"]

_OURS = re.compile(r"shardq\.errors\.(\w+): ([^\n]+)")


class JobFailed(ShardqError):
    """Raised when Spark ends a job for a reason of its own."""


@contextmanager
def explained() -> Iterator[None]:
    """Raise shardq's own error where a task or Spark's planning raised one, else JobFailed with Spark's first line."""
    try:
        yield
    except PySparkException as error:
        found = _OURS.search(str(error))
        if found is not None:
            raise getattr(errors, found[1], JobFailed)(found[2].strip()) from error
        raise JobFailed(str(error).strip().partition("\n")[0]) from error
