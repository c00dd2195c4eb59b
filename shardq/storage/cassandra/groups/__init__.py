"""Shards whose messages have groups: each group is one value, and what claims and probes read follows from it."""
