"""``python -m shardq``: the same as ``shardq``."""

from __future__ import annotations

from shardq.cli.main import main

if __name__ == "__main__":
    main(prog_name="shardq")
