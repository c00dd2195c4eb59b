"""After a power cut at any moment, PostgreSQL has what clients were told of; too early confirmations are found out."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

from tools.power_loss.postgresql_store import PostgresqlStore
from tools.power_loss.trial import cut, record

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if sys.platform != "linux" or shutil.which("cc") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("the recorder needs Linux and a C compiler")


def test_after_a_cut_every_promise_is_kept(tmp_path: Path) -> None:
    store = PostgresqlStore()
    recording = record(store, tmp_path / "load", messages=80, seed=1, generations=1)
    cuts = cut(store, recording, tmp_path, cuts=6, seed=1)
    assert len(cuts) >= 4
    assert [each for each in cuts if each.offences] == []
    assert max(each.confirmed for each in cuts) > 0


def test_commits_that_do_not_wait_for_the_disk_are_found_out(tmp_path: Path) -> None:
    store = PostgresqlStore({"synchronous_commit": "off"})
    recording = record(store, tmp_path / "load", messages=80, seed=1, generations=1)
    cuts = cut(store, recording, tmp_path, cuts=6, seed=2)
    found = [offence for each in cuts for offence in each.offences]
    assert any("lost" in offence or "back" in offence for offence in found)
