import sys
from pathlib import Path

import pytest

# tools/ is not in the wheel, so it is found from the repository's root.
ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.faults.written_history import Script  # noqa: E402 -- it needs that path


@pytest.fixture
def script() -> Script:
    return Script()
