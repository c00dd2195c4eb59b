"""The commands of the deployment files are commands that exist. `make deployment` lints the files themselves."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from shardq.cli.main import main
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"


def commands() -> list[list[str]]:
    """The arguments of every ``shardq`` in units and manifests."""
    unit = (DEPLOY / "shardq-worker@.service").read_text()
    found = [shlex.split(line) for line in re.findall(r"^ExecStart=\S+/shardq (.+)$", unit, re.MULTILINE)]
    for manifest in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        lists = re.findall(r"args: \[(.+)\]", manifest.read_text())
        found += [[word.strip().strip('"') for word in words.split(",")] for words in lists]
    return found


@pytest.mark.parametrize("words", commands(), ids=lambda words: " ".join(words[:2]))
def test_the_options_of_a_command_exist(words: list[str]) -> None:
    done = CliRunner().invoke(main, [*words, "--help"])
    assert done.exit_code == 0, done.output


def test_there_are_commands_of_each_kind() -> None:
    assert {words[0] for words in commands()} == {"work", "metrics", "schema", "doctor", "sweep", "expire"}


def test_every_manifest_can_be_applied_again_with_another_image() -> None:
    """The template of a Job cannot be changed, those of the other kinds can."""
    for manifest in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        kinds = set(re.findall(r"^kind: (\w+)$", manifest.read_text(), re.MULTILINE))
        assert kinds <= {"CronJob", "Deployment", "PodDisruptionBudget"}


def test_a_job_that_the_page_makes_is_made_from_one_that_exists() -> None:
    names = set(
        re.findall(r"^  name: (\S+)$", (DEPLOY / "kubernetes" / "jobs.yaml").read_text(), re.MULTILINE)
    )
    made = set(re.findall(r"--from=cronjob/(\S+)", (ROOT / "docs" / "operations.md").read_text()))
    assert made
    assert made <= names


def test_each_alert_has_a_section_of_the_page_and_each_section_an_alert() -> None:
    rules = (DEPLOY / "prometheus" / "alerts.yaml").read_text()
    runbooks = re.findall(r"^ +runbook: docs/operations\.md#(\S+)$", rules, re.MULTILINE)
    page = (ROOT / "docs" / "operations.md").read_text()
    table = re.findall(r"\[.+\]\(#(\S+)\) \|$", page.partition("| Alert when |")[2], re.MULTILINE)
    chapter = page.partition("\n## When an alert fires\n")[2].partition("\n## ")[0]
    sections = [title.lower().replace(" ", "-") for title in re.findall("^### (.+)$", chapter, re.MULTILINE)]
    assert len(runbooks) == rules.count("- alert: ")
    assert {*runbooks, *table} == {*sections} - {"a-damaged-sqlite-file"}


def test_the_image_copies_what_the_wheel_is_built_from() -> None:
    kept = {
        line.removeprefix("!").strip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert kept == {"LICENSE", "README.md", "pyproject.toml", "schema", "shardq"}
