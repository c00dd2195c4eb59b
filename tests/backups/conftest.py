from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.backups.kept", "tests.backups.under_load")
