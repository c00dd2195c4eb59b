"""A file of queues is saved by `shardq backup` under load, and restored."""

from __future__ import annotations

from pathlib import Path

import shardq
from tests.backups.kept import check_kept, check_report, keep
from tests.backups.under_load import check_restored, loaded, run_commands, saving


def test_a_saved_file_has_all_that_was_confirmed_before(tmp_path: Path) -> None:
    url, fresh = f"sqlite:///{tmp_path}/queue.db", f"sqlite:///{tmp_path}/fresh.db"
    with shardq.connect(url) as client:
        ids = keep(client)
        with loaded(client, url, tmp_path) as stage, saving(stage):
            run_commands(f"shardq --url {url} backup {tmp_path}/backup.db", {})
    run_commands(f"shardq --url {fresh} restore {tmp_path}/backup.db --yes", {})
    check_report(fresh)
    with shardq.connect(fresh) as client:
        check_restored(client, stage)
        check_kept(client, ids)
