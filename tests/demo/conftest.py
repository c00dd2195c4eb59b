"""A data set of the same columns as the real one, and the command run on it."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardq.cli.main import main
from shardq.demo.flight import COLUMNS

FLIGHTS = 3_000
CARRIERS = ("UA", "DL", "9E", "B6", "OO")


def flight_cells(row):
    """A flight of its own for every row: every 11th never left, every 13th never arrived."""
    left, arrived = row % 11 > 0, row % 11 > 0 and row % 13 > 0
    known = {
        "year": 2013,
        "month": row % 12 + 1,
        "day": row % 28 + 1,
        "dep_time": 517 if left else "NA",
        "sched_dep_time": 515,
        "dep_delay": row % 97 - 10 if left else "NA",
        "arr_time": 830 if arrived else "NA",
        "sched_arr_time": 819,
        "arr_delay": row % 89 - 20 if arrived else "NA",
        "carrier": CARRIERS[row % len(CARRIERS)],
        "flight": row,
        "tailnum": "N14228" if left else "NA",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227 if arrived else "NA",
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }
    return [known[column] for column in COLUMNS]


def write_flights(path, rows=FLIGHTS, header=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(flight_cells(row) for row in range(1, rows + 1))
    return path


@pytest.fixture(scope="session")
def flights_csv(tmp_path_factory) -> Path:
    return write_flights(tmp_path_factory.mktemp("flights") / "flights.csv")


class Demo:
    """Runs ``shardq demo`` in this process, in an output folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "out"

    def run(self, *arguments: object) -> Result:
        command = ["demo", "--output", str(self.output), "--batch", "50", "--visibility-timeout", "1"]
        return CliRunner().invoke(main, [*command, *map(str, arguments)])

    def summary(self, *arguments: object) -> dict:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.output.iterdir())


@pytest.fixture
def demo(tmp_path) -> Demo:
    return Demo(tmp_path)
