"""``shardq plan`` prints a layout that `shardq create` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.terminal import in_terminal


def test_a_plan_names_its_numbers_with_reasons_and_the_limit(shell) -> None:
    text = shell.ok("plan", "--rate", "1000000", "--size", "512").stdout
    for words in (
        "shards",
        "time shard seconds",
        "nodes",
        "the limit: ",
        "tools/scaling/measure.py",
        "conditions: whole bundles",
    ):
        assert words in text


@pytest.mark.parametrize("store", ["cassandra", "mongodb", "postgresql", "sqlite"])
def test_a_plan_fits_a_terminal(shell, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    command = ["plan", "--rate", "100", "--size", "1024", "--store", store]
    monkeypatch.setenv("COLUMNS", "80")
    seen, _ = in_terminal(command, shell.url)
    assert [line for line in seen.splitlines() if len(line) > 80] == []
    assert seen.split() == shell.ok(*command).stdout.split()


def test_a_queue_is_created_as_planned(shell) -> None:
    found = shell.json("plan", "--rate", "2000", "--size", "512", "--latency", "2s", "--store", "sqlite")
    assert found["feasible"] is True
    assert found["limit"] in found["uses"]
    numbers = {choice["name"]: choice["value"] for choice in found["choices"]}
    layout = [
        f"--{name.replace('_', '-')}={numbers[name]:g}"
        for name in ("shards", "time_shards", "time_shard_seconds")
    ]
    shell.ok("create", "planned", *layout)
    assert shell.json("describe", "planned")["shards_in_layout"] == numbers["shards"] * numbers["time_shards"]


def test_a_load_that_cannot_be_carried_fails_with_a_remedy(shell) -> None:
    result = shell("plan", "--rate", "1000000", "--size", "512", "--consumers", "1")
    assert result.exit_code == 1
    assert "consumers' processors" in result.stderr
    assert "--consumers" in result.stderr


def test_a_wrong_number_or_store_is_a_usage_error(shell) -> None:
    assert shell("plan", "--rate", "0", "--size", "512").exit_code == 2
    assert shell("plan", "--rate", "1", "--size", "512", "--store", "memory").exit_code == 2


def test_the_page_on_scaling_shows_what_the_command_prints(shell) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
    assert shell.ok("plan", "--rate", "1000000", "--size", "512").stdout in page


@pytest.mark.parametrize("store", ["cassandra", "mongodb", "sqlite"])
@pytest.mark.parametrize("rate", ["0.001", "10", "3000", "250000", "3e7"])
@pytest.mark.parametrize("size", ["1", "512", "300000"])
@pytest.mark.parametrize("options", [(), ("--latency", "5ms"), ("--consumers", "40"), ("--cores", "64")])
def test_the_limit_is_the_highest_line_of_the_table(
    shell, store: str, rate: str, size: str, options: tuple[str, ...]
) -> None:
    told = shell("plan", "--store", store, "--rate", rate, "--size", size, *options).stdout
    (limit,) = (line for line in told.splitlines() if line.startswith("the limit: "))
    used = dict(line.split("% used")[0].rsplit(maxsplit=1) for line in told.splitlines() if "% used" in line)
    assert float(used[limit.removeprefix("the limit: ")]) == max(map(float, used.values()))
