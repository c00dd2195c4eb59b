"""Whole jobs over the data source: each a function, and a subcommand of ``shardq spark``."""
