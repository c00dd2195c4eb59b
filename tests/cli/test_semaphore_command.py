"""``shardq semaphore`` shows, creates and changes a semaphore."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

import shardq
from shardq.cli.main import main


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["--url", f"sqlite:///{folder}/queue.db", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_semaphore_is_created_changed_and_shown(tmp_path: Path) -> None:
    assert run(tmp_path, "semaphore", "smtp", "--permits", "16", "--lease", "1m")[0] == 0
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db") as client, client.semaphore("smtp").acquire():
        assert run(tmp_path, "semaphore", "smtp", "--permits", "8")[0] == 0
        _, shown, _ = run(tmp_path, "semaphore", "smtp", "--json")
    assert json.loads(shown) == {"name": "smtp", "permits": 8, "held": 1, "lease": 60.0}
    assert "permits" in run(tmp_path, "semaphore", "smtp")[1]


def test_without_a_name_all_semaphores_are_listed(tmp_path: Path) -> None:
    assert run(tmp_path, "semaphore")[0] == 3  # there is no file
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db") as client:
        queue = client.create_queue("q", max_in_flight=5)  # whose permits are no semaphore
        queue.producer().send(b"x")
        with queue.consumer() as consumer:
            assert consumer.receive(1)
        client.semaphore("smtp", permits=16, lease=60)
        with client.semaphore("ftp", permits=2).acquire():
            _, shown, _ = run(tmp_path, "semaphore", "--json")
            lines = run(tmp_path, "semaphore")[1].splitlines()
    assert json.loads(shown)["semaphores"] == [
        {"name": "ftp", "permits": 2, "held": 1, "lease": 30.0},
        {"name": "smtp", "permits": 16, "held": 0, "lease": 60.0},
    ]
    assert [line.split() for line in lines] == [
        ["name", "permits", "held", "lease"],
        ["ftp", "2", "1", "30.0"],
        ["smtp", "16", "0", "60.0"],
    ]
    for options in (["--permits", "2"], ["--lease", "1m"]):
        assert run(tmp_path, "semaphore", *options)[0] == 2


def test_a_lease_that_would_not_be_taken_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path, "semaphore", "smtp", "--permits", "2", "--lease", "1m")[0] == 0
    for permits in [[], ["--permits", "3"]]:
        exit_code, _, told = run(tmp_path, "semaphore", "smtp", *permits, "--lease", "30s")
        assert exit_code == 2
        assert "a lease of 60 seconds, which cannot change" in told
    assert run(tmp_path, "semaphore", "smtp", "--lease", "60s")[0] == 0
    assert json.loads(run(tmp_path, "semaphore", "smtp", "--json")[1])["permits"] == 2


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    run(tmp_path, "create", "q", "--max-in-flight", "5", "--rate-limit", "10/s")
    for code, arguments in [
        (3, ["semaphore", "smtp"]),
        (2, ["semaphore", "smtp", "--permits", "0"]),
        (2, ["semaphore", "a name", "--permits", "1"]),
        (2, ["alter", "q", "--rate-limit", "fast"]),
        (2, ["alter", "q", "--max-in-flight", "0"]),
        (2, ["alter", "q", "--max-in-flight", "many"]),
    ]:
        exit_code, _, told = run(tmp_path, *arguments)
        assert exit_code == code
        assert len(told.splitlines()) == 1, told
        assert "invalid literal" not in told
    assert run(tmp_path, "alter", "q", "--rate-limit", "none", "--max-in-flight", "none")[0] == 0
