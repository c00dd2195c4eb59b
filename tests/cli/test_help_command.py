"""``shardq help`` shows the same texts as ``--help``."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("words", ["", "send", "schedule", "schedule create", "spark load", "help"])
def test_help_shows_the_help_of_a_command(shell, words: str) -> None:
    assert shell.ok("help", *words.split()).stdout == shell.ok(*words.split(), "--help").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sned", "Did you mean 'send'?"),
        ("schedule creat", "Did you mean 'create'?"),
        ("send now", "send` has no command 'now'"),
    ],
)
def test_a_wrong_name_is_wrong_usage(shell, words: str, told: str) -> None:
    result = shell("help", *words.split())
    assert result.exit_code == 2
    assert told in result.stderr
