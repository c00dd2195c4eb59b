"""The example of the documentation, on the real data."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

import shardq

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "flights"
FLIGHTS_OF_2013 = 336_776


@pytest.fixture
def flights(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(FOLDER)
    import flight_data

    archive = flight_data.cached_archive()
    try:
        if not archive.exists():
            flight_data.download(archive)
    except flight_data.DataUnavailable as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    return archive


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_flights_come_out_of_the_pipeline_as_they_are_in_the_file(spark, url, flights, tmp_path) -> None:
    example = runpy.run_path(str(FOLDER / "flights_on_spark.py"))
    came_out, straight = example["run"](spark, url, flights, tmp_path)
    assert came_out == straight
    assert sum(row[3] for row in came_out) == 2 * FLIGHTS_OF_2013
    with shardq.connect(url) as client:
        for name in ("flights", "legs"):
            counts = client.queue(name).counts()
            assert (counts.ready, counts.in_flight) == (0, 0)
            client.delete_queue(name)
