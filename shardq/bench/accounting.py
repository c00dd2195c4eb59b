"""The memory of this process, as the kernel accounts it (Linux's /proc)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_accounted", "resident_bytes"]

_PAGES = Path("/proc/self/statm")


def is_accounted() -> bool:
    """True where this number can be had."""
    return _PAGES.exists()


def resident_bytes() -> int:
    """The memory of this process that is in use now."""
    return int(_PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
