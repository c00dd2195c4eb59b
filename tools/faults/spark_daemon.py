"""The daemon that forks Spark's Python processes, in the surroundings of the client that sends by Spark."""

from __future__ import annotations

import os
import runpy

from .actor import surround
from .assignment import ASSIGNMENT

if __name__ == "__main__":
    told, dial = surround([os.environ[ASSIGNMENT]])
    from .failing_tasks import let_tasks_fail  # nothing that asks for the time may be there before

    let_tasks_fail(told, dial)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
