"""An interrupt that comes in the start of a thread, when the thread has begun."""

from __future__ import annotations

import threading

import pytest

__all__ = ["interrupt_after_start"]


def interrupt_after_start(patched: pytest.MonkeyPatch, name: str) -> None:
    """Let the start of threads of this name begin them, and then raise KeyboardInterrupt."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == name:
            raise KeyboardInterrupt

    patched.setattr(threading.Thread, "start", interrupted)
