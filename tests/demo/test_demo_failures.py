"""What goes wrong is one line on stderr and an exit code, and no process is left."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.demo.conftest import flight_cells, write_flights


def one_line(result):
    lines = [line for line in result.stderr.splitlines() if line.startswith("shardq: ")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.output
    return lines[0]


def test_a_file_that_is_not_there_is_wrong_usage(demo, tmp_path):
    result = demo.run("--data", tmp_path / "nowhere.csv")

    assert result.exit_code == 2
    assert "nowhere.csv" in one_line(result)


def test_other_columns_are_a_failure(demo, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    result = demo.run("--data", path)

    assert result.exit_code == 1
    assert "does not have the columns of flights.csv" in one_line(result)


def test_an_index_out_of_reach_is_a_failure(demo, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
    }.items():
        monkeypatch.setenv(name, value)
    result = demo.run()

    assert result.exit_code == 1
    assert "cannot be fetched with pip" in one_line(result)
    assert "--data FILE" in one_line(result)


def test_an_unknown_kind_of_store_is_wrong_usage(demo, flights_csv):
    result = demo.run("--data", flights_csv, "--url", "paper://drawer")

    assert result.exit_code == 2
    assert "paper" in one_line(result)
    assert demo.left() == []


def test_a_store_out_of_reach_is_exit_code_4(demo, flights_csv, tmp_path):
    result = demo.run("--data", flights_csv, "--url", f"sqlite:///{tmp_path / 'no' / 'such' / 'queue.db'}")

    assert result.exit_code == 4
    one_line(result)
    assert demo.left() == []


def test_a_producer_that_fails_ends_the_run(demo, tmp_path):
    path = write_flights(tmp_path / "flights.csv", 100)
    cells = flight_cells(101)
    cells[15] = "far"  # the distance: only a producer reads it
    with path.open("a") as file:
        file.write(",".join(map(str, cells)) + "\n")
    result = demo.run("--data", path)

    assert result.exit_code == 1
    assert "row 101 of the flights cannot be read" in one_line(result)
    assert demo.left() == []
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_every_process_ends_with_the_first_one(flights_csv, tmp_path, sent, code):
    command = [sys.executable, "-c", "from shardq.cli.main import main; main()", "demo"]
    options = ["--data", flights_csv, "--output", tmp_path, "--batch", "50", "--visibility-timeout", "60"]
    process = subprocess.Popen(
        [*command, *map(str, options)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        for line in process.stderr:
            if "was killed" in line:
                break
        # Ctrl-C goes to all processes, a kill to the first one only.
        (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
        assert process.wait(20) == code
        assert "Traceback" not in process.stderr.read()
    until = time.monotonic() + 60
    while group_exists(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not group_exists(process.pid)


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
