from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from shardq.cli.main import main
from shardq.service import KeyFile


def test_a_key_is_created_listed_and_revoked(shell, tmp_path) -> None:
    key = shell.ok("keys", "create", "ops", "--role", "act", "--queue", "orders*").stdout.strip()
    file = KeyFile(tmp_path / "shardq-keys.json")
    assert file.find(key).grant.queues == ("orders*",)
    (listed,) = json.loads(shell.ok("keys", "list", "--json").stdout)["keys"]
    assert (listed["name"], listed["role"], listed["queues"]) == ("ops", "act", ["orders*"])
    assert key.split("_")[2] not in shell.ok("keys", "list").stdout
    shell.ok("keys", "revoke", listed["id"])
    assert file.find(key) is None
    assert shell("keys", "revoke", listed["id"]).exit_code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", ""),
        ("create", "x", "--role", "god"),
        ("create", "x", "--queue", ""),
        ("list", "--keys", "."),
    ],
)
def test_wrong_keys_are_refused(shell, arguments) -> None:
    assert shell("keys", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [(["--keys", "missing.json"], {}), ([], {"SHARDQ_KEYS": "missing.json"})],
    ids=["option", "variable"],
)
def test_a_service_does_not_start_open_when_its_file_of_keys_is_missing(shell, arguments, variables) -> None:
    command = ["--url", shell.url, "serve", "--port", "0", "--host", "203.0.113.1", "--insecure", *arguments]
    done = CliRunner().invoke(main, command, env=variables)
    assert done.exit_code == 2
    assert "keys='missing.json' does not exist" in done.output
