"""The ground of guarantees: SQLite's release, the file system, the rights on the file, and that it is whole."""

from __future__ import annotations

import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shardq.storage.requests import Finding
from shardq.storage.sqlite.tables import prefix_of

__all__ = ["Mount", "check_access", "check_file_system", "check_release", "find_damage"]

_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs",
    "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
_MEMORY = frozenset(["ramfs", "tmpfs"])
_UNSAFE = frozenset(["barrier=0", "local_lock=all", "nobarrier", "nolock", "nostrictsync", "volatile"])
_BROKEN, _FIXED, _BACK_PORTS = (3, 7, 0), (3, 51, 3), ((3, 44, 6), (3, 50, 7))
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\(\d{3})")
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"


class Mount(msgspec.Struct, frozen=True):
    """The mount of a folder."""

    point: str
    kind: str
    options: frozenset[str]


def has_reset_bug(version: tuple[int, ...]) -> bool:
    """Return True for releases of SQLite in which a reset of the log may corrupt the file.

    Two connections that write or checkpoint at the same moment are needed, and bad luck. Fixed in 3.51.3, and in 3.44.6
    and 3.50.7 of older branches: https://sqlite.org/wal.html#walresetbug
    """
    first_fixed = next((fixed for fixed in _BACK_PORTS if fixed[:2] == version[:2]), _FIXED)
    return _BROKEN <= version < first_fixed


def check_release(version: str) -> Finding:
    """Report the release of SQLite, and whether it is one that may corrupt files."""
    if not has_reset_bug(tuple(int(part) for part in version.split("."))):
        return Finding("sqlite", True, version)
    return Finding(
        "sqlite",
        True,
        f"{version} can corrupt the file when two processes write at the same moment, which is rare",
        "use SQLite 3.51.3 or newer (or 3.50.7, 3.44.6): https://sqlite.org/wal.html#walresetbug;"
        " a distribution may have fixed an older one",
        note=True,
    )


def mount_of(folder: Path, mounts: str) -> Mount | None:
    """Return the mount that the folder is on, out of the text of ``/proc/self/mountinfo``."""
    found: Mount | None = None
    for line in mounts.splitlines():
        mount = _parse(line)
        if folder.is_relative_to(mount.point) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def _parse(line: str) -> Mount:
    """Read a line: id, parent, device, root, mount point, options, optional fields, -, type, source, more options."""
    head, tail = line.split(" - ", 1)
    point, options = head.split(" ")[4:6]
    kind, _, more = (*tail.split(" "), "", "")[:3]
    name = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point)
    return Mount(name, kind, frozenset(f"{options},{more}".split(",")))


def check_file_system(folder: Path, mounts: Path = _MOUNTS) -> Iterator[Finding]:
    """Return the file system below the folder where the system has a list of them."""
    try:
        mount = mount_of(folder.resolve(), mounts.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return
    if mount is None:
        return
    unsafe = sorted(mount.options & _UNSAFE)
    if mount.kind in _NETWORK:
        value = f"{mount.kind}, which is shared between machines"
        yield Finding("file system", False, value, "put the file on a disk of this machine")
    elif mount.kind in _MEMORY:
        value = f"{mount.kind}: messages end with the machine"
        yield Finding("file system", False, value, "put the file on a disk")
    elif unsafe:
        value = f"{mount.kind} with {', '.join(unsafe)}"
        yield Finding(
            "file system", False, value, "mount it without, so that confirmed messages are on the disk"
        )
    else:
        yield Finding("file system", True, mount.kind)


def check_access(path: Path) -> Finding:
    """Return whether any user of this machine can change or read the file, as far as the folders above let them in."""
    file = path.resolve()
    files = [each for end in ("", "-wal", "-shm") if (each := file.with_name(file.name + end)).exists()]
    named, folder = " ".join(map(str, files)), file.parent
    within, around = _rights(*files), _rights(folder)
    if not all(each.stat().st_mode & stat.S_IXOTH for each in file.parents):
        return Finding("access", True, "users whom the folder lets in")
    if within & stat.S_IWOTH:
        return Finding("access", False, "any user of this machine can change the file", f"chmod 600 {named}")
    if around & stat.S_IWOTH and not around & stat.S_ISVTX:
        value = f"any user of this machine can replace the file, by its folder {folder}"
        return Finding("access", False, value, f"chmod 700 {folder}")
    if around & stat.S_IWOTH:
        value = f"any user of this machine can put a log for the file into {folder}, which SQLite would read"
        remedy = "move the file into a separate folder, of mode 700, while no program uses it"
        return Finding("access", True, value, remedy, warning=True)
    if within & stat.S_IROTH:
        value = "any user of this machine can read the messages"
        return Finding("access", True, value, f"chmod 600 {named}", warning=True)
    return Finding("access", True, "its user and group" if within & stat.S_IRWXG else "its user")


def find_damage(sql: sqlite3.Connection) -> str | None:
    """Return what is wrong with the file first, or None when its pages, tables and indexes fit together.

    Raises SQLite's errors, which damage may be as well. Every page is read; in the database of an application those of
    the queues. SQLite keeps no checksums, so changed bytes within a body are not found.
    """
    prefix = prefix_of(sql)
    checks = [None if prefix else _check(sql, "1")]
    if checks == [None]:
        names = [str(name) for (name,) in sql.execute(_TABLES)]
        tables = [name.replace("'", "''") for name in names if name.startswith(prefix)]
        checks = [_check(sql, f"'{table}'") for table in tables]
    return next((found for found in checks if found not in (None, "ok")), None)


def _check(sql: sqlite3.Connection, part: str) -> str | None:
    """Return SQLite's verdict; None when a table of the application uses what only its own connections know."""
    try:
        return str(sql.execute(f"PRAGMA integrity_check({part})").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
            return None
        raise


def _rights(*paths: Path) -> int:
    """Return the modes of all these together."""
    modes = 0
    for path in paths:
        modes |= path.stat().st_mode
    return modes
