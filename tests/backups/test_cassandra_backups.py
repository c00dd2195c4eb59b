"""One node of Cassandra is saved by snapshots under load, and restored into another one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from tests.backups.cassandra_nodes import restored_cluster

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_snapshots_of_a_node_have_all_that_was_confirmed_before(tmp_path: Path) -> None:
    restored_cluster(tmp_path, 1, "--short-lived")
