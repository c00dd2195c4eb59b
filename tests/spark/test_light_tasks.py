"""Each process of Spark that plans or reads loads the source, and no more."""

from __future__ import annotations

import subprocess
import sys

SENDING_ONLY = {"pandas"}


def test_a_process_that_only_plans_or_reads_does_not_load_what_only_sending_needs() -> None:
    code = "import sys, shardq.spark.source; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "shardq.spark.sinks" in loaded
    assert loaded.isdisjoint(SENDING_ONLY)
