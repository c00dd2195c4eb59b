"""Where the harnesses of the stores are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
for folder in (TESTS.parent, TESTS / "conformance", TESTS / "mongodb"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

pytest.register_assert_rewrite(
    *(
        f"killed_{what}"
        for what in (
            "bodies",
            "clients",
            "moves",
            "queues",
            "schedules",
            "topics",
            "transactions",
            "workflows",
        )
    )
)
