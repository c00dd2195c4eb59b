"""The loggers of shardq, which the configuration of an application's logging does not silence."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

__all__ = ["Log"]


class Log(logging.LoggerAdapter[logging.Logger]):
    """The logger of a module, of which only the level decides what is written.

    `dictConfig` and `fileConfig` disable every logger that exists by default, and with it warnings and failures.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - its name in the standard library
        """Return whether a record of this level is written."""
        self.logger.disabled = False
        return super().isEnabledFor(level)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a record. Errors of handlers, filters and record factories of the application are not raised.

        They are written to stderr, as `logging` does with errors of handlers.
        """
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # this frame is not the caller
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:
            if logging.raiseExceptions:
                with suppress(Exception):  # of a stderr that is closed
                    traceback.print_exc(file=sys.stderr)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the record as it was given."""
        return msg, kwargs
