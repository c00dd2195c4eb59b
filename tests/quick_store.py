"""A fixture in the place of ``url`` for tests that write much: import it into a conftest."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["url"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a fresh store that does not wait for the disk."""
    return f"sqlite:///{tmp_path}/queue.db?synchronous=normal"
