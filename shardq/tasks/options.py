"""The options of a task: those of its decorator, which a call may override."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from shardq.base.outgoing_message import DEFAULT_PRIORITY, OnConflict
from shardq.base.rate import Rate
from shardq.base.shard import check_queue_name
from shardq.base.texts import shown
from shardq.client.outcome import LONGEST_DELAY, Backoff, DeadLetter, Outcome, Retry
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting
from shardq.schedules.schedule import CatchUp, Overlap
from shardq.tasks.errors import ArgumentsRejected, ResultRejected, UnknownTask, WaitRejected

__all__ = ["CallKeywords", "RetryPolicy", "ScheduleKeywords", "TaskKeywords", "TaskOptions", "make_options"]

LONGEST_NAME = 200
LONGEST_KEPT = 366 * 86_400.0
Named = str | Callable[..., str]
_FATAL = (UnknownTask, ArgumentsRejected, ResultRejected, WaitRejected)  # another attempt would fail too


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a task that failed is tried again. Raises InvalidSetting.

    - ``attempts``: how often it is tried altogether; None: as the queue's ``max_deliveries`` says, which always holds.
    - ``delay``: seconds until the second attempt; doubles with each, up to ``longest``, and half of it is random.
      None: those of the queue.
    - ``only``: the errors after which it is tried again; ``never``: those of them after which it is not.

    A task that is not tried again goes to the dead-letter queue, with its error as the reason.

    >>> RetryPolicy(attempts=3, delay=10, never=(ValueError,)).attempts
    3
    """

    attempts: int | None = None
    delay: float | None = None
    longest: float = 600.0
    only: tuple[type[Exception], ...] = (Exception,)
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts is not None:
            check_number("attempts", self.attempts, 1, 10_000, whole=True)
        if self.delay is not None:
            check_number("delay", self.delay, 0.0, LONGEST_DELAY)
        check_number("longest", self.longest, 0.0, LONGEST_DELAY)
        for name, kinds in (("only", self.only), ("never", self.never)):
            if not isinstance(kinds, tuple) or not all(_is_error(kind) for kind in kinds):
                raise InvalidSetting(f"{name}={shown(kinds)}: give a tuple of classes of errors")

    def outcome(self, error: Exception, deliveries: int) -> Outcome:
        """Return the outcome of a task that failed at this number of deliveries."""
        over = self.attempts is not None and deliveries >= self.attempts
        if over or not isinstance(error, self.only) or isinstance(error, self.never + _FATAL):
            return DeadLetter()
        return Retry(None if self.delay is None else Backoff(self.delay, max(self.delay, self.longest)))


class CallKeywords(TypedDict, total=False):
    """The options that a call may override: see :class:`TaskOptions`."""

    queue: str
    priority: int
    delay: float
    due: datetime | None
    ttl: float | None
    group: Named | None
    unique_key: Named | bool | None
    on_conflict: OnConflict
    dedupe_key: str | None
    timeout: float | None
    keep_result: float


class TaskKeywords(CallKeywords, total=False):
    """The options of a task's decorator: see :class:`TaskOptions`."""

    name: str | None
    retry: RetryPolicy | int | None
    rate_limit: str | None


class ScheduleKeywords(TypedDict, total=False):
    """The times at which a call is sent automatically: see :meth:`shardq.Schedules.create`."""

    cron: str | None
    every: float | None
    at: datetime | None
    time_zone: str
    until: datetime | None
    count: int | None
    overlap: Overlap
    catch_up: CatchUp
    exist_ok: bool


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is sent and run. Times are seconds. Raises InvalidSetting.

    - ``name``: what its messages are called; None: the name of the function.
    - ``queue``: the queue that it is sent to. It is created if it is missing.
    - ``priority``, ``delay``, ``due``, ``ttl``, ``on_conflict``, ``dedupe_key``: as in :meth:`shardq.Producer.send`.
    - ``group``, ``unique_key``: as there; or a function that makes them of the arguments of the call.
      ``unique_key=True``: calls with the same arguments have the same key.
    - ``retry``: a :class:`RetryPolicy`, or how often the task is tried altogether.
    - ``timeout``: the longest time that one attempt may take. None: any.
    - ``keep_result``: for how long the result is kept. 0: there is none, which saves requests.
    - ``rate_limit``: of the queue, which is created with it. Tasks with different limits need queues of their own.
    """

    name: str | None = None
    queue: str = "tasks"
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    due: datetime | None = None
    ttl: float | None = None
    group: Named | None = None
    unique_key: Named | bool | None = None
    on_conflict: OnConflict = "keep"
    dedupe_key: str | None = None
    retry: RetryPolicy | int | None = None
    timeout: float | None = None
    keep_result: float = 3_600.0
    rate_limit: str | None = None

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        if self.name is not None and not (isinstance(self.name, str) and 0 < len(self.name) <= LONGEST_NAME):
            raise InvalidSetting(f"name={shown(self.name)}: give a str of 1 to {LONGEST_NAME} characters")
        check_number("keep_result", self.keep_result, 0.0, LONGEST_KEPT)
        if self.timeout is not None:
            check_number("timeout", self.timeout, 0.001, LONGEST_DELAY)
        if self.rate_limit is not None:
            Rate.parse(self.rate_limit)
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            check_number("retry", self.retry, 1, 10_000, whole=True)
        for name, value in (("group", self.group), ("unique_key", self.unique_key)):
            if not (value is None or isinstance(value, str | bool) or callable(value)):
                raise InvalidSetting(f"{name}={shown(value)}: give a str, or a function of the arguments")

    @property
    def policy(self) -> RetryPolicy:
        """When it is tried again."""
        return self.retry if isinstance(self.retry, RetryPolicy) else RetryPolicy(attempts=self.retry)

    def change(self, changes: CallKeywords) -> TaskOptions:
        """Return a checked copy with some options changed. Raises InvalidSetting."""
        known = CallKeywords.__annotations__
        if unknown := [name for name in changes if name not in known]:
            raise InvalidSetting(f"{unknown[0]!r} is not an option of a call: use one of {', '.join(known)}")
        return make_options({**msgspec.structs.asdict(self), **changes})


def make_options(given: Any) -> TaskOptions:
    """Make options from keywords. Raises InvalidSetting."""
    known = TaskOptions.__struct_fields__
    if unknown := [name for name in given if name not in known]:
        raise InvalidSetting(f"{unknown[0]!r} is not an option of a task: use one of {', '.join(known)}")
    return TaskOptions(**given)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)
