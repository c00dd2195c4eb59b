"""The loggers of shardq, which the configuration of an application's logging does not silence."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
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

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the record as it was given."""
        return msg, kwargs
