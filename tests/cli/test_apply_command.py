"""`shardq apply`: queues that a file declares."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardq
from shardq.cli.declarations import apply_difference, differences
from tests.cli.conftest import Shell

DECLARED = """
[defaults]
max_deliveries = 3
shards = 2

[queues.orders]
visibility-timeout = "2m"
retention = "14d"

[queues."mail/urgent"]
max_deliveries = "none"
rate_limit = "100/s"
"""


@pytest.fixture
def declared(shell: Shell, tmp_path: Path) -> Path:
    file = tmp_path / "queues.toml"
    file.write_text(DECLARED)
    return file


def described(shell: Shell, name: str) -> dict[str, object]:
    return dict(shell.json("describe", name)["settings"])


def test_missing_queues_are_shown_then_created(shell: Shell, declared: Path) -> None:
    shown = shell("apply", str(declared), stdin="n\n")
    assert shown.exit_code == 1
    assert (
        "+ orders: max_deliveries 3, shards 2, visibility_timeout 120 s (2 min), retention 1209600 s (14.0 days)"
        in shown.stdout
    )
    assert "+ mail/urgent: max_deliveries none, shards 2, rate_limit 100/s" in shown.stdout
    assert shell("list").exit_code == 3
    shell.ok("apply", str(declared), stdin="y\n")
    assert described(shell, "orders")["visibility_timeout"] == 120
    assert described(shell, "mail/urgent")["max_deliveries"] is None
    assert "as" in shell.ok("apply", str(declared)).stderr


def test_only_what_differs_is_altered_and_what_is_not_declared_stays(shell: Shell, declared: Path) -> None:
    shell.ok("create", "orders", "--shards", "4", "--max-deliveries", "3", "--history-retention", "1h")
    shell.ok("create", "beside", "--shards", "4")
    result = shell.json("apply", str(declared), "--dry-run")
    altered = next(each for each in result["differences"] if each["queue"] == "orders")
    assert altered["action"] == "alter"
    assert altered["present"] == {"shards": 4, "visibility_timeout": 30, "retention": None}
    assert not result["applied"]
    assert described(shell, "orders")["shards"] == 4
    shell.ok("apply", str(declared), "--yes")
    assert described(shell, "orders")["shards"] == 2
    assert described(shell, "orders")["history_retention"] == 3600
    assert described(shell, "beside")["shards"] == 4


def test_a_declared_dead_letter_queue_is_created_before_the_queue_that_needs_it(
    shell: Shell, declared: Path
) -> None:
    declared.write_text(
        '[queues.a]\ndead_letter_queue = "z"\n[queues.b]\n[queues."b.dead"]\nshards = 3\n[queues.z]\nshards = 5'
    )
    shell.ok("apply", str(declared), "--yes")
    assert [described(shell, name)["shards"] for name in ("z", "b.dead")] == [5, 3]


def test_a_queue_that_was_created_since_the_differences_were_read_is_altered(tmp_path: Path) -> None:
    with shardq.connect(f"sqlite:///{tmp_path / 'queues.db'}") as client:
        found = differences(client, {"orders": {"shards": 3}, "beside": {}})
        client.create_queue("orders", shards=4, time_shards=2)
        client.create_queue("beside")
        for each in found:
            apply_difference(client, each)
        settings = client.queue("orders").settings
    assert (settings.shards, settings.time_shards) == (3, 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[queues.orders]\nshards = 0", "queue 'orders': shards=0"),
        ("[queues.orders]\nshard = 1", "'shard' is not a setting"),
        ('[queues.orders]\nretention = "soon"', "'soon' is not a duration"),
        ('[queues."mail/*"]', "mail/*"),
        ('[queues."_shardq/x"]', "shardq makes for itself"),
        ("[queue.orders]", "'queue' declares nothing"),
        ("queues = 3", "queues is an int"),
        ("[queues.orders", "cannot be read as TOML"),
        ('[queues.a]\ndead_letter_queue = "b"\n[queues.b]\ndead_letter_queue = "a"', "go round for ever"),
    ],
)
def test_a_wrong_declaration_names_file_queue_and_remedy(
    shell: Shell, declared: Path, text: str, told: str
) -> None:
    declared.write_text(text)
    wrong = shell("apply", str(declared), "--yes")
    assert wrong.exit_code == 2
    assert "queues.toml" in wrong.stderr
    assert told in wrong.stderr
    assert shell("list").exit_code == 3
