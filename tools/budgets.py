"""Hold the project to its budgets: sizes, layers, cycles, private accesses of tests, and Python calls.

``budgets.toml`` states each budget. ``python tools/budgets.py`` measures and fails when one is exceeded;
``--lower`` rewrites the file with the budgets that can be lower now, and never raises one.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import statistics
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
BUDGETS = ROOT / "budgets.toml"
PRIVATE = re.compile(r"_[A-Za-z]\w*")
BY_NAME = {"attrgetter", "delattr", "getattr", "hasattr", "methodcaller", "object", "patch", "setattr"}
"""Functions that take the name of an attribute, or the path of one, as text."""
STANDARD = {"_current_frames", "_exit", "_replace"}
"""Names of the standard library that are public in spite of their form."""

CALLS_ON = (3, 11)
"""The Python whose calls are counted: another version inlines other functions."""

STEP = 50
"""Lines are budgeted in steps, so that a small fix needs no edit of the file."""

Figures = dict[str, int]


def python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, or the file itself."""
    yield from sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]


def entries() -> list[Path]:
    """Return what the package contains at its top level."""
    found = (ROOT / "shardq").iterdir()
    return sorted(each for each in found if each.suffix == ".py" or any(each.rglob("*.py")))


def lines() -> Figures:
    """Return the lines of each top-level entry, of the tests and of the tools."""
    counted = {each.stem: _lines(each) for each in entries()}
    return counted | {name: _lines(ROOT / name) for name in ("tests", "tools")}


def _lines(place: Path) -> int:
    return sum(file.read_text().count("\n") for file in python_files(place))


def files() -> Figures:
    """Return the Python files of each top-level folder, and of the whole package."""
    counted = {each.stem: len(list(python_files(each))) for each in entries()}
    return {name: count for name, count in counted.items() if count > 1} | {"shardq": sum(counted.values())}


def private_accesses() -> Figures:
    """Return how often the tests of each folder use a private name of another object or module."""
    counted: Counter[str] = Counter()
    for file in python_files(ROOT / "tests"):
        place = file.relative_to(ROOT / "tests")
        uses = sum(map(_private_uses, ast.walk(ast.parse(file.read_text()))))
        counted[place.parts[0] if len(place.parts) > 1 else "tests"] += uses
    return {name: count for name, count in sorted(counted.items()) if count} | {"all": counted.total()}


def _private_uses(node: ast.AST) -> int:
    names: list[str] = []
    match node:
        case ast.Attribute(ast.Name("self" | "cls")):
            pass
        case ast.Attribute(attr=name):
            names = [name]
        case ast.ImportFrom(names=imported):
            names = [each.name for each in imported]
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name), arguments) if name in BY_NAME:
            texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
            names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
    return sum(PRIVATE.fullmatch(name) is not None and name not in STANDARD for name in names)


def structure() -> Figures:
    """Return the shape of the package; imports inside functions and of types only count as imports."""
    imports = _imports()
    cycles = _cycles(imports)
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = [layer for each in contracts if each["type"] == "layers" for layer in each["layers"]]
    return {
        "top_level_entries": len(entries()),
        "layers": len(layers),
        "modules_outside_layers": len(_outside(layers, imports)),
        "layer_exceptions": sum(len(each.get("ignore_imports", ())) for each in contracts),
        "cycles": len(cycles),
        "modules_in_cycles": sum(map(len, cycles)),
        "files_above_350_lines": sum(_lines(file) > 350 for file in python_files(ROOT / "shardq")),
        "raw_threads": sum(map(_raw_threads, python_files(ROOT / "shardq"))),
    }


def _raw_threads(file: Path) -> int:
    """Return how often a file makes a thread of the standard library, or derives a class from one."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    named = [node.func for node in nodes if isinstance(node, ast.Call)]
    named += [each for node in nodes if isinstance(node, ast.ClassDef) for each in node.bases]
    return sum(ast.unparse(each).removeprefix("threading.") in {"Thread", "Timer"} for each in named)


def _outside(layers: Iterable[str], modules: Iterable[str]) -> list[str]:
    """Return the modules that neither are in a layer nor contain one: import-linter does not see below ``core.``."""
    named = [f"shardq.{part.strip()}." for layer in layers for part in re.split("[:|]", layer)]
    return [
        each
        for each in modules
        if not any(f"{each}.".startswith(part) or part.startswith(f"{each}.") for part in named)
    ]


def _imports() -> dict[str, set[str]]:
    """Return which modules of the package each one imports anywhere in its text."""
    named = {_module(file): file for file in python_files(ROOT / "shardq")}
    found: dict[str, set[str]] = {}
    for name, file in named.items():
        imported = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                place = name if file.name == "__init__.py" else name.rpartition(".")[0]
                above = place.split(".")[: len(place.split(".")) - node.level + 1] if node.level else []
                module = ".".join([*above, *([node.module] if node.module else [])])
                below = {f"{module}.{each.name}" for each in node.names}
                imported |= {each if each in named else module for each in below}
        found[name] = imported & named.keys() - {name}
    return found


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _cycles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that import each other, directly or not."""
    reached = {name: _reachable(name, imports) for name in imports}
    groups = [{other for other in reached[name] if name in reached[other]} for name in imports]
    return [set(group) for group in {frozenset(group) for group in groups if len(group) > 1}]


def _reachable(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        following = imports[todo.pop()] - found
        found |= following
        todo += following
    return found


def python_calls() -> Figures:
    """Return how many Python functions the usual operations call on SQLite, in the thread that makes them."""
    import shardq  # noqa: PLC0415 - which is measured

    body = b"x" * 512
    with tempfile.TemporaryDirectory() as folder, shardq.connect(f"sqlite:///{folder}/calls.db") as client:
        queue = client.create_queue("calls", shards=1, time_shards=1)
        producer, consumer = queue.producer(), queue.consumer()

        def fill(singles: int = 0, bundles: int = 0) -> None:
            for _ in range(singles):
                producer.send(body)
            for _ in range(bundles):
                producer.send_many([body] * 500)

        fill(singles=150)
        counted = {
            "send": _calls(lambda: producer.send(body)),
            "receive_1_and_ack": _calls(lambda: consumer.receive(1).ack()),
            "pop": _calls(consumer.pop),
        }
        while batch := consumer.receive(500):
            batch.ack()
        counted["send_many_500"] = _calls(lambda: producer.send_many([body] * 500), 15)
        counted["receive_500_and_ack"] = _calls(lambda: consumer.receive(500).ack(), 12)
        return counted


def _calls(do: Callable[[], object], times: int = 40) -> int:
    """Return the median of the Python calls of an operation, without the lambda here."""
    counted = []
    for _ in range(times):
        calls = 0

        def note(_: FrameType, event: str, __: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(note)
        try:
            do()
        finally:
            sys.setprofile(None)
        counted.append(calls - (getattr(do, "__name__", "") == "<lambda>"))
    return round(statistics.median(counted[len(counted) // 4 :]))


MEASURES: dict[str, Callable[[], Figures]] = {
    "structure": structure,
    "calls": python_calls,
    "private": private_accesses,
    "files": files,
    "lines": lines,
}


def measured() -> dict[str, Figures]:
    """Measure all that this Python can be asked for."""
    asked = dict(MEASURES)
    if sys.version_info[:2] != CALLS_ON:
        del asked["calls"]
        if "CI" in os.environ:
            sys.exit(f"CI counts Python calls, so it needs Python {'.'.join(map(str, CALLS_ON))}")
        print(f"Python calls are counted on {'.'.join(map(str, CALLS_ON))} only", file=sys.stderr)
    return {name: measure() for name, measure in asked.items()}


def exceeded(budgets: Mapping[str, Figures], found: Mapping[str, Figures]) -> list[str]:
    """Return a sentence for each budget that is exceeded or missing."""
    return [
        f"{section}.{name} is {figure}, its budget {budgets.get(section, {}).get(name, 'is missing')}"
        for section, figures in found.items()
        for name, figure in figures.items()
        if figure > budgets.get(section, {}).get(name, -1)
    ]


def lowered(text: str, found: Mapping[str, Figures]) -> str:
    """Return the text of the budgets with each figure that can be lower; comments stay."""
    section, written = "", []
    for line in text.splitlines():
        heading = re.match(r"\[(\w+)\]", line)
        section = heading[1] if heading else section
        setting = re.match(r"(\w+) = (\d+)", line)
        if setting and section in found:
            figure = found[section].get(setting[1])
            if figure is None:  # it is no longer there
                continue
            figure = -(-figure // STEP) * STEP if section == "lines" else figure
            line = f"{setting[1]} = {min(figure, int(setting[2]))}{line[setting.end() :]}"  # noqa: PLW2901
        written.append(line)
    return "\n".join(written) + "\n"


def main() -> int:
    """Check the budgets, or lower them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lower", action="store_true", help="write down what is lower now")
    options = parser.parse_args()
    found, text = measured(), BUDGETS.read_text()
    if options.lower:
        text = lowered(text, found)
        BUDGETS.write_text(text)
    told = exceeded(tomllib.loads(text), found)
    for sentence in told:
        print(f"{sentence}: make it smaller, or raise it in {BUDGETS.name} and write the reason beside it")
    print(
        ", ".join(
            f"{name} {figure}"
            for section in ("structure", "calls")
            for name, figure in found.get(section, {}).items()
        )
    )
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
