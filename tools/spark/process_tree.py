"""The processes of Spark on this computer, as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["children_of", "command_of", "descendants_of", "peak_of", "resident"]


def children_of(parent: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def descendants_of(parent: int, *, without: str | None = None) -> list[int]:
    """The processes below a process, but for those of a command and what is below them."""
    found = []
    for child in children_of(parent):
        if without is None or without not in command_of(child):
            found += [child, *descendants_of(child, without=without)]
    return found


def command_of(process: int) -> str:
    """Its command line; empty when it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def resident(process: int) -> int:
    """Its share of the memory in bytes, pages that it has in common with others by their number; 0: it has ended."""
    return _field(process, "smaps_rollup", "Pss:")


def peak_of(process: int) -> int:
    """The most memory that it ever had, in bytes."""
    return _field(process, "status", "VmHWM:")


def _field(process: int, name: str, field: str) -> int:
    try:
        lines = Path(f"/proc/{process}/{name}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)
