"""shardq beside other queues, and docs/benchmarks.md out of the figures."""
