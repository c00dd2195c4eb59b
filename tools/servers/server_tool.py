"""The command line of a server: start it, stop it, or start it around a command."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cache import cache_folder
from server_process import ServerProcess

PATIENCE = 60.0  # seconds in which a command ends what it has begun


@dataclass(frozen=True, slots=True)
class ServerTool:
    """``start`` starts what the options ask for in a folder of its own and returns the URL; it may raise RuntimeError.

    Each server is a :class:`ServerProcess` in a folder within that one.
    """

    name: str
    about: str
    add_options: Callable[[argparse.ArgumentParser], None]
    start: Callable[[Path, argparse.Namespace], str]

    @property
    def _variable(self) -> str:
        return f"SHARDQ_TEST_{self.name.upper()}_URL"

    def main(self) -> int:
        """Do what the command line says; returns the exit code."""
        words = sys.argv[1:]
        end = words.index("--") if "--" in words else len(words)
        options = self._parser().parse_args(words[:end])
        folder = options.folder or cache_folder() / self.name
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that servers are ended
        try:
            if options.action == "run":
                return self._run(options, words[end + 1 :])
            if options.action == "start":
                print(self._start(folder, options))
            else:
                _remove(folder)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    def _start(self, folder: Path, options: argparse.Namespace) -> str:
        """Start what does not run; what ran before goes on when that fails."""
        before = [server for server in _servers(folder) if server.pid() is not None]
        try:
            return self.start(folder, options)
        except BaseException:
            for server in _servers(folder):
                if server not in before:
                    server.stop()
            raise

    def _run(self, options: argparse.Namespace, command: Sequence[str]) -> int:
        if not command:
            raise SystemExit("give a command: run -- COMMAND ...")
        folder = Path(tempfile.mkdtemp(prefix=f"shardq-{self.name}-"))
        try:
            url = self._start(folder, options)
            words = [url if word == "{url}" else word for word in command]
            return _told_to_end_with_this(words, os.environ | {self._variable: url})
        finally:
            _remove(folder)

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            description=self.about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("action", choices=("start", "stop", "run"))
        parser.add_argument("--folder", type=Path, help="where the servers keep their data and logs")
        self.add_options(parser)
        return parser


def _told_to_end_with_this(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command and return its exit code. If this process is told to end, so is the command.

    It may be such a tool itself: killed, it would leave its servers running.
    """
    with subprocess.Popen(words, env=environment) as command:
        try:
            return command.wait()
        except BaseException:
            command.terminate()
            with suppress(subprocess.TimeoutExpired):
                command.wait(PATIENCE)
            command.kill()
            raise


def _servers(folder: Path) -> list[ServerProcess]:
    return [ServerProcess(pid_file.parent) for pid_file in sorted(folder.glob("*/pid"))]


def _remove(folder: Path) -> None:
    """End every server that runs, and delete what it wrote."""
    for server in _servers(folder):
        server.stop()
    shutil.rmtree(folder, ignore_errors=True)
