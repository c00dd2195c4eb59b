"""Where downloads of shardq's tools are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder, in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shardq" / "servers"
