"""Jars from Maven Central, kept in the user's cache folder."""

from __future__ import annotations

import fcntl
from pathlib import Path

from cache import cache_folder


def jars(artifact: str) -> list[Path]:
    """The jars of ``group:name:version`` with all that it needs, downloaded by the first call."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    listing = folder / f"{'-'.join(artifact.split(':')[1:])}.jars"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = [Path(line) for line in listing.read_text().splitlines()] if listing.exists() else []
        if known and all(path.exists() for path in known):
            return known
        found = _download(artifact, folder)
        listing.write_text("\n".join(map(str, found)))
        return found


def _download(artifact: str, folder: Path) -> list[Path]:
    import jgo  # noqa: PLC0415 -- needed for the first start only

    built = jgo.build(artifact, cache_dir=folder / "jgo")
    return [Path(jar) for jar in built.all_jars]
