"""Tries shardq where Spark runs as more than one process, on this computer, and ends by itself.

    python tools/spark/check_clusters.py [TRIAL ...]

Trials: local-cluster, killed-executors, killed-driver, speculation, connect, connect-py-files, py-files, archive.
Without a name all are run. Each prints one line; the logs of one that failed are printed and removed. Needs Java 17 and
pyspark[connect].
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyspark
from clusters import connect_server, end_group, local_cluster, standalone_cluster

HERE = Path(__file__).parent
TRIAL_SECONDS = 2_000.0  # only what hangs takes so long; on a busy machine a Spark starts in minutes

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "700m",
    "spark.sql.shuffle.partitions": "4",
}
SPECULATION = QUIET | {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
}


def main() -> None:
    chosen = sys.argv[1:] or list(TRIALS)
    unknown = [name for name in chosen if name not in TRIALS]
    if unknown:
        sys.exit(f"there is no trial {unknown[0]!r}: use {', '.join(TRIALS)}")
    failed = [name for name in chosen if not _passes(name)]
    sys.exit(1 if failed else 0)


def _passes(name: str) -> bool:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shardq-spark-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        try:
            passed = TRIALS[name](folder)
        except RuntimeError as error:
            passed = False
            print(error, file=sys.stderr)
        if not passed:
            for log in folder.glob("*.log"):
                print(f"--- {log.name}\n{log.read_text()[-20_000:]}", file=sys.stderr)
    print(f"{name}: {'ok' if passed else 'FAILED'}, {time.monotonic() - begun:.0f} s", flush=True)
    return passed


def _try(
    place: Callable[[Path], AbstractContextManager[str]], trial: str, settings: dict[str, str] = QUIET
) -> Callable[[Path], bool]:
    def run(folder: Path) -> bool:
        with place(folder) as master:
            return _run(folder, sys.executable, master, trial, settings)

    return run


def _killed_driver(folder: Path) -> bool:
    """The driver is killed, and its executors are left alone; poison messages fail the query."""
    with standalone_cluster(folder) as master:
        command = [sys.executable, str(HERE / "killed_driver.py"), "--master", master, "--messages", "6000"]
        return _ends_well(folder, "killed_driver", command, {})


def _py_files(folder: Path) -> bool:
    """The wheel travels as a zip file; what it needs is installed."""
    python, package = _bare_python(folder), _zip(folder)
    with local_cluster(folder) as master:
        settings = QUIET | {"spark.submit.pyFiles": str(package)}
        return _run(folder, python, master, "round_trip", settings, PYTHONPATH=str(package))


def _connect_py_files(folder: Path) -> bool:
    """A Connect server is started with the wheel as a zip file; what it needs is installed there."""
    with connect_server(folder, python=_bare_python(folder), package=_zip(folder)) as master:
        return _run(folder, sys.executable, master, "round_trip", {})


def _archive(folder: Path) -> bool:
    """shardq and what it needs travel as an archive."""
    python, packages = _bare_python(folder), folder / "packages"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(packages),
        str(HERE.parents[1]),
    ]
    subprocess.run(command, check=True)
    archive = shutil.make_archive(str(folder / "archive"), "zip", packages)
    with local_cluster(folder) as master:
        settings = QUIET | {
            "spark.archives": f"{archive}#packages",
            "spark.executorEnv.PYTHONPATH": "packages",
        }
        return _run(folder, python, master, "round_trip", settings, PYTHONPATH=str(packages))


def _bare_python(folder: Path) -> str:
    """A Python that has what this one has, but not shardq, which is installed by a link."""
    venv.create(folder / "bare", with_pip=False)
    (packages,) = (folder / "bare").glob("lib/*/site-packages")
    (packages / "borrowed.pth").write_text(str(Path(pyspark.__file__).parents[1]))
    python = str(folder / "bare" / "bin" / "python")
    found = subprocess.run(
        [python, "-c", "import shardq.spark.source"], cwd=folder, capture_output=True, check=False
    )
    if found.returncode == 0:
        raise RuntimeError(
            "shardq is installed in this Python as a copy: install it with pip install --editable"
        )
    return python


def _zip(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(HERE.parents[1])], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel.rename(folder / "shardq.zip")  # Spark takes no file named .whl


def _run(
    folder: Path, python: str, master: str, trial: str, settings: dict[str, str], **surroundings: str
) -> bool:
    chosen = {} if master.startswith("sc:") else settings | {"spark.local.dir": f"{folder}/local"}
    words = [f"{name}={value}" for name, value in chosen.items()]
    command = [python, str(HERE / "trials.py"), master, str(folder), trial, *words]
    return _ends_well(folder, trial, command, {"PYSPARK_PYTHON": python} | surroundings)


def _ends_well(folder: Path, trial: str, command: Sequence[str], surroundings: Mapping[str, str]) -> bool:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", **surroundings}
    with (folder / "trial.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return process.wait(TRIAL_SECONDS) == 0
        except subprocess.TimeoutExpired:
            print(f"{trial} did not end within {TRIAL_SECONDS:.0f} s", file=sys.stderr)
            return False
        finally:
            end_group(process)


TRIALS: dict[str, Callable[[Path], bool]] = {
    "local-cluster": _try(local_cluster, "round_trip"),
    "killed-executors": _try(local_cluster, "killed_executors"),
    "killed-driver": _killed_driver,
    "speculation": _try(standalone_cluster, "speculation", SPECULATION),
    "connect": _try(connect_server, "round_trip"),
    "connect-py-files": _connect_py_files,
    "py-files": _py_files,
    "archive": _archive,
}


if __name__ == "__main__":
    main()
