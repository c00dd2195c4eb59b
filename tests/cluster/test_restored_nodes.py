"""Three nodes of Cassandra are saved by snapshots beside actors, and restored into another cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from tests.backups.cassandra_nodes import restored_cluster

pytestmark = pytest.mark.timeout(900)

OPTIONS = "?consistency=LOCAL_QUORUM&replication=datacenter1:3&timeout=10"


def test_snapshots_of_three_nodes_have_all_that_was_confirmed_before(tmp_path: Path) -> None:
    restored_cluster(
        tmp_path,
        3,
        "--heap",
        "512m",
        "--short-lived",
        query=OPTIONS,
        rate=30.0,
    )
