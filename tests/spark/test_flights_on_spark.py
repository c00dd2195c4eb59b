"""The example of the documentation, on the real data."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

import shardq
from shardq.demo.dataset import DataUnavailable
from shardq.demo.download import FLIGHTS_OF_2013, cached_archive, download

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "flights_on_spark.py"


@pytest.fixture
def flights() -> Path:
    archive = cached_archive()
    try:
        if not archive.exists():
            download(archive)
    except DataUnavailable as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    return archive


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_flights_come_out_of_the_pipeline_as_they_are_in_the_file(spark, url, flights, tmp_path) -> None:
    example = runpy.run_path(str(EXAMPLE))
    came_out, straight = example["run"](spark, url, flights, tmp_path)
    assert came_out == straight
    assert sum(row[3] for row in came_out) == 2 * FLIGHTS_OF_2013
    with shardq.connect(url) as client:
        for name in ("flights", "legs"):
            counts = client.queue(name).counts()
            assert (counts.ready, counts.in_flight) == (0, 0)
            client.delete_queue(name)
