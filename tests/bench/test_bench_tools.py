"""The tools of ``tools/bench`` run, and the pages of the benchmarks are made from the kept figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.bench.__main__ import run
from tools.bench.comparison import Comparison
from tools.bench.feature_times import KINDS
from tools.bench.field import FIELDS, Field
from tools.bench.page import page
from tools.bench.peers.shardq_sqlite import ShardqSqlite
from tools.bench.plots import plots_of
from tools.bench.rounds import KINDS as RATES
from tools.bench.rounds import Rounds
from tools.bench.stores.wording import FIXED_RATE, LOADED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [field for field in FIELDS.values() if (DOCS / f"{field.name}.md").exists()]
PLAN = Rounds(rounds=1, messages=40, singles=4, few=4, rate=50.0, seconds=0.2, load_seconds=0.1)
OURS = ["--store", "sqlite", "--only", "shardq_sqlite", "--quick"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Field, "rounds", lambda *_, **__: PLAN)


def test_a_comparison_writes_its_figures_its_page_and_its_plots(small: None, tmp_path: Path) -> None:
    done = CliRunner().invoke(run, [*OURS, "--output", str(tmp_path)])

    assert done.exit_code == 0, done.output
    name = FIELDS["sqlite"].name
    kept = Comparison.decode((tmp_path / name / "results.json").read_bytes())
    assert not kept.missing
    assert {result.name for result in kept.peers} >= {*RATES, FIXED_RATE, LOADED}
    assert "| shardq (SQLite) |" in (tmp_path / f"{name}.md").read_text()
    assert all((tmp_path / name / f"{plot}.png").stat().st_size > 10_000 for plot in plots_of(kept))


def test_a_queue_that_loses_a_message_has_no_figures(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = ShardqSqlite.receive
    monkeypatch.setattr(ShardqSqlite, "receive", lambda *given: receive(*given) - 1)

    CliRunner().invoke(run, [*OURS, "--output", str(tmp_path)])

    kept = Comparison.decode((tmp_path / FIELDS["sqlite"].name / "results.json").read_bytes())
    assert {result.name for result in kept.peers}.isdisjoint(RATES)
    assert "shardq (SQLite) (failed in round 0: 20480 bytes were sent and 20479 received)" in kept.missing


@pytest.mark.parametrize("field", PAGES, ids=[field.store for field in PAGES])
def test_a_page_of_the_documentation_is_made_from_the_kept_figures(field: Field) -> None:
    kept = Comparison.decode((DOCS / field.name / "results.json").read_bytes())
    text = (DOCS / f"{field.name}.md").read_text()
    assert text == page(kept, field.title, field.name)
    for name in plots_of(kept):
        assert f"({field.name}/{name}.png)" in text and (DOCS / field.name / f"{name}.png").exists()


TOOLS = {
    "features": (["{url}", "--messages", "20", "--singles", "2", "--rounds", "1"], list(KINDS)),
    "floors": (["sqlite", "--quick", "--rounds", "1", "--only", "single sends"], ["| single sends"]),
    "tasks": (
        ["--tasks", "50", "--singles", "20", "--chord", "20", "--rounds", "1"],
        ["chord, s", "run/s with results", "sent/s one by one", "µs of cpu without results"],
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_prints_every_row(tool: str, url: str) -> None:
    options, rows = TOOLS[tool]
    words = [url if word == "{url}" else word for word in options]
    command = [sys.executable, "-m", f"tools.bench.{tool}", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [row for row in rows if row not in done.stdout] == []
