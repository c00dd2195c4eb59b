"""The loggers of shardq, which the configuration of an application's logging does not silence."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

__all__ = ["Log", "drop_unwritten"]


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


def drop_unwritten() -> None:
    """Discard what stderr has buffered and does not take, as on a full disk: each later flush would raise again.

    `multiprocessing` flushes it before it starts a process, and Python at its end. Later texts are written again.
    """
    with suppress(AttributeError, OSError, ValueError):  # stderr is None, closed, or no file
        try:
            sys.stderr.flush()
        except OSError:
            number = sys.stderr.fileno()
            kept, nowhere = os.dup(number), os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, number)
                sys.stderr.flush()
            finally:
                os.dup2(kept, number)
                os.close(kept)
                os.close(nowhere)
