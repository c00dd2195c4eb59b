"""What the trials that move many rows are told on the command line."""

from __future__ import annotations

import argparse

__all__ = ["trial_options"]


def trial_options(description: str | None) -> argparse.Namespace:
    """The store, how many rows, and how many bytes each."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=512)
    return parser.parse_args()
