"""The loggers of shardq in a program that configures logging."""

from __future__ import annotations

import logging

__all__ = ["enable_loggers"]


def enable_loggers(one: logging.Logger) -> None:
    """Enable all loggers of shardq again if one of them was disabled.

    `logging.config.dictConfig` and `fileConfig` disable every logger that exists, unless the program asks them not to:
    a worker would report no failure from then on.
    """
    if not one.disabled:  # as almost always
        return
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == "shardq" and isinstance(logger, logging.Logger):
            logger.disabled = False
