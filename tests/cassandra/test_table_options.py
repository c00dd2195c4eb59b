"""The tables that a release of Cassandra gets."""

from __future__ import annotations

import pytest

from shardq.storage.cassandra.schema import statements
from shardq.storage.migrations import migrations

HINT_WINDOW = 3 * 3600


@pytest.mark.parametrize(
    ("release", "compaction"),
    [
        ("4.1.9", "LeveledCompactionStrategy"),
        ("5.0.6", "UnifiedCompactionStrategy"),
        ("6.0-alpha1", "UnifiedCompactionStrategy"),
    ],
)
def test_every_table_is_compacted_as_its_release_can(release: str, compaction: str) -> None:
    made = [text for each in migrations("cassandra") for text in statements(each.text, release)]
    tables = [text for text in made if text.startswith("CREATE TABLE")]
    assert len(tables) == 5
    for table in tables:
        assert f"compaction = {{'class': '{compaction}'}}" in table
        assert f"gc_grace_seconds = {HINT_WINDOW} " in table
