"""Outcomes of messages, which their handler raises or returns unless it has just worked them."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from shardq.base.callables import check_has_run
from shardq.core.settings import check_number
from shardq.core.settling.dead_letters import check_reason
from shardq.errors import InvalidSetting

__all__ = ["Backoff", "DeadLetter", "Discard", "Outcome", "Retry", "Snooze", "check_returned", "outcome_name"]

LONGEST_DELAY = 7 * 86_400.0
_MAX_DOUBLINGS = 60


class Backoff(msgspec.Struct, frozen=True):
    """A delay that doubles from ``first`` seconds up to ``longest``. Half of it is random, to spread retries out.

    Raises InvalidSetting for a value that is not a number from 0 to a week.

    >>> Backoff(10, 600).delay(3) <= 40
    True
    """

    first: float
    longest: float

    def __post_init__(self) -> None:
        check_number("first", self.first, 0.0, LONGEST_DELAY)
        check_number("longest", self.longest, 0.0, LONGEST_DELAY)

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after the attempt of this number, counted from 1."""
        doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * random.uniform(0.5, 1.0)


class Outcome(Exception):
    """An outcome for a message: :class:`Retry`, :class:`Snooze`, :class:`Discard` or :class:`DeadLetter`.

    The handler of a worker raises or returns one. With ``by_batch`` it stands for all messages of the batch that the
    handler has not settled. Outcomes can be pickled, and are equal when they say the same. Arguments that make no sense
    raise InvalidSetting when the outcome is made.
    """

    # Defaults are here and in each kind, for a subclass whose __init__ does not call this one.
    reason: str | None = None

    def __init__(self, *arguments: Any, reason: str | None = None) -> None:
        if not isinstance(self, Retry | Snooze | Discard | DeadLetter):
            raise InvalidSetting(
                f"{type(self).__name__} is not an outcome that is known: make a Retry, Snooze, Discard or DeadLetter"
            )
        super().__init__(*arguments)  # an exception is pickled as its class and these
        self.reason = None if reason is None else check_reason(reason)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and type(self) is type(other) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))

    def __str__(self) -> str:
        return self.reason or type(self).__name__


class Retry(Outcome):
    """The delivery has failed: deliver the message again, or make it a dead letter if this was the last delivery.

    ``after`` is the delay: seconds, up to a week, or a :class:`Backoff`, which grows with the deliveries. None: the
    delay of all failures (``retry_delay``). The ``reason`` is logged, and a dead letter carries it.

    >>> raise Retry(after=60, reason="the bank is closed")
    Traceback (most recent call last):
    shardq.client.outcome.Retry: the bank is closed
    """

    after: float | Backoff | None = None

    def __init__(self, after: float | Backoff | None = None, reason: str | None = None) -> None:
        super().__init__(after, reason, reason=reason)
        if after is not None and not isinstance(after, Backoff):
            check_number("after", after, 0.0, LONGEST_DELAY)
        self.after = after


class Snooze(Outcome):
    """Deliver the message again after a number of seconds, up to a week. This delivery does not count.

    For work that cannot be done yet, and has not failed. A message that is always snoozed never becomes a dead letter.
    """

    seconds: float = 60.0

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        check_number("seconds", seconds, 0.0, LONGEST_DELAY)
        self.seconds = seconds


class Discard(Outcome):
    """The message is finished, though its work was not done: it is acked, and a warning is logged with the reason.

    Without a ``reason`` it is the error that it was raised from, or that it is the answer to.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason, reason=reason)


class DeadLetter(Outcome):
    """The message goes to the dead-letter queue now, however often it was delivered, and carries the reason there.

    Without a ``reason`` it is the error that it was raised from, or that it is the answer to.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason, reason=reason)


def check_returned(handler: object, result: object) -> None:
    """Raise InvalidSetting if a handler returned what has not run yet, or the class of an outcome."""
    check_has_run("handler", handler, result)
    if isinstance(result, type) and issubclass(result, Outcome):
        raise InvalidSetting(
            f"the handler returned the class {result.__name__}: return an outcome, such as {result.__name__}(...)"
        )


def outcome_name(ended: object) -> str:
    """Return what came of a message whose handler returned or raised this: "worked", "failed", or its outcome.

    >>> outcome_name(DeadLetter()), outcome_name(ValueError()), outcome_name(b"a result")
    ('dead_letter', 'failed', 'worked')
    """
    if isinstance(ended, Outcome):
        return "dead_letter" if isinstance(ended, DeadLetter) else type(ended).__name__.lower()
    return "failed" if isinstance(ended, BaseException) else "worked"
