"""Logs of workers as lines of JSON: an event for each message that a handler has ended, and all other records."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from shardq.base.log import Log
from shardq.base.outgoing_message import TASK_HEADER
from shardq.base.texts import described
from shardq.client.outcome import outcome_name
from shardq.core.hooks import HookCall, Hooks
from shardq.core.message import Message
from shardq.errors import InvalidMessage
from shardq.worker.policy import shortened

__all__ = ["JsonFormatter", "JsonLog", "MessageEvents"]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record. All others are fields that were given with it."""

_log = Log("shardq.messages")


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: its time, level, logger and message, the fields in ``extra``, its error.

    Without ``bodies`` a task that failed is called by its id, not by its arguments.

    >>> record = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "sold", "id": 7, "created": 0.0})
    >>> JsonFormatter().format(record)
    '{"time":"1970-01-01T00:00:00Z","level":"INFO","logger":"shop","message":"sold","id":7}'
    """

    def __init__(self, *, bodies: bool = False) -> None:
        super().__init__()
        self._bodies = bodies

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _OWN}
        called = fields.pop("called", None)
        if called is not None and not self._bodies:
            fields["message"] = fields["message"].replace(called, f"message {fields.get('id')}")
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        try:
            return msgspec.json.encode(fields, enc_hook=repr).decode()
        except Exception:  # a field that is not a text, or nested without end, or whose repr fails
            return msgspec.json.encode({name: _plain(value) for name, value in fields.items()}).decode()


def _plain(value: object) -> str:
    try:
        return ascii(value)
    except Exception:
        return f"<{type(value).__name__}>"


class MessageEvents(Hooks):
    """Hooks that log, as ``shardq.messages``, what came of each message that a handler has ended.

    An event has the fields ``queue``, ``id``, ``delivery``, ``duration`` in seconds, and ``outcome``: "worked",
    "failed", "retry", "snooze", "discard" or "dead_letter". One of a task has its name, ``task``; one that failed its
    ``error``. Events of a batch have the duration of all of it. With ``bodies`` they have the first 2,000 characters of
    the ``body`` too.
    """

    def __init__(self, *, bodies: bool = False) -> None:
        self._bodies = bodies

    @contextmanager
    def around(self, call: HookCall) -> Iterator[None]:
        """Log an event for each message of a handler's call."""
        if call.operation != "process":
            yield
            return
        began, raised = time.monotonic(), None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            outcome = outcome_name(raised or call.result)
            facts: dict[str, Any] = {"duration": round(time.monotonic() - began, 6), "outcome": outcome}
            if outcome == "failed" and raised is not None:
                facts["error"] = shortened(described(raised))
            level = logging.WARNING if outcome == "failed" else logging.INFO
            for message in call.messages:
                _log.log(level, "message %s", outcome, extra=self._facts(message) | facts)

    def _facts(self, message: Message) -> dict[str, Any]:
        found: dict[str, Any] = {
            "queue": message.queue,
            "id": message.id,
            "delivery": message.deliveries,
        }
        with suppress(InvalidMessage):  # what is damaged in the store has no more than that
            if isinstance(task := message.headers.get(TASK_HEADER), str):
                found["task"] = shortened(task)
            if self._bodies and message.large is None:
                found["body"] = shortened(message.raw.decode("utf-8", "backslashreplace"))
        return found


class JsonLog(msgspec.Struct, frozen=True, kw_only=True):
    """Logs of a process as lines of JSON on stderr, from INFO on; ``bodies`` is that of :class:`MessageEvents`.

    A pool passes it to its processes. A module with handlers may configure logging anew.
    """

    bodies: bool = False

    def begin(self) -> None:
        """Let all loggers of this process write so, in place of what they did."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter(bodies=self.bodies))
        logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)

    @property
    def hooks(self) -> MessageEvents:
        """Hooks that log what came of messages."""
        return MessageEvents(bodies=self.bodies)
