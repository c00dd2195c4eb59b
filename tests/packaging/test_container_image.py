"""The image that deploy/Dockerfile builds."""

from __future__ import annotations

import re

from shardq.cli.command_table import COMMANDS
from tests.docs.pages import ROOT


def test_the_image_has_what_every_command_needs_but_spark() -> None:
    (extras,) = re.findall(r"whl\)\[([a-z,]+)\]", (ROOT / "deploy" / "Dockerfile").read_text())
    needed = {entry.extra for entry in COMMANDS.values() if entry.extra} - {"spark"}  # which needs Java
    assert needed | {"metrics"} <= set(extras.split(","))
