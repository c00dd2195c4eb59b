"""Each process of Spark that plans loads the source, and no more."""

from __future__ import annotations

import subprocess
import sys

TASKS_ONLY = {"pandas", "pyarrow.compute"}
"""What is slow to load, and needed by tasks that send or read."""


def test_a_process_that_only_plans_does_not_load_what_only_tasks_need() -> None:
    code = "import sys, shardq.spark.source; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "shardq.spark.sinks" in loaded
    assert loaded.isdisjoint(TASKS_ONLY)
