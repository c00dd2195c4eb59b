"""PostgreSQL is saved by pg_dump and by a base backup under load, and restored into another server."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

import shardq  # noqa: E402
from tests.backups.kept import check_kept, check_report, keep  # noqa: E402
from tests.backups.under_load import check_restored, commands, go_on, loaded, run_commands, saving  # noqa: E402
from tests.local_server import local_server  # noqa: E402
from tests.processes import eventually  # noqa: E402

pytestmark = pytest.mark.server

# Processes are killed, and no machine: what the server has written to its files is there.
OPTIONS = ("--without-fsync",)


@pytest.fixture
def owner() -> str | None:
    """The user who runs the server where this is root."""
    if os.getuid() != 0:
        return None
    return "postgres" if "postgres" in {each.pw_name for each in pwd.getpwall()} else "nobody"


@pytest.fixture
def place(owner: str | None) -> Iterator[Path]:
    """A folder that belongs to that user."""
    with tempfile.TemporaryDirectory(prefix="shardq-backup-") as folder:
        if owner is not None:
            shutil.chown(folder, owner)
        yield Path(folder)


@pytest.fixture
def programs() -> list[Path]:
    """Where the programs of PostgreSQL are, the newest first."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin")]
    if not found and shutil.which("pg_dump") is None:
        pytest.skip("there is no pg_dump: install postgresql-client")
    return sorted(found, key=lambda path: -int(path.parent.name))


def test_a_dump_has_all_that_was_confirmed_before(tmp_path: Path, place: Path, programs: list[Path]) -> None:
    with local_server("postgresql", *OPTIONS) as (url, _), shardq.connect(url) as client:
        ids = keep(client)
        with loaded(client, url, tmp_path) as stage, saving(stage):
            run_commands(commands("pg_dump"), {"PGURL": url, "BACKUP": place}, programs=programs)
    with local_server("postgresql", *OPTIONS) as (url, _):
        run_commands(commands("pg_restore"), {"PGURL": url, "BACKUP": place}, programs=programs)
        check_report(url)
        with shardq.connect(url) as client:
            check_restored(client, stage)
            check_kept(client, ids)


def test_a_base_backup_and_the_log_bring_back_a_later_moment(
    tmp_path: Path, place: Path, programs: list[Path], owner: str | None
) -> None:
    archive = place / "archive"
    _folder(archive, owner)
    settings = commands("archive_command").replace("/archive", str(archive)).replace("'", "").splitlines()
    options = [word for line in settings for word in ("--set", line.replace(" = ", "=", 1))]
    # Given a base backup, a moment after it, and changes after that
    with (
        local_server("postgresql", *OPTIONS, *options) as (url, folder),
        psycopg.connect(url, autocommit=True) as server,
        shardq.connect(url) as client,
    ):
        ids = keep(client)
        with loaded(client, url, tmp_path) as stage:
            run_commands(
                commands("pg_basebackup"), {"PGURL": url, "BACKUP": place}, programs=programs, user=owner
            )
            go_on(stage)
            with saving(stage):
                ((moment,),) = server.execute("SELECT clock_timestamp()").fetchall()
        ((last,),) = server.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchall()
        assert eventually((archive / last).exists)
        port = (folder / "ports").read_text()

    # When another server replays the archived log up to that moment
    def restore(folder: Path) -> None:
        (folder / "ports").write_text(port)
        data = folder / port / "data"
        for each in (folder, data.parent):
            each.mkdir(exist_ok=True)
            each.chmod(0o711)
        _folder(data, owner)
        where = {"BACKUP": place, "PGDATA": data, "ARCHIVE": archive, "MOMENT": moment.isoformat(" ")}
        run_commands(commands("recovery_target_time"), where, user=owner)

    with local_server("postgresql", *OPTIONS, restore=restore) as (url, _):
        with psycopg.connect(url, autocommit=True) as server:
            assert eventually(lambda: server.execute("SELECT pg_is_in_recovery()").fetchall() == [(False,)])
        # Then it has what was confirmed until then, and nothing else
        check_report(url)
        with shardq.connect(url) as client:
            check_restored(client, stage)
            check_kept(client, ids)


def _folder(path: Path, owner: str | None) -> None:
    path.mkdir(0o700)
    if owner is not None:
        shutil.chown(path, owner)
