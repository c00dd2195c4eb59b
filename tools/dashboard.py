"""Draws the pictures of the dashboard for the documentation, and measures its pages.

``python -m tools.dashboard pictures docs/pictures`` draws what is in the shop of the tests. ``measure`` prints the time
until the first paint, and the processor time that open pages cost a service on SQLite, with 1,000 queues of 80 shards.
Both need Chromium; the machine has to be quiet for the second one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path

import psutil
from PIL import Image
from playwright.sync_api import Browser, Page

import shardq
from tests.browser.chromium import chromium, find_chromium, open_page
from tests.browser.shop import open_shop
from tests.browser.site import serving

PICTURES = {
    "dashboard-overview": ("/", 1_000),
    "dashboard-queue": ("/queues/orders", 1_360),
    "dashboard-dead-letters": ("/dead-letters/{dead}", 700),
    "dashboard-workflow": ("/workflows/{workflow}", 460),
}
"""The path of each picture, and its height."""

QUEUES, MESSAGES = 1_000, 100
LOADS = 15
SECONDS = 60.0
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def draw(browser: Browser, folder: Path) -> None:
    """Write the pictures into a folder."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        url = f"sqlite:///{place}/queue.db?synchronous=normal"
        shop = stack.enter_context(open_shop(url, open_for=55))
        site = stack.enter_context(serving(url, tick=None))
        page = stack.enter_context(open_page(browser, site.address))
        for name, (path, height) in PICTURES.items():
            page.set_viewport_size({"width": 1_280, "height": height})
            page.goto(path.format(dead="orders.dead", workflow=shop.workflow))
            page.wait_for_function("document.querySelector('#status').textContent === 'live'")
            if page.locator("#history").count():
                page.locator("#history .u-legend").first.wait_for()
            file = folder / f"{name}.png"
            _save(page, file)
            print(f"{file}: {file.stat().st_size / 1_000:.0f} kB")


def _save(page: Page, file: Path) -> None:
    picture = Image.open(BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def measure(browser: Browser) -> None:
    """Print what pages cost with many queues."""
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/queue.db?synchronous=normal"
        with shardq.connect(url) as client:
            for number in range(QUEUES):
                queue = client.create_queue(f"queue-{number:03}")  # 8 shards in each of 10 time shards
                queue.producer().send_many([b"x"] * MESSAGES)
        with _service(url, place) as (process, address):
            _measure_paints(browser, address)
            for paths in ([], ["/"], ["/"] * 2, ["/queues"], ["/queues/queue-000"]):
                _measure_cost(browser, address, process, paths)


def _measure_paints(browser: Browser, address: str) -> None:
    """Open each page in new windows, and once more in each. /livez, which is one word, shows what Chromium takes."""
    for path in ("/livez", "/", "/queues", "/queues?sort=ready", "/queues/queue-000", "/messages/queue-000"):
        paints: tuple[list[float], list[float]] = [], []
        for _ in range(LOADS):
            with open_page(browser, address) as page:
                for times in paints:
                    page.goto(path)
                    while (painted := page.evaluate(PAINTED)) is None:
                        page.wait_for_timeout(20)
                    times.append(painted)
        first, again = map(statistics.median, paints)
        longest = max(map(max, paints))
        print(
            f"{path}: first paint after {first:.0f} ms, again after {again:.0f} ms, longest {longest:.0f} ms"
        )


def _measure_cost(browser: Browser, address: str, process: psutil.Process, paths: list[str]) -> None:
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(open_page(browser, address)).goto(path)
        time.sleep(5)
        before = process.cpu_times()
        time.sleep(SECONDS)
        after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    print(f"open: {', '.join(paths) or 'none'}: {100 * used / SECONDS:.2f} % of a core")


@contextmanager
def _service(url: str, folder: str) -> Iterator[tuple[psutil.Process, str]]:
    command = [sys.executable, "-m", "shardq", "--url", url, "serve", "--ui", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            address = next(word for word in line.split() if word.startswith("http://"))
            yield psutil.Process(process.pid), address.rstrip("/")
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pictures").add_argument("folder", type=Path)
    commands.add_parser("measure")
    given = parser.parse_args()
    program = find_chromium()
    if program is None:
        sys.exit("there is no Chromium: install Debian's package chromium")
    with chromium(program) as browser:
        if given.command == "pictures":
            draw(browser, given.folder)
        else:
            measure(browser)


if __name__ == "__main__":
    main()
