"""A Spark session of this computer, with shardq's source registered, for the trials and measurements."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from shardq.spark.source import ShardqDataSource

__all__ = ["local_session"]

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def local_session(name: str, master: str, **settings: str) -> SparkSession:
    """A session without a page and without a log; settings are named with ``_`` for ``.``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [str(Path(__file__).parent), *filter(None, inherited)]  # the tasks run functions of the tools
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    builder = SparkSession.builder.master(master).appName(name)
    chosen = {f"spark.{setting.replace('_', '.')}": value for setting, value in settings.items()}
    for setting, value in (QUIET | chosen).items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(ShardqDataSource)
    return session
