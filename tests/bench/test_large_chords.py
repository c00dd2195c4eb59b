"""The chords of the page on tasks can be measured again."""

from __future__ import annotations

from pathlib import Path

from tools.bench.tasks.large_chords import measure


def test_a_chord_is_measured_by_its_sum(tmp_path: Path) -> None:
    taken = measure(f"sqlite:///{tmp_path}/chords.db", 300)
    assert taken.calls == 300
    assert 0 < taken.requests < 2 * 300
    assert f"| {taken.calls} |" in taken.row
