"""``shardq spark``."""
