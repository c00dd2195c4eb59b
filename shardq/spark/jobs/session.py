"""The Spark session of a job that is started without one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from shardq.spark.jobs.failures import explained

__all__ = ["spark_session"]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """The session that is there, as under spark-submit; else one on this computer, which ends with the block.

    In a session of its own Spark's log is silent: what goes wrong is raised, see :func:`explained`.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        with explained():
            yield running
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("shardq")
    if master is not None or "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(master or "local[*]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        with explained():
            yield session
    finally:
        session.stop()
