"""Tasks per second of shardq and of others: `python -m tools.bench.tasks --help`."""
